"""Two recordings are compared whatever their messages hold: unknown tagged fields, nulls, empty and extreme values."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

import pytest
from barnabas.captures.diff import compare
from barnabas.decoder import Exchange
from traffic.unusual_messages import Conversation, every_version, nulls, unusual, usual


def _recording(seed: int, every: int) -> Iterator[Exchange]:
    """Each `every`-th version of every API, with what is unusual in requests and responses."""
    talk = Conversation()
    for key, version in list(every_version())[seed % every :: every]:
        sides = (
            [*unusual(kind, key, version, seed), *nulls(kind, key, version, seed)] for kind in ("request", "response")
        )
        for request, response in zip_longest(*sides):
            yield talk.exchange(request or usual("request", key, version), response or usual("response", key, version))


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_any_two_recordings_are_compared(every: int) -> None:
    one, other = list(_recording(0, every)), list(_recording(every, every))
    report = compare(one, other)
    assert report.a.exchanges == len(one) and report.differences
    again = compare(one, list(_recording(0, every)))
    assert [d for d in again.differences if d.level > 0] == []
