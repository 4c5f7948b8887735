"""What some numbers in messages mean: enumerations that the message definitions leave as plain integers.

Sources: ApiMessageType, IsolationLevel, CoordinatorType, ConfigResource.Type, ResourceType, PatternType,
AclOperation, AclPermissionType and ListOffsetsRequest of Kafka; acks from KIP-32 on.
"""

from __future__ import annotations

from ...decoder import facts

_CONFIG_RESOURCES = {0: "UNKNOWN", 2: "TOPIC", 4: "BROKER", 8: "BROKER_LOGGER", 16: "CLIENT_METRICS", 32: "GROUP"}
_ACL_RESOURCES = {
    0: "UNKNOWN",
    1: "ANY",
    2: "TOPIC",
    3: "GROUP",
    4: "CLUSTER",
    5: "TRANSACTIONAL_ID",
    6: "DELEGATION_TOKEN",
    7: "USER",
}
_COORDINATORS = {0: "GROUP", 1: "TRANSACTION", 2: "SHARE"}
_OPERATIONS = {
    0: "UNKNOWN",
    1: "ANY",
    2: "ALL",
    3: "READ",
    4: "WRITE",
    5: "CREATE",
    6: "DELETE",
    7: "ALTER",
    8: "DESCRIBE",
    9: "CLUSTER_ACTION",
    10: "DESCRIBE_CONFIGS",
    11: "ALTER_CONFIGS",
    12: "IDEMPOTENT_WRITE",
    13: "CREATE_TOKENS",
    14: "DESCRIBE_TOKENS",
    15: "TWO_PHASE_COMMIT",
}
_BY_NAME = {
    "acks": {-1: "(all in-sync replicas)", 0: "(none: no response)", 1: "(leader only)"},
    "isolation_level": {0: "READ_UNCOMMITTED", 1: "READ_COMMITTED"},
    "pattern_type": {0: "UNKNOWN", 1: "ANY", 2: "MATCH", 3: "LITERAL", 4: "PREFIXED"},
    "permission_type": {0: "UNKNOWN", 1: "ANY", 2: "DENY", 3: "ALLOW"},
    "operation": _OPERATIONS,
}
_BY_API = {
    ("FindCoordinator", "key_type"): _COORDINATORS,
    ("ListOffsets", "timestamp"): {
        -1: "(latest)",
        -2: "(earliest)",
        -3: "(max timestamp)",
        -4: "(earliest local)",
        -5: "(latest tiered)",
    },
    ("DescribeConfigs", "resource_type"): _CONFIG_RESOURCES,
    ("AlterConfigs", "resource_type"): _CONFIG_RESOURCES,
    ("IncrementalAlterConfigs", "resource_type"): _CONFIG_RESOURCES,
    ("IncrementalAlterConfigs", "config_operation"): {0: "SET", 1: "DELETE", 2: "APPEND", 3: "SUBTRACT"},
    ("DescribeAcls", "resource_type"): _ACL_RESOURCES,
    ("CreateAcls", "resource_type"): _ACL_RESOURCES,
    ("DeleteAcls", "resource_type"): _ACL_RESOURCES,
}


def meaning(api: str, name: str, value: object) -> str:
    """The word for a number in the field `name` of an API's message, or an empty string."""
    if not isinstance(value, int):
        return ""
    if name in ("api_key", "request_api_key"):
        return facts.api_name(value)
    table = _BY_API.get((api, name)) or (_BY_NAME.get(name) if name != "operation" or "Acl" in api else None)
    return table.get(value, "") if table else ""
