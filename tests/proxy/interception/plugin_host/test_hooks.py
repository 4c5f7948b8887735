"""What plugins see and do, as the two peers, the recording and the proxy's events show."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from barnabas import decoder
from barnabas.captures import open_capture
from barnabas.decoder import Exchange
from barnabas.decoder.schema import facts
from barnabas.plugins.rules.rules import Rule
from barnabas.proxy.events import ConnectionClosed, Event, PluginFault, PluginSaid, PluginsKept, PluginsLoaded
from harness.waiting import until
from harness.wire import read_frame, with_size

from .stage import Stage


@pytest.fixture(scope="module")
def shared(make_stage: Callable[..., Stage], tmp_path_factory: pytest.TempPathFactory) -> Stage:
    rule = Rule.of("api == Heartbeat and group == ruledAB", error="ILLEGAL_GENERATION", name="r")
    return make_stage(record=tmp_path_factory.mktemp("recording"), rules=[rule])


@pytest.fixture
def stage(shared: Stage) -> Iterator[Stage]:
    yield shared
    shared.clean()


TELLS = """
    class {name}:
        apis = {{"Heartbeat"}}

        def connected(self, ctx):
            ctx.log("connected " + ctx.connection.client)

        def request(self, message, ctx):
            ctx.log("request " + message["group_id"])
            return message.replace({{"group_id": message["group_id"] + "{name}"}})

        def response(self, message, ctx):
            ctx.log("response " + str(message["throttle_time_ms"]))
            return message.replace({{"throttle_time_ms": message["throttle_time_ms"] * 10 + {number}}})

        def exchange(self, exchange, ctx):
            ctx.log("exchange " + exchange.request_message["group_id"] + exchange.client_id)

        def disconnected(self, ctx):
            ctx.log("disconnected")
"""


def logged(stage: Stage, count: int) -> list[tuple[str, str]]:
    return [(event.plugin, event.line) for event in (stage.wait_for(PluginSaid) for _ in range(count))]


def test_hooks_come_in_order_and_the_first_plugin_is_nearest_to_the_client(stage: Stage) -> None:
    stage.load(TELLS.format(name="A", number=1), TELLS.format(name="B", number=2))
    client = stage.client()
    assert client.ask("g") == {"id": 1, "throttle_time_ms": 21, "error_code": 0}
    assert stage.broker.groups() == ["gAB"]
    address = "{}:{}".format(*client.sock.getsockname())
    client.sock.close()
    assert logged(stage, 10) == [
        ("A", f"connected {address}"), ("B", f"connected {address}"),
        ("A", "request g"), ("B", "request gA"),
        ("B", "response 0"), ("A", "response 2"),
        ("A", "exchange gc"), ("B", "exchange gc"),
        ("A", "disconnected"), ("B", "disconnected"),
    ]  # fmt: skip


def test_what_is_not_declared_stays_on_the_fast_lane(stage: Stage) -> None:
    """A frame that nobody looks at goes forward before it is complete; one that a hook is for is held."""
    stage.load(TELLS.format(name="A", number=1))
    client = stage.client()
    first = decoder.encode_request(18, 0, {}, correlation_id=7, client_id="c")
    other = decoder.encode_request(
        19, 2, {"topics": [], "timeout_ms": 1, "validate_only": True}, correlation_id=8, client_id="c" * 500
    )
    for frame in (first, other):
        client.sock.sendall(with_size(frame)[:-3])
        size = 4 + len(frame) - 3
        stage.broker.wait(lambda size=size: len(stage.broker.raw) >= size)
        client.sock.sendall(frame[-3:])
        stage.broker.wait(lambda frame=frame: bytes(stage.broker.raw).endswith(frame))
        stage.broker.raw.clear()
    heartbeat = decoder.encode_request(12, 1, {"group_id": "g"}, correlation_id=9, client_id="c")
    client.sock.sendall(with_size(heartbeat)[:-3])
    other = stage.client()
    assert other.ask("other")  # answered, while the first one's rest is not here
    assert stage.broker.groups() == ["otherA"]
    client.sock.sendall(heartbeat[-3:])
    stage.broker.wait(lambda: stage.broker.groups() == ["otherA", "gA"])


def test_rules_stand_between_plugins_and_broker(stage: Stage) -> None:
    """A rule sees the request as plugins left it, and they see the rule's answer as if it were a broker's."""
    stage.load(TELLS.format(name="A", number=1), TELLS.format(name="B", number=2))
    client = stage.client()
    numbers = [client.send(group) for group in ("first", "ruled", "last")]
    answers = [client.read() for _ in numbers]
    assert [each["id"] for each in answers] == numbers
    assert [each["error_code"] for each in answers] == [0, 22, 0]
    assert [each["throttle_time_ms"] for each in answers] == [21, 21, 21]
    assert stage.broker.groups() == ["firstAB", "lastAB"]


def test_large_messages_come_whole(stage: Stage) -> None:
    stage.load(
        """
        class Large:
            apis = {"Produce"}
            def request(self, message, ctx):
                return message.replace({"transactional_id": "t" + str(len(message.frame))})
        """
    )
    client = stage.client()
    records = bytes(7 << 20)
    fields = {"acks": -1, "topic_data": [{"name": "x", "partition_data": [{"index": 0, "records": records}]}]}
    for correlation in range(3):
        frame = decoder.encode_request(0, 7, fields, correlation_id=correlation, client_id="c")
        client.sock.sendall(with_size(frame))
        stage.broker.wait(lambda correlation=correlation: len(stage.broker.got) > correlation)
        got = decoder.decode_request(stage.broker.got[-1])
        assert got["transactional_id"] == f"t{len(frame)}"
        assert got["topic_data[0].partition_data[0].records"] == records


def test_a_match_selects_messages(stage: Stage) -> None:
    stage.load(
        """
        class Some:
            match = "api == Heartbeat and group == this"
            def request(self, message, ctx):
                return message.replace({"member_id": "changed"})
        """,
        """
        class Late:
            match = "api == Heartbeat and error == NONE and group ~ '^th'"
            def response(self, message, ctx):
                return message.replace({"throttle_time_ms": 5})
        """,
    )
    client = stage.client()
    answers = [client.ask(group)["throttle_time_ms"] for group in ("this", "that", "other")]
    assert answers == [5, 5, 0]
    members = [decoder.decode_request(frame)["member_id"] for frame in stage.broker.got]
    assert members == ["changed", "m", "m"]


def test_answers_drops_delays_and_ends(stage: Stage) -> None:
    stage.load(
        """
        class Does:
            apis = {"Heartbeat"}
            def request(self, message, ctx):
                what = message["group_id"]
                if what == "error":
                    ctx.respond(error="REBALANCE_IN_PROGRESS")
                elif what == "fields":
                    ctx.respond({"throttle_time_ms": 77})
                elif what == "drop":
                    ctx.drop()
                elif what == "delay":
                    ctx.delay(300)
                elif what == "close":
                    ctx.close()
            def response(self, message, ctx):
                if ctx.exchange.request_message["group_id"] == "late":
                    ctx.respond(error="FENCED_INSTANCE_ID")
        """
    )
    client = stage.client()
    assert client.ask("error") == {"id": 1, "throttle_time_ms": 0, "error_code": 27}
    assert client.ask("fields")["throttle_time_ms"] == 77
    assert stage.broker.got == []
    client.send("drop")
    assert client.ask("after") == {"id": 4, "throttle_time_ms": 0, "error_code": 0}
    begun = time.monotonic()
    client.send("delay")
    client.send("behind")
    assert [client.read()["id"] for _ in range(2)] == [5, 6]
    assert time.monotonic() - begun >= 0.3
    assert client.ask("late")["error_code"] == 82
    client.send("close")
    assert client.read() == {}
    assert stage.broker.groups() == ["after", "delay", "behind", "late"]


def test_an_own_request_stays_between_plugin_and_broker(stage: Stage) -> None:
    stage.load(
        """
        class Asks:
            apis = {"Heartbeat"}
            async def request(self, message, ctx):
                if message["group_id"] == "ask":
                    answer = await ctx.request("DescribeGroups", {"groups": ["x"]}, version=1)
                    ctx.log(f"answered {answer.api} {answer['groups']}")
                    return message.replace({"member_id": "asked"})
            async def exchange(self, exchange, ctx):
                if exchange.request_message["group_id"] == "twice":
                    both = [await ctx.request("Heartbeat", {"group_id": "own"}, version=0) for _ in range(2)]
                    ctx.log(f"answered {len(both)}")
            async def response(self, message, ctx):
                if ctx.exchange.request_message["group_id"] == "held":
                    await ctx.request("Heartbeat", {"group_id": "own"}, version=0)
        """
    )
    client = stage.client()
    numbers = [client.send(group) for group in ("first", "ask", "twice", "last")]
    answers = [client.read() for _ in numbers]
    assert [each["id"] for each in answers] == numbers
    assert sorted(logged(stage, 2)) == [("Asks", "answered 2"), ("Asks", "answered DescribeGroups []")]
    numbers.append(client.send("held"))
    assert client.read()["id"] == 5
    assert "would come after the one that waits" in stage.wait_for(PluginFault).reason
    seen = [(frame[1], int.from_bytes(frame[4:8], "big", signed=True)) for frame in stage.broker.got]
    assert [each for each in seen if each[1] > 0] == [(12, number) for number in numbers]
    assert sorted(key for key, number in seen if number < 0) == [12, 12, 15]


def test_a_client_that_leaves_while_a_hook_asks_is_no_fault_of_the_plugin(stage: Stage, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    stage.load(
        f"""
        import time
        from pathlib import Path
        from barnabas.plugins.hooks.context import ConnectionEnded
        class Asks:
            apis = {{"Heartbeat"}}
            async def exchange(self, exchange, ctx):
                if exchange.request_message["group_id"] != "leaves":
                    ctx.log("goes on")
                    return
                while not Path({str(gone)!r}).exists():
                    time.sleep(0.005)
                try:
                    await ctx.request("Heartbeat", {{"group_id": "own"}}, version=0)
                except ConnectionEnded as error:
                    ctx.log(str(error))
                    raise
        """
    )
    client = stage.client()
    client.ask("leaves")
    client.sock.close()
    stage.wait_for(ConnectionClosed)
    gone.touch()
    assert logged(stage, 1) == [("Asks", "the connection has ended")]
    stage.client().ask("stays")
    following = stage.wait_for(Event, lambda event: isinstance(event, PluginFault | PluginSaid))
    assert isinstance(following, PluginSaid) and following.line == "goes on"


def test_the_recording_has_both_legs_and_names_the_plugin(stage: Stage) -> None:
    stage.load(TELLS.format(name="A", number=1))
    assert stage.client().ask("recorded")["throttle_time_ms"] == 1

    recording = stage.proxy.config.record
    assert recording is not None

    def recorded() -> list[Exchange]:
        with open_capture(recording) as capture:
            return [
                each
                for each in capture.exchanges()
                if each.api == "Heartbeat" and each.response is not None
                if each.request_message is not None and each.request_message["group_id"] == "recorded"
            ]

    (exchange,) = until(recorded)
    assert exchange.response_message is not None
    assert exchange.response_message["throttle_time_ms"] == 1
    segments = b"".join(path.read_bytes() for path in sorted(recording.iterdir()))
    assert b"plugin 'A': changed" in segments
    assert b"recordedA" in segments


def test_a_version_with_a_fault_is_reported_and_the_old_one_stays(stage: Stage) -> None:
    stage.load(TELLS.format(name="A", number=1))
    client = stage.client()
    client.ask("g")
    stage.path.write_text("class A:\n    def request(self, message, ctx)\n")
    kept = stage.wait_for(PluginsKept)
    assert kept.reason.startswith(f"{stage.path}:2:") and "SyntaxError" in kept.reason
    stage.path.write_text("import time\nwrong = 1 / 0\n")
    kept = stage.wait_for(PluginsKept)
    assert kept.reason.startswith(f"{stage.path}:2: ZeroDivisionError")
    client.ask("still")
    assert stage.broker.groups() == ["gA", "stillA"]


COUNTS = """
    class Counts:
        apis = {"Heartbeat"}
        def __init__(self):
            self.count = 0
        def response(self, message, ctx):
            self.count += STEP
            return message.replace({"throttle_time_ms": self.count})
        def state(self):
            return {"count": self.count}
        def restore(self, state):
            self.count = state["count"]
"""


def test_a_saved_file_takes_over_with_the_state_within_a_moment(stage: Stage) -> None:
    stage.load(COUNTS.replace("STEP", "1"))
    client = stage.client()
    assert [client.ask()["throttle_time_ms"] for _ in range(3)] == [1, 2, 3]
    assert stage.load(COUNTS.replace("STEP", "10")).again
    assert client.ask()["throttle_time_ms"] == 13
    stage.proxy.reload_plugins()
    assert stage.wait_for(PluginsLoaded).again
    assert client.ask()["throttle_time_ms"] == 23


def test_there_are_no_fetch_sessions_while_a_match_asks_for_topics(stage: Stage) -> None:
    """A session that would begin does not, one that stands is ended once; without such a match nothing is touched."""
    fetch, sent = 1, 0

    def ask(session: int, epoch: int) -> tuple[int, list[int]]:
        nonlocal sent
        sent += 1
        fields = {"session_id": session, "session_epoch": epoch, "topics": [{"topic": "a", "partitions": [{"partition": 0}]}]}
        frame = decoder.encode_request(fetch, 11, fields, correlation_id=sent, client_id="c")
        client.sock.sendall(with_size(frame))
        answer = decoder.decode_response(read_frame(client.sock)[4:], api_key=fetch, api_version=11)
        epochs = [decoder.decode_request(each)["session_epoch"] for each in stage.broker.got if each[1] == fetch]
        return answer["error_code"], epochs

    client = stage.client()
    stage.load('class A:\n    match = "api == Fetch"\n\n    def request(self, message, ctx):\n        return None\n')
    assert ask(0, 0) == (0, [0]) and ask(7, 1) == (0, [0, 1])
    stage.load(
        'class A:\n    match = "api == Fetch and topic == a"\n\n    def request(self, message, ctx):\n        ctx.log("seen")\n'
    )
    assert ask(7, 2) == (facts.error_code("FETCH_SESSION_ID_NOT_FOUND"), [0, 1])
    assert ask(0, 0) == (0, [0, 1, -1]) and ask(0, -1) == (0, [0, 1, -1, -1])
    assert [line for _, line in logged(stage, 3)] == ["seen"] * 3
