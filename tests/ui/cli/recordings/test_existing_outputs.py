"""What every command does when its output exists: it refuses, and says how it would go on; --force replaces, --append adds."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from barnabas.captures import open_capture
from barnabas.ui.cli import COMMANDS
from barnabas.ui.cli.command_line import make_app
from harness.commands import run
from harness.recordings import as_pcap

REPORTS = {
    "findings": ("--html", "out.html"),
    "audit": ("--html", "out.html"),
    "compat": ("--against", "4.3", "--html", "out.html"),
    "compat --md": ("--against", "4.3", "--md", "out.md"),
    "diff": ("--html", "out.html"),
    "export": ("-o", "out.jsonl"),
    "schema show": ("Metadata", "--html", "out.html"),
}
RECORDINGS = {"redact": ("-o", "out"), "cut": ("--filter", "latency >= 0", "-o", "out"), "merge": ("-o", "out"), "import": ("-o", "out")}
GOES_ON = {"proxy", "pipeline run", "pipeline stream", "demo", "ui"}
"""These add to what is there: a service that starts again must not fail, and the pipeline reads each capture once."""
ELSEWHERE = {"report", "replay", "sniff", "schema import"}
"""They need other packages, a broker, root's rights or Kafka's jars: of these only the refusal is checked here."""

Inputs = dict[str, tuple[Path, ...]]


@pytest.fixture
def inputs(recording: Path, tmp_path: Path) -> Inputs:
    pcap = as_pcap(recording, tmp_path / "capture.pcap")
    return {"diff": (recording, recording), "merge": (recording,), "import": (pcap,), "schema show": ()}


def called(name: str, words: tuple[str, ...], inputs: Inputs, recording: Path, folder: Path, *more: str) -> Any:
    command = name.removesuffix(" --md")
    return run(*command.split(), *inputs.get(command, (recording,)), *words, *more, cwd=folder)


@pytest.mark.parametrize(("name", "words"), [*REPORTS.items(), *RECORDINGS.items()])
def test_an_existing_output_is_refused_and_replaced_on_demand(
    name: str, words: tuple[str, ...], recording: Path, tmp_path: Path, inputs: Inputs
) -> None:
    first = called(name, words, inputs, recording, tmp_path)
    assert first.returncode == 0, first.stderr
    target = tmp_path / words[-1]
    assert target.exists()
    mark = next(target.glob("*.pcapng")) if target.is_dir() else target
    before = mark.read_bytes()

    again = called(name, words, inputs, recording, tmp_path)
    assert again.returncode == 2 and again.stdout == ""
    assert again.stderr.count("\n") == 1 and f"{words[-1]} already exists: give another name, " in again.stderr
    assert "--force to replace it" in again.stderr and ("--append" in again.stderr) is (name == "import")
    assert mark.read_bytes() == before

    if target.is_file():
        target.write_bytes(b"old")
    replaced = called(name, words, inputs, recording, tmp_path, "--force")
    assert replaced.returncode == 0, replaced.stderr
    if target.is_dir():
        assert len(list(target.glob("*.pcapng"))) == 1
    else:
        assert mark.read_bytes() != b"old"


@pytest.mark.parametrize(("name", "words"), RECORDINGS.items())
def test_an_empty_directory_is_free(name: str, words: tuple[str, ...], recording: Path, tmp_path: Path, inputs: Inputs) -> None:
    (tmp_path / "out").mkdir()
    done = called(name, words, inputs, recording, tmp_path)
    assert done.returncode == 0, done.stderr


def test_import_appends(recording: Path, tmp_path: Path, inputs: Inputs) -> None:
    words = RECORDINGS["import"]
    assert called("import", words, inputs, recording, tmp_path).returncode == 0
    with open_capture(tmp_path / "out") as capture:
        once = len(capture.rows())
    assert called("import", words, inputs, recording, tmp_path, "--append").returncode == 0
    with open_capture(tmp_path / "out") as capture:
        assert len(capture.rows()) == 2 * once > 0
    both = called("import", words, inputs, recording, tmp_path, "--append", "--force")
    assert both.returncode == 2 and "only one of them" in both.stderr


def test_a_report_asks_first(recording: Path, tmp_path: Path) -> None:
    (tmp_path / "csv").mkdir()
    (tmp_path / "csv" / "versions.csv").write_text("old")
    for words in (("--csv", "csv"), ("--html", "csv/versions.csv")):
        done = run("report", recording, *words, cwd=tmp_path)
        assert done.returncode == 2 and "csv/versions.csv already exists" in done.stderr
    assert (tmp_path / "csv" / "versions.csv").read_text() == "old"


def test_a_replay_asks_before_it_sends(recording: Path, tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text("old")
    done = run("replay", recording, "--broker", "127.0.0.1:9", "-o", "report.json", cwd=tmp_path)
    assert done.returncode == 2 and "report.json already exists" in done.stderr


def test_sniff_and_schema_import_ask_first(recording: Path, tmp_path: Path) -> None:
    shutil.copytree(recording, tmp_path / "out")
    done = run("sniff", "-i", "lo", "-o", "out", "--seconds", "0", cwd=tmp_path)
    assert done.returncode == 2 and "out already exists" in done.stderr and "--append" in done.stderr
    done = run("schema", "import", "kafka.jar", "-o", "out", cwd=tmp_path)
    assert done.returncode == 2 and "out already exists" in done.stderr


def test_standard_output_and_devices_are_written_to(recording: Path, tmp_path: Path) -> None:
    for _ in range(2):
        assert run("findings", recording, "--html", "/dev/null", cwd=tmp_path).returncode == 0
        assert run("export", recording, "-o", "-", cwd=tmp_path).returncode == 0


def leaves(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "commands"):
        yield name, command
        return
    for word, each in command.commands.items():
        yield from leaves(each, f"{name} {word}".strip())


def test_every_command_with_an_output_has_the_option() -> None:
    """A new command with an output must choose: --force, or to go on with what is there."""
    outputs = {"--output", "--html", "--csv", "--md", "--record"}
    writing = {
        path: options
        for name in COMMANDS
        for path, command in leaves(typer.main.get_command(make_app([name])), "")
        if (options := {word for option in command.params for word in option.opts}) & outputs
    }
    assert writing.keys() == {*(name.removesuffix(" --md") for name in REPORTS), *RECORDINGS, *GOES_ON, *ELSEWHERE}
    assert {path for path, options in writing.items() if "--force" not in options} == GOES_ON
    assert {path for path, options in writing.items() if "--append" in options} == {"import", "sniff"}
