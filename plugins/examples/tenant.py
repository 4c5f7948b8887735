"""Several tenants on one cluster: clients see the topics that have a prefix, without it, and no others.

barnabas proxy --broker HOST:PORT --plugin "tenant.py?prefix=blue."
"""

from typing import Any


class TopicPrefix:
    """Adds the prefix to every topic that a client names, and takes it away from every one that a broker names.

    Names are changed wherever the protocol says that a field is a topic's name. Names of resources (DescribeConfigs, ACLs)
    are not, nor is what a consumer group's members tell each other, which stays among clients.
    """

    apis = (
        "Produce", "Fetch", "ListOffsets", "Metadata", "OffsetCommit", "OffsetFetch", "CreateTopics", "DeleteTopics",
        "DeleteRecords", "OffsetForLeaderEpoch", "AddPartitionsToTxn", "TxnOffsetCommit", "CreatePartitions", "OffsetDelete",
        "DescribeProducers", "ConsumerGroupHeartbeat", "ConsumerGroupDescribe", "DescribeTopicPartitions",
        "ShareGroupHeartbeat", "ShareGroupDescribe",
    )  # fmt: skip

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def request(self, message: Any, ctx: Any) -> Any:
        """Towards the broker: with the prefix."""
        return message.replace({path: self._with(name) for path, name in ctx.fields("topicName").items()})

    def response(self, message: Any, ctx: Any) -> Any:
        """Towards the client: without it, and nothing of other tenants."""
        if message.api in ("Metadata", "DescribeTopicPartitions"):
            own = [topic for topic in message["topics"] if self._is_own(topic["name"])]
            message = message.replace({"topics": own})
        names = ctx.fields("topicName", message)
        return message.replace({path: self._without(name) for path, name in names.items()})

    def _is_own(self, name: str | None) -> bool:
        return not name or name.startswith(self.prefix)  # no name: an id that the broker does not know

    def _with(self, name: Any) -> Any:
        if isinstance(name, list):
            return [self._with(each) for each in name]
        return self.prefix + name if name else name

    def _without(self, name: Any) -> Any:
        if isinstance(name, list):
            return [self._without(each) for each in name]
        return name.removeprefix(self.prefix)
