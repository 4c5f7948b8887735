"""Previews: layouts that a release used for an API version whose final layout is different.

An unfinished API, which had to be enabled explicitly, could change without a new version. The bytes do not show which
layout they have, so a preview is used only if the release is given. The files in ``schema/definitions/previews/`` are named
after the releases: ``3.5-3.6.kafka`` is for 3.5 and 3.6.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from ...codec import codec
from ...codec.message import Message
from ...errors import DecoderError
from ...schema import facts
from ...schema.notation import Definition, parse
from ...schema.plan import Plan, compile_plan

Release = tuple[int, ...]

_RELEASE = re.compile(r"[vV]?(\d+(?:\.\d+)*)(?:[-.][A-Za-z][\w.-]*)?")


class Overlay(NamedTuple):
    """The layout of one message in the releases `first` to `last`, both included."""

    first: str
    last: str
    definition: Definition

    def holds(self, release: Release) -> bool:
        """Whether `release` is one of them; a patch release belongs to its minor release."""
        first, last = parse_release(self.first), parse_release(self.last)
        return release[: len(first)] >= first and release[: len(last)] <= last


def parse_release(release: str) -> Release:
    """``"3.6.1"`` -> (3, 6, 1). A suffix, as in ``"3.9.0-rc3"`` or ``"3.6-kraft"``, is ignored. Raises `DecoderError`."""
    match = _RELEASE.fullmatch(release.strip())
    if match is None:
        raise DecoderError(f"{release!r} is not a Kafka release; give one like 3.6 or 0.8.2.2")
    numbers = tuple(map(int, match[1].split(".")))
    return numbers if len(numbers) > 1 else (*numbers, 0)


@cache
def every() -> tuple[Overlay, ...]:
    """All overlays, oldest release first."""
    found = []
    for entry in facts.schema_folder().joinpath("previews").iterdir():
        if entry.name.endswith(".kafka"):
            first, _, last = entry.name.removesuffix(".kafka").partition("-")
            found += [Overlay(first, last or first, d) for d in parse(entry.read_text("utf-8"), entry.name)]
    return tuple(sorted(found, key=lambda o: (parse_release(o.first), o.definition.key or 0, o.definition.name)))


def overlays(release: str) -> list[Overlay]:
    """The overlays of a release, such as ``"3.6"`` or ``"3.6.1"``. Raises `DecoderError` for a name that is not a release."""
    parsed = parse_release(release)
    return [overlay for overlay in every() if overlay.holds(parsed)]


@cache
def plan(kind: str, api_key: int, api_version: int, release: str) -> Plan | None:
    """The plan of a ``"request"`` or ``"response"`` in a preview; None if the release had the final layout."""
    for overlay in overlays(release):
        of = overlay.definition
        if (of.kind, of.key) == (kind, api_key) and api_version in of.versions:
            return compile_plan(of, api_version, api_key)
    return None


def decode_body(kind: str, api_key: int, api_version: int, data: bytes, release: str | None = None) -> Message:
    """`decoder.decode_body` for the layout of `release`, such as ``"3.6"``; None: the final layout."""
    of = None if release is None else plan(kind, api_key, api_version, release)
    return codec.decode_body(kind, api_key, api_version, data) if of is None else codec.read_message(of, bytes(data), 0, {})


def decode_request(frame: bytes, release: str | None = None) -> Message:
    """`decoder.decode_request` for the layout of `release`."""
    frame = bytes(frame)
    header, start = codec.decode_request_header(frame)
    of = None
    if release is not None:
        of = plan("request", header["request_api_key"], header["request_api_version"], release)
    return codec.decode_request(frame) if of is None else codec.read_message(of, frame, start, header)


def decode_response(frame: bytes, *, api_key: int, api_version: int, release: str | None = None) -> Message:
    """`decoder.decode_response` for the layout of `release`."""
    of = None if release is None else plan("response", api_key, api_version, release)
    if of is None:
        return codec.decode_response(frame, api_key=api_key, api_version=api_version)
    frame = bytes(frame)
    header, start = codec.read_header("ResponseHeader", of.header_version, frame)
    return codec.read_message(of, frame, start, header)
