"""Changes of held frames: broker addresses, offered versions, what rules decide.

Frames come and go with their 4 size bytes. Anything the decoder cannot read raises `Unreadable`: the caller
forwards the original.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, cached_property
from typing import Any, NamedTuple

from .... import decoder
from ....decoder import Exchange, State
from ....decoder.schema import facts
from ....decoder.schema.meaning import Meaning
from ....decoder.schema.plan import StructPlan, plan
from ....decoder.wire.acks import produce_acks as produce_acks
from ....plugins.actions.fault_plan import FaultPlan
from ....plugins.answers.responses import with_cluster
from ....plugins.rules.rule_engine import RuleEngine
from ...events import Address
from ..addressing.address_map import AddressMap
from ..addressing.node_endpoint_scanner import ENDPOINTS
from .interest.api_version_bitmap import api_version_bitmap
from .interest.header_prefix import PrefixReaders
from .interest.response_interest import FastReject, ResponseInterest

ADDRESS_APIS = frozenset(facts.api_key(name) for name in ("Metadata", "FindCoordinator", "DescribeCluster"))
"""Responses that name brokers to clients."""
ENDPOINT_APIS = frozenset(facts.api_key(name) for name in ("Produce", "Fetch", "ShareFetch", "ShareAcknowledge"))
"""Responses of bulk APIs that name brokers in a tagged field when a leader has moved (KIP-951)."""
ADDRESS_REQUESTS = frozenset(facts.api_key(name) for name in ("UpdateMetadata", "LeaderAndIsr"))
"""Requests that name brokers to brokers, from a controller (before KRaft)."""
ENDPOINT_LIMIT = 16 * 1024
"""Larger responses of bulk APIs are not held for the sake of that field, but followed to their end (`endpoint_scanner`)."""
PRODUCE = facts.api_key("Produce")
METADATA = facts.api_key("Metadata")
API_VERSIONS = facts.api_key("ApiVersions")
DESCRIBE_CLUSTER = facts.api_key("DescribeCluster")
KNOWN = frozenset(facts.api_keys())
HIGHEST_VERSION = 40
"""No API has versions beyond this; larger numbers are not a request's (raw SASL tokens have no header)."""


class Unreadable(Exception):
    """A held frame could not be decoded or encoded; the text is the reason."""


@cache
def names_brokers(api_key: int, api_version: int) -> bool:
    """Whether a response of this version can hold a broker's address (or is too new to know)."""
    try:
        return _has_address(plan("response", api_key, api_version).root)
    except decoder.DecodeError:
        return api_key in ADDRESS_APIS


def _has_address(struct: StructPlan) -> bool:
    return any(f.meaning is Meaning.HOST or (f.struct is not None and _has_address(f.struct)) for f in struct.fields)


@cache
def watched() -> frozenset[int]:
    """The requests whose responses may name brokers, or versions that could not be changed: key << 16 | version."""
    return frozenset(
        key << 16 | version
        for key in ADDRESS_APIS | ENDPOINT_APIS | {API_VERSIONS}
        for version in range(HIGHEST_VERSION + 1)
        if key == API_VERSIONS or names_brokers(key, version)
    )


def framed(frame: bytes) -> bytes:
    """A frame with its size in front."""
    return len(frame).to_bytes(4, "big") + frame


class NamedBroker(NamedTuple):
    """A place of a message with a broker's address. `paths`: of host and port; `node`: its id, -1 if none is there."""

    paths: tuple[str, str]
    node: int
    host: str
    port: int

    def moved(self, own: Address) -> Iterator[tuple[str, Any]]:
        """The edits that put another address there."""
        return zip(self.paths, own, strict=True)


class CappedVersion(NamedTuple):
    """An API of which clients are offered a lower version than the broker offers."""

    api_key: int
    offered: int
    capped: int


class ScanRules(NamedTuple):
    """What rules ask of frames, as the accelerator's frame scanner reads it (`frame_scanner.c`)."""

    passing: bytes
    """Requests that pass: an `api_version_bitmap`."""
    kept: bytes
    """Requests of which the bytes are kept for when the response is there."""
    quiet: FastReject
    """When responses to kept requests are of no concern."""
    request_prefixes: PrefixReaders
    """Requests of which the header prefix does."""
    response_prefixes: PrefixReaders


class FrameEditor:
    """Decodes held frames and changes them; one for all connections of the relay."""

    def __init__(self, addresses: AddressMap, rules: RuleEngine) -> None:
        self._addresses = addresses
        self.rules = rules
        self.others: frozenset[int] = frozenset()
        """Api keys whose requests plugins or intercepts want to see."""
        self.requests = frozenset(rules.interest())
        self.topics: decoder.Topics | None = None
        """Names of topics by their ids, where filters may ask for them."""
        self._read: tuple[bytes, Any, list[NamedBroker]] | None = None
        """The response that was decoded last, with its message and the brokers in it."""

    @property
    def requests(self) -> frozenset[int]:
        """Api keys whose requests rules and intercepts want to see."""
        return self._requests

    @requests.setter
    def requests(self, keys: frozenset[int]) -> None:
        self._requests = keys
        self.held = keys | ADDRESS_REQUESTS
        """Api keys whose requests are held where every request is followed."""
        self.response_interest = ResponseInterest(self.rules, self.others, HIGHEST_VERSION)
        self.unkept = self.held - self.response_interest.free
        """Those of them that cannot pass even if they are kept."""
        self.__dict__.pop("scan_rules", None)

    @cached_property
    def scan_rules(self) -> ScanRules:
        """What the frame scanner has to know about connections where every request is followed."""
        free = KNOWN - self.unkept
        passing = api_version_bitmap(key << 16 | version for key in free for version in range(HIGHEST_VERSION + 1))
        return ScanRules(passing, self.response_interest.selection, self.response_interest.quiet, *self.response_interest.prefix_readers)

    def unknown_names(self, data: bytes, api_key: int, api_version: int) -> list[Address]:
        """The names in a response that have to be looked up before `readdress`."""
        try:
            _, found = self._brokers(data, api_key, api_version)
        except Unreadable:
            return []
        return self._addresses.unknown_names((host, port) for _, _, host, port in found)

    def _brokers(self, data: bytes, api_key: int, api_version: int) -> tuple[Any, list[NamedBroker]]:
        """A response and the brokers in it."""
        read = self._read
        if read is not None and read[0] is data:
            return read[1], read[2]
        message = _read_response(data, api_key, api_version)
        found = [] if api_key in ENDPOINT_APIS and not _endpoints(message) else list(broker_addresses(message))
        self._read = data, message, found
        return message, found

    def readdress(self, data: bytes, api_key: int, api_version: int, local_host: str) -> bytes | None:
        """A response with the proxy's own addresses, None if it names no broker."""
        message, found = self._brokers(data, api_key, api_version)
        self._read = None
        if api_key in ENDPOINT_APIS and not found:
            return None
        moves = api_key != DESCRIBE_CLUSTER
        self._addresses.open_in_order(((node, (host, port)) for _, node, host, port in found), moves)
        if api_key == METADATA and found:
            self._addresses.listed()
        edits: dict[str, Any] = {}
        for each in found:
            own = self._addresses.stands_for((each.host, each.port), each.node, local_host)
            if own is not None:
                edits.update(each.moved(own))
        changed = _edited(message, edits) if edits else data
        if self.topics is not None:
            # Newer requests name topics by id alone, and rules name other brokers: as clients know them.
            self.rules.learn(Exchange(api_key=api_key, api_version=api_version, response=changed[4:], state=State.PAIRED))
        return changed if edits else None

    def with_cluster(self, data: bytes, api_version: int) -> bytes:
        """A Metadata response that was made here, with the brokers that clients have to go on with (`responses.with_cluster`)."""
        try:
            return framed(with_cluster(data[4:], api_version, self.rules.cluster_view.cluster))
        except (decoder.DecodeError, decoder.EncodeError):
            return data

    def readdress_request(self, data: bytes, local_host: str) -> bytes | None:
        """A request between brokers with the proxy's own addresses, None if it names no broker."""
        try:
            message = decoder.decode_request(data[4:])
        except decoder.DecodeError as error:
            raise Unreadable(str(error)) from None
        found = [each for each in broker_addresses(message) if each.host]
        self._addresses.open_in_order(((each.node, (each.host, each.port)) for each in found), True)
        edits: dict[str, Any] = {}
        for each in found:
            own = self._addresses.stands_for((each.host, each.port), each.node, local_host)
            if own is not None:
                edits.update(each.moved(own))
        return _edited(message, edits) if edits else None

    def cap(self, data: bytes, api_version: int) -> tuple[bytes | None, list[CappedVersion]]:
        """An ApiVersions response that offers no version whose broker addresses could not be changed here, None if nothing is to be
        changed; and what was."""
        message = _read_response(data, API_VERSIONS, api_version)
        edits: dict[str, Any] = {}
        capped = []
        for place, offer in enumerate(message.to_dict()["api_keys"] or ()):  # null from broken brokers: a finding
            key, low, high = offer["api_key"], offer["min_version"], offer["max_version"]
            if key not in ADDRESS_APIS | ENDPOINT_APIS:
                continue
            known = facts.api(key).versions.high
            if known is not None and low <= known < high:
                edits[f"api_keys[{place}].max_version"] = known
                capped.append(CappedVersion(key, high, known))
        if not edits:
            return None, []
        return _edited(message, edits), capped

    def decide(self, exchange: Exchange) -> tuple[FaultPlan | None, bool]:
        """What the rules decide for a request, and whether a broker would answer it at all."""
        message = exchange.request_message
        if message is None:
            raise Unreadable(exchange.undecoded or "it cannot be read")
        answered = message.api_key != PRODUCE or message["acks"] != 0
        return self.rules.decide(exchange), answered

    def judge(self, exchange: Exchange) -> FaultPlan | None:
        """What the rules that depend on the response decide."""
        return self.rules.judge(exchange)


def _read_response(data: bytes, api_key: int, api_version: int) -> decoder.Message:
    """A response; bytes that some brokers leave behind it are kept, as the addresses still have to change."""
    try:
        return decoder.read_response(data[4:], api_key=api_key, api_version=api_version)
    except decoder.DecodeError as error:
        raise Unreadable(str(error)) from None


def _edited(message: decoder.Message, edits: dict[str, Any]) -> bytes:
    try:
        return framed(message.replace(edits).encode())
    except decoder.EncodeError as error:
        raise Unreadable(str(error)) from None


def _endpoints(message: decoder.Message) -> bool:
    """Whether a response of a bulk API names brokers."""
    root = message.plan.root
    return any(
        bool(value) for field, value in zip(root.fields, message.values, strict=False) if field.name == ENDPOINTS
    )


def broker_addresses(message: decoder.Message) -> Iterator[NamedBroker]:
    """Every place of a message with a broker's host and port."""
    return _addresses(message.plan.root, message.values, "", -1)


def _addresses(struct: StructPlan, values: tuple[Any, ...], path: str, node: int) -> Iterator[NamedBroker]:
    # By the plan: the partitions of Metadata, ten thousands of them, are not even looked at.
    places, inside = _address_fields(struct)
    if Meaning.BROKER_ID in places:
        node = values[places[Meaning.BROKER_ID]]
    if Meaning.HOST in places:
        at, of_port = places[Meaning.HOST], places[Meaning.PORT]
        if isinstance(values[at], str):
            paths = path + struct.fields[at].name, path + struct.fields[of_port].name
            yield NamedBroker(paths, node, values[at], values[of_port])
    for at, name, items in inside:
        for index, item in enumerate(values[at] or ()):
            yield from _addresses(items, item, f"{path}{name}[{index}].", node)


@cache
def _address_fields(struct: StructPlan) -> tuple[dict[Meaning | None, int], list[tuple[int, str, StructPlan]]]:
    """Where a struct has host, port and node id, and which of its arrays hold addresses."""
    places = {field.meaning: place for place, field in reversed(list(enumerate(struct.fields))) if not field.array}
    inside = [
        (place, field.name, field.struct)
        for place, field in enumerate(struct.fields)
        if field.array and field.struct and _has_address(field.struct)
    ]
    return places, inside


def refuses(api_key: int, api_version: int) -> bool:
    """Whether a request is an ApiVersions of a version whose answer could not be read here."""
    known = facts.api(API_VERSIONS).versions.high
    return api_key == API_VERSIONS and known is not None and known < api_version <= HIGHEST_VERSION


def refusal(correlation_id: int) -> bytes:
    """What a broker answers to an ApiVersions version that it does not know: version 0, with its own range (KIP-511)."""
    return framed(decoder.encode_version_refusal(correlation_id, (0, facts.api(API_VERSIONS).versions.high or 0)))
