"""Group membership, coordinators and SASL between versions.

Sources: `JoinGroupRequest.maybeOverrideRebalanceTimeout`, `FindCoordinatorRequest` (KIP-699), `LeaveGroupRequest`
(KIP-345), `SyncGroupRequest` (KIP-559).
"""

from __future__ import annotations

from .fields import Fields
from .steps import ConversionContext, Unbridgeable, difference, down, droppable, impossible, split_list, up

# --- JoinGroup ---------------------------------------------------------------------------------------------------------


@up("request", "JoinGroup", 1)
def _rebalance_timeout_from_session(fields: Fields, context: ConversionContext) -> None:
    fields["rebalance_timeout_ms"] = fields["session_timeout_ms"]


@down("request", "JoinGroup", 1)
def _drop_rebalance_timeout(fields: Fields, context: ConversionContext) -> None:
    if fields.pop("rebalance_timeout_ms") > fields["session_timeout_ms"]:
        context.note("members have only the session timeout to join a rebalance")


difference("JoinGroup", 1, "members have the session timeout to join a rebalance")
difference("JoinGroup", 4, "the broker assigns member ids without asking clients to join again")
difference("LeaveGroup", 3, "each member leaves separately")
difference("FindCoordinator", 4, "each key is requested separately")


@up("response", "JoinGroup", 7)
def _add_protocol_type(fields: Fields, context: ConversionContext) -> None:
    if not fields["error_code"]:
        fields["protocol_type"] = context.request["protocol_type"]
    fields["protocol_name"] = fields["protocol_name"] or None


@down("response", "JoinGroup", 7)
def _protocol_name_not_null(fields: Fields, context: ConversionContext) -> None:
    fields["protocol_name"] = fields["protocol_name"] or ""


@up("response", "SyncGroup", 5)
def _add_synced_protocol(fields: Fields, context: ConversionContext) -> None:
    if not fields["error_code"]:
        fields["protocol_type"] = context.request["protocol_type"]
        fields["protocol_name"] = context.request["protocol_name"]


droppable("SyncGroup", "protocol_type", "the broker does not compare it with the group's")
droppable("SyncGroup", "protocol_name", "the broker does not compare it with the group's")

# --- LeaveGroup: one member, or several --------------------------------------------------------------------------------


@up("request", "LeaveGroup", 3)
def _member_to_members(fields: Fields, context: ConversionContext) -> None:
    fields["members"] = [{"member_id": fields.pop("member_id")}]


@down("request", "LeaveGroup", 3)
def _members_to_member(fields: Fields, context: ConversionContext) -> None:
    (member,) = fields.pop("members")
    if member["group_instance_id"] is not None:
        raise Unbridgeable("the broker has no static members (KIP-345)")
    fields["member_id"] = member["member_id"]


@down("response", "LeaveGroup", 3)
def _member_error_to_response(fields: Fields, context: ConversionContext) -> None:
    members = fields.pop("members")
    if not fields["error_code"] and members:
        fields["error_code"] = members[0]["error_code"]


@up("response", "LeaveGroup", 3)
def _response_error_to_member(fields: Fields, context: ConversionContext) -> None:
    (member,) = context.request["members"]
    code = fields["error_code"]
    fields["members"] = [{"member_id": member["member_id"], "group_instance_id": None, "error_code": code}]
    fields["error_code"] = 0


split_list("LeaveGroup", 3, "members", "members")

# --- FindCoordinator: one key, or several ------------------------------------------------------------------------------


@down("request", "FindCoordinator", 1)
def _refuse_transaction_coordinators(fields: Fields, context: ConversionContext) -> None:
    if fields.pop("key_type"):
        raise Unbridgeable("the broker has coordinators for groups only (no transactions before 0.11)")


@up("request", "FindCoordinator", 4)
def _key_to_keys(fields: Fields, context: ConversionContext) -> None:
    fields["coordinator_keys"] = [fields.pop("key")]


@down("request", "FindCoordinator", 4)
def _keys_to_key(fields: Fields, context: ConversionContext) -> None:
    (fields["key"],) = fields.pop("coordinator_keys")


@down("response", "FindCoordinator", 4)
def _coordinators_to_coordinator(fields: Fields, context: ConversionContext) -> None:
    (found,) = fields.pop("coordinators")
    fields.update({name: value for name, value in found.items() if name != "key"})


@up("response", "FindCoordinator", 4)
def _coordinator_to_coordinators(fields: Fields, context: ConversionContext) -> None:
    (key,) = context.request["coordinator_keys"]
    names = ("node_id", "host", "port", "error_code", "error_message")
    found = {name: fields.pop(name) for name in names if name in fields}
    fields["coordinators"] = [{"key": key, **found}]


split_list("FindCoordinator", 4, "coordinator_keys", "coordinators")

# --- SASL --------------------------------------------------------------------------------------------------------------

impossible("SaslHandshake", 1, "tokens would have to be sent without SaslAuthenticate (KIP-152)")
impossible("SaslHandshake", 1, "tokens that are sent without a request cannot become SaslAuthenticate", upward=True)

_OPERATIONS = "the broker does not report authorized operations"
droppable("DescribeGroups", "include_authorized_operations", _OPERATIONS)
