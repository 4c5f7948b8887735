"""Several tenants on one cluster: clients see only topics with a prefix, and see them without it.

barnabas proxy --broker HOST:PORT --plugin "tenant.py?prefix=blue."
"""

from typing import Any


class TopicPrefix:
    """Adds the prefix to every topic that a client names, and removes it from every topic that a broker names.

    Names are changed in all fields that hold a topic's name according to the protocol. Names of resources (DescribeConfigs,
    ACLs) stay as they are, and so does the data that members of a consumer group exchange, which stays among clients.
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
        """Add the prefix on the way to the broker."""
        return message.replace({path: self._with(name) for path, name in ctx.fields("topicName").items()})

    def response(self, message: Any, ctx: Any) -> Any:
        """Remove the prefix on the way to the client, and the topics of other tenants."""
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
