"""The config file: `barnabas proxy --config`, --check, `barnabas config example`, several clusters, SIGHUP."""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import struct
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest
from barnabas import decoder
from barnabas.ui.cli.command_line import make_app
from barnabas.ui.cli.common.signals import hung_up
from barnabas.ui.cli.proxy.config import key_kinds
from harness.waiting import PATIENCE, until
from harness.wire import read_frame
from typer.main import get_command

ONE = """\
[[cluster]]
name = "orders"
broker = "127.0.0.1:9092"
"""


@pytest.fixture
def check(run, tmp_path: Path):
    """Check a config file of this text; the whole result."""

    def call(text: str | bytes, *flags: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "b.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
        return run("proxy", "--config", "b.toml", "--check", *flags)

    return call


def test_the_example_is_fine(run, check) -> None:
    example = run("config", "example")
    assert example.returncode == 0 and example.stdout.count("[[cluster]]") >= 2
    done = check(example.stdout)
    assert (done.returncode, done.stderr) == (0, "") and "valid, 2 clusters" in done.stdout


def test_what_the_example_leaves_out_is_fine_too(run, check, tmp_path: Path) -> None:
    """Every line that is commented out in the example is a key that exists."""
    (tmp_path / "orders-rules.yaml").write_text("rules: []\n")
    lines = []
    for line in run("config", "example").stdout.splitlines():
        bare = line.removeprefix("# ")
        setting = line.startswith("# ") and ("= " in bare or bare == "[[cluster]]") and "broker-" not in bare
        lines.append(bare if setting else line)
    done = check("\n".join(lines))
    assert (done.returncode, done.stderr) == (0, ""), done
    assert "valid, 3 clusters" in done.stdout


def test_the_schema_says_what_the_reader_says(run, check) -> None:
    """Texts that differ in one value: the schema and the command accept the same."""
    schema = json.loads(run("config", "schema").stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    judge = jsonschema.Draft202012Validator(schema)
    example = run("config", "example").stdout
    assert judge.is_valid(tomllib.loads(example))
    for line, fine in (
        ("lossless = true", True), ('lossless = "yes"', False), ("idle-seconds = 1.5", True), ("idle-seconds = true", False),
        ("max-connections = 1.5", False), ('cap = ["Fetch=11"]', True), ('cap = "Fetch=11"', True), ("cap = [11]", False),
        ("listen = 19092", False), ('name = "a b"', False), ("nothing = 1", False),
    ):  # fmt: skip
        text = ONE.replace('name = "orders"\n', "") + line if line.startswith("name") else ONE + line
        assert judge.is_valid(tomllib.loads(text)) == fine == (check(text).returncode == 0), line


def test_keys_are_the_options_of_the_command() -> None:
    command = get_command(make_app(["proxy"]))
    options = {option for each in command.commands["proxy"].params for option in each.opts}
    others = {"--ui", "--allow-edit", "--json", "--quiet", "-q", "--config", "--check", "--local"}
    assert {f"--{key}" for key in key_kinds()} == options - others


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        (ONE + "screen = true\n", ["b.toml:4:1", "no key 'screen'"]),
        (ONE + 'lisen = "127.0.0.1:1"\n', ["b.toml:4:1", "no key 'lisen'", "did you mean 'listen'"]),
        (ONE + "  xyzzy = 1\n", ["b.toml:4:3", "no key 'xyzzy'", "barnabas config example"]),
        (ONE + "listen = 19092\n", ["b.toml:4:1", "listen must be a string in quotes, not 19092"]),
        (ONE + 'lossless = "yes"\n', ["b.toml:4:1", "true or false"]),
        (ONE + "idle-seconds = true\n", ["b.toml:4:1", "idle-seconds must be a number"]),
        (ONE + "max_connections = 1.5\n", ["b.toml:4:1", "a whole number"]),
        (ONE + "max_connections = 5\nmax-connections = 5\n", ["twice"]),
        (ONE + 'broker = "x:1"\n', ["b.toml:4"]),  # twice: TOML itself
        (ONE + "listen = \n", ["b.toml:4:10"]),
        ("[cluster]\nname = 'x'\n", ["b.toml:1:2", "[[cluster]]"]),
        ('name = "x"\n' + ONE, ["b.toml:1:1", "after [[cluster]]"]),
        ("", ["there is no cluster", "[[cluster]]"]),
        ('[[cluster]]\nbroker = "h:1"\n', ["b.toml:1:1", "no name"]),
        ('[[cluster]]\nname = "a b"\n', ["b.toml:2:1", "letters"]),
        (ONE + "\n" + ONE, ["b.toml:6:1", "line 1", "'orders'"]),
        (ONE + 'listen = "h:5"\n' + ONE.replace("orders", "o2") + 'listen = "h:5"\n', ["b.toml:5", "'o2'", "'orders'"]),
        (ONE + 'record = "r"\n' + ONE.replace("orders", "o2") + 'listen="h:0"\nrecord = "r"\n', ["record", "own"]),
        (ONE + 'listen = "nonsense"\n', ["b.toml:1", "cluster 'orders'", "not HOST:PORT"]),
        ('[[cluster]]\nname = "orders"\n', ["b.toml:1", "cluster 'orders'", "which cluster"]),
        (ONE + 'rules = "missing.yaml"\n', ["b.toml:1", "missing.yaml"]),
        (ONE + 'oversize = "drop"\n', ["b.toml:1", "pass, close"]),
        (ONE + 'transparent = "redirect"\n', ["b.toml:1", "leave --broker out"]),
        ('text = """\nbroker = 1\n"""\n' + ONE, ["b.toml:1:1", "no key 'text'"]),
        (b"\xff\xfe", ["UTF-8"]),
    ],
)
def test_mistakes_are_one_line_with_their_place(check, text: str | bytes, messages: list[str]) -> None:
    done = check(text)
    assert done.returncode == 2 and done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    for part in messages:
        assert part in done.stderr


def test_what_holds_for_all_and_what_was_given_as_a_flag(check) -> None:
    assert check("max-connections = -1\n" + ONE).returncode == 2
    assert check("max-connections = -1\n" + ONE + "max-connections = 5\n").returncode == 0
    assert check("max-connections = -1\n" + ONE, "--max-connections", "7").returncode == 0
    two = ONE + 'listen = "h:1"\n' + ONE.replace("orders", "o2") + 'listen = "h:2"\n'
    assert check(two).returncode == 0
    refused = check(two, "--listen", "127.0.0.1:5")
    assert refused.returncode == 2 and "cannot be the same for all 2 clusters" in refused.stderr
    assert check(two, "--ui").returncode == 0


def frame(api_key: int, correlation: int, body: bytes = b"", version: int = 0) -> bytes:
    request = struct.pack(">hhih", api_key, version, correlation, 1) + b"t" + body
    return struct.pack(">i", len(request)) + request


@pytest.fixture
def brokers() -> Iterator[list[tuple[str, int]]]:
    """Two brokers that answer every frame with their own number."""
    servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]

    def serve(sock: socket.socket, number: int) -> None:
        with sock:
            try:
                while request := read_frame(sock):
                    sock.sendall(struct.pack(">i", 5) + request[8:12] + bytes([number]))
            except OSError:
                pass

    def accept(server: socket.socket, number: int) -> None:
        while True:
            try:
                sock, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(sock, number), daemon=True).start()

    for number, server in enumerate(servers):
        threading.Thread(target=accept, args=(server, number), daemon=True).start()
    yield [server.getsockname() for server in servers]
    for server in servers:
        server.close()


class Command:
    """`barnabas proxy` in a process of its own; its lines as they come."""

    def __init__(self, directory: Path, *flags: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "barnabas", "proxy", *flags],
            cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self.lines: list[str] = []
        threading.Thread(target=self._hear, daemon=True).start()

    def _hear(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())

    def line(self, *parts: str) -> str:
        return until(
            lambda: next((line for line in list(self.lines) if all(part in line for part in parts)), ""),
            lambda: f"no line with {parts} in {self.lines}",
        )

    def address(self, *parts: str) -> tuple[str, int]:
        host, port = self.line("bootstrap.servers=", *parts).rpartition("=")[2].split(":")
        return host, int(port)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)


def test_two_clusters_in_one_command(tmp_path: Path, brokers) -> None:
    config = "".join(
        f'[[cluster]]\nname = "{name}"\nbroker = "127.0.0.1:{port}"\nlisten = "127.0.0.1:0"\nrecord = "rec/{name}"\n'
        for name, (_, port) in zip(("orders", "payments"), brokers, strict=True)
    )
    (tmp_path / "b.toml").write_text(config)
    (tmp_path / "elsewhere").mkdir()
    command = Command(tmp_path / "elsewhere", "--config", "../b.toml")
    try:
        for number, name in enumerate(("orders", "payments")):
            with socket.create_connection(command.address(f"{name}: "), timeout=PATIENCE) as client:
                client.sendall(frame(18, 7))
                assert read_frame(client)[4:] == b"\0\0\0\x07" + bytes([number])
            command.line(f"{name}: connection 1", "closed")
    finally:
        assert command.stop() == 0
    for name in ("orders", "payments"):  # beside the config file, not where the command was called
        assert list((tmp_path / "rec" / name).glob("*.pcapng"))
        command.line(f"{name}: recorded to")


@pytest.mark.slow
def test_json_names_the_cluster(tmp_path: Path, brokers) -> None:
    (tmp_path / "b.toml").write_text(
        f'[[cluster]]\nname = "a"\nbroker = "127.0.0.1:{brokers[0][1]}"\nlisten = "127.0.0.1:0"\n'
    )
    command = Command(tmp_path, "--config", "b.toml", "--json")
    try:
        event = json.loads(command.line('"Listening"'))
        assert event["cluster"] == "a"
    finally:
        assert command.stop() == 0


@pytest.mark.slow
def test_a_cluster_that_cannot_start_stops_the_others(tmp_path: Path, brokers) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        (tmp_path / "b.toml").write_text(
            f'[[cluster]]\nname = "a"\nbroker = "127.0.0.1:{brokers[0][1]}"\nlisten = "127.0.0.1:0"\n'
            f'[[cluster]]\nname = "b"\nbroker = "127.0.0.1:{brokers[1][1]}"\nlisten = "127.0.0.1:{taken.getsockname()[1]}"\n'
        )
        command = Command(tmp_path, "--config", "b.toml")
        assert command.process.wait(PATIENCE) == 2
        command.line("b: cannot listen on", "the port is in use")


RULE = "rules:\n  - name: {name}\n    match: api == {api}\n    do: {{error: {error}}}\n"


def test_sighup_reads_the_rules_again_without_touching_a_connection(tmp_path: Path, brokers) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text("rules: []\n")
    command = Command(
        tmp_path, "--broker", f"127.0.0.1:{brokers[0][1]}", "--listen", "127.0.0.1:0", "--rules", "rules.yaml"
    )
    try:
        client = socket.create_connection(command.address(), timeout=PATIENCE)
        fields = {"acks": -1, "timeout_ms": 1, "topic_data": [{"name": "t", "partition_data": [{"index": 0}]}]}
        produce = decoder.encode_request(0, 3, fields, correlation_id=1, client_id="t")

        def ask() -> list[int]:
            """The error codes of a Produce; none if the broker itself has answered."""
            client.sendall(struct.pack(">i", len(produce)) + produce)
            answer = read_frame(client)[4:]
            if answer[4:] == b"\0":
                return []
            message = decoder.decode_response(answer, api_key=0, api_version=3)
            return [message["responses[0].partition_responses[0].error_code"]]

        assert ask() == []
        rules.write_text(RULE.format(name="moved", api="Produce", error="NOT_LEADER_OR_FOLLOWER"))
        command.process.send_signal(signal.SIGHUP)
        command.line("rules replaced: moved")
        assert ask() == [6]
        rules.write_text("rules:\n  - name: wrong\n    match: api == Prodce\n    do: {error: NONE}\n")
        command.process.send_signal(signal.SIGHUP)
        kept = command.line("the old rules stay")
        assert "rules.yaml:3" in kept
        assert ask() == [6]
        rules.write_text("rules: []\n")
        command.process.send_signal(signal.SIGHUP)
        command.line("rules replaced: none")
        assert ask() == []
        client.close()
    finally:
        assert command.stop() == 0
    assert not [line for line in command.lines if "fault" in line or "Traceback" in line]


def test_a_terminal_is_gone_as_soon_as_nobody_reads_it(tmp_path: Path) -> None:
    """Also before the signal comes, and where it stays the controlling terminal for a moment longer."""
    reading, terminal = pty.openpty()
    assert not hung_up(terminal)
    os.close(reading)
    assert hung_up(terminal)
    os.close(terminal)
    with (tmp_path / "file").open("w") as file:
        assert not hung_up(file.fileno())


def test_a_proxy_ends_with_its_terminal(tmp_path: Path, brokers) -> None:
    """Closing it sends SIGHUP, too; the recording is complete and nothing is left running."""
    pid, terminal = pty.fork()
    if pid == 0:  # the command in a session of its own, with this terminal
        os.chdir(tmp_path)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # it is ignored where the tests run under nohup
        where = ("--broker", f"127.0.0.1:{brokers[0][1]}", "--listen", "127.0.0.1:0", "--record", "rec")
        os.execv(sys.executable, [sys.executable, "-m", "barnabas", "proxy", *where])
    shown = b""
    while b"recording" not in shown:
        shown += os.read(terminal, 1000)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert {path.suffix for path in (tmp_path / "rec").iterdir()} == {".pcapng", ".index", ".strings"}
