-- One row per session of a group member: from its first join until it leaves, is expelled, or was seen last.
with events as (
    select
        *,
        coalesce(cluster_id, capture_id) as cluster,
        coalesce(group_instance_id, member_id) as member,
        event = 'leave' or coalesce(error, '') in ('UNKNOWN_MEMBER_ID', 'FENCED_INSTANCE_ID') as ends
    from {{ source('barnabas', 'groups') }}
    where coalesce(group_instance_id, member_id, '') <> '' and coalesce(error, '') <> 'MEMBER_ID_REQUIRED'
),

numbered as (
    select
        *,
        coalesce(
            sum(ends::int) over (
                partition by cluster, group_id, member
                order by time_ns, segment, number
                rows between unbounded preceding and 1 preceding
            ),
            0
        ) as session
    from events
)

select
    md5(concat_ws('/', cluster, group_id, member, session)) as session_id,
    cluster,
    group_id,
    member,
    any_value(client_id) as client_id,
    make_timestamp(min(time_ns) // 1000) as started,
    make_timestamp(max(time_ns) // 1000) as ended,
    case when not bool_or(ends) then 'open' when bool_or(event = 'leave') then 'left' else 'expelled' end as outcome,
    count(*) filter (event = 'join' and error_code = 0) as joins,
    min(generation) filter (error_code = 0) as first_generation,
    max(generation) filter (error_code = 0) as last_generation,
    count(*) filter (error_code <> 0) as errors
from numbered
group by all
