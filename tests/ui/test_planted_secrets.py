"""Secrets go through the proxy, and come out of nothing: recording, log, screen, control API, feed, metrics, exports.

The same traffic in a capture that nobody masked is searched, too: what is shown hides them all the same.
"""

from __future__ import annotations

import base64
import gzip
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from barnabas import decoder
from barnabas.captures import Recorder, open_capture, tables
from barnabas.captures.diff.field_pairs import both
from barnabas.captures.export import NoProgram, case, dump, program
from barnabas.decoder.embedded import of
from barnabas.ui.tui.exchange.fields import request_tree, response_tree
from harness import commands
from harness.peers.pcap import as_pcap
from harness.run.lines import line
from harness.scripted import Broker
from harness.waiting import PATIENCE, until
from harness.wire import read_frame, with_size
from traffic.planted_secrets import NAMES, PlantedExchange, dialog, leaks, secret, unpacked

BARNABAS = [sys.executable, "-m", "barnabas"]
HTTP = b"GET / HTTP/1.1\r\nAuthorization: Bearer " + secret("http authorization").encode() + b"\r\n\r\n"
TOKEN = b"\0user\0" + secret("raw sasl token").encode()
ANSWER = b"v=" + secret("raw sasl answer").encode()


def answering(dialogue: list[PlantedExchange]) -> Callable[[socket.socket], None]:
    """A broker's script: answers what `dialog` says, raw tokens, and nothing else."""
    answers = {each.request: each.response for each in dialogue}

    def script(sock: socket.socket) -> None:
        while frame := read_frame(sock)[4:]:
            answer = answers.get(frame)
            if frame == TOKEN:
                answer = ANSWER
            elif answer is None:
                if frame != handshake():
                    return
                answer = decoder.encode_response(17, 0, {}, correlation_id=900)
            sock.sendall(with_size(answer))

    return script


def handshake() -> bytes:
    return decoder.encode_request(17, 0, {"mechanism": "PLAIN"}, correlation_id=900, client_id="app")


def talk(address: tuple[str, int], dialogue: list[PlantedExchange]) -> None:
    """The whole dialogue, on three connections."""
    with socket.create_connection(address, PATIENCE) as sock:
        for each in dialogue:
            sock.sendall(with_size(each.request))
            assert read_frame(sock)[4:] == each.response
    with socket.create_connection(address, PATIENCE) as sock:
        for frame in (handshake(), TOKEN):
            sock.sendall(with_size(frame))
            assert read_frame(sock)
    with socket.create_connection(address, PATIENCE) as sock:
        sock.sendall(HTTP)


def unmasked(directory: Path, dialogue: list[PlantedExchange]) -> Path:
    """The same in a capture that was not masked."""
    recorder = Recorder(directory, redact=False)
    for number in (1, 2, 3):
        recorder.opened(number, 10, ("127.0.0.1", 50000 + number), ("127.0.0.1", 9092))
    for at, each in enumerate(dialogue):
        recorder.data(1, 0, 1000 + 10 * at, with_size(each.request))
        recorder.data(1, 1, 1005 + 10 * at, with_size(each.response))
    recorder.data(2, 0, 2000, with_size(handshake()))
    recorder.data(2, 1, 2001, with_size(decoder.encode_response(17, 0, {"mechanisms": ["PLAIN"]}, correlation_id=900)))
    recorder.data(2, 0, 2002, with_size(TOKEN))
    recorder.data(2, 1, 2003, with_size(ANSWER))
    recorder.data(3, 0, 3000, HTTP)
    recorder.close()
    return directory


class Through(NamedTuple):
    """A recording of the proxy, and what else it reported, by where."""

    recording: Path
    reported: dict[str, bytes]


@pytest.fixture(scope="module")
def through(tmp_path_factory: pytest.TempPathFactory) -> Through:
    """A recording by the proxy of all that, and everything that the proxy reported otherwise."""
    folder = tmp_path_factory.mktemp("planted")
    dialogue, broker = dialog(), Broker(answering(dialog()))
    own = {**os.environ, "XDG_RUNTIME_DIR": str(folder), "BARNABAS_SASL_PASSWORD": ""}
    host, port = broker.address
    words = ["--broker", f"{host}:{port}", "--listen", "127.0.0.1:0", "--record", "r", "--lossless", "--control"]
    words += ["127.0.0.1:0", "--metrics", "127.0.0.1:0", "--metrics-by", "client", "--feed", "127.0.0.1:0"]
    reported: dict[str, bytes] = {}
    process = subprocess.Popen(
        [*BARNABAS, "proxy", *words], cwd=folder, env=own, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    log: list[str] = []
    try:
        wanted = {"listen": r"bootstrap\.servers=127\.0\.0\.1:(\d+)", "control": r"control API at \S+:(\d+)",
                  "token": r"control API at .*token in (\S+)", "metrics": r"metrics\D* at http://[^:]+:(\d+)"}  # fmt: skip
        seen: dict[str, str] = {}
        while len(seen) < len(wanted):
            log.append(line(process, f"one of {sorted({*wanted} - {*seen})} behind {log}"))
            seen |= {name: match[1] for name, text in wanted.items() if (match := re.search(text, log[-1]))}
        talk(("127.0.0.1", int(seen["listen"])), dialogue)
        key = Path(seen["token"]).read_text().strip()

        def get(port: str, path: str) -> bytes:
            asked = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Authorization": f"Bearer {key}"})
            return bytes(urllib.request.urlopen(asked, timeout=PATIENCE).read())

        # once the last one is there, so are the others
        until(lambda: b"SaslHandshake" in get(seen["control"], "/v1/exchanges?wait=0.2&filter=corr%20%3D%3D%20900"))
        reported["exchanges"] = get(seen["control"], "/v1/exchanges?since=0&bodies=1&limit=1000")
        for path in ("/v1/findings", "/v1/connections", "/v1/status", "/v1/brokers"):
            reported[path] = get(seen["control"], path)
        reported["metrics"] = get(seen["metrics"], "/metrics")
        reported["control token"] = key.encode()
    finally:
        process.send_signal(signal.SIGTERM)
        log += process.communicate(timeout=PATIENCE)[0].splitlines()
        broker.close()
    reported["log"] = "\n".join(log).encode()
    return Through(folder / "r", reported)


def test_the_search_finds_what_is_planted(tmp_path: Path) -> None:
    data = b"".join(path.read_bytes() for path in unmasked(tmp_path / "u", dialog()).glob("*.pcapng"))
    assert leaks(data) == set(NAMES) - {"raw sasl token", "raw sasl answer"}  # these are masked in any case
    for name in NAMES[:3]:
        for coded in (bytes.fromhex(secret(name).encode().hex()), gzip.compress(b"x" + secret(name).encode())):
            assert leaks(b"..." + coded) == {name}
        for shift in range(3):
            assert leaks(base64.b64encode(b"x" * shift + secret(name).encode() + b"yz")) == {name}
    assert unpacked(b"\x1f\x8b\x08 no stream") == []


def test_no_output_of_a_proxy_holds_a_secret(through: Through) -> None:
    recording, reported = through.recording, dict(through.reported)
    files = {path.name: path.read_bytes() for path in recording.iterdir()}
    assert len(files) == 3 and sum(map(len, files.values())) > 5000 and len(reported["exchanges"]) > 5000
    key = reported.pop("control token")
    for name, data in {**files, **reported}.items():
        assert not leaks(data), name
        assert key not in data, name
    with open_capture(recording) as capture:
        apis = [exchange.api for exchange in capture.exchanges()]
    assert len(apis) == len(dialog()) + 1


@pytest.fixture(scope="module", params=["masked", "in clear"])
def capture(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, through: Through) -> Path:
    if request.param == "masked":
        return through.recording
    return unmasked(tmp_path_factory.mktemp("clear") / "r", dialog())


def test_no_screen_shows_a_secret(capture: Path) -> None:
    shown = []
    with open_capture(capture) as opened:
        for exchange in opened.exchanges():
            for tree in (request_tree(exchange, True), response_tree(exchange, True)):
                shown.append(repr(tree.frame) + repr([(f.name, f.value) for f in tree.fields]) + repr(tree.fault))
                assert not leaks(tree.frame), exchange
            for message in (exchange.request_message, exchange.response_message):
                if message is not None:
                    asked = exchange.request_message if message.plan.kind == "response" else None
                    shown += [repr(p.fields) for p in of(message, asked)]
            shown.append(repr(exchange) + repr(exchange.to_dict(values=True)))
    assert len("".join(shown)) > 10_000 and leaks("\n".join(shown).encode()) == set()


COMMANDS: list[tuple[str, ...]] = [
    ("decode", "CAPTURE"),
    ("decode", "CAPTURE", "--json", "--show-values"),
    ("ui", "CAPTURE"),
    ("findings", "CAPTURE"),
    ("findings", "CAPTURE", "--json"),
    ("versions", "CAPTURE"),
    ("compat", "CAPTURE", "--against", "3.9", "--md", "-"),
    ("diff", "CAPTURE", "CAPTURE", "--json", "--all"),
    ("replay", "CAPTURE", "--dry-run", "--broker", "127.0.0.1:9"),
    ("export", "CAPTURE", "--bodies", "--show-values"),
    ("export", "CAPTURE", "--bodies", "--show-values", "--as", "csv"),
    *(("export", "CAPTURE", "-t", name, "--as", "csv", "--show-values") for name in tables.DESCRIBED),
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_no_command_prints_a_secret(capture: Path, words: tuple[str, ...]) -> None:
    done = commands.here(*(capture if word == "CAPTURE" else word for word in words))
    assert (done.output or "-t" in words) and (done.exception is None or isinstance(done.exception, SystemExit)), (
        done.exception
    )
    assert leaks(done.output.encode()) == set()


def test_no_difference_shows_a_secret(tmp_path: Path) -> None:
    """Of two captures whose secrets differ."""

    def other(frame: bytes) -> bytes:
        for name in NAMES:
            frame = frame.replace(secret(name).encode(), secret(name)[::-1].encode())
        return frame

    one = unmasked(tmp_path / "one", dialog())
    two = unmasked(tmp_path / "two", [PlantedExchange(*map(other, each)) for each in dialog()])
    with open_capture(one) as first, open_capture(two) as second:
        shown = repr([both(a, b) for a, b in zip(first.exchanges(), second.exchanges(), strict=True)])
    shown += commands.here("diff", one, two, "--all", "--json").output
    assert len(shown) > 10_000 and leaks(shown.encode()) == set()


def test_no_exported_exchange_holds_a_secret(capture: Path) -> None:
    with open_capture(capture) as opened:
        for exchange in opened.exchanges():
            reported = "\n".join(dump(exchange, values=True))
            for make in (program, case):
                try:
                    reported += make(exchange, True)
                except NoProgram as error:
                    reported += str(error)
            assert len(reported) > 100 and leaks(reported.encode()) == set(), exchange


def test_no_parquet_holds_a_secret(capture: Path, tmp_path: Path) -> None:
    from pyarrow import parquet

    for name in tables.DESCRIBED:
        path = tmp_path / f"{name}.parquet"
        words = ["export", capture, "-t", name, "-o", path, "--show-values"]
        done = commands.here(*words, *(["--bodies"] if name == "exchanges" else []))
        assert done.exit_code == 0, done.output
        assert not leaks(path.read_bytes()) and not leaks(repr(parquet.read_table(path).to_pylist()).encode())


def test_no_import_keeps_a_secret(tmp_path: Path) -> None:
    source = next(unmasked(tmp_path / "clear", dialog()).glob("*.pcapng"))
    foreign = as_pcap(source, tmp_path / "foreign.pcap")
    for words in ((), ("--filter", "corr >= 0")):
        directory = tmp_path / f"imported{len(words)}"
        done = commands.here("import", foreign, "-o", directory, *words)
        assert done.exit_code == 0, done.output
        data = b"".join(path.read_bytes() for path in directory.iterdir())
        assert len(data) > 5000 and leaks(data + done.output.encode()) == set(), words
