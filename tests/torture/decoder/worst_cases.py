"""Filters, patterns and values that would take long if something were done more than once with each part of them.

The tests of the decoder count steps on small ones; `test_speed.py` measures the large ones.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.decoder import Message, decode_request, encode_request

PATTERNS = (
    "(a+)+$", "(a*)*b", "(a|aa)+$", "(a|a?)+$", r"(\w+\s?)*$", "(.*a){12}", "(?:ab|a[bc])*$", "(a?){30}a{30}",
    "a?" * 30 + "a{30}", "(x+x+)+y", "((a{1,50}){1,50}){1,50}", ".*.*.*.*.*.*b", "a*" * 300 + "b", r"(a)\1*",
    "(?=(a+)+)b", "((((((((((a|b)|c)|d)|e)*)*)*)*)*)*)", "(a{0,100}){100}b", "(|a)+$", r"(.)(?(1)a+|b+)*",
)  # fmt: skip
"""Regular expressions for which Python's engine may take exponential time."""

SEARCHED = ("a" * 200_000, "a" * 100_000 + "!", "ab" * 100_000 + "!", "x" * 200_000)
"""Texts that make them do so."""

FILTERS: tuple[Callable[[int], str], ...] = (
    lambda terms: " or ".join(f"corr=={number}" for number in range(terms)),
    lambda terms: "corr in {" + ",".join(map(str, range(terms))) + "}",
    lambda terms: " and ".join(["partition.err != 0"] * terms),
)
"""Filters of so many terms."""

VALUES: tuple[Callable[[int], bytes], ...] = (
    lambda size: b"[" + b"[]," * ((size - 3) // 3) + b"[]]",
    lambda size: b"\xc3\xa9" * (size // 2),
    bytes,
    lambda size: b'{"a":1' * (size // 6),
)
"""Values of records of so many bytes."""


def passwords(count: int) -> Message:
    """A request with so many secrets."""
    configs = [{"name": "password", "value": "s"}] * count
    return decode_request(encode_request(33, 0, {"resources": [{"configs": configs}]}))
