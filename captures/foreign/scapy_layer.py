"""Kafka in scapy: requests and responses over TCP as packets, with the fields of Kafka's definitions.

    from barnabas.captures.foreign import scapy_layer
    packets = sniff(offline="kafka.pcapng", session=TCPSession)      # bound to port 9092
    scapy_layer.bind(19092)                                          # other ports
    packets[3][scapy_layer.KafkaRequest].show()
    KafkaRequest(correlation_id=7, client_id="me") / body("request", 3, 1)(topics=[{"name": "orders"}])

A field whose name is an attribute of scapy's packets gets a trailing underscore: `name_`. The classes of bodies (`body`) are made
from the decoder's plans on first use; the header before a body gives its API and version. A response does not name its API: it is
known from the request with its correlation id on the same connection, if scapy has seen that. A recording's broker leg has only
the frames that differ from the client's: there, from a request in flight to the same broker whose response can have these bytes, if
all such requests are of one API and version. Frames that span packets need scapy's `TCPSession`. Needs the extra `scapy`.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from functools import cache
from typing import Any

from ...decoder import DecodeError, decode_body, encode_body
from ...decoder.codec.codec import decode_request_header, header_version, read_header
from ...decoder.schema import facts
from ...decoder.schema.plan import StructPlan, plan
from ...errors import install

try:
    from scapy.fields import EnumField, Field, IntField, SignedIntField, SignedShortField
    from scapy.layers.inet import TCP
    from scapy.packet import Packet, Raw, bind_layers
except ImportError as missing:
    raise ImportError(f"the scapy layer needs scapy: {install('scapy')}") from missing

PORT = 9092
_MOST_ASKED = 1 << 16
_LARGEST = 100 << 20
"""The largest request that a broker takes by default (socket.request.max.bytes). A stream is not kept for a larger frame."""
_TAKEN = {*dir(Packet), *Packet.__slots__}
_Asked = tuple[int, int]

_asked: OrderedDict[tuple[Any, ...], _Asked] = OrderedDict()
_in_flight: OrderedDict[tuple[Any, int], dict[Any, _Asked]] = OrderedDict()
"""By broker and correlation id: what each of the broker's clients asked, as far as it has no response yet."""
_session: list[dict[int, _Asked]] = []  # that of the stream which is being put together


class _Value(Field):  # type: ignore[misc]
    """A field that its packet reads and writes as part of the whole."""

    def __init__(self, name: str, default: Any) -> None:
        Field.__init__(self, name, default, "B")

    def addfield(self, pkt: Any, s: bytes, val: Any) -> bytes:
        return s

    def getfield(self, pkt: Any, s: bytes) -> tuple[bytes, Any]:
        return s, self.default

    def any2i(self, pkt: Any, x: Any) -> Any:
        return x

    def i2repr(self, pkt: Any, x: Any) -> str:
        return repr(x)


class _Values(_Value):
    """The same for an array: scapy must not take it for a choice of values."""

    islist = 1


class _Header(Field):  # type: ignore[misc]
    """The client id of a request's header, and the tags behind it."""

    def __init__(self, name: str) -> None:
        Field.__init__(self, name, None, "H")

    def any2i(self, pkt: Any, x: Any) -> Any:
        return x

    def addfield(self, pkt: Any, s: bytes, val: str | bytes | None) -> bytes:
        version = _header_version("request", pkt.api_key, pkt.api_version)
        if version == 0:
            return s
        text = val.encode() if isinstance(val, str) else val
        s += b"\xff\xff" if text is None else struct.pack(">h", len(text)) + text
        return s + (b"\0" if version == 2 else b"")

    def getfield(self, pkt: Any, s: bytes) -> tuple[bytes, str | None]:
        head = struct.pack(">hhi", pkt.api_key, pkt.api_version, pkt.correlation_id)
        header, end = decode_request_header(head + s)
        return s[end - 8 :], header.get("client_id")


def _header_version(kind: str, key: int, version: int) -> int:
    try:
        return header_version(kind, key, version)
    except DecodeError:
        return 1 if kind == "request" else 0


class _Frame(Packet):  # type: ignore[misc]
    """What requests and responses share: the size, and that frames follow each other."""

    def add_payload(self, payload: Any) -> None:
        super().add_payload(payload)
        if isinstance(payload, Body):  # the header takes API and version from the body, unless they were given
            for name in ("api_key", "api_version"):
                self.fields.setdefault(name, getattr(type(payload), name))

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        if self.size is None:
            body = self.payload
            own = len(bytes(body.self_build())) if isinstance(body, Body) else len(pay)
            pkt = struct.pack(">I", len(pkt) - 4 + own) + pkt[4:]
        return pkt + pay

    @classmethod
    def tcp_reassemble(cls, data: bytes, metadata: dict[str, Any], session: dict[str, Any]) -> Packet | None:
        """For scapy's TCPSession: whole frames, once they are there. What is no frame is given as bytes: SASL tokens, TLS,
        other protocols, sizes that no broker takes."""
        at = size = 0
        while at + 4 <= len(data) and size <= _LARGEST:
            size = int.from_bytes(data[at : at + 4], "big")
            at += 4 + size
        if at != len(data) and size <= _LARGEST:
            return None
        _session.append(session.setdefault("kafka", {}))
        try:
            return cls(data)
        except (DecodeError, struct.error):  # of the first frame; scapy itself gives later ones as bytes
            return Raw(data)
        finally:
            _session.pop()

    def _stream(self, asking: bool) -> tuple[Any, ...] | None:
        """The connection, seen from its client."""
        tcp: Any = self.underlayer
        while tcp is not None and not isinstance(tcp, TCP):
            tcp = tcp.underlayer
        if tcp is None or tcp.underlayer is None:
            return None
        ends = (tcp.underlayer.src, tcp.sport), (tcp.underlayer.dst, tcp.dport)
        return ends if asking else ends[::-1]


_APIS = {key: facts.api_name(key) for key in facts.api_keys()}


class KafkaRequest(_Frame):
    """A request: its size and header; the body follows as a packet of its own."""

    name = "Kafka request"
    fields_desc = [  # noqa: RUF012 - as scapy wants it
        IntField("size", None),
        EnumField("api_key", 18, _APIS, "h"),
        SignedShortField("api_version", 0),
        SignedIntField("correlation_id", 0),
        _Header("client_id"),
    ]

    def post_dissect(self, s: bytes) -> bytes:
        asked = self.api_key, self.api_version
        if _session:
            _session[-1][self.correlation_id] = asked
        stream = self._stream(True)
        if stream is not None:
            _asked[(*stream, self.correlation_id)] = asked
            client, broker = stream
            _in_flight.setdefault((broker, self.correlation_id), {})[client] = asked
            for kept in (_asked, _in_flight):
                while len(kept) > _MOST_ASKED:
                    kept.popitem(last=False)
        return s

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        return _body_or_raw("request", self.api_key, self.api_version)


class KafkaResponse(_Frame):
    """A response: its size and header. `api_key` and `api_version` are those of its request, -1 when unknown."""

    name = "Kafka response"
    fields_desc = [  # noqa: RUF012 - as scapy wants it
        IntField("size", None),
        SignedIntField("correlation_id", 0),
        _Value("api_key", -1),
        _Value("api_version", -1),
    ]

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        body = self.payload
        if isinstance(body, Body) and _header_version("response", body.api_key, body.api_version) == 1:
            pkt += b"\0"
        return super().post_build(pkt, pay)

    def post_dissect(self, s: bytes) -> bytes:
        found = _session[-1].pop(self.correlation_id, None) if _session else None
        stream = self._stream(False)
        if found is None and stream is not None:
            client, broker = stream
            others = _in_flight.get((broker, self.correlation_id), {})
            found = others.pop(client, None) or _asked.get((*stream, self.correlation_id))
            if found is None:
                fitting = {asked for asked in others.values() if _fits(asked, s[: self.size - 4])}
                found = fitting.pop() if len(fitting) == 1 else None
        if found is None:
            return s
        self.api_key, self.api_version = found
        version = _header_version("response", *found)
        unsupported = self.api_key == 18 and s[:2] == b"\0\x23"
        if version == 1 and not unsupported:
            _, end = read_header("ResponseHeader", 1, b"\0\0\0\0" + s)
            return s[end - 4 :]
        return s

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        if self.api_key < 0:
            return Raw  # type: ignore[no-any-return]
        return _body_or_raw("response", self.api_key, self.api_version)


def _fits(asked: _Asked, data: bytes) -> bool:
    """Whether `data`, what follows the correlation id, is a whole response to such a request."""
    try:
        if _header_version("response", *asked) == 1:
            data = data[read_header("ResponseHeader", 1, b"\0\0\0\0" + data)[1] - 4 :]
        decode_body("response", *asked, data)
    except DecodeError:
        return False
    return True


class _Struct(Packet):  # type: ignore[misc]
    """A struct inside of a body."""

    def extract_padding(self, s: bytes) -> tuple[bytes, bytes]:
        return b"", s


class Body(Packet):  # type: ignore[misc]
    """The body of a message; see `body`."""

    kind, api_key, api_version = "request", -1, -1

    def do_dissect(self, s: bytes) -> bytes:
        # The body ends where the layer below ends it.
        under: Any = self.underlayer
        end = len(s)
        if isinstance(under, _Frame) and under.size is not None:
            end -= len(under.original) - 4 - under.size
        try:
            message = decode_body(self.kind, self.api_key, self.api_version, s[:end])
        except DecodeError:
            if self.api_key != 18 or self.kind != "response":
                raise
            message = decode_body("response", 18, 0, s[:end])  # what brokers answer to a version they do not know
        self.fields.update(_values(self, message.to_dict()))
        self.raw_packet_cache = None
        return s[end:]

    def self_build(self) -> bytes:
        built: bytes = encode_body(self.kind, self.api_key, self.api_version, _plain(self))
        return built

    def extract_padding(self, s: bytes) -> tuple[bytes, bytes | None]:
        return s, None

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        return KafkaRequest if self.kind == "request" else KafkaResponse


def of_scapy(name: str) -> str:
    """A field's name in scapy: with an underscore behind it where packets have an attribute of that name."""
    return name + "_" if name in _TAKEN else name


def _values(of: Packet, found: dict[str, Any]) -> dict[str, Any]:
    """Plain values as those of a packet's fields: structs become packets."""
    kinds = of.structs
    return {
        of_scapy(name): [kinds[name](**_values(kinds[name], item)) for item in value]
        if name in kinds and isinstance(value, list)
        else kinds[name](**_values(kinds[name], value))
        if name in kinds and isinstance(value, dict)
        else value
        for name, value in found.items()
    }


def _plain(value: Any) -> Any:
    """The other way round."""
    if isinstance(value, Packet):
        return {field.name.rstrip("_"): _plain(value.getfieldval(field.name)) for field in value.fields_desc}
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


@cache
def body(kind: str, api_key: int, api_version: int) -> type[Packet]:
    """The packet class for the bodies of "request" or "response" of an API at a version; DecodeError for unknown ones."""
    of = plan(kind, api_key, api_version)
    fields, structs = _fields(of.root, of.name)
    known = {"kind": kind, "api_key": api_key, "api_version": api_version, "structs": structs, "__module__": __name__}
    made: type[Packet] = type(
        f"{of.name}V{api_version}", (Body,), {"name": f"{of.name} v{api_version}", "fields_desc": fields, **known}
    )
    return made


def _fields(of: StructPlan, name: str) -> tuple[list[Field], dict[str, type[Packet]]]:
    """The fields of a struct, and the classes of the structs in it."""
    fields, structs = [], {}
    for field in of.fields:
        if field.struct is not None:
            inner, deeper = _fields(field.struct, f"{name}{field.name}")
            structs[field.name] = type(
                f"{name}_{field.name}",
                (_Struct,),
                {"name": field.name, "fields_desc": inner, "structs": deeper, "__module__": __name__},
            )
        fields.append((_Values if field.array else _Value)(of_scapy(field.name), _default(field)))
    return fields, structs


def _default(field: Any) -> Any:
    if field.array:
        return None if field.nullable else []
    if field.default is not None or field.nullable:
        return field.default
    return {"string": "", "bytes": b"", "records": None, "bool": False, "struct": {}, "uuid": "A" * 22}.get(
        field.type, 0
    )


def _body_or_raw(kind: str, key: int, version: int) -> type[Packet]:
    try:
        return body(kind, key, version)
    except DecodeError:
        return Raw  # type: ignore[no-any-return]


def bind(port: int) -> None:
    """Let scapy take TCP packets to this port for requests, and those from it for responses."""
    bind_layers(TCP, KafkaRequest, dport=port)
    bind_layers(TCP, KafkaResponse, sport=port)


bind(PORT)
