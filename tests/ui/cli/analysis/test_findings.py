"""``barnabas findings`` as a user runs it, and what the proxy prints of findings."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import shlex
import socket
import stat
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from barnabas import decoder
from barnabas.captures import Recorder
from barnabas.decoder.findings import detectors
from barnabas.ui.cli.common.progress import Progress
from harness import wire
from harness.browsing.html_page import Page
from harness.run.slices import slow
from harness.waiting import PATIENCE
from harness.wire import with_size

NOW = 1_795_223_022_000_000_000
LONG_AGO = 1_000_000_000_000_000_000
MALFORMED = "malformed-api-versions-fallback"
WRONG = b"\x00\x23" + bytes(15)
"""UNSUPPORTED_VERSION in a body of no known version."""
FILES = Path(__file__).parents[3] / "decoder" / "findings" / "captures"


def refuse(recorder: Recorder, number: int, client_id: str = "shop", connection: int = 1) -> None:
    """One ApiVersions exchange with a refusal that no client can read."""
    time_ns = NOW + number * 1_000_000
    asked = decoder.encode_request(18, 3, {}, correlation_id=number, client_id=client_id)
    recorder.data(connection, 0, time_ns, with_size(asked))
    recorder.data(connection, 1, time_ns + 1000, with_size(number.to_bytes(4, "big") + WRONG))


def record(directory: Path, client_id: str = "shop", count: int = 3) -> Recorder:
    recorder = Recorder(directory, flush_seconds=0)
    recorder.opened(1, NOW, client=("10.0.0.5", 50001), broker=("10.0.0.9", 9092))
    for number in range(1, count + 1):
        refuse(recorder, number, client_id)
    recorder.flush()
    return recorder


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    """A recording with three refusals in it."""
    record(tmp_path / "wrong").close()
    return tmp_path / "wrong"


def test_a_finding_with_its_evidence(run, wrong):
    done = run("findings", wrong)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "" and "\x1b" not in done.stdout
    sentence, counts, first = done.stdout.split("\n\n")[:3]
    assert re.fullmatch(
        r"Client 'shop' fails at ApiVersions v3 since 20\S+ \S+Z, 3 times\. Likeliest cause: broker \S+ refuses .*\.", sentence
    )
    assert re.fullmatch(r"\d+ findings? in 3 exchanges on 1 connection: 1 high.*", counts)
    block = first.splitlines()
    assert re.fullmatch(rf"HIGH   {MALFORMED}  3 times  20\d\d-\d\d-\d\d [0-9:.]+ to [0-9:.]+Z", block[0])
    assert [line[2:10].strip() for line in block[1:]] == ["seen", "why", "do", "such as", "", "", "open", "layout"]
    assert "10.0.0.9:9092 refuses ApiVersions v3" in block[1]
    assert "KIP-511" in block[2]
    for number, shown in enumerate(block[4:7], 1):
        assert re.search(
            rf"\d\d\.00{number}Z  conn 1  ApiVersions v3  corr {number}  'shop'  UNSUPPORTED_VERSION$", shown
        )


def test_the_command_printed_with_evidence_opens_it(run, wrong):
    line = next(line for line in run("findings", wrong).stdout.splitlines() if line.startswith("  open"))
    command = line.removeprefix("  open    ")
    assert command == f"barnabas decode {wrong} --filter 'conn == 1 and corr in {{1, 2, 3}}'"
    done = run(*shlex.split(command)[1:])
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("ApiVersions") == 3


def test_the_command_printed_with_it_shows_the_layout(run, wrong):
    line = next(line for line in run("findings", wrong).stdout.splitlines() if line.startswith("  layout"))
    assert line == "  layout  barnabas schema show ApiVersions 3"
    assert "client_software_name" in run(*shlex.split(line)[2:]).stdout


def test_json_is_one_document(run, wrong):
    done = run("findings", wrong, "--json")
    document = json.loads(done.stdout)
    assert document["capture"] == str(wrong)
    assert document["notes"] == []
    (found,) = (f for f in document["findings"] if f["id"] == MALFORMED)
    assert (found["severity"], found["count"], len(found["exchanges"])) == ("high", 3, 3)
    assert found["about"]["api"] == "ApiVersions"
    assert found["exchanges"][0]["correlation_id"] == 1
    counts = document["counts"]
    assert counts["high"] == 1 and counts["exchanges"] == 3 and counts["connections"] == 1
    assert counts["lost_bytes"] == 0
    severities = ["high", "medium", "low", "info"]
    ranks = [severities.index(f["severity"]) for f in document["findings"]]
    assert ranks == sorted(ranks)


def test_several_captures(run, wrong, recording):
    done = run("findings", wrong, recording, "--json")
    first, second = json.loads(done.stdout)["captures"]
    assert first["capture"] == str(wrong) and second["capture"] == str(recording)
    assert second["counts"]["high"] == 0
    text = run("findings", wrong, recording).stdout
    assert text.index(f"== {wrong}") < text.index(MALFORMED) < text.index(f"== {recording}")


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ([], 0),
        (["--fail-on", "high"], 1),
        (["--fail-on", "info"], 1),
        (["--fail-on", "high", "--only", "surplus-bytes"], 0),
        (["--fail-on", "high", "--exclude", MALFORMED], 0),
        (["--fail-on", "high", "--json"], 1),
    ],
)
def test_exit_status(run, wrong, options, status):
    done = run("findings", wrong, *options)
    assert done.returncode == status, done.stderr


def test_selection(run, wrong):
    def ids(*options: str) -> set[str]:
        return {f["id"] for f in json.loads(run("findings", wrong, "--json", *options).stdout)["findings"]}

    everything = ids()
    assert MALFORMED in everything
    assert ids("--only", f"{MALFORMED},surplus-bytes") == {MALFORMED}
    assert ids("--exclude", MALFORMED) == everything - {MALFORMED}
    assert ids("--min-severity", "high") == {MALFORMED}


def test_a_filter_gives_the_findings_of_that_part(run, wrong, tmp_path):
    whole = json.loads(run("findings", wrong, "--json").stdout)
    part = json.loads(run("findings", wrong, "--filter", "client == nobody", "--json").stdout)
    assert whole["findings"] and not part["findings"] and part["counts"]["exchanges"] == 0
    wanted = "client == shop"
    assert run("cut", wrong, "-o", tmp_path / "part", "--filter", wanted).returncode == 0
    part = json.loads(run("findings", wrong, "--filter", wanted, "--json").stdout)
    cut = json.loads(run("findings", tmp_path / "part", "--json").stdout)
    assert part["counts"]["exchanges"] > 0
    assert (part["findings"], part["counts"]) == (cut["findings"], cut["counts"])
    assert "one of them" in run("findings", wrong, "--filter", wanted, "--follow").stderr


def test_the_list_of_detectors(run):
    lines = run("findings", "--list").stdout.splitlines()
    assert len(lines) == len(detectors())
    assert any(re.match(rf"high   {MALFORMED}  +a broker refuses", line) for line in lines)
    rows = json.loads(run("findings", "--list", "--json").stdout)
    assert {row["id"] for row in rows} == {kind.id for kind in detectors()}


def test_nothing_found(run, recording):
    done = run("findings", recording, "--only", MALFORMED, "--fail-on", "info")
    assert done.returncode == 0
    assert done.stdout == "nothing found in 3 exchanges on 1 connection by 1 detector\n"


def test_a_torn_tail_and_losses_are_reported(run, tmp_path):
    recorder = record(tmp_path / "rec")
    recorder.lost(1, 0, 4321)
    refuse(recorder, 9)
    recorder.close()
    (path,) = (tmp_path / "rec").glob("*.pcapng")
    path.write_bytes(path.read_bytes()[:-30])
    done = run("findings", tmp_path / "rec")
    assert done.returncode == 0
    assert "barnabas: 4321 bytes are missing from connections" in done.stderr
    assert "ends in the middle of a block" in done.stderr
    assert len(json.loads(run("findings", tmp_path / "rec", "--json").stdout)["notes"]) == 2


HOSTILE = "\x1b]52;c;ZXZpbA==\x07\x1b[2J\u202eevil\x9b31m"


def on_a_terminal(command: list[str], tmp_path: Path, **environment: str) -> str:
    """What a command writes to a terminal of 100 columns, stdout and stderr."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    env = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR")}
    env |= {"TERM": "xterm-256color", **environment}
    process = subprocess.Popen(
        [sys.executable, "-m", "barnabas", *command], stdin=theirs, stdout=theirs, stderr=theirs, cwd=tmp_path, env=env
    )
    os.close(theirs)
    written = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        written += part
    os.close(ours)
    assert process.wait(PATIENCE) == 0
    return written.decode()


COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def test_a_terminal_gets_colours_where_they_are_wanted_and_nothing_of_the_traffic_as_a_command(run, tmp_path):
    record(tmp_path / "rec", HOSTILE).close()
    to_a_file = run("findings", tmp_path / "rec").stdout
    with_colours = on_a_terminal(["findings", "rec"], tmp_path)
    without = on_a_terminal(["findings", "rec"], tmp_path, NO_COLOR="1")
    assert "\x1b[1;31mHIGH" in with_colours and "\x1b" not in without + to_a_file
    for output in (to_a_file, with_colours, without):
        rest = COLOURS.sub("", output).replace("\r\n", "\n")
        assert MALFORMED in rest
        assert "evil" in rest
        assert not [letter for letter in rest if not letter.isprintable() and letter != "\n"]


def test_follow_prints_what_is_new(start, tmp_path):
    recorder = record(tmp_path / "rec", count=0)
    command = start("findings", "rec", "--follow", "--only", MALFORMED)
    assert "following rec" in command.line("the title", errors=True)
    refuse(recorder, 1)
    recorder.flush()
    assert command.line("the finding").startswith(f"high   {MALFORMED}: broker 10.0.0.9:9092 refuses")
    assert command.line("what to do").startswith("       do: use a broker")
    refuse(recorder, 2)
    recorder.close()
    assert command.line("the second").startswith(f"high   {MALFORMED} x2: ")
    assert command.process.poll() is None
    done = command.end()
    assert done.returncode == 0, done.stderr
    assert "1 finding in 2 exchanges on 1 connection: 1 high" in done.stdout


def test_follow_reports_what_a_broker_ended_while_the_clients_stay(start, tmp_path):
    recorder = Recorder(tmp_path / "rec", flush_seconds=0)
    command = start("findings", "rec", "--follow", "--only", "closed-on-first-request")
    assert "following rec" in command.line("the title", errors=True)
    for number in (1, 2, 3):
        recorder.opened(number, LONG_AGO, ("10.0.0.1", 50000 + number), ("10.0.0.9", 9092))
        recorder.data(number, 0, LONG_AGO + 1, wire.request(18, 0, 1))
        recorder.ended(number, 1, LONG_AGO + 2)
    recorder.flush()
    assert command.line("the finding").startswith("high   closed-on-first-request x3: broker 10.0.0.9:9092 closes")
    assert command.line("what to do").startswith("       do: ")
    recorder.close()
    assert command.end().returncode == 0


@pytest.fixture
def refusing() -> Iterator[tuple[str, int]]:
    """A broker that answers each request with a refusal that no client can read."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                sock, _ = server.accept()
            except OSError:
                return
            with sock:
                while len(head := sock.recv(4)) == 4:
                    frame = sock.recv(int.from_bytes(head, "big"))
                    sock.sendall(with_size(frame[4:8] + WRONG))

    threading.Thread(target=serve, daemon=True).start()
    yield server.getsockname()[:2]
    server.close()


@pytest.mark.parametrize("form", ["text", slow("json")])
def test_the_proxy_prints_them_as_they_come(start, refusing, form):
    options = ["--json"] if form == "json" else []
    to = ("--broker", f"{refusing[0]}:{refusing[1]}", "--listen", "127.0.0.1:0")
    command = start("proxy", *to, "--findings", "--record", "rec", *options)
    first = command.line("where it listens")
    port = json.loads(first)["address"][1] if form == "json" else int(first.rsplit(":", 1)[1])
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as client:
        client.sendall(with_size(decoder.encode_request(18, 3, {}, correlation_id=1, client_id=HOSTILE)))
        assert client.recv(100)
        while MALFORMED not in (output := command.line("the finding")):
            pass
        if form == "json":
            event = json.loads(output)
            assert (event["event"], event["finding"], event["count"]) == ("FindingSeen", MALFORMED, 1)
        else:
            assert re.match(rf"20\d\d-\d\d-\d\d \d\d:\d\d:\d\dZ high   {MALFORMED}: broker ", output)
            assert command.line("what to do").startswith("                do: use a broker")
    done = command.end()
    assert done.returncode == 0, done.stderr
    # null where a list should be is a finding, and nothing to trip over
    assert "passed unchanged" not in done.stderr + done.stdout and "\x1b" not in done.stdout
    if form == "text":
        assert re.search(rf"found in this run: \d+\n  high   {MALFORMED}: ", done.stdout)
        assert "barnabas findings rec" in done.stdout


def test_progress_is_a_line_with_bytes_and_time_left():
    progress = Progress("capture\x1b[2J")
    assert progress.line(25_000_000, 100_000_000, 2.0) == "capture\\x1b[2J: 25.0 of 100.0 MB 25%, 6 s left"
    assert progress.line(25_000_000, 0, 2.0, "7 exchanges") == "capture\\x1b[2J: 25.0 MB, 7 exchanges"


def test_progress_shows_on_a_terminal_after_a_second(tmp_path):
    program = (
        "import time\nfrom barnabas.ui.cli.common.progress import Progress\n"
        "with Progress('x') as p:\n    p.show(1, 2)\n    time.sleep(1.1)\n    p.show(1, 2)\n"
    )
    (tmp_path / "slow.py").write_text(program)
    quiet = subprocess.run([sys.executable, "slow.py"], cwd=tmp_path, capture_output=True, text=True)
    assert quiet.stdout == quiet.stderr == "" and quiet.returncode == 0
    ours, theirs = pty.openpty()
    subprocess.run([sys.executable, "slow.py"], cwd=tmp_path, stderr=theirs, check=True)
    os.close(theirs)
    shown = os.read(ours, 4096).decode()
    os.close(ours)
    assert shown.count("x: 0.0 of 0.0 MB 50%") == 1
    assert shown.endswith("\r\x1b[K")


@pytest.mark.parametrize("path", sorted(FILES.glob("*.pcapng"))[:3], ids=lambda path: path.stem)
def test_recorded_traffic_in_both_forms(run, path):
    document = json.loads(run("findings", path, "--json").stdout)
    text = run("findings", path).stdout
    for found in document["findings"]:
        assert f"{found['severity'].upper():6} {found['id']}  " in text


def test_the_page_has_each_finding_with_evidence_and_remedy(run, wrong, tmp_path):
    file = tmp_path / "page.html"
    done = run("findings", wrong, FILES / "groups-stopped.pcapng", "--html", file)
    page = Page(file.read_text("utf-8"))
    assert done.returncode == 0 and not {"script", "link", "img"} & set(page.tags) and stat.S_IMODE(file.stat().st_mode) == 0o600
    printed = [line.split()[1] for line in done.stdout.splitlines() if re.match(r"(HIGH|MEDIUM|LOW|INFO) ", line)]
    assert printed and all(f"{id_}: " in page.text for id_ in printed) and page.tags.count("details") == len(printed)
    for line in done.stdout.splitlines():
        label, _, words = line.strip().partition(" ")
        if label in ("seen", "why", "do", "open", "layout"):
            assert words.strip() in page.text


def test_client_ids_on_the_page_are_text(run, tmp_path):
    record(tmp_path / "evil", "<script>alert(1)</script>\x1b[31m").close()
    assert run("findings", tmp_path / "evil", "--html", tmp_path / "page.html").returncode == 0
    text = (tmp_path / "page.html").read_text("utf-8")
    assert "script" not in Page(text).tags and "<script>alert(1)</script>\\x1b[31m" in Page(text).text and "\x1b" not in text


def test_a_page_of_a_capture_without_end_is_refused(run, wrong, tmp_path):
    done = run("findings", wrong, "--follow", "--html", tmp_path / "page.html")
    assert done.returncode == 2 and "--follow never reaches the end" in done.stderr and not (tmp_path / "page.html").exists()
