"""One side of a comparison: its exchanges by client and scope, the names in them, and its figures."""

from __future__ import annotations

import difflib
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ...decoder import Exchange, Topics, records
from ...decoder.records import Batch
from ...decoder.schema import facts
from ...decoder.schema.meaning import Meaning
from ..replay.rewrite import tree_of, visit
from ..serving.recorded_exchanges import only_reads, touches
from .report import Latency, Side

_DIGITS = re.compile(r"\d+")
_GROUP_APIS = (
    "JoinGroup",
    "SyncGroup",
    "Heartbeat",
    "LeaveGroup",
    "OffsetCommit",
    "OffsetFetch",
    "ConsumerGroupHeartbeat",
)
_HEARTBEATS = frozenset({"Heartbeat", "ConsumerGroupHeartbeat", "ShareGroupHeartbeat", "PushTelemetry"})
_BULK = frozenset({"Produce", "Fetch"})


@dataclass(slots=True)
class SeenExchange:
    """One exchange. `scope` is what it belongs to: a group, a transaction, the records of a topic, or the cluster.
    `again`: its error is retriable, and the client did retry."""

    number: int
    exchange: Exchange
    client: str
    scope: str
    names: frozenset[str]
    again: bool = False

    @property
    def api(self) -> str:
        return self.exchange.api


@dataclass(slots=True)
class PreparedSide:
    """A recording's exchanges, its names in the order of their first use by role, and what went through it."""

    side: Side
    seen: list[SeenExchange] = field(default_factory=list)
    topics: Topics = field(default_factory=Topics)
    names: dict[str, Meaning] = field(default_factory=dict)
    produced: dict[tuple[str, int], list[Any]] = field(default_factory=lambda: defaultdict(list))


def may_repeat(api: str) -> bool:
    """Whether a program may send this as often as it likes: asking, polling, sending records in batches of any size."""
    return only_reads(facts.api_key(api)) or api in _HEARTBEATS or api in _BULK


def prepare(name: str, exchanges: Iterable[tuple[int, Exchange]]) -> PreparedSide:
    """Read a recording's exchanges, each with its number."""
    out = PreparedSide(Side(name))
    latencies: dict[str, list[int]] = defaultdict(list)
    connections, clients = set(), set()
    side = out.side
    for number, exchange in exchanges:
        side.exchanges += 1
        connections.add(exchange.connection)
        if exchange.request_view is None:
            continue
        if exchange.topics is not None:
            out.topics = exchange.topics
        label = client_label(exchange.client_id)
        clients.add(label)
        side.apis[exchange.api] += 1
        side.versions.setdefault(exchange.api, set()).add(exchange.api_version)
        if exchange.latency_ns is not None:
            latencies[exchange.api].append(exchange.latency_ns)
        if exchange.error:
            side.errors[facts.error_name(exchange.error)] += 1
        _take_names(out, exchange)
        names = touches(exchange.request_view, out.topics.name)
        out.seen.append(SeenExchange(number, exchange, label, _scope(exchange, names), names))
        if exchange.api == "Produce":
            _take_records(out, exchange)
    _mark_retries(out.seen)
    side.connections, side.clients = len(connections), len(clients)
    side.latencies = {api: Latency.of(latencies[api]) for api in side.apis}
    return out


def client_label(client_id: str | None) -> str:
    """A client's name for itself without counters and versions, which another run has otherwise."""
    return _DIGITS.sub("#", client_id or "") or "(no client id)"


def _scope(exchange: Exchange, names: frozenset[str]) -> str:
    message = exchange.request_view
    assert message is not None
    known = {f.name for f in message.plan.root.fields}
    if "group_id" in known and exchange.api in _GROUP_APIS:
        return f"group {message['group_id']}"
    if "transactional_id" in known and exchange.api != "Produce" and message["transactional_id"]:
        return f"transaction {message['transactional_id']}"
    if exchange.api in _BULK or exchange.api == "ListOffsets":
        return "records of " + ", ".join(sorted(names)) if names else "records"
    return "cluster"


def _take_names(out: PreparedSide, exchange: Exchange) -> None:
    message = exchange.request_view
    assert message is not None
    for role, name, _, _ in visit(tree_of(message), message.values):
        if role in (Meaning.TOPIC, Meaning.GROUP, Meaning.TRANSACTIONAL_ID, Meaning.COORDINATOR_KEY) and name:
            out.names.setdefault(name, role)


def _take_records(out: PreparedSide, exchange: Exchange) -> None:
    message = exchange.request_view
    assert message is not None
    answered = exchange.response_view
    failed = set()
    for topic in answered.to_dict()["responses"] if answered is not None else ():
        about = topic.get("name") or topic.get("topic_id")
        failed |= {(about, item["index"]) for item in topic["partition_responses"] if item["error_code"]}
    for topic in message.to_dict()["topic_data"]:
        number = topic.get("topic_id")
        name = topic.get("name") or (out.topics.name(number.bytes) if number is not None else None) or ""
        for item in topic["partition_data"]:
            if (topic.get("name") or number, item["index"]) in failed:
                continue  # what came of it is sent again
            try:
                for batch in records.batches(item["records"] or b""):
                    if isinstance(batch, Batch) and batch.control:
                        continue
                    out.produced[name, item["index"]] += [(r.key, r.value, r.headers) for r in batch.records()]
            except records.RecordsError:
                out.produced[name, item["index"]].append("records that cannot be read")


def _mark_retries(seen: list[SeenExchange]) -> None:
    """Mark exchanges that failed with a retriable error and were followed by the same request."""
    later: set[tuple[str, str, frozenset[str]]] = set()
    table = facts.errors()
    for each in reversed(seen):
        key = (each.client, each.api, each.names)
        fact = table.get(each.exchange.error)
        each.again = bool(fact and fact.retriable and key in later)
        later.add(key)


def counterparts(a: PreparedSide, b: PreparedSide) -> dict[str, str]:
    """The names of B that stand for others of A: names that only one side has, of the same kind, most alike first,
    else in the order of their first use."""
    found: dict[str, str] = {}
    for role in set(a.names.values()) | set(b.names.values()):
        ours = [name for name, kind in a.names.items() if kind is role and name not in b.names]
        theirs = [name for name, kind in b.names.items() if kind is role and name not in a.names]
        for name in theirs:
            if not ours:
                break
            near = difflib.get_close_matches(name, ours, 1, 0.5)
            mine = near[0] if near else ours[0]
            ours.remove(mine)
            found[name] = mine
    return found
