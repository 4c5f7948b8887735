"""A session on a Spark Connect server, `sc://HOST:PORT`: no Java on this machine; the server is neither started nor stopped.

The server runs our code in its own Python, which must have the same version as this one; the package is sent to it.
"""

from __future__ import annotations

import os
import re
import socket
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...diagnostics import contained
from ...errors import BarnabasError, install
from . import PipelineError
from .errors import reason
from .package_archive import package

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEME = "sc://"
_ADDRESS = re.compile(r"sc://(\[[^\]]+\]|[^:/;\[\]]+)(?::(\d+))?(?:/.*)?", re.DOTALL)
_PORT = 15002  # what Spark takes where none is given
_REACH_SECONDS = 10.0


def without_token(remote: str) -> str:
    """The address without its parameters: a token may be among them."""
    return remote.partition(";")[0].rstrip("/")


def check(remote: str) -> None:
    """Raise `PipelineError` with the remedy when a library is missing or nobody listens there."""
    found = _ADDRESS.fullmatch(remote)
    if found is None or int(found[2] or 0) > 65535:
        raise PipelineError(f"no such Spark Connect server: {without_token(remote)!r}; use sc://HOST:PORT")
    for library in ("pyspark", "pyarrow", "numpy", "pandas", "grpc", "grpc_status"):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                __import__(library)
        except ImportError:
            raise PipelineError(
                f"Spark Connect needs {library}: {install('connect')}"
            ) from None
    try:
        socket.create_connection((found[1].strip("[]"), int(found[2] or _PORT)), _REACH_SECONDS).close()
    except OSError as error:
        raise PipelineError(
            f"no Spark Connect server answers at {without_token(remote)} ({error.strerror or error}): start one with Spark's "
            "sbin/start-connect-server.sh, or give another --remote"
        ) from error


@contextmanager
def connect_session(remote: str) -> Iterator[SparkSession]:
    """A session there, with the package sent along. Raises `PipelineError`."""
    check(remote)
    # What PySpark finds there would have it look for the server once more, or log for itself.
    before = {name: os.environ.pop(name, None) for name in ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")}
    spark: Any = None
    try:
        with tempfile.TemporaryDirectory(prefix="barnabas-connect-") as folder, warnings.catch_warnings():
            warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
            from pyspark.sql.connect.session import SparkSession as Connected

            spark = Connected.builder.remote(remote).create()
            spark.addArtifacts(str(package(Path(folder, "barnabas.zip"))), pyfile=True)
            spark.conf.set("spark.sql.session.timeZone", "UTC")
            yield spark
    except BarnabasError:
        raise
    except Exception as error:  # PySpark, Py4J and gRPC raise many kinds, and so does the code that Spark ran
        raise PipelineError(f"Spark at {without_token(remote)}: {reason(error)}") from error
    finally:
        os.environ |= {name: value for name, value in before.items() if value is not None}
        if spark is not None:
            try:
                spark.client.release_session()
                spark.client.close()
            except Exception as error:  # the server may have ended it already
                contained("ending a Spark Connect session", error)


@contextmanager
def report_progress(spark: Any, report: Callable[[int, int], None]) -> Iterator[None]:
    """While the body runs, call `report(tasks done, tasks)` whenever that has changed."""
    last = (0, 0)

    def on_progress(stages: Any, inflight_tasks: int, operation_id: Any, done: bool) -> None:
        nonlocal last
        stages = list(stages or ())
        now = sum(each.num_completed_tasks for each in stages), sum(each.num_tasks for each in stages)
        if now[1] and now != last and not done:
            last = now
            report(*now)

    spark.registerProgressHandler(on_progress)
    try:
        yield
    finally:
        spark.removeProgressHandler(on_progress)
