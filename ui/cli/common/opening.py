"""Open captures and the schemas of values for commands, with errors for the user."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ...safe import visible
from .failure import Failure
from .output import warn
from .progress import Progress

if TYPE_CHECKING:
    from ....captures import Capture
    from ....decoder.values import SchemaSource


@contextmanager
def cannot_read(path: Path, remedy: str = "make a recording with: barnabas proxy --record DIR") -> Iterator[None]:
    """Turn an OSError of a capture into Failure. `remedy`: what to do when it does not exist."""
    try:
        yield
    except FileNotFoundError:
        raise Failure(f"{visible(str(path))} does not exist; {remedy}") from None
    except OSError as error:
        raise Failure(f"{visible(str(path))} cannot be read: {error.strerror or error}") from None


def open_or_fail(path: Path, *, background: bool = False) -> Capture:
    """The capture at `path`; Failure with the next step if there is none.

    A foreign capture is read to its end, with a line on a terminal when that takes long; with `background` its first
    rows are there at once and `refresh` brings the rest.
    """
    from ....captures import open_capture

    with cannot_read(path):
        capture = open_capture(path, background=True)
        try:
            if not background and capture.live and any(file.own is None for file in capture.segments):
                _read(capture)
            if not background:
                warn([capture.about])
        except BaseException:
            capture.close()
            raise
        return capture


def _read(capture: Capture) -> None:
    with Progress(capture.path.name) as progress:
        while any(file.own is None and file.live for file in capture.segments):
            progress.show(*capture.progress)
            capture.wait(0.1)
    capture.refresh()


def schemas_of(files: list[str], registry: str | None) -> SchemaSource | None:
    """The source for ``--schema FILE[=TOPIC[:key]][#MESSAGE]`` and ``--registry URL``; None if neither is given."""
    if not files and registry is None:
        return None
    from ....decoder.values import FirstOf, SchemaFiles, Target, read_schema

    known = SchemaFiles()
    try:
        for text in files:
            name, target = Target.parse(text)
            known.add(read_schema(name, Path(name).read_bytes(), target.message), target.topic, target.is_key)
        if registry is None:
            return known
        from ....captures.reading.schema_registry import Registry

        return FirstOf(known, Registry(registry))
    except OSError as error:
        raise Failure(f"--schema {error.filename}: {(error.strerror or str(error)).lower()}") from None
