"""How many examples Hypothesis tries: of most tests as many as the profile says (tests/conftest.py), of some a multiple
of it."""

from __future__ import annotations

from hypothesis import settings


def times(count: float) -> settings:
    """A decorator: so many times the usual number, which is 30 every day and 100 in `make everything`."""
    return settings(max_examples=round(count * settings().max_examples))
