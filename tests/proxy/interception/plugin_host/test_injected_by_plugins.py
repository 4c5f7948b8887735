"""What a plugin did is known to be its doing: in the recording packet by packet and by its index, and while it is live."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from barnabas.captures import open_capture
from barnabas.decoder import Exchange, ExchangeDone, RequestSeen, State, encode_request
from barnabas.decoder.connection.events import Closed, Opened
from barnabas.decoder.connection.hit_notes import causes_in, hit_note, plugin_note, plugins_in, rules_in
from barnabas.decoder.findings import Inspector
from barnabas.decoder.schema import facts
from barnabas.proxy.events import ConnectionClosed, FindingSeen

HEARTBEAT = facts.api_key("Heartbeat")
PLUGIN = """
class Chaos:
    apis = {"Heartbeat"}

    def request(self, message, ctx):
        what = message["group_id"]
        if what == "answered":
            ctx.respond(error="GROUP_AUTHORIZATION_FAILED")
        elif what == "changed request":
            return message.replace({"group_id": "other"})
        elif what == "delayed":
            ctx.delay(1)
        elif what == "not sent":
            ctx.drop()
        elif what == "noted":
            ctx.note("plugin 'Chaos' looks at it")

    def response(self, message, ctx):
        what = ctx.exchange.request_message["group_id"]
        if what == "changed":
            return message.replace({"error_code": 30})
        if what == "answered late":
            ctx.respond(error="GROUP_AUTHORIZATION_FAILED")
        elif what == "delayed late":
            ctx.delay(1)
        elif what == "not given":
            ctx.drop()
        elif what == "changed and noted":
            ctx.note("for the record")
            return message.replace({"error_code": 30})
"""
DONE = ("answered", "changed request", "delayed", "changed", "answered late", "delayed late", "changed and noted")
UNANSWERED = ("not sent", "not given")
UNTOUCHED = ("noted", "left alone")


@pytest.fixture(scope="module")
def recorded(make_stage: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    """The recording of a client per thing that the plugin does, and the proxy's events."""
    folder = tmp_path_factory.mktemp("injected") / "r"
    stage = make_stage(record=folder, findings=True)
    stage.load(PLUGIN)
    for what in (*DONE, *UNTOUCHED):
        client = stage.client()
        for _ in range(3):
            client.ask(what)
    for what in UNANSWERED:
        stage.client().send(what)
    stage.broker.wait(lambda: "not given" in stage.broker.groups())
    stage.clients[-1].ask("left alone")
    for client in stage.clients:
        client.sock.close()
    stage.proxy.stop()
    return folder, list(stage.proxy.events())


@pytest.mark.parametrize("by_index", [False, True])
def test_a_recording_names_the_plugin(recorded: tuple[Path, list[Any]], by_index: bool) -> None:
    inspector = Inspector()
    exchanges: list[Exchange] = []
    with open_capture(recorded[0]) as capture:
        if by_index:
            for exchange in capture.exchanges():
                inspector.look(exchange)
                exchanges.append(exchange)
        else:
            for event in capture.events():
                inspector.feed(event)
                if isinstance(event, ExchangeDone):
                    exchanges.append(event.exchange)
    by_group: dict[str, list[Any]] = {}
    for exchange in exchanges:
        if exchange.api_key == HEARTBEAT and exchange.request_message is not None:
            by_group.setdefault(exchange.request_message["group_id"], []).append(exchange.marks.rules)
    for what in (*DONE, *UNANSWERED):
        assert by_group[what] == [("plugin Chaos",)] * len(by_group[what]), what
    assert by_group["noted"] == [()] * 3 and by_group["left alone"] == [()] * 4
    found = [each for each in inspector.findings() if each.severity.rank >= 2]
    assert found and all(each.injected and each.rules == ["plugin Chaos"] for each in found), found


def test_findings_while_it_runs_leave_it_out(recorded: tuple[Path, list[Any]]) -> None:
    assert not [e for e in recorded[1] if isinstance(e, FindingSeen) and e.severity in ("high", "medium")]


ENDING = """
class Ender:
    apis = {"Heartbeat"}

    def exchange(self, exchange, ctx):
        ctx.close(reset=exchange.request_message["group_id"] == "reset")
"""


def test_a_connection_that_a_plugin_ends_is_ended_by_it(make_stage: Any, tmp_path: Path) -> None:
    """By a hook that is not for a message: nothing in an exchange could show it."""
    stage = make_stage(record=tmp_path / "r")
    stage.load(ENDING)
    for what in ("reset", "closed"):
        client = stage.client()
        client.ask(what)
        with suppress(ConnectionResetError):
            assert client.sock.recv(1) == b""
    stage.proxy.stop()
    closed = [(each.how, each.by) for each in stage.proxy.events() if isinstance(each, ConnectionClosed)]
    assert closed == [("rst", "plugin Ender"), ("fin", "plugin Ender")]
    with open_capture(tmp_path / "r") as capture:
        found = [(each.how, each.by) for each in capture.events() if isinstance(each, Closed)]
    assert found == closed


@pytest.mark.parametrize("by", ["plugin Ender", "control API", "", "broker"])
def test_what_a_closed_connection_leaves_unanswered_is_the_doing_of_who_closed_it(by: str) -> None:
    inspector = Inspector()
    inspector.feed(Opened(1, "10.0.0.1:5", "b:9092", 1))
    frame = encode_request(HEARTBEAT, 4, {}, correlation_id=1, client_id="c")
    exchange = Exchange(api_key=HEARTBEAT, api_version=4, request=frame, request_time_ns=1, connection=1, client_id="c", correlation_id=1)
    inspector.feed(RequestSeen(exchange))
    exchange.state = State.NO_RESPONSE
    inspector.feed(ExchangeDone(exchange))
    inspector.feed(Closed(1, 600 * 10**9, "fin", by))
    found = [each for each in inspector.findings() if each.id == "unanswered-request"]
    assert found and all(each.injected == (by not in ("", "broker")) for each in found), found
    assert by in ("", "broker") or found[0].rules == [by]


@pytest.mark.parametrize(
    ("notes", "plugins", "rules"),
    [
        (["plugin 'a': changed"], ["a"], []),
        (["plugin 'a', \"it's\": dropped"], ["a", "it's"], []),
        ([plugin_note(["x; plugin 'y': changed"], "answered")], ["x; plugin 'y': changed"], []),
        ([f"{plugin_note(['a'], 'delayed')}; {hit_note('r', 3, 'delayed 1 ms')}"], ["a"], ["r"]),
        ([f"{hit_note('r', 3, 'delayed 1 ms')}; {plugin_note(['a'], 'closed')}; a word of its own"], ["a"], ["r"]),
        (["plugin 'a' has seen it", "plugin 'a': changed its mind", "no plugin 'a': changed"], [], []),
        ([], [], []),
    ],
)
def test_notes_are_read_as_they_are_written(notes: list[str], plugins: list[str], rules: list[str]) -> None:
    assert list(plugins_in(notes)) == plugins and list(rules_in(notes)) == rules
    assert causes_in(notes) == [*rules, *(f"plugin {name}" for name in plugins)]
