"""All Python of the documentation is run, page by page, in a folder with what the pages speak of."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from barnabas.proxy import ProxyConfig
from barnabas.proxy.metrics.settings import MeterConfig
from barnabas.ui.testing.cluster import EmbeddedCluster
from docs.environment import Environment
from docs.pages import Block, blocks
from docs.preconditions import PRECONDITIONS, ProxyWithTraffic, bytes_for
from harness.run.slices import thin
from harness.waiting import PATIENCE

ELSEWHERE = {"plugins.md": "tests/proxy/interception/plugin_host/test_docs.py"}
PYTHON = [block for block in blocks() if block.language == "python"]


def is_test(block: Block) -> bool:
    return "def test_" in block.text


def is_spark(block: Block) -> bool:
    return "spark.read" in block.text


PLAIN = [block for block in PYTHON if not (is_test(block) or is_spark(block) or block.page in ELSEWHERE)]


class FirstOutput(Exception):
    """What would go on for ever has shown something."""


def statements(text: str, page: str) -> Iterator[tuple[str, Any]]:
    """One by one: as text, and compiled."""
    for node in ast.parse(text).body:
        yield ast.unparse(node), compile(ast.Module([node], []), page, "exec")


def run(text: str, page: str, names: dict[str, Any]) -> None:
    """Line by line, each with bytes of the kind that it wants."""
    for source, code in statements(text, page):
        names |= bytes_for(source)
        if "Proxy" in names:
            names["Proxy"] = ProxyWithTraffic
        exec(code, names)


@pytest.mark.parametrize("page", thin(sorted({block.page for block in PLAIN}), 6))
def test_the_page_runs(
    page: str,
    environment: Environment,
    cluster: EmbeddedCluster,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(environment.folder)
    given = PRECONDITIONS[page]() if page in PRECONDITIONS else {}
    names: dict[str, Any] = {}
    for block in PLAIN:
        if block.page == page:
            names |= given
            text = block.text.replace("{...}", "{}")
            for shown in ('("127.0.0.1", 9092)', '("localhost", 9092)'):
                text = text.replace(f"upstream={shown}", f"upstream={cluster.address!r}")
            if " in subscribe(" in text or ".follow(" in text:
                endless(text, page, names, cluster)
            else:
                run(text, page, names)


def endless(text: str, page: str, names: dict[str, Any], cluster: EmbeddedCluster) -> None:
    """What goes on as long as a proxy has traffic shows something, and is ended then."""

    def enough(*shown: Any) -> None:
        assert shown
        raise FirstOutput

    with ProxyWithTraffic(ProxyConfig(upstream=cluster.address, meter=MeterConfig(feed=("127.0.0.1", 0)))) as proxy:
        assert proxy.meter is not None and proxy.meter.feed is not None
        text = text.replace('("127.0.0.1", 19095)', repr(proxy.meter.feed))
        names |= {"token": proxy.meter.feed_token, "print": enough}
        with pytest.raises(FirstOutput):
            run(text, page, names)


SEND_ORDERS = f"""
import threading

import pytest
from confluent_kafka import Producer

def send_orders(bootstrap):
    producer = Producer({{"bootstrap.servers": bootstrap, "retry.backoff.ms": 10}})
    producer.produce("orders", b"one")
    assert producer.flush({PATIENCE:g}) == 0

"""


def test_tests_pass(environment: Environment, tmp_path: Path) -> None:
    """Each in a module of its own, in front of mock brokers or the recording."""
    shown = [block for block in PYTHON if is_test(block) and block.page not in ELSEWHERE]
    for number, block in enumerate(shown):
        text = block.text.replace("recordings/checkout", str(environment.folder / "recordings" / "checkout"))
        (tmp_path / f"test_{number}.py").write_text(SEND_ORDERS + text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=PATIENCE)
    assert f"{len(shown)} passed" in done.stdout, done.stdout


@pytest.mark.slow
def test_spark_reads(environment: Environment, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pyspark = pytest.importorskip("pyspark.sql")
    import pyarrow.dataset

    monkeypatch.chdir(environment.folder)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    spark = pyspark.SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    try:
        for block in PYTHON:
            if is_spark(block):
                names = {"spark": spark, "pyarrow": pyarrow}
                for source, code in statements(block.text, block.page):
                    if ".load(" in source or ".parquet(" in source:
                        frame = eval(source.removeprefix("frame = "), names)
                        assert frame.columns
                        assert frame.isStreaming or frame.count() >= 0
                    else:
                        exec(code, names)
    finally:
        spark.stop()


def test_duckdb_reads(environment: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    import duckdb

    monkeypatch.chdir(environment.folder)
    (query,) = (block.text for block in blocks() if block.language == "sql")
    assert ("shop",) in [row[:1] for row in duckdb.sql(query).fetchall()]
