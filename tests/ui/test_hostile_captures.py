"""Captures that somebody made to harm whoever opens them: nothing in them runs, and nothing is written but what was asked.

The commands run under Python's audit hook, which hears of every file that is opened for writing, every process, every
socket and every unpickled name.
"""

from __future__ import annotations

import json
import os
import pickle
import struct
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

import crc32c
import pytest
from barnabas import decoder
from barnabas.captures import NotACapture, Recorder, open_capture, tables
from barnabas.captures.pcap import sources
from barnabas.decoder.records import Record, encode_batch
from harness.peers.pcap import as_pcap
from harness.waiting import PATIENCE
from harness.wire import with_size


class _Touch:
    def __reduce__(self):
        return os.system, ("touch pwned",)


EVIL = [
    "../../../../../../tmp/pwned", "/tmp/pwned", "..", ".", "a/../../pwned", "..\\..\\pwned", "C:\\pwned", "pwned\0.csv",
    "$(touch pwned)", "`touch pwned`", "; touch pwned", "| touch pwned", "'; touch pwned #", "-o/tmp/pwned", "--output=pwned",
    "!!python/object/apply:os.system ['touch pwned']", "!!python/name:os.system", "&a [*a]", "{{7*7}}", "${jndi:ldap://x}",
    "__import__('os').system('touch pwned')", "');__import__('os').system('touch pwned')#", '"""\nimport os; os.system("touch pwned")\n"""',
    "%s%s%n", "{0.__class__}", "\x1b]52;c;cHduZWQ=\x07", "p" * 300, "pwned/" * 60, pickle.dumps(_Touch(), 0).decode(),
]  # fmt: skip
BOMB_BYTES = 256 << 20


def bomb() -> bytes:
    """A record batch of 256 KiB that says it holds 256 MiB."""
    packer = zlib.compressobj(1, wbits=31)
    payload = b"".join([packer.compress(bytes(1 << 20)) for _ in range(BOMB_BYTES >> 20)]) + packer.flush()
    head = struct.pack(">hiqqqhii", 1, 0, 0, 0, -1, -1, -1, 1)
    crc = crc32c.crc32c(head + payload)
    return struct.pack(">qiIbI", 0, len(head) + len(payload) + 9, 0, 2, crc) + head + payload


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording and a foreign capture that are full of it."""
    folder = tmp_path_factory.mktemp("hostile")
    recorder = Recorder(folder / "recording")
    recorder.opened(1, 1000, ("127.0.0.1", 50001), ("127.0.0.1", 9092))
    packets: list[tuple[int, bytes]] = []
    loaded = pickle.dumps(_Touch())
    for number, text in enumerate(EVIL):
        batch = encode_batch(
            [Record(0, 1, loaded, loaded, ((text, text.encode()),)), Record(1, 1, text.encode(), text.encode())]
        )
        dialogue = [
            (0, 9, {"acks": -1, "topic_data": [{"name": text, "partition_data": [{"index": 0, "records": batch}]}]}, {}),
            (11, 5, {"group_id": text, "protocol_type": "consumer", "protocols": [{"name": text, "metadata": loaded}]},
             {"error_code": 27, "protocol_name": text}),
            (19, 5, {"topics": [{"name": text}]}, {"topics": [{"name": text, "error_code": 36, "error_message": text}]}),
        ]  # fmt: skip
        for key, version, request, response in dialogue:
            packets.append((0, decoder.encode_request(key, version, request, correlation_id=number, client_id=text)))
            packets.append((1, decoder.encode_response(key, version, response, correlation_id=number)))
    topics = [{"name": "t", "partition_data": [{"index": 0, "records": bomb()}]}]
    packets.append((0, decoder.encode_request(0, 9, {"acks": 0, "topic_data": topics}, correlation_id=-1)))
    for at, (direction, frame) in enumerate(packets):
        recorder.data(1, direction, 2000 + at, with_size(frame))
    recorder.close()
    foreign = folder / "a;touch pwned;$(touch pwned).pcap"
    as_pcap(next((folder / "recording").glob("*.pcapng")), foreign)
    return folder


WATCH = """
import json, os, sys
report = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT, 0o600)
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
NEVER = ("os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "pickle.find_class", "socket.connect",
         "socket.bind", "ftplib.connect", "urllib.Request", "webbrowser.open")
CHANGING = ("os.rename", "os.mkdir", "os.link", "os.symlink", "os.remove", "os.rmdir", "os.truncate", "os.chmod")

def note(what, *words):
    os.write(report, (json.dumps([what, *map(os.fsdecode, filter(lambda w: isinstance(w, (str, bytes)), words))]) + "\\n").encode())

def hook(event, args):
    if event == "open":
        path, mode, flags = args
        if isinstance(path, (str, bytes)) and (flags or 0) & WRITING:
            note("write", path)
    elif event in CHANGING:
        note("write", *args)
    elif event in NEVER:
        note("never", event, repr(args)[:200])
    elif event == "compile":
        source = args[0]
        if isinstance(source, (str, bytes)) and "pwned" in (source if isinstance(source, str) else source.decode("latin-1")):
            note("never", event, str(source)[:200])

from barnabas.ui.cli.command_line import make_app
from barnabas.captures import open_capture
from barnabas.captures.serving.answers import DelayedReply, NotRecorded, LiveSession
from barnabas.captures.serving.engine import Engine
from barnabas.decoder import DecodeError
import barnabas.captures.export, pyarrow.parquet, numpy  # what libraries do when they are loaded is not the capture's
make_app()  # with the modules of all commands
sys.addaudithook(hook)
for words in json.loads(sys.argv[2]):
    try:
        make_app(words[:1])(words, standalone_mode=False)
    except SystemExit:
        pass
    except BaseException as error:
        note("failed", " ".join(words), type(error).__name__, str(error))

def serve(path):  # the recording as a broker, asked everything that was asked
    served = 0
    with open_capture(path) as capture:
        engine, session = Engine(capture.exchanges()), LiveSession(1, "127.0.0.1")
        for now, exchange in enumerate(capture.exchanges()):
            try:
                ask = engine.read(session, exchange.request, now, now)
                reply = engine.answer(ask)
                if isinstance(reply, DelayedReply):
                    reply = reply.poll(reply.deadline, True)
                served += reply is not None and engine.encode(ask, reply) is not None
            except (NotRecorded, DecodeError):
                pass
    note("served", str(served))

serve(sys.argv[3])
# not ru_maxrss, which begins with that of the process that started this one
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
note("memory", str(int(peak) >> 10))
"""


OWN, FOREIGN = "recording", "a;touch pwned;$(touch pwned).pcap"


@pytest.mark.parametrize("name", [OWN, pytest.param(FOREIGN, marks=pytest.mark.slow)], ids=["own", "foreign"])
def test_nothing_runs_and_nothing_is_written_elsewhere(hostile: Path, tmp_path: Path, name: str) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (tmp_path / "tmp").mkdir()
    commands = []
    capture = str(hostile / name)
    commands += [
        ["decode", capture],
        ["decode", capture, "--json", "--show-values"],
        ["decode", capture, "--filter", "topic contains pwned"],
        ["ui", capture],
        ["findings", capture, "--json"],
        ["versions", capture],
        ["compat", capture, "--against", "4.0", "--html", f"{out}/compat.html"],
        ["diff", capture, capture, "--html", f"{out}/diff.html"],
        ["replay", capture, "--dry-run", "--broker", "127.0.0.1:9"],
        ["filter", "try", capture, "--filter", "err"],
    ]
    for table in tables.DESCRIBED:
        form = ("jsonl", "csv", "parquet")[len(commands) % 3]
        commands.append(["export", capture, "-t", table, "--show-values", "-o", f"{out}/{table}.{form}"])
    for form in ("python", "pytest", "hex", "json", "text"):
        commands.append(["export", capture, "--exchange", "3", "--as", form, "-o", f"{out}/one.{form}"])
    commands.append(["import", str(hostile / FOREIGN), "-o", f"{out}/imported"])
    commands.append(["decode", f"{out}/imported", "--json"])
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(tmp_path / "tmp"), "HOME": str(tmp_path)}
    (tmp_path / "watch.py").write_text(WATCH)
    done = subprocess.run(
        [sys.executable, "watch.py", "report", json.dumps(commands), str(hostile / "recording")],
        cwd=tmp_path, env=environment, capture_output=True, timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    report = [json.loads(line) for line in (tmp_path / "report").read_text().splitlines()]
    asked_for = "('127.0.0.1', 9)"  # where the replay was asked to look for versions
    assert [words for words in report if words[0] == "never" and asked_for not in words[2]] == []
    assert [words for words in report if words[0] == "failed"] == []
    written = {path for words in report if words[0] == "write" for path in words[1:]}
    allowed = (f"{out}/", f"{tmp_path}/tmp/", "/dev/null", "/proc/self/fd/")
    assert len(written) > 20 and not [path for path in written if not os.path.realpath(path).startswith(allowed)], (
        written
    )
    assert not [path for path in (*tmp_path.rglob("*"), *hostile.rglob("*")) if path.name == "pwned"]
    assert not Path("/tmp/pwned").exists() and list((tmp_path / "tmp").iterdir()) == []
    assert all(set(path.name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-.") for path in out.rglob("*"))
    assert [int(words[1]) > 30 for words in report if words[0] == "served"] == [True]
    (memory,) = (int(words[1]) for words in report if words[0] == "memory")
    assert memory < 700, f"{memory} MiB for a capture of {BOMB_BYTES >> 20} MiB of nothing"
    assert not done.stdout.translate(None, b"\n").translate(None, bytes(range(32, 256))), (
        "control characters on the screen"
    )


@pytest.mark.parametrize("form", ["gzip", "zstd"])
def test_a_capture_that_unpacks_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    monkeypatch.setattr(sources, "_FREE", 1 << 20)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    head = bytes.fromhex("4d3cb2a1020004000000000000000000ffff000001000000")
    data = head + bytes(64 << 20)
    if form == "gzip":
        packed = zlib.compressobj(9, wbits=31)
        (tmp_path / "bomb.pcap.gz").write_bytes(packed.compress(data) + packed.flush())
        with open_capture(tmp_path / "bomb.pcap.gz") as capture:
            assert "unpacks to more than 250 times its size" in str(capture.note)
            assert os.fstat(capture.segments[0]._file.fileno()).st_size < 20 << 20
        return
    import cramjam

    whole = bytes(cramjam.zstd.compress(data))
    for packed_bytes in (whole, whole[:-5]):
        (tmp_path / "bomb.pcap.zst").write_bytes(packed_bytes)
        with pytest.raises(NotACapture, match="unpacks to more than 250 times its size"):
            open_capture(tmp_path / "bomb.pcap.zst")


def test_a_capture_names_no_file(tmp_path: Path) -> None:
    """The names of the recording and the segment are read as digits; anything else makes it somebody else's capture."""
    recorder = Recorder(tmp_path / "r")
    recorder.opened(1, 1000, ("127.0.0.1", 1), ("127.0.0.1", 9092))
    recorder.data(1, 0, 2000, with_size(decoder.encode_request(12, 0, {}, correlation_id=1)))
    recorder.close()
    segment = next((tmp_path / "r").glob("*.pcapng"))
    data = segment.read_bytes()
    at = data.index(b"recording ") + 10
    for name in (b"../../../../../../tmp/pwned", b"/" * 32, b"a" * 31 + b"\0"):
        (tmp_path / "evil.pcapng").write_bytes(data[:at] + name.ljust(32, b"x")[:32] + data[at + 32 :])
        (found,) = tables.find_segments(tmp_path / "evil.pcapng").segments
        assert found.foreign and set(found.key) <= set("0123456789abcdef-")  # a name made of its bytes, not by them
        (batch,) = tables.exchanges(tmp_path / "evil.pcapng")
        assert batch.to_pylist()[0]["capture_id"] == "evil.pcapng"
