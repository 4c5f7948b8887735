"""Opening captures for commands: one place for the errors a user can meet."""

from __future__ import annotations

from pathlib import Path

from ...captures import Capture, NotACapture, open_capture
from .failure import Failure


def open_or_fail(path: Path) -> Capture:
    """The capture at `path`; Failure with the next step if there is none."""
    try:
        return open_capture(path)
    except NotACapture as error:
        raise Failure(str(error)) from None
    except FileNotFoundError:
        raise Failure(f"{path} does not exist; recordings are made by: barnabas proxy --record DIR") from None
    except OSError as error:
        raise Failure(f"{path} cannot be read: {error.strerror or error}") from None
