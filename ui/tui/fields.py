"""The two sides of an exchange as fields: what was understood, and what was not."""

from __future__ import annotations

import gc
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ...decoder import (
    DecodeError,
    Direction,
    Exchange,
    decode_request,
    decode_request_header,
    decode_response,
    facts,
)
from ...decoder.beginning import cut_fault
from ...decoder.plan import plan
from ...decoder.secrets import mask, secret_paths
from ...decoder.walk import Walker
from .field_list import Tree
from .frame_fields import Builder
from .safe import visible

if TYPE_CHECKING:
    from ...decoder.values import SchemaSource

LARGE = 100_000
"""Bytes of a frame above which items of long arrays are made when they are looked into."""


def request_tree(exchange: Exchange, values_shown: bool = False, schemas: SchemaSource | None = None) -> Tree:
    """The request side; an empty tree with a note for an orphan response."""
    if exchange.request is None:
        return Tree(note="The request was not recorded: it was sent before the recording began, or was lost.")
    return _tree(Direction.REQUEST, exchange.request, exchange, values_shown, schemas)


def response_tree(exchange: Exchange, values_shown: bool = False, schemas: SchemaSource | None = None) -> Tree:
    """The response side; an empty tree with a note where there is none."""
    if exchange.response is not None:
        return _tree(Direction.RESPONSE, exchange.response, exchange, values_shown, schemas)
    if exchange.state == "pending":
        return Tree(note="No response yet.")
    message = exchange.request_message
    if message is not None and message.api == "Produce" and message["acks"] == 0:
        return Tree(note="No response: the producer asked for none (acks=0).")
    return Tree(note="No response: the connection ended, or went on without one.")


def _tree(
    direction: Direction, frame: bytes, exchange: Exchange, values_shown: bool, schemas: SchemaSource | None
) -> Tree:
    # A large frame makes some hundred thousand objects, all of which stay: collecting garbage meanwhile finds none, and
    # takes a third of the time.
    collects = len(frame) > LARGE and gc.isenabled()
    if collects:
        gc.disable()
    try:
        return _made(direction, frame, exchange, values_shown, schemas)
    finally:
        if collects:
            gc.enable()


def _made(
    direction: Direction, frame: bytes, exchange: Exchange, values_shown: bool, schemas: SchemaSource | None
) -> Tree:
    key, version = exchange.api_key, exchange.api_version
    cut = exchange.response_cut if direction is Direction.RESPONSE else exchange.request_cut
    try:
        if direction is Direction.RESPONSE and exchange.state == "orphan":
            raise DecodeError("without its request nobody can say which API this answers", path="", offset=4)
        if cut:
            raise cut_fault(direction, frame, key, version, cut)
        if direction is Direction.REQUEST:
            message = decode_request(frame)
        else:
            message = decode_response(frame, api_key=key, api_version=version)
    except DecodeError as fault:
        if fault.message is None:
            return _damaged(direction, frame, exchange, fault, values_shown)
        message = fault.message
    brief = len(frame) > LARGE and not _carries_records(key)
    known = schemas if values_shown else None
    builder = Builder(direction, mask(direction, key, version, frame), values_shown, known, exchange.topics.name if exchange.topics else None)
    return builder.message(message, brief)


def _damaged(direction: Direction, frame: bytes, exchange: Exchange, fault: DecodeError, values_shown: bool) -> Tree:
    """What was read before the fault. Where secrets or record values could stand nobody knows, so they stay hidden."""
    key, version = exchange.api_key, exchange.api_version
    builder = Builder(direction, mask(direction, key, version, frame), values_shown)
    tree = builder.tree
    tree.fault, tree.fault_at = visible(str(fault)), fault.offset
    of, start = None, 0
    if exchange.state != "orphan":
        with suppress(DecodeError):  # an API or version that nobody knows: the fault says so
            of = plan("request" if direction is Direction.REQUEST else "response", key, version)
    if direction is Direction.REQUEST:
        with suppress(DecodeError):
            values, _ = decode_request_header(frame)
            start = builder.header(of.header_version if of else 1, values)
    else:
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        start = builder.header(of.header_version if of else 0, {"correlation_id": correlation_id})
    if not values_shown and _carries_records(key):
        tree.hidden.append((start, len(frame)))
    if of is not None and fault.partial and not secret_paths(direction, key):
        missing = exchange.response_cut if direction is Direction.RESPONSE else exchange.request_cut
        walker = Walker(of, frame, start, missing)
        walker.explain()  # bounded, unlike a full walk
        builder.spans = {span.path: (span.start, span.end) for span in walker.spans}
        builder.values(of.root, fault.partial, 0, "")
        start = max((f.span[1] for f in tree.fields if f.span), default=start)
    if start < len(frame):
        text = f"bytes {start} to {len(frame)}; the fault is at byte {fault.offset}"
        builder.add(0, "(not decoded)", text, "undecoded", span=(start, len(frame)))
    else:
        builder.add(0, "(ends here)", f"more bytes were expected at {fault.offset}", "undecoded", span=(start, start))
    return tree


def _carries_records(key: int) -> bool:
    try:
        api = facts.api(key)
    except KeyError:
        return False

    def holds(fields: Any) -> bool:
        return any(f.type == "records" or holds(f.fields) for f in fields)

    return any(holds(d.fields) or any(holds(f) for _, f in d.structs) for d in (api.request, api.response))
