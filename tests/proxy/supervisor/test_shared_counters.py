"""Counts in shared memory: processes that count at the same time lose nothing."""

from __future__ import annotations

import os

from barnabas.proxy.processes.shared_counters import SLOTS, SharedCounters
from barnabas.proxy.processes.worker_shared_state import SharedState

EACH = 300


def rule_counters(shared_state: SharedState, worker: int) -> SharedCounters:
    return SharedCounters(shared_state.rule_counters, worker, shared_state.locked)


def test_processes_count_together() -> None:
    shared_state = SharedState.create(3, 0)
    count = rule_counters(shared_state, 0).count(77, 5)
    children = []
    for worker in (1, 2):
        child = os.fork()
        if child:
            children.append(child)
            continue
        own = rule_counters(shared_state, worker).count(77, 9)
        for _ in range(EACH):
            with own.locked():
                own.matched += 1
        os._exit(0)
    for _ in range(EACH):
        with count.locked():
            count.matched += 1
    for child in children:
        os.waitpid(child, 0)
    assert (count.matched, count.hits, count.begun_ns) == (3 * EACH, 0, 5)
    os.close(shared_state.fd)


def test_places_are_used_again_when_no_worker_has_the_rule() -> None:
    shared_state = SharedState.create(2, 0)
    one, two = rule_counters(shared_state, 0), rule_counters(shared_state, 1)
    for serial in range(1, 3 * SLOTS):
        counts = one.count(serial, 1), two.count(serial, 1)
        assert counts[0].matched == counts[1].matched == 0
        counts[0].matched += 1
        assert counts[1].matched == 1
        one.keep([serial])
        two.keep([serial])
    one.keep(())
    assert two.count(serial, 1).matched == 1  # the other worker has it still
    full = [two.count(serial + number, 1) for number in range(1, SLOTS + 2)]
    full[-1].matched += 1  # there is no room for all: it counts by itself
    assert full[0].matched == 0
    rule_counters(shared_state, 1)  # a worker that begins anew has none of these
    assert one.count(serial, 1).matched == 0
    os.close(shared_state.fd)
