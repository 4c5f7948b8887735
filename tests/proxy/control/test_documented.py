"""The examples of docs/control.md work as described."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
from pathlib import Path

import pytest
from barnabas.proxy.control.api.routes import ROUTES
from harness import wire
from harness.peers.control_api import ControlApi, heartbeat
from harness.testbed import Testbed
from harness.waiting import PATIENCE

DOCS = Path(__file__).parents[3] / "docs" / "control.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOCS.read_text(), re.DOTALL)


def test_curl(api: ControlApi, testbed: Testbed, tmp_path: Path) -> None:
    assert shutil.which("curl")
    client = testbed.client(api.proxy.address)
    wire.ask(client, heartbeat(1))
    setting, *lines = blocks("sh")
    setting = setting.replace("http://127.0.0.1:8090", api.access.url)
    setting = re.sub(r"\$\(cat [^)]*\)", f"$(cat {api.access.token_file})", setting)
    commands = [line for block in lines for line in block.splitlines() if line]
    assert len(commands) > 20
    # Of frames that are not held here.
    expected = {f"/v1/held/{each}" for each in ("1", "2/resume", "3/drop", "4/drop", "5/drop", "6/extend")}
    for command in commands:
        command = command.replace("/tmp/barnabas-part", str(tmp_path / "part"))
        script = f"set -e\n{setting}\n{command}"
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, (command, done.stderr)
        if "/stream" in command:
            assert "data: {" in done.stdout, command
            continue
        answer = json.loads(done.stdout)
        missing = [path for path in expected if path in command]
        assert ("error" in answer and answer["error"] == "missing") == bool(missing), (command, answer)
        if not missing:
            assert "message" not in answer, (command, answer)
    for _ in api.proxy.events():
        pass  # the last command has stopped it
    named = set(re.findall(r"/v1/\w+", DOCS.read_text()))
    assert named == {"/" + "/".join(route.path.split("/")[1:3]) for route in ROUTES if route.path.startswith("/v1/")}


def test_python(testbed: Testbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as names go: the example waits for traffic of a cluster on the usual port."""
    from barnabas.proxy.control import Control

    (example,) = blocks("python")
    compile(example, "docs/control.md", "exec")
    for name in set(re.findall(r"control\.(\w+)\(", example)):
        assert hasattr(Control, name)


def test_java(api: ControlApi, tmp_path: Path) -> None:
    (example,) = blocks("java")
    source = tmp_path / "WaitForHits.java"
    source.write_text(example)
    arguments = ["java", "-XX:TieredStopAtLevel=1", str(source), api.access.url, api.access.token]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    status, waited = done.stdout.splitlines()
    assert status == "201"
    assert json.loads(waited) == {"name": "java", "hits": 0, "reached": False}
    assert [rule["name"] for rule in api.control.rules()] == ["java"]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("go") is None, reason="no go")
def test_go(api: ControlApi, testbed: Testbed, tmp_path: Path) -> None:
    (example,) = blocks("go")
    source = tmp_path / "main.go"
    source.write_text(example)
    client = testbed.client(api.proxy.address)
    timer = threading.Timer(0.1, lambda: client.sendall(heartbeat(9)))
    timer.start()
    arguments = ["go", "run", str(source), api.access.url, api.access.token]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["correlation_id"] == 9
    timer.join()
