"""Error codes that old clients understand.

Up to 0.8.2 a client may crash on an unknown code, newer ones treat it as UNKNOWN_SERVER_ERROR, which is not retriable. So
each later code is replaced by the nearest one that the client knows, as brokers did themselves (KIP-112:
KAFKA_STORAGE_ERROR as NOT_LEADER_OR_FOLLOWER in old versions). Source of which release has which code: `Errors` of each
release.
"""

from __future__ import annotations

from functools import cache

from ...decoder.reference import releases
from ...decoder.schema import facts

_NEWEST = {
    "0.8.0": 12, "0.8.2": 20, "0.9.0": 31, "0.10.0": 35, "0.10.1": 43, "0.10.2": 44, "0.11.0": 55, "1.0": 60,
    "1.1": 71, "2.0": 73, "2.1": 76, "2.2": 81, "2.3": 82,
}  # fmt: skip
"""The highest code of each release. Later clients can handle unknown codes."""
_NEAREST = {
    "KAFKA_STORAGE_ERROR": "NOT_LEADER_OR_FOLLOWER",
    "FENCED_LEADER_EPOCH": "NOT_LEADER_OR_FOLLOWER",
    "UNKNOWN_LEADER_EPOCH": "NOT_LEADER_OR_FOLLOWER",
    "OFFSET_NOT_AVAILABLE": "LEADER_NOT_AVAILABLE",
    "NOT_ENOUGH_REPLICAS": "REQUEST_TIMED_OUT",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND": "REQUEST_TIMED_OUT",
    "THROTTLING_QUOTA_EXCEEDED": "REQUEST_TIMED_OUT",
    "NOT_CONTROLLER": "LEADER_NOT_AVAILABLE",
    "UNKNOWN_TOPIC_ID": "UNKNOWN_TOPIC_OR_PARTITION",
    "INCONSISTENT_TOPIC_ID": "UNKNOWN_TOPIC_OR_PARTITION",
    "OFFSET_MOVED_TO_TIERED_STORAGE": "OFFSET_OUT_OF_RANGE",
    "RECORD_LIST_TOO_LARGE": "MESSAGE_TOO_LARGE",
    "MEMBER_ID_REQUIRED": "UNKNOWN_MEMBER_ID",
    "FENCED_INSTANCE_ID": "UNKNOWN_MEMBER_ID",
    "UNSTABLE_OFFSET_COMMIT": "COORDINATOR_LOAD_IN_PROGRESS",
    "CONCURRENT_TRANSACTIONS": "COORDINATOR_LOAD_IN_PROGRESS",
    "POLICY_VIOLATION": "INVALID_REQUEST",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "CLUSTER_AUTHORIZATION_FAILED",
    "SASL_AUTHENTICATION_FAILED": "UNSUPPORTED_SASL_MECHANISM",
}
_OTHERWISE = {False: "UNKNOWN_SERVER_ERROR", True: "REQUEST_TIMED_OUT"}
"""By whether the code is retriable: its replacement is so too, so that clients neither give up nor loop."""


@cache
def changes(api_key: int, version: int) -> dict[int, int]:
    """Code -> its replacement for clients that use this version; codes that they know are left out."""
    newest = _newest(api_key, version)
    if newest is None:
        return {}
    return {code: _nearest_known(code, newest) for code in facts.errors() if code > newest}


def _newest(api_key: int, version: int) -> int | None:
    """The highest code known to clients of the last release that had no newer version of this API."""
    numbers = list(_NEWEST)
    following = releases.since(api_key, version + 1)
    if following is None or releases.release_order(following) > releases.release_order(numbers[-1]):
        return None
    older = [n for n in numbers if releases.release_order(n) < releases.release_order(following)]
    return _NEWEST[older[-1]] if older else _NEWEST[numbers[0]]


def _nearest_known(code: int, newest: int) -> int:
    while code > newest:
        fact = facts.errors()[code]
        code = facts.error_code(_NEAREST.get(fact.name, _OTHERWISE[fact.retriable]))
    return code
