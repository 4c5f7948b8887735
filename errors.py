"""The root of all errors that a user of Barnabas can meet."""

from typing import ClassVar


class BarnabasError(Exception):
    """Something that is wrong with what the user gave or asked for: a file, an argument, a broker's answer, a missing extra.

    ``str(error)`` says what is wrong, where, and what to do about it. Commands print it and end with `exit_status`, without a traceback.
    Signals inside of a module, and faults of Barnabas itself, do not derive from this class.
    """

    exit_status: ClassVar[int] = 2


def install(extra: str) -> str:
    """What to do when a library of an extra is missing. Barnabas is not on PyPI: it is installed from a clone."""
    return f"run pip install '.[{extra}]' in the clone of Barnabas"
