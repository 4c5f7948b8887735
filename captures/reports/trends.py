"""Reports over time: latency, error rates, lag, rebalances, skew of partitions, and what changed since the period before.

The SQL is as in `queries`. `{start}`, `{middle}` and `{end}` bound two periods of equal length, in nanoseconds (`periods`). Rows are of each
cluster by itself; exchanges that could not be decoded do not count.
"""

from __future__ import annotations

from typing import NamedTuple

from .queries import QueryEngine, ReportQuery, percentile

_SECOND = 10**9
_LENGTHS = {
    7 * 86400 * _SECOND: "7 days", 86400 * _SECOND: "24 hours", 3600 * _SECOND: "hour", 600 * _SECOND: "10 minutes", 60 * _SECOND: "minute",
}  # fmt: skip
_BUCKET = "time_ns - time_ns % {bucket}"
_SEEN = "state <> 'orphan' AND NOT undecoded"
_ERRORS = "count_if(error_code <> 0)"
_RATE = f"cast({_ERRORS} AS double) / count(*)"
_FAILED_NS = "CASE WHEN error_code <> 0 THEN time_ns END"
_COUNTED = f"""count(*) AS requests, {_ERRORS} AS errors, {_RATE} AS error_rate, min({_FAILED_NS}) AS first_ns,
    max({_FAILED_NS}) AS last_ns"""
_INTACT = "problem IS NULL AND coalesce(crc_ok, true) AND NOT coalesce(control, false)"
_AGE = "cast(time_ns AS double) - cast(max_timestamp_ms AS double) * 1e6"


def _compared(what: str, unit: str, name: str, value: str, source: str, where: str = "true") -> str:
    """Both periods of a number for each name. `value` is an aggregate of rows for which `{period}` holds."""
    before, after = (value.replace("{period}", f"time_ns {sign} {{middle}}") for sign in ("<=", ">"))
    return f"""SELECT cluster_id, '{what}' AS what, {name} AS name, '{unit}' AS unit, cast({before} AS double) AS previous,
        cast({after} AS double) AS latest FROM {source} WHERE time_ns > {{start}} AND time_ns <= {{end}} AND {where}
        GROUP BY cluster_id, {name}"""


_COUNT = "count_if({period})"
_SHARE = "count_if({period} AND error_code <> 0) / nullif(cast(count_if({period}) AS double), 0)"
_P99 = percentile("CASE WHEN {period} THEN latency_ns END", 0.99)

TRENDS = {
    "changes": ReportQuery(
        "Changes",
        "The last {period} of the tables against the {period} before. Counts also depend on how much of each was recorded.",
        ("exchanges", "errors"),
        " UNION ALL ".join((
            _compared("requests of a client", "requests", "client_id", _COUNT, "exchanges", _SEEN),
            _compared("requests of an API", "requests", "api", _COUNT, "exchanges", _SEEN),
            _compared("error rate", "share", "api", _SHARE, "exchanges", _SEEN),
            _compared("p99 latency", "ns", "api", _P99, "exchanges", "state = 'paired' AND NOT undecoded"),
            _compared("error", "errors", "concat(api, ' ', error)", _COUNT, "errors"),
        )),
        ("what", "-latest", "name"),
    ),
    "latency-over-time": ReportQuery(
        "Latency over time",
        "From the first byte of a request to the first byte of its response, by API. Fetches wait for records as long as clients allow.",
        ("exchanges",),
        f"""SELECT {_BUCKET} AS start_ns, cluster_id, api, count(latency_ns) AS answers, {percentile("latency_ns", 0.5)} AS p50_ns,
            {percentile("latency_ns", 0.99)} AS p99_ns, max(latency_ns) AS max_ns FROM exchanges
            WHERE state = 'paired' AND NOT undecoded GROUP BY {_BUCKET}, cluster_id, api""",
        ("start_ns", "cluster_id", "api"),
        "start_ns",
    ),
    "error-rates": ReportQuery(
        "Error rates",
        "The share of requests whose response has an error code, by API, client id and broker, with the first and the last of them.",
        ("exchanges",),
        f"""SELECT cluster_id, 'api' AS by_what, api AS name, {_COUNTED} FROM exchanges WHERE {_SEEN} GROUP BY cluster_id, api
            UNION ALL SELECT cluster_id, 'client_id', client_id, {_COUNTED} FROM exchanges WHERE {_SEEN} GROUP BY cluster_id, client_id
            UNION ALL SELECT cluster_id, 'broker', broker, {_COUNTED} FROM exchanges WHERE {_SEEN} GROUP BY cluster_id, broker""",
        ("by_what", "-error_rate", "-requests", "name"),
    ),
    "error-rates-over-time": ReportQuery(
        "Error rates over time",
        "The share of requests whose response has an error code, by API.",
        ("exchanges",),
        f"""SELECT {_BUCKET} AS start_ns, cluster_id, api, count(*) AS requests, {_ERRORS} AS errors, {_RATE} AS error_rate
            FROM exchanges WHERE {_SEEN} GROUP BY {_BUCKET}, cluster_id, api""",
        ("start_ns", "cluster_id", "api"),
        "start_ns",
    ),
    "lag": ReportQuery(
        "Consumer lag",
        "How old the newest record of a batch was when a consumer asked for it, by client id and topic. Timestamps that producers set are as "
        "right as their clocks; a timestamp in the future counts as 0.",
        ("batches",),
        f"""SELECT {_BUCKET} AS start_ns, cluster_id, client_id, topic, count(*) AS batches, cast(sum(record_count) AS bigint) AS records,
            {percentile("age_ns", 0.5)} AS p50_age_ns, {percentile("age_ns", 0.99)} AS p99_age_ns, max(age_ns) AS max_age_ns FROM
            (SELECT time_ns, cluster_id, client_id, topic, record_count, CASE WHEN {_AGE} < 0 THEN 0e0 ELSE {_AGE} END AS age_ns FROM batches
                WHERE direction = 'response' AND max_timestamp_ms > 0 AND {_INTACT}) fetched
            GROUP BY {_BUCKET}, cluster_id, client_id, topic""",
        ("start_ns", "cluster_id", "client_id", "topic"),
        "start_ns",
    ),
    "lag-in-records": ReportQuery(
        "Consumer lag in records",
        "How many records of a partition were behind those that a consumer had fetched, by client id and topic: the partition with the most. "
        "`at_end` is the number of fetches that reached the end.",
        ("batches",),
        f"""SELECT {_BUCKET} AS start_ns, cluster_id, client_id, topic, count(*) AS fetches, count_if(behind = 0) AS at_end,
            {percentile("behind", 0.5)} AS p50_behind, max(behind) AS max_behind FROM
            (SELECT time_ns, cluster_id, client_id, topic, CASE WHEN behind < 0 THEN 0 ELSE behind END AS behind FROM
                (SELECT time_ns, cluster_id, client_id, topic, min(high_watermark - last_offset - 1) AS behind FROM batches
                    WHERE high_watermark IS NOT NULL AND last_offset IS NOT NULL
                    GROUP BY capture_id, segment, number, time_ns, cluster_id, client_id, topic, topic_id, partition) by_partition) fetched
            GROUP BY {_BUCKET}, cluster_id, client_id, topic""",
        ("start_ns", "cluster_id", "client_id", "topic"),
        "start_ns",
    ),
    "rebalances": ReportQuery(
        "Rebalances over time",
        "What consumer groups did in each time interval; `generations` is how many different ones members joined.",
        ("groups",),
        f"""SELECT {_BUCKET} AS start_ns, cluster_id, group_id, count_if(event = 'join') AS joins, count_if(event = 'leave') AS leaves,
            count(DISTINCT CASE WHEN error_code = 0 AND event IN ('join', 'heartbeat') AND generation > 0 THEN generation END) AS generations,
            count(DISTINCT member_id) AS members, {_ERRORS} AS errors FROM groups GROUP BY {_BUCKET}, cluster_id, group_id""",
        ("start_ns", "cluster_id", "group_id"),
        "start_ns",
    ),
    "partitions": ReportQuery(
        "Partitions",
        "What was produced to and fetched from each partition; `skew` is the produced bytes divided by the mean of the topic's partitions "
        "that were seen, of which there are `partitions`.",
        ("batches",),
        f"""SELECT cluster_id, topic, partition, records, produced_bytes, fetched_bytes,
            produced_bytes / nullif(avg(produced_bytes) OVER (PARTITION BY cluster_id, topic), 0) AS skew,
            count(*) OVER (PARTITION BY cluster_id, topic) AS partitions FROM
            (SELECT cluster_id, topic, partition, cast(sum(CASE WHEN direction = 'request' THEN record_count ELSE 0 END) AS bigint) AS records,
                cast(sum(CASE WHEN direction = 'request' THEN size_bytes ELSE 0 END) AS bigint) AS produced_bytes,
                cast(sum(CASE WHEN direction = 'response' THEN size_bytes ELSE 0 END) AS bigint) AS fetched_bytes
                FROM batches WHERE topic IS NOT NULL AND {_INTACT} GROUP BY cluster_id, topic, partition) each_one""",
        ("-skew", "topic", "partition"),
    ),
}
"""Every report by its name."""


class Periods(NamedTuple):
    """Two periods of `length`, from after `start` to `middle`, and from after that to `end`; times in ns since the epoch."""

    start: int
    middle: int
    end: int
    length: str


def periods(engine: QueryEngine) -> Periods:
    """The longest periods up to the last exchange, from a week down to a minute, of which half of the first or more is after the first exchange,
    and in both of which something was seen. If there are none, nothing is in them."""
    (row,) = engine.query("SELECT min(time_ns) AS first_ns, max(time_ns) AS last_ns FROM exchanges")
    end = row["last_ns"] or 0
    for length, words in _LENGTHS.items():
        if row["first_ns"] is None or row["first_ns"] > end - length * 3 // 2:
            continue
        (before,) = engine.query(f"SELECT count(*) AS n FROM exchanges WHERE time_ns > {end - 2 * length} AND time_ns <= {end - length}")
        if before["n"]:
            return Periods(end - 2 * length, end - length, end, words)
    return Periods(end, end, end, "minute")
