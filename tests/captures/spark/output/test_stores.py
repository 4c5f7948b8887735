"""Captures and tables in a store: a server that speaks S3 on loopback (moto), and pyarrow's own file systems."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow
import pytest
from barnabas.captures import tables
from barnabas.captures.reading import storage
from barnabas.captures.reports import make
from barnabas.captures.reports.duck import Duck
from barnabas.captures.spark import PipelineError, folder_lock, pipeline
from barnabas.captures.tables.output.folder import DEFAULT
from barnabas.errors import BarnabasError
from harness.recordings import heartbeats
from harness.run.processes import listens
from harness.waiting import PATIENCE, until
from pyarrow import dataset, fs, parquet
from scapy.utils import rdpcap, wrpcap

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECRET = "a-key-that-nobody-may-see"
TABLES = ("exchanges", "errors", "connections")
SETTINGS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """The URI of a bucket; the environment has what a user would have there."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    patch = pytest.MonkeyPatch()
    for name, value in (SETTINGS | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}).items():
        patch.setenv(name, value)
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: listens(port), lambda: f"moto.server does not answer on port {port}: {process.poll()}")
        fs.FileSystem.from_uri("s3://fleet/x?allow_bucket_creation=true")[0].create_dir("fleet")
        yield "s3://fleet"
    finally:
        process.kill()
        process.wait(PATIENCE)
        patch.undo()


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of several segments, in which requests wait over the ends of some, and a pcap of another tool."""
    place = tmp_path_factory.mktemp("stores") / "captures"
    for name, client in (("one", "stock"), ("other", "web")):
        options = {"client_id": client, "in_flight": 3, "segment_bytes": 10_000}
        heartbeats(place / name, 120, error=lambda number: number % 9 == 1, **options)
    (pcap, *rest) = sorted((place / "other").glob("*.pcapng"))
    wrpcap(str(place / "tcpdump.pcap"), rdpcap(str(pcap)))
    shutil.rmtree(place / "other")
    assert rest and len(list((place / "one").glob("*.pcapng"))) > 2
    return place


def rows(table: Any) -> list[dict[str, Any]]:
    """Without where a file is, which differs."""
    found = [{k: v for k, v in row.items() if k not in ("path", "modified_ns", "date")} for row in table.to_pylist()]
    return sorted(found, key=str)


def upload(captures: Path, uri: str) -> None:
    target = storage.place(uri)
    for each in storage.list_files(captures):
        assert isinstance(target, storage.Remote) and isinstance(each.path, Path)
        (target / str(each.path.relative_to(captures))).put(each.path)


def read(uri: str) -> Any:
    store, path = storage.open_filesystem(storage.place(uri))
    return dataset.dataset(path, filesystem=store, format="parquet").to_table()


@pytest.mark.slow
def test_captures_and_tables_in_a_bucket(
    s3: str, captures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload(captures, f"{s3}/in")
    command = [sys.executable, "-m", "barnabas", "pipeline", "run", f"{s3}/in", "--output", f"{s3}/out"]
    command += ["--master", "none", "--json", "--tables", ",".join(TABLES)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert SECRET not in done.stdout + done.stderr
    here = tmp_path / "out"
    pipeline.run(pipeline.NO_SPARK, captures.as_uri(), here.as_uri(), names=TABLES)
    for name in (*TABLES, "segments"):
        assert rows(read(f"{s3}/out/{name}")) == rows(parquet.read_table(here / name)), name
    found = read(f"{s3}/out/segments").to_pylist()
    assert all(row["path"].startswith("s3://fleet/in/") for row in found) and SECRET not in str(found)
    assert {row["continues"] for row in found} == {0}  # next segments were found in the bucket
    again = pipeline.run(pipeline.NO_SPARK, f"{s3}/in", f"{s3}/out", names=TABLES)
    assert again.read == 0 and again.unchanged == len(found)
    # Nothing else is left there, and reports are the same.
    names = {each.path.name for each in storage.list_files(storage.place(f"{s3}/out"), deep=False)}
    assert names == {".fingerprints", ".manifest", ".recordings"}
    with Duck(storage.place(f"{s3}/out")) as one, Duck(here) as other:
        mine, its = make(one)[0], make(other)[0]
    assert [each.name for each in mine] == [each.name for each in its]
    assert [sorted(map(str, each.rows)) for each in mine] == [sorted(map(str, each.rows)) for each in its]


@pytest.mark.slow
def test_a_run_that_was_killed_is_completed(s3: str, captures: Path) -> None:
    upload(captures, f"{s3}/killed-in")
    out = storage.place(f"{s3}/killed-out")
    assert isinstance(out, storage.Remote)
    pipeline.run(pipeline.NO_SPARK, f"{s3}/killed-in", f"{s3}/killed-out", names=["exchanges"])
    before = rows(read(f"{s3}/killed-out/exchanges"))
    # As a kill leaves it: a file's rows are there, and the file is not on the list.
    (first, *_) = (each.path for each in storage.list_files(out / "segments") if each.path.name != "nothing.parquet")
    files = read(str(first)).num_rows
    first.unlink()
    (out / ".unfinished").write(b"")
    (out / "exchanges/date=2001-01-01/left-000000.parquet").write(b"PAR1")
    (out / folder_lock.LOCK).write(b"somebody")
    with pytest.raises(PipelineError, match=r"s3://fleet/killed-out: another pipeline run is writing there"):
        pipeline.run(pipeline.NO_SPARK, f"{s3}/killed-in", f"{s3}/killed-out", names=["exchanges"])
    fresh_seconds, folder_lock._FRESH_SECONDS = folder_lock._FRESH_SECONDS, 0.0
    try:
        done = pipeline.run(pipeline.NO_SPARK, f"{s3}/killed-in", f"{s3}/killed-out", names=["exchanges"])
    finally:
        folder_lock._FRESH_SECONDS = fresh_seconds
    assert done.read == files and rows(read(f"{s3}/killed-out/exchanges")) == before


@pytest.mark.spark
@pytest.mark.slow
def test_spark_reads_a_bucket(spark: SparkSession, s3: str, captures: Path, tmp_path: Path) -> None:
    upload(captures, f"{s3}/spark-in")
    uri = f"{s3}/spark-in?endpoint_override={os.environ['AWS_ENDPOINT_URL'].removeprefix('http://')}&scheme=http"
    found = spark.read.format("barnabas").load(uri)
    mine = [
        row
        for segment in tables.find_segments(captures).segments
        for b in tables.exchanges(segment.path)
        for row in b.to_pylist()
    ]
    key = ("segment", "number", "client_id", "error_code", "time_ns")
    assert sorted(tuple(map(str, (row[k] for k in key))) for row in found.collect()) == sorted(
        tuple(map(str, (row[k] for k in key))) for row in mine
    )


@pytest.mark.slow
def test_a_segment_that_cannot_match_is_not_fetched(s3: str, captures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from barnabas.captures.spark.source import SegmentReader

    upload(captures / "one", f"{s3}/skip")
    fetched: list[str] = []
    fetch = storage.Remote.fetch
    monkeypatch.setattr(
        storage.Remote, "fetch", lambda self, target: (fetched.append(self.name), fetch(self, target))[1]
    )
    reader = SegmentReader([f"{s3}/skip"], "exchanges", ["correlation_id"], "corr == 0")
    found = [row for p in reader.partitions() for batch in reader.read(p) for row in batch.to_pylist()]
    assert found == [{"correlation_id": 0}]
    # The one that matches; of the next one the beginning is enough.
    assert len([name for name in fetched if name.endswith(".pcapng")]) == 1


def test_another_file_system(captures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has no objects but files, as HDFS: written under a hidden name, and moved."""
    shutil.copytree(captures, tmp_path / "store" / "in")

    def opened(uri: str) -> tuple[Any, str]:
        return fs.LocalFileSystem(), str(tmp_path / "store" / uri.removeprefix("hdfs://name/"))

    monkeypatch.setattr(storage, "_opened", opened)
    pipeline.run(pipeline.NO_SPARK, "hdfs://name/in", "hdfs://name/out")
    pipeline.run(pipeline.NO_SPARK, captures, tmp_path / "out")
    for name in DEFAULT:
        assert rows(parquet.read_table(tmp_path / "store" / "out" / name)) == rows(
            parquet.read_table(tmp_path / "out" / name)
        )
    assert not list((tmp_path / "store").rglob(".*.*.*-*"))


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        (f"s3://testing:{SECRET}@fleet/in", "s3://fleet/in: a URI must not contain credentials"),
        ("nothing://fleet/in", "nothing://fleet/in cannot be opened: Unrecognized filesystem type"),
        ("nothing://fleet/in", "; supported: s3://, gs://, abfs://, hdfs:// and file://"),
        ("hdfs://fleet:8020/in", "hdfs://fleet:8020/in cannot be opened: Unable to load lib"),
        ("hdfs://fleet:8020/in", "set JAVA_HOME, HADOOP_HOME (or ARROW_LIBHDFS_DIR"),
        ("file://host/in", "a file:// URI has no host"),
    ],
)
def test_invalid_uris_are_refused(uri: str, message: str) -> None:
    with pytest.raises(storage.StorageError) as caught:
        pipeline.run(pipeline.NO_SPARK, uri, "out")
    assert message in str(caught.value) and SECRET not in str(caught.value)


class Closed:
    """A store that refuses everybody, with the errors of pyarrow's."""

    type_name = "abfs"

    def __init__(self, fault: Exception) -> None:
        self._fault = fault

    def __getattr__(self, name: str) -> Any:
        def ask(*about: Any, **more: Any) -> None:
            raise self._fault

        return ask


@pytest.mark.parametrize(
    ("uri", "fault", "message"),
    [
        (
            "abfs://c@fleet.dfs.core.windows.net/in",
            pyarrow.ArrowException("Failed to get token from X\nmore"),
            "az login",
        ),
        ("gs://fleet/in", OSError("Could not create a OAuth2 access token"), "gcloud auth application-default login"),
        ("s3://fleet/in", OSError("AWS Error ACCESS_DENIED during HeadObject"), "AWS_SECRET_ACCESS_KEY"),
        ("hdfs://fleet/in", OSError("Failed to connect"), "CLASSPATH"),
    ],
)
def test_a_store_that_refuses_access(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, captures: Path, uri: str, fault: Exception, message: str
) -> None:
    monkeypatch.setattr(storage, "_opened", lambda uri: (Closed(fault), "in"))
    for source, output in ((uri, tmp_path / "out"), (captures, uri)):
        with pytest.raises(BarnabasError) as caught:
            pipeline.run(pipeline.NO_SPARK, source, output)
        text = str(caught.value)
        assert message in text and str(fault).splitlines()[0] in text and "\n" not in text


@pytest.mark.slow
def test_a_bucket_that_is_not_there(s3: str, captures: Path) -> None:
    with pytest.raises(PipelineError, match=r"cannot write to s3://absent/out: .*NO_SUCH_BUCKET"):
        pipeline.run(pipeline.NO_SPARK, captures, "s3://absent/out")
    with pytest.raises(BarnabasError, match="s3://fleet/nowhere: no such file or folder; give a folder"):
        pipeline.run(pipeline.NO_SPARK, f"{s3}/nowhere", f"{s3}/out")
