-- One row per hour, cluster and API: exact percentiles of the time until the response, in milliseconds.
select
    date_trunc('hour', make_timestamp(time_ns // 1000)) as hour,
    cluster_id,
    api,
    count(*) as answered,
    quantile_cont(latency_ns, 0.5) / 1e6 as p50_ms,
    quantile_cont(latency_ns, 0.99) / 1e6 as p99_ms,
    max(latency_ns) / 1e6 as max_ms
from {{ source('barnabas', 'exchanges') }}
where latency_ns is not null
group by all
