"""Commands of the documentation that need more than a folder: a proxy that runs, a terminal, Spark, a jar."""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from barnabas.proxy.events import show
from confluent_kafka import Producer
from docs.environment import Done, Environment
from docs.kinds import ELSEWHERE, kind
from docs.pages import Command, commands
from harness.browsing.terminal import terminal
from harness.waiting import until

COMMANDS = commands()
REFUSALS = """rules:
  - name: refused
    match: api == Produce
    do: {error: REQUEST_TIMED_OUT}
    when: {every: 2}
"""


def of(*kinds: str) -> list[Any]:
    """The commands of these kinds; there is one at least, or the test with them would be passed over in silence."""
    found = [pytest.param(command, id=command.where) for command in COMMANDS if kind(command) in kinds]
    assert found, f"no page has a command of the kind {' or '.join(kinds)}"
    return found


class Live(NamedTuple):
    """Where a proxy with traffic has its feed and its control API."""

    feed: str
    control: str

    def words(self, words: list[str]) -> list[str]:
        """The words of a command with these addresses."""
        found = [word.replace("127.0.0.1:19095", self.feed).replace("http://127.0.0.1:8090", self.control) for word in words]
        return [found[0], self.feed, *found[1:]] if found[0] == "feed" else found


@pytest.fixture(scope="module")
def live(environment: Environment) -> Iterator[Live]:
    (environment.folder / "refusals.yaml").write_text(REFUSALS)
    words = ["proxy", "--broker", "kafka:9092", "--feed", "127.0.0.1:0", "--control", "127.0.0.1:0", "--record", "live"]
    with environment.running([*words, "--rules", "refusals.yaml", "--json"]) as proxy:
        events: dict[str, Any] = {}

        def ready() -> bool:
            events.update((each["event"], each) for each in map(json.loads, proxy.out.read_text().splitlines()))
            return {"Listening", "MeterListening", "ControlListening"} <= events.keys()

        until(ready, proxy.err.read_text)
        bootstrap, feed = (show(tuple(events[name][field])) for name, field in (("Listening", "address"), ("MeterListening", "feed")))
        over = threading.Event()
        producing = threading.Thread(target=produce, args=(bootstrap, over))
        producing.start()
        try:
            yield Live(feed, events["ControlListening"]["url"])
        finally:
            over.set()
            producing.join()


def produce(bootstrap: str, over: threading.Event) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": "shop"})
    while not over.wait(0.1):
        producer.produce("orders", b"one")
        producer.flush(1)
    producer.purge()


def test_every_command_has_its_test(repository: Path) -> None:
    """Those that are not run here are in others; and few lines show only what may be written."""
    assert all((repository / tests).exists() for tests in ELSEWHERE.values())
    kinds = Counter(kind(command) for command in COMMANDS)
    assert kinds["plain"] > 110 and kinds["pattern"] <= 8 and kinds["elsewhere"] <= 16


@pytest.mark.parametrize("command", of("live"))
def test_on_a_proxy_that_runs(command: Command, environment: Environment, live: Live) -> None:
    words = live.words(command.words)
    if words[:2] == ["control", "rules"]:
        done = environment.run(words)
        assert not done.status and " hits " in done.out, done.err
    elif words[:2] == ["control", "flight"]:
        done = of_a_flight_recorder(words, environment)
        assert not done.status, done.err
    elif words[0] == "audit":
        # The control API may not have seen the client's first request yet.
        until(lambda: "librdkafka" in environment.run(words).out, lambda: environment.run(words).err)
        done = environment.run(words)
        assert not done.status, done.err
    elif words == ["control"]:
        done = environment.run(words)
        assert not done.status and "clients" in done.out, done.err
    else:
        done = environment.stopped(words, "Produce")
        assert done.status in (0, 130) and "Produce" in done.out, done.err
    assert "Traceback" not in done.out + done.err


def of_a_flight_recorder(words: list[str], environment: Environment) -> Done:
    """The command at the newest proxy, which has one."""
    flying = ["proxy", "--broker", "kafka:9092", "--control", "127.0.0.1:0", "--flight", "incidents", "--json"]
    with environment.running(flying) as proxy:
        until(lambda: proxy.wrote("ControlListening"), proxy.err.read_text)
        return environment.run(words)


@pytest.mark.slow
@pytest.mark.parametrize("command", of("screen"))
def test_on_a_terminal(command: Command, environment: Environment, live: Live) -> None:
    if "--record" in command.words:  # one at a time
        assert not environment.run(["control", "record", "--stop"]).status
    # -P: the folder has one of the name barnabas in it, the proxies' own
    words = [sys.executable, "-P", "-m", "barnabas", *environment.words(live.words(command.words))]
    with terminal(words, environment.folder, (140, 40), **environment.own) as screen:
        screen.until("exchanges")
        screen.press("Q")
        assert screen.ends() == 0


@pytest.mark.slow
@pytest.mark.parametrize("command", of("web"))
def test_in_a_browser(command: Command, environment: Environment, live: Live) -> None:
    words = ["0" if word == "8123" else word for word in live.words(command.words)]
    done = environment.stopped(words)
    assert done.status in (0, 130) and "http://127.0.0.1:" in done.out, done.err
    assert "Traceback" not in done.out + done.err


@pytest.mark.parametrize("command", of("input"))
def test_from_another_program(command: Command, environment: Environment) -> None:
    done = environment.run(command.words, stdin=environment.folder / "capture.pcap")
    assert not done.status and "Produce" in done.out, done.err


@pytest.mark.slow
@pytest.mark.parametrize("command", of("jar"))
def test_of_a_release(command: Command, environment: Environment, repository: Path) -> None:
    jars = sorted((repository / ".cache" / "clients").glob("kafka-clients-*.jar"))
    if not jars:
        pytest.skip("the jars of Kafka's clients are fetched by: make broker")
    (environment.folder / "kafka-clients-X.jar").symlink_to(jars[-1])
    done = environment.run(command.words)
    assert not done.status and "definitions" in done.out, done.err


@pytest.mark.slow
@pytest.mark.parametrize("command", of("spark"))
def test_with_spark(command: Command, environment: Environment) -> None:
    done = environment.stopped(command.words, "following") if "stream" in command.words else environment.run(command.words)
    assert done.status in (0, 130), done.err
