"""The catalogue of fields: their types, meanings, and what must be read to know their values.

`entities` derives from the schema where the values are in requests and responses.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum

from ...connection.exchange import State


class ValueKind(StrEnum):
    """What the values of a field are, and so what it can be compared with."""

    INTEGER = "number"
    FLOAT = "decimal number"
    DURATION = "duration"
    """Nanoseconds; a number needs a unit."""
    MILLISECONDS = "milliseconds"
    """A number of milliseconds in a body: takes plain numbers and durations."""
    SIZE = "size"
    """Bytes; a number may have a unit."""
    TIME = "time"
    TEXT = "text"
    BYTES = "bytes"
    API = "API"
    ERROR = "error"
    STATE = "state"
    CODEC = "codec"
    FLAG = "flag"
    ADDRESS = "address"
    UUID = "id"
    STRUCT = "structure"


NUMBERS = frozenset({ValueKind.INTEGER, ValueKind.FLOAT, ValueKind.DURATION, ValueKind.MILLISECONDS, ValueKind.SIZE, ValueKind.TIME})
"""Kinds that can be ordered."""


class Need(StrEnum):
    """What must be read to know a field's value."""

    INDEX = "index"
    """The index of a recording: nothing is decoded."""
    CONNECTION = "connection"
    """The peer info of the connection (see `decoder.connection.api_versions`)."""
    NOTES = "notes"
    """The notes of rules on the exchange (see `decoder.connection.hit_notes`)."""
    REQUEST = "request"
    RESPONSE = "response"


class Scope(StrEnum):
    """What in an exchange the values of a field belong to."""

    EXCHANGE = "exchange"
    PAIR = "topic-partition"
    """Tests of such fields in one conjunction are about the same topic-partition."""


class Known(IntEnum):
    """How much of a message in transit settles the value of a field."""

    BEGINNING = 0
    """The first bytes of a request: requests that begin alike on one connection have the same value."""
    HEADER_PREFIX = 1
    """A header prefix, which ends before records."""
    MESSAGE = 2
    """The whole message."""
    COMPLETED = 3
    """Nothing: only completed or recorded exchanges have the field."""


_INDEX = frozenset({Need.INDEX})
_CONNECTION = frozenset({Need.CONNECTION})
_REQUEST = frozenset({Need.REQUEST})
_RESPONSE = frozenset({Need.RESPONSE})
_BOTH = _REQUEST | _RESPONSE


@dataclass(frozen=True, slots=True)
class Field:
    """One field of the catalogue. `many`: it may have several values. `known_at_request`: it has values as soon as the request
    is known, though the response may add some. `known`: how much of a message in transit settles it."""

    name: str
    kind: ValueKind
    meaning: str
    example: str
    needs: frozenset[Need] = _INDEX
    synonyms: tuple[str, ...] = ()
    many: bool = False
    known_at_request: bool = False
    scope: Scope = Scope.EXCHANGE
    known: Known = Known.MESSAGE

    @property
    def cost(self) -> int:
        """The relative cost of knowing its values: cheap tests come first."""
        return 0 if self.needs == _INDEX else 1 if self.needs == _CONNECTION else 10 if self.needs == _REQUEST else 20


def _index(
    name: str, kind: ValueKind, meaning: str, example: str, *synonyms: str, known_at_request: bool = False, many: bool = False,
    known: Known = Known.MESSAGE,
) -> Field:  # fmt: skip
    return Field(name, kind, meaning, example, _INDEX, synonyms, many, known_at_request, known=known)


def _body(
    name: str,
    kind: ValueKind,
    meaning: str,
    example: str,
    *synonyms: str,
    needs: frozenset[Need] = _BOTH,
    scope: Scope = Scope.EXCHANGE,
    many: bool = True,
    known: Known = Known.MESSAGE,
) -> Field:
    return Field(name, kind, meaning, example, needs, synonyms, many, Need.REQUEST in needs, scope, known)


FIELDS: tuple[Field, ...] = (
    _index("api", ValueKind.API, "the API, by name in any case or by key", "api in {JoinGroup, SyncGroup}",
           "kafka.api_key", "kafka.request_key", "api_key", known_at_request=True, known=Known.BEGINNING),
    _index("ver", ValueKind.INTEGER, "version of the request", "ver > broker.max",
           "kafka.api_version", "kafka.request.version", "version", "api_version", known_at_request=True,
           known=Known.BEGINNING),
    _index("err", ValueKind.ERROR, "first error code of the response that is not 0, by name or number; 0 if there is none",
           "err == NOT_LEADER_OR_FOLLOWER", "kafka.error", "error", known=Known.HEADER_PREFIX),
    _index("retriable", ValueKind.FLAG, "clients may retry after err", "err and not retriable", known=Known.HEADER_PREFIX),
    _index("latency", ValueKind.DURATION, "time from the request's first byte to the response's", "latency > 50ms",
           "lat", "tcp.time_delta", known=Known.HEADER_PREFIX),
    _index("pending", ValueKind.DURATION, "how long a request without a response has been waiting", "pending > 10s",
           known=Known.COMPLETED),
    _index("state", ValueKind.STATE, "paired, pending, no_response (none is due, or none came) or orphan (no request)",
           "state == orphan", known=Known.HEADER_PREFIX),
    _index("paired", ValueKind.FLAG, "has a request and a response", "not paired", known=Known.HEADER_PREFIX),
    _index("no_response", ValueKind.FLAG, "no response is due, or the connection ended before it", "no_response",
           known=Known.COMPLETED),
    _index("orphan", ValueKind.FLAG, "a response whose request was not seen", "orphan", known=Known.COMPLETED),
    _index("size.req", ValueKind.SIZE, "size of the request, from its 4 size bytes", "size.req > 1MB",
           "request_size", known_at_request=True, known=Known.HEADER_PREFIX),
    _index("size.resp", ValueKind.SIZE, "size of the response", "size.resp >= 16KiB", "response_size", known=Known.HEADER_PREFIX),
    _index("size", ValueKind.SIZE, "both sizes together", "size > 1MB", "kafka.len", known=Known.HEADER_PREFIX),
    _index("time", ValueKind.TIME, "when the request arrived (for an orphan: the response)", "time in 12:01:00..12:01:30",
           "frame.time", known_at_request=True, known=Known.HEADER_PREFIX),
    _index("conn", ValueKind.INTEGER, "number of the connection", "conn == 17", "tcp.stream", "connection", known_at_request=True,
           known=Known.BEGINNING),
    _index("corr", ValueKind.INTEGER, "correlation id", "corr == 42", "kafka.correlation_id", "correlation_id", known_at_request=True,
           known=Known.HEADER_PREFIX),
    _index("client", ValueKind.TEXT, "client id", 'client ~ "^stock-"', "kafka.client_id", "client_id", "client.id",
           known_at_request=True, known=Known.BEGINNING),
    _index("addr", ValueKind.ADDRESS, "the client's address: host, host:port, :port or network", "addr == 10.0.0.0/8",
           "client.addr", known_at_request=True, known=Known.BEGINNING),
    _index("broker", ValueKind.ADDRESS, "the broker's address: host, host:port, :port or network", "broker == kafka-2:9092",
           "broker.addr", known_at_request=True, known=Known.BEGINNING),
    _index("ends", ValueKind.ADDRESS, "the client's or the broker's address", "ends == 10.0.0.7", "ip.addr", "ip.host",
           known_at_request=True, many=True, known=Known.BEGINNING),
    _index("client.port", ValueKind.INTEGER, "the client's port", "client.port == 50312", known_at_request=True,
           known=Known.BEGINNING),
    _index("broker.port", ValueKind.INTEGER, "the broker's port", "broker.port == 9092", known_at_request=True,
           known=Known.BEGINNING),
    _index("port", ValueKind.INTEGER, "either end's port", "port == 9092", "tcp.port", known_at_request=True, many=True,
           known=Known.BEGINNING),
    _index("undecoded", ValueKind.FLAG, "a frame could not be decoded", "undecoded", "_ws.malformed"),
    _index("cut", ValueKind.FLAG, "only the start of a frame was kept (a snap length)", "cut", known=Known.COMPLETED),
    _index("surplus", ValueKind.FLAG, "a message is followed by extra bytes", "surplus"),
    _index("changed", ValueKind.FLAG, "client and broker saw different bytes", "changed and api != Metadata", known=Known.COMPLETED),
    _index("noted", ValueKind.FLAG, "a rule left a note", "noted", known=Known.COMPLETED),
    Field("rule", ValueKind.TEXT, "rules that hit the exchange, by name", 'rule == "leader moved"', frozenset({Need.NOTES}),
          ("rules",), many=True, known=Known.COMPLETED),
    _index("carried", ValueKind.FLAG, "the request was carried over from an earlier segment of the recording", "carried",
           known=Known.COMPLETED),
    Field("software", ValueKind.TEXT, "name of the client's software, reported by the client (KIP-511)", "software contains java",
          _CONNECTION, ("client.software",), known_at_request=True, known=Known.HEADER_PREFIX),
    Field("software.version", ValueKind.TEXT, "version of the client's software", "software.version startswith 3.",
          _CONNECTION, ("client.software.version",), known_at_request=True, known=Known.HEADER_PREFIX),
    Field("broker.min", ValueKind.INTEGER, "lowest version of this API that the broker offers", "ver < broker.min",
          _CONNECTION, known_at_request=True, known=Known.HEADER_PREFIX),
    Field("broker.max", ValueKind.INTEGER, "highest version of this API that the broker offers", "ver > broker.max",
          _CONNECTION, known_at_request=True, known=Known.HEADER_PREFIX),
    _body("topic", ValueKind.TEXT, "topic names in request or response; also names of topic ids, if they were seen",
          "topic == orders", "kafka.topic_name", "topic.name", scope=Scope.PAIR, known=Known.BEGINNING),
    _body("topic.id", ValueKind.UUID, "topics by id, in base64 or hexadecimal", "topic.id == 7zQDgnPnSmy2ZFBXZAkmCA",
          "topic_id", scope=Scope.PAIR, known=Known.BEGINNING),
    _body("partition", ValueKind.INTEGER, "partitions of topics", "topic == orders and partition == 3",
          "kafka.partition_id", scope=Scope.PAIR, known=Known.BEGINNING),
    _body("partition.err", ValueKind.ERROR, "error codes of partitions", "topic == orders and partition.err != 0",
          "partition.error", needs=_RESPONSE, scope=Scope.PAIR, known=Known.HEADER_PREFIX),
    _body("topic.err", ValueKind.ERROR, "error codes of topics", "topic.err == UNKNOWN_TOPIC_OR_PARTITION",
          "topic.error", needs=_RESPONSE, scope=Scope.PAIR, known=Known.HEADER_PREFIX),
    _body("errors", ValueKind.ERROR, "every error code of the response, including 0", "errors == UNKNOWN_MEMBER_ID",
          needs=_RESPONSE, known=Known.HEADER_PREFIX),
    _body("group", ValueKind.TEXT, "groups", "group == stock", "kafka.consumer_group", "kafka.group_id", "group.id",
          "group_id", known=Known.BEGINNING),
    _body("member", ValueKind.TEXT, "member ids of groups", "member startswith stock-1-", "kafka.member_id", "member.id",
          "member_id", known=Known.BEGINNING),
    _body("instance", ValueKind.TEXT, "group instance ids of static members", "instance == web-3",
          "kafka.consumer_group_instance", "group.instance.id", known=Known.BEGINNING),
    _body("txn", ValueKind.TEXT, "transactional ids", "txn == payments-0", "kafka.transactional_id", "transactional.id",
          "transactional_id", known=Known.BEGINNING),
    _body("producer.id", ValueKind.INTEGER, "producer ids, including those of record batches", "producer.id == 4001",
          "kafka.producer_id", "producer_id"),
    _body("acks", ValueKind.INTEGER, "the acks setting of a Produce request", "acks == 0", "kafka.required_acks",
          needs=_REQUEST, many=False, known=Known.BEGINNING),
    _body("throttle", ValueKind.MILLISECONDS, "how long the broker throttles the client", "throttle > 100ms",
          "kafka.throttle_time", needs=_RESPONSE, many=False, known=Known.HEADER_PREFIX),
    _body("codec", ValueKind.CODEC, "compression of record batches: none, gzip, snappy, lz4, zstd", "codec == gzip",
          "kafka.batch_codec", "kafka.message_codec"),
    _body("magic", ValueKind.INTEGER, "magic of record batches (2) and old messages (0, 1)", "magic < 2",
          "kafka.message_magic"),
    _body("records", ValueKind.INTEGER, "number of records in all batches, by their headers", "records > 1000",
          many=False),
)  # fmt: skip
"""All fields, in the order of their importance."""

BY_NAME: dict[str, Field] = {name: field for field in FIELDS for name in (field.name, *field.synonyms)}
"""Fields by name and by synonym."""

STATES: tuple[str, ...] = tuple(str(state) for state in State)


def lookup(name: str) -> Field | None:
    """The field of a name or synonym, in any case."""
    return BY_NAME.get(name) or BY_NAME.get(name.lower())
