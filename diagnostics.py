"""Diagnostics: the logs of all processes of Barnabas, and the errors that its boundaries contain.

Nothing is logged unless somebody asks for it: ``barnabas -v`` logs to stderr, ``--log-file FILE`` appends JSON lines. Modules log through
`logging.getLogger(__name__)`; what users must see are events and errors (`barnabas.errors`), not logs.

A boundary is where one fault must not end everything else: a process, a thread, a hook, a detector, a listener. It catches
`Exception`, calls `contained`, and goes on.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from .errors import BarnabasError

ENVIRONMENT = "BARNABAS_LOG"
"""The variable by which child processes inherit the destination: `LEVEL:FILE`, without FILE for stderr."""
NAMES = ("error", "warning", "info", "debug")

errors_contained: Counter[str] = Counter()
"""How often each boundary of this process contained an error."""
_log = logging.getLogger("barnabas")
_log.addHandler(logging.NullHandler())  # otherwise Python prints warnings of loggers without handlers


@dataclass(frozen=True, slots=True)
class Contained:
    """An error that a boundary contained. count: how many since the last report of this boundary."""

    what: str
    error: str
    count: int


Listener = Callable[[Contained], object]
_listener: Listener | None = None


def listen(listener: Listener | None) -> None:
    """Call this when a boundary contains its 1st, 10th, 100th ... error: a process reports them to its supervisor."""
    global _listener
    _listener = listener


def contained(what: str, error: BaseException, *, reported: bool = False) -> None:
    """Count and log an error that goes no further; with its traceback the 1st, 10th, 100th ... time.

    what: what failed, a constant (``"a listener of the recording"``), as it is counted by it. reported: the boundary itself tells
    users about the error, so the process's listener is not called.
    """
    errors_contained[what] += 1
    count = errors_contained[what]
    text = said(error)
    described = f"{type(error).__name__}: {text}" if text else type(error).__name__
    if str(count).strip("0") != "1":  # no power of ten
        _log.debug("contained: %s: %s", what, described)
        return
    _log.error("contained: %s: %s", what, described, exc_info=error)
    if _listener is not None and not reported:
        try:
            _listener(Contained(what, described, count - count // 10))
        except Exception as failed:  # a boundary itself: nothing may come out of it
            _log.error("an error could not be reported", exc_info=failed)


def said(error: BaseException) -> str:
    """The text of an error, printable. If its class (perhaps a plugin's) cannot give one: what it raises instead."""
    try:
        return str(error).encode("utf-8", "backslashreplace").decode()
    except Exception as another:  # of anybody's class
        return f"(no text: {type(another).__name__})"


class JsonLines(logging.Formatter):
    """One JSON object a line: time (UTC, ISO 8601), level, logger, process, thread, message; error and traceback where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": record.process,
            "thread": record.threadName,
            "message": record.getMessage(),
        }
        if record.exc_info and record.exc_info[0] is not None:
            line |= {"error": record.exc_info[0].__name__, "traceback": self.formatException(record.exc_info)}
        return json.dumps(line, default=str)


def configure(level: int, file: Path | None = None) -> None:
    """Log this process's messages from `level` on (of `logging`) to stderr, or as JSON lines to the end of a file that only its owner can
    read; processes started from now on do the same. Raises BarnabasError, which names the file."""
    if file is None:
        handler: logging.Handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(process)d %(name)s: %(message)s"))
    else:
        file = file.absolute()
        try:
            os.close(os.open(file, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600))
            handler = logging.FileHandler(file, encoding="utf-8")
        except OSError as error:
            raise BarnabasError(f"--log-file {file} cannot be written: {error.strerror or error}; choose another file") from None
        handler.setFormatter(JsonLines())
    for old in _log.handlers[1:]:
        _log.removeHandler(old)
    _log.addHandler(handler)
    _log.setLevel(level)
    os.environ[ENVIRONMENT] = f"{logging.getLevelName(level).lower()}:{file or ''}"


def configure_child() -> None:
    """Log as the parent process does. Does nothing where it does not log, or where its file can no longer be opened."""
    name, found, file = os.environ.get(ENVIRONMENT, "").partition(":")
    if found and name in NAMES:
        try:
            configure(getattr(logging, name.upper()), Path(file) if file else None)
        except BarnabasError as error:
            print(f"barnabas: {error}", file=sys.stderr)
