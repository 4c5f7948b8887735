"""The events that the control server keeps: in order, from a cursor on, in little memory."""

from __future__ import annotations

import tracemalloc

from barnabas.proxy.control.history import EventHistory
from barnabas.proxy.events import Counts, Event, FindingSeen, ProcessFailed, encode

PACKET_AND_PLACE = 640
"""Bytes for an event of the kind that comes every second: its packet (under 300), the tuple and its time."""


def counts(number: int) -> Event:
    # Numbers of a proxy that has run for days: small ones would be shared by the interpreter.
    return Counts(1_790_000_000_000_000_000 + number, 60, 10**6 + number, 10**9 + number, 10**4, 0, 10**13, 10**13, 0, 0)


def test_cursors_and_kinds() -> None:
    history = EventHistory(count=4)
    for number in range(5):
        history.add(encode(counts(number)))
    history.add(encode(ProcessFailed("meter", 9)))
    every, cursor, lost = history.since(0, 100, frozenset())
    assert [each["id"] for each in every] == [3, 4, 5, 6]
    assert (cursor, lost) == (6, 2)
    assert (every[0]["event"], every[0]["opened"], every[0]["time_ns"]) == ("Counts", 10**6 + 2, 1_790_000_000_000_000_002)
    failed, cursor, _ = history.since(0, 100, frozenset({"ProcessFailed"}))
    assert (failed[0]["id"], failed[0]["event"], failed[0]["warning"], cursor) == (6, "ProcessFailed", True, 6)
    assert failed[0]["text"] == ProcessFailed("meter", 9).text
    two, cursor, _ = history.since(3, 2, frozenset())
    assert ([each["id"] for each in two], cursor) == ([4, 5], 5)
    assert history.since(6, 2, frozenset()) == ([], 6, 0)
    assert [each["id"] for each in history.since(77, 1, frozenset())[0]] == [3]  # a cursor of another run


def test_a_finding_has_its_id_beside_the_number_of_its_event() -> None:
    history = EventHistory()
    for number in (7, 8):
        history.add(encode(FindingSeen("stale", "high", "s", "w", "r", 1, {}, number)))
    found, cursor, _ = history.since(0, 100, frozenset())
    assert [(each["id"], each["finding"], each["number"]) for each in found] == [(1, "stale", 7), (2, "stale", 8)]
    assert cursor == 2


def test_an_event_is_kept_in_little_more_than_its_packet() -> None:
    history = EventHistory()
    packets = (encode(counts(number)) for number in range(2000))
    history.add(next(packets))
    tracemalloc.start()
    try:
        for packet in packets:
            history.add(packet)
        assert tracemalloc.get_traced_memory()[0] / 1999 < PACKET_AND_PLACE
    finally:
        tracemalloc.stop()
