"""Open captures for commands, with errors for the user."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ....captures import Capture, open_capture
from ...safe import visible
from .failure import Failure
from .output import warn
from .progress import Progress


@contextmanager
def cannot_read(path: Path) -> Iterator[None]:
    """Turn an OSError of a capture into Failure with the next step."""
    try:
        yield
    except FileNotFoundError:
        raise Failure(f"{visible(str(path))} does not exist; recordings are made by: barnabas proxy --record DIR") from None
    except BrokenPipeError:
        raise  # of the output
    except OSError as error:
        raise Failure(f"{visible(str(path))} cannot be read: {error.strerror or error}") from None


def open_or_fail(path: Path, *, background: bool = False) -> Capture:
    """The capture at `path`; Failure with the next step if there is none.

    A foreign capture is read to its end, with a line on a terminal when that takes long; with `background` its first
    rows are there at once and `refresh` brings the rest.
    """
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
