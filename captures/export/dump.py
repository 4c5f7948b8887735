"""A frame as a hex dump: offset, sixteen bytes, their text, and the fields that begin on the line."""

from __future__ import annotations

from collections.abc import Iterator

from ...decoder import DecodeError, Direction, Exchange, Message
from ...decoder.codec.codec import header_version
from ...decoder.codec.secrets import mask
from ...decoder.codec.walk import Walker
from ...decoder.present import Range, payload_ranges
from ...decoder.schema.plan import extra_plan

_PER_LINE = 16


def dump(exchange: Exchange, values: bool = False) -> Iterator[str]:
    """The lines of request and response. Secrets are stars; the content of records is dots unless `values` is set.

    Offsets count from the frame's first byte, behind the 4 size bytes. A field that goes on from a line above stands
    in parentheses.
    """
    sides = (
        (Direction.REQUEST, exchange.request, exchange.request_message),
        (Direction.RESPONSE, exchange.response, exchange.response_message),
    )
    for direction, frame, message in sides:
        if frame is None:
            continue
        name = direction.name.lower()
        if direction is Direction.RESPONSE:
            yield ""
        yield f"{exchange.api or '(unknown)'} v{exchange.api_version} {name}, {len(frame)} bytes"
        hidden = [] if values else payload_ranges(direction, exchange.api, frame, message)
        yield from lines(masked(exchange, direction), hidden, _starts(exchange, direction, message, frame))
    if exchange.cut:
        yield ""
        yield exchange.cut
    if exchange.undecoded:
        yield ""
        yield f"undecoded: {exchange.undecoded}"


def masked(exchange: Exchange, direction: Direction) -> bytes:
    """The frame with its secrets overwritten; ValueError if there is none."""
    frame = exchange.request if direction is Direction.REQUEST else exchange.response
    if frame is None:
        raise ValueError("it has no " + direction.name.lower())
    if direction is Direction.RESPONSE and exchange.api_key < 0:
        return frame[:4] + b"*" * (len(frame) - 4)  # an orphan: its content is unknown
    return mask(direction, exchange.api_key, exchange.api_version, frame, (exchange.request or b"") if direction else b"")


def lines(frame: bytes, hidden: list[Range], fields: list[tuple[str, int, int]]) -> Iterator[str]:
    """The dump of bytes. `hidden` ranges show as dots; `fields` are (path, start, end), in order of their starts."""
    dotted = bytearray(len(frame))
    for start, end in hidden:
        dotted[start:end] = b"\x01" * (end - start)
    at = 0
    for start in range(0, len(frame), _PER_LINE):
        stop = min(start + _PER_LINE, len(frame))
        names = [f"({fields[at - 1][0]})"] if at and fields[at - 1][2] > start else []
        while at < len(fields) and fields[at][1] < stop:
            names.append(fields[at][0])
            at += 1
        octets, text = _hex(frame, dotted, start, stop), _text(frame, dotted, start, stop)
        yield f"{start:08x}  {octets}  |{text}|  {', '.join(names)}".rstrip()


def _hex(frame: bytes, dotted: bytearray, start: int, stop: int) -> str:
    cells = [".." if dotted[i] else f"{frame[i]:02x}" for i in range(start, stop)]
    return f"{' '.join(cells[:8]):<23}  {' '.join(cells[8:]):<23}"


def _text(frame: bytes, dotted: bytearray, start: int, stop: int) -> str:
    return "".join(chr(frame[i]) if 32 <= frame[i] < 127 and not dotted[i] else "." for i in range(start, stop))


def _starts(
    exchange: Exchange, direction: Direction, message: Message | None, frame: bytes
) -> list[tuple[str, int, int]]:
    """The fields that have no other fields inside, header first."""
    spans: list[tuple[str, int, int]] = []
    try:
        if direction is Direction.REQUEST:
            number = header_version("request", exchange.api_key, exchange.api_version)
            header = extra_plan("headers", "RequestHeader", number)
        else:
            version = message.api_version if message is not None else exchange.api_version
            # An ApiVersions response has header 0 at every version, as in its plan.
            header = extra_plan("headers", "ResponseHeader", header_version("response", exchange.api_key, version))
        walker = Walker(header, frame, 0)
        walker.run()
        spans += [(span.path, span.start, span.end) for span in walker.spans]
    except DecodeError:
        pass
    if message is not None:
        spans += [(span.path, span.start, span.end) for span in message.map()]
    parents = {path[: path.rfind(mark)] for path, _, _ in spans for mark in ".[" if mark in path}
    return sorted(((p, s, e) for p, s, e in spans if p not in parents and e > s), key=lambda span: span[1])
