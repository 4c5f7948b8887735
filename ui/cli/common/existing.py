"""What commands do when their output exists: refuse it, replace it with --force, or add to a recording with --append.

`barnabas proxy` and `barnabas pipeline run` go on with what is there instead: a service that starts again must not fail, and
the pipeline reads each capture once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from ...safe import visible
from .failure import Failure, cannot_write
from .signals import stopping_on_signals

Force = Annotated[bool, typer.Option("--force", help="Replace an output that exists.")]
Append = Annotated[bool, typer.Option("--append", help="Add to a recording that exists.")]


def refuse_existing(path: Path | None, force: bool, option: str = "") -> None:
    """Raise Failure if an output is there and is not to be replaced. Before the work, so that none is done for nothing.

    Empty directories, devices and pipes are written to; "-" is standard output.
    """
    if path is not None and not force and str(path) != "-" and (path.is_file() or (path.is_dir() and any(path.iterdir()))):
        raise exists(path, option)


def exists(path: Path, option: str = "", append: str = "") -> Failure:
    """The error about an output that is there."""
    return Failure(f"{option} {visible(str(path))} already exists: give another name, {append}or --force to replace it".lstrip())


def write_text(path: Path, text: str, option: str) -> None:
    """Write a file, whole or not at all, that only its owner can read; `refuse_existing` comes before. Raises Failure, which
    names the option."""
    from ....captures.export import written

    try:
        with written(path, force=True) as file:
            file.write(text.encode("utf-8", "replace"))
    except OSError as error:
        raise cannot_write(f"{option} {path}", error) from None


def refuse_recording(directory: Path, append: bool, force: bool) -> None:
    """Raise Failure if a directory has a recording, unless one of the options says what to do with it."""
    from ....captures.reading.reader import files_in

    if append and force:
        raise Failure("--append adds to the recording, --force replaces it: give only one of them")
    if not append and not force and (directory.is_file() or (directory.is_dir() and files_in(directory))):
        raise exists(directory, append="--append to add to it, ")


_FILES = {".cap", ".csv", ".gz", ".json", ".jsonl", ".log", ".pcap", ".tar", ".txt", ".zip", ".zst"}
"""Suffixes of files that no directory of segments has."""


@contextmanager
def new_recording(target: Path, inputs: list[Path], force: bool) -> Iterator[Path]:
    """The directory to write a recording into, removed when writing fails. Raises Failure."""
    from ....captures.transform.write import replacing

    if target.suffix.lower() in _FILES:
        raise Failure(f"{visible(str(target))} is neither a directory nor a .pcapng file: give one of these for the result")
    for path in inputs:
        if target.exists() and path.exists() and target.resolve() == path.resolve():
            raise Failure(f"{visible(str(target))} is the capture itself; give another place for the result")
    refuse_existing(target, force)
    try:
        with stopping_on_signals(), replacing(target, force) as place:
            yield place
    except OSError as error:
        raise cannot_write(target, error) from None
