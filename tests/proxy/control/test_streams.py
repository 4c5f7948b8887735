"""Server-sent events: nothing is lost, nothing comes twice, also when the reader comes again and again."""

from __future__ import annotations

import http.client
import json
import threading
from pathlib import Path
from typing import Any

from barnabas.decoder import Exchange, State
from barnabas.decoder.filter import compile
from barnabas.proxy.control import ControlConfig
from barnabas.proxy.observers.live_exchanges import ExchangeStore, Question
from barnabas.proxy.processes.control_messages import ExchangePage, FindExchanges
from harness import wire
from harness.peers.control_api import ControlApi, StartControlApi, heartbeat
from harness.testbed import Testbed
from harness.waiting import PATIENCE, until


def read_some(
    api: ControlApi, last: str | None, most: int, path: str = "/v1/exchanges/stream"
) -> tuple[list[Any], str | None]:
    """Up to `most` events of a stream as an EventSource would read them: (name, data), and the last id."""
    connection = http.client.HTTPConnection("127.0.0.1", api.port, timeout=PATIENCE)
    headers = api.authorization
    if last is not None:
        headers["Last-Event-ID"] = last
    connection.request("GET", path, headers=headers)
    response = connection.getresponse()
    assert response.status == 200
    assert response.getheader("Content-Type") == "text/event-stream; charset=utf-8"
    found: list[Any] = []
    name, data = "message", ""
    while len(found) < most:
        line = response.readline().decode().rstrip("\n")
        field, _, value = line.partition(": ")
        if field == "id":
            last = value
        elif field == "event":
            name = value
        elif field == "data":
            data = value
        elif not line:
            if data:
                found.append((name, json.loads(data)))
            name, data = "message", ""
    connection.close()
    return found, last


def test_a_stream_goes_on_where_it_broke_off(api: ControlApi, testbed: Testbed) -> None:
    total = 400

    def traffic() -> None:
        client = testbed.client(api.proxy.address)
        for number in range(1, total + 1):
            wire.ask(client, heartbeat(number))

    thread = threading.Thread(target=traffic)
    thread.start()
    seen: list[int] = []
    last: str | None = "0"
    most = 1
    while len(seen) < total:
        found, last = read_some(api, last, min(most, total - len(seen)))
        assert {name for name, _ in found} == {"exchange"}
        seen += [data["correlation_id"] for _, data in found]
        most = most % 60 + 7
    thread.join()
    assert seen == list(range(1, total + 1))


def test_lost_exchanges_are_reported(start_api: StartControlApi, testbed: Testbed, tmp_path: Path) -> None:
    api = start_api(control=ControlConfig(directory=tmp_path, keep=10))
    client = testbed.client(api.proxy.address)
    for number in range(1, 31):
        wire.ask(client, heartbeat(number))
    until(lambda: api.control.status()["exchanges"]["newest"] == 30, api.control.status)
    found, _ = read_some(api, "5", 11)
    assert found[0] == ("lost", {"exchanges": 15})
    assert [data["id"] for _, data in found[1:]] == list(range(21, 31))


def test_a_cursor_of_another_run_starts_from_the_first_exchange(api: ControlApi, testbed: Testbed) -> None:
    client = testbed.client(api.proxy.address)
    wire.ask(client, heartbeat(1))
    api.control.exchanges(since=0, wait=PATIENCE)
    found, last = read_some(api, "123456", 1)
    assert (found[0][1]["id"], last) == (1, "1")


def test_the_client_follows_with_a_filter(api: ControlApi, testbed: Testbed) -> None:
    client = testbed.client(api.proxy.address)

    def traffic() -> None:
        for number in range(1, 31):
            wire.ask(client, heartbeat(number, "odd" if number % 2 else "even"))

    thread = threading.Thread(target=traffic)
    follower = api.control.follow("group == even", since=0)
    thread.start()
    assert [next(follower)["correlation_id"] for _ in range(15)] == list(range(2, 31, 2))
    follower.close()
    thread.join()


def test_events_as_a_stream(api: ControlApi, testbed: Testbed) -> None:
    testbed.client(api.proxy.address)
    found, last = read_some(api, "0", 2, "/v1/events/stream?kinds=ControlListening,ConnectionOpened")
    assert [name for name, _ in found] == ["ControlListening", "ConnectionOpened"]
    assert last == str(found[-1][1]["id"])
    follower = api.control.follow_events(since=0, kinds=["ConnectionOpened"])
    assert next(follower)["connection"] == 1
    follower.close()


def exchange(number: int, size: int = 10) -> Exchange:
    made = Exchange(correlation_id=number, api_key=12, api_version=0, request=bytes(size), state=State.NO_RESPONSE)
    made.request_time_ns = number
    return made


def ask(store: ExchangeStore, text: str = "", **options: Any) -> ExchangePage:
    answers: list[ExchangePage] = []
    question = Question(store, compile(text) if text else None, FindExchanges(text, **options), False, answers.append, lambda *_: [])
    while not question.step():
        pass
    return answers[0]


def test_the_store_is_bounded_by_count_and_bytes() -> None:
    store = ExchangeStore(count=5, size=100_000)
    for number in range(1, 11):
        store.add(exchange(number))
    assert (store.oldest, store.newest, len(store)) == (6, 10, 5)
    assert store.get(5) is None and store.get(11) is None and store.get(6) is not None
    store.add(exchange(11, 49_000))
    store.add(exchange(12, 49_000))
    store.add(exchange(13, 49_000))
    assert store.bytes <= 100_000 and store.newest == 13
    store.add(exchange(14, 90_000))  # too large to be kept: what it was is
    assert store.described(store.get(14), True, False)["left_out"] is True  # type: ignore[arg-type]
    assert store.described(store.get(14), True, False)["request_size"] == 90_000  # type: ignore[arg-type]


def test_queries_are_answered_in_slices() -> None:
    store = ExchangeStore()
    for number in range(1, 3001):
        store.add(exchange(number))
    page = ask(store, since=10, limit=3)
    assert ([each["id"] for each in page.exchanges], page.next, page.more) == ([11, 12, 13], 13, True)
    page = ask(store, limit=2)
    assert ([each["id"] for each in page.exchanges], page.next) == ([2999, 3000], 3000)
    page = ask(store, "time < 1970-01-01T00:00:00.000000500Z", since=0, limit=1000)
    assert len(page.exchanges) == 499 and page.next == 3000 and not page.more
    assert ask(store, "err", since=0).exchanges == []
