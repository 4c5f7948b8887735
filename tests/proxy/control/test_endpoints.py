"""Every endpoint of a running proxy; every answer is checked against the OpenAPI description."""

from __future__ import annotations

import json
import re
import threading
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from barnabas import __version__, decoder
from barnabas.captures import open_capture
from barnabas.decoder.connection.events import Closed
from barnabas.proxy.control import ControlConfig, ControlError
from barnabas.proxy.control.api.routes import ROUTES, described
from barnabas.proxy.events import ShutdownAsked
from harness import wire
from harness.peers.control_api import ControlApi, StartControlApi, heartbeat
from harness.testbed import Testbed, next_event
from harness.waiting import PATIENCE, until
from jsonschema import Draft202012Validator

RULE = {"name": "r", "match": "api == Produce and topic == orders", "do": {"error": "NOT_LEADER_OR_FOLLOWER"}}


def test_the_openapi_description_is_valid(shared_api: ControlApi) -> None:
    document = shared_api.call("GET", "/openapi.json")[1]
    assert document == json.loads(json.dumps(described()))
    assert document["openapi"] == "3.1.0"
    assert document["info"]["version"] == __version__
    for schema in document["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    text = json.dumps(document)
    for name in set(re.findall(r"#/components/schemas/(\w+)", text)):
        assert name in document["components"]["schemas"]
    identifiers = [operation["operationId"] for path in document["paths"].values() for operation in path.values()]
    assert len(set(identifiers)) == len(identifiers) == len(ROUTES)
    assert set(document["components"]["schemas"]) <= {"Any", *re.findall(r"schemas/(\w+)", text)}


def test_status(api: ControlApi, testbed: Testbed) -> None:
    client = testbed.client(api.proxy.address)
    wire.ask(client, heartbeat(1))
    until(lambda: api.control.status()["counts"]["exchanges"])
    status = api.call("GET", "/v1/status")[1]
    assert status["version"] == __version__
    assert tuple(status["listen"]) == api.proxy.address
    assert set(status["processes"]) == {"relay", "observer", "inspector", "control"}
    assert all(process["alive"] for process in status["processes"].values())
    assert (status["counts"]["connections"], status["counts"]["exchanges"]) == (1, 1)
    assert status["lost"] == {"observer_bytes": 0, "observer_chunks": 0, "inspector_bytes": 0, "events": 0}
    assert status["exchanges"]["newest"] == 1
    assert status["insecure"] == []
    assert status["uptime"] > 0


def test_status_lists_settings_that_weaken_security(start_api: StartControlApi, tmp_path: Path) -> None:
    api = start_api(control=ControlConfig(directory=tmp_path, show_values=True), listen=("0.0.0.0", 0))
    assert len(api.call("GET", "/v1/status")[1]["insecure"]) == 2


def test_connections_are_listed_and_closed(api: ControlApi, testbed: Testbed) -> None:
    first, second = (testbed.client(api.proxy.address) for _ in range(2))
    for client in (first, second):
        wire.ask(client, heartbeat(1))
    listed = until(lambda: [c for c in api.call("GET", "/v1/connections")[1]["connections"] if c["exchanges"]][1:])
    assert listed[0]["client"] == f"127.0.0.1:{second.getsockname()[1]}"
    both = api.control.connections()
    assert [(c["request_bytes"], c["response_bytes"], c["client_id"]) for c in both] == [(25, 10, "t")] * 2
    assert api.call("DELETE", f"/v1/connections/{both[0]['connection']}")[1] == {"closed": 1, "how": "fin"}
    assert first.recv(1) == b""
    assert api.call("DELETE", f"/v1/connections/{both[1]['connection']}?how=rst")[0] == 200
    with pytest.raises(ConnectionResetError):
        second.recv(1)
    assert api.call("DELETE", "/v1/connections/1")[0] == 404
    assert api.call("DELETE", "/v1/connections/2?how=never")[0] == 422
    assert until(lambda: api.control.connections() == [])


def test_a_recording_names_the_control_api_as_closer_of_a_connection(api: ControlApi, testbed: Testbed, tmp_path: Path) -> None:
    directory = tmp_path / "recording"
    api.call("POST", "/v1/recording/start", {"directory": str(directory)})
    client = testbed.client(api.proxy.address)
    wire.ask(client, heartbeat(1))
    (number,) = (each["connection"] for each in until(lambda: api.control.connections()))
    assert api.call("DELETE", f"/v1/connections/{number}")[0] == 200
    assert client.recv(1) == b""
    api.call("POST", "/v1/recording/stop")
    with open_capture(directory) as capture:
        assert [(each.how, each.by) for each in capture.events() if isinstance(each, Closed)] == [("fin", "control API")]


def test_brokers(start_api: StartControlApi, testbed: Testbed) -> None:
    def script(sock: Any) -> None:
        while frame := wire.read_frame(sock):
            sock.sendall(wire.metadata_response(int.from_bytes(frame[8:12], "big"), [(7, "10.9.8.7", 9092)]))

    api = start_api(script)
    client = testbed.client(api.proxy.address)
    answer = decoder.decode_response(wire.ask(client, wire.request(3, 8, 1))[4:], api_key=3, api_version=8)
    first, second = api.call("GET", "/v1/brokers")[1]["brokers"]
    assert first["bootstrap"] and tuple(first["listen"]) == api.proxy.address
    assert (second["node"], second["broker"]) == (7, ["10.9.8.7", 9092])
    assert second["listen"] == ["127.0.0.1", answer["brokers[0].port"]]


def test_exchanges(api: ControlApi, testbed: Testbed) -> None:
    client = testbed.client(api.proxy.address)
    for number in range(1, 8):
        wire.ask(client, heartbeat(number, group="odd" if number % 2 else "even"))
    assert len(api.control.exchanges(since=0, limit=7, wait=PATIENCE)) >= 1
    until(lambda: api.control.status()["exchanges"]["newest"] == 7)
    page = api.call("GET", "/v1/exchanges?limit=3")[1]
    assert [each["id"] for each in page["exchanges"]] == [5, 6, 7]
    assert (page["next"], page["lost"]) == (7, 0)
    assert page["exchanges"][0]["request"] is None
    page = api.call("GET", "/v1/exchanges?since=2&limit=2&bodies=1")[1]
    assert [each["id"] for each in page["exchanges"]] == [3, 4] and page["more"]
    assert page["exchanges"][0]["request"]["group_id"] == "odd"
    found = api.control.exchanges("group == even", since=0)
    assert [each["correlation_id"] for each in found] == [2, 4, 6]
    whole = api.call("GET", "/v1/exchanges/4")[1]
    assert whole["request"] == {"group_id": "even", "generation_id": 3, "member_id": "m"}
    assert whole["response"] == {"error_code": 0}
    assert (api.call("GET", "/v1/exchanges/8")[0], api.call("GET", "/v1/exchanges/x")[0]) == (404, 404)
    begun = time.monotonic()
    assert api.call("GET", "/v1/exchanges?since=7&wait=0.1")[1]["exchanges"] == []
    assert time.monotonic() - begun >= 0.1


def test_a_long_poll_ends_with_the_next_exchange(api: ControlApi, testbed: Testbed) -> None:
    client = testbed.client(api.proxy.address)
    wire.ask(client, heartbeat(1))
    api.control.exchanges(since=0, wait=PATIENCE)
    timer = threading.Timer(0.1, lambda: client.sendall(heartbeat(2)))
    timer.start()
    # the wait is longer than a test may take
    assert [each["id"] for each in api.control.exchanges("group == g", since=1, wait=300)] == [2]
    timer.join()


def test_an_error_in_a_filter_has_its_place(shared_api: ControlApi) -> None:
    for path in ("/v1/exchanges", "/v1/exchanges/stream"):
        status, answer = shared_api.call("GET", f"{path}?filter=api+%3D%3D+Prodce")
        assert status == 422 and "did you mean Produce" in answer["message"]
        assert (answer["start"], answer["end"]) == (7, 13)


def test_times_of_a_filter_are_in_the_requested_zone(api: ControlApi, testbed: Testbed) -> None:
    """Zones of different hours whose clocks never change: no reading of the same text is the other."""
    client = testbed.client(api.proxy.address)
    wire.ask(client, heartbeat(1))
    (exchange,) = api.control.exchanges("api == Heartbeat", since=0, wait=PATIENCE)
    for name in ("UTC", "Asia/Tokyo", "Pacific/Honolulu"):
        when = datetime.fromtimestamp(exchange["time_ns"] // 10**9, ZoneInfo(name))
        for text in (f"time in {when:%H:%M:%S}..{when:%H:%M:%S}.999999999", f"time in {when:%FT%T}..{when + timedelta(seconds=1):%FT%T}"):
            for zone in ("", "UTC", "Asia/Tokyo", "Pacific/Honolulu"):
                found = api.control.exchanges(text, zone=zone)
                assert len(found) == ((zone or "UTC") == name), (text, zone)
                if found:
                    assert next(api.control.follow(text, since=0, zone=zone))["id"] == exchange["id"]


def test_unknown_zones_are_refused(shared_api: ControlApi) -> None:
    for path in ("/v1/exchanges?", "/v1/exchanges/stream?filter=err&"):
        for name in ("Europe/Atlantis", "../x", "/etc/passwd", "Europe", "%00"):
            status, answer = shared_api.call("GET", f"{path}zone={name}")
            assert status == 422 and "there is no time zone" in answer["message"]
    for zone in ("Europe/Atlantis", 5, []):
        status, answer = shared_api.call("POST", "/v1/intercepts", {"filter": "api == Heartbeat", "zone": zone})
        assert status == 422 and answer["message"].startswith("zone: ")


def test_wrong_queries_are_refused(shared_api: ControlApi) -> None:
    for query in ("limit=0", "limit=x", "limit=1001", "wait=-1", "wait=301", "wait=nan", "since=-1", "bodies=2"):
        assert shared_api.call("GET", f"/v1/exchanges?{query}")[0] == 422, query


def test_requests_in_flight(start_api: StartControlApi, testbed: Testbed) -> None:
    api = start_api(lambda sock: wire.exactly(sock, 1 << 20))
    client = testbed.client(api.proxy.address)
    client.sendall(heartbeat(5))
    (waiting,) = until(lambda: api.call("GET", "/v1/exchanges/pending")[1]["exchanges"])
    assert (waiting["correlation_id"], waiting["state"]) == (5, "pending")
    assert waiting["pending_ns"] > 0


def test_secrets_are_masked_with_and_without_values(start_api: StartControlApi, testbed: Testbed, tmp_path: Path) -> None:
    frame = decoder.encode_request(36, 1, {"auth_bytes": b"\0user\0canary-password"}, correlation_id=1)
    for values in (False, True):
        api = start_api(control=ControlConfig(directory=tmp_path / str(values), show_values=values))
        client = testbed.client(api.proxy.address)
        wire.ask(client, wire.with_size(frame))
        until(lambda api=api: api.control.exchanges())
        text = json.dumps([api.call("GET", "/v1/exchanges/1")[1], api.control.exchanges(bodies=True)])
        assert "canary-password" not in text and b"canary-password".hex() not in text


def test_findings(start_api: StartControlApi, testbed: Testbed) -> None:
    def script(sock: Any) -> None:
        while frame := wire.read_frame(sock):
            sock.sendall(wire.response(int.from_bytes(frame[8:12], "big"), b"\x00\x23" + bytes(15)))

    api = start_api(script)
    client = testbed.client(api.proxy.address)
    wire.ask(client, wire.request(18, 3, 1, b"\0"))
    found = until(lambda: api.call("GET", "/v1/findings")[1]["findings"])
    assert "malformed-api-versions-fallback" in [each["id"] for each in found]
    api.proxy.stop()
    assert not [e for e in api.proxy.events() if type(e).__name__ == "FindingSeen"]  # nobody asked for events


def test_events(api: ControlApi, testbed: Testbed) -> None:
    client = testbed.client(api.proxy.address)
    wire.ask(client, heartbeat(1))
    found = api.call("GET", "/v1/events?kinds=ConnectionOpened&wait=90")[1]
    assert [event["event"] for event in found["events"]] == ["ConnectionOpened"]
    assert api.call("GET", f"/v1/events?since={found['next']}&kinds=Nothing")[1]["events"] == []
    client.close()
    closed = api.control.events(since=found["next"], kinds=["ConnectionClosed"], wait=PATIENCE)["events"]
    assert closed[0]["how"] == "fin" and closed[0]["sent"] == 25


def test_rules(shared_api: ControlApi) -> None:
    assert shared_api.call("GET", "/v1/rules")[1] == {"rules": []}
    status, added = shared_api.call("POST", "/v1/rules", RULE)
    assert status == 201
    (rule,) = added["rules"]
    assert (rule["name"], rule["enabled"], rule["hits"]) == ("r", True, 0)
    assert rule["source"]["match"] == "api == Produce and topic == orders"
    assert shared_api.call("POST", "/v1/rules", rule["source"])[0] == 409
    yaml = b"rules:\n  - match: api == Produce\n    do: {error: REQUEST_TIMED_OUT, broker: executed}\n    when: {times: 2}\n"
    assert shared_api.call("POST", "/v1/rules", yaml)[1]["rules"][0]["name"] == "rule 2"
    assert [each["name"] for each in shared_api.control.rules()] == ["r", "rule 2"]
    assert shared_api.call("POST", "/v1/rules/r/disable")[1]["enabled"] is False
    assert shared_api.call("POST", "/v1/rules/r/enable")[1]["enabled"] is True
    assert shared_api.call("PUT", "/v1/rules/r", RULE | {"match": "api == Produce"})[0] == 200
    assert shared_api.call("PUT", "/v1/rules/new%20one", RULE)[0] == 201
    assert shared_api.call("GET", "/v1/rules/new%20one")[1]["name"] == "new one"
    assert shared_api.call("DELETE", "/v1/rules/r")[1] == {"removed": "r"}
    assert shared_api.call("PUT", "/v1/rules", {"rules": [RULE]})[1]["rules"][0]["name"] == "r"
    assert len(shared_api.control.rules()) == 1
    for method, path in (("DELETE", ""), ("GET", ""), ("POST", "/enable"), ("POST", "/wait?timeout=0")):
        assert shared_api.call(method, f"/v1/rules/nobody{path}")[0] == 404


def test_hits_name_their_exchanges(api: ControlApi, testbed: Testbed) -> None:
    rule = {"match": "api == Heartbeat", "when": {"every": 2}}
    api.control.add_rule(rule | {"name": "answered", "match": "api == Heartbeat and group == a", "do": {"error": "REBALANCE_IN_PROGRESS"}})
    api.control.add_rule(rule | {"name": "slow one", "do": {"delay": "1ms"}})
    client = testbed.client(api.proxy.address)
    for number in range(8):
        # The same correlation id again and again: the note tells which exchange is meant.
        wire.ask(client, heartbeat(3, "a" if number < 4 else "b"))
    client.close()
    assert api.control.exchange_page("api == Heartbeat", since=0, wait=PATIENCE)["exchanges"]
    until(lambda: len(api.control.exchange_page(since=0)["exchanges"]) == 8)
    found = api.control.exchange_page(since=0)["exchanges"]
    for name, numbers in (("answered", [0, 2]), ("slow one", [1, 4, 6])):
        status, answer = api.call("GET", f"/v1/rules/{name.replace(' ', '%20')}/hits")
        assert (status, answer["name"], answer["total"]) == (200, name, len(numbers))
        assert [hit["hit"] for hit in answer["hits"]] == list(range(1, len(numbers) + 1))
        assert [hit["exchange"] for hit in answer["hits"]] == [found[number]["id"] for number in numbers]
        for hit in answer["hits"]:
            full = api.control.exchange(hit["exchange"])
            assert hit["note"] in full["notes"] and (hit["api"], hit["correlation_id"]) == ("Heartbeat", 3)
            assert hit["client_id"] == "t" and hit["client"] == full["client"] and hit["connection"] == full["connection"]
    assert [hit["hit"] for hit in api.control.hits("slow one", since=1, limit=1)] == [3]
    assert answer["hits"][0]["done"] == ["response delayed by 1 ms"]
    assert api.call("GET", "/v1/rules/nobody/hits")[0] == 404
    api.control.put_rule("slow one", rule | {"do": {"delay": "2ms"}})
    assert api.control.hits("slow one") == []
    api.control.enable_rule("answered", False)
    assert len(api.control.hits("answered")) == 2


def test_an_error_in_a_rule_has_its_place(shared_api: ControlApi) -> None:
    status, answer = shared_api.call("POST", "/v1/rules", b'{"match": "api == Prodce",\n "do": {"error": "NONE"}}')
    assert (status, answer["line"], answer["column"]) == (422, 1, 19)
    assert "did you mean Produce" in answer["message"]
    status, answer = shared_api.call("POST", "/v1/rules", b'{"match": "api == Produce",\n "do": {"eror": "NONE"}}')
    assert (status, answer["line"], answer["column"]) == (422, 2, 9)
    for body in (b"", b"[]x", b"\xff", b"rules: 3"):
        assert shared_api.call("POST", "/v1/rules", body)[0] in (400, 422)
    assert shared_api.control.rules() == []


def test_recording_starts_rotates_and_stops(api: ControlApi, testbed: Testbed, tmp_path: Path) -> None:
    client = testbed.client(api.proxy.address)

    def ask(numbers: range) -> None:
        for number in numbers:
            wire.ask(client, heartbeat(number))

    ask(range(5))
    assert api.call("GET", "/v1/recording")[1]["recording"] is False
    assert api.call("POST", "/v1/recording/stop")[0] == 404
    until(lambda: api.control.status()["counts"]["exchanges"] == 5)
    directory = tmp_path / "late"
    started = api.call("POST", "/v1/recording/start", {"directory": str(directory)})[1]
    assert started["recording"] and started["directory"] == str(directory)
    assert api.call("POST", "/v1/recording/start", {"directory": str(directory)})[0] == 409
    ask(range(5, 10))
    until(lambda: api.control.recording()["counts"]["exchanges"] == 5)
    rotated = api.call("POST", "/v1/recording/rotate")[1]
    assert rotated["segment"] != started["segment"] and rotated["counts"]["segments"] == 2
    ask(range(10, 13))
    until(lambda: api.control.recording()["counts"]["exchanges"] == 8)
    assert api.call("POST", "/v1/recording/stop")[1]["recording"] is False
    ask(range(13, 15))
    with open_capture(directory) as capture:
        assert [exchange.correlation_id for exchange in capture.exchanges()] == list(range(5, 13))
        assert not capture.lost
    second = api.control.start_recording(str(tmp_path / "again"))
    assert second["recording"]
    ask(range(15, 17))
    until(lambda: api.control.status()["counts"]["exchanges"] == 17)  # since the start, over all of them
    for wrong in ({"directory": "relative"}, {}, {"directory": 3}, {"directory": "/x", "else": 1}):
        assert api.call("POST", "/v1/recording/start", wrong)[0] == 422
    api.control.stop_recording()
    (tmp_path / "file").write_text("")
    assert api.call("POST", "/v1/recording/start", {"directory": str(tmp_path / "file" / "x")})[0] == 422


def test_a_recording_that_begins_within_a_frame(api: ControlApi, testbed: Testbed, tmp_path: Path) -> None:
    client = testbed.client(api.proxy.address)
    whole = heartbeat(1)
    client.sendall(whole[:20])
    until(lambda: [c for c in api.control.connections() if c["request_bytes"] == 20])
    api.control.start_recording(str(tmp_path / "rec"))
    client.sendall(whole[20:])
    assert wire.read_frame(client)
    wire.ask(client, heartbeat(2))
    until(lambda: api.control.recording()["counts"]["exchanges"] >= 2)
    api.control.stop_recording()
    with open_capture(tmp_path / "rec") as capture:
        found = {exchange.correlation_id: str(exchange.state) for exchange in capture.exchanges()}
    assert found == {1: "orphan", 2: "paired"}


def test_metrics_exist_only_with_a_meter(start_api: StartControlApi, testbed: Testbed) -> None:
    from barnabas.proxy.metrics.settings import MeterConfig

    assert start_api().call("GET", "/metrics")[0] == 404
    api = start_api(meter=MeterConfig(metrics=("127.0.0.1", 0)))
    client = testbed.client(api.proxy.address)
    wire.ask(client, heartbeat(1))
    assert until(lambda: "barnabas_requests_total" in api.control.metrics())
    assert api.call("GET", "/metrics")[0] == 200


def test_shutdown_is_graceful(start_api: StartControlApi, testbed: Testbed) -> None:
    go = threading.Event()

    def slowly(sock: Any) -> None:
        frame = wire.read_frame(sock)
        go.wait(PATIENCE)
        sock.sendall(wire.response(int.from_bytes(frame[8:12], "big"), bytes(2)))
        wire.read_frame(sock)  # until the proxy closes

    api = start_api(slowly, drain_seconds=600.0)  # longer than a test may take
    client = testbed.client(api.proxy.address)
    client.sendall(heartbeat(1))
    until(lambda: api.control.pending())
    assert api.call("POST", "/v1/shutdown")[0] == 202
    next_event(api.proxy, ShutdownAsked)
    go.set()
    assert wire.read_frame(client)[4:8] == (1).to_bytes(4, "big")
    assert client.recv(1) == b""
    for _ in api.proxy.events():
        pass  # ends, because the proxy does
    codes = {name: child.returncode for name, child in api.proxy._children.items() if name != "inspector"}
    assert codes == dict.fromkeys(codes, 0)  # without findings nobody waits for the inspector (`UNHEARD_SECONDS`)
    with pytest.raises(ControlError):
        api.control.status()


def test_every_endpoint_is_described_with_its_parameters() -> None:
    for route in ROUTES:
        assert route.summary.endswith(".")
        for name in re.findall(r"{(\w+)}", route.path):
            operation = described()["paths"][route.path][route.method.lower()]
            assert name in [parameter["name"] for parameter in operation["parameters"]]


def test_unknown_paths_and_methods(shared_api: ControlApi) -> None:
    right = {"Authorization": f"Bearer {shared_api.access.token}"}
    assert shared_api.raw("GET", "/v2/status", **right)[0] == 404
    status, answer = shared_api.raw("POST", "/v1/status", **right)
    assert (status, answer["error"]) == (405, "method")
