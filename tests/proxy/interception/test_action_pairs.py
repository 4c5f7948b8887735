"""All pairs of actions: each goes together, with both effects to be seen, or is refused when the rules are read.

One proxy has a rule for every pair that is allowed; each has a connection of its own, which sends a request that the rule is
about and another one behind it. What client and broker saw is then compared with what each of the two actions promises.
"""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest
from barnabas import decoder
from barnabas.plugins import actions
from barnabas.plugins.rules.rules import InvalidInput, Rule
from barnabas.proxy.events import RuleHit
from harness import wire
from harness.testbed import Testbed
from harness.waiting import PATIENCE, NeverHappened, until

API_VERSIONS = decoder.facts.api_key("ApiVersions")
WAIT = 0.03
"""Seconds that actions wait which wait."""
APIS = {"Produce": 7, "Fetch": 7, "Metadata": 8, "FindCoordinator": 3, "Heartbeat": 3}
FRAME_ONE, FRAME_TWO = 1, 2
REQUESTS: dict[str, dict[str, Any]] = {
    "Produce": {"acks": -1, "timeout_ms": 9, "topic_data": [{"name": "t", "partition_data": [{"index": 0, "records": b"x" * 80}]}]},
    "Fetch": {"session_epoch": -1, "topics": [{"topic": "t", "partitions": [{"partition": 0}]}]},
    "Metadata": {"topics": [{"name": "t"}]},
    "FindCoordinator": {"key": "g"},
    "Heartbeat": {"group_id": "g", "member_id": "m"},
}  # fmt: skip


BATCH = bytes.fromhex(
    "0000000000000000 00000039 00000000 02 49913238 0000 00000000 0000000000000000 0000000000000000 ffffffffffffffff ffff"
    "ffffffff 00000001 0c000000010261 00"
)
"""A record batch of format 2 with one record (KIP-98)."""


@dataclass
class Action:
    """An action as it is written in a rule, what it is about, and what is to be seen of it."""

    do: dict[str, Any]
    seen: Callable[[Outcome], Any]
    apis: tuple[str, ...] = tuple(APIS)


@dataclass
class Outcome:
    """What happened to the first request of a connection, and to the one behind it."""

    api: str
    received: list[bytes] = field(default_factory=list)
    """frames that the broker got, as far as it got them"""
    received_at: list[float] = field(default_factory=list)
    got: bytes = b""
    """what the client got"""
    took: float = 0
    ended: bool = False
    """the proxy has ended the connection"""
    client: str = ""
    stuck: bool = False
    """nothing came any more, of what had to come"""

    @property
    def first(self) -> bytes:
        """The broker's first request, b"" if it did not get the first one."""
        return next((frame for frame in self.received if frame[8:12] == FRAME_ONE.to_bytes(4, "big")), b"")

    @property
    def next_answered(self) -> bool:
        return plain(self.api, FRAME_TWO) in self.got

    @property
    def answer(self) -> decoder.Message | None:
        """The first response, if it came whole; its correlation id may be another one."""
        size = int.from_bytes(self.got[:4], "big")
        frame = self.got[4 : 4 + size]
        if len(frame) < size or not frame or frame[:4] == FRAME_TWO.to_bytes(4, "big"):
            return None
        key = decoder.facts.api_key(self.api)
        return decoder.decode_response(frame, api_key=key, api_version=APIS[self.api])


RESPONSES: dict[str, dict[str, Any]] = {
    "Produce": {"responses": [{"name": "t", "partition_responses": [{"index": 0, "base_offset": 5}]}]},
    "Fetch": {"responses": [{"topic": "t", "partitions": [{"partition_index": 0, "high_watermark": 1, "records": BATCH}]}]},
    "Metadata": {"topics": [{"name": "t", "partitions": [{"partition_index": 0, "leader_id": 1}]}]},
    "FindCoordinator": {"node_id": 1},
    "Heartbeat": {},
}  # fmt: skip


def plain(api: str, number: int) -> bytes:
    """The broker's response. (The proxy changes no address of it: it names no brokers but where it must.)"""
    key = decoder.facts.api_key(api)
    return wire.with_size(decoder.encode_response(key, APIS[api], RESPONSES[api], correlation_id=number))


def asked(api: str, number: int, client: str) -> bytes:
    key = decoder.facts.api_key(api)
    return wire.with_size(decoder.encode_request(key, APIS[api], REQUESTS[api], correlation_id=number, client_id=client))


def offered(frame: bytes) -> bytes:
    """What the broker serves, as an answer to an ApiVersions."""
    served = [(decoder.facts.api_key(api), 0, version) for api, version in APIS.items()] + [(API_VERSIONS, 0, 3)]
    fields = {"api_keys": [{"api_key": key, "min_version": low, "max_version": high} for key, low, high in served]}
    asked = decoder.decode_request(frame[4:])
    made = decoder.encode_response(API_VERSIONS, asked.api_version, fields, correlation_id=asked.header["correlation_id"])
    return wire.with_size(made)


def code(outcome: Outcome) -> set[int]:
    return {error for _, error in outcome.answer.errors()} if outcome.answer is not None else {-99}


def whole(outcome: Outcome) -> bool:
    """Whether there is a response to look at: one that was cut in its middle is only half a promise."""
    return outcome.answer is not None


REQUEST_EDIT = {"Produce": ("timeout_ms", 4711), "Fetch": ("max_wait_ms", 4711), "Metadata": ("allow_auto_topic_creation", False),
                "FindCoordinator": ("key", "other"), "Heartbeat": ("generation_id", 4711)}  # fmt: skip


def changed_request(outcome: Outcome) -> bool:
    """Whether the broker got another request than the client sent."""
    return bool(outcome.first) and outcome.first != asked(outcome.api, FRAME_ONE, outcome.client)


ACTIONS: dict[str, Action] = {
    "error": Action({"error": "UNKNOWN_SERVER_ERROR"}, lambda o: not o.first and (-1 in code(o) or not whole(o))),
    "error, executed": Action({"error": "UNKNOWN_SERVER_ERROR", "broker": "executed"}, lambda o: o.first and (-1 in code(o) or not whole(o))),
    "respond": Action({"respond": {}}, lambda o: not o.first and o.got[:4]),
    "delay": Action({"delay": "30ms"}, lambda o: o.took >= WAIT),
    "delay of request": Action({"delay": "30ms", "of": "request"}, lambda o: all(at >= WAIT for at in o.received_at)),
    "throttle": Action({"throttle": "30ms"}, lambda o: not whole(o) or o.answer["throttle_time_ms"] == 30),
    "throttle by word": Action({"throttle": "77ms", "mute": False}, lambda o: not whole(o) or o.answer["throttle_time_ms"] == 77),
    "bandwidth": Action({"bandwidth": "3kB", "of": "both"}, lambda o: o.took >= (len(o.got) - 100) / 3000),
    "drop response": Action({"drop": "response"}, lambda o: o.first and not whole(o) and o.next_answered),
    "drop request": Action({"drop": "request"}, lambda o: not o.first and not whole(o) and o.next_answered),
    "blackhole": Action({"blackhole": "30ms"}, lambda o: o.took >= WAIT and all(at >= WAIT for at in o.received_at)),
    "blackhole of response": Action({"blackhole": "30ms", "of": "response"}, lambda o: o.took >= WAIT),
    "blackhole for ever": Action({"blackhole": "forever"}, lambda o: not o.received and not o.got and not o.ended),
    "blackhole of response for ever": Action({"blackhole": "forever", "of": "response"}, lambda o: len(o.received) == 2 and not o.got and not o.ended),
    "before-request": Action({"disconnect": "before-request"}, lambda o: not o.received and not o.got and o.ended),
    "mid-request": Action({"disconnect": "mid-request"}, lambda o: 0 < len(b"".join(o.received)) < len(asked(o.api, 1, o.client)) and not o.got and o.ended),
    "before-response": Action({"disconnect": "before-response"}, lambda o: o.first and not o.got and o.ended),
    "mid-response": Action({"disconnect": "mid-response"}, lambda o: o.got and not whole(o) and o.ended),
    "after-response": Action({"disconnect": "after-response"}, lambda o: whole(o) and o.ended),
    "corrupt frame": Action({"corrupt": "correlation"}, lambda o: o.got[4:8] != FRAME_ONE.to_bytes(4, "big")),
    "corrupt request": Action({"corrupt": "correlation", "in": "request"}, lambda o: o.received and not o.first),
    "corrupt length": Action({"corrupt": "length"}, lambda o: o.got and int.from_bytes(o.got[:4], "big") != len(o.got) - len(plain(o.api, 2)) - 4),
    "corrupt records": Action({"corrupt": "crc"}, lambda o: o.got.count(BATCH) < 2, ("Fetch",)),
    "edit response": Action({"edit": {"throttle_time_ms": 4711}}, lambda o: not whole(o) or o.answer["throttle_time_ms"] == 4711),
    "edit request": Action({}, changed_request),
    "leader": Action({"leader": "none"}, lambda o: not whole(o) or 5 in code(o), ("Metadata",)),
    "coordinator": Action({"coordinator": "none"}, lambda o: not whole(o) or 15 in code(o), ("FindCoordinator",)),
    "pretend": Action({"pretend": "3.0"}, lambda o: True),
    "cap": Action({"cap": {"Fetch": 3}}, lambda o: True),
}  # fmt: skip
"""By a name of their own."""
SAME_PLACE = {frozenset({"throttle", "throttle by word"}), frozenset({"throttle", "edit response"}), frozenset({"throttle by word", "edit response"})}
"""Both set the throttle time: the later one stands."""
HIDES = {"corrupt length", "corrupt request"}
"""What comes of the exchange cannot be read any more."""


def test_every_action_is_tried() -> None:
    assert {word for each in ACTIONS.values() for word in each.do} | {"edit"} >= actions.ACTIONS.keys()


def settings(name: str, api: str) -> dict[str, Any]:
    action = ACTIONS[name]
    if name == "edit request":
        path, value = REQUEST_EDIT[api]
        return {"edit": {path: value}, "in": "request"}
    return action.do


@dataclass
class Pair:
    """Two actions in this order. `api`: what the rule is about; `refused`: why there can be no such rule."""

    number: int
    names: tuple[str, str]
    api: str = ""
    rule: Rule | None = None
    refused: list[InvalidInput] = field(default_factory=list)

    @property
    def client(self) -> str:
        return f"pair-{self.number}"


def made(number: int, names: tuple[str, str]) -> Pair:
    pair = Pair(number, names)
    for api in APIS:
        do = [settings(name, api) for name in names]
        try:
            pair.rule = Rule.of(f"api == {api} and client == {pair.client} and corr == 1", do, name=pair.client)
            pair.api = api
            return pair
        except InvalidInput as why:
            pair.refused.append(why)
    return pair


def forever(pair: Pair) -> bool:
    return any("for ever" in name for name in pair.names)


@cache
def every_pair() -> list[Pair]:
    return [made(number, names) for number, names in enumerate(itertools.product(ACTIONS, ACTIONS))]


@pytest.fixture(scope="module")
def outcomes() -> Iterator[dict[int, Outcome]]:
    """What became of every pair that is allowed, by its number, and the notes of its hit."""
    testbed = Testbed()
    found: dict[int, Outcome] = {}
    connections: dict[str, Outcome] = {}
    begun: dict[str, float] = {}
    lock = threading.Lock()
    standing: list[socket.socket] = []
    hit: set[str] = set()

    def script(sock: socket.socket) -> None:
        standing.append(sock)
        with suppress(OSError):  # the proxy may have ended the connection
            serve(sock)
        standing.remove(sock)

    def serve(sock: socket.socket) -> None:
        mine: Outcome | None = None
        data = b""
        while part := sock.recv(65536):
            data += part
            while len(data) >= 4:
                size = int.from_bytes(data[:4], "big") + 4
                if mine is None and len(data) >= 14:
                    length = int.from_bytes(data[12:14], "big")
                    with lock:
                        mine = connections.get(data[14 : 14 + length].decode("ascii", "replace"))
                if len(data) < size:
                    break
                frame, data = data[:size], data[size:]
                if frame[4:6] == API_VERSIONS.to_bytes(2, "big"):  # the proxy asks what it may pretend
                    sock.sendall(offered(frame))
                if mine is not None:
                    mine.received.append(frame)
                    mine.received_at.append(time.monotonic() - begun[mine.client])
                    sock.sendall(plain(mine.api, int.from_bytes(frame[8:12], "big", signed=True)))
        if mine is not None and data:
            mine.received.append(data)

    def tried(pair: Pair) -> None:
        outcome = Outcome(pair.api, client=pair.client)
        with lock:
            connections[pair.client] = outcome
        sock = socket.create_connection(proxy.address, PATIENCE)
        begun[pair.client] = time.monotonic()
        sock.sendall(asked(pair.api, FRAME_ONE, pair.client))
        sock.sendall(asked(pair.api, FRAME_TWO, pair.client))
        try:
            if forever(pair):
                want = 2 if "blackhole of response for ever" in pair.names else 0
                until(lambda: pair.client in hit and len(outcome.received) >= want)
                outcome.got = sock.recv(1) if wire.readable(sock) else b""
            else:
                while not outcome.next_answered and (part := sock.recv(65536)):
                    outcome.got += part
                outcome.ended = not outcome.next_answered
        except ConnectionResetError:
            outcome.ended = True
        except (TimeoutError, NeverHappened):
            outcome.stuck = True
        outcome.took = time.monotonic() - begun[pair.client]
        sock.close()
        found[pair.number] = outcome

    rules = [pair.rule for pair in every_pair() if pair.rule is not None]
    proxy = testbed.proxy(testbed.broker(script).address, rules=rules)
    allowed = [pair for pair in every_pair() if pair.rule is not None]
    # those whose hits are waited for come first: events that come in great numbers are left out
    allowed.sort(key=lambda pair: not forever(pair))
    with ThreadPoolExecutor(24) as pool:
        trying = [pool.submit(tried, pair) for pair in allowed]
        while not all(each.done() for each in trying):
            event = proxy.next_event(0.1)
            if isinstance(event, RuleHit):
                hit.add(event.rule)
        for each in trying:
            each.result()
    until(lambda: not standing, lambda: standing)  # nothing is on its way to the broker any more
    yield found
    testbed.close()


def wrong_with(pair: Pair, outcomes: dict[int, Outcome]) -> Iterator[object]:
    """What is not as the two actions promise."""
    if pair.rule is None:
        for why in pair.refused:
            if not str(why).startswith(("do[0]", "do[1]")) or len(str(why).partition(": ")[2]) <= 20:
                yield f"the refusal says where and why: {why}"
        return
    outcome = outcomes[pair.number]
    first, second = pair.names
    checked = [second] if frozenset(pair.names) in SAME_PLACE else [first, second]
    if HIDES & set(pair.names):
        checked = [name for name in checked if name in HIDES]
    if outcome.stuck:
        yield outcome
        return
    for name in checked:
        if not ACTIONS[name].seen(outcome):
            yield name, outcome


@pytest.mark.parametrize("first", ACTIONS)
def test_a_pair_goes_together_or_is_refused(first: str, outcomes: dict[int, Outcome]) -> None:
    """An action in front of each one, itself too."""
    pairs = [pair for pair in every_pair() if pair.names[0] == first]
    assert [pair.names[1] for pair in pairs] == list(ACTIONS)
    wrong = {" + ".join(pair.names): found for pair in pairs if (found := [*wrong_with(pair, outcomes)])}
    assert not wrong


def test_most_pairs_go_together_and_order_refuses_none() -> None:
    allowed = {pair.names for pair in every_pair() if pair.rule is not None}
    assert {(b, a) for a, b in allowed} == allowed
    assert len(allowed) > len(every_pair()) / 2
