"""Protects topics from deletion: such requests are answered with an error and never reach the broker.

barnabas proxy --broker HOST:PORT --plugin "guard.py?topics=orders,pay*"
"""

from fnmatch import fnmatchcase
from typing import Any


class DeleteGuard:
    """Refuses a DeleteTopics that names a protected topic, by its name or by its id. `topics`: names and patterns."""

    apis = ("DeleteTopics",)

    def __init__(self, topics: str, error: str = "POLICY_VIOLATION") -> None:
        self.patterns = topics.split(",")
        self.error = error

    async def request(self, message: Any, ctx: Any) -> None:
        """Refuses the whole request: a broker would delete the other topics."""
        names = [
            name
            for value in ctx.fields("topicName").values()
            for name in (value if isinstance(value, list) else [value])
        ]
        ids = [topic["topic_id"] for topic in message.to_dict().get("topics", []) if not topic["name"]]
        if ids:
            asked = [{"topic_id": each, "name": None} for each in ids]
            found = await ctx.request("Metadata", {"topics": asked, "allow_auto_topic_creation": False}, version=12)
            names += [topic["name"] for topic in found["topics"] if topic["name"]]
        protected = sorted({name for name in names if any(fnmatchcase(name, pattern) for pattern in self.patterns)})
        if protected:
            ctx.respond(error=self.error)
            ctx.log(f"{ctx.connection.client} must not delete {', '.join(protected)}")
