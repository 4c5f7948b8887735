"""Rows about Produce, and about producer ids and transactions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ..engine.counters import BoundedDict
from ..engine.formatting import topic_id_text
from ..engine.layout import partition_places
from .items import Items
from .row import Pair, Row, Seen

MOST_PLACES = 20_000
BACKWARDS = 3
"""Times that offsets of a partition must go back on one connection: a topic that was deleted and created again starts
over once."""
_HEAD = 57


class _Last(NamedTuple):
    """The last success of a partition. `producer`: its id and epoch, as bytes, and the sequence; None without an id."""

    offset: int
    producer: tuple[bytes, int] | None
    back: int


class _Appended:
    """What one connection has written, by topic and partition."""

    def __init__(self) -> None:
        self.last: dict[tuple[Any, int], _Last] = {}


def _produced(pair: Pair) -> Iterable[Seen]:
    """The rows of Produce, in one pass over the partitions."""
    topics, name_at, parts, fields = partition_places(pair.request.plan.root, "topic_data", "partition_data")
    index, records = fields["index"], fields["records"]
    sent = {(t[name_at], p[index]): p[records] for t in pair.request.values[topics] or () for p in t[parts] or ()}
    topics, name_at, parts, fields = partition_places(pair.response.plan.root, "responses", "partition_responses")
    index, error, base, start = (
        fields["index"],
        fields["error_code"],
        fields["base_offset"],
        fields.get("log_start_offset"),
    )
    last = pair.context.of_connection(_Appended).last
    found: list[Seen] = []
    count = 0
    for topic in pair.response.values[topics] or ():
        name = topic[name_at]
        for p in topic[parts] or ():
            at = name, p[index]
            count += 1
            if p[error] or at not in sent:
                count += at not in sent
                last.pop(at, None)
                continue
            offset = p[base]
            if offset < 0:
                found.append(
                    Seen(
                        "responses",
                        f"has base_offset {offset} for {_named(at)} without an error",
                        "produce-offset-negative",
                    )
                )
                continue
            if start is not None and p[start] > offset:
                text = f"has log_start_offset {p[start]} for {_named(at)}, above its base_offset {offset}"
                found.append(Seen("responses", text, "produce-below-log-start"))
            back = _order(last, at, offset, sent[at] or b"")
            if back is not None:
                found.append(back)
    if count != len(sent):
        found.extend(_PARTITIONS_SENT.check(pair))
    return found


def _named(at: tuple[Any, int]) -> str:
    return f"{at[0] if isinstance(at[0], str) else topic_id_text(at[0])}-{at[1]}"


def _order(last: dict[tuple[Any, int], _Last], at: tuple[Any, int], offset: int, data: bytes) -> Seen | None:
    known, back = last.get(at), 0
    producer = None
    if len(data) >= _HEAD and data[16] == 2 and data[43] < 0x80:  # it has a producer id
        producer = data[43:53], int.from_bytes(data[53:57], "big", signed=True)
        if (
            known is not None
            and known.producer is not None
            and known.producer[0] == producer[0]
            and producer[1] <= known.producer[1]
        ):
            return None  # sent again: the answer is the offset it got the first time
    found = None
    if known is not None:
        back = known.back
        if offset <= known.offset:
            back += 1
            if back >= BACKWARDS:
                text = f"has base_offset {offset} for {_named(at)}, after {known.offset} on this connection; it has gone back {back} times"
                found = Seen("responses", text, "produce-offset-back")
    if known is not None or len(last) < MOST_PLACES:
        last[at] = _Last(offset, producer, back)
    return found


class _Given:
    """The producer ids of InitProducerId responses without a transactional id, and by transactional id the last id and
    epoch."""

    def __init__(self) -> None:
        self.alone: BoundedDict[int, None] = BoundedDict(MOST_PLACES)
        self.transactional: BoundedDict[str, tuple[int, int]] = BoundedDict(MOST_PLACES)


def _new_producer(pair: Pair) -> Iterator[Seen]:
    producer, epoch, name = pair.answer.producer_id, pair.answer.producer_epoch, pair.asked.transactional_id
    if producer < 0 or epoch < 0:
        yield Seen("producer_id", f"is {producer}, with epoch {epoch}, without an error", "init-producer-id-negative")
        return
    given = pair.context.of_broker(_Given)
    if name is None:
        if producer in given.alone and getattr(pair.asked, "producer_id", -1) < 0:
            yield Seen(
                "producer_id",
                f"is {producer}, which another call without a transactional id got before",
                "init-producer-id-reused",
            )
        given.alone[producer] = None
        return
    asked_id, asked_epoch = getattr(pair.asked, "producer_id", -1), getattr(pair.asked, "producer_epoch", -1)
    known = given.transactional.get(name)
    given.transactional.pop(name, None)
    given.transactional[name] = producer, epoch
    if getattr(pair.asked, "keep_prepared_txn", False):
        return
    if asked_id == producer and epoch <= asked_epoch:
        text = f"is {epoch} for producer {producer}, not above the epoch {asked_epoch} of the request"
        yield Seen("producer_epoch", text, "init-producer-id-epoch-back")
    elif asked_id < 0 and known == (producer, epoch):
        text = f"is {epoch} for producer {producer}: the call before with transactional.id {name!r} got the same"
        yield Seen("producer_epoch", text, "init-producer-id-epoch-same")


def _end_epoch(pair: Pair) -> Iterator[Seen]:
    before, after = (
        (pair.asked.producer_id, pair.asked.producer_epoch),
        (pair.answer.producer_id, pair.answer.producer_epoch),
    )
    if after[0] == before[0] and 0 <= after[1] < before[1]:
        yield Seen(
            "producer_epoch", f"is {after[1]} for producer {after[0]}, below the epoch {before[1]} of the request"
        )


def _matching(field: str, filters: str, array: str) -> Any:
    """A check that items have one of the values that a filter of the request names."""

    def check(pair: Pair) -> Iterator[Seen]:
        wanted = getattr(pair.asked, filters)
        allowed = {w.lower() if isinstance(w, str) else w for w in wanted or ()}
        for i, item in enumerate(getattr(pair.answer, array) or ()) if allowed else ():
            value = getattr(item, field)
            if (value.lower() if isinstance(value, str) else value) not in allowed:
                yield Seen(
                    f"{array}[{i}].{field}",
                    f"is {value!r}; the request asks only for {', '.join(map(str, wanted[:5]))}",
                )
                return

    return check


_PARTITIONS = "topics(name|topic_id).partitions(partition_index)"
_PARTITIONS_SENT = Items(
    "Produce", "partitions", "topic_data(name|topic_id).partition_data(index)",
    "responses(name|topic_id).partition_responses(index)",
    "KafkaApis.handleProduceRequest", "Clients do not know whether the records were written, and send them again or "
    "fail.", "high",
    strict=True,
)  # fmt: skip
_PRODUCER_IDS = "TransactionCoordinator.handleInitProducerId"
ROWS: tuple[Row, ...] = (
    *(row._replace(check=_produced) for row in _PARTITIONS_SENT.rows()),
    Row("produce-offset-negative", "Produce", "gives the offset of the first record with every success",
        "UnifiedLog.append", _produced,
        "medium", "Applications do not get the offset of their records."),
    Row("produce-below-log-start", "Produce", "gives a log start offset up to the base offset of what it has just "
        "written",
        "UnifiedLog.append, KIP-107", _produced, "low", "Clients take the records for deleted.", since=5),
    Row("produce-offset-back", "Produce", "gives records that one connection sends to a partition rising offsets; "
        "only a batch that is "
        "sent again gets its first offset", "UnifiedLog.append", _produced, "medium",
        "Records are lost or overwritten, or the offsets are made up: consumers and applications that rely on them "
        "go wrong."),
    Row("init-producer-id-negative", "InitProducerId", "gives a producer id and epoch from 0 up, or an error",
        _PRODUCER_IDS, _new_producer,
        "high", "Clients take -1 for no producer id and send without idempotence, or fail."),
    Row("init-producer-id-reused", "InitProducerId", "gives a new producer id to each call without a transactional id",
        "ProducerIdManager.generateProducerId", _new_producer, "high",
        "Two producers share sequences: batches of one are dropped as duplicates of the other's, or refused."),
    Row("init-producer-id-epoch-back", "InitProducerId", "raises the epoch of a producer id with every call",
        _PRODUCER_IDS + ", KIP-360",
        _new_producer, "high", "An older producer with the same transactional.id is not fenced off."),
    Row("init-producer-id-epoch-same", "InitProducerId", "raises the epoch of a transactional id with every call",
        _PRODUCER_IDS,
        _new_producer, "high", "An older producer with the same transactional.id is not fenced off: both write."),
    Row("end-txn-epoch-back", "EndTxn", "ends a transaction with the same producer epoch or a higher one",
        "TransactionCoordinator.endTransaction, "
        "KIP-890", _end_epoch, "high", "The client's next transaction is fenced off.", since=5),
    *Items("AddPartitionsToTxn", "partitions",
           "v3_and_below_topics(name).partitions / transactions(transactional_id).topics(name).partitions",
           "results_by_topic_v3_and_below(name).results_by_partition(partition_index) / "
           "results_by_transaction(transactional_id).topic_results(name).results_by_partition(partition_index)",
           "KafkaApis.handleAddPartitionsToTxnRequest", "Clients do not know whether the partition is in the "
           "transaction.", "high").rows(),
    *Items("TxnOffsetCommit", "partitions", _PARTITIONS, _PARTITIONS, "KafkaApis.handleTxnOffsetCommitRequest",
           "Clients do not know whether the offset was committed.").rows(),
    *Items("DescribeProducers", "partitions", "topics(name).partition_indexes",
        "topics(name).partitions(partition_index)",
           "KafkaApis.handleDescribeProducersRequest, KIP-664", "Admin clients fail the call.").rows(),
    *Items("DescribeTransactions", "transactional ids", "transactional_ids", "transaction_states(transactional_id)",
           "KafkaApis.handleDescribeTransactionsRequest, KIP-664", "Admin clients fail the call.").rows(),
    Row("list-transactions-state", "ListTransactions", "lists only transactions in one of the states that were "
        "asked for",
        "TransactionStateManager.listTransactionStates, KIP-664", _matching("transaction_state", "state_filters",
        "transaction_states"), "low",
        passes=True),
    Row("list-transactions-producer", "ListTransactions", "lists only transactions of the producer ids that were "
        "asked for",
        "TransactionStateManager.listTransactionStates, KIP-664", _matching("producer_id", "producer_id_filters",
        "transaction_states"), "low"),
    Row("list-groups-state", "ListGroups", "lists only groups in one of the states that were asked for",
        "GroupCoordinatorService.listGroups, KIP-518",
        _matching("group_state", "states_filter", "groups"), "low", since=4, passes=True),
    Row("list-groups-type", "ListGroups", "lists only groups of the types that were asked for",
        "GroupCoordinatorService.listGroups, KIP-848",
        _matching("group_type", "types_filter", "groups"), "low", since=5, passes=True),
)  # fmt: skip
