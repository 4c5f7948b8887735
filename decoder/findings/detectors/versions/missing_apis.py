"""Clients that end after ApiVersions, because the listener does not offer what they need."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from ....connection.exchange import Exchange, State
from ....reference import releases
from ....reference.clients import KnownVersion, parse_version, software
from ....reference.releases import exact_release, release_order
from ....schema import facts
from ...engine.counters import BoundedDict
from ...engine.detector import Detector, Wanted
from ...engine.finding import Finding, Severity
from ...engine.formatting import SECOND, duration, times
from ...engine.layout import layout, top
from ...engine.traffic import ClientConnection, ClientIdentity
from ...models.offered_versions import UNSUPPORTED, Table, removal, served, since, version_range

API_VERSIONS = facts.api_key("ApiVersions")
METADATA = facts.api_key("Metadata")
PRODUCE = facts.api_key("Produce")
FIND_COORDINATOR = facts.api_key("FindCoordinator")
LIST_OFFSETS = facts.api_key("ListOffsets")
JOIN_GROUP = facts.api_key("JoinGroup")
CONSUMER_GROUP_HEARTBEAT = facts.api_key("ConsumerGroupHeartbeat")
SHARE_GROUP_HEARTBEAT = facts.api_key("ShareGroupHeartbeat")
INIT_PRODUCER_ID = facts.api_key("InitProducerId")
_BEGINNINGS = facts.api_key_set("ApiVersions", "SaslHandshake", "SaslAuthenticate")
_FIRST = _BEGINNINGS | facts.api_key_set("Metadata", "FindCoordinator")
_CONTROLLERS = facts.api_key_set("Vote", "BeginQuorumEpoch", "BrokerRegistration", "BrokerHeartbeat")
"""APIs that a KRaft controller alone offers on its listener."""
_FLEXIBLE = 3
"""The version of ApiVersions that clients ask since Kafka 2.4; older ones have old versions of the others, too."""
SILENT_NS = 10 * SECOND
"""Without any request after the response to ApiVersions, the client does not use the connection."""


class _Ended(NamedTuple):
    """A connection on which nothing but ApiVersions (and SASL) was asked, when it ended or fell silent."""

    conn: ClientConnection
    exchange: Exchange
    offered: Table


class _EndsAfterApiVersions(Detector):
    """A detector of connections that end after ApiVersions, or stay silent from then on: override `gave_up`."""

    wanted = Wanted.NEW

    def setup(self) -> None:
        # By connection: the newest ApiVersions that was answered, and how many requests of its beginning were answered.
        self._asked: BoundedDict[int, tuple[ClientConnection, Exchange, int]] = BoundedDict()

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        fell_back = exchange.api_key == API_VERSIONS and exchange.error == UNSUPPORTED  # it asks an older version next
        if exchange.api_key not in _BEGINNINGS or exchange.state is not State.PAIRED or (exchange.error and not fell_back):
            self._asked.pop(conn.number, None)
            if exchange.state is State.PAIRED:
                self.went_on(conn, exchange)
            return
        asked = self._asked.get(conn.number)
        if exchange.api_key == API_VERSIONS:
            newest = asked[1] if asked is not None and asked[1].api_version > exchange.api_version else exchange
            self._asked[conn.number] = conn, newest, asked[2] + 1 if asked is not None else 1
        elif asked is not None:
            self._asked[conn.number] = conn, asked[1], asked[2] + 1

    def closed(self, conn: ClientConnection) -> None:
        asked = self._asked.pop(conn.number, None)
        if asked is not None and conn.how and conn.by != "broker" and not conn.lost and asked[2] == conn.requests:
            offered = conn.about.offered
            if offered is not None and len(offered) > 1:
                self.gave_up(_Ended(conn, asked[1], offered))

    def silent(self, now_ns: int) -> list[_Ended]:
        """Open connections that were not used any further."""
        return [
            _Ended(conn, exchange, conn.about.offered)
            for conn, exchange, count in self._asked.values()
            if count == conn.requests and now_ns - conn.last_ns >= SILENT_NS and conn.about.offered and len(conn.about.offered) > 1
        ]

    def went_on(self, conn: ClientConnection, exchange: Exchange) -> None:
        """Another request was answered."""

    def gave_up(self, ended: _Ended) -> None:
        """A connection ended on which nothing else was asked."""


def is_controller(offered: Table) -> bool:
    """Whether it is the listener of a KRaft controller, which has no Metadata and no Produce."""
    return METADATA not in offered and PRODUCE not in offered and bool(_CONTROLLERS & offered.keys())


class ControllerListener(_EndsAfterApiVersions):
    id = "controller-listener"
    severity = Severity.HIGH
    title = "a client connects to the listener of a KRaft controller, which serves brokers and admin tools only"
    why = (
        "a KRaft controller has a listener of its own (controller.listener.names), for brokers, other controllers and admin tools with "
        "bootstrap.controllers (KIP-919). Producers, consumers and other clients need Metadata, which it does not offer."
    )
    remedy = (
        "use a broker's address in bootstrap.servers: one of the broker's advertised.listeners, not the controller's port (mostly 9093); a "
        "tool for controllers: --bootstrap-controller"
    )
    explains = ("connection-churn", "client-gives-up", "closed-without-answer", "closed-on-version", "api-versions-ignored")

    OFTEN = 2
    """Connections; a single one may be a probe."""

    def setup(self) -> None:
        super().setup()
        self._fine: BoundedDict[tuple[str, str, str], None] = BoundedDict()

    @staticmethod
    def _who(conn: ClientConnection) -> tuple[str, str, str]:
        return conn.client_host, conn.client_id or "", conn.broker

    def went_on(self, conn: ClientConnection, exchange: Exchange) -> None:
        if conn.about.offered is not None and is_controller(conn.about.offered) and self._who(conn) not in self._fine:
            self._fine[self._who(conn)] = None
            self._found.pop(self._who(conn), None)

    def gave_up(self, ended: _Ended) -> None:
        if is_controller(ended.offered) and self._who(ended.conn) not in self._fine:
            self._state(self.report(self._who(ended.conn), ended.exchange, facts=ended.conn.facts), ended)

    def _state(self, finding: Finding, ended: _Ended) -> None:
        if finding.count < self.OFTEN:
            finding.severity = Severity.MEDIUM
        else:
            finding.severity = self.severity
        theirs = ", ".join(facts.api_name(key) for key in sorted(_CONTROLLERS & ended.offered.keys()))
        finding.seen = (
            f"{ended.conn.broker} is the listener of a KRaft controller: it offers {theirs}, but neither Metadata nor Produce; "
            f"{ended.conn.who} asks it for its versions and ends there ({times(finding.count)})"
        )

    def finish(self, now_ns: int) -> None:
        self._for_now.clear()
        for ended in self.silent(now_ns):
            who = self._who(ended.conn)
            if is_controller(ended.offered) and who not in self._fine and who not in self._found:
                finding = self.finding("", self.why, self.remedy, None, **ended.conn.facts)
                finding.add_evidence(ended.exchange)
                self._for_now[who] = finding
                self._state(finding, ended)


_DATA = -1
"""Stands for the key type of a client that asked for topics and has not looked for a coordinator."""
_CLASSIC = ("JoinGroup", "SyncGroup", "Heartbeat", "OffsetFetch", "OffsetCommit")
_NEEDS = {
    _DATA: ("Produce", "Fetch", "ListOffsets", "FindCoordinator", "InitProducerId"),
    0: _CLASSIC,
    1: ("InitProducerId", "AddPartitionsToTxn", "EndTxn"),
    2: ("ShareGroupHeartbeat", "ShareFetch", "ShareAcknowledge"),
}
"""By the key type of FindCoordinator: what a client sends next."""
_KINDS = {0: "group", 1: "transactional id", 2: "share group"}
_USES = {
    _DATA: facts.api_key_set("Produce", "Fetch", "ListOffsets", "InitProducerId"),
    0: facts.api_key_set(
        *_CLASSIC, "ConsumerGroupHeartbeat", "StreamsGroupHeartbeat", "DescribeGroups", "ConsumerGroupDescribe", "DeleteGroups", "LeaveGroup",
        "OffsetDelete",
    ),
    1: facts.api_key_set("InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "TxnOffsetCommit", "DescribeTransactions"),
    2: facts.api_key_set("ShareGroupHeartbeat", "ShareFetch", "ShareGroupDescribe", "DescribeShareGroupOffsets"),
}  # fmt: skip
"""By key type: the APIs that show that the client has got further."""
_GSSAPI_MENDED = (2, 11, 0)
"""The first librdkafka that uses SASL/GSSAPI where JoinGroup v0 is not offered."""
_NEW_PROTOCOL = {"apache-kafka-java": (3, 7), "librdkafka": (2, 4), "kgo": (1, 20)}
"""The first version of a client with group.protocol=consumer (KIP-848), also as a preview."""


@dataclass(slots=True)
class _Sought:
    """A client that looked for the coordinator of a group, a transactional id or a share group (`kind`), and what it has used.
    `after_metadata`: its last connection that ended had Metadata, too."""

    kind: int
    name: str
    newest: dict[int, int] = field(default_factory=dict)
    count: int = 0
    last: _Ended | None = None
    after_metadata: bool = False


@dataclass(slots=True)
class _NeedsNewer:
    """A client whose release supports only newer brokers than this one. `worked`: it got further than to begin."""

    conn: ClientConnection
    called: str
    need: KnownVersion
    release: str
    worked: bool = False


class _Missing(NamedTuple):
    """What a client needs and the broker does not offer. `text` completes "...: "; `sure`: it follows from what is offered alone.
    `at_once`: a single connection shows it."""

    text: str
    why: str
    remedy: str
    sure: bool
    apis: tuple[str, ...]
    at_once: bool = False


class ClientGivesUp(_EndsAfterApiVersions):
    id = "client-gives-up"
    severity = Severity.HIGH
    title = "a client asks for the versions of a broker and ends there: it needs an API, a version or a newer release"
    explains = ("connection-churn", "ends-after-answer")

    OFTEN = 3
    ASKS, ASKS_NS = 5, 30 * SECOND
    """Requests of a client that asks for Metadata alone, and over how long."""

    def setup(self) -> None:
        super().setup()
        # By connection: one on which a client that needs what is not offered asked for topics, and nothing else so far.
        self._only_metadata: BoundedDict[int, tuple[ClientConnection, Exchange]] = BoundedDict()
        self._sought: BoundedDict[tuple[str, str], _Sought] = BoundedDict()
        # Clients that have sent nothing else so far: how often they ended, and the last time; None once they have.
        self._alone: BoundedDict[tuple[str, str], tuple[int, _Ended] | None] = BoundedDict()
        # By connection on which Metadata was all that followed: its ApiVersions.
        self._with_metadata: BoundedDict[int, Exchange] = BoundedDict()
        self._need_newer: BoundedDict[tuple[str, str | None, str], _NeedsNewer] = BoundedDict()
        self._releases: BoundedDict[str, tuple[Table, str | None]] = BoundedDict()

    @staticmethod
    def _who(conn: ClientConnection) -> tuple[str, str]:
        return conn.client_host, conn.client_id or ""

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.api_key == API_VERSIONS:
            self._compare(conn, exchange)
        elif exchange.api_key not in _FIRST and self._need_newer:
            newer = self._need_newer.get((conn.client_host, conn.client_id, conn.broker))
            if newer is not None and exchange.state is State.PAIRED and not exchange.error:
                newer.worked = True
        if exchange.api_key != METADATA:
            self._with_metadata.pop(conn.number, None)
        elif (asked := self._asked.get(conn.number)) is not None:
            self._with_metadata[conn.number] = asked[1]
        super().done(conn, exchange)

    def closed(self, conn: ClientConnection) -> None:
        super().closed(conn)
        asked, offered = self._with_metadata.pop(conn.number, None), conn.about.offered
        sought = self._sought.get(self._who(conn))
        if asked is None or offered is None or sought is None or sought.kind != _DATA or not conn.how or conn.by == "broker" or conn.lost:
            return
        if _too_new(ended := _Ended(conn, asked, offered)) is not None and not _USES[_DATA] & sought.newest.keys():
            sought.count, sought.last, sought.after_metadata = sought.count + 1, ended, True

    def went_on(self, conn: ClientConnection, exchange: Exchange) -> None:
        who = self._who(conn)
        self._alone[who] = None
        sought = self._sought.get(who)
        if exchange.api_key == FIND_COORDINATOR and not exchange.error and (found := _coordinator_of(exchange)) is not None:
            if sought is None:
                sought = self._sought[who] = _Sought(*found)
            elif sought.kind != found[0]:
                sought.kind, sought.name = found
        if exchange.api_key != METADATA:
            if self._only_metadata:
                self._only_metadata.pop(conn.number, None)
        elif (offered := conn.about.offered) is not None and FIND_COORDINATOR not in offered:
            self._only_metadata[conn.number] = conn, exchange
        if exchange.api_key == METADATA and sought is None and (topic := _topic_of(exchange)) is not None:
            sought = self._sought[who] = _Sought(_DATA, topic)
        if sought is None:
            return
        key = exchange.api_key
        sought.newest[key] = max(exchange.api_version, sought.newest.get(key, -1))
        if key in _USES[sought.kind]:
            sought.count, sought.last = 0, None

    def _compare(self, conn: ClientConnection, exchange: Exchange) -> None:
        """Compare the broker's release with the oldest one that the client's release supports."""
        about, offered = conn.about, conn.about.offered
        if not about.software_name or offered is None or len(offered) < 2:
            return  # a refusal names ApiVersions alone, which is not a broker's offer
        known = software(about.software_name, about.software_version, conn.client_id)
        need = known.client.oldest_broker(known.version) if known is not None else None
        if known is None or need is None:
            return
        before = self._releases.get(conn.broker)
        if before is None or before[0] != offered:
            before = self._releases[conn.broker] = dict(offered), exact_release(offered)
        if before[1] is None or release_order(before[1]) >= release_order(need.release):
            return
        key, release = (conn.client_host, conn.client_id, conn.broker), before[1]
        if key not in self._need_newer:
            self.traffic.forget_kinds()
        self._need_newer.of(key, lambda: _NeedsNewer(conn, known.text, need, release))
        self.report(key, exchange, "", "", needs=need.release, release=release, facts=conn.facts_of(exchange))

    def _state_newer(self, finding: Finding, seen: _NeedsNewer) -> None:
        need, least = seen.need, f"upgrade the brokers to {seen.need.release} or newer"
        finding.severity = Severity.INFO if seen.worked else Severity.HIGH
        finding.seen = (
            f"{seen.conn.who} needs brokers of {need.release} or newer, and {seen.conn.where} is {seen.release}; "
            + ("its requests are answered" if seen.worked else "it got no further than Metadata")
        )
        finding.why = (
            f"from {need.version} on, {seen.called.rsplit(' ', 1)[0]} no longer supports brokers older than "
            f"{need.release} ({need.source})"
        )
        if seen.worked:
            finding.why += (
                ". What it asked for so far works, as the broker offers versions that it has; other calls may find no "
                "common version, and neither project tests these two releases together."
            )
            finding.remedy = f"nothing now; {least} before you rely on it"
        else:
            finding.why += (
                ": it finds no common version and raises an exception (UnsupportedVersionException), which is not "
                "visible on the wire"
            )
            finding.remedy = f"{least}, or use a client older than {need.version}"

    def gave_up(self, ended: _Ended) -> None:
        sought = self._sought.get(self._who(ended.conn))
        if sought is not None and not is_controller(ended.offered) and not _USES[sought.kind] & sought.newest.keys():
            sought.count, sought.last, sought.after_metadata = sought.count + 1, ended, False
        who = self._who(ended.conn)
        alone = self._alone.get(who, (0, ended))
        if sought is None and alone is not None and not is_controller(ended.offered):
            self._alone[who] = alone[0] + 1, ended

    def finish(self, now_ns: int) -> None:
        self._for_now.clear()
        for key, finding in self._found.items():
            if isinstance(key, tuple) and (newer := self._need_newer.get(key)) is not None:
                self._state_newer(finding, newer)
        silent = {self._who(ended.conn): ended for ended in self.silent(now_ns)}
        for who, sought in self._sought.items():
            count, last = sought.count, sought.last or silent.get(who)
            if last is None or _USES[sought.kind] & sought.newest.keys():
                continue
            count += who in silent
            missing = _missing(last, sought, count >= self.OFTEN)
            if missing is not None and (sought.kind != _DATA or count >= self.OFTEN or missing.at_once):
                self._for_now[who] = self._state(last, sought, missing, count)

        for conn, exchange in self._only_metadata.values():
            who, offered = self._who(conn), conn.about.offered
            asks, lasted = self._sought.get(who), conn.last_ns - conn.opened_ns
            if (
                asks is None or who in self._for_now or offered is None
                or conn.requests < self.ASKS or lasted < self.ASKS_NS or asks.newest.keys() - {METADATA}
            ):  # fmt: skip
                continue
            missing = _missing(_Ended(conn, exchange, offered), asks, False)
            if missing is not None and missing.sure and not set(missing.apis) <= {"InitProducerId"}:
                finding = self.finding(
                    f"{conn.who} asks {conn.where} for topic {asks.name!r} again and again ({conn.requests} requests in {duration(lasted)}), and "
                    f"for nothing else: {missing.text}",
                    missing.why, missing.remedy, Severity.MEDIUM, missing=list(missing.apis), **conn.facts,
                )  # fmt: skip
                finding.add_evidence(exchange)
                self._for_now[who] = finding

        for who, alone in self._alone.items():
            if alone is not None and who not in self._for_now and (state := self._state_alone(*alone)) is not None:
                self._for_now[who] = state

    def _state_alone(self, count: int, last: _Ended) -> Finding | None:
        """Of a client that never sent anything else; None without a reason in what is offered."""
        conn, offered = last.conn, last.offered
        known = software(conn.about.software_name, conn.about.software_version, conn.client_id)
        join_from = offered.get(JOIN_GROUP, (0, 0))[0]
        severity, old = Severity.HIGH, _too_new(last)
        if count < self.OFTEN and old is None:
            return None
        if METADATA not in offered:
            text = "it does not offer Metadata"
            why = "every client needs Metadata first. So this is not a broker of Apache Kafka, or a proxy hides the API."
            remedy = "use the address of a broker, or look at what is between client and broker"
        elif known is not None and known.client.name == "librdkafka" and join_from and parse_version(known.version) < _GSSAPI_MENDED:
            text = f"it offers JoinGroup {version_range(offered[JOIN_GROUP])}, and {known.text} looks for v0 before it uses SASL/GSSAPI"
            why = (
                "librdkafka before 2.11.0 takes a broker without JoinGroup v0 for one without SASL/GSSAPI, and ends the connection. Kafka 4.0.0 "
                "dropped that version, and 4.0.1 has it again (KAFKA-19444)."
            )
            remedy = "upgrade librdkafka to 2.11.0 or newer, or the broker to 4.0.1 or newer"
        elif old is not None:
            severity = Severity.MEDIUM if count >= self.OFTEN else Severity.LOW
            text, why, remedy = old.text, old.why, old.remedy
        else:
            return None  # ends-after-answer
        finding = self.finding(
            f"{conn.who} asks {conn.where} for its versions and ends the connection ({times(count)}): {text}", why, remedy, severity, **conn.facts
        )
        finding.add_evidence(last.exchange)
        finding.count = count
        return finding

    def _state(self, last: _Ended, sought: _Sought, missing: _Missing, count: int) -> Finding:
        conn = last.conn
        few = count < self.OFTEN and sought.after_metadata  # a tool that looks at a topic does the same
        found = f"asked for topic {sought.name!r}" if sought.kind == _DATA else f"found the coordinator of {_KINDS[sought.kind]} {sought.name!r}"
        finding = self.finding(
            f"{conn.who} {found}, asked {conn.where} for its versions, and sent "
            f"nothing more{' than Metadata' * sought.after_metadata} on that connection ({times(count)}): {missing.text}",
            missing.why,
            missing.remedy,
            self.severity if sought.kind != _DATA and (count >= self.OFTEN or missing.sure) else Severity.LOW if few else Severity.MEDIUM,
            missing=list(missing.apis),
            **conn.facts,
        )
        finding.add_evidence(last.exchange)
        finding.count = count
        return finding


def _coordinator_of(exchange: Exchange) -> tuple[int, str] | None:
    """The kind and name of what the client looks for; None for kinds without a meaning here."""
    message = exchange.request_view
    if message is None:
        return None
    fields = top(message)
    names = fields.get("coordinator_keys") or [fields.get("key", "")]
    kind = fields.get("key_type", 0)
    return (kind, names[0]) if kind in _KINDS else None


def _topic_of(exchange: Exchange) -> str | None:
    """The first topic that a Metadata request names."""
    message = exchange.request_view
    topics = message.values[layout(message.plan.root)["topics"]] if message is not None else None
    return topics[0][layout(message.plan.root, "topics")["name"]] if message is not None and topics else None


def _missing(last: _Ended, sought: _Sought, often: bool) -> _Missing | None:
    """What the client needs and is not offered; None if nothing is known to be missing."""
    offered = last.offered
    if sought.kind == _DATA and (too_new := _too_new(last, often)) is not None:
        return too_new
    absent = tuple(api for api in _NEEDS[sought.kind] if facts.api_key(api) not in offered)
    if absent:
        purpose = (
            "a consumer needs Fetch, ListOffsets and FindCoordinator, a producer Produce, and one with enable.idempotence (Java's default) or "
            "transactions InitProducerId"
            if sought.kind == _DATA
            else f"a client needs {', '.join(absent)} for a {_KINDS[sought.kind]}"
        )
        came = since(facts.api_key(absent[0]), 0) or "a newer release"
        return _Missing(
            f"it does not offer {', '.join(absent)}",
            f"{purpose}; Apache Kafka has {absent[0]} since {came}. So this is a product "
            "without it, an older broker, or a proxy that hides it.",
            f"use a broker or product that offers {', '.join(absent)}, or do without in the client"
            + (" (enable.idempotence=false)" if "InitProducerId" in absent else ""),
            True,
            absent,
        )
    old = _too_old(sought, offered)
    if old is not None:
        return old
    new = facts.api_name(CONSUMER_GROUP_HEARTBEAT)
    if sought.kind == 0 and CONSUMER_GROUP_HEARTBEAT not in offered and _has_new_protocol(last.conn, often):
        return _Missing(
            f"it does not offer {new}, which group.protocol=consumer needs",
            "a client of the classic protocol goes on with JoinGroup, which is offered. One with group.protocol=consumer (KIP-848) needs "
            f"{new}, which brokers have since Kafka 4.0, and ends with an UnsupportedVersionException that is not visible on the wire.",
            "set group.protocol=classic in the client, or use brokers of 4.0 or newer; a proxy in between must not hide the API",
            False,
            (new,),
        )
    share = facts.api_name(SHARE_GROUP_HEARTBEAT)
    if sought.kind == 0 and offered.get(SHARE_GROUP_HEARTBEAT, (0, 0))[1] < 1 and _has_share_groups(last.conn):
        return _Missing(
            f"of what consumers of all kinds need, it does not offer {share} v1 alone",
            f"consumers of the classic and the consumer protocol find all they need and go on. A share consumer (KIP-932) needs {share} v1, "
            "which brokers offer since Kafka 4.1 if share groups are enabled (by default since 4.2), and ends with an "
            "UnsupportedVersionException that is not visible on the wire.",
            "use brokers of 4.2 or newer, or of 4.1 after kafka-features.sh upgrade --feature share.version=1; or a consumer instead of a share "
            "consumer",
            False,
            (share,),
        )
    return None


_READ_COMMITTED = _Missing(
    "",
    "this release of the Java client works with such an old broker, but not with all of its settings: "
    "isolation.level=read_committed needs ListOffsets v2 and Fetch v4, headers need Produce v3, and enable.idempotence "
    "(the default since 3.0) InitProducerId, all of Kafka 0.11. It fails with an UnsupportedVersionException that is "
    "not visible on the wire.",
    "set isolation.level=read_uncommitted (consumers) or enable.idempotence=false (producers), or upgrade the brokers "
    "to 0.11 or newer",
    False,
    ("ListOffsets",),
    True,
)


def _too_new(last: _Ended, often: bool = False) -> _Missing | None:
    """The APIs of which a broker offers only versions that clients of today have dropped, as Kafka 4.0 did (KIP-896).

    A client whose ApiVersions request is of another time counts only if it ends `often`.
    """
    baseline = releases.release("4.0").offered
    least = {api: served(baseline, facts.api_key(api)) for api in ("Produce", "Fetch", "ListOffsets")}
    old = [api for api, range_ in least.items() if range_ is not None and last.offered.get(facts.api_key(api), (0, 1 << 15))[1] < range_[0]]
    if not old or not (often or last.exchange.api_version >= _FLEXIBLE):
        return None
    about, release = last.conn.about, exact_release(last.offered)
    known = software(about.software_name, about.software_version, last.conn.client_id)
    need = known.client.oldest_broker(known.version) if known is not None else None
    if need is not None and release is not None and release_order(release) < release_order(need.release):
        return None  # `_compare` says which release it needs
    if known is not None and known.client.name == "apache-kafka-java" and not known.guessed:
        return _READ_COMMITTED._replace(text=f"it offers ListOffsets {version_range(last.offered.get(LIST_OFFSETS))}")
    kinds = "; ".join(f"{api} {version_range(last.offered[facts.api_key(api)])}" for api in old)
    absent = [api for api in _NEEDS[_DATA] if facts.api_key(api) not in last.offered]
    lacks = f" (nor does it offer {', '.join(absent)})" if absent else ""
    needs = ", ".join(f"{api} from v{(least[api] or (0,))[0]}" for api in old)
    return _Missing(
        f"it offers only {kinds}, which clients of today may no longer have{lacks}",
        f"Kafka 4.0 dropped these versions (KIP-896), and clients made since have {needs} on; some have never had older ones, as they write the "
        "record batches of Kafka 0.11 only. Such a client finds no common version and ends, with an exception that is not visible on the wire.",
        "read the client's log at that time; upgrade the brokers to 2.1 or newer, or use a client that still has these versions",
        False,
        tuple(old),
        True,
    )


def _too_old(sought: _Sought, offered: Table) -> _Missing | None:
    """An API of which the client probably has only versions below the offered ones, by the age of what it used."""
    ages = [
        (release_order(came), key, version, came)
        for key, version in sought.newest.items()
        if key in offered and version < offered[key][1] and (came := since(key, version + 1)) is not None
    ]
    if not ages:
        return None
    _, used, version, before = min(ages)
    for api in _NEEDS[sought.kind]:
        key = facts.api_key(api)
        low = offered[key][0]
        has = [v for v in range(offered[key][1] + 1) if (came := since(key, v)) is not None and release_order(came) < release_order(before)]
        if has and max(has) < low:
            gone = removal(key, max(has))
            return _Missing(
                f"it offers {api} {version_range(offered[key])}, and the client probably has {version_range((min(has), max(has)))}",
                f"the client used {facts.api_name(used)} v{version} though {version_range(offered[used])} is offered, so it is of the time "
                f"before Kafka {before}; clients of that time have {api} up to v{max(has)}"
                + (f", which Kafka {gone.release} dropped{f' ({gone.kip})' if gone.kip else ''}." if gone is not None else "."),
                f"upgrade the client, to one made for Kafka {since(key, low) or '2.1'} or newer"
                + (
                    f"; until then keep it on brokers of {gone.last} or older"
                    if gone is not None
                    else f"; or use other brokers: the newest Kafka that is known here has {api} v{max(has)}"
                ),
                False,
                (api,),
            )
    return None


def _has_share_groups(conn: ClientConnection) -> bool:
    """Whether the client's version has share consumers."""
    known = software(conn.about.software_name, conn.about.software_version, conn.client_id)
    if known is None or known.guessed or not known.version:
        return False
    return known.client.name == "apache-kafka-java" and parse_version(known.version) >= (4, 0)


def _has_new_protocol(conn: ClientConnection, often: bool) -> bool:
    """Whether the client may use group.protocol=consumer: its version has it, or, unknown, it gives up again and again."""
    known = software(conn.about.software_name, conn.about.software_version, conn.client_id)
    if known is None or known.guessed or not known.version:
        return often
    first = _NEW_PROTOCOL.get(known.client.name)
    return parse_version(known.version) >= first if first is not None else often


_DESCRIBE_CONFIGS = facts.api_key("DescribeConfigs")
_CHANGES = {
    facts.api_key(read): tuple(map(facts.api_key, changes))
    for read, changes in {
        "Metadata": ("CreateTopics", "DeleteTopics"),
        "DescribeConfigs": ("IncrementalAlterConfigs",),
        "DescribeUserScramCredentials": ("AlterUserScramCredentials",),
        "DescribeClientQuotas": ("AlterClientQuotas",),
        "ListPartitionReassignments": ("AlterPartitionReassignments",),
        "DescribeAcls": ("CreateAcls", "DeleteAcls"),
    }.items()
}
"""What an admin client asks before a change, and the APIs of that change."""
_READS = frozenset(_CHANGES) | _BEGINNINGS


_NEXT = {
    False: {"DescribeLogDirs": 0, "ListGroups": 0, "DescribeCluster": 0, "ElectLeaders": 0, "AlterReplicaLogDirs": 0},
    True: {"ListOffsets": 7, "DeleteRecords": 0, "DescribeProducers": 0},
}
"""What admin clients of today ask after Metadata, which names brokers or (True) leaders of topics: APIs, and the
version that the newest option needs: OffsetSpec.maxTimestamp() of ListOffsets (KIP-734)."""


@lru_cache(256)
def _lacking(offered: frozenset[tuple[int, tuple[int, int]]], topics: bool) -> tuple[tuple[int, int], ...]:
    ranges = dict(offered)
    if exact_release(ranges) is not None:
        return ()  # Kafka's own brokers are simply older
    wanted = ((facts.api_key(api), version) for api, version in _NEXT[topics].items())
    return tuple((key, version) for key, version in wanted if ranges.get(key, (0, -1))[1] < version)


_CREATE, _DEFAULTS = facts.api_key("CreateTopics"), 4
"""The first version of CreateTopics with -1 for the broker's defaults."""
_UNKNOWN_TOPIC = facts.error_code("UNKNOWN_TOPIC_OR_PARTITION")
_MADE_BY_STREAMS = ("-repartition", "-changelog")


def _internal_topic(exchange: Exchange) -> str:
    """A topic of Kafka Streams that a Metadata request names, \"\" without."""
    message = exchange.request_view
    topics = message.to_dict()["topics"] if message is not None else ()
    return next((t["name"] for t in topics or () if t["name"] and t["name"].endswith(_MADE_BY_STREAMS)), "")


class AdminGivesUp(Detector):
    id = "admin-client-gives-up"
    severity = Severity.LOW
    title = "an admin client reads and goes no further, and the API that would follow is not offered"
    wanted = Wanted.NEW

    AGAIN = 6
    """Requests on a connection that has only asked for versions and then for one thing."""

    def setup(self) -> None:
        # By connection: the last answer, what may follow and is not offered, and whether it can only be a first step.
        self._read: BoundedDict[int, tuple[Exchange, tuple[tuple[int, int], ...], bool]] = BoundedDict()
        self._other: BoundedDict[int, None] = BoundedDict()
        self._to_make: BoundedDict[int, tuple[Exchange, str] | None] = BoundedDict()
        """By connection: a topic that Streams makes itself, and that is not there; None once the client did something else."""
        self._creators: BoundedDict[ClientIdentity, None] = BoundedDict()

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        offered, changes = conn.about.offered, _CHANGES.get(exchange.api_key, ())
        if exchange.api_key == _CREATE:
            self._creators[conn.identity] = None
            self._found.pop((conn.identity, conn.broker, _CREATE), None)
        if exchange.api_key not in _READS:
            if self._to_make.get(conn.number, self) is not None:
                self._to_make[conn.number] = None
        elif exchange.api_key == METADATA and self._to_make.get(conn.number, self) is not None:
            name = _internal_topic(exchange) if exchange.error == _UNKNOWN_TOPIC else ""
            if name:
                self._to_make[conn.number] = exchange, name
            else:
                self._to_make.pop(conn.number, None)
        if exchange.api_key not in _READS or exchange.state is not State.PAIRED or exchange.error:
            self._other[conn.number] = None
            self._read.pop(conn.number, None)
        elif offered is None or len(offered) < 2 or "admin" not in (conn.client_id or ""):
            pass
        elif (asked := exchange.request_view) is not None:
            missing, first_step = tuple((key, 0) for key in changes if key not in offered), True
            if exchange.api_key == _DESCRIBE_CONFIGS:
                first_step = not asked.to_dict().get("include_synonyms", True)
            elif exchange.api_key == METADATA and (topics := asked.to_dict()["topics"]) is not None:
                if topics or not missing:
                    missing, first_step = _lacking(frozenset(offered.items()), bool(topics)), False
            elif exchange.api_key == METADATA:
                missing = ()  # a list of all topics needs nothing more
            if missing:
                self._read[conn.number] = exchange, missing, first_step

    def _without_creation(self, conn: ClientConnection, exchange: Exchange, topic: str) -> None:
        offered = conn.about.range(_CREATE)
        if offered is None or offered[1] >= _DEFAULTS:
            return
        came = since(_CREATE, _DEFAULTS)
        finding = self.report(
            (conn.identity, conn.broker, _CREATE),
            exchange,
            "a Streams application makes its repartition and changelog topics itself. Since Kafka 3.0 it asks for the broker's default number of "
            f"replicas (replication.factor=-1, KIP-733), which needs CreateTopics v{_DEFAULTS} (KIP-464, Kafka {came}). Where that is not offered it "
            "fails with an UnsupportedVersionException that is not visible on the wire, and the application stops.",
            f"set replication.factor to a number in the Streams application (3, or 1 with one broker), or upgrade the brokers to {came} or newer",
            severity=Severity.HIGH,
            facts=conn.facts,
            topic=topic,
        )
        finding.seen = (
            f"{conn.who} asks {conn.where} for {topic!r}, which is not there, and ends the connection without making it ({times(finding.count)}); "
            f"the broker offers CreateTopics {version_range(offered)}"
        )

    def closed(self, conn: ClientConnection) -> None:
        to_make = self._to_make.pop(conn.number, None)
        if to_make is not None and conn.by == "client" and not conn.lost and conn.identity not in self._creators:
            self._without_creation(conn, *to_make)
        other = self._other.pop(conn.number, self) is None
        exchange, missing, first_step = self._read.pop(conn.number, (None, (), False))
        if exchange is None or other or not conn.how or conn.by == "broker" or conn.lost:
            return
        names = ", ".join(f"{facts.api_name(key)}{f' v{version}' if version else ''}" for key, version in missing)
        came = since(*missing[0]) or "a newer release"
        finding = self.report(
            (conn.identity, conn.broker, missing),
            exchange,
            f"a tool asks {exchange.api} before what it is about, finds that {names} is not offered, and fails with an "
            "UnsupportedVersionException that is not visible on the wire. One that wants no more than this answer "
            f"ends here too. Apache Kafka has {names.partition(',')[0]} since {came}: this is an older broker, a "
            "product without it, or a proxy that hides it.",
            f"read what the tool printed; if it needs {names}, use brokers of {came} or newer, an older tool, "
            "or the product's own means",
            facts=conn.facts,
            missing=[facts.api_name(key) for key, _ in missing],
        )
        again, enough = conn.requests >= self.AGAIN, 1 if first_step else 2 if exchange.api_key != METADATA else 3
        finding.severity = self.severity if again or finding.count >= enough else Severity.INFO
        asks = f"in {conn.requests} requests" if again else "and ends the connection"
        finding.seen = (
            f"{conn.who} asks {conn.where} for {exchange.api} {asks} ({times(finding.count)}), and for nothing else; "
            f"the broker does not offer {names}"
        )
