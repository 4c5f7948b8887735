"""What is sent for a recorded request: its bytes as they were where nothing has to change, else as the target needs them."""

from __future__ import annotations

from typing import NamedTuple

from ...captures.replay.preparer import CannotSend, Preparer
from ...captures.replay.report import Report
from ...captures.replay.script import Call, Script
from ...decoder.codec.message import Message
from .target import Target


class Composed(NamedTuple):
    """A frame without its size, its version, and the message where something has to be known of it."""

    frame: bytes
    version: int
    message: Message | None


def compose(call: Call, script: Script, preparer: Preparer, target: Target, report: Report, again: bool) -> Composed:
    """Raises CannotSend with the reason, and UnknownId for an id that the target has not told yet. `again`: the request was
    counted before."""
    exchange = call.exchange
    script.make_ready(call)
    if call.skip is not None:
        raise CannotSend(call.skip)
    if preparer.unchanged(call):
        # With several brokers its partitions say where it goes.
        message = exchange.request_message if len(target.brokers) > 1 else None
        return Composed(exchange.request or b"", exchange.api_version, message)
    message = preparer.request(call)
    if message.api_version != exchange.api_version:
        what = f"{exchange.api} v{exchange.api_version} sent as v{message.api_version}"
        report.versions[what] = report.versions.get(what, 0) + (not again)
    return Composed(message.frame, message.api_version, message)
