"""A standalone cluster of two workers on loopback: the package is shipped, both work, and one is killed in the middle."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from barnabas.captures.spark import package_archive
from harness.recordings import heartbeats
from harness.waiting import PATIENCE, until
from pyarrow import parquet
from traffic.fleets.rotated import CLUSTER_ID, TOPICS, record, steps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """The master's address, and the two workers."""
    import pyspark

    home = Path(pyspark.__file__).parent
    port = free_port()
    settings = {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    # They are killed, and leave what they have there.
    settings |= {"SPARK_LOCAL_DIRS": str(tmp_path / "local"), "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={tmp_path}"}
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    started: list[subprocess.Popen[bytes]] = []

    def start(role: str, *words: str) -> None:
        with open(tmp_path / f"{role}-{len(started)}.log", "wb") as log:
            command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{role.lower()}.{role}", *words]
            started.append(
                subprocess.Popen(
                    command, env=own | settings, stdout=log, stderr=log, cwd=tmp_path, start_new_session=True
                )
            )

    def wait_for_log(number: int, role: str, words: str) -> None:
        log = tmp_path / f"{role}-{number}.log"
        until(lambda: words in log.read_text("utf-8", "replace"), lambda: log.read_text("utf-8", "replace")[-2000:])

    try:
        start("Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(free_port()))
        wait_for_log(0, "Master", "I have been elected leader")
        for number in (1, 2):
            words = ("--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", str(free_port()))
            start("Worker", *words, "--work-dir", str(tmp_path / f"work-{number}"), f"spark://127.0.0.1:{port}")
        for number in (1, 2):
            wait_for_log(number, "Worker", "Successfully registered with master")
        yield f"spark://127.0.0.1:{port}", started[1:]
    finally:
        for process in reversed(started):
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait(PATIENCE)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as a wheel, built from a copy of the sources."""
    place, root = tmp_path_factory.mktemp("wheel"), Path(package_archive.__file__).parents[2]
    left_out = shutil.ignore_patterns(".*", "*.so", "__pycache__", "build", "tests", "bench", "docs")
    shutil.copytree(root, place / "source", ignore=left_out)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(place)]
    done = subprocess.run([*command, str(place / "source")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return next(place.glob("*.whl"))


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """This interpreter with its libraries, but without what pip install -e has put there: the package."""
    script = tmp_path / "bare-python"
    libraries = sysconfig.get_path("purelib")
    script.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{libraries}" exec {sys.executable} -S "$@"\n', "utf-8")
    script.chmod(0o755)
    done = subprocess.run([script, "-c", "import pyarrow, barnabas"], capture_output=True, text=True, cwd=tmp_path)
    assert "No module named 'barnabas'" in done.stderr
    return script


@pytest.mark.parametrize("kind", ["zip", "wheel"])
def test_a_worker_is_killed_in_the_middle(
    cluster: tuple[str, list[subprocess.Popen[bytes]]], tmp_path: Path, kind: str, wheel: Path, bare_python: Path
) -> None:
    master, workers = cluster
    heartbeats(tmp_path / "recording", 6000, segment_bytes=100_000)
    command = [sys.executable, "-m", "barnabas", "pipeline", "run", str(tmp_path / "recording")]
    command += ["--output", str(tmp_path / "out"), "--master", master, "--conf", "spark.task.maxFailures=8"]
    command += ["--wheel", str(wheel)] if kind == "wheel" else []
    process = subprocess.Popen(
        command,
        env=os.environ | {"PYSPARK_PYTHON": str(bare_python), "SPARK_LOCAL_IP": "127.0.0.1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    done = (tmp_path / "out").glob
    until(lambda: [*done("segments/date=2*/*.parquet")] or process.poll() is not None, "no segment is done", seconds=4 * PATIENCE)
    if process.poll() is not None:
        pytest.fail(process.communicate()[0])
    inside = "barnabas.zip" if kind == "zip" else "barnabas-wheel/barnabas/*/native/_native*.so"
    used = [list((tmp_path / f"work-{n}").glob(f"app-*/*/{inside}")) for n in (1, 2)]
    os.killpg(workers[0].pid, signal.SIGKILL)  # with its executor
    output, _ = process.communicate()
    assert process.returncode == 0, output
    assert all(used), "both workers were given the package"
    found = parquet.read_table(tmp_path / "out" / "exchanges", columns=["correlation_id"])["correlation_id"].to_pylist()
    assert sorted(found) == list(range(6000))


JOB = """
import sys
from pyspark.sql import SparkSession
from barnabas.captures.spark import pipeline
spark = SparkSession.builder.getOrCreate()
done = pipeline.run(spark, *sys.argv[1:])
print("read", done.read, spark.sparkContext.master, spark.conf.get("spark.some.setting"))
assert spark.range(3).count() == 3  # it is open
spark.stop()
"""


def test_spark_submit(
    cluster: tuple[str, list[subprocess.Popen[bytes]]], tmp_path: Path, bare_python: Path
) -> None:
    """Its master and its settings; executors get the package."""
    import pyspark

    heartbeats(tmp_path / "recording", 500, segment_bytes=20_000)
    (tmp_path / "job.py").write_text(JOB, "utf-8")
    home = Path(pyspark.__file__).parent
    words = [str(home / "bin" / "spark-submit"), "--master", cluster[0], "--conf", "spark.some.setting=7", "job.py"]
    own = {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    own |= {"PYSPARK_PYTHON": str(bare_python), "PYSPARK_DRIVER_PYTHON": sys.executable}
    done = subprocess.run(
        [*words, "recording", "out"], cwd=tmp_path, env=os.environ | own, capture_output=True, text=True, timeout=4 * PATIENCE
    )
    assert done.returncode == 0, done.stderr
    segments = len(list((tmp_path / "recording").glob("*.pcapng")))
    assert f"read {segments} {cluster[0]} 7" in done.stdout
    found = parquet.read_table(tmp_path / "out" / "exchanges", columns=["correlation_id"])["correlation_id"].to_pylist()
    assert sorted(found) == list(range(500))


IN_THE_ZIP = """
import importlib, pkgutil, sys
sys.meta_path = [finder for finder in sys.meta_path if "editable" not in repr(finder)]  # what pip install -e has put there
sys.path.insert(0, sys.argv[1])
import barnabas
for module in pkgutil.walk_packages(barnabas.__path__, "barnabas."):
    importlib.import_module(module.name)
from barnabas.captures import tables
from barnabas.captures.tables.output.folder import Folder
from barnabas.captures.tables.output.plan import todo
folder = Folder(sys.argv[3])
folder.prepare()
for chunk in todo(tables.find_segments(sys.argv[2]).segments, {}).work:
    folder.write(chunk)
assert folder.done()
own = [module for name, module in sys.modules.items() if name.split(".")[0] == "barnabas"]
assert len(own) > 100 and all(module.__file__.startswith(sys.argv[1]) for module in own)
"""


def test_the_zip_is_the_package(tmp_path: Path) -> None:
    """Tasks run from the zip alone, with nothing of the package installed beside it."""
    place = package_archive.package(tmp_path / "barnabas.zip")
    heartbeats(tmp_path / "recording", 1)
    words = [sys.executable, "-c", IN_THE_ZIP, str(place), str(tmp_path / "recording"), str(tmp_path / "out")]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr


def test_the_notebook_answers_its_questions(repository: Path, tmp_path: Path) -> None:
    """The notebook in examples/ runs from its first cell to its last, in one session."""
    record(tmp_path / "captures", steps(600), 20_000)
    notebook = json.loads((repository / "examples" / "five_questions.ipynb").read_text("utf-8"))
    cells = [cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(not cell.get("outputs") for cell in notebook["cells"])
    program = tmp_path / "notebook.py"
    program.write_text("\n\n".join(cells), "utf-8")
    there = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, program], cwd=tmp_path, env=there, capture_output=True, text=True, timeout=5 * PATIENCE
    )
    assert done.returncode == 0, done.stderr
    assert "breaks" in done.stdout or "works" in done.stdout
    words = set(done.stdout.replace("|", " ").split())
    assert {CLUSTER_ID, "NOT_LEADER_OR_FOLLOWER", "REBALANCE_IN_PROGRESS", "group-2", "member-8", *TOPICS} <= words
    assert (tmp_path / "tables" / "connections").is_dir()


def test_spark_loads_the_pod_template(spark: SparkSession, repository: Path) -> None:
    """As spark-submit does it; its claims and its driver's account are those of `storage.yaml`."""
    folder = repository / "examples" / "kubernetes"
    jvm, context = spark._jvm, spark.sparkContext
    assert jvm is not None
    client = jvm.io.fabric8.kubernetes.client.KubernetesClientBuilder().build()
    loaded = jvm.org.apache.spark.deploy.k8s.KubernetesUtils.loadPodFromTemplate(
        client, str(folder / "pod.yaml"), jvm.scala.Option.empty(), context._jsc.sc().conf()
    )
    mounts = loaded.container().getVolumeMounts()
    volumes = {each.getName(): each.getPersistentVolumeClaim().getClaimName() for each in loaded.pod().getSpec().getVolumes()}
    assert {volumes[each.getName()]: (each.getMountPath(), each.getReadOnly()) for each in mounts} == {
        "captures": ("/captures", True), "tables": ("/tables", None),
    }  # fmt: skip
    there = [(each["kind"], each["metadata"]["name"]) for each in yaml.safe_load_all((folder / "storage.yaml").read_text())]
    assert {("PersistentVolumeClaim", claim) for claim in volumes.values()} < set(there)
    submit = (folder / "submit.sh").read_text()
    assert ("ServiceAccount", submit.partition("serviceAccountName=")[2].split()[0]) in there


@pytest.mark.parametrize("system", ["kubernetes", "yarn"])
def test_what_the_recipes_submit(repository: Path, tmp_path: Path, system: str) -> None:
    """The scripts, with a spark-submit that says what it was given."""
    said = tmp_path / "spark-submit"
    said.write_text('#!/bin/sh\nfor word; do echo "$word"; done\n')
    said.chmod(0o755)
    own = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SPARK_OPTIONS": "--conf spark.eventLog.enabled=true"}
    first, last = ("https://head:6443", "barnabas-spark") if system == "kubernetes" else ("/in", "/out")
    script = repository / "examples" / system / "submit.sh"
    words = subprocess.run(["sh", str(script), first, last], env=own, capture_output=True, text=True, check=True).stdout.splitlines()
    application, *places = words[-3:]
    assert words[: 2] == ["--master", f"k8s://{first}" if system == "kubernetes" else "yarn"]
    assert words[-5:-3] == ["--conf", "spark.eventLog.enabled=true"]
    assert application.endswith("/run_pipeline.py") and places == (["/captures", "/tables"] if system == "kubernetes" else [first, last])
    for word in words:  # files that are named are there
        for name in {word.partition("File=")[2], word if word.startswith("../") else ""} - {""}:
            assert (script.parent / name).is_file(), word


def test_the_pipeline_in_the_session_of_spark_submit(repository: Path, tmp_path: Path) -> None:
    import pyspark

    heartbeats(tmp_path / "captures", 60, segment_bytes=5_000)
    home = Path(pyspark.__file__).parent
    own = os.environ | {"SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [str(home / "bin" / "spark-submit"), "--master", "local[1]", "--conf", "spark.ui.enabled=false"]
    command += [str(repository / "examples" / "run_pipeline.py"), str(tmp_path / "captures"), str(tmp_path / "tables")]
    done = subprocess.run(command, env=own, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    files = len(list((tmp_path / "captures").glob("*.pcapng")))
    assert f"{files} files read, 0 unchanged" in done.stdout
    assert parquet.read_table(tmp_path / "tables" / "exchanges").num_rows == 60
