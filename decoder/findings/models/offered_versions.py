"""Which versions the brokers offer, by the ApiVersions responses seen, and how a request fits them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import lru_cache
from typing import ClassVar, NamedTuple

from ...codec.message_view import lists_at
from ...connection.exchange import Exchange, State
from ...reference import releases
from ...schema import facts
from ...schema.plan import API_VERSIONS
from ..engine.counters import BoundedDict
from ..engine.detector import Detector, Model
from ..engine.traffic import ClientConnection, Traffic

Table = Mapping[int, tuple[int, int]]
"""(min, max) by api key."""

PRODUCE = facts.api_key("Produce")
FETCH = facts.api_key("Fetch")
METADATA = facts.api_key("Metadata")
UNSUPPORTED = facts.error_code("UNSUPPORTED_VERSION")
_WITH_FEATURES = 3
"""The first version of ApiVersions that names features."""
_REFUSAL = UNSUPPORTED.to_bytes(2, "big")
_REFUSAL_BYTES = 1 << 16  # a refusal has only an error code for each item of the request
AT_ONCE_NS = 5_000_000_000
"""Kafka closes a connection as soon as it reads a version that it does not serve. If it is unknown who closed it, a close
later than this counts as a client timeout."""


class VersionFit(Enum):
    """How a request's version fits what the broker offers."""

    FITS = "the broker offers it"
    UNKNOWN = "it is unknown what the broker offers"
    IGNORED = "the broker does not offer it on this connection"
    ELSEWHERE = "this broker does not offer it, another one of its cluster does"
    OUTSIDE = "the broker does not support it, and did not report that on this connection"
    NOWHERE = "it is unknown what the broker offers, and no current release supports it"


class VersionCheck(NamedTuple):
    """`served`: the (min, max) that the broker serves, None if it lacks the API or that is unknown. `other`: the address of
    a broker that offers the version. `refused`: the version of ApiVersions that the broker refused, which shows its age; -1 for none."""

    fit: VersionFit
    served: tuple[int, int] | None = None
    other: str = ""
    refused: int = -1


def served(table: Table, api_key: int) -> tuple[int, int] | None:
    """The range that a broker with this table serves. Kafka 4 offers Produce from 0 for old librdkafka (KAFKA-18659) but
    serves it from 3; such a broker is recognized by its Fetch, which starts at 4."""
    found = table.get(api_key)
    if api_key == PRODUCE and found is not None and table.get(FETCH, (0, 0))[0] >= 4:
        return max(found[0], 3), found[1]
    return found


@lru_cache(1024)
def current(api_key: int, version: int) -> bool:
    """Whether the newest release serves a version, in any role."""
    return releases.since(api_key, version) is not None and releases.removed(api_key, version) is None


@lru_cache(1024)
def removal(api_key: int, version: int) -> releases.Removal | None:
    """The release that removed a version."""
    return releases.removed(api_key, version)


@lru_cache(1024)
def since(api_key: int, version: int) -> str | None:
    """The release that introduced a version."""
    return releases.since(api_key, version)


def _before(release: str, refused: int) -> bool:
    """Whether a release is older than the first one with that version of ApiVersions, or that is not known."""
    first = since(API_VERSIONS, refused)
    return first is None or releases.release_order(release) < releases.release_order(first)


class OfferedVersions(Model):
    """What brokers offer, by address. `before`: what an address offered before it changed, and when that was seen (ns). `finalized`: the
    levels of the features that are switched on (KIP-584), where the broker names them."""

    id = "offers"
    apis = frozenset({API_VERSIONS})

    def setup(self) -> None:
        self._checked: tuple[Exchange | None, VersionCheck] = None, VersionCheck(VersionFit.UNKNOWN)
        self.tables: BoundedDict[str, Table] = BoundedDict()
        self.before: BoundedDict[str, tuple[Table, int]] = BoundedDict()
        # The lowest version of ApiVersions that a broker refused. One that has offered versions is judged by these.
        self._refused: BoundedDict[str, int] = BoundedDict(1000)
        self.finalized: BoundedDict[str, dict[str, int]] = BoundedDict(1000)
        self._answers: BoundedDict[str, bytes] = BoundedDict(1000)  # the last one of each broker, which is mostly the same again

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.error == UNSUPPORTED and not exchange.marks.notes:
            self._refused[conn.broker] = min(exchange.api_version, self._refused.get(conn.broker, exchange.api_version))
        self._learn_features(conn.broker, exchange)
        own_table = self.of_connection(conn)
        known = self.tables.get(conn.broker)
        if own_table is None or known == own_table:
            return
        if known is not None:
            self.before.of(conn.broker, lambda: (known, conn.last_ns))
        self.tables.pop(conn.broker, None)
        self.tables.of(conn.broker, lambda: dict(own_table))
        self.traffic.forget_kinds()

    def _learn_features(self, broker: str, exchange: Exchange) -> None:
        response = exchange.response
        if response is None or exchange.api_version < _WITH_FEATURES or self._answers.get(broker) == response[4:]:
            return
        message = exchange.response_view
        if message is None or message.api_version < _WITH_FEATURES or exchange.error:
            return
        self._answers[broker] = response[4:]
        ((epoch,), names, levels) = lists_at(
            message, "finalized_features_epoch", "finalized_features.name", "finalized_features.max_version_level"
        )
        if epoch >= 0:
            self.finalized[broker] = dict(zip(names, levels, strict=True))

    @staticmethod
    def of_connection(conn: ClientConnection) -> Table | None:
        """The offer that this connection got. A refused ApiVersions names ApiVersions alone, which is not a table."""
        offered = conn.about.offered
        return offered if offered is not None and METADATA in offered else None

    def of(self, conn: ClientConnection) -> Table | None:
        """The offer of the connection's broker, as seen on any connection."""
        offered = conn.about.offered
        return offered if offered is not None and METADATA in offered else self.tables.get(conn.broker)

    def judge(self, conn: ClientConnection, exchange: Exchange) -> VersionCheck:
        """How the version of an exchange fits."""
        if self._checked[0] is not exchange:
            self._checked = exchange, self._judge(conn, exchange.api_key, exchange.api_version)
        return self._checked[1]

    def _judge(self, conn: ClientConnection, api_key: int, version: int) -> VersionCheck:
        own_table = self.of_connection(conn)
        table = own_table or self.tables.get(conn.broker)
        if table is None:
            refused, came = self._refused.get(conn.broker, -1), since(api_key, version)
            if refused >= 0 and came is not None and not _before(came, refused):
                return VersionCheck(VersionFit.OUTSIDE, refused=refused)
            unknown = current(api_key, version) or api_key not in facts.api_keys()
            return VersionCheck(VersionFit.UNKNOWN if unknown else VersionFit.NOWHERE)
        ends = served(table, api_key)
        if ends is not None and ends[0] <= version <= ends[1]:
            return VersionCheck(VersionFit.FITS, ends)
        other = self._elsewhere(conn, api_key, version)
        if other:
            return VersionCheck(VersionFit.ELSEWHERE, ends, other)
        # A client that keeps to what the broker offers but does not serve (Produce of Kafka 4) is not at fault.
        low, high = table.get(api_key, (0, -1))
        return VersionCheck(VersionFit.IGNORED if own_table and not low <= version <= high else VersionFit.OUTSIDE, ends)

    def _elsewhere(self, conn: ClientConnection, api_key: int, version: int) -> str:
        cluster = conn.cluster
        for address, table in self.tables.items():
            if address != conn.broker and conn.traffic.cluster_of(address) is cluster:
                ends = served(table, api_key)
                if ends is not None and ends[0] <= version <= ends[1]:
                    return address
        return ""


def version_range(ends: tuple[int, int] | None) -> str:
    """``"v4 to v18"``, ``"v3"``, ``"no version"``."""
    if ends is None:
        return "no version"
    return f"v{ends[0]}" if ends[0] == ends[1] else f"v{ends[0]} to v{ends[1]}"


def brokers_version(exchange: Exchange) -> int:
    """The version of the request that the broker got: a proxy may have translated it."""
    leg = exchange.marks.broker_request
    if leg is not None and len(leg.frame) >= 4 and int.from_bytes(leg.frame[:2], "big") == exchange.api_key:
        return int.from_bytes(leg.frame[2:4], "big")
    return exchange.api_version


def refused(exchange: Exchange) -> bool:
    """Whether the response is UNSUPPORTED_VERSION. Bytes are searched first, as hardly any response is, and large ones never are."""
    response = exchange.response
    if response is None or len(response) > _REFUSAL_BYTES or _REFUSAL not in response:
        return False
    return exchange.error == UNSUPPORTED


class Misfit(NamedTuple):
    """What came of a request whose version does not fit. `outcome`: ``refused``, ``closed`` or ``answered``."""

    exchange: Exchange
    check: VersionCheck
    outcome: str


class MisfitDetector(Detector):
    """A detector of requests whose version fits the offer in one of the ways `fits`, by what came of them: override `misfit`.

    A version that is not served is either refused (UNSUPPORTED_VERSION), or, as Kafka does for everything but
    ApiVersions, the connection is closed without an answer.
    """

    fits: ClassVar[frozenset[VersionFit]]
    outcomes: ClassVar[frozenset[str]] = frozenset({"refused", "closed", "answered"})

    def __init__(self, traffic: Traffic) -> None:
        super().__init__(traffic)
        self.offers = traffic.model(OfferedVersions)
        # By connection: the first request that did not fit and got no answer. Connections end, and with them this.
        self._unanswered: dict[int, tuple[Exchange, VersionCheck]] = {}

    def misfit(self, conn: ClientConnection, misfit: Misfit) -> None:
        """A request did not fit, with one of `outcomes`."""

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.api_key == API_VERSIONS or exchange.request is None:
            return
        if exchange.state is State.PAIRED:
            self._unanswered.pop(conn.number, None)
        check = self.offers.judge(conn, exchange)
        if check.fit not in (VersionFit.FITS, VersionFit.UNKNOWN):
            conn.forget_kinds()
        if check.fit not in self.fits:
            return
        if exchange.state is State.PAIRED:
            self._happened(conn, Misfit(exchange, check, "refused" if refused(exchange) else "answered"))
        elif exchange.state is State.NO_RESPONSE:
            self._unanswered.setdefault(conn.number, (exchange, check))

    def closed(self, conn: ClientConnection) -> None:
        exchange, check = self._unanswered.pop(conn.number, (None, None))
        if exchange is None or check is None or not conn.how or conn.by == "client" or conn.closed_ns is None:
            return
        if conn.by or conn.closed_ns - (exchange.request_time_ns or 0) <= AT_ONCE_NS:
            self._happened(conn, Misfit(exchange, check, "closed"))

    def _happened(self, conn: ClientConnection, misfit: Misfit) -> None:
        if misfit.outcome in self.outcomes:
            self.misfit(conn, misfit)
