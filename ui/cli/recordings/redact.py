"""``barnabas redact``: make a capture that can be shared."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...safe import visible
from ..common.existing import Force, new_recording
from ..common.failure import Failure
from ..common.opening import cannot_read
from ..common.option_groups import option, with_option_groups
from ..common.options import CapturePath, Ports
from ..common.output import counted, warn
from ..common.progress import Progress
from .transform_output import AsJson, Output, print_summary, summary_line, write_origin

if TYPE_CHECKING:
    from ....captures.transform.fields import RedactionKind
    from ....captures.transform.redact import Redaction
    from ....captures.transform.verify import Verification
    from ....captures.transform.write import Writer

_LEFT_SHOWN = 5


@dataclass(frozen=True, slots=True)
class KindOptions:
    """What is replaced, by the names of `RedactionKind`."""

    PANEL = "What to replace (default: everything)"

    keys: Annotated[bool, option("Keys of records.")] = False
    values: Annotated[bool, option("Values of records.")] = False
    headers: Annotated[bool, option("Headers of records.")] = False
    topics: Annotated[bool, option("Topics.")] = False
    groups: Annotated[bool, option("Groups.")] = False
    transactions: Annotated[bool, option("Transactional ids.")] = False
    clients: Annotated[bool, option("Client ids, members, instances.")] = False
    hosts: Annotated[bool, option("Hosts, addresses (of packets, too) and log directories.")] = False
    users: Annotated[bool, option("Users and other principals.")] = False
    clusters: Annotated[bool, option("Cluster ids and racks.")] = False

    def kinds(self) -> frozenset[RedactionKind]:
        """Every kind where none is named."""
        from ....captures.transform.fields import RedactionKind

        named = frozenset(kind for kind in RedactionKind if getattr(self, kind.value))
        return named or frozenset(RedactionKind)


@with_option_groups
def redact(
    capture: CapturePath,
    output: Output,
    replaced: KindOptions,
    salt: Annotated[
        str | None,
        typer.Option(
            "--salt", help="Captures redacted with the same salt get the same pseudonyms. Default: a random salt.", metavar="TEXT"
        ),
    ] = None,
    salt_file: Annotated[
        Path | None, typer.Option("--salt-file", help="Read the salt from a file.", metavar="FILE")
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Verify that the result contains nothing that was replaced.")
    ] = True,
    port: Ports = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Make a capture that can be shared: names, addresses and contents become pseudonyms of the same length.

    Equal names stay equal, sizes and CRCs stay valid, everything still decodes. What cannot be decoded is blanked. Passwords,
    tokens and other secrets of the protocol are always masked.
    """
    from ....captures.transform.pseudonyms import Pseudonyms
    from ....captures.transform.redact import Redaction

    redaction = Redaction(Pseudonyms(_salt(salt, salt_file)), replaced.kinds())
    with new_recording(output, [capture], force) as place:
        _redact(capture, output, place, redaction, verify, tuple(port or (9092,)), as_json)


def _salt(text: str | None, file: Path | None) -> bytes | None:
    if text is not None and file is not None:
        raise Failure("give --salt or --salt-file, not both")
    if file is not None:
        try:
            data = file.read_bytes().strip()
        except OSError as error:
            raise Failure(f"{visible(str(file))} cannot be read: {error.strerror or error}") from None
    elif text is not None:
        data = text.encode()
    else:
        return None
    if not data:
        raise Failure("the salt is empty; leave it out for a random one")
    return data


def _redact(
    capture: Path, output: Path, place: Path, redaction: Redaction, verify: bool, ports: tuple[int, ...], as_json: bool
) -> None:
    from ....captures.reading.events import EventReader
    from ....captures.transform.write import Writer

    with cannot_read(capture):
        events = EventReader(capture, ports)
    writer = Writer(place, one_file=output.suffix == ".pcapng")
    with Progress("redacting") as progress:
        for event in chain(events.read(), events.end()):
            for new in redaction.feed(event):
                writer.write(new)
            progress.show(events.bytes_read, events.bytes_known, f"{redaction.counts['records']:,} records")
    writer.close()
    verdict = _verified(place, redaction) if verify else None
    if verdict is not None and verdict.left and redaction.everything:
        _refuse(verdict)
    summary = {
        "output": str(output),
        "kinds": sorted(redaction.kinds),
        **writer.counts,
        **redaction.counts,
        "replaced": redaction.distinct,
        "verified": None if verdict is None else {
            "searched": verdict.searched,
            "unsure": verdict.unsure,
            "skipped": verdict.skipped,
            "left": len(verdict.left),
        },
    }  # fmt: skip
    write_origin(place, output, {"made_by": "barnabas redact", "kinds": sorted(redaction.kinds)})
    warn([events.note, *redaction.faults, *writer.faults])
    print_summary(as_json, summary, _lines(writer, redaction, verdict, output))


def _verified(place: Path, redaction: Redaction) -> Verification:
    """Search the written files for originals."""
    from ....captures.transform.verify import Verifier

    pseudonyms = redaction.pseudonyms
    # Contents may go on elsewhere unless all that holds any is replaced.
    contents = pseudonyms.contents if redaction.everything else {}
    verifier = Verifier(pseudonyms.replaced, contents, redaction.frames.kept)
    files = sorted(place.iterdir())
    done = 0
    total = 2 * sum(file.stat().st_size for file in files)
    with Progress("verifying") as progress:

        def read(more: int) -> None:
            nonlocal done
            done += more
            progress.show(done, total, "bytes")

        for file in files:
            verifier.file(file, read)
        verifier.frames(place, lambda at: progress.show(done + at, total, "frames"))
    return verifier.verdict


def _refuse(verdict: Verification) -> None:
    """Raise Failure with the remaining names. They are shown nowhere else; who redacts knows them."""
    shown = [
        f"  {visible(original)!r} {counted(sum(places.values()), 'time')} ({', '.join(sorted(places))})"
        for original, places in list(verdict.left.items())[:_LEFT_SHOWN]
    ]
    more = len(verdict.left) - len(shown)
    lines = "\n".join([*shown, *([f"  and {more} more"] if more else [])])
    raise Failure(
        f"{counted(len(verdict.left), 'name')} of {verdict.searched} would remain in the result, so it was not written:\n"
        f"{lines}\nLeave out the exchanges with them (barnabas cut), or accept the result with --no-verify."
    )


def _lines(writer: Writer, redaction: Redaction, verdict: Verification | None, output: Path) -> list[str]:
    counts = redaction.counts
    replaced = ", ".join(f"{count} {kind}" for kind, count in redaction.distinct.items() if count)
    lines = [summary_line(writer, "", output)]
    lines.append(f"replaced: {replaced or 'no names'}; {counted(counts['records'], 'record')} processed")
    if counts["blanked_bytes"] or counts["telemetry"]:
        telemetry = f", {counts['telemetry']} telemetry pushes emptied" if counts["telemetry"] else ""
        lines.append(
            f"blanked, because its content is unknown: {counts['blanked_bytes']:,} bytes, "
            f"{counted(counts['blanked_frames'], 'whole frame')} included{telemetry}"
        )
    if verdict is None:
        lines.append("not verified (--no-verify)")
        return lines
    unsure = f"; {verdict.unsure} are also Kafka terms, and were not searched for" if verdict.unsure else ""
    skipped = f"; {verdict.skipped} were too many to search for without numpy" if verdict.skipped else ""
    lines.append(f"verified: {len(verdict.left)} of {verdict.searched} originals are left{unsure}{skipped}")
    for original, places in list(verdict.left.items())[:_LEFT_SHOWN]:
        lines.append(
            f"  {visible(original)!r} {counted(sum(places.values()), 'time')}: it is in a kind that was not selected"
        )
    return lines
