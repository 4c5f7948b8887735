"""Plugins that do everything wrong, while a real producer sends: it loses nothing, and the plugin is cut off."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from barnabas import decoder
from barnabas.plugins.hooks import parse
from barnabas.proxy import ProxyConfig, ProxyError
from barnabas.proxy.control import Control, ControlConfig
from barnabas.proxy.events import PluginDisabled, PluginFault, PluginSaid, show
from barnabas.proxy.relay.interception.plugin_host import PluginsConfig
from barnabas.ui.testing.cluster import EmbeddedCluster
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from harness.proxies import Proxy
from harness.waiting import PATIENCE
from harness.wire import with_size

from .stage import Stage

FAULTS = 3
AFTER = 20
HASTY = 0.3
"""Seconds that a hook may take where it hangs. Elsewhere it is not ended, however busy the machine is."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[str, int]]:
    embedded = EmbeddedCluster(1)
    yield embedded.address
    embedded.stop()


@pytest.fixture(scope="module")
def stage_of(
    make_stage: Callable[..., Stage], cluster: tuple[str, int], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[float], Stage]:
    """``stage_of(budget)``: the module's stage whose hooks may take so many seconds."""

    @cache
    def made(budget: float) -> Stage:
        plugins = {"budget": budget, "faults": FAULTS, "memory": 64 << 20}
        control = ControlConfig(directory=tmp_path_factory.mktemp("control"))
        return make_stage(upstream=cluster, plugins=plugins, control=control)

    return made


@pytest.fixture
def stage(stage_of: Callable[[float], Stage], request: pytest.FixtureRequest) -> Iterator[Stage]:
    """Patient, or with the budget that the test asks for."""
    stage = stage_of(getattr(request, "param", PATIENCE))
    yield stage
    stage.clean()


WRONG = {
    "raises": ('raise ValueError("this is wrong")', ":6: ValueError: this is wrong"),
    "returns": ("return 7", "request returned int: return a message"),
    "another": ("return message.__class__(message.plan, message.values, b'0' * 40)", "the API, version or"),
    "loops": ("while True: pass", "did not return within 300 ms"),
    "sleeps": ("time.sleep(1000)", "did not return within 300 ms"),
    "grows": ("self.all = [bytes(1 << 20) for _ in range(1000)]", "too much memory"),
    "exits": ("os._exit(3)", "its process ended: exit status 3"),
    "ends": ("sys.exit()", "SystemExit"),
    "crashes": ("ctypes.string_at(0)", "its process ended: signal 11"),
    "hangs up": ("os.closerange(3, 100)", "its process ended"),
}


DAILY = ("raises", "loops", "crashes")
"""One that is wrong, one that hangs, one that dies."""
HANGS = ("loops", "sleeps")


@pytest.mark.parametrize(
    ("how", "stage"),
    [
        pytest.param(how, HASTY if how in HANGS else PATIENCE, marks=() if how in DAILY else pytest.mark.slow, id=how)
        for how in WRONG
    ],
    indirect=["stage"],
)
def test_nothing_is_lost_and_the_plugin_is_disabled(stage: Stage, cluster: tuple[str, int], how: str) -> None:
    code, reason = WRONG[how]
    stage.load(
        f"""
        import ctypes, os, sys, time
        class Wrong:
            apis = {{"Produce"}}
            def request(self, message, ctx):
                {code}
        """
    )
    topic = f"wrong-{uuid.uuid4().hex[:8]}"
    failed: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": show(stage.proxy.address), "linger.ms": 0, "log_level": 0})
    sent = 0

    def send() -> None:
        nonlocal sent
        producer.produce(
            topic, str(sent), partition=0, on_delivery=lambda error, _: failed.append(error) if error else None
        )
        sent += 1
        assert producer.flush(PATIENCE) == 0

    faults, disabled = [], None
    while disabled is None:
        send()
        while event := stage.proxy.next_event(0.001):
            if isinstance(event, PluginFault):
                faults.append(event)
            elif isinstance(event, PluginDisabled):
                disabled = event
        assert sent < 2000
    assert all(fault.plugin == "Wrong" and reason in fault.reason for fault in faults), faults
    assert [fault.faults for fault in faults] == list(range(1, FAULTS + 1))
    assert disabled.plugin == "Wrong"
    assert stage.proxy.control is not None
    access = stage.proxy.control.access
    (listed,) = Control(access.url, access.token).plugins()
    assert (listed["name"], listed["state"], listed["faults"] >= FAULTS) == ("Wrong", "disabled", True)
    assert listed["last_fault"] == faults[-1].reason
    for _ in range(AFTER):
        send()
    assert failed == []
    consumer = Consumer({"bootstrap.servers": show(cluster), "group.id": "g", "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, 0)])
    got: set[int] = set()
    while len(got) < sent:
        record = consumer.poll(PATIENCE)
        assert record is not None
        if record.error() is None:
            got.add(int(record.value()))
    consumer.close()
    assert got == set(range(sent))
    while event := stage.proxy.next_event(0):
        assert not isinstance(event, PluginFault)


@pytest.mark.parametrize("stage", [HASTY], indirect=True)
@pytest.mark.parametrize("hook", ["connected(self, ctx)", "exchange(self, exchange, ctx)", "tick(self, ctx)"])
def test_hooks_that_nobody_waits_for_are_cut_off_as_well(stage: Stage, hook: str) -> None:
    stage.load(f"class Hangs:\n    apis = {{'ApiVersions'}}\n    def {hook}:\n        while True: pass\n")
    client = stage.client()
    for correlation in range(2):
        frame = decoder.encode_request(18, 0, {}, correlation_id=correlation, client_id="c")
        client.sock.sendall(with_size(frame))
        assert int.from_bytes(client.sock.recv(8)[4:], "big") == correlation
        client.sock.recv(1 << 16)
    fault = stage.wait_for(PluginFault)
    assert (fault.plugin, fault.hook) == ("Hangs", hook.partition("(")[0])


@pytest.mark.parametrize("hook", ["request(self, message, ctx)", "exchange(self, exchange, ctx)"])
@pytest.mark.parametrize(("text", "said"), [("1 / 0", "(no text: ZeroDivisionError)"), (r"'\udc80'", r"\udc80")])
def test_an_error_whose_text_cannot_be_had_or_printed(stage: Stage, hook: str, text: str, said: str) -> None:
    """It is a fault like any other, and the hooks of other plugins run."""
    stage.load(
        f"""
        class Unprintable(Exception):
            def __str__(self):
                return {text}
        class Wrong:
            apis = {{"Heartbeat"}}
            def {hook}:
                raise Unprintable
        class Other:
            apis = {{"Heartbeat"}}
            def {hook}:
                ctx.log("called")
        """
    )
    assert stage.client().ask()
    fault = stage.wait_for(PluginFault)
    assert (fault.plugin, fault.hook) == ("Wrong", hook.partition("(")[0])
    assert fault.reason.endswith(f"plugin.py:8: Unprintable: {said}")
    assert stage.wait_for(PluginSaid).text.endswith("called")


def test_an_error_that_quotes_a_secret_of_the_message(stage: Stage) -> None:
    """The rest of the error stays, such as the place in the file."""
    stage.load(
        """
        class Quotes:
            apis = {"SaslAuthenticate"}
            def request(self, message, ctx):
                raise KeyError(message["auth_bytes"])
        """
    )
    client = stage.client()
    login = {"auth_bytes": b"\0user\0hunter2-hunter2"}
    client.sock.sendall(with_size(decoder.encode_request(36, 2, login, correlation_id=1, client_id="c")))
    reason = stage.wait_for(PluginFault).reason
    assert "hunter2" not in reason and "KeyError: " in reason and ".py:5: " in reason


def test_a_plugin_that_cannot_be_loaded_does_not_start(tmp_path: Path) -> None:
    path = tmp_path / "wrong.py"
    for text, message in (
        ("class A:\n    def tick(self, ctx)\n", f"{path}:2:"),
        (
            "class A:\n    def request(self, message, ctx): pass\n",
            f"{path}:2: A has the hook 'request' but does not say for what",
        ),
        ("import os\nos._exit(4)\n", "exit status 4"),
    ):
        path.write_text(text)
        config = ProxyConfig(upstream=("127.0.0.1", 9), plugins=PluginsConfig((parse(str(path)),)))
        with pytest.raises(ProxyError) as raised:
            Proxy(config).start()
        assert message in str(raised.value)
