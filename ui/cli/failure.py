"""What a command reports to the user instead of a traceback."""

from __future__ import annotations


class Failure(Exception):
    """Something the user can mend: one line that says what, where and what to do next. Exit status 2."""
