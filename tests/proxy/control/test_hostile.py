"""Whatever is sent to the control API: it answers as described, never with a fault of its own, and traffic goes on."""

from __future__ import annotations

import json
import random
import socket
from typing import Any
from urllib.parse import quote

import pytest
from harness import wire
from harness.peers.control_api import ControlApi, heartbeat
from harness.testbed import Testbed
from harness.waiting import PATIENCE

VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1e308, 2**63, "", "x" * 5000, "\x00\x1b[2J", "\ud83d", "../../etc/passwd", "api == Produce", "api ==",
    [], {}, [[]], {"": None}, [1, "a"], {"error": "NO_SUCH"}, {"delay": "-1s"}, "-1", "NaN", "1e999", " ", "%00", "é",
)  # fmt: skip
SEEDS: tuple[dict[str, Any], ...] = (
    {"name": "r", "match": "api == Heartbeat", "do": {"error": "NOT_COORDINATOR"}, "when": {"times": 1}},
    {"filter": "api == Fetch", "response": True, "timeout": 1},
    {"directory": "\x00", "snaplen": 1},
    {"edits": {"brokers[0].port": 1}},
    {"label": "a", "reason": "b"},
)
NOT_ASKED = ("/v1/shutdown", "/stream")
"""It would end; it would not."""


def changed(chance: random.Random, value: Any) -> Any:
    """A body with something else in it."""
    if not isinstance(value, dict) or not value or chance.random() < 0.2:
        return chance.choice(VALUES)
    key = chance.choice(list(value))
    kind = chance.randrange(3)
    if kind == 0:
        return {**value, key: changed(chance, value[key])}
    if kind == 1:
        return {**value, str(chance.choice(VALUES))[:40]: chance.choice(VALUES)}
    return {name: each for name, each in value.items() if name != key}


@pytest.mark.parametrize("count", [150, pytest.param(600, marks=pytest.mark.slow)])
def test_every_endpoint_survives_any_input(api: ControlApi, testbed: Testbed, count: int) -> None:
    chance = random.Random(1)
    authorization = api.authorization
    seen: set[int] = set()
    for number in range(count):
        path, operations = chance.choice(sorted(api.description["paths"].items()))
        if path.endswith(NOT_ASKED):
            continue
        method = chance.choice(sorted(operations)).upper()
        place = path
        while "{" in place:
            name = chance.choice(("1", "0", "-1", "r", "%2e%2e", "%00", "x" * 300, "%ff", "9" * 40))
            place = place[: place.index("{")] + name + place[place.index("}") + 1 :]
        query = chance.choice(("", "?since=x&wait=y", "?since=-1&limit=0", "?limit=9999999999", "?filter=(", "?hits=1&timeout=0"))
        if "wait" in path and "timeout" not in query:
            query = "?hits=1&timeout=0"
        body = json.dumps(changed(chance, chance.choice(SEEDS))).encode()
        if chance.random() < 0.2:
            at = chance.randrange(len(body))
            body = body[:at] + bytes([chance.randrange(256)]) + body[at:]
        status, answer = api.raw(method, place + query, body, **authorization)
        assert status < 500, (method, place, query, body, answer)
        if method.lower() in operations and "%" not in place:
            api.check(method, place, status, answer)
        seen.add(status)
        if number % 50 == 0:
            for kind, key in (("rules", "name"), ("intercepts", "id")):
                for each in api.call("GET", f"/v1/{kind}")[1][kind]:
                    api.raw("DELETE", f"/v1/{kind}/{quote(str(each[key]), safe='')}", None, **authorization)
            client = testbed.client(api.proxy.address)
            wire.ask(client, heartbeat(number))
    assert {200, 404} <= seen and seen & {400, 422}
    assert api.call("GET", "/v1/status")[0] == 200


def test_input_that_is_not_http(shared_api: ControlApi) -> None:
    chance = random.Random(2)
    for _ in range(60):
        with socket.create_connection(("127.0.0.1", shared_api.port), timeout=PATIENCE) as sock:
            sock.sendall(b"GET /v1/status HTTP/1.1\r\n"[: chance.randrange(26)] + chance.randbytes(chance.randrange(300)))
            sock.shutdown(socket.SHUT_WR)
            answer = sock.recv(4096)
            assert not answer or (answer.startswith(b"HTTP/1.") and b" 200 " not in answer.split(b"\r\n")[0])
    assert shared_api.call("GET", "/v1/status")[0] == 200


RULE = {"name": "ok", "match": "api == Heartbeat", "do": {"error": "NOT_COORDINATOR"}}


@pytest.mark.parametrize(("method", "path"), [("POST", "/v1/rules"), ("PUT", "/v1/rules"), ("PUT", "/v1/rules/ok")])
@pytest.mark.parametrize(
    "change",
    [
        {"name": "\ud800"},
        {"match": 'topic == "\ud800"'},
        {"when": {"after": "\ud800"}},
        {"do": {"error": "\ud800"}},
        {"do": [{"action": "replace", "fields": {"group_id": "\ud800"}}]},
        {"do": {"set": {"topics[0].name": "\ud800"}}},
    ],
    ids=str,
)
def test_a_refused_change_leaves_the_rules_as_they_were(
    api: ControlApi, method: str, path: str, change: dict[str, Any]
) -> None:
    """Text that no encoding has is refused, and the next change is taken."""
    assert api.call("POST", "/v1/rules", {**RULE, "name": "before"})[0] == 201
    status, answer = api.call(method, path, {**RULE, **change})
    assert status == 422, answer
    assert [each["name"] for each in api.call("GET", "/v1/rules")[1]["rules"]] == ["before"]
    assert api.call("POST", "/v1/rules", {**RULE, "name": "after"})[0] == 201


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/intercepts", {"filter": 'topic == "\ud800"', "request": True}),
        ("/v1/intercepts", {"filter": "api == Fetch", "request": True, "zone": "\ud800"}),
        ("/v1/recording/start", {"directory": "/tmp/\ud800"}),
        ("/v1/recording/flight", {"label": "\ud800"}),
    ],
    ids=str,
)
def test_text_that_no_encoding_has_is_refused_everywhere(api: ControlApi, path: str, body: dict[str, Any]) -> None:
    status, answer = api.call("POST", path, body)
    assert status == 422 and "surrogate" in answer["message"], answer
