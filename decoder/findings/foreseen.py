"""Exchanges of which is known beforehand what comes of them: those of a recording with an index.

Most of what is recorded went well and says nothing new. A detector is spared what it does not follow (`Detector.follows`),
so that findings over a recording cost little more than what is wrong in it. Live traffic is told in full.
"""

from __future__ import annotations

from .. import facts
from ..about import About
from ..exchange import UNREAD_SIDE, Exchange, State
from ..topics import Topics

UNREAD = frozenset(map(facts.api_key, ("ApiVersions", "SaslHandshake", "SaslAuthenticate")))
"""What connections begin with: always told in full."""
LOOKUPS = frozenset(map(facts.api_key, ("Metadata", "FindCoordinator", "DescribeCluster")))
SIGNS = frozenset(map(facts.api_key, ("Heartbeat", "ConsumerGroupHeartbeat")))
SAME = LOOKUPS | SIGNS
"""What clients say again and again in the same words, and are told in the same words."""


class Foreseen(Exchange):
    """`plain`: it was answered without an error, and both sides are whole and can be decoded. `same`: it is plain, of an API of
    `SAME`, and both sides say byte for byte what the plain one before said of that API, version, connection and client id
    (`same` goes when it has to be told in full nevertheless; `repeated` stays).
    `known`: the first error and whether a side is undecoded or has surplus bytes, once it is done."""

    __slots__ = ("known", "plain", "repeated", "same")

    def __init__(
        self,
        plain: bool,
        connection: int,
        client: str,
        broker: str,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        request: bytes,
        request_time_ns: int,
        topics: Topics,
        about: About,
    ) -> None:
        # There are very many of them: the names once, instead of the long way over the base's keywords.
        self.plain = plain
        self.same = self.repeated = False
        self.known: tuple[int, bool, bool] | None = None
        self.connection, self.client, self.broker = connection, client, broker
        self.api_key, self.api_version, self.correlation_id = api_key, api_version, correlation_id
        self.client_id, self.request, self.request_time_ns = client_id, request, request_time_ns
        self.response = self.response_time_ns = None
        self.request_cut = self.response_cut = 0
        self.state = State.PENDING
        self.topics, self.about = topics, about
        self.marks = {}
        self._messages = [UNREAD_SIDE, UNREAD_SIDE]
        self._faults = [None, None]
        self._views = None

    @property
    def error(self) -> int:
        return super().error if self.known is None else self.known[0]

    @property
    def undecoded(self) -> str | None:
        return None if self.known is not None and not self.known[1] else super().undecoded

    @property
    def surplus(self) -> tuple[int, int]:
        return (0, 0) if self.known is not None and not self.known[2] else super().surplus
