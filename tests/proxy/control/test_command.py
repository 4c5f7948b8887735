"""``barnabas control`` and ``barnabas proxy --control``, as a user calls them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from harness import commands, wire
from harness.peers.control_api import heartbeat
from harness.run.lines import line
from harness.scripted import answering
from harness.testbed import Testbed
from harness.waiting import PATIENCE

BARNABAS = [sys.executable, "-m", "barnabas"]


def call(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        return commands.run(*words)


def test_a_running_proxy_is_found_inspected_changed_and_stopped(testbed: Testbed, tmp_path: Path) -> None:
    own = {"XDG_RUNTIME_DIR": str(tmp_path)}
    broker = testbed.broker(answering(bytes(2))).address
    words = ["proxy", "--broker", f"{broker[0]}:{broker[1]}", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0"]
    rules = tmp_path / "rules.yaml"
    rules.write_text("rules:\n  - {name: odd, match: api == Produce, do: {error: NOT_LEADER_OR_FOLLOWER}}\n")
    with subprocess.Popen(
        [*BARNABAS, *words], stdout=subprocess.PIPE, text=True, env={**os.environ, **own}, cwd=tmp_path
    ) as proxy:
        try:
            assert proxy.stdout is not None
            port, control = "", ""
            while not (port and control):
                output = line(proxy, "where it listens")
                if match := re.search(r"bootstrap\.servers=127\.0\.0\.1:(\d+)", output):
                    port = match[1]
                if "control API at" in output:
                    control = output
            token_file = re.search(r"token in (\S+)", control)
            assert token_file
            token = Path(token_file[1]).read_text().strip()
            assert token not in control
            client = testbed.client(("127.0.0.1", int(port)))
            wire.ask(client, heartbeat(1))
            status = call("control", **own)
            assert status.returncode == 0, status.stderr
            assert f"clients     127.0.0.1:{port} for {broker[0]}:{broker[1]}" in status.stdout
            (curl,) = [line for line in status.stdout.splitlines() if line.startswith("curl ")]
            assert token not in status.stdout
            wrong = call("control", "--url", curl.split()[-1].removesuffix("/v1/status"), BARNABAS_CONTROL_TOKEN="wrong", **own)
            assert wrong.returncode == 2 and "--token-file" in wrong.stderr and "Bearer" not in wrong.stderr
            address = curl.split()[-1].removesuffix("/v1/status")
            for words in (["--url", address, "status"], ["status", "--url", address.removeprefix("http://"), "--json"]):
                assert call("control", *words, **own).returncode == 0
            asked = subprocess.run(["bash", "-c", curl + " -sf"], capture_output=True, text=True, timeout=PATIENCE)
            assert asked.returncode == 0 and '"version"' in asked.stdout
            assert "Heartbeat v0" in call("control", "exchanges", "--filter", "api == Heartbeat", **own).stdout
            soon = datetime.now(ZoneInfo("Pacific/Honolulu")) + timedelta(hours=1)  # and in UTC long ago
            text = f"api == Heartbeat and time < {soon:%FT%T}"
            there = call("control", "exchanges", "--local", "--filter", text, TZ="Pacific/Honolulu", **own)
            assert "Heartbeat v0" in there.stdout, there
            assert call("control", "exchanges", "--filter", text, TZ="Pacific/Honolulu", **own).stdout == ""
            nameless = call("control", "exchanges", "--local", "--filter", text, TZ="HST10", **own)
            assert nameless.returncode == 2 and "set TZ" in nameless.stderr
            assert (
                "on        0 hits  odd: api == Produce" in call("control", "rules", "--add", str(rules), **own).stdout
            )
            again = call("control", "rules", "--add", str(rules), **own)
            assert again.returncode == 2 and "there is already a rule named 'odd'" in again.stderr
            rules.write_text("rules:\n  - {name: slow, match: api == Heartbeat, do: {delay: 2ms}}\n")
            assert call("control", "rules", "--add", str(rules), **own).returncode == 0
            wire.ask(client, heartbeat(2))
            hits = call("control", "rules", "--hits", "slow", **own)
            assert re.search(r"^ +1 20\d\d-\d\d-\d\d \d\d:\d\d:\d\dZ conn 1 127\.0\.0\.1:\d+ t Heartbeat v0: response delayed by 2 ms \(", hits.stdout), hits
            assert call("control", "rules", "--hits", "nobody", **own).returncode == 2
            rules.write_text("rules:\n  - {match: api == Produce, do: {eror: X}}\n")
            wrong = call("control", "rules", "--add", str(rules), **own)
            assert wrong.returncode == 2 and "rules.yaml:2:34: 'do' has no key 'eror'" in wrong.stderr
            small = call("control", "record", str(tmp_path / "rec"), "--keep-size", "10KB", **own)
            assert small.returncode == 2 and "less than two segments" in small.stderr
            nowhere = call("control", "record", "--stop", "--keep-size", "1GB", **own)
            assert nowhere.returncode == 2 and "need a directory" in nowhere.stderr
            kept = ("--keep-size", "1GB", "--keep-time", "7d", "--rotate-time", "5m")
            assert "recording to" in call("control", "record", str(tmp_path / "rec"), *kept, **own).stdout
            assert call("control", "stop", **own).returncode == 0
            proxy.stdout.read()
            assert proxy.wait(PATIENCE) == 0
        finally:
            if proxy.poll() is None:
                os.kill(proxy.pid, signal.SIGTERM)
    nobody = call("control", **own)
    assert nobody.returncode == 2
    assert "no running proxy offers a control API: start one with barnabas proxy --control" in nobody.stderr


def test_wrong_addresses_are_explained(tmp_path: Path) -> None:
    two_lines, not_ascii = tmp_path / "two-lines", tmp_path / "not-ascii"
    two_lines.write_text("one\ntwo\n")
    not_ascii.write_text("é\n", "utf-8")
    for words, text in (
        (["status", "--url", "here"], "'http://here' is not the address of a control API: give http://HOST:PORT or unix:PATH"),
        (["--url=https://127.0.0.1:8090"], "is not the address of a control API"),
        (["status", "--url", "http://127.0.0.1:99999"], "is not the address of a control API"),
        (["status", "--url"], "requires an argument"),
        (["status", "--token-file", "none-there"], "the token of none-there cannot be read"),
        (["status", "--token-file", str(two_lines)], "two-lines does not contain a token: write one line"),
        (["status", "--url", "http://127.0.0.1:9", "--token-file", str(not_ascii)], "the token of the control API must be one line of ASCII"),
    ):
        done = call("control", *words)
        assert done.returncode == 2 and text in " ".join(done.stderr.split()), (words, done.stderr)


def test_wrong_options_are_explained(tmp_path: Path) -> None:
    for words, text in (
        (["--control", "0.0.0.0:0"], "this machine only"),
        (["--control", "here"], "not HOST:PORT"),
        (["--control", "unix:"], "needs a path"),
        (["--control", "off", "--control-values"], "needs a control API"),
    ):
        done = call(
            "proxy", "--broker", "127.0.0.1:9", "--listen", "127.0.0.1:0", *words, XDG_RUNTIME_DIR=str(tmp_path)
        )
        assert done.returncode == 2 and text in done.stderr, (words, done.stderr)
        assert len(done.stderr.strip().splitlines()) == 1
