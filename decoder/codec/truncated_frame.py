"""Read frames that a snap length has cut."""

from __future__ import annotations

import re

from ..errors import DecodeError
from ..schema.plan import plan
from ..wire.frame import Direction
from .codec import decode_request_header, read_header
from .project import error_paths
from .walk import Walker

_INDEX = re.compile(r"\[\d+\]")


class FrameCut(DecodeError):
    """The frame was cut when it was captured. `path`, `offset` and `partial` show how far it can be read."""


def cut_fault(direction: Direction, frame: bytes, api_key: int, api_version: int, missing: int) -> DecodeError:
    """The `FrameCut` of a frame that lacks its last `missing` bytes, with what can be read in `partial`; another error if the
    header or the API cannot be read."""
    try:
        walker, fault = _walked(direction, frame, api_key, api_version, missing)
    except DecodeError as other:
        return other
    path, offset = (fault.path, fault.offset) if fault is not None else ("(after the message)", walker.position)
    text = f"cut at {len(frame)} of {len(frame) + missing} bytes"
    return FrameCut(text, api=walker.plan.api, version=api_version, path=path, offset=offset, partial=walker.tree)


def first_error_in(frame: bytes, api_key: int, api_version: int, missing: int) -> int:
    """The first error code that is not 0 in what was kept of a response, outer fields first; 0 if there is none."""
    try:
        walker, _ = _walked(Direction.RESPONSE, frame, api_key, api_version, missing)
    except DecodeError:
        return 0
    paths = error_paths(walker.plan)
    codes: dict[str, int] = {}
    for span in walker.spans:
        path = _INDEX.sub("", span.path)
        if path in paths and not codes.get(path):
            codes[path] = int.from_bytes(frame[span.start : span.end], "big", signed=True)
    return next((codes[path] for path in paths if codes.get(path)), 0)


def _walked(
    direction: Direction, frame: bytes, api_key: int, api_version: int, missing: int
) -> tuple[Walker, DecodeError | None]:
    """A walker that has read as far as possible, and the fault that stopped it. Raises `DecodeError` for an incomplete header."""
    if direction is Direction.REQUEST:
        _, start = decode_request_header(frame)
        of = plan("request", api_key, api_version)
    else:
        of = plan("response", api_key, api_version)
        _, start = read_header("ResponseHeader", of.header_version, frame)
    walker = Walker(of, frame, start, missing)
    try:
        walker.run()
    except DecodeError as fault:
        return walker, fault
    return walker, None
