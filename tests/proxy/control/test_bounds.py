"""Limits of requests: the description states them, and the server enforces them."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from barnabas.plugins.rules.rules import RuleError, parse_rules
from barnabas.proxy.control.api.bounds import MOST_RULES, RULES_BYTES
from barnabas.proxy.control.api.routes import ROUTES, described
from harness import wire
from harness.peers.control_api import ControlApi, heartbeat
from harness.testbed import Testbed

NUMBERS = ("integer", "number")
WAITS = ("wait", "timeout")


def parameters() -> list[Any]:
    found = []
    for path, operations in described()["paths"].items():
        for method, operation in operations.items():
            for each in operation.get("parameters", ()):
                found.append(pytest.param(path, method, each, id=f"{method} {path} {each['name']}"))
    return found


@pytest.mark.parametrize(("path", "method", "parameter"), parameters())
def test_every_parameter_has_bounds(path: str, method: str, parameter: dict[str, Any]) -> None:
    schema = parameter["schema"]
    if schema["type"] in NUMBERS:
        assert schema["minimum"] <= schema.get("default", schema["minimum"]) <= schema["maximum"]
    elif schema["type"] == "string":
        assert schema.get("maxLength") or schema.get("enum")
    else:
        assert schema["type"] == "boolean"


def test_every_number_of_a_body_has_bounds() -> None:
    schemas = described()["components"]["schemas"]
    for route in ROUTES:
        if route.body is None or route.body.schema.startswith("Rule"):
            continue
        for name, schema in schemas[route.body.schema]["properties"].items():
            if schema.get("type") in NUMBERS:
                assert "minimum" in schema and "maximum" in schema, (route.path, name)


def test_the_server_enforces_the_described_bounds(shared_api: ControlApi) -> None:
    """A number at a bound is accepted, beyond it refused."""
    shared_api.control.replace_rules([{"name": "r", "match": "api == Fetch", "do": {"error": "UNKNOWN_SERVER_ERROR"}}])
    tried = 0
    for path, operations in described()["paths"].items():
        for method, operation in operations.items():
            for parameter in operation.get("parameters", ()):
                schema = parameter["schema"]
                if parameter["in"] != "query" or schema["type"] not in NUMBERS or method != "get" or "/stream" in path:
                    continue
                place = path.replace("{name}", "r").replace("{id}", "1")
                for value, taken in ((schema["minimum"], True), (schema["maximum"], parameter["name"] not in WAITS),
                                     (schema["minimum"] - 1, False), (schema["maximum"] * 2 + 1, False)):  # fmt: skip
                    if value == schema["maximum"] and not taken:
                        continue  # it would wait for so long
                    status, _ = shared_api.call(method.upper(), f"{place}?{parameter['name']}={value:.0f}")
                    assert status == (200 if taken else 422), (place, parameter["name"], value)
                    tried += 1
    assert tried > 30


@pytest.mark.parametrize(
    ("method", "path", "body", "message"),
    [
        ("PUT", "/v1/brokers/down", {"brokers": [["b-1"]]}, "brokers must be a list"),
        ("PUT", "/v1/brokers/down", {}, "brokers must be a list"),
        ("POST", "/v1/recording/start", {}, "directory must be an absolute path"),
        ("POST", "/v1/recording/start", {"directory": "/x", "rotate_bytes": 1.5}, "rotate_bytes must be a whole number"),
        ("POST", "/v1/recording/start", {"directory": "/x", "keep_seconds": 0}, "keep_seconds must be from 1"),
        ("POST", "/v1/recording/flight", {"label": 7}, "label must be a string"),
        ("POST", "/v1/recording/flight", {"reason": "x" * 1001}, "reason must be a string of up to 1000"),
        ("POST", "/v1/intercepts", {"filter": " "}, "filter must be a filter expression"),
        ("POST", "/v1/intercepts", {"filter": "api == Fetch", "request": 1}, "request must be true or false"),
        ("POST", "/v1/intercepts", {"filter": "api == Fetch", "response": False}, "request, response or both must be true"),
        ("POST", "/v1/intercepts", {"filter": "api == Fetch", "zone": 5}, "zone: "),
        ("POST", "/v1/intercepts", {"filter": "api == Fetch", "most": 0}, "most must be from 1"),
        ("POST", "/v1/intercepts", {"filter": "api == Fetch", "fitler": 1}, "no field 'fitler'"),
    ],
)
def test_what_is_wrong_in_a_body_is_named(
    shared_api: ControlApi, method: str, path: str, body: dict[str, Any], message: str
) -> None:
    status, answer = shared_api.call(method, path, json.dumps(body).encode())
    assert (status, answer["error"]) == (422, "invalid") and answer["message"].startswith(message)


def rules(count: int) -> list[dict[str, Any]]:
    return [{"name": f"n{n}", "match": "api == Fetch", "do": {"error": "UNKNOWN_SERVER_ERROR"}} for n in range(count)]


def test_too_many_rules_are_refused(api: ControlApi, testbed: Testbed) -> None:
    """Refused before they are read one by one; those that were there stay, and traffic goes on."""
    api.control.replace_rules(rules(1))
    for method in ("POST", "PUT"):
        body = json.dumps(rules(MOST_RULES + 1)).encode()
        status, answer = api.call(method, "/v1/rules", body)
        assert status == 422 and ("allowed" in answer["message"] or "values" in answer["message"])
        status, answer = api.call(method, "/v1/rules", json.dumps(rules(20_000)).encode())
        assert (status, answer["error"]) == (413, "too large")
    assert [each["name"] for each in api.control.rules()] == ["n0"]
    added = [each | {"name": f"more-{n}"} for n, each in enumerate(rules(MOST_RULES - 1))]
    assert api.call("POST", "/v1/rules", json.dumps(added).encode())[0] == 201
    assert api.call("POST", "/v1/rules", json.dumps(rules(2)[1:]).encode())[0] == 422
    client = testbed.client(api.proxy.address)
    wire.ask(client, heartbeat(1))


@pytest.mark.parametrize("text", ["[" + "a," * (RULES_BYTES // 2 - 1) + "]", "- a\n" * (RULES_BYTES // 4), "{" + "a: ," * 200_000 + "}"])
def test_a_body_of_many_values_is_read_no_further_than_needed(text: str) -> None:
    """Counted by the values that were made: each costs a thousand times its bytes."""
    with pytest.raises(RuleError, match=r"more than 3\d\d values"):
        parse_rules(text, most=10)
    assert len(parse_rules("rules:\n" + "- {match: api == Fetch, do: {error: UNKNOWN_SERVER_ERROR}}\n" * 10, most=10)) == 10


def test_a_token_that_is_not_text(shared_api: ControlApi) -> None:
    """401, whatever bytes it is made of, as any other that is wrong."""
    for token in ("\xff\xfe", "é", "\x80" * 40, "Ã©"):
        status, answer = shared_api.raw("GET", "/v1/status", Authorization=f"Bearer {token}")
        assert (status, answer["error"]) == (401, "unauthorized")


def test_the_answer_to_a_wrong_method_lists_the_allowed_ones(shared_api: ControlApi) -> None:
    """RFC 9110, 15.5.6: a 405 says in Allow what may be used."""
    import http.client

    for path in sorted({route.path for route in ROUTES}):
        place = re.sub(r"{\w+}", "1", path)
        there = {route.method for route in ROUTES if re.fullmatch(re.sub(r"{\w+}", "[^/]+", route.path), place)}
        connection = http.client.HTTPConnection("127.0.0.1", shared_api.port)
        connection.request("PATCH", place, headers=shared_api.authorization)
        response = connection.getresponse()
        assert response.status == 405 and json.loads(response.read())["error"] == "method"
        allowed = set((response.getheader("Allow") or "").replace(" ", "").split(","))
        assert allowed == there, path
        connection.close()
