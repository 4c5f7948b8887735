"""A Spark session that works out of the box and leaves nothing behind.

For a local master, workers run our own interpreter and everything stays on the loopback interface. The JVM's output goes to a log
file, not to the user's terminal. Leaving the context ends the JVM, whatever happened inside.

The session, its JVM and their temporary files live in one folder. Its owner is the process that holds the lock of the file
`OWNER` in it; a lock ends with its process. So the next session can remove the folders of killed sessions: those whose lock is
free and that no process names on its command line, as JVMs do. A folder without that file is kept: it holds a failed session's
log.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import TimeoutExpired
from typing import TYPE_CHECKING, Any

from ... import __version__
from ...diagnostics import contained
from ...errors import BarnabasError, install
from . import PipelineError, connect
from .errors import reason
from .package_archive import DRIVER_FOLDER, package, unpacked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PREFIX = "barnabas-spark-"
OWNER = ".owner"


@contextmanager
def hold_signals() -> Iterator[None]:
    """Put Ctrl-C off to the end of the body."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    seen: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if seen:
        raise KeyboardInterrupt


class Scratch:
    """A folder that is removed in the end, but for the files in `kept`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.kept: list[Path] = []


@contextmanager
def scratch() -> Iterator[Scratch]:
    """A new folder of this process. What killed processes of this user have left is removed first."""
    sweep(Path(tempfile.gettempdir()))
    made, lock = _owned()
    try:
        yield made
    finally:
        with hold_signals():
            for entry in made.path.iterdir() if made.path.is_dir() else ():
                if entry not in made.kept and entry.name != OWNER:
                    _remove(entry)
            (made.path / OWNER).unlink(missing_ok=True)
            with suppress(OSError):  # something is kept
                made.path.rmdir()
            os.close(lock)


def _owned() -> tuple[Scratch, int]:
    """A new folder, and its owner's lock."""
    while True:
        made = Scratch(Path(tempfile.mkdtemp(prefix=PREFIX)))
        # No other process sees the file before it is locked; programs that are started do not hold it.
        taking = made.path / f"{OWNER}.taking"
        try:
            lock = os.open(taking, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        except FileNotFoundError:  # another process swept it while it was empty
            continue
        fcntl.flock(lock, fcntl.LOCK_EX)
        taking.rename(made.path / OWNER)
        return made, lock


def sweep(place: Path) -> list[Path]:
    """Remove the folders in `place` whose owners are gone; which they were. What cannot be removed stays."""
    removed = []
    for entry in sorted(place.glob(f"{PREFIX}*")):
        try:
            status = entry.lstat()
            if status.st_uid != os.getuid() or entry.is_symlink():
                continue
            lock = os.open(entry / OWNER, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:  # gone, or without an owner: empty where that was killed as it began or ended
            with suppress(OSError):
                entry.rmdir()
                removed.append(entry)
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _named(entry):
                _remove(entry)
                removed.append(entry)
        except OSError:  # in use, or being swept
            continue
        finally:
            os.close(lock)
    return removed


def _named(folder: Path) -> bool:
    """Whether a process has the folder on its command line: a JVM that has yet to notice that its session is gone."""
    wanted = os.fsencode(folder)
    for entry in os.listdir("/proc") if os.path.isdir("/proc") else ():
        try:
            if entry.isdigit() and wanted in Path("/proc", entry, "cmdline").read_bytes():
                return True
        except OSError:  # it has ended
            continue
    return False


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


_MASTER = re.compile(r"local(\[(\d+|\*)(, *\d+)?\])?|(spark|k8s)://\S+|yarn")
_STANDALONE = "spark://"
_HOST_PORT = re.compile(r"(\[[^\]]+\]|[^:/\[\]]+):(\d+)")
_REACH_SECONDS = 5.0
_PROGRESS_SECONDS = 1.0
_STOP_SECONDS = 10.0


def check_installed(master: str = "local[2]") -> None:
    """Raise `PipelineError` with the remedy when pyspark, pyarrow, numpy or Java is missing. Starts nothing.

    Of a Spark Connect server (`sc://...`): when a library is missing, or nobody listens there.
    """
    if master.startswith(connect.SCHEME):
        connect.check(master)
        return
    for library in ("pyspark", "pyarrow", "numpy"):
        try:
            __import__(library)
        except ImportError:
            raise PipelineError(f"the pipeline needs {library}: {install('spark')}") from None
    home = os.environ.get("JAVA_HOME")
    if home and not os.access(Path(home, "bin", "java"), os.X_OK):
        raise PipelineError(f"JAVA_HOME is {home}, but there is no java in it: set it to Java 17 or newer, or unset it")
    if not home and shutil.which("java") is None:
        raise PipelineError(
            "Spark needs Java 17 or newer and none is installed: "
            "apt install openjdk-17-jre-headless (Debian), or set JAVA_HOME"
        )
    if master.startswith(_STANDALONE):
        _check_standalone(master)


def check_master(master: str) -> None:
    """Raise `PipelineError` when Spark would not know such a master."""
    if not _MASTER.fullmatch(master) and not master.startswith(connect.SCHEME):
        raise PipelineError(
            f"no such Spark master: {master!r}; use local[2], local[*], spark://HOST:PORT or sc://HOST:PORT"
        )


def _check_standalone(master: str) -> None:
    """Raise `PipelineError` when no address of ``spark://HOST:PORT,HOST:PORT`` accepts a connection: Spark would try for a minute."""
    why = ""
    for address in master.removeprefix(_STANDALONE).split(","):
        found = _HOST_PORT.fullmatch(address)
        if found is None or int(found[2]) > 65535:
            raise PipelineError(f"no such Spark master: {master!r}; use spark://HOST:PORT")
        try:
            socket.create_connection((found[1].strip("[]"), int(found[2])), _REACH_SECONDS).close()
        except OSError as error:
            why = error.strerror or str(error)
        else:
            return
    raise PipelineError(f"no Spark master answers at {master} ({why}): start one, or give another --master")


@contextmanager
def shipped(spark: SparkSession) -> Iterator[SparkSession]:
    """A session of the caller's, which stays open: its executors get this package, unless they have this version of it.

    It goes as a zip of pure Python. Raises `PipelineError` if Spark fails in the body.
    """
    if not hasattr(spark, "dataSource"):
        raise PipelineError(f"the pipeline needs Spark 4.0 or newer: this session's is {spark.version}")
    try:
        with tempfile.TemporaryDirectory(prefix=PREFIX) as folder:
            if not _executors_have_it(spark):
                archive = str(package(Path(folder, "barnabas.zip")))
                if _is_connect(spark):
                    spark.addArtifacts(archive, pyfile=True)
                else:
                    spark.sparkContext.addPyFile(archive)
            yield spark
    except BarnabasError:
        raise
    except Exception as error:  # as of a session that is started here
        if _interrupted(error):
            raise KeyboardInterrupt from error
        raise PipelineError(f"Spark: {reason(error)}") from error


def _is_connect(spark: SparkSession) -> bool:
    return "connect" in type(spark).__module__


def _executors_have_it(spark: SparkSession) -> bool:
    """Whether an executor can import this version of the package; those of a local session run in this environment."""
    if not _is_connect(spark) and spark.sparkContext.master.startswith("local"):
        return True
    wanted, name = __version__, __name__.partition(".")[0]

    def found(batches: Iterator[Any]) -> Iterator[Any]:
        import importlib

        import pyarrow

        for batch in batches:
            version = importlib.import_module(name).__version__
            yield pyarrow.RecordBatch.from_pydict({"version": [version] * batch.num_rows})

    from pyspark.errors import PySparkException

    try:
        (row,) = spark.range(1).mapInArrow(found, "version string").collect()
    except PySparkException:  # the import failed there, or pandas is missing here, which Spark wants for this
        return False
    return bool(row["version"] == wanted)


@contextmanager
def session(
    master: str = "local[2]", *, quick: bool = False, wheel: Path | None = None, conf: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """A Spark session. Raises `PipelineError` if it cannot be had.

    For a cluster the package is shipped to the executors, which need Python with pyarrow and numpy: that of the environment
    variable PYSPARK_PYTHON, `python3` by default. It goes as a zip of pure Python, or as the `wheel`, with what was compiled.
    `sc://HOST:PORT` is a Spark Connect server. `conf`: Spark's settings, which go before those made here.

    `quick` is for jobs of seconds: the JVM then starts faster and computes slower. Not for two at a time.
    """
    check_master(master)
    if master.startswith(connect.SCHEME):
        with connect.connect_session(master) as there:
            yield there
        return
    check_installed(master)
    with scratch() as temporary:
        yield from _started(master, quick, wheel, conf or {}, temporary)


def _started(
    master: str, quick: bool, wheel: Path | None, conf: Mapping[str, str], temporary: Scratch
) -> Iterator[SparkSession]:
    """The session, whose files are in the folder `temporary`."""
    folder = temporary.path
    log = folder / "spark.log"
    log.touch(mode=0o600)
    before = dict(os.environ)
    jvm = _Jvm()
    try:
        if master.startswith("local"):
            os.environ |= {
                "PYSPARK_PYTHON": sys.executable,
                "PYSPARK_DRIVER_PYTHON": sys.executable,
                "SPARK_LOCAL_IP": "127.0.0.1",
            }
        with _quiet():
            settings = _settings(master, quick, folder)
            if wheel is not None and not master.startswith("local"):
                settings |= unpacked(wheel, folder)
                places = (str(folder / DRIVER_FOLDER), os.environ.get("PYTHONPATH"))
                os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, places))
            settings |= conf
            with _temporary_files_in(folder):
                spark = jvm.start(settings, log)
            if wheel is None and not master.startswith("local"):
                spark.sparkContext.addPyFile(str(package(folder / "barnabas.zip")))
            yield spark
    except BarnabasError:
        raise
    except Exception as error:  # PySpark and Py4J raise many kinds, and so does the code that Spark ran
        if _interrupted(error):
            raise KeyboardInterrupt from error
        temporary.kept.append(log)
        raise PipelineError(f"Spark: {reason(error, log)} (Spark's log: {log})") from error
    finally:
        with hold_signals(), _quiet():
            jvm.stop()
            os.environ.clear()
            os.environ.update(before)


@contextmanager
def _temporary_files_in(folder: Path) -> Iterator[None]:
    """PySpark makes a folder of its own until its JVM has begun; of a session that is killed meanwhile it would stay."""
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = before


def _interrupted(error: BaseException) -> bool:
    """Whether an interrupt was the first of it: what PySpark does on the way out then fails for its own reasons."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, KeyboardInterrupt):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep back the tracebacks that Py4J logs for every call that an interrupt cuts short, and a warning about pandas."""

    def wanted(record: logging.LogRecord) -> bool:
        return "py4j" not in Path(record.pathname).parts

    root, py4j, sink = logging.getLogger(), logging.getLogger("py4j"), logging.NullHandler()
    root.addFilter(wanted)  # it logs some of them with the root logger,
    root.addHandler(sink)  # and that would print everything from then on if it had no handler
    level = py4j.level
    py4j.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            # Printed where only pyarrow and numpy are used.
            warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
            yield
    finally:
        py4j.setLevel(level)
        root.removeHandler(sink)
        root.removeFilter(wanted)


def _settings(master: str, quick: bool, folder: Path) -> dict[str, str]:
    settings = {
        "spark.app.name": "barnabas",
        "spark.master": master,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        # What Spark writes is for the user alone; Hadoop does not heed the process's umask.
        "spark.hadoop.fs.permissions.umask-mode": "077",
    }
    if master.startswith("local"):
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.local.dir": str(folder),
            "spark.sql.shuffle.partitions": "2",
        }
    # Its libraries are unpacked in there, too, and stay there if it is killed.
    options = f'"-Djava.io.tmpdir={folder}" -XX:-UsePerfData'
    if quick:
        options += " -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    elif master.startswith("local"):
        # Rows are many and gone at once: the pauses of this collector do no harm.
        options += " -XX:+UseParallelGC"
    return settings | {"spark.driver.extraJavaOptions": options}


class _Jvm:
    """The Java process of a session."""

    def __init__(self) -> None:
        self._gateway: Any = None
        self._spark: SparkSession | None = None

    def start(self, settings: dict[str, str], log: Path) -> SparkSession:
        from pyspark import SparkConf, SparkContext
        from pyspark.java_gateway import launch_gateway
        from pyspark.sql import SparkSession

        if SparkContext._active_spark_context is not None:
            raise PipelineError("a Spark session is already open in this process: stop it first")
        conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
        # Interrupted in here, PySpark would lose its child, and the child would wait for ever.
        with open(log, "ab") as out, hold_signals():
            self._gateway = launch_gateway(conf, {"stdout": out, "stderr": out, "umask": 0o077})
        interrupt = signal.getsignal(signal.SIGINT)
        context = SparkContext(conf=conf, gateway=self._gateway)
        if threading.current_thread() is threading.main_thread():
            # PySpark's handler calls the JVM in the middle of another call, which fails; `interrupt` is enough.
            signal.signal(signal.SIGINT, interrupt)
        server = getattr(context, "_accumulatorServer", None)
        if server is not None:
            server.handle_error = lambda *about: None  # it prints a traceback when the JVM goes first
        context.setLogLevel("ERROR")
        self._spark = SparkSession(context)
        return self._spark

    def stop(self) -> None:
        """End the session and the process; it is gone when this returns."""
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        if self._gateway is None:
            return
        for end in (self._spark.stop if self._spark else None, self._gateway.shutdown):
            try:
                # The connection may be gone, cut by an interrupt: PySpark warns of it, and the process ends all the same.
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    if end is not None:
                        end()
            except Exception as error:  # the process is ended below in any case
                contained("ending a Spark session", error)
        process = self._gateway.proc
        process.stdin.close()  # the JVM ends by itself when the other end closes
        try:
            process.wait(_STOP_SECONDS)
        except TimeoutExpired:
            process.kill()
            process.wait()
        SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
        SparkSession._instantiatedSession = None


@contextmanager
def report_progress(spark: SparkSession, report: Callable[[int, int], None]) -> Iterator[None]:
    """While the body runs, call `report(tasks done, tasks)` from a thread of its own whenever that has changed."""
    if hasattr(spark, "registerProgressHandler") and _is_connect(spark):
        with connect.report_progress(spark, report):
            yield
        return
    over = threading.Event()
    tracker = spark.sparkContext.statusTracker()

    def watch() -> None:
        last = (0, 0)
        while not over.wait(_PROGRESS_SECONDS):
            try:
                stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
            except Exception as error:  # Py4J raises many kinds when the session is being stopped
                if not over.is_set():
                    contained("watching a Spark session", error)
                return
            now = (sum(s.numCompletedTasks for s in stages if s), sum(s.numTasks for s in stages if s))
            if now[1] and now != last:
                last = now
                report(*now)

    thread = threading.Thread(target=watch, name="spark-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(2.0)
