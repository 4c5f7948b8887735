"""What `--barnabas-kafka` says where Java, Maven or the release is missing, and where it keeps what it fetches."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from barnabas.ui.testing import kafka_release, plugin
from barnabas.ui.testing.kafka import why_ended
from barnabas.ui.testing.kafka_release import KafkaFailed, cache_folder, release

pytest_plugins = ["pytester"]

MISSING = "[ERROR] Failed to execute goal: Could not find artifact org.apache.kafka:kafka_2.13:jar:9.9.9 in somewhere"
CUT_OFF = "[ERROR] Failed to execute goal: Could not transfer artifact: Connection refused"


def program(folder: Path, name: str, script: str = "") -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The only folder on the PATH; the cache and the current folder are others, all empty."""
    for name in ("bin", "cache", "here"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.chdir(tmp_path / "here")
    yield tmp_path / "bin"
    assert list((tmp_path / "here").iterdir()) == []


@pytest.mark.parametrize(
    ("programs", "version", "message"),
    [
        ({}, "4.4.0", "no java in JAVA_HOME or on the PATH: install Java 17 or newer"),
        ({"java": ""}, "4.4.0", "there is no mvn on the PATH to fetch it: install Maven"),
        ({"java": ""}, "4.3", "'4.3' is not a release of Apache Kafka: write all three numbers, as in 4.4.0"),
        ({"java": ""}, "../../4.4.0", "is not a release of Apache Kafka"),
        ({"java": ""}, "0.9.0", "the oldest is 3.9.0"),
        ({"java": "", "mvn": f"echo '{MISSING}'; exit 1"}, "9.9.9", "Maven cannot find Apache Kafka 9.9.9 .*: give a released version"),
        ({"java": "", "mvn": f"echo '{CUT_OFF}'; exit 1"}, "4.4.0", "cannot fetch .*is its repository reachable.*Connection refused"),
    ],
)
def test_a_missing_program_is_reported_with_the_next_step(path: Path, programs: dict[str, str], version: str, message: str) -> None:
    for name, script in programs.items():
        program(path, name, script)
    with pytest.raises(KafkaFailed, match=message):
        release(version)
    left = [found.name for found in cache_folder().rglob("*")] if cache_folder().exists() else []
    assert left in ([], [f"{version}.lock"])


def test_jars_come_once_and_into_the_users_cache(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program(path, "java")
    copying = 'for each; do case $each in -DoutputDirectory=*) to=${each#*=};; esac; done; /bin/mkdir "$to"; echo > "$to/kafka_2.13-4.4.0.jar"'
    program(path, "mvn", f'{copying}; echo "$PWD $@" >> {tmp_path}/asked; while [ "$1" != -f ]; do shift; done; /bin/cat "$2" >> {tmp_path}/asked')
    for _ in range(2):
        assert release("4.4.0").folder == tmp_path / "cache" / "barnabas" / "kafka" / "4.4.0"
    asked = (tmp_path / "asked").read_text()
    assert asked.count("copy-dependencies") == 1 and "<version>4.4.0</version>" in asked
    assert asked.startswith(str(tmp_path / "cache"))  # Maven looks for settings in the folder that it runs in
    assert capsys.readouterr().out.count("fetching Apache Kafka 4.4.0") == 1
    assert sorted(each.name for each in cache_folder().iterdir()) == ["4.4.0", "4.4.0.lock"]


def test_a_relative_cache_home_counts_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "somewhere")
    assert cache_folder() == Path.home() / ".cache" / "barnabas" / "kafka"


def test_no_host_is_named(repository: Path) -> None:
    """Where Maven finds things is the user's settings' matter."""
    text = Path(kafka_release.__file__).read_text()
    assert re.findall(r"https?://[^\"/]+", text) == ["http://maven.apache.org"]  # the name space of a POM


def test_an_old_java_is_recognised_in_the_log() -> None:
    log = "Exception in thread main java.lang.UnsupportedClassVersionError: kafka/Kafka has been compiled by a more recent version"
    assert "install one (17 for Apache Kafka 4)" in why_ended(log)
    assert why_ended("Address already in use") == ""


def test_the_run_ends_with_the_reason_and_no_test_runs(path: Path, pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_one(barnabas): pass")
    options = ["-p", "no:cacheprovider", "--barnabas-kafka", "4.4.0"]
    if not any(each.value == plugin.__name__ for each in entry_points(group="pytest11")):
        options += ["-p", plugin.__name__]
    found = pytester.runpytest_inprocess(*options)
    assert found.ret == pytest.ExitCode.USAGE_ERROR
    assert "--barnabas-kafka 4.4.0: no java in JAVA_HOME" in found.stderr.str()
    found = pytester.runpytest_inprocess(*options, "--barnabas-broker", "127.0.0.1:9092")
    assert "cannot be combined" in found.stderr.str()
