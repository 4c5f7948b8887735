"""The tests that docs/testing.md shows for other languages are run, beside a proxy that is started as the page says."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from barnabas.proxy.control import Control
from confluent_kafka.admin import AdminClient, NewTopic
from harness.run.lines import line
from harness.waiting import PATIENCE
from real.brokers.broker import HOST, Cluster, free_ports

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[3]
TOPICS = ("orders", "secrets")
BARNABAS = f"{sys.executable} -m barnabas"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / "docs" / "testing.md").read_text(), re.DOTALL)


class RunningProxy:
    """A proxy beside the tests of another language."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = os.environ | environment
        self.control = Control(environment["BARNABAS_CONTROL_URL"], environment["BARNABAS_CONTROL_TOKEN"])

    def run(self, *command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=cwd, env=self.environment, capture_output=True, text=True, timeout=3 * PATIENCE
        )

    def errors(self, topic: str) -> list[str]:
        """Of the Produce responses for a topic, in their order; "" for none."""
        page = self.control.exchange_page(f"api == Produce and topic == {topic}", since=0, limit=100)
        return [each.get("error") or "" for each in page["exchanges"]]


def two_ports() -> int:
    """A port of this machine that is free, and so is the next."""
    while True:
        (port,) = free_ports(1)
        with socket.socket() as next_one:
            try:
                next_one.bind((HOST, port + 1))
            except OSError:
                continue
            return port


@pytest.fixture
def proxy(broker: Cluster, tmp_path: Path) -> Iterator[RunningProxy]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for made in admin.create_topics([NewTopic(topic, 1) for topic in TOPICS]).values():
        made.exception(PATIENCE)  # another test may have made it
    (script,) = blocks("sh")
    listen, control = two_ports(), two_ports()
    upstream = broker.bootstrap.partition(",")[0]
    real = {"127.0.0.1:9092": upstream, "9192": str(listen), "8090": str(control)}
    assert all(shown in script for shown in real)
    # in one go: a port of this machine may contain one that the page shows
    script = re.sub("|".join(real), lambda shown: real[shown[0]], script)
    script = script.replace("barnabas proxy", f"{BARNABAS} proxy") + "\nenv | grep ^BARNABAS_; echo; wait"
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    shell = subprocess.Popen(
        ["bash", "-c", script], env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert shell.stdout is not None
        found = {}
        while True:
            name, equals, value = line(shell, "the variables, and an empty line behind them").strip().partition("=")
            if name.startswith("BARNABAS_"):
                found[name] = value
            elif not equals and not name and len(found) >= 3:
                break
        proxy = RunningProxy(found)
        yield proxy
        stopped = proxy.run(*BARNABAS.split(), "control", "stop", cwd=tmp_path)
        assert stopped.returncode == 0, stopped.stderr
        assert shell.wait(PATIENCE) == 0
    finally:
        if shell.poll() is None:
            os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()
        shell.stdout.close()


@pytest.mark.slow
def test_java(proxy: RunningProxy, tmp_path: Path) -> None:
    junit = next((ROOT / ".cache" / "junit").glob("junit-platform-console-standalone-*.jar"), None)
    clients = [
        jar
        for jar in (ROOT / ".cache" / "broker").glob("*.jar")
        if jar.name.startswith(("kafka-clients", "lz4", "slf4j-api"))
    ]
    if junit is None or not clients or not shutil.which("javac"):
        pytest.skip("JUnit's and Kafka's jars are fetched by: make broker")
    jars = ":".join(map(str, [junit, *clients]))
    sources = []
    for text in blocks("java"):
        name = re.findall(r"^(?:public )?(?:class|record) (\w+)", text, re.MULTILINE)[0]
        sources.append(tmp_path / f"{name}.java")
        sources[-1].write_text(text)
    made = proxy.run("javac", "-cp", jars, "-d", "classes", *map(str, sources), cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    done = proxy.run(
        "java", "-XX:TieredStopAtLevel=1", "-cp", f"classes:{jars}", "org.junit.platform.console.ConsoleLauncher",
        "execute", "--disable-banner", "--disable-ansi-colors", "--select-class=OrdersTest", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 tests successful" in done.stdout
    assert proxy.errors("orders") == ["NOT_LEADER_OR_FOLLOWER"] * 2 + [""]
    assert proxy.errors("secrets") == ["TOPIC_AUTHORIZATION_FAILED"]
    assert proxy.control.rules() == []


@pytest.mark.slow
def test_go(proxy: RunningProxy, tmp_path: Path) -> None:
    if not shutil.which("go"):
        pytest.skip("no go")
    (text,) = blocks("go")
    (tmp_path / "orders_test.go").write_text(text)
    proxy.run("go", "mod", "init", "example.org/orders", cwd=tmp_path)
    got = proxy.run("go", "get", "github.com/twmb/franz-go/pkg/kgo@v1.18.1", cwd=tmp_path)
    if got.returncode:
        pytest.skip(f"franz-go cannot be fetched: {got.stderr.strip().splitlines()[-1]}")
    assert proxy.run("gofmt", "-l", ".", cwd=tmp_path).stdout == ""
    done = proxy.run("go", "test", "-v", "./...", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "--- PASS: TestOrdersSurviveALeaderElection" in done.stdout
    assert proxy.errors("orders") == ["NOT_LEADER_OR_FOLLOWER"] * 2 + [""]
    assert proxy.control.rules() == []
