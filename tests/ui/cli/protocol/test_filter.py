"""``barnabas filter`` and ``barnabas decode --filter``, as a user calls them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from barnabas.decoder.filter import FIELDS, compile

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_fields_lists_the_catalogue(run: Run) -> None:
    done = run("filter", "fields")
    assert done.returncode == 0
    for field in FIELDS:
        assert field.meaning in done.stdout and field.example in done.stdout
    listed = [json.loads(line) for line in run("filter", "fields", "--json").stdout.splitlines()]
    assert [each["name"] for each in listed] == [field.name for field in FIELDS]
    assert set(listed[0]) == {"name", "type", "meaning", "synonyms", "example", "needs", "many"}
    for each in listed:
        compile(each["example"])


def test_check_reports_what_has_to_be_read(run: Run, recording: Path) -> None:
    for text, reads in (
        ("err != 0 and latency > 5ms", "decided by the index"),
        ("api == Produce and topic == orders", "decodes requests and responses of Produce; once, as names are remembered\n"),
        ("api == Produce and partition == 1", "decodes requests and responses of Produce\n"),
        ("err or not topic == a", "decodes requests and responses of all exchanges"),
        ("software contains java", "report when they connect"),
    ):
        done = run("filter", "check", text)
        assert done.returncode == 0 and done.stdout.startswith("ok: ") and reads in done.stdout
    done = run("filter", "try", recording, "--filter", "api == Produce and topic == orders")
    assert done.stdout.splitlines() == ["2 of 4 exchanges, 2 read"]
    assert run("filter", "try", recording, "--filter", "err").stdout == "1 of 4 exchanges\n"


def test_a_missing_capture(run: Run) -> None:
    done = run("filter", "try", "nowhere", "--filter", "err")
    assert done.returncode == 2 and "does not exist" in done.stderr


SELECTED = [
    ("api == Produce", [1, 3]),
    ("err == REBALANCE_IN_PROGRESS", [2]),
    ("api == Produce and topic == orders and partition == 3", [1, 3]),
    ("topic == orders and partition == 4", []),
    ("acks == 0 or group == g", [2, 3]),
    ("not paired", [3, 4]),
    ('"ORDERS"', [1, 3]),
    ("client == shop", [1, 2, 3, 4]),
]


@pytest.mark.parametrize(("text", "expected"), SELECTED)
def test_decode_prints_what_is_selected(run: Run, recording: Path, text: str, expected: list[int]) -> None:
    everything = {
        json.loads(line)["correlation_id"]: line for line in run("decode", recording, "--json").stdout.splitlines()
    }
    done = run("decode", recording, "--json", "--filter", text)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [everything[number] for number in expected]

    lines = run("decode", recording).stdout.splitlines()
    done = run("decode", recording, "--filter", text)
    assert done.returncode == 0
    kept = [line for line in lines[1:] if any(line.split()[0] == str(n) for n in numbers_of(lines, expected))]
    assert done.stdout.splitlines() == [lines[0], *kept]


def numbers_of(lines: list[str], correlation_ids: list[int]) -> list[str]:
    """Lines come in the order of the requests, and so do the correlation ids of the recording."""
    return [lines[correlation_id].split()[0] for correlation_id in correlation_ids]
