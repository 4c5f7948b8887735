"""`barnabas proxy --plugin`: workers, SIGHUP, processes that are killed, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from harness.run.lines import line
from harness.waiting import PATIENCE, attempts, until

from .stage import Broker, Client

PLUGIN = """
import os
class Marks:
    apis = ("Heartbeat",)
    def __init__(self, mark: int = 1, loud: bool = False):
        self.mark = mark
    def response(self, message, ctx):
        return message.replace({"throttle_time_ms": self.mark + STEP})
"""


def descendants(pid: int) -> list[int]:
    """The processes below this one."""
    found = []
    for each in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(each.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
        if parent == pid:
            below = int(each.parent.name)
            found += [below, *descendants(below)]
    return found


def names(pids: list[int]) -> dict[int, str]:
    return {
        pid: Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
        for pid in pids
        if Path(f"/proc/{pid}").exists()
    }


class Running:
    """A proxy in the foreground of nobody's terminal."""

    def __init__(self, *options: str) -> None:
        self.child = subprocess.Popen(
            [sys.executable, "-m", "barnabas", "proxy", "--listen", "127.0.0.1:0", "--json", *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )  # fmt: skip

    def event(self, kind: str) -> dict[str, Any]:
        """The next event of a kind, among the counts that the proxy reports every second."""
        for _ in attempts(pause=0):
            found = json.loads(line(self.child, kind))
            if found["event"] == kind:
                return dict(found)
        raise AssertionError(f"no {kind}")

    def end(self) -> None:
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGINT)
            try:
                self.child.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.child.kill()
        self.child.communicate()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")
def test_two_workers_a_signal_and_the_end(tmp_path: Path) -> None:
    broker = Broker()
    path = tmp_path / "marks.py"
    path.write_text(PLUGIN.replace("STEP", "0"))
    config = tmp_path / "barnabas.toml"
    address = "{}:{}".format(*broker.address)
    config.write_text(
        f'plugin-budget = "30s"\n[[cluster]]\nname = "c"\nbroker = "{address}"\nplugin = ["marks.py?mark=7&loud=yes"]\n'
    )
    running = Running("--config", str(config), "--workers", "2")
    try:
        proxy = running.event("Listening")["address"]
        assert running.event("PluginsLoaded") == {
            "event": "PluginsLoaded",
            "cluster": "c",
            "plugins": ["Marks"],
            "again": False,
        }
        clients = [Client((proxy[0], proxy[1])) for _ in range(6)]
        assert {client.ask()["throttle_time_ms"] for client in clients} == {7}
        path.write_text(PLUGIN.replace("STEP", "1"))
        assert running.event("PluginsLoaded")["again"]
        running.child.send_signal(signal.SIGHUP)
        assert running.event("PluginsLoaded")["again"]
        # each worker has its own; the event is that of the first that is ready
        until(lambda: {client.ask()["throttle_time_ms"] for client in clients} == {8})
        below = descendants(running.child.pid)
        forkservers = [pid for pid, name in names(below).items() if "interception.plugin_host.forkserver" in name]
        assert len(forkservers) == 4  # two, and a host below each
        for pid in forkservers:
            os.kill(pid, signal.SIGKILL)
        until(lambda: {client.ask()["throttle_time_ms"] for client in clients} == {8})
        below = descendants(running.child.pid)
    finally:
        running.end()
        broker.close()
    assert running.child.returncode == 0
    assert not names(below)
