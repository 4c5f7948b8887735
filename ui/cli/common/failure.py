"""Errors that a command reports without a traceback."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from ....errors import BarnabasError

Choice = TypeVar("Choice", bound=StrEnum)


class Failure(BarnabasError):
    """An error that the user can fix: one line that says what, where and what to do next. Exit status 2."""


class OutputError(BarnabasError):
    """The disk that output goes to is full or broken: nothing is wrong with the command. Exit status 1."""

    exit_status = 1


_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


def os_failure(text: str, error: OSError) -> BarnabasError:
    """An error of the operating system as one line: the text, and the reason. OutputError for a full or broken disk, else Failure."""
    return (OutputError if error.errno in _DISK else Failure)(f"{text}: {error.strerror or error}")


def cannot_write(path: Path | str, error: OSError) -> BarnabasError:
    """A file or directory that cannot be written, and why. `path` may begin with an option."""
    from ...safe import visible

    return os_failure(f"{visible(str(path))} cannot be written", error)


def read_text(path: Path, name: str) -> str:
    """The text of a file. Raises Failure, which calls it `name`."""
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise Failure(f"{name} cannot be read: {why}") from None


def choice_of(kind: type[Choice], text: str, option: str) -> Choice:
    """The member of an enum that an option names. Raises Failure."""
    from ...safe import visible

    try:
        return kind(text)
    except ValueError:
        raise Failure(f"{option} {visible(text)}: give one of {', '.join(kind)}") from None


@contextmanager
def value_of(option: str) -> Iterator[None]:
    """Turn the ValueError of a value that makes no sense into Failure, which names the option."""
    try:
        yield
    except ValueError as error:
        raise Failure(f"{option}: {error}") from None


def make_directory(path: Path) -> None:
    """Make the directory of a recording. Raises Failure."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise os_failure(f"cannot record into {path}", error) from None
