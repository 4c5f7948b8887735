"""Who may use the control API: clients with the token, and never a web page or a proxied port."""

from __future__ import annotations

import json
import socket
import stat
from pathlib import Path

import pytest
from barnabas.proxy import ProxyConfig, ProxyError
from barnabas.proxy.control import Control, ControlConfig, ControlError
from barnabas.proxy.control.api.routes import OPEN, ROUTES
from barnabas.proxy.control.auth import AccessGuard, AccessRefused
from barnabas.proxy.control.startup import running
from harness.peers.control_api import ControlApi, StartControlApi
from harness.testbed import Testbed


def test_every_endpoint_asks_for_the_token(shared_api: ControlApi) -> None:
    token = shared_api.access.token
    for route in ROUTES:
        if route.path in OPEN:
            continue  # probes have no token; they learn whether the proxy runs, and nothing else
        path = route.path.replace("{name}", "x").replace("{id}", "1").replace("{connection}", "1")
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {token}"}, {"Cookie": token}):
            status, answer = shared_api.raw(route.method, path, **headers)
            assert (status, answer["error"]) == (401, "unauthorized"), (route.path, headers)
            shared_api.check(route.method, path, status, answer)
    assert shared_api.raw("GET", "/nothing", Authorization="Bearer wrong")[0] == 401
    assert shared_api.raw("GET", f"/v1/status?token={token}")[0] == 401
    assert shared_api.call("GET", "/v1/status")[0] == 200  # and nothing of that has stopped anything


def test_requests_of_web_pages_are_refused(shared_api: ControlApi) -> None:
    right = {"Authorization": f"Bearer {shared_api.access.token}"}
    for name in ("evil.example", f"evil.example:{shared_api.port}", "127.0.0.1.evil.example", "127.0.0.1:1", "10.0.0.1", ""):
        status, answer = shared_api.raw("GET", "/v1/status", **right, Host=name)
        assert (status, answer["error"]) == (403, "forbidden"), name
    for headers in ({"Origin": "http://127.0.0.1"}, {"Origin": "null"}, {"Sec_Fetch_Site": "cross-site"}):
        assert shared_api.raw("GET", "/v1/status", **right, **headers)[0] == 403
    for name in (f"127.0.0.1:{shared_api.port}", f"localhost:{shared_api.port}"):
        assert shared_api.raw("GET", "/v1/status", **right, Host=name)[0] == 200
    status, _ = shared_api.raw("OPTIONS", "/v1/rules", **right, Origin="http://evil.example")
    assert status == 403


def test_the_guard_compares_whole_tokens() -> None:
    guard = AccessGuard("secret", 8090)
    own = {"Host": "127.0.0.1:8090"}
    guard.check(own | {"Authorization": "Bearer secret"}, None)
    guard.check({"Host": "[::1]:8090", "Authorization": "bearer secret"}, None)
    for wrong in ("Bearer secre", "Bearer secrets", "Bearer", "secret", "Bearer sécret", ""):
        with pytest.raises(AccessRefused) as refused:
            guard.check(own | {"Authorization": wrong}, None)
        assert refused.value.status == 401
    with pytest.raises(AccessRefused):
        AccessGuard("", 0).check({"Host": "localhost"}, None)  # no socket, so nobody knows whose it is


def test_only_the_owner_can_read_the_token(start_api: StartControlApi, tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "control"
    api = start_api(control=ControlConfig(directory=folder))
    token = api.access.token
    file = Path(api.access.token_file)
    assert file.parent == folder and file.read_text() == token + "\n" and len(token) > 40
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [access.url for access in running(folder)] == [api.access.url]
    assert running(folder)[0].token == token
    for path in folder.glob("*.json"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600 and token not in path.read_text()
    for pid in [child.pid for child in api.proxy._children.values()]:
        for name in ("cmdline", "environ"):
            assert token.encode() not in Path(f"/proc/{pid}/{name}").read_bytes()
    for path in ("/v1/status", "/v1/events?limit=1000", "/openapi.json"):
        assert token not in json.dumps(api.call("GET", path)[1])
    api.proxy.stop()
    assert not any(token in event.text for event in api.proxy.events())
    assert list(folder.iterdir()) == []
    assert running(folder) == []


def test_a_unix_socket_is_for_its_owner(start_api: StartControlApi, tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    api = start_api(control=ControlConfig(path=path, directory=tmp_path / "run"))
    assert api.access.url == f"unix:{path}" and api.access.token == ""
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert api.control.status()["control"] == f"unix:{path}"
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(path))
        sock.sendall(b"GET /v1/status HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n")
        assert sock.recv(1000).startswith(b"HTTP/1.1 403")
    api.proxy.stop()
    assert not path.exists()
    with pytest.raises(ControlError):
        api.control.status()


def test_a_socket_left_behind_is_replaced_and_one_in_use_is_not(start_api: StartControlApi, tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    config = ControlConfig(path=path, directory=tmp_path / "run")
    api = start_api(control=config)
    with pytest.raises(ProxyError, match=r"control\.sock.*in use.*--control"):
        start_api(control=config)
    assert api.control.status()["rules"] == 0
    other = tmp_path / "file"
    other.write_text("mine")
    with pytest.raises(ProxyError):
        start_api(control=ControlConfig(path=other, directory=tmp_path / "run"))
    assert other.read_text() == "mine"


def test_other_addresses_than_loopback_are_refused(testbed: Testbed) -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.com"):
        with pytest.raises(ProxyError, match="this machine only"):
            testbed.proxy(("127.0.0.1", 9), control=ControlConfig((host, 0)))


def test_there_is_no_control_api_by_default(testbed: Testbed) -> None:
    proxy = testbed.proxy(("127.0.0.1", 9))
    assert ProxyConfig(upstream=("127.0.0.1", 9)).control is None
    assert proxy.control is None and "control" not in proxy._children


def test_proxied_ports_do_not_serve_the_control_api(shared_api: ControlApi, testbed: Testbed) -> None:
    """They pass bytes to the broker, HTTP or not."""
    client = testbed.client(shared_api.proxy.address)
    token = shared_api.access.token
    client.sendall(f"GET /v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
    client.shutdown(socket.SHUT_WR)
    answer = b""
    try:
        while part := client.recv(1000):
            answer += part
    except OSError:
        pass
    assert b"HTTP" not in answer and b"version" not in answer


def test_large_bodies_are_refused(shared_api: ControlApi) -> None:
    status, answer = shared_api.call("POST", "/v1/rules", b"x" * (9 << 20))
    assert (status, answer["error"]) == (413, "too large")


def test_the_error_for_a_wrong_address_has_a_remedy(testbed: Testbed) -> None:
    port = testbed.closed_port()[1]
    with pytest.raises(ControlError, match=f"cannot reach the control API at http://127.0.0.1:{port}") as failed:
        Control(f"http://127.0.0.1:{port}", "x").status()
    assert "connection refused; is the proxy running" in str(failed.value) and "Errno" not in str(failed.value)
