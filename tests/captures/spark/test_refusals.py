"""What a run refuses before it starts Spark: one clear line each. No Spark in here."""

from __future__ import annotations

import fcntl
import importlib.util
import socket
import zipfile
from pathlib import Path

import numpy  # noqa: F401  whole before a test hides it: it cannot be loaded a second time
import pyarrow
import pytest
from barnabas.captures.spark import PipelineError, package_archive, pipeline
from barnabas.captures.spark.session import check_installed, check_master, reason
from barnabas.captures.tables.output.folder import FolderError
from harness.recordings import heartbeats
from pyarrow import parquet


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    return heartbeats(tmp_path / "recording", 0)


def refusal(source: Path, output: Path, master: str = "local[1]") -> str:
    with pytest.raises(PipelineError) as caught:
        pipeline.run(master, source, output)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_input_without_a_recording(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "empty: it contains no capture; make one with: barnabas proxy --record" in refusal(empty, tmp_path / "out")
    assert "no such file or folder" in refusal(tmp_path / "absent", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_input_that_is_still_written(recording: Path, tmp_path: Path) -> None:
    segment = next(recording.glob("*.pcapng"))
    with open(segment.rename(f"{segment}.part"), "rb") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        assert "still being written; run again when the recording has ended" in refusal(recording, tmp_path / "out")


def test_output_that_cannot_be_written(recording: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert "cannot write to" in refusal(recording, tmp_path / "file" / "out")
    assert "choose another --output" in refusal(recording, tmp_path / "file")


def test_master_that_spark_does_not_know(recording: Path, tmp_path: Path) -> None:
    assert "no such Spark master: 'locale[2]'" in refusal(recording, tmp_path / "out", "locale[2]")
    for master in ("local", "local[*]", "local[4]", "spark://127.0.0.1:7077", "yarn"):
        check_master(master)


def test_a_standalone_master_that_is_not_there(recording: Path, tmp_path: Path) -> None:
    """Spark itself would try for a minute."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # nobody listens there
        place = f"127.0.0.1:{unused.getsockname()[1]}"
        refused = refusal(recording, tmp_path / "out", f"spark://{place},{place}")
    assert refused.startswith(f"no Spark master answers at spark://{place},{place} (")
    assert "no such Spark master" in refusal(recording, tmp_path / "out", "spark://head:70777")
    assert pipeline.run(f"spark://{place}", recording, tmp_path / "out", dry=True).read == 1  # starts nothing, needs no master
    assert not (tmp_path / "out").exists()


def test_what_only_a_session_that_is_started_takes(recording: Path, tmp_path: Path) -> None:
    class Session:
        version = "3.5.1"

    with pytest.raises(PipelineError, match="this one is already running"):
        pipeline.run(Session(), recording, tmp_path / "out", conf={"spark.ui.enabled": "true"})  # type: ignore[arg-type]
    with pytest.raises(PipelineError, match="this one is already running"):
        pipeline.run(Session(), recording, tmp_path / "out", wheel=tmp_path / "some.whl")  # type: ignore[arg-type]
    with pytest.raises(PipelineError, match=r"needs Spark 4\.0 or newer: this session's is 3\.5\.1"):
        pipeline.run(Session(), recording, tmp_path / "out")  # type: ignore[arg-type]
    with pytest.raises(PipelineError, match="has its own"):
        pipeline.run("sc://127.0.0.1:1", recording, tmp_path / "out", conf={"spark.ui.enabled": "true"}, dry=True)
    with pytest.raises(PipelineError, match="a stream needs Spark"):
        pipeline.stream("none", recording, tmp_path / "out")


def test_spark_connect_that_cannot_be_used(recording: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    message = refusal(recording, tmp_path / "out", f"sc://127.0.0.1:{port}/;token=nobody-may-see")
    assert "token" not in message and not (tmp_path / "out").exists()
    if all(map(importlib.util.find_spec, ("grpc", "grpc_status", "pandas"))):
        refused = f"no Spark Connect server answers at sc://127.0.0.1:{port} (Connection refused): start one"
        assert message.startswith(refused)
    else:
        assert message.startswith("Spark Connect needs ") and "pip install '.[connect]'" in message
    assert "no such Spark Connect server: 'sc://host:many'" in refusal(recording, tmp_path / "out", "sc://host:many")


def test_invalid_wheels_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"none\.whl is not a readable wheel: No such file"):
        package_archive.unpacked(tmp_path / "none.whl", tmp_path)
    with zipfile.ZipFile(tmp_path / "other.whl", "w") as archive:
        archive.writestr("other/__init__.py", "")
    with pytest.raises(PipelineError, match=r"other\.whl is not a wheel of barnabas: make one with pip wheel"):
        package_archive.unpacked(tmp_path / "other.whl", tmp_path)


def test_missing_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(PipelineError, match=r"apt install openjdk-17-jre-headless \(Debian\), or set JAVA_HOME"):
        check_installed()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    with pytest.raises(PipelineError, match=r"JAVA_HOME is .*jdk, but there is no java in it"):
        check_installed()


@pytest.mark.parametrize("library", ["pyspark", "pyarrow", "numpy"])
def test_missing_library(monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    monkeypatch.setitem(__import__("sys").modules, library, None)
    with pytest.raises(PipelineError, match=rf"needs {library}: run pip install '.\[spark\]'"):
        check_installed()


def test_one_line_of_a_spark_failure(tmp_path: Path) -> None:
    text = (
        "[PYTHON_DATA_SOURCE_ERROR] Failed:\nTraceback (most recent call last):\n  File x\nValueError: no such table\n"
    )
    assert reason(RuntimeError(text)) == "no such table"
    assert reason(RuntimeError("plain\nwords")) == "plain"
    log = tmp_path / "log"
    log.write_text("Error: x\njava.lang.UnsupportedClassVersionError: a/B has been compiled by a newer Java\n")
    spark_error = type("PySparkRuntimeError", (Exception,), {})
    assert "Java is too old" in reason(spark_error("[JAVA_GATEWAY_EXITED] gone"), log)


def test_tables_of_another_kind_are_not_mixed(recording: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    pipeline.run("none", recording, output, names=["exchanges", "errors"])
    with pytest.raises(FolderError, match="also has the tables errors: give no --tables, or another --output"):
        pipeline.run("none", recording, output, names=["exchanges"])
    with pytest.raises(PipelineError, match="--tables: there is no table 'weather'; the tables are: exchanges"):
        pipeline.run("none", recording, output, names=["weather"])
    place = output / "errors" / "date=1970-01-01" / "nothing.parquet"
    parquet.write_table(pyarrow.table({"error": ["A"]}), place)
    with pytest.raises(FolderError, match=r"written by another version of barnabas \(layout \?, this one writes 2\)"):
        pipeline.run("none", recording, output, names=["exchanges", "errors"])
    (tmp_path / "old" / "exchanges").mkdir(parents=True)
    parquet.write_table(pyarrow.table({"api": ["A"]}), tmp_path / "old" / "exchanges" / "0-000000.parquet")
    with pytest.raises(FolderError, match="contains other Parquet files"):
        pipeline.run("none", recording, tmp_path / "old")
