"""``barnabas sniff``: record the traffic of a network interface passively."""

from __future__ import annotations

import sys
import time
from enum import StrEnum
from typing import Annotated

import typer

from ...safe import visible
from ..common.existing import Append, Force, refuse_recording
from ..common.failure import Failure, cannot_write
from ..common.option_groups import with_option_groups
from ..common.options import FilterText, RecordingDirectory, Redact, Seconds
from ..common.output import counted, warn
from ..common.signals import stopping_on_signals
from ..protocol.filter import compiled
from .options import RecordingOptions


class CaptureMethod(StrEnum):
    """How packets are captured."""

    DUMPCAP = "dumpcap"
    TCPDUMP = "tcpdump"
    SOCKET = "socket"


@with_option_groups
def sniff(
    interface: Annotated[str, typer.Option("--interface", "-i", help="The network interface, such as eth0 or lo.", metavar="NAME")],
    output: RecordingDirectory,
    port: Annotated[
        list[int] | None,
        typer.Option("--port", help="A port of the brokers (default: any TCP port; Kafka is detected). May be repeated.", metavar="N"),
    ] = None,
    seconds: Seconds = None,
    filter_: FilterText = None,
    redact: Redact = True,
    append: Append = False,
    force: Force = False,
    method: Annotated[
        CaptureMethod | None,
        typer.Option("--method", help="How to capture packets (default: dumpcap or tcpdump if installed, else a socket)."),
    ] = None,
    *,
    recording: RecordingOptions,
) -> None:
    """Record the traffic of a network interface, without changing anything. Ctrl-C stops it.

    The recording grows while it runs: barnabas ui DIR shows it live. Needs root, CAP_NET_RAW, or a dumpcap that your
    user may run. Packets that the system dropped are counted and shown. If the disk is full, the traffic is only
    counted, and recording resumes once there is space. For TLS connections, use barnabas proxy, or capture with
    dumpcap and give barnabas import the clients' key log.
    """
    wanted = compiled(filter_) if filter_ is not None else None
    kept = recording.config()
    refuse_recording(output, append, force)
    from ....captures.foreign.importer import Importer
    from ....captures.foreign.sniff import Tap
    from ....captures.foreign.sniff import sniff as record
    from ....captures.transform.write import remove_recording
    from ....proxy.observers.retainer import Retainer

    try:
        tap = Tap(interface, tuple(port or ()), str(method) if method else "")
    except OSError as error:
        raise Failure(visible(str(error))) from None
    if force:
        remove_recording(output)
    retainer = Retainer(lambda event: print(visible(event.text), file=sys.stderr))
    try:
        importer = Importer(
            output,
            tuple(port or (9092,)),
            redact=redact,
            wanted=wanted,
            segment_bytes=kept.segment_bytes,
            segment_seconds=kept.segment_seconds,
            on_segment=retainer.apply,
            on_trouble=lambda text: warn([text]),
        )
    except OSError as error:
        tap.close()
        raise cannot_write(output, error) from None
    print(f"recording {visible(interface)} into {visible(str(output))} with {tap.by}; Ctrl-C stops it", file=sys.stderr)
    retainer.watch(output, kept, is_ring=False)
    until = None if seconds is None else time.monotonic() + seconds

    def over() -> bool:
        retainer.tick()
        return until is not None and time.monotonic() >= until

    with stopping_on_signals():
        try:
            record(tap, importer, over, lambda text: warn([text]))
        except KeyboardInterrupt:
            pass
        except OSError as error:
            raise Failure(visible(str(error.strerror or error))) from None
    retainer.close()
    counts = importer.counts
    warn(importer.notes)
    what = f"{counted(counts['exchanges'], 'exchange')} on {counted(counts['connections'], 'connection')}"
    if counts["unrecorded"]:
        what += f" ({counted(counts['unrecorded'], 'frame')} not recorded: the disk was full, or failed)"
    dropped = "not known" if tap.dropped is None else f"{tap.dropped}"
    print(
        f"{what}; packets dropped by the system: {dropped}; next: barnabas ui {visible(str(output))}", file=sys.stderr
    )
