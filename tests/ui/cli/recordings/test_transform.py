"""``barnabas redact``, ``cut`` and ``merge`` as a user runs them."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from barnabas.captures import open_capture
from barnabas.captures.transform.write import Writer
from barnabas.decoder.connection.events import ConnectionEvent
from barnabas.ui.cli.common.failure import Failure
from harness import commands
from traffic.packets import as_pcap, traffic
from traffic.planted_names import KEY, PLANTED, TOPIC, record_planted
from typer.testing import Result

Run = Callable[..., subprocess.CompletedProcess[str]]
Invoke = Callable[..., Result]
CAPTURES = Path(__file__).parents[3] / "decoder" / "findings" / "captures"
GROUPS = CAPTURES / "groups-killed.pcapng"


@pytest.fixture
def barnabas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """The command in this process, in an empty directory."""
    monkeypatch.chdir(tmp_path)
    return commands.here


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("planted") / "recording"
    record_planted(directory)
    return directory


def test_redact_everything(run: Run, planted: Path, tmp_path: Path) -> None:
    done = run("redact", planted, "-o", "out", "--salt", "mine")
    assert done.returncode == 0, done.stderr
    assert "verified: 0 of" in done.stderr
    assert "blanked, because its content is unknown" in done.stderr
    assert "next: barnabas ui out" in done.stderr
    for file in (tmp_path / "out").iterdir():
        assert file.stat().st_mode & 0o777 == 0o600
        data = file.read_bytes()
        assert not [name for name in PLANTED if name in data]
        assert b"mine" not in data  # the salt
    assert run("decode", "out").returncode == 0
    assert json.loads((tmp_path / "out" / "origin.json").read_text())["made_by"] == "barnabas redact"


def test_redact_into_one_file_and_json(barnabas: Invoke, planted: Path, tmp_path: Path) -> None:
    (tmp_path / "salt").write_text("mine\n")
    done = barnabas("redact", planted, "-o", "a.pcapng", "--salt-file", "salt", "--json")
    summary = json.loads(done.stdout)
    assert done.stderr == ""
    assert summary["verified"]["left"] == 0
    assert summary["replaced"]["topics"] == 1  # Kafka's own topics keep their names
    assert summary["kinds"] == sorted(summary["kinds"])
    assert [path.name for path in tmp_path.iterdir() if "making" in path.name] == []
    barnabas("redact", planted, "-o", "b.pcapng", "--salt", "mine")
    with open_capture(tmp_path / "a.pcapng") as a, open_capture(tmp_path / "b.pcapng") as b:
        frames = [[(e.request, e.response) for e in capture.exchanges()] for capture in (a, b)]
    assert frames[0] == frames[1]


def test_redact_some_kinds(barnabas: Invoke, planted: Path, tmp_path: Path) -> None:
    done = barnabas("redact", planted, "-o", "out", "--keys", "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["kinds"] == ["keys"]
    with open_capture(tmp_path / "out") as capture:
        frames = b"".join((e.request or b"") + (e.response or b"") for e in capture.exchanges())
    assert TOPIC.encode() in frames
    assert KEY not in frames


def test_redact_a_compressed_capture_of_others(barnabas: Invoke, tmp_path: Path) -> None:
    (tmp_path / "a.pcap.gz").write_bytes(gzip.compress(as_pcap(traffic(3))))
    done = barnabas("redact", "a.pcap.gz", "-o", "out", "--json")
    assert json.loads(done.stdout)["exchanges"] > 50, done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("redact", "nowhere", "-o", "out"), "does not exist"),
        (("redact", GROUPS, "-o", "out", "--salt", ""), "the salt is empty"),
        (("redact", GROUPS, "-o", "out", "--salt", "a", "--salt-file", "b"), "not both"),
        (("redact", GROUPS, "-o", "out", "--salt-file", "b"), "cannot be read"),
        (("cut", "nowhere", "-o", "out"), "does not exist"),
        (("cut", GROUPS, "-o", "out", "--filter", "api =="), "^"),
        (("cut", GROUPS, "-o", "out", "--filter", "topic == nobodys"), "none of the 71 exchanges"),
        (("cut", GROUPS, "-o", "out", "--from", "tomorrow"), "a time looks like"),
        (("cut", GROUPS, "-o", "out", "--exchanges", "9-3"), "the first must not be above the last"),
        (("cut", GROUPS, "-o", "out", "--exchanges", "x"), "numbers look like"),
        (("cut", "-", "-o", "out"), "standard input"),
        (("merge", GROUPS, "nowhere", "-o", "out"), "does not exist"),
        (("merge", GROUPS, "-o", "out", "--shift", "other=+1s"), "not one of the captures"),
        (("merge", GROUPS, "-o", "out", "--shift", "groups-killed.pcapng=soon"), "give FILE="),
    ],
)
def test_an_error_is_reported_and_leaves_no_output(
    barnabas: Invoke, arguments: tuple[object, ...], message: str, tmp_path: Path
) -> None:
    done = barnabas(*arguments)
    assert isinstance(done.exception, Failure)
    assert message in str(done.exception)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten_unasked(barnabas: Invoke, tmp_path: Path) -> None:
    assert barnabas("cut", GROUPS, "-o", "out", "--exchanges", "1-5").exit_code == 0
    assert "--force" in str(barnabas("cut", GROUPS, "-o", "out").exception)
    assert barnabas("cut", GROUPS, "-o", "out", "--force").exit_code == 0
    assert "is the capture itself" in str(barnabas("redact", "out", "-o", "out", "--force").exception)
    with open_capture(tmp_path / "out") as capture:
        assert len(capture.rows()) == 71


def test_cut_and_merge(barnabas: Invoke, tmp_path: Path) -> None:
    assert "43 exchanges on 8 connections of 71" in barnabas("cut", GROUPS, "-o", "a", "--to", "+2s").stderr
    summary = json.loads(barnabas("cut", GROUPS, "-o", "b", "--from", "+2s", "--without-handshakes", "--json").stdout)
    assert (summary["selected"], summary["of"], summary["exchanges"]) == (28, 71, 28)
    done = barnabas("merge", "a", "b", "-o", "out", "--shift", "b=+1.5s", "--json")
    summary = json.loads(done.stdout)
    assert (summary["exchanges"], summary["connections"], summary["sources"], summary["renamed_clients"]) == (71, 10, 2, 2)
    origin = json.loads((tmp_path / "out" / "origin.json").read_text())
    assert [(s["file"], s["shift_ns"], len(s["connections"])) for s in origin["sources"]] == [
        ("a", 0, 8),
        ("b", 1_500_000_000, 2),
    ]
    one = barnabas("merge", "a", "b", "-o", "one.pcapng")
    assert one.exit_code == 0
    with open_capture(tmp_path / "one.pcapng") as capture:
        notes = [note for e in capture.exchanges() for note in e.marks.notes if note.startswith("from ")]
    assert len(notes) == 10
    assert "from b, connection 7" in notes


@pytest.mark.parametrize("command", ["redact", "cut", "merge"])
def test_an_interrupt_leaves_nothing(
    command: str, barnabas: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, written = Writer.write, []

    def interrupted(self: Writer, event: ConnectionEvent, source: int = 0) -> None:
        write(self, event, source)
        written.append(event)
        if len(written) == 20:
            os.kill(os.getpid(), signal.SIGTERM)  # as Ctrl-C: both end a command in order

    monkeypatch.setattr(Writer, "write", interrupted)
    arguments = (command, GROUPS, "-o", "out")
    assert barnabas(*arguments).exit_code in (1, 130)
    assert len(written) == 20
    assert list(tmp_path.iterdir()) == []
