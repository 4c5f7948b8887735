"""The ``barnabas`` command. Each command has a module of its own, imported when it is called."""

from __future__ import annotations

import gc
import logging
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

from ...errors import BarnabasError
from .commands import COMMANDS as COMMANDS
from .common.failure import Failure, OutputError, os_failure
from .common.signals import discard_rest, guard_output


def __getattr__(name: str) -> Any:
    # `app`, with every command, for those who call commands from Python.
    if name == "app":
        from .command_line import make_app

        return make_app()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def main() -> None:
    """Entry point: one clear line, and exit status 2, for everything that is the user's to mend; 1 for a disk that is full or broken, 130
    after Ctrl-C, 141 when the reader of the output has gone (``barnabas decode ... | head``)."""
    guard_output()
    try:
        try:
            _run()
        finally:
            sys.stdout.flush()
    except BarnabasError as error:
        _fail(error)
    except OSError as error:  # one that no command has words for
        logging.getLogger("barnabas").error("an error of the operating system", exc_info=error)
        _fail(os_failure(str(error.filename), error) if error.filename else Failure(str(error)))
    except KeyboardInterrupt:
        sys.exit(130)


def _fail(error: BarnabasError) -> NoReturn:
    """Print an error and end."""
    from ..safe import visible_lines

    if isinstance(error, OutputError):
        discard_rest()
    print("\n".join(visible_lines(f"barnabas: {error}")), file=sys.stderr)
    sys.exit(error.exit_status)


def _run() -> None:
    """Run the command that the command line names."""
    first = sys.argv[1] if len(sys.argv) > 1 else ""
    completing = "_BARNABAS_COMPLETE" in os.environ
    gc.disable()  # what is imported stays, and there is much of it
    if first == "ui" and len(sys.argv) == 3 and not sys.argv[2].startswith("-") and not completing:
        from .screen.first_frame import show_capture

        show_capture(Path(sys.argv[2]))
        return
    from .command_line import leave_values, make_app

    if completing:
        leave_values()
    made = make_app([])
    gc.enable()
    made()
