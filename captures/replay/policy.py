"""Which recorded requests are sent again, and why others are not."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from ...decoder import Exchange
from ...decoder.codec.message import Message
from ...decoder.codec.message_view import MessageView
from ...decoder.codec.secrets import MASK, secret_paths
from ...decoder.schema import facts
from ...decoder.schema.meaning import Meaning
from ...decoder.wire.frame import Direction
from .partial_requests import PRODUCE, Place, is_retriable, partitions_of, retriable_partitions
from .rewrite import read

_LOGIN = frozenset({"SaslHandshake", "SaslAuthenticate"})
# Requests between brokers that their definitions list for clients' listeners, too.
_BETWEEN_BROKERS = frozenset(
    {
        "WriteTxnMarkers",
        "InitializeShareGroupState",
        "ReadShareGroupState",
        "WriteShareGroupState",
        "DeleteShareGroupState",
        "ReadShareGroupStateSummary",
    }
)
_ADMIN = re.compile(
    r"Alter|IncrementalAlter|Delete|OffsetDelete|Update|Elect|Renew|Expire|Unregister|RemoveRaft|AddRaft|CreateAcls"
    r"|CreateDelegationToken|AssignReplicas"
)

ALTERS = "it alters or deletes; --include-admin sends it"
"""Why administrative requests are not sent."""


@dataclass(frozen=True, slots=True)
class Policy:
    """The requests to send besides ordinary ones. `admin`: requests that alter or delete; `internal`: requests between brokers
    and controllers; `login`: SASL as recorded (which fails where it was masked); `refused`: partitions of Produce requests
    that were refused with a retriable error, so that the recorded client retried them itself."""

    admin: bool = False
    internal: bool = False
    login: bool = False
    refused: bool = False

    def why_not(self, exchange: Exchange) -> str | None:
        """Why a request is not sent; None if it is."""
        by_api = self._api(exchange.api_key)
        if by_api is not None:
            return by_api
        message = exchange.request_message
        if exchange.request_cut:
            return f"only its start was recorded ({exchange.cut})"
        if message is None:
            return f"cannot be decoded ({exchange.undecoded})" if exchange.request else "only its answer was recorded"
        null = forbidden_null(exchange.request_view)
        if null is not None:
            return f"it has a null where Kafka allows none ({null})"
        if not self.internal and _follower(message):
            return "sent by a replica; --include-internal sends it"
        if _masked(message):
            return "its content was masked in the recording"
        if not self.refused and _refused_member(message, exchange.response_view):
            return "it was refused when recorded, and the client joined again; --include-refused sends both"
        left = self.left_out(exchange)
        if left and left == partitions_of(message):
            return "it was refused when recorded, and the client sent its records again; --include-refused sends both"
        return None

    def left_out(self, exchange: Exchange) -> frozenset[Place]:
        """The partitions of a Produce request that are not sent, because they were refused with a retriable error."""
        answer = exchange.response_view
        if self.refused or exchange.api_key != PRODUCE or answer is None:
            return frozenset()
        return retriable_partitions(answer)

    def _api(self, key: int) -> str | None:
        try:
            api = facts.api(key)
        except KeyError:
            return "an API that no known release has"
        if api.name in _LOGIN and not self.login:
            return "a login: the replay logs in by itself"
        if _internal(key) and not self.internal:
            return "sent between brokers and controllers; --include-internal sends it"
        if administrative(key) and not self.admin:
            return ALTERS
        return None


def forbidden_null(view: MessageView | None) -> str | None:
    """The path of a null that Kafka does not allow; None if there is none."""
    return None if view is None else next(view.forbidden_nulls(), None)


@cache
def _internal(key: int) -> bool:
    api = facts.api(key)
    return "broker" not in api.request.listeners or api.name in _BETWEEN_BROKERS


@cache
def administrative(key: int) -> bool:
    """Whether an API alters, deletes, or grants rights."""
    return _ADMIN.match(facts.api_name(key)) is not None


def _follower(message: Message) -> bool:
    """Whether a broker asks: it gives its id, consumers -1 (and debuggers -2)."""
    if message.api not in ("Fetch", "ListOffsets", "OffsetForLeaderEpoch"):
        return False
    ids = (value for role, value, _, name in read(message) if role is Meaning.BROKER_ID and name == "replica_id")
    return any(value >= 0 for value in ids)


def _refused_member(message: Message, answer: Message | None) -> bool:
    """Whether a new member was refused with a retriable error. If the target accepted it, the group would wait for a member
    that does not exist."""
    if answer is None or not (message.api == "JoinGroup" or message.api.endswith("GroupHeartbeat")):
        return False
    return not message["member_id"] and is_retriable(answer["error_code"])


def _masked(message: Message) -> bool:
    if not secret_paths(Direction.REQUEST, message.api_key):
        return False
    for role, value, _, _ in read(message):
        if role is Meaning.SECRET and value and not (value.encode() if isinstance(value, str) else value).strip(MASK):
            return True
    return False
