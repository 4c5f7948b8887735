"""Loading plugins and running their hooks, without a proxy: errors and their places, settings, interest, order."""

from __future__ import annotations

import textwrap
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Protocol

import pytest
from barnabas import decoder
from barnabas.decoder import Exchange
from barnabas.plugins.hooks import PeerView, Plugin, PluginError, load, parse
from barnabas.plugins.hooks.chain import Chain, ChainResult
from barnabas.plugins.hooks.context import HookEnvironment


class LoadText(Protocol):
    """``load_text(text, "?settings")``: the plugins of a file with this text."""

    def __call__(self, text: str, behind: str = "") -> list[Plugin]: ...


@pytest.fixture
def load_text(tmp_path: Path) -> LoadText:
    def make(text: str, behind: str = "") -> list[Plugin]:
        path = tmp_path / "p.py"
        path.write_text(textwrap.dedent(text))
        return load(parse(f"{path}{behind}").read())

    return make


HOOKED = "def request(self, message, ctx): pass"


@pytest.mark.parametrize(
    ("text", "behind", "message"),
    [
        ("class A:\n  def tick(self, ctx)\n", "", "p.py:2:22: SyntaxError: expected ':'"),
        ("x = 1\n\nraise KeyError('no')\n", "", "p.py:3: KeyError: 'no'"),
        ("import no_such_module\n", "", "p.py:1: ModuleNotFoundError"),
        ("class A:\n  def __init__(self):\n    1 / 0\n  def tick(self, ctx): pass\n", "", "p.py:3: ZeroDivisionError"),
        ("class A:\n  pass\n", "", "p.py:1: A has none of the hooks"),
        ("class A:\n  def on_request(self, message, ctx): pass\n", "", "did you mean one of them by on_request?"),
        ("x = 1\n", "", "p.py: no class in it has one of the hooks"),
        (f"class A:\n  {HOOKED}\n", "", "p.py:2: A has the hook 'request' but does not say for what"),
        ("class A:\n  apis = {'Fetch'}\n  def request(self, message): pass\n", "", "p.py:3: the hook is defined as def request(self, message, ctx)"),
        (f"class A:\n  apis = {{'Produec'}}\n  {HOOKED}\n", "", "there is no API 'Produec': did you mean 'Produce'?"),
        (f"class A:\n  apis = {{'Produce'}}\n  match = 'api == Fetch'\n  {HOOKED}\n", "", "match is not true of any API in apis"),
        (f"class A:\n  match = 'api == Produce and ver > 90'\n  {HOOKED}\n", "", "is never true: no version matches"),
        (f"class A:\n  apis = 7\n  {HOOKED}\n", "", "apis must be a set of names"),
        (f"class A:\n  match = 'api = Fetch and'\n  {HOOKED}\n", "", "match: "),
        (f"class A:\n  match = 'latency > 5ms'\n  {HOOKED}\n", "", "is not known before the response"),
        ("class A:\n  def tick(self, ctx): pass\n", ":B", "it has no class B: there: A"),
        ("class A:\n  def tick(self, ctx): pass\n", "?a=1", "p.py:1: A has no setting 'a': it has none"),
        ("class A:\n  def __init__(self, size: int): pass\n  def tick(self, ctx): pass\n", "?size=x", "'size' must be a whole number, not 'x'"),
        ("class A:\n  def __init__(self, size: int): pass\n  def tick(self, ctx): pass\n", "", "needs the setting 'size'"),
        ("import sys\nsys.exit()\n", "", "it ends the program"),
    ],
)  # fmt: skip
def test_errors_have_their_place(load_text: LoadText, text: str, behind: str, message: str) -> None:
    with pytest.raises(PluginError) as raised:
        load_text(text, behind)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("text", ["", "x.py?=1", "x.py?a", "x.py?a b=1"])
def test_sources_without_a_plugin_are_refused(text: str) -> None:
    with pytest.raises(PluginError):
        parse(text)


def test_settings_are_converted_as_annotated(load_text: LoadText) -> None:
    (plugin,) = load_text(
        """
        class A:
            def __init__(self, text, size: "int", share=0.5, loud=False, word: str = "x"):
                self.given = (text, size, share, loud, word)
            def tick(self, ctx): pass
        """,
        "?text=a%26b&size=3&share=2&loud=yes",
    )
    assert plugin.instance.given == ("a&b", 3, 2.0, True, "x")


def test_interest_combines_apis_and_match(load_text: LoadText) -> None:
    both, one, other, none = load_text(
        f"""
        class Both:
            apis = ("Produce", "fetch")
            match = "api in {{Produce, Metadata}} and client == x"
            {HOOKED}
        class One:
            apis = "*"
            def response(self, message, ctx): pass
        class Other:
            match = "client == x"
            def exchange(self, exchange, ctx): pass
        class Quiet:
            def connected(self, ctx): pass
        """
    )
    assert both.keys("request") == {0} and both.keys("response") == frozenset()
    assert one.keys("response") == other.keys("exchange") == frozenset(decoder.facts.api_keys())
    assert not any(none.keys(hook) for hook in ("request", "response", "exchange"))


def heartbeat(group: str = "g", response: bool = False) -> Exchange:
    frame = decoder.encode_request(12, 1, {"group_id": group}, correlation_id=4, client_id="x")
    return Exchange(
        api_key=12, api_version=1, correlation_id=4, client_id="x", request=frame,
        response=decoder.encode_response(12, 1, {}, correlation_id=4) if response else None,
    )  # fmt: skip


def run(hooks: Coroutine[Any, None, ChainResult]) -> ChainResult:
    """Hooks that ask nothing."""
    with pytest.raises(StopIteration) as done:
        hooks.send(None)
    assert isinstance(done.value.value, ChainResult)
    return done.value.value


def chain(plugins: list[Plugin]) -> tuple[Chain, list[tuple[str, str]]]:
    faults: list[tuple[str, str]] = []
    around = HookEnvironment({1: PeerView(1, "c:1", "b:2")}, lambda *_: None, lambda *_: None, lambda *_: None)
    return Chain(plugins, around, lambda plugin, hook, error: faults.append((plugin.name, str(error))), lambda *_: None), faults


ADDS = """
    class {0}:
        apis = "Heartbeat"
        def request(self, message, ctx):
            return message.replace({{"group_id": message["group_id"] + "{0}"}})
        def response(self, message, ctx):
            return message.replace({{"throttle_time_ms": message["throttle_time_ms"] * 10 + {1}}})
"""


def test_responses_pass_plugins_in_reverse_order(load_text: LoadText) -> None:
    plugins = load_text(textwrap.dedent(ADDS.format("A", 1)) + textwrap.dedent(ADDS.format("B", 2)))
    hooks, faults = chain(plugins)
    passed = run(hooks.message("request", heartbeat(), None))
    assert decoder.decode_request(passed.frame)["group_id"] == "gAB"
    assert (passed.by, passed.note()) == (["A", "B"], "plugin 'A', 'B': changed")
    passed = run(hooks.message("response", heartbeat(response=True), None))
    assert decoder.decode_response(passed.frame, api_key=12, api_version=1)["throttle_time_ms"] == 21
    assert not faults


def test_a_fault_loses_only_the_change_of_its_plugin(load_text: LoadText) -> None:
    text = "".join(textwrap.dedent(each) for each in (ADDS.format("A", 1), ADDS.format("B", 2), ADDS.format("C", 3)))
    hooks, faults = chain(load_text(text.replace('+ "B"', "+ 7")))
    passed = run(hooks.message("request", heartbeat(), None))
    assert decoder.decode_request(passed.frame)["group_id"] == "gAC"
    assert [plugin for plugin, _ in faults] == ["B"]


def test_an_answer_ends_the_chain(load_text: LoadText) -> None:
    text = textwrap.dedent(
        """
        class Answers:
            apis = "Heartbeat"
            def request(self, message, ctx):
                ctx.respond(error="ILLEGAL_GENERATION")
        """
    ) + textwrap.dedent(ADDS.format("A", 1))
    hooks, faults = chain(load_text(text))
    passed = run(hooks.message("request", heartbeat(), None))
    assert (passed.kind, passed.by, faults) == ("respond", ["Answers"], [])
    assert decoder.decode_response(passed.frame, api_key=12, api_version=1)["error_code"] == 22


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("return {}", "return a message"),
        ("return decoder.decode_request(decoder.encode_request(12, 1, {'group_id': 'g'}, correlation_id=5))", "correlation id"),
        ("ctx.respond(error='NO_SUCH_ERROR')", "NO_SUCH_ERROR"),
        ("ctx.respond({'no_field': 1})", "no_field"),
        ("ctx.delay(-1)", "delay: from 0"),
        ("ctx.fields('colour')", "not one of"),
        ("ctx.request('Metadata', {})", "add version="),
        ("ctx.forward(3)", "forward: a message, not int"),
    ],
)
def test_misuse_of_ctx_is_a_fault_with_a_remedy(load_text: LoadText, code: str, message: str) -> None:
    head = "from barnabas import decoder\nclass A:\n    apis = 'Heartbeat'\n    def request(self, message, ctx):\n"
    hooks, faults = chain(load_text(f"{head}        {code}\n"))
    passed = run(hooks.message("request", heartbeat(), PeerView(1, "c:1", "b:2")))
    assert passed.kind == "forward" and passed.frame is None
    assert len(faults) == 1 and message in faults[0][1]
