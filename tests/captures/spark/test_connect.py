"""`barnabas pipeline` on a Spark Connect server, PySpark's own, which has nothing of this package but what is sent to it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from harness.recordings import heartbeats
from harness.run.processes import listens
from harness.waiting import until

pytest.importorskip("grpc_status", reason="Spark Connect needs pyspark[connect]")
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    import pyspark

    home, place = Path(pyspark.__file__).parent, tmp_path_factory.mktemp("connect")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    own |= {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    own |= {"SPARK_LOCAL_DIRS": str(place), "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={place}"}  # it is killed
    settings = {
        "spark.connect.grpc.binding.port": str(port),
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
    }
    command = [str(home / "bin" / "spark-submit"), "--master", "local[2]"]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    command += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    with open(place / "log", "wb") as log:
        process = subprocess.Popen(
            [*command, "spark-internal"], env=own, cwd=place, stdout=log, stderr=log, start_new_session=True
        )
    try:
        until(lambda: listens(port), lambda: (place / "log").read_text()[-2000:])
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_run_stream_and_report_on_a_connect_server(remote: str, tmp_path: Path) -> None:
    source, output = tmp_path / "captures", tmp_path / "out"
    own = os.environ | {"SPARK_REMOTE": remote, "PATH": str(Path(sys.executable).parent)}  # no Java is found here
    own.pop("JAVA_HOME", None)

    def barnabas(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "barnabas", *words]
        done = subprocess.run(command, env=own, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done

    paths = (str(source), "--output", str(output), "--tables", "exchanges,errors")
    heartbeats(source / "one", 100, segment_bytes=10_000)
    done = barnabas("pipeline", "run", *paths, "--json")
    assert json.loads(done.stdout)["read"] == len(list(source.rglob("*.pcapng"))) > 1
    assert [line for line in done.stderr.splitlines() if " s  " not in line] == []
    heartbeats(source / "two", 100, first=100, segment_bytes=10_000)
    done = barnabas("pipeline", "stream", *paths, "--once")
    assert re.search(r"batch 0: \d+ files with 100 exchanges, the last one \d+ s ago", done.stderr), done.stderr
    asked = f"select correlation_id from '{output}/exchanges/**/*.parquet' order by 1"
    assert [number for (number,) in duckdb.connect().execute(asked).fetchall()] == list(range(200))
    done = barnabas("report", str(output), "--engine", "spark", "--master", remote, "--only", "summary", "--json")
    assert json.loads(done.stdout)["summary"]["rows"][0]["requests"] == 200
