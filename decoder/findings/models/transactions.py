"""The transactions of producers, by transactional id: when each began, and what was added to it (KIP-98, KIP-890)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ...codec.message_view import MessageView
from ...connection.exchange import Exchange, State
from ...schema import facts
from ..engine.counters import BoundedDict, LruDict
from ..engine.detector import Model
from ..engine.layout import layout
from ..engine.traffic import ClientConnection
from .produce import PRODUCE, ProduceReader

INIT_PRODUCER_ID = facts.api_key("InitProducerId")
ADD_PARTITIONS = facts.api_key("AddPartitionsToTxn")
ADD_OFFSETS = facts.api_key("AddOffsetsToTxn")
END_TXN = facts.api_key("EndTxn")
TRANSACTIONAL = frozenset(
    {PRODUCE, INIT_PRODUCER_ID, ADD_PARTITIONS, ADD_OFFSETS, END_TXN, facts.api_key("TxnOffsetCommit")}
)
"""The APIs of a transactional producer."""

IMPLICIT = 12
"""The version of Produce from which on a batch adds its partition to the transaction (KIP-890)."""
_IDS = 5000
_PARTITIONS = 1000
_ID_FIELDS = ("transactional_id", "v3_and_below_transactional_id")


def transactional_id(exchange: Exchange) -> str | None:
    """The transactional id that a request names; None without one (and for what brokers send each other)."""
    message = exchange.request_view
    if message is None:
        return None
    for place, each in enumerate(message.plan.root.fields):
        if each.name in _ID_FIELDS:
            name: str | None = message.values[place]
            return name
    return None


@dataclass(slots=True)
class ProducerTransaction:
    """The latest transaction of a transactional id.

    `timeout_ms`: None if InitProducerId was not seen. `begun_ns`: 0 if none is open. `ended_ns`: when the last one was ended, 0 if none was,
    and whether it was `committed`. `partitions`: what was added to the open one; `complete`: whether its beginning was seen. `aborted_ns`,
    `late_ns`: when InitProducerId ended one that was open, and how long that was open if it was over its timeout by then.
    """

    timeout_ms: int | None = None
    begun_ns: int = 0
    ended_ns: int = 0
    committed: bool = False
    complete: bool = False
    aborted_ns: int = 0
    late_ns: int = 0
    partitions: BoundedDict[tuple[str, int], bool] = field(default_factory=lambda: BoundedDict(_PARTITIONS))

    def open_ns(self, exchange: Exchange) -> int:
        """How long it was open when the exchange began, 0 if it was not."""
        return (exchange.request_time_ns or 0) - self.begun_ns if self.begun_ns else 0

    def over_time(self, exchange: Exchange) -> bool:
        """Whether it was open for longer than its timeout."""
        return self.timeout_ms is not None and self.open_ns(exchange) > self.timeout_ms * 1_000_000


class ProducerTransactions(Model):
    """Follows requests that succeed: while one that failed is looked at, its transaction is as it was before."""

    id = "transactions"
    apis = TRANSACTIONAL

    def setup(self) -> None:
        self._produce = self.traffic.model(ProduceReader)
        self._of: LruDict[str, ProducerTransaction] = LruDict(_IDS)

    def of(self, name: str | None) -> ProducerTransaction | None:
        """The transaction of a transactional id; None if nothing is known of it."""
        return self._of.get(name) if name else None

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.state is not State.PAIRED:
            return
        api = exchange.api_key
        if api == PRODUCE:
            sent = self._produce.sent(exchange)
            if sent is not None and sent.transactional_id and not exchange.error:
                self._produced(exchange, sent.transactional_id)
            return
        name = None if exchange.error else transactional_id(exchange)
        if not name:
            return
        message, now = exchange.request_view, exchange.request_time_ns or 0
        known = self._of.of(name, ProducerTransaction)
        if message is None:
            return
        if api == INIT_PRODUCER_ID:
            late = known.open_ns(exchange) if known.over_time(exchange) else 0
            aborted = now if known.begun_ns else 0
            self._of[name] = ProducerTransaction(message["transaction_timeout_ms"], complete=True, aborted_ns=aborted, late_ns=late)
        elif api == END_TXN:
            known.begun_ns, known.ended_ns, known.committed, known.complete = 0, now, bool(message["committed"]), True
            known.partitions.clear()
        else:
            known.begun_ns = known.begun_ns or now
            if api == ADD_PARTITIONS:
                for place in _added(message):
                    known.partitions[place] = True

    def _produced(self, exchange: Exchange, name: str) -> None:
        known = self._of.of(name, ProducerTransaction)
        known.begun_ns = known.begun_ns or exchange.request_time_ns or 0


def _added(message: MessageView) -> Iterator[tuple[str, int]]:
    """The partitions that an AddPartitionsToTxn request of a client names."""
    at = layout(message.plan.root).get("v3_and_below_topics")
    topics: Any = message.values[at] if at is not None else ()
    for topic in topics or ():
        for partition in topic[1] or ():
            yield topic[0], partition
