"""Producer ids and transactions: recorded ids in their order, and markers where live producers end transactions."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from ...decoder.schema import facts
from .answers import LiveRequest, NotRecorded, Outcomes, Reply
from .logs import Logs, Partition
from .offsets import Committed, Offsets
from .recorded_exchanges import RecordedExchange, RecordedExchanges

_BUMPS_FROM = 5
"""From this EndTxn version on, every transaction ends with a new epoch (KIP-890)."""
_MADE_UP = 1_000_000
PRODUCE = facts.api_key("Produce")


@dataclass(slots=True)
class _Transaction:
    producer_id: int = -1
    epoch: int = 0
    partitions: set[Partition] = field(default_factory=set)
    offsets: dict[str, dict[tuple[str, int], Committed]] = field(default_factory=dict)


class Transactions:
    """The APIs of the transaction coordinator."""

    def __init__(self, recorded: RecordedExchanges, logs: Logs, offsets: Offsets) -> None:
        self._recorded, self._logs, self._offsets = recorded, logs, offsets
        self._ids: dict[str | None, list[RecordedExchange]] = defaultdict(list)
        self._given: dict[str | None, int] = defaultdict(int)
        self.errors: Outcomes[tuple[str, str]] = Outcomes()
        self._running: dict[str, _Transaction] = {}
        self._made_up = _MADE_UP
        self._names: set[str] = set()
        for exchange in recorded.of("InitProducerId"):
            self._ids[exchange.request["transactional_id"]].append(exchange)
            self._made_up = max(self._made_up, exchange.response["producer_id"] + _MADE_UP)
        for exchange in recorded.of("AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn"):
            code = next((code for _, code in exchange.response.errors()), 0)
            for name in _names(exchange.request.to_dict()):
                self.errors.add((exchange.api, name), code, exchange)
        self._names = {name for name in self._ids if name is not None} | {name for _, name in self.errors.keys()}  # noqa: SIM118

    def init_producer_id(self, request: LiveRequest) -> Reply:
        """The recorded ids and epochs, in order; then new ones."""
        name = request.fields["transactional_id"]
        self._known(request, name)
        recorded, at = self._ids[name], self._given[name]
        if name is not None:
            self._abandon(name, request)
        if at < len(recorded):
            self._given[name] = at + 1
            exchange = recorded[at]
            fields = exchange.response.to_dict()
            how = "recorded"
        else:
            exchange, how = None, "kept up"
            before = self._running.get(name or "")
            if before is not None and before.producer_id >= 0:
                fields = {"error_code": 0, "producer_id": before.producer_id, "producer_epoch": before.epoch + 1}
            elif request.fields.get("producer_id", -1) >= 0:
                epoch = request.fields["producer_epoch"] + 1
                fields = {"error_code": 0, "producer_id": request.fields["producer_id"], "producer_epoch": epoch}
            else:
                self._made_up += 1
                fields = {"error_code": 0, "producer_id": self._made_up, "producer_epoch": 0}
        if name is not None and not fields["error_code"]:
            self._running[name] = _Transaction(fields["producer_id"], fields["producer_epoch"])
        reply = request.reply(fields, how, exchange)
        if name is None and not recorded:
            # No recorded client wanted an id, as producers of other libraries, or settings, do.
            raise NotRecorded(f"{request.api} v{request.version}", None, reply, bearable=True)
        return reply

    def _known(self, request: LiveRequest, name: str | None) -> None:
        """Raises `NotRecorded` for a transactional id that the recording does not have."""
        if name is not None and name not in self._names:
            raise NotRecorded(f"{request.api} v{request.version} for transactional id {name}")

    def produced(self, request: LiveRequest) -> None:
        """A Produce request names its transaction, which needs no other way to take its partitions in (KIP-890)."""
        name = request.fields.get("transactional_id")
        if name:
            for topic in request.fields["topic_data"]:
                partitions = {(self._recorded.topic_of(topic), item["index"]) for item in topic["partition_data"]}
                self._of(name, request.fields).partitions |= partitions

    def add_partitions(self, request: LiveRequest) -> Reply:
        for name in _names(request.fields):
            self._known(request, name)
        if "transactions" in request.fields:
            results = []
            for asked in request.fields["transactions"]:
                topics = self._added(request, asked["transactional_id"], asked, asked["topics"])
                results.append({"transactional_id": asked["transactional_id"], "topic_results": topics})
            return Reply({"results_by_transaction": results})
        given = {key.removeprefix("v3_and_below_"): value for key, value in request.fields.items()}
        topics = self._added(request, given["transactional_id"], given, given["topics"])
        return Reply({"results_by_topic_v3_and_below": topics})

    def _added(self, request: LiveRequest, name: str, ids: dict[str, Any], topics: list[dict[str, Any]]) -> list[dict[str, Any]]:
        error = self.errors.next_error((request.api, name))
        code = error[0] if error else 0
        if not code and not ids.get("verify_only"):
            self._of(name, ids).partitions |= {(topic["name"], at) for topic in topics for at in topic["partitions"]}
        return [
            {
                "name": topic["name"],
                "results_by_partition": [
                    {"partition_index": at, "partition_error_code": code} for at in topic["partitions"]
                ],
            }
            for topic in topics
        ]

    def add_offsets(self, request: LiveRequest) -> Reply:
        self._known(request, request.fields["transactional_id"])
        error = self.errors.next_error((request.api, request.fields["transactional_id"]))
        self._of(request.fields["transactional_id"], request.fields)
        return Reply({"error_code": error[0] if error else 0})

    def commit_offsets(self, request: LiveRequest) -> Reply:
        """TxnOffsetCommit: taken when the transaction commits."""
        self._known(request, request.fields["transactional_id"])
        taken, topics = self._offsets.accept(request, 0)
        running = self._of(request.fields["transactional_id"], request.fields)
        running.offsets.setdefault(request.fields["group_id"], {}).update(taken)
        return request.reply({"topics": topics})

    def end(self, request: LiveRequest) -> Reply:
        """EndTxn: markers into every partition of the transaction."""
        name, commit = request.fields["transactional_id"], request.fields["committed"]
        self._known(request, name)
        error = self.errors.next_error((request.api, name))
        body: dict[str, Any] = {"error_code": error[0] if error else 0}
        if not body["error_code"]:
            self._end(name, request.fields["producer_id"], request.fields["producer_epoch"], commit, request.time_ms)
            epoch = request.fields["producer_epoch"] + (request.version >= _BUMPS_FROM)
            self._running[name] = _Transaction(request.fields["producer_id"], epoch)
            body |= {"producer_id": request.fields["producer_id"], "producer_epoch": epoch}
        return request.reply(body)

    def _of(self, name: str, ids: dict[str, Any]) -> _Transaction:
        running = self._running.setdefault(name, _Transaction())
        if ids.get("producer_id", -1) >= 0:
            running.producer_id, running.epoch = ids["producer_id"], ids["producer_epoch"]
        return running

    def _abandon(self, name: str, request: LiveRequest) -> None:
        """A producer that starts anew ends what its predecessor left open."""
        running = self._running.get(name)
        if running is not None and running.partitions:
            self._end(name, running.producer_id, running.epoch, False, request.time_ms)

    def _end(self, name: str, producer_id: int, epoch: int, commit: bool, time_ms: int) -> None:
        running = self._running.pop(name, None) or _Transaction()
        for partition in sorted(running.partitions):
            log = self._logs.log(partition)
            if log is not None:
                log.end_transaction(producer_id, epoch, commit, time_ms)
        if commit:
            for group, taken in running.offsets.items():
                self._offsets.of(group).update(taken)


def _names(asked: dict[str, Any]) -> list[str]:
    if "transactions" in asked:
        return [item["transactional_id"] for item in asked["transactions"]]
    return [asked.get("transactional_id") or asked.get("v3_and_below_transactional_id") or ""]
