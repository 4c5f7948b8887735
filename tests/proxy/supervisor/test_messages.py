"""Settings, messages and events come out of their packets as they were sent."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from barnabas.plugins.hooks.sources import parse
from barnabas.plugins.rules.rules import Rule
from barnabas.plugins.versions.profile import Profile
from barnabas.proxy import events
from barnabas.proxy.events import Event
from barnabas.proxy.processes import control_messages, messages
from barnabas.proxy.processes.channel import Unpacker, pack
from barnabas.proxy.processes.serialization import from_json, from_named, to_json, to_named
from barnabas.proxy.processes.shared_counters import FileRule
from barnabas.proxy.relay.addressing.transparent import TransparentConfig
from barnabas.proxy.relay.interception.plugin_host import PluginsConfig
from barnabas.proxy.relay.interception.plugin_host import messages as of_plugins
from barnabas.proxy.relay.limits import Limits
from barnabas.proxy.relay.negotiation.sasl import SaslConfig
from barnabas.proxy.relay.negotiation.security import SecurityConfig, TlsConfig
from barnabas.proxy.relay.negotiation.version_negotiation import VersionsConfig
from barnabas.proxy.relay.relay_settings import BrokerListener, RelaySettings, ReservedAddress, WorkerResources

RULES = (FileRule(Rule.of("api == Produce", error="REQUEST_TIMED_OUT", when={"times": 2}), 7),)
SAMPLES: dict[Any, Any] = {
    int: 3, str: "observer", float: 0.5, bool: True, Rule: RULES[0].rule, events.Address: ("::1", 9092), tuple[FileRule, ...]: RULES,
    dict[str, Any]: {"a": [1, None]}, Mapping[str, Any]: {},
}  # fmt: skip


def value(hint: Any) -> Any:
    if hint in SAMPLES:
        return SAMPLES[hint]
    of = get_args(hint)
    if get_origin(hint) is tuple:
        return tuple(value(each) for each in of if each is not Ellipsis)
    if get_origin(hint) is list:
        return [value(of[0])]
    if get_origin(hint) is dict:
        return {value(of[0]): value(of[1])}
    if of:
        return value(of[0])
    return list(hint)[-1] if issubclass(hint, Enum) else sample(hint)


def sample(kind: type) -> Any:
    """An object of a dataclass with a value in every field."""
    hints = get_type_hints(kind)
    return kind(**{field.name: value(hints[field.name]) for field in fields(kind)})


@pytest.mark.parametrize("kind", [kind for kind in get_args(messages.Message) if kind is not Event] + sorted(events._BY_NAME.values(), key=str))
def test_messages_and_events(kind: type) -> None:
    sent = sample(kind)
    assert messages.decode(messages.encode(sent)) == sent
    if isinstance(sent, Event):
        assert sent.text and "{" not in sent.text


@pytest.mark.parametrize("kinds", [of_plugins.ToHost, of_plugins.ToRelay, of_plugins.ToForkServer])
def test_messages_of_the_plugin_host(kinds: Any) -> None:
    for kind in get_args(kinds):
        sent = sample(kind)
        assert from_named(kinds, json.loads(json.dumps(to_named(sent)))) == sent


@pytest.mark.parametrize(
    ("kinds", "decode"),
    [
        (control_messages.Commands, control_messages.command),
        (control_messages.Answers, control_messages.answer),
        (control_messages.Notices, control_messages.notice),
    ],
)
def test_messages_of_the_control_server(kinds: Any, decode: Callable[[dict[str, Any]], object]) -> None:
    for kind in get_args(kinds):
        sent = sample(kind)
        ((packet, data),) = Unpacker().feed(pack(control_messages.packed(sent, 5), b"frame"))
        assert (packet.pop("id"), data) == (5, b"frame")
        assert decode(packet) == sent


def test_settings_of_the_relay(tmp_path: Path) -> None:
    plugin = tmp_path / "p.py"
    plugin.write_text("")
    settings = RelaySettings(
        resources=WorkerResources(
            ring=3, room_bell=4, shared_state=5, listener=6, bells={0: 7, 2: 8}, worker_bells=(9, 10),
            broker_listeners=(BrokerListener(11, ("b", 1)),), worker=1, workers=2, lossless=True, fixed_ports=True,
        ),
        upstream=("a", 9092), more_upstreams=(("b", 9092),), transparent=TransparentConfig("tproxy", True), limits=Limits(max_brokers=3, upstream_allow=("10.0.0.0/8",)),
        snaplen=100, reloadable=True, plugins=PluginsConfig((parse(f"{plugin}?x=1"),)), versions=VersionsConfig(Profile.of("2.3", {"Fetch": 5}), True),
        security=SecurityConfig(TlsConfig(ca=tmp_path, sni_suffix="kafka.example"), SaslConfig("PLAIN", "u", "s")), probe=True,
        reserved=(ReservedAddress("127.0.0.1", 1, "x"),), rules=RULES, commands=12,
    )  # fmt: skip
    assert from_json(RelaySettings, to_json(settings)) == settings
