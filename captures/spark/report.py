"""The report over an `exchanges` table, as Spark SQL: requests, errors and latency per API and client id."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SQL = """
SELECT api, client_id,
       count_if(state != 'orphan') AS requests,
       count_if(error_code != 0) AS errors,
       count_if(state = 'orphan') AS orphans,
       count_if(undecoded) AS undecoded,
       percentile(latency_ns, array(0.5D, 0.99D)) AS latency,
       grouping_id(api, client_id) AS level
FROM exchanges
GROUP BY GROUPING SETS ((api, client_id), ())
ORDER BY level, requests DESC, api, client_id
"""


@dataclass(frozen=True, slots=True)
class Line:
    """Counts of some exchanges. `api` and `client_id` are None in the total; `client_id` also where none was sent.

    `errors` are exchanges whose response holds an error code; `orphans` are responses without a request. Latencies
    are exact percentiles in nanoseconds, interpolated between neighbours, None when no request was answered.
    """

    api: str | None
    client_id: str | None
    requests: int
    errors: int
    orphans: int
    undecoded: int
    p50_latency_ns: float | None
    p99_latency_ns: float | None

    @property
    def error_rate(self) -> float:
        """Errors per request, 0 when there was none."""
        return self.errors / self.requests if self.requests else 0.0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"error_rate": self.error_rate}


@dataclass(frozen=True, slots=True)
class Report:
    """The total, and a line per API and client id, those with most requests first."""

    total: Line
    lines: list[Line]

    def to_dict(self) -> dict[str, Any]:
        """The document that `barnabas pipeline run --json` prints."""
        total = {key: value for key, value in self.total.to_dict().items() if key not in ("api", "client_id")}
        return total | {"by_api_and_client": [line.to_dict() for line in self.lines]}


def report(spark: SparkSession, table: str | Path) -> Report:
    """Compute the report over the Parquet files in the folder `table`."""
    spark.read.parquet(str(table)).createOrReplaceTempView("exchanges")
    total = Line(None, None, 0, 0, 0, 0, None, None)
    lines = []
    for row in spark.sql(_SQL).collect():
        p50, p99 = row.latency or (None, None)
        line = Line(row.api, row.client_id, row.requests, row.errors, row.orphans, row.undecoded, p50, p99)
        if row.level:
            total = line
        else:
            lines.append(line)
    return Report(total, lines)
