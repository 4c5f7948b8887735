-- One row per hour, cluster, API and client id: requests, errors and their share.
select
    date_trunc('hour', make_timestamp(time_ns // 1000)) as hour,
    cluster_id,
    api,
    client_id,
    count(*) as requests,
    count(*) filter (error_code <> 0) as errors,
    errors / requests as error_rate,
    mode(error) as most_frequent
from {{ source('barnabas', 'exchanges') }}
where state <> 'orphan'
group by all
