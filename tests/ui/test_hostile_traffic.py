"""Traffic, and names of files, that hold control sequences: no command prints one."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from barnabas.ui import cli
from harness.browsing.hostile import MARK, SEQUENCES, obeyed, record


def printed(arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    monkeypatch.setattr(sys, "argv", ["barnabas", *arguments])
    try:
        cli.main()
    except SystemExit:
        pass
    out, err = capsys.readouterr()
    return out + err


def test_no_command_prints_what_a_terminal_obeys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record(tmp_path / "run")
    run = str(tmp_path / "run")
    for command in (
        ["decode", run, "--show-values"], ["decode", run, "--json", "--show-values"], ["findings", run], ["versions", run],
        ["ui", run, "--plain"], ["export", run, "-t", "exchanges"], ["export", run, "--exchange", "17", "--as", "python"],
        ["export", run, "--exchange", "17", "--as", "text", "--show-values"],
    ):  # fmt: skip
        text = printed(command, monkeypatch, capsys)
        assert obeyed(text.encode(errors="surrogatepass"), "\n") == [], command
        assert MARK in text, command  # it is there to be read


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_no_failure_prints_what_a_terminal_obeys(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names = ["".join(SEQUENCES[:12]).replace("\0", ""), os.fsdecode(b"\xff\xc2\x9b" + SEQUENCES[0].encode())]
    for name in names:
        text = printed([command, str(tmp_path / name)], monkeypatch, capsys)
        assert text and obeyed(text.encode(errors="surrogatepass"), "\n") == []
