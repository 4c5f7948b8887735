"""Commands that read messages get through recordings with nulls that are forbidden, and with tagged fields nobody knows."""

from __future__ import annotations

from pathlib import Path

import pytest
from barnabas.captures import Recorder
from barnabas.decoder.schema import facts
from harness.wire import with_size
from traffic.unusual_messages import SECOND, START_NS, nulls, unusual, usual

APIS = ("ApiVersions", "Metadata", "Produce", "Fetch", "JoinGroup")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of the oldest and the newest version of common APIs, with one thing unusual in each message."""
    directory = tmp_path_factory.mktemp("unusual") / "recording"
    recorder = Recorder(directory)
    number = 0
    for name in APIS:
        key = facts.api_key(name)
        versions = facts.api(key).versions.every()
        for version in (versions[0], versions[-1]):
            for side, kind in enumerate(("request", "response")):
                for message in (*unusual(kind, key, version), *nulls(kind, key, version)):
                    if name == "Produce" and side == 0 and message.values[-3] == 0:
                        continue  # acks=0
                    number += 1
                    pair = [usual("request", key, version), usual("response", key, version)]
                    pair[side] = message
                    now = START_NS + number * SECOND
                    recorder.opened(number, now, client=("10.1.2.3", 50001), broker=("10.1.2.9", 9092))
                    for direction, each in enumerate(pair):
                        recorder.data(number, direction, now + direction, with_size(each.frame(number)))
                    recorder.closed(number, now + 2, "fin")
    recorder.close()
    return directory


COMMANDS = [["versions"], ["versions", "--json"], ["compat", "--against", "4.1"], ["compat", "--json", "--against", "4.1"], ["findings"]]


@pytest.mark.parametrize("arguments", COMMANDS)
def test_a_command_reads_unusual_messages(run, recorded: Path, arguments: list[str]) -> None:
    done = run(*arguments, recorded)
    assert "Traceback" not in done.stderr and done.returncode in (0, 1), done.stderr[-2000:]
    assert "detector-failed" not in done.stdout and done.stdout


def test_diff_reads_unusual_messages(run, recorded: Path) -> None:
    done = run("diff", recorded, recorded)
    assert "Traceback" not in done.stderr and done.returncode == 0, done.stderr[-2000:]
    assert "no differences other than those caused by timing" in done.stdout
