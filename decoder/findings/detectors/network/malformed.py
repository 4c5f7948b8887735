"""Messages that break the protocol: surplus bytes, forbidden nulls, impossible values, undecodable frames, ApiVersions fallbacks in no
known form.

How bad that is depends on what came next: whether the peer went on, asked again, asked in an older version, or closed the connection.
Of a frame that did harm, other layouts are tried (`other_layouts`): the one that fits is the cause.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

from ....codec.codec import UNSUPPORTED_VERSION, is_request, is_response
from ....connection.connection import Opaque, expects_no_response
from ....connection.exchange import Exchange, State
from ....connection.plausible import LONGEST_THROTTLE_MS, Flaw, FlawKind
from ....schema import facts
from ....schema.plan import API_VERSIONS
from ....wire.frame import Direction
from ...engine.counters import BoundedDict
from ...engine.detector import Detector, Wanted
from ...engine.finding import Finding, Severity
from ...engine.formatting import SECOND, several, times
from ...engine.traffic import ClientConnection
from ...models.offered_versions import OfferedVersions, removal, since
from .other_layouts import LARGEST, OtherLayout, other_layout


class MalformedApiVersionsFallback(Detector):
    id = "malformed-api-versions-fallback"
    severity = Severity.HIGH
    title = "a broker refuses an ApiVersions version in a body that clients cannot read (KIP-511)"
    why = (
        "under KIP-511 the broker answers in version 0, so that a newer client can read which versions it may use. "
        "Clients that decode strictly cannot connect (kafka-python 3 does not get past its bootstrap); librdkafka "
        "falls back to version 0 by itself."
    )
    remedy = (
        "use a broker that answers in version 0, or set the client's API version explicitly (kafka-python: "
        "api_version=(2, 3))"
    )
    apis = frozenset({API_VERSIONS})

    def setup(self) -> None:
        self._refused: BoundedDict[int, None] = BoundedDict(4096)
        """Connections that were refused and have not got an answer since."""
        self._fell_back = self._gave_up = 0

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if self._refused and exchange.state is State.PAIRED and not exchange.error and conn.number in self._refused:
            del self._refused[conn.number]
            self._fell_back += 1
        if exchange.api_version == 0 or exchange.response is None:
            return
        message = exchange.response_view
        refused = exchange.response[4:6] == UNSUPPORTED_VERSION.to_bytes(2, "big")
        if not refused or (message and message.api_version == 0 and not message.trailing):
            return
        self.report(
            exchange.api_version,
            exchange,
            seen=f"broker {exchange.broker} refuses ApiVersions v{exchange.api_version} with UNSUPPORTED_VERSION in a body "
            f"that is neither version 0 nor version {exchange.api_version}"
        )
        self._refused[conn.number] = None

    def closed(self, conn: ClientConnection) -> None:
        if conn.number in self._refused:
            del self._refused[conn.number]
            self._gave_up += 1

    def finish(self, now_ns: int) -> None:
        works = bool(self._fell_back) and not self._gave_up
        for finding in self._found.values():
            finding.severity = Severity.LOW if works else Severity.HIGH


_LAST = facts.api_key_set("LeaveGroup", "EndTxn", "OffsetCommit", "ConsumerGroupHeartbeat", "ShareGroupHeartbeat", "StreamsGroupHeartbeat")
"""Requests that a client may send right before it closes the connection."""
_REPEATED = facts.api_key_set("Produce", "Fetch", "Heartbeat", "Metadata", "ShareFetch", "ListOffsets", "OffsetCommit") | _LAST
"""Requests that a client sends again and again on one connection."""
_BAD_REQUEST = facts.error_code_set("INVALID_REQUEST", "UNKNOWN_SERVER_ERROR", "CORRUPT_MESSAGE", "UNSUPPORTED_VERSION")
_AT_ONCE_NS = 5 * SECOND
_SILENT_NS = 10 * SECOND
MOST_BROKEN = 1000
"""Most kinds of broken messages kept."""


class _Message(NamedTuple):
    """A kind of broken message. `client`, `broker`: "" once there are too many kinds."""

    direction: Direction
    api_key: int
    api_version: int
    client: tuple[str, str]
    broker: str


@dataclass(slots=True)
class _Aftermath:
    """What came after the messages of one kind. Of requests: `refused` with an error that fits, `closed` by the broker; of responses:
    asked `again`, in an `older` version, `closed` by the client at once, or `silent` from then on. `fine`: it went on as if nothing had been wrong.
    `without_offer`: the client did not know which versions the broker has."""

    fine: int = 0
    again: int = 0
    older: int = 0
    refused: int = 0
    closed: int = 0
    unanswered: int = 0
    silent: int = 0
    lossy: bool = False
    without_offer: bool = False
    said: tuple[str, str] = ("", "")
    """The message, and what is broken in it."""

    def severity(self, key: _Message, least: Severity, enough: int, ends: int) -> Severity:
        """How bad it is. `enough`: how many requests that failed show that this is why; `ends`: how many clients' ends do."""
        if key.direction is Direction.REQUEST:
            if self.fine or self.lossy or self.refused + self.closed + self.unanswered < enough:
                return Severity.INFO if self.fine else least
            return Severity.HIGH if self.closed else Severity.MEDIUM
        # A client that went on before does not end because of it: every connection ends at some time.
        ended = self.closed + self.silent if self.closed + self.silent > self.fine else 0
        if self.lossy or not self.again + self.older + ended:
            return least
        # Clients that work may end after any request that they repeat, but not each time.
        certain = self.again or ended >= (ends if key.api_key in _REPEATED else 1)
        if not certain and not self.older:
            return least  # a client may end after any of these
        return Severity.HIGH if certain and not self.fine else Severity.MEDIUM

    def text(self, direction: Direction) -> str:
        """The worst that happened."""
        if direction is Direction.REQUEST:
            happened = [
                (self.closed, "the broker closed the connection instead of answering"),
                (self.unanswered, "it got no answer"),
                (self.refused, "the broker refused it"),
            ]
        else:
            happened = [
                (self.closed, "the client then closed the connection"),
                (self.again, "the client then asked the same again"),
                (self.older, "the client then asked in an older version"),
                (self.silent, "the client then sent nothing more"),
            ]
        return "".join(f"; {what} ({times(count)})" for count, what in happened if count)


class _Broken(NamedTuple):
    """A message that is broken in the way that a detector looks for. `text`: completes "Metadata v9 response of broker 1 ..."."""

    direction: Direction
    text: str
    about: dict[str, object]


class _BrokenMessage(Detector):
    """A detector of messages that are broken in one way: override `broken`."""

    severity = Severity.LOW
    wanted = Wanted.FAILED
    explains: ClassVar[tuple[str, ...]] = (
        "closed-on-first-request",
        "closed-on-version",
        "closed-without-answer",
        "unanswered-request",
        "connection-churn",
        "client-gives-up",
        "request-before-authentication",
    )
    consequence: ClassVar[str]
    ENOUGH: ClassVar[int] = 2
    """Requests that failed; a single one may have met the end of its connection by chance."""
    ENDS: ClassVar[int] = 2
    """Clients that ended their connection at a response."""

    def setup(self) -> None:
        self._after: BoundedDict[_Message, _Aftermath] = BoundedDict(MOST_BROKEN)
        # By connection: the last broken message whose aftermath is not known yet, and its exchange.
        self._open: BoundedDict[int, tuple[_Message, Exchange]] = BoundedDict(MOST_BROKEN)
        self._layouts: BoundedDict[_Message, OtherLayout | None] = BoundedDict(MOST_BROKEN)
        # API and version of broken requests that a broker accepted.
        self._accepted: BoundedDict[tuple[int, int], None] = BoundedDict(MOST_BROKEN)

    def broken(self, exchange: Exchange) -> list[_Broken]:
        """What is broken in an exchange."""
        raise NotImplementedError

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if conn.number in self._open:
            self._follow(conn, exchange)
        for each in self.broken(exchange):
            self._note(conn, exchange, each)

    def _note(self, conn: ClientConnection, exchange: Exchange, broken: _Broken) -> None:
        who = conn.client_host, conn.client_id or ""
        key = _Message(broken.direction, exchange.api_key, exchange.api_version, who, conn.broker)
        if key not in self._found and len(self._found) >= MOST_BROKEN:
            key = key._replace(client=("", ""), broker="")
        after = self._after.of(key, _Aftermath)
        after.lossy = after.lossy or bool(conn.lost)
        after.without_offer = conn.about.offered is None
        answers = broken.direction is Direction.RESPONSE
        sender = conn.where if answers else conn.who
        name = f"{exchange.api} v{exchange.api_version} {'response' if answers else 'request'}"
        seen = f"{name} of {sender} {broken.text}"
        self.report(key, exchange, "", "", seen=seen, side="response" if answers else "request").about.update(broken.about)
        after.said = after.said if after.said[0] else (f"{name} of {sender}", broken.text)
        if answers and exchange.error:
            after.fine += 1  # the error decides what the client does next
        elif answers:
            self._open[conn.number] = key, exchange
            conn.failing = True  # to get the next exchange of the connection too, if it succeeds
        elif exchange.state is State.PAIRED:
            error = exchange.error
            if not error:
                self._accepted[key.api_key, key.api_version] = None
            after.refused += error in _BAD_REQUEST
        elif exchange.state is State.NO_RESPONSE and not expects_no_response(exchange):
            self._open[conn.number] = key, exchange

    def _follow(self, conn: ClientConnection, exchange: Exchange) -> None:
        """A later exchange of the connection."""
        key, before = self._open[conn.number]
        if key.direction is Direction.REQUEST:
            return
        if (exchange.request_time_ns or 0) < (before.response_time_ns or 0):
            conn.failing = True
            return  # it was on its way already
        del self._open[conn.number]
        after = self._after.get(key)
        if after is None:
            return
        if exchange.api_key != key.api_key or exchange.api_version > before.api_version:
            after.fine += 1
        elif exchange.api_version < before.api_version:
            after.older += 1
        elif key.api_key in _REPEATED:
            after.fine += 1
        else:
            after.again += 1

    def closed(self, conn: ClientConnection) -> None:
        key, before = self._open.pop(conn.number, (None, None))
        after = self._after.get(key) if key is not None else None
        if key is None or before is None or after is None or conn.rules:
            return
        if not conn.how:
            after.silent += self._silent(key, before, conn.closed_ns or 0)
            return
        if key.direction is Direction.REQUEST:
            at_once = (conn.closed_ns or 0) - (before.request_time_ns or 0) <= _AT_ONCE_NS
            after.closed += conn.by != "client" and at_once
            after.unanswered += not at_once
        elif conn.by != "broker" and key.api_key not in _LAST:
            after.closed += (conn.closed_ns or 0) - (before.response_time_ns or 0) <= _AT_ONCE_NS

    @staticmethod
    def _silent(key: _Message, before: Exchange, now_ns: int) -> bool:
        """Whether a client that got a broken response has sent nothing for long."""
        return key.direction is Direction.RESPONSE and key.api_key not in _LAST and now_ns - (before.response_time_ns or now_ns) >= _SILENT_NS

    def finish(self, now_ns: int) -> None:
        silent = Counter(key for key, before in self._open.values() if self._silent(key, before, now_ns))
        for key, finding in self._found.items():
            after = self._after.get(key) if isinstance(key, _Message) else None
            if isinstance(key, _Message) and after is not None:
                self._judge(key, replace(after, silent=after.silent + silent[key]), finding)

    def _judge(self, key: _Message, after: _Aftermath, finding: Finding) -> None:
        """Write the finding from what is known now."""
        if key.direction is Direction.REQUEST:
            after.fine = (key.api_key, key.api_version) in self._accepted
        finding.severity = after.severity(key, self.severity, self.ENOUGH, self.ENDS)
        harmful = finding.severity.rank > self.severity.rank
        finding.explains = self.explains if harmful else ()
        if key not in self._layouts and finding.severity is not Severity.INFO:
            tried = (other_layout(exchange, key.direction) for exchange in finding.exchanges)
            self._layouts[key] = next((layout for layout in tried if layout is not None), None)
        layout, answers = self._layouts.get(key), key.direction is Direction.RESPONSE
        (message, flaw), then = after.said, after.text(key.direction) if harmful else ""
        who = "the broker (or the product or proxy that answers in its place)" if answers else "the client library"
        if layout is not None:
            finding.about["decodes"] = layout.text
            finding.seen = f"{message} has a wrong layout: it decodes exactly {layout.text}; read by its version, it {flaw}{then}"
            finding.why = f"{layout.rule}. {self.consequence}"
            finding.remedy = f"report it to the developers of {who}: the layout of its {key.direction.name.lower()} is wrong; or use another version of it"
            older = re.fullmatch(r"as \w+ v(\d+)", layout.text) if answers and after.without_offer else None
            if older and int(older[1]) < key.api_version:
                came = since(key.api_key, key.api_version) or "a newer release"
                finding.why = (
                    f"{layout.rule}. This client did not ask the broker for its versions, and brokers before Kafka 0.10 do not refuse one that they do "
                    f"not know: they answer in the one that they have. {facts.api_name(key.api_key)} v{key.api_version} came with Kafka {came}, so "
                    "likeliest the broker is older; or it is Kafka 0.9.0 with an error, which that release answers in v0 (KAFKA-3427)."
                )
                finding.remedy = (
                    "tell the client the release of the broker (librdkafka: broker.version.fallback=0.8.2; kafka-python: api_version), use an older "
                    f"client, or upgrade the broker to {came} or newer"
                )
        else:
            finding.seen = f"{message} {flaw}{then}"
            finding.why = self.consequence
            finding.remedy = (
                f"report it to the developers of {who}, with the frame's bytes; or use another version of it. No other version or header "
                "fits these bytes"
                if key in self._layouts
                else f"nothing, or report it to the developers of {who}"
            )


def _flaws(exchange: Exchange, kind: FlawKind) -> list[tuple[Direction, Flaw]]:
    """The flaws of this kind of an exchange."""
    asked, answered = exchange.flaw(Direction.REQUEST), exchange.flaw(Direction.RESPONSE)
    if asked is None and answered is None:
        return []
    found = ((Direction.REQUEST, asked), (Direction.RESPONSE, answered))
    return [(direction, flaw) for direction, flaw in found if flaw is not None and flaw.kind is kind]


class SurplusBytes(_BrokenMessage):
    id = "surplus-bytes"
    title = "a message is followed by extra bytes"
    consequence = (
        "The layout of its version ends before the frame does. Java clients ignore the rest, strict clients fail; and if the fields before "
        "it are shifted, all of them are wrong. No other finding is drawn from such a response."
    )
    ENDS = 5
    """Most clients ignore the rest: that a few end there is chance."""

    def broken(self, exchange: Exchange) -> list[_Broken]:
        # librdkafka 2.16 does this with Metadata v13 requests: brokers take it, nothing fails.
        return [
            _Broken(direction, f"has {several(flaw.value, 'extra byte')} after its end", {"surplus": flaw.value})
            for direction, flaw in _flaws(exchange, FlawKind.SURPLUS)
        ]


_OFFSET_COMMIT = facts.api_key("OffsetCommit")


def late_null(exchange: Exchange) -> str:
    """The path of a null that all versions of the request allow, and Kafka before 0.10.0 cannot read: an offset's metadata (KAFKA-3394)."""
    message = exchange.request_view if exchange.api_key == _OFFSET_COMMIT and exchange.api_version <= 2 else None
    if message is None:
        return ""
    paths = (
        f"topics[{i}].partitions[{j}].committed_metadata"
        for i, topic in enumerate(message.to_dict()["topics"])
        for j, partition in enumerate(topic["partitions"])
        if partition["committed_metadata"] is None
    )
    return next(paths, "")


class ForbiddenNull(_BrokenMessage):
    id = "forbidden-null"
    title = "a field is null in a version that does not allow it"
    consequence = (
        "The receiver's definition of this version does not allow null there. Java clients fail with a schema error, Java brokers close the "
        "connection (their log has the error); others read it as empty. No other finding is drawn from such a response."
    )

    def setup(self) -> None:
        super().setup()
        self.offers = self.traffic.model(OfferedVersions)

    def broken(self, exchange: Exchange) -> list[_Broken]:
        found = [
            _Broken(direction, f"has a null in {flaw.path}", {"field": flaw.path})
            for direction, flaw in _flaws(exchange, FlawKind.NULL)
        ]
        # A broker that answers ApiVersions is 0.10.0 or newer.
        if not found and exchange.state is State.NO_RESPONSE and exchange.broker not in self.offers.tables and (path := late_null(exchange)):
            gone = removal(exchange.api_key, exchange.api_version)
            new = f" (and Kafka {gone.release} dropped {exchange.api} v{exchange.api_version})" if gone is not None else ""
            text = f"has a null in {path}, which Kafka before 0.10.0 cannot read (KAFKA-3394){new}"
            found.append(_Broken(Direction.REQUEST, text, {"field": path}))
        return found


class ImpossibleValue(_BrokenMessage):
    id = "impossible-value"
    title = "a field of a response has a value that cannot be: a throttle time over a day or below 0, a port over 65535"
    consequence = (
        f"A throttle time is at most {LONGEST_THROTTLE_MS // 3_600_000} h and a port at most 65535. The sender writes another layout than that "
        "of the version, or its number is wrong. No other finding is drawn from such a response."
    )

    def broken(self, exchange: Exchange) -> list[_Broken]:
        return [
            _Broken(direction, f"has {flaw.value} in {flaw.path}", {"field": flaw.path, "value": flaw.value})
            for direction, flaw in _flaws(exchange, FlawKind.VALUE)
        ]


class Undecodable(_BrokenMessage):
    id = "undecodable-frame"
    title = "frames cannot be decoded: an unknown API or version, or bytes that violate the protocol"
    ENOUGH = 1
    consequence = (
        "The bytes do not match the definition of this version: the sender has a bug, or writes a different version than it declares, or the "
        "capture is damaged."
    )

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.state is not State.ORPHAN and exchange.undecoded is not None:
            newest = self._newest(exchange.api_key)
            if newest is None or exchange.api_version > newest:
                self._unknown(conn, exchange, newest)
                return
        super().done(conn, exchange)

    def broken(self, exchange: Exchange) -> list[_Broken]:
        if exchange.state is State.ORPHAN or exchange.undecoded is None:
            return []
        found = [(direction, exchange.fault(direction)) for direction in Direction]
        return [
            _Broken(direction, f"cannot be decoded: {fault}", {"reason": str(fault)})
            for direction, fault in found
            if fault is not None
        ]

    @staticmethod
    def _newest(api_key: int) -> int | None:
        try:
            return facts.api(api_key).versions.high
        except KeyError:
            return None

    def _unknown(self, conn: ClientConnection, exchange: Exchange, newest: int | None) -> None:
        """A newer API or version is not a fault; the broker may well know it."""
        if newest is None:
            seen = f"{conn.who} and {conn.where} use API key {exchange.api_key} v{exchange.api_version}, which is unknown to this version of Barnabas"
        else:
            seen = f"{conn.who} and {conn.where} use {exchange.api} v{exchange.api_version}; the newest known to this version of Barnabas is v{newest}"
        finding = self.report(
            (exchange.api_key, exchange.api_version),
            exchange,
            "the bytes are passed on unchanged but not decoded, and no other finding can cover them.",
            "if a newer Kafka has it, import its message definitions with `barnabas schema import`; some clients and vendors have their "
            "own keys",
            severity=Severity.INFO,
            seen=seen,
            api_key=exchange.api_key,
            newest_known=newest,
            reason=exchange.undecoded,
        )
        finding.explains = ()


class WrongFrameSize(Detector):
    id = "wrong-frame-size"
    severity = Severity.HIGH
    title = "the size in front of a message is not that of the message, or stands there twice"
    wanted = Wanted.FAILED
    explains = (
        "unanswered-request", "closed-without-answer", "closed-on-first-request", "closed-on-version",
        "api-versions-ignored", "undecodable-frame", "connection-churn",
    )  # fmt: skip

    def setup(self) -> None:
        # By connection: the request that was waiting when it ended.
        self._waiting: BoundedDict[int, Exchange] = BoundedDict(1024)

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.state is State.NO_RESPONSE:
            self._waiting.setdefault(conn.number, exchange)
            frame = exchange.request or b""
            if int.from_bytes(frame[:4], "big") == len(frame) - 4 and is_request(frame[4:]):
                self._twice(conn, exchange, frame[4:])
        else:
            self._waiting.pop(conn.number, None)

    def _twice(self, conn: ClientConnection, exchange: Exchange, inner: bytes) -> None:
        api = facts.api_name(int.from_bytes(inner[:2], "big"))
        finding = self.report(
            (Direction.REQUEST, "twice", conn.client_host, conn.broker),
            exchange,
            "the receiver takes the second size for an API key and version, which no client has sent, and closes the "
            "connection.",
            "report it to the developers of the client, or of the proxy that sends the request in its place: it "
            "puts a size in front of a message that has one",
            size=len(inner),
        )
        finding.seen = (
            f"{api} v{int.from_bytes(inner[2:4], 'big')} request of {conn.who} to {conn.where} has its size "
            f"({len(inner)}) in front of it twice ({times(finding.count)})"
        )

    def stray(self, conn: ClientConnection, opaque: Opaque) -> None:
        waiting = self._waiting.get(conn.number)
        if "ended inside" not in opaque.reason or conn.lost or len(opaque.data) > LARGEST:
            return
        size, frame = int.from_bytes(opaque.data[:4], "big"), opaque.data[4:]
        if opaque.direction is Direction.REQUEST:
            if not is_request(frame):
                return
            name, sender = f"{facts.api_name(int.from_bytes(frame[:2], 'big'))} v{int.from_bytes(frame[2:4], 'big')} request", conn.who
        elif waiting is not None and frame[:4] == waiting.correlation_id.to_bytes(4, "big", signed=True):
            if not is_response(frame, waiting.api_key, waiting.api_version):
                return
            name, sender = f"{waiting.api} v{waiting.api_version} response", conn.where
        else:
            return
        who = "the client library" if opaque.direction is Direction.REQUEST else "the broker (or the product or proxy in its place)"
        finding = self.report(
            (opaque.direction, name, conn.client_host, conn.broker),
            waiting,
            "the size counts what follows it, and not its own 4 bytes. The receiver waits for bytes that never come, until a timeout.",
            f"report it to the developers of {who}: the size must be {len(frame)}",
            time_ns=opaque.time_ns,
            size=size,
            facts=conn.facts,
        )
        finding.seen = (
            f"{name} of {sender} announces {size} bytes, and the {len(frame)} that came are all of it"
            f"{': the size counts itself' if size == len(frame) + 4 else ''} ({times(finding.count)})"
        )

    def closed(self, conn: ClientConnection) -> None:
        self._waiting.pop(conn.number, None)
