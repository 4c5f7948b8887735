"""The environment of the documented commands: a cluster, recordings, rules, certificates under the names they use."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from barnabas.proxy import ProxyConfig
from barnabas.proxy.events import show
from confluent_kafka import Consumer, Producer
from docs.pages import blocks
from harness.commands import WHEN_NEEDED
from harness.peers.certificates import make
from harness.proxies import Proxy
from harness.waiting import PATIENCE, until
from scapy.utils import rdpcap, wrpcap

EXCHANGES = 15
"""Produce requests of a recording: the pages speak of its forty-first exchange."""
BROKER = re.compile(r"\b(kafka|kafka-1|kafka-4|test|localhost|10\.0\.0\.[15]):909[23]\b")
IMPORTED = [name for name in WHEN_NEEDED if name.startswith("barnabas.")]
RECORDINGS = ("today", "before", "after", "mon", "tue", "staging", "checkout")


class Done(NamedTuple):
    """How a command ended; its output."""

    status: int
    out: str
    err: str


class Environment:
    """A folder with everything in it, and a way to run commands there. `own`: the settings that make it their home."""

    def __init__(self, folder: Path, broker: tuple[str, int]) -> None:
        self.folder = folder
        self._broker = show(broker)
        self._create_files(broker)
        self.own = {"HOME": str(folder), "XDG_RUNTIME_DIR": str(folder), "NO_COLOR": "1", "COLUMNS": "100"}
        settings = os.environ | self.own
        settings.pop("XDG_STATE_HOME", None)
        self._server = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("server.py")), *IMPORTED], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, env=settings,
        )  # fmt: skip
        self._processes: dict[int, int] = {}
        self._ended: dict[int, int] = {}
        self._answered = threading.Condition()
        threading.Thread(target=self._read_answers, daemon=True).start()
        self._number = 0
        self._fill()

    def _fill(self) -> None:
        """With what the commands of several pages take for made."""
        for made in (["tables"], ["lake", "--format", "delta"]):
            done = self.run(["pipeline", "run", "captures", "--master", "none", "-o", *made])
            assert not done.status, done.err
        self.run(["config", "example"], "barnabas.toml")

    def _read_answers(self) -> None:
        assert self._server.stdout
        for line in self._server.stdout:
            number, process, *status = json.loads(line)
            with self._answered:
                self._processes[number] = process
                if status:
                    self._ended[number] = status[0]
                self._answered.notify_all()

    def close(self) -> None:
        """End what runs commands."""
        assert self._server.stdin
        self._server.stdin.close()
        self._server.wait(PATIENCE)

    def _create_files(self, address: tuple[str, int]) -> None:
        today = self.folder / "recordings" / "today"
        today.parent.mkdir()
        with Proxy(ProxyConfig(upstream=address, record=today)) as proxy:
            bootstrap = show(proxy.address)
            producer = Producer({"bootstrap.servers": bootstrap, "client.id": "shop"})
            for _ in range(EXCHANGES):
                producer.produce("orders", b"one", b"key")
                assert producer.flush(PATIENCE) == 0
            consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "billing", "auto.offset.reset": "earliest"})
            consumer.subscribe(["orders"])
            assert consumer.poll(PATIENCE) is not None
            consumer.close()
        for name in RECORDINGS[1:]:
            shutil.copytree(today, today.with_name(name))
        for name in ("DIR", "a", "b", "today"):
            shutil.copytree(today, self.folder / name)
        shutil.copytree(today.parent, self.folder / "captures")
        (segment,) = today.glob("*.pcapng")
        theirs = self.folder / "capture.pcap"
        wrpcap(str(theirs), rdpcap(str(segment)))
        for name in ("kafka-3.9.pcapng", "kafka-4.1.pcapng"):
            shutil.copy(segment, self.folder / name)
        for name in ("other.pcap.gz", "capture.pcapng.gz", "trace.pcapng.gz"):
            (self.folder / name).write_bytes(gzip.compress(theirs.read_bytes()))
        plugin = next(block for block in blocks() if block.page == "plugins.md" and block.language == "python")
        (self.folder / "sessions.py").write_text(plugin.text)
        self._create_certificates()
        (self.folder / "rules.yaml").write_text(
            "rules:\n  - name: moved\n    match: api == Produce\n    do: {error: NOT_LEADER_OR_FOLLOWER}\n"
        )
        (self.folder / "orders.avsc").write_text('{"type": "record", "name": "O", "fields": []}')
        (self.folder / "secret.txt").write_text("open sesame\n")
        (self.folder / "secret.txt").chmod(0o600)

    def _create_certificates(self) -> None:
        ca = make(self.folder, "ca", ca=True)
        make(self.folder, "me", issuer=ca)
        server = make(self.folder, "server", ("kafka.example",), ca)
        shutil.copy(server.path, self.folder / "server-chain.pem")

    def words(self, words: list[str]) -> list[str]:
        """The words of a command with what stands for the reader's own put in."""
        found = [BROKER.sub(self._broker, word) for word in words]
        if found[0] in ("proxy", "serve") and "--listen" not in found and "--config" not in found:
            found += ["--listen", "127.0.0.1:0"]
        for at, word in enumerate(found[1:], 1):
            if found[at - 1] in ("--listen", "--control", "--metrics") and ":" in word and not word.startswith("unix"):
                found[at] = "127.0.0.1:0"
        found = [re.sub(r"^~(?=/)", str(self.folder), word).replace("eth0", "lo") for word in found]
        found = [re.sub(r"^(unix:)?/(var|tmp)/", rf"\g<1>{self.folder}/", word) for word in found]
        return ["127.0.0.1:9092" if word == "..." else word for word in found]

    @contextmanager
    def running(self, words: list[str], stdin: Path = Path(os.devnull)) -> Iterator[Running]:
        """A command that goes on; killed at the end if it is still there."""
        self._number += 1
        number = self._number
        out, err = (self.folder / f".{number}.{kind}" for kind in ("out", "err"))
        for file in (out, err):
            file.touch()
        assert self._server.stdin
        task = [number, self.words(words), str(self.folder), str(stdin), str(out), str(err)]
        self._server.stdin.write(json.dumps(task) + "\n")
        self._server.stdin.flush()
        with self._answered:
            assert self._answered.wait_for(lambda: number in self._processes, PATIENCE), "no process was made"
        running = Running(self, number, self._processes[number], out, err)
        try:
            yield running
        finally:
            if number not in self._ended:
                os.killpg(running.process, signal.SIGKILL)
                running.done()

    def ended(self, number: int, seconds: float = PATIENCE) -> int | None:
        """The exit status of a command by its number; None if it does not end in time."""
        with self._answered:
            self._answered.wait_for(lambda: number in self._ended, seconds)
        return self._ended.get(number)

    def run(self, words: list[str], into: str = "", stdin: Path = Path(os.devnull)) -> Done:
        """A command that ends by itself. `into`: the file that gets its output, as ``>`` would. What `cut`, `redact` and
        `export` wrote before, of another page's example, is removed."""
        if words[0] in ("cut", "redact"):
            shutil.rmtree(self.folder / words[words.index("-o") + 1], ignore_errors=True)
        if words[0] == "export" and "-o" in words:
            (self.folder / words[words.index("-o") + 1]).unlink(missing_ok=True)
        with self.running(words, stdin) as running:
            done = running.done()
            if into:
                # The ports of the examples may be somebody else's here.
                text = re.sub(r'^(listen = "127.0.0.1):\d+', r"\1:0", done.out, flags=re.M)
                (self.folder / into).write_text(text)
            return done

    def stopped(self, words: list[str], output: str = "") -> Done:
        """A command that goes on until Ctrl-C, which it gets once it has written this, or anything."""
        with self.running(words) as running:
            until(lambda: running.number in self._ended or (running.wrote(output) and running.rests()))
            if running.number not in self._ended:
                with suppress(ProcessLookupError):  # its status and output are judged
                    os.kill(running.process, signal.SIGINT)
            return running.done()


class Running(NamedTuple):
    """A command that runs, and the files with its output."""

    environment: Environment
    number: int
    process: int
    out: Path
    err: Path

    def wrote(self, words: str = "") -> bool:
        """Whether it has written this, or anything."""
        output = self.out.read_text() + self.err.read_text()
        return bool(output) and words in output

    def rests(self) -> bool:
        """Whether it waits for something, for some moments: most print what they do just before they do it."""
        stat = Path(f"/proc/{self.process}/stat")
        for _ in range(4):
            if not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "R":
                return False
            time.sleep(0.02)
        return True

    def done(self) -> Done:
        """Wait for its end."""
        status = self.environment.ended(self.number)
        assert status is not None, f"no end: {self.out.read_text()} {self.err.read_text()}"
        return Done(status, self.out.read_text(), self.err.read_text())
