"""Hold, change, drop, answer and kill from the screen, with a real client behind the proxy: what it gets is judged."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest
from barnabas.proxy import ProxyConfig
from barnabas.proxy.control import Control, ControlConfig
from barnabas.ui.testing.cluster import EmbeddedCluster
from barnabas.ui.tui.model.held_queue import LEASE_SECONDS
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import ClusterMetadata
from harness.browsing.terminal import terminal
from harness.proxies import Proxy
from harness.waiting import PATIENCE
from harness.waiting import until as wait_until
from textual.pilot import Pilot

from ..support.awaiting import until, until_true
from ..support.driving import application
from ..support.live_proxy import Client, drive, hold, outcome


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    cluster = EmbeddedCluster(1)
    folder = tmp_path_factory.mktemp("held")
    config = ProxyConfig(
        upstream=cluster.address, record=folder / "rec", probe=False, drain_seconds=1.0,
        control=ControlConfig(directory=folder / "control"),
    )  # fmt: skip
    try:
        with Proxy(config) as running:
            owner = Producer({"bootstrap.servers": "{}:{}".format(*running.address), "log_level": 0})
            owner.produce("orders", b"one", partition=0)
            assert owner.flush(PATIENCE) == 0
            yield running
    finally:
        cluster.stop()


def topics(client: Client) -> Future[ClusterMetadata]:
    return client.run(lambda own: own.list_topics(timeout=PATIENCE))


def first(client: Client, timeout: float = PATIENCE) -> Future[str]:
    """"answered", or the name of the client's error; one ListOffsets request asks for an offset."""

    def ask(own: Consumer) -> str:
        try:
            (found,) = own.offsets_for_times([TopicPartition("orders", 0, 0)], timeout=timeout)
        except KafkaException as error:
            return str(error.args[0].name())
        return str(found.error.name()) if found.error else "answered"

    return client.run(ask)


def waits(pilot: Pilot[None], before: int) -> bool:
    """Whether exactly one frame waits, another one than before."""
    numbers = [frame.number for frame in application(pilot).session.held.frames]
    return len(numbers) == 1 and numbers != [before]


async def held_again(pilot: Pilot[None], before: int) -> int:
    """The number of the only frame that waits, another one than before."""
    await until_true(pilot, lambda: waits(pilot, before), lambda: "nothing was held")
    return application(pilot).session.held.frames[0].number


def test_hold_change_go_on_drop_answer_and_kill(proxy: Proxy, tmp_path: Path) -> None:
    other = Client(proxy.address, "other")

    async def steps(pilot: Pilot[None]) -> None:
        client = Client(proxy.address)
        assert await outcome(pilot, first(client)) == "answered"
        # A response is held, changed in place and goes on: the client sees what was typed.
        await hold(pilot, 'api == Metadata and client == "stock-1"', "response")
        asked = topics(client)
        await until(pilot, "HELD 1")
        assert "HELD" in await until(pilot, "Metadata")
        await pilot.press("9")
        shown = await until(pilot, "cluster_id")
        assert "holds" in shown and "responses where" in shown and "Metadata" in shown and "stock-1" in shown
        await pilot.press("b")
        await until(pilot, "Bytes of the response")
        await pilot.press("b", "enter")  # to the fields
        tree = pilot.app.screen.query_one("#fields")
        fields = tree.tree_shown.fields  # type: ignore[attr-defined]
        tree.move_to_field(next(i for i, f in enumerate(fields) if f.name == "cluster_id"))  # type: ignore[attr-defined]
        await pilot.press("enter")
        await until(pilot, "New value")
        await pilot.press(*"changed", "enter")
        await until(pilot, "* changed")
        assert not asked.done()
        await pilot.press("a")
        assert (await outcome(pilot, asked)).cluster_id == "changed"
        await until(pilot, "Nothing is held now")
        # Other connections go on while a request is held. It is answered with an error that the client knows by name.
        await hold(pilot, 'api == ListOffsets and client == "stock-1"')
        asked = first(client)
        number = await held_again(pilot, 0)
        assert (await outcome(pilot, topics(other))).brokers and (await outcome(pilot, first(other))) == "answered"
        assert not asked.done()
        await pilot.press("f")
        await until(pilot, "Answer ListOffsets")
        await pilot.press(*"topic_auth", "enter")
        assert await outcome(pilot, asked) == "TOPIC_AUTHORIZATION_FAILED"
        # Killed: the client finds its connection gone, and asks again on another one, by itself or when the test asks again.
        asked = first(client)
        number = await held_again(pilot, number)
        queue = application(pilot).session.held
        was = queue.frames[0].connection
        await pilot.press("X")  # the client may ask again before the screen has shown an empty queue

        def held_on_a_new_connection() -> bool:
            nonlocal asked
            if asked.done():  # with the error that the connection is gone, perhaps before there is another one
                asked = first(client)
            return waits(pilot, number)

        await until_true(pilot, held_on_a_new_connection, lambda: "nothing was held")
        number = await held_again(pilot, number)
        assert queue.frames[0].connection != was
        await pilot.press("a")
        assert await outcome(pilot, asked) == "answered"
        # Dropped: nothing comes of it.
        asked = first(client)
        number = await held_again(pilot, number)
        await pilot.press("d")
        await until(pilot, "Nothing is held now")
        assert await outcome(pilot, first(other)) == "answered" and not asked.done()
        await pilot.press("I", "y")
        await until(pilot, "Nothing is intercepted")
        assert await outcome(pilot, first(other)) == "answered"

    drive(proxy, steps)


@pytest.mark.slow
def test_the_client_of_a_dropped_request_gives_up_by_itself(proxy: Proxy) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        client = Client(proxy.address, "gives-up")
        assert await outcome(pilot, first(client)) == "answered"
        await hold(pilot, 'api == ListOffsets and client == "gives-up"')
        asked = first(client, 15)
        await held_again(pilot, 0)
        await pilot.press("9")
        await until(pilot, "replica_id")
        await pilot.press("d")
        await until(pilot, "Nothing is held now")
        assert await outcome(pilot, asked) == "_TIMED_OUT"

    drive(proxy, steps)


def test_a_request_is_sent_again_through_the_proxy(proxy: Proxy) -> None:
    """What it does is seen from the outside: the broker's log grows, and the recording has an exchange more."""
    client = Client(proxy.address, "looker")

    def end(own: Consumer) -> int:
        return int(own.get_watermark_offsets(TopicPartition("orders", 0), timeout=PATIENCE)[1])

    async def steps(pilot: Pilot[None]) -> None:
        producer = Producer({"bootstrap.servers": "{}:{}".format(*proxy.address), "client.id": "sender", "log_level": 0})
        producer.produce("orders", b"two", partition=0)
        assert await outcome(pilot, client.run(lambda own: producer.flush(PATIENCE))) == 0
        before = await outcome(pilot, client.run(end))
        await pilot.press("slash", *"api == Produce", "enter")
        await until(pilot, "sender")
        await pilot.press("G", "R")
        await until(pilot, "SEND AGAIN")
        await pilot.press("R")
        await until(pilot, "sending it again may change it twice. Send it?")
        await pilot.press("n", "R", "y")
        await until(pilot, "shows it")  # its row is found
        assert await outcome(pilot, client.run(end)) == before + 1
        rows = [row for row in application(pilot).session.capture.rows() if row.client_id == "sender" and row.api_key == 0]
        assert len(rows) == 2 and len({row.client for row in rows}) == 2
        # With a field changed, from the exchange itself: acks 0 gets no answer.
        await pilot.press("enter", "R")
        await until(pilot, "SEND AGAIN")
        await pilot.press("j", "enter", *"0", "enter")
        await until(pilot, "* changed")
        await pilot.press("u")
        assert pilot.app.screen.edits == {}  # type: ignore[attr-defined]
        await pilot.press("escape")

    drive(proxy, steps)


def test_what_was_intercepted_here_ends_with_the_screen(proxy: Proxy) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        await hold(pilot, "api == DescribeGroups")

    drive(proxy, steps)
    assert proxy.control is not None
    assert Control(proxy.control.access.url, proxy.control.access.token).intercepts() == []


@pytest.mark.slow
def test_what_a_killed_screen_intercepted_ends_soon(proxy: Proxy, tmp_path: Path) -> None:
    assert proxy.control is not None
    access = proxy.control.access
    control = Control(access.url, access.token)
    command = [sys.executable, "-m", "barnabas", "ui", "--attach", access.url, "--allow-edit"]
    with terminal(command, tmp_path, BARNABAS_CONTROL_TOKEN=access.token) as screen:
        screen.until("EDIT")
        screen.press("i")
        screen.until("Seconds")
        screen.press("api == DescribeGroups\r")
        screen.until("intercept ON")
        time.sleep(LEASE_SECONDS * 1.5)
        assert control.intercepts()  # renewed
        screen.process.kill()
        wait_until(lambda: not control.intercepts(), "it is still there")
