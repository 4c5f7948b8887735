"""The reports: what each is about, which tables it needs, and its SQL.

The SQL uses what DuckDB and Spark have in common, and percentiles, interpolated between neighbours (`percentile`).
`{bucket}` is an interval in nanoseconds. Rows are sorted afterwards, by `order`: engines do not agree on nulls.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple, Protocol

from ...decoder.schema import facts


class QueryEngine(Protocol):
    """Something that knows the tables and SQL, the aggregate `percentile(x, p)` included.

    `counted_percentile`: an aggregate with the same result that counts equal values, so that its memory depends on how many different
    ones there are.
    """

    counted_percentile: str

    @property
    def tables(self) -> Collection[str]: ...

    def query(self, sql: str) -> list[dict[str, Any]]:
        """The rows, as dicts of plain Python values."""


class ReportQuery(NamedTuple):
    """A report. `order`: columns to sort by, with `-` for the largest first. `over`: the column of time, for a chart."""

    title: str
    about: str
    needs: tuple[str, ...]
    sql: str
    order: tuple[str, ...] = ()
    over: str = ""


EXACT_ROWS = 5_000_000
"""In tables with more rows, percentiles are those of values rounded to `ROUNDED`."""
ROUNDED = "1 %"
_STEP = 0.0198
"""Rounded values are sinh(n * _STEP) / 1000: from 1 on a logarithmic scale (as of HdrHistogram and DDSketch, whose error is relative too)
with steps of 1.98 %, so that a value is at most 0.99 % off, and 0 is exact. Those from 1 us to 1 hour are 1,112 different ones, whatever their
number, and those of parts of a table can be counted apart."""


def percentile(value: str, share: float) -> str:
    """The percentile of a column as SQL, to be filled in by `percentile_values`."""
    return f"{{percentile}}({{before}}{value}{{after}}, {share})"


def percentile_values(engine: QueryEngine, exact: bool) -> dict[str, str]:
    """What completes `percentile` in SQL."""
    if exact:
        return {"percentile": "percentile", "before": "", "after": ""}
    return {"percentile": engine.counted_percentile, "before": "sinh(round(asinh(1e3 * (", "after": f")) / {_STEP}e0) * {_STEP}e0) / 1e3"}


_SUMMED = """count_if(state <> 'orphan') AS requests, count_if(error_code <> 0) AS errors,
    count_if(state = 'orphan') AS orphans, count_if(undecoded) AS undecoded,
    count_if(state = 'no_response' OR state = 'pending') AS unanswered"""
_BYTES = (
    """sum(coalesce(request_size + 4, 0)) AS request_bytes, sum(coalesce(response_size + 4, 0)) AS response_bytes"""
)
_P50, _P90, _P99 = (percentile("latency_ns", share) for share in (0.5, 0.9, 0.99))
_LATENCY = f"""count(latency_ns) AS answers, {_P50} AS p50_ns, {_P90} AS p90_ns, {_P99} AS p99_ns, max(latency_ns) AS max_ns"""
_HOST = "regexp_replace(client, ':[0-9]+$', '')"
_UNSUPPORTED = facts.error_code("UNSUPPORTED_VERSION")
_THROWN_OUT = (
    "'UNKNOWN_MEMBER_ID', 'ILLEGAL_GENERATION', 'FENCED_INSTANCE_ID', 'FENCED_MEMBER_EPOCH', 'STALE_MEMBER_EPOCH'"
)

_SAME_BATCH = "partition, producer_id, producer_epoch, base_sequence, base_timestamp_ms, record_count, size_bytes"
"""What a batch has in common with itself, sent again. Producer ids begin again in a cluster that is made anew under its old id."""
_SCOPE = "coalesce(cluster_id, capture_id)"
"""Where group ids, producer ids and generations mean the same: a cluster; where its id is unknown, a recording."""

_SOFTWARE = """SELECT capture_id, connection, max(software_name) AS software_name, max(software_version) AS software_version
    FROM connections GROUP BY capture_id, connection"""

REPORTS = {
    "summary": ReportQuery(
        "Summary",
        "What the tables contain.",
        ("exchanges",),
        f"""SELECT count(DISTINCT capture_id) AS captures, count(DISTINCT cluster_id) AS clusters,
            count(DISTINCT client_id) AS client_ids, count(DISTINCT broker) AS brokers, {_SUMMED}, {_BYTES}, min(time_ns) AS first_ns, max(time_ns) AS last_ns,
            {_P50} AS p50_ns, {_P99} AS p99_ns FROM exchanges""",
    ),
    "files": ReportQuery(
        "Files",
        "The state of the captures.",
        ("segments",),
        """SELECT status, count(*) AS files, sum(size_bytes) AS bytes, sum(size_bytes - good_bytes) AS damaged_bytes,
            sum(exchanges) AS exchanges, sum(lost_bytes) AS lost_bytes FROM segments GROUP BY status""",
        ("-files",),
    ),
    "clients": ReportQuery(
        "Clients, APIs and versions",
        "Which clients use which version of which API; `refused` is UNSUPPORTED_VERSION.",
        ("exchanges", "connections"),
        f"""SELECT e.cluster_id, e.client_id, s.software_name, s.software_version, e.api, e.api_key, e.api_version,
            count(*) AS requests, count_if(e.error_code <> 0) AS errors, count_if(e.error_code = {_UNSUPPORTED}) AS refused,
            count(DISTINCT {_HOST.replace("client", "e.client")}) AS hosts, min(e.time_ns) AS first_ns, max(e.time_ns) AS last_ns
            FROM exchanges e LEFT JOIN ({_SOFTWARE}) s ON e.capture_id = s.capture_id AND e.connection = s.connection
            WHERE e.state <> 'orphan'
            GROUP BY e.cluster_id, e.client_id, s.software_name, s.software_version, e.api, e.api_key, e.api_version""",
        ("cluster_id", "client_id", "software_name", "software_version", "api", "api_version"),
    ),
    "errors": ReportQuery(
        "Errors",
        "Every error code in responses, at any level.",
        ("errors",),
        """SELECT cluster_id, api, error, error_code, count(*) AS errors, count(DISTINCT client_id) AS client_ids,
            count(DISTINCT topic) AS topics, count(DISTINCT capture_id) AS captures, min(time_ns) AS first_ns,
            max(time_ns) AS last_ns FROM errors GROUP BY cluster_id, api, error, error_code""",
        ("-errors", "cluster_id", "api", "error"),
    ),
    "errors-over-time": ReportQuery(
        "Errors over time",
        "Errors by code in each time interval.",
        ("errors",),
        """SELECT time_ns - time_ns % {bucket} AS start_ns, error, count(*) AS errors FROM errors
            GROUP BY time_ns - time_ns % {bucket}, error""",
        ("start_ns", "error"),
        "start_ns",
    ),
    "latency": ReportQuery(
        "Latency",
        "From the first byte of a request to the first byte of its response, by API, client id, broker and topic. Fetches wait for "
        "records as long as clients allow.",
        ("exchanges", "batches"),
        f"""SELECT 'api' AS by_what, cluster_id, api AS name, {_LATENCY} FROM exchanges WHERE state = 'paired' GROUP BY cluster_id, api
            UNION ALL SELECT 'client_id', cluster_id, client_id, {_LATENCY} FROM exchanges WHERE state = 'paired'
                GROUP BY cluster_id, client_id
            UNION ALL SELECT 'broker', cluster_id, broker, {_LATENCY} FROM exchanges WHERE state = 'paired' GROUP BY cluster_id, broker
            UNION ALL SELECT 'topic', cluster_id, topic, {_LATENCY} FROM
                (SELECT DISTINCT capture_id, segment, number, topic FROM batches WHERE topic IS NOT NULL) b
                JOIN exchanges e ON e.capture_id = b.capture_id AND e.segment = b.segment AND e.number = b.number
                WHERE state = 'paired' GROUP BY cluster_id, topic""",
        ("by_what", "-p99_ns", "cluster_id", "name"),
    ),
    "throughput": ReportQuery(
        "Throughput",
        "Requests and bytes in each time interval.",
        ("exchanges",),
        f"""SELECT time_ns - time_ns % {{bucket}} AS start_ns, {_SUMMED}, {_BYTES} FROM exchanges
            GROUP BY time_ns - time_ns % {{bucket}}""",
        ("start_ns",),
        "start_ns",
    ),
    "talkers": ReportQuery(
        "Top talkers",
        "Which clients send and fetch the most.",
        ("exchanges",),
        f"""SELECT cluster_id, client_id, {_HOST} AS host, {_SUMMED}, {_BYTES},
            count(DISTINCT concat(capture_id, '-', cast(connection AS string))) AS connections
            FROM exchanges GROUP BY cluster_id, client_id, {_HOST}""",
        ("-response_bytes", "-request_bytes", "cluster_id", "client_id", "host"),
    ),
    "groups": ReportQuery(
        "Groups",
        "How stable consumer groups are: `coordinator` is the last one, `generations` is how many the captures saw, `thrown_out` counts "
        "members that the coordinator no longer knew.",
        ("groups", "errors"),
        f"""SELECT coalesce(g.cluster_id, e.cluster_id) AS cluster_id, coalesce(g.group_id, e.group_id) AS group_id, g.coordinator AS coordinator,
            coalesce(g.members, 0) AS members,
            coalesce(g.joins, 0) AS joins, coalesce(g.leaves, 0) AS leaves, coalesce(g.generations, 0) AS generations,
            g.p99_join_ns AS p99_join_ns, coalesce(e.rebalancing, 0) AS rebalancing, coalesce(e.thrown_out, 0) AS thrown_out,
            coalesce(e.errors, 0) AS errors FROM
            (SELECT {_SCOPE} AS scope, max(cluster_id) AS cluster_id, group_id, max_by(broker, time_ns) AS coordinator,
                count(DISTINCT member_id) AS members, count_if(event = 'join') AS joins,
                count_if(event = 'leave') AS leaves,
                count(DISTINCT CASE WHEN event = 'join' AND error_code = 0 THEN generation END) AS generations,
                {percentile("CASE WHEN event = 'join' THEN latency_ns END", 0.99)} AS p99_join_ns
                FROM groups GROUP BY {_SCOPE}, group_id) g
            FULL OUTER JOIN (SELECT {_SCOPE} AS scope, max(cluster_id) AS cluster_id, group_id, count_if(error = 'REBALANCE_IN_PROGRESS') AS rebalancing,
                count_if(error IN ({_THROWN_OUT})) AS thrown_out, count(*) AS errors
                FROM errors WHERE group_id IS NOT NULL GROUP BY {_SCOPE}, group_id) e ON g.scope = e.scope AND g.group_id = e.group_id""",
        ("-generations", "-thrown_out", "cluster_id", "group_id"),
    ),
    "producers": ReportQuery(
        "Producers",
        "How records are sent: small batches, no compression and acks=0 have a cost or a risk; `repeated` are batches of an "
        "idempotent producer that were sent again.",
        ("batches",),
        f"""SELECT p.cluster_id, p.client_id, p.topic, p.batches, p.records, p.bytes, p.records_per_batch, p.bytes_per_batch, p.uncompressed,
            p.gzip, p.snappy, p.lz4, p.zstd, p.acks_0, p.acks_1, p.acks_all, p.idempotent, p.old_format, coalesce(r.repeated, 0) AS repeated FROM
            (SELECT cluster_id, client_id, topic, count(*) AS batches, sum(record_count) AS records, sum(size_bytes) AS bytes,
                avg(record_count) AS records_per_batch, avg(size_bytes) AS bytes_per_batch,
                count_if(codec = 'none') AS uncompressed, count_if(codec = 'gzip') AS gzip, count_if(codec = 'snappy') AS snappy,
                count_if(codec = 'lz4') AS lz4, count_if(codec = 'zstd') AS zstd, count_if(acks = 0) AS acks_0, count_if(acks = 1) AS acks_1,
                count_if(acks = -1) AS acks_all, count_if(producer_id >= 0) AS idempotent, count_if(magic < 2) AS old_format
                FROM batches WHERE direction = 'request' GROUP BY cluster_id, client_id, topic) p
            LEFT JOIN (SELECT cluster_id, client_id, topic, sum(n - 1) AS repeated FROM
                (SELECT cluster_id, client_id, topic, count(*) AS n FROM batches
                    WHERE direction = 'request' AND producer_id >= 0 AND base_sequence >= 0
                    GROUP BY {_SCOPE}, cluster_id, client_id, topic, {_SAME_BATCH}) each_batch
                GROUP BY cluster_id, client_id, topic) r
            ON p.cluster_id IS NOT DISTINCT FROM r.cluster_id AND p.client_id IS NOT DISTINCT FROM r.client_id
                AND p.topic IS NOT DISTINCT FROM r.topic""",
        ("-batches", "cluster_id", "client_id", "topic"),
    ),
    "transactions": ReportQuery(
        "Transactional producers",
        "What each transactional id sent, and who fetched it, by its producer ids; `epochs` is how often it was begun anew.",
        ("batches",),
        f"""SELECT p.cluster_id, p.transactional_id, p.client_ids, p.producer_ids, p.epochs, p.topics, p.batches, p.records, p.bytes,
            coalesce(f.fetched_records, 0) AS fetched_records, coalesce(f.consumers, 0) AS consumers, p.first_ns, p.last_ns FROM
            (SELECT {_SCOPE} AS scope, max(cluster_id) AS cluster_id, transactional_id, count(DISTINCT client_id) AS client_ids,
                count(DISTINCT producer_id) AS producer_ids, count(DISTINCT concat(producer_id, ' ', producer_epoch)) AS epochs,
                count(DISTINCT topic) AS topics, count(*) AS batches, cast(sum(record_count) AS bigint) AS records,
                cast(sum(size_bytes) AS bigint) AS bytes, min(time_ns) AS first_ns, max(time_ns) AS last_ns
                FROM batches WHERE transactional_id IS NOT NULL GROUP BY {_SCOPE}, transactional_id) p
            LEFT JOIN (SELECT named.scope, named.transactional_id, cast(sum(each.record_count) AS bigint) AS fetched_records,
                count(DISTINCT each.client_id) AS consumers FROM
                (SELECT {_SCOPE} AS scope, producer_id, client_id, record_count FROM batches
                    WHERE direction = 'response' AND producer_id >= 0 AND NOT control) each
                JOIN (SELECT DISTINCT {_SCOPE} AS scope, producer_id, transactional_id FROM batches
                    WHERE transactional_id IS NOT NULL AND producer_id >= 0) named
                    ON each.scope = named.scope AND each.producer_id = named.producer_id
                GROUP BY named.scope, named.transactional_id) f
            ON p.scope = f.scope AND p.transactional_id = f.transactional_id""",
        ("-batches", "cluster_id", "transactional_id"),
    ),
    "quotas": ReportQuery(
        "Quotas",
        "Which clients brokers throttled, and for how long.",
        ("throttles",),
        """SELECT cluster_id, client_id, api, count(*) AS throttled, sum(throttle_ms) AS sum_ms, max(throttle_ms) AS max_ms,
            min(time_ns) AS first_ns, max(time_ns) AS last_ns FROM throttles GROUP BY cluster_id, client_id, api""",
        ("-sum_ms", "cluster_id", "client_id", "api"),
    ),
    "findings": ReportQuery(
        "Findings",
        "Findings of all captures; barnabas findings explains each. A finding counts once per recording that shows it.",
        ("findings",),
        """SELECT cluster_id, id, severity, count(*) AS findings, count(DISTINCT capture_id) AS captures, sum(count) AS times,
            min(seen) AS such_as, min(first_ns) AS first_ns, max(last_ns) AS last_ns FROM findings GROUP BY cluster_id, id, severity""",
        ("-severity", "-captures", "-times", "cluster_id", "id"),
    ),
}
"""Every report by its name; `compatibility` is made of `clients` (see `compatibility`)."""
OFFERS = """SELECT cluster_id, client_id, software_name, software_version, api_key, max(offered_min) AS offered_min,
    min(offered_max) AS offered_max FROM versions WHERE offered_max IS NOT NULL
    GROUP BY cluster_id, client_id, software_name, software_version, api_key"""
FORMATS = """SELECT cluster_id, client_id, magic, count(*) AS batches FROM batches WHERE direction = 'request' AND magic < 2
    GROUP BY cluster_id, client_id, magic"""
RECORDED = """SELECT capture_id, min(first_ns) AS first_ns, max(last_ns) AS last_ns FROM segments WHERE first_ns IS NOT NULL
    GROUP BY capture_id"""
