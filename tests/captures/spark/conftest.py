"""One Spark session for all tests here; it costs some ten seconds once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from barnabas.captures.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="package")
def spark() -> Iterator[SparkSession]:
    """A session with one core, with the data source registered."""
    with session("local[1]", quick=True) as found:
        from barnabas.captures.spark.source import BarnabasSource

        found.dataSource.register(BarnabasSource)
        yield found
