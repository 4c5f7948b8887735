"""``barnabas crosscheck``: compare how Wireshark and Barnabas read the same frames."""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from ...safe import visible
from ..common.opening import open_or_fail
from ..common.options import CapturePath
from ..common.output import counted
from ..common.progress import Progress

if TYPE_CHECKING:
    from ....captures.foreign.crosscheck import Checked, Disagreement

_PRINTED = 3
"""Differences of one kind of message that are shown."""


def crosscheck(
    capture: CapturePath,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per frame.")] = False,
) -> None:
    """Compare every frame that Wireshark's dissector reads with how Barnabas reads it, field by field.

    Fields are compared by their place in the frame. Each difference shows who is wrong: the fields that Barnabas
    read are encoded again by Kafka's definition of the message, and if the bytes are identical, Wireshark is wrong.
    Needs tshark and the extra tshark. The exit status is 1 if Barnabas reads a frame wrongly.
    """
    from ....captures.foreign.crosscheck import Crosscheck, CrosscheckOutcome

    found: dict[CrosscheckOutcome, dict[str, list[Checked]]] = {outcome: {} for outcome in CrosscheckOutcome}
    count: Counter[CrosscheckOutcome] = Counter()
    fields = read = 0
    with open_or_fail(capture) as opened:
        crosscheck = Crosscheck(opened)
        with Progress(capture.name) as progress:
            for checked in crosscheck.frames():
                read += checked.size
                progress.show(read, crosscheck.total)
                count[checked.outcome] += 1
                fields += checked.compared
                if as_json:
                    sys.stdout.write(json.dumps(checked.to_dict()) + "\n")
                elif checked.outcome is not CrosscheckOutcome.AGREED:
                    found[checked.outcome].setdefault(checked.message, []).append(checked)
    if not as_json:
        frames = sum(count.values())
        print(f"Wireshark {crosscheck.wireshark.version} reads {counted(frames, 'frame')} as Kafka; {counted(fields, 'field')} compared")
        if not frames:
            print("Nothing to compare: Wireshark sees no Kafka in this capture")
        for outcome in CrosscheckOutcome:
            if count[outcome]:
                print(f"\n{count[outcome]} {outcome.value}")
                for message, frames_of_it in found[outcome].items():
                    _print(message, frames_of_it)
    if count[CrosscheckOutcome.BARNABAS]:
        raise typer.Exit(1)


def _print(message: str, frames: list[Checked]) -> None:
    """One kind of message: how often, where first, and what differs there."""
    first = frames[0]
    where = f"packet {first.packet} of {first.file}" + ("" if first.row is None else f", exchange {first.row + 1}")
    print(visible(f"  {message}: {len(frames)}, the first is {where}"))
    print(visible(f"    {first.why}"))
    for difference in first.differences[:_PRINTED]:
        print(visible(f"    {_line(difference)}"))
    if len(first.differences) > _PRINTED:
        print(f"    and {len(first.differences) - _PRINTED} more differences")


def _line(difference: Disagreement) -> str:
    where = "whole frame" if difference.start < 0 else f"bytes {difference.start} to {difference.end - 1}"
    return f"{where}: Wireshark {difference.wireshark}; Barnabas {difference.barnabas}"
