"""What is done to frames that were held: broker addresses in responses, rules on requests and their answers.

Frames come and go with their 4 size bytes. Anything the decoder cannot read raises `Unreadable`: the caller
forwards the original.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any
from uuid import UUID

from .. import decoder
from ..decoder import facts
from ..decoder.plan import StructPlan, plan
from ..plugins.rules import Answer, RuleBook
from .addresses import AddressMap

ADDRESS_APIS = frozenset(facts.api_key(name) for name in ("Metadata", "FindCoordinator", "DescribeCluster"))
"""Responses that tell a client where brokers are."""
ENDPOINT_APIS = frozenset(facts.api_key(name) for name in ("Produce", "Fetch", "ShareFetch", "ShareAcknowledge"))
"""Responses of bulk APIs that name brokers in a tagged field when a leader has moved (KIP-951)."""
ENDPOINT_LIMIT = 256 * 1024
"""Larger responses of bulk APIs are not held for the sake of that field."""
PRODUCE = facts.api_key("Produce")


class Unreadable(Exception):
    """A held frame could not be decoded or encoded; the text says why."""


@cache
def names_brokers(api_key: int, api_version: int) -> bool:
    """Whether a response of this version can hold a broker's address (or is too new to know)."""
    try:
        return _has_address(plan("response", api_key, api_version).root)
    except decoder.DecodeError:
        return api_key in ADDRESS_APIS


def _has_address(struct: StructPlan) -> bool:
    names = {field.name for field in struct.fields}
    return {"host", "port"} <= names or any(field.struct and _has_address(field.struct) for field in struct.fields)


def produce_acks(data: bytes | memoryview, at: int, end: int) -> int | None:
    """The acks of a flexible Produce (version 9 and later) whose frame starts at `at`; None if that is beyond `end`."""
    if at + 14 > end:
        return None
    client_id = int.from_bytes(data[at + 12 : at + 14], "big", signed=True)
    place = at + 14 + max(client_id, 0)
    # no tags in the header, and a transactional id of less than 127 bytes (0: null)
    if place + 2 > end or data[place] or data[place + 1] > 127:
        return None
    place += 2 + max(data[place + 1] - 1, 0)
    return int.from_bytes(data[place : place + 2], "big", signed=True) if place + 2 <= end else None


def framed(frame: bytes) -> bytes:
    """A frame with its size in front."""
    return len(frame).to_bytes(4, "big") + frame


class Editor:
    """Decodes held frames and changes them; one for all connections of the relay."""

    def __init__(self, addresses: AddressMap, rules: RuleBook) -> None:
        self._addresses = addresses
        self.rules = rules
        interest = rules.interest()
        # Whether a Produce is answered at all (acks) decides the order of responses, so all of them are read as
        # soon as any rule may answer something.
        self.requests = frozenset(interest | {PRODUCE}) if interest else frozenset()
        """Api keys whose requests are held."""

    def readdress(self, data: bytes, api_key: int, api_version: int, local_host: str) -> bytes | None:
        """A response with the proxy's own addresses, None if it names no broker."""
        try:
            message = decoder.decode_response(data[4:], api_key=api_key, api_version=api_version)
        except decoder.TrailingBytes as error:
            # Some brokers leave bytes behind the message; they are kept, and the addresses still have to change.
            if error.message is None:
                raise Unreadable(str(error)) from None
            message = error.message
        except decoder.DecodeError as error:
            raise Unreadable(str(error)) from None
        fields = message.to_dict()
        self._learn_topics(fields)
        found = list(broker_addresses(fields))
        self._addresses.open_in_order((node, (host, port)) for _, node, host, port in found)
        edits: dict[str, Any] = {}
        for path, node, host, port in found:
            own = self._addresses.port_for((host, port), node)
            if own is not None:
                edits[path + "host"] = local_host
                edits[path + "port"] = own
        if not edits:
            return None
        try:
            return framed(message.replace(edits).encode())
        except decoder.EncodeError as error:
            raise Unreadable(str(error)) from None

    def _learn_topics(self, fields: dict[str, Any]) -> None:
        """Newer requests name topics by id alone; Metadata says which is which."""
        if self.requests:
            for topic in fields.get("topics") or ():
                if topic.get("name") and isinstance(topic.get("topic_id"), UUID):
                    self.rules.learn(topic["topic_id"], topic["name"])

    def decide(self, data: bytes) -> tuple[Answer | None, bool]:
        """What the rules say to a request, and whether a broker would answer it at all."""
        try:
            message = decoder.decode_request(data[4:])
        except decoder.DecodeError as error:
            raise Unreadable(str(error)) from None
        if message.api_key == PRODUCE and message["acks"] == 0:
            return None, False
        return self.rules.decide(message.api_key, message.api_version, message), True


def broker_addresses(fields: dict[str, Any], path: str = "") -> Iterator[tuple[str, int, str, int]]:
    """Every place with a host and a port: (path prefix, node id or -1, host, port)."""
    if isinstance(fields.get("host"), str) and isinstance(fields.get("port"), int):
        node = next((fields[name] for name in ("node_id", "broker_id") if isinstance(fields.get(name), int)), -1)
        yield path, node, fields["host"], fields["port"]
    for name, value in fields.items():
        if isinstance(value, list):
            for index, item in enumerate(value):
                if isinstance(item, dict):
                    yield from broker_addresses(item, f"{path}{name}[{index}].")
