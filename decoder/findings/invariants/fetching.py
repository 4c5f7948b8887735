"""Rows about Fetch, ListOffsets, OffsetForLeaderEpoch and the fetches of share groups.

Responses of Fetch are judged with the session of their connection (KIP-227): incremental ones leave partitions out and
have others than the request. Nothing is said of fetches of followers, and nothing about a session that began before
the capture, or one of whose requests is missing in it or was not answered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple

from ... import records
from ...schema.plan import StructPlan
from ..engine.counters import BoundedDict
from ..engine.formatting import topic_id_text
from ..engine.layout import PartitionPlaces, layout, partition_places
from .items import Items, each
from .row import Pair, Row, Seen

PERSISTS = 3
"""Answers in a row. A broker reads its watermarks before the records, so that single ones are races."""
MOST_PLACES = 20_000
_LAST_EPOCH = 0x7FFFFFFF
_BATCH_HEAD = 61
_CONTROL, _TRANSACTIONAL = 0x20, 0x10
_EARLIEST = -2


class _Link:
    """The fetches of one connection. `session`: what its session asks for, None if there is none or not all of it was
    seen. `next_request`: the session id and epoch of its next request. `watermarks`: by topic id and partition.
    `streaks`: answers in a row that contradict a row, by its id and partition. `listed`: those of its broker."""

    def __init__(self) -> None:
        self.session: set[tuple[Any, int]] | None = None
        self.next_request = (0, 0)
        self.watermarks: dict[tuple[Any, int], int] = {}
        self.streaks: BoundedDict[tuple[str, Any, int], int] = BoundedDict(MOST_PLACES)
        self.listed: dict[tuple[Any, int], tuple[int, int]] | None = None


class _Listed:
    """Offsets of records and their leader epochs as ListOffsets answered them, until a Fetch shows the records."""

    def __init__(self) -> None:
        self.places: dict[tuple[Any, int], tuple[int, int]] = BoundedDict(MOST_PLACES)


class _Places(NamedTuple):
    """Where one version of Fetch has its fields; None for those that it lacks."""

    replica: int | None
    replica_state: int | None
    isolation: int | None
    epoch: int | None
    session_id: int | None
    forgotten: int | None
    asked: PartitionPlaces
    number_asked: int
    answered: PartitionPlaces
    by_id: bool
    number: int
    error: int
    high: int
    records: int
    stable: int | None
    start: int | None
    elsewhere: int | None


@cache
def _places_of(asked: StructPlan, answered: StructPlan) -> _Places:
    root, request = layout(asked), partition_places(asked, "topics", "partitions")
    response = partition_places(answered, "responses", "partitions")
    part = response.fields
    return _Places(
        root.get("replica_id"), root.get("replica_state"), root.get("isolation_level"), root.get("session_epoch"),
        root.get("session_id"), root.get("forgotten_topics_data"), request, request.fields["partition"], response,
        "topic_id" in layout(answered, "responses"), part["partition_index"], part["error_code"],
        part["high_watermark"],
        part["records"], part.get("last_stable_offset"), part.get("log_start_offset"),
        part.get("preferred_read_replica"),
    )  # fmt: skip


def _fetched(pair: Pair) -> Iterable[Seen]:
    """The rows of Fetch, in one pass over the partitions."""
    request, response, context = pair
    asked, at = request.values, _places_of(request.plan.root, response.plan.root)
    if at.replica is not None:
        if asked[at.replica] >= 0:
            return ()
    elif at.replica_state is not None and (state := asked[at.replica_state]) is not None and state[0] >= 0:
        return ()
    link = context.of_connection(_Link)
    if link.listed is None:
        link.listed = context.of_broker(_Listed).places
    found: list[Seen] = []
    full = _session(pair, link, asked, at, found)
    committed = at.isolation is not None and asked[at.isolation] == 1
    answered: list[tuple[Any, int]] = []
    watermarks = link.watermarks
    (topics, name_at, inner, _), number, by_id = at.answered, at.number, at.by_id
    for i, topic in enumerate(response.values[topics] or ()):
        name = topic[name_at]
        for j, p in enumerate(topic[inner] or ()):
            place = name, p[number]
            answered.append(place)
            if p[at.error]:
                if by_id:
                    watermarks.pop(place, None)
                continue
            broken = _broken(p, pair, committed) if link.streaks or _suspicious(p, at, committed) else []
            if link.listed and (known_epoch := link.listed.get(place)) is not None and p[at.records]:
                del link.listed[place]
                broken += _epoch_listed(p[at.records], *known_epoch)
            if by_id and (known := watermarks.get(place)) != (high := p[at.high]):
                if known is not None and high < known:
                    broken.append(
                        ("fetch-watermark-back", "high_watermark", f"is {high}, after {known} on this connection")
                    )
                if known is not None or len(watermarks) < MOST_PLACES:
                    watermarks[place] = high
            if broken or link.streaks:
                _tell(link, f"responses[{i}].partitions[{j}].", place, broken, found)
    if full != answered:
        _compare(pair, link, full, answered, found)
    return found


def _epoch_listed(data: Any, offset: int, epoch: int) -> list[tuple[str, str, str]]:
    """Whether the batch with an offset has another leader epoch than ListOffsets answered for the offset."""
    if len(data) < _BATCH_HEAD or data[16] != 2:
        return []
    first, own = int.from_bytes(data[:8], "big"), int.from_bytes(data[12:16], "big", signed=True)
    if own < 0 or own == epoch or not first <= offset <= first + int.from_bytes(data[23:27], "big"):
        return []
    text = f"have leader epoch {own} at offset {offset}; ListOffsets answered that offset with epoch {epoch}"
    return [("list-offsets-epoch", "records", text)]


def _suspicious(p: Any, at: _Places, committed: bool) -> bool:
    """Whether one of the rows may have something to say of a partition: all others need not be looked at closely."""
    high, data = p[at.high], p[at.records]
    if data is None or high < 0 or (data and (committed or int.from_bytes(data[:8], "big") >= high)):
        return True
    if at.stable is None:
        return False
    return (
        p[at.stable] > high
        or (at.start is not None and p[at.start] > high)
        or (at.elsewhere is not None and p[at.elsewhere] >= 0)
    )  # fmt: skip


def _tell(
    link: _Link, path: str, place: tuple[Any, int], broken: list[tuple[str, str, str]], found: list[Seen]
) -> None:
    """Add what is wrong with a partition, some of it only if it was so in the answers before."""
    streaks = link.streaks
    for row, field, text in broken:
        if row in _PERSISTING:
            streak = streaks[row, *place] = streaks.get((row, *place), 0) + 1
            if streak < PERSISTS:
                continue
            text += f", in {streak} answers in a row"
        found.append(Seen(path + field, f"({_place(place[0])}-{place[1]}) {text}", row))
    for row in _PERSISTING.difference(row for row, _, _ in broken):
        streaks.pop((row, *place), None)


def _place(name: Any) -> str:
    return name if isinstance(name, str) else topic_id_text(name)


def _session(pair: Pair, link: _Link, asked: Any, at: _Places, found: list[Seen]) -> list[tuple[Any, int]] | None:
    """Update the session of a connection. What the request asks for, if it asks for everything at once, else None."""
    (topics, name, inner, _), number = at.asked, at.number_asked
    new = []
    for topic in asked[topics] or ():
        place = topic[name]
        for p in topic[inner] or ():
            new.append((place, p[number]))
    epoch = asked[at.epoch] if at.epoch is not None else -1
    if epoch <= 0:
        made = epoch == 0 and pair.answer.session_id != 0
        link.session = set(new) if made else None
        if made:
            link.next_request = pair.answer.session_id, 1
        return new
    assert at.session_id is not None and at.forgotten is not None  # of the same versions as the epoch
    session_id, answer = asked[at.session_id], pair.answer
    if answer.error_code or link.next_request != (session_id, epoch):
        link.session = None  # the broker refused the request, or handled others that are not known
    link.next_request = session_id, epoch % _LAST_EPOCH + 1
    session = link.session
    if session is not None:
        session.update(new)
        for topic in asked[at.forgotten] or ():  # as Apache Kafka: after what is new
            session.difference_update((topic[0], p) for p in topic[1] or ())
        if not session or len(session) > MOST_PLACES:
            link.session = None
        if not session:
            return new  # the broker closes a session that asks for nothing, and answers as if there were none
    # Id 0 may close a session, and comes with the empty answer to a throttled client whose session the broker lacks.
    ended = not answer.session_id and (session is None or answer.throttle_time_ms)
    if answer.session_id != session_id and not answer.error_code and not ended:
        text = f"is {answer.session_id} in an answer of session {session_id}"
        found.append(Seen("session_id", text, "fetch-session-changed"))
    return None


def _compare(
    pair: Pair, link: _Link, full: list[tuple[Any, int]] | None, answered: list[tuple[Any, int]], found: list[Seen]
) -> None:
    unique = set(answered)
    if len(unique) < len(answered):
        counts: set[tuple[Any, int]] = set()
        twice = next(at for at in answered if at in counts or counts.add(at))  # type: ignore[func-returns-value]
        if full is None or full.count(twice) < 2:
            found.append(Seen("responses", f"has {_place(twice[0])}-{twice[1]} twice", "fetch-twice"))
    if getattr(pair.answer, "error_code", 0):
        return
    known = set(full) if full is not None else link.session
    if known is None:
        return
    for at in answered:
        if at not in known:
            found.append(Seen("responses", f"has {_place(at[0])}-{at[1]}, which was not asked for", "fetch-unasked"))
            break
    # A broker that throttles the client (KIP-219) answers without partitions.
    if full is not None and answered and not known <= unique:
        at = next(at for at in full if at not in unique)
        found.append(Seen("responses", f"lacks {_place(at[0])}-{at[1]}, which the request asks for", "fetch-missing"))


def _broken(p: Any, pair: Pair, committed: bool) -> list[tuple[str, str, str]]:
    """Row, field and text of what is wrong with a partition that has no error."""
    found: list[tuple[str, str, str]] = []
    data, high = p.records, p.high_watermark
    version = pair.response.plan.version
    if data is None:
        found.append(("fetch-null-records", "records", "is null (length -1) without an error"))
    if high < 0:
        found.append(("fetch-watermark-negative", "high_watermark", f"is {high} without an error"))
    elif version >= 5 and p.log_start_offset > high:
        text = f"is {p.log_start_offset}, above the high watermark {high}"
        found.append(("fetch-log-start-above-watermark", "log_start_offset", text))
    if version >= 4 and p.last_stable_offset > high >= 0:
        text = f"is {p.last_stable_offset}, above the high watermark {high}"
        found.append(("fetch-stable-above-watermark", "last_stable_offset", text))
    if version >= 11 and p.preferred_read_replica >= 0:
        replica, nodes = p.preferred_read_replica, pair.context.nodes
        unknown = bool(nodes) and replica not in nodes
        if unknown:
            listed = ", ".join(str(n) for n in sorted(nodes)[:8])
            rest = " and comes with records" if data else ""
            text = f"is {replica}, which is no broker of this cluster (its brokers: {listed}){rest}"
            found.append(("fetch-replica-unknown", "preferred_read_replica", text))
        elif data:
            found.append(
                (
                    "fetch-replica-with-records",
                    "preferred_read_replica",
                    f"is {replica}, and the answer has records too",
                )
            )
    if data:
        if int.from_bytes(data[:8], "big", signed=True) >= high >= 0:
            text = f"begin at offset {int.from_bytes(data[:8], 'big')}, the high watermark is {high}"
            found.append(("fetch-beyond-watermark", "records", text))
        if committed and version >= 4:
            if int.from_bytes(data[:8], "big", signed=True) >= p.last_stable_offset >= 0:
                text = f"begin at offset {int.from_bytes(data[:8], 'big')}, the last stable offset is {p.last_stable_offset}"
                found.append(("fetch-beyond-stable", "records", text))
            marker = _unlisted_marker(data, {a[0] for a in p.aborted_transactions or ()})
            if marker is not None:
                found.append(("fetch-abort-unlisted", "aborted_transactions", marker.text))
    return found


class _Marker(NamedTuple):
    producer: int
    first: int
    last: int
    offset: int

    @property
    def text(self) -> str:
        return (
            f"lacks producer {self.producer}: its records from offset {self.first} to {self.last} are followed by its abort "
            f"marker at offset {self.offset}, and are delivered as if they were committed"
        )


def _unlisted_marker(data: bytes, listed: set[int]) -> _Marker | None:
    """The first abort marker behind transactional records of its producer, which is not listed. Markers alone are
    normal."""
    at, end = 0, len(data)
    open_: dict[int, tuple[int, int]] = {}
    while at + _BATCH_HEAD <= end and data[at + 16] == 2:
        size = int.from_bytes(data[at + 8 : at + 12], "big", signed=True) + 12
        if size < _BATCH_HEAD or at + size > end:
            break
        attributes = data[at + 22]
        if attributes & _TRANSACTIONAL:
            base, producer = int.from_bytes(data[at : at + 8], "big"), int.from_bytes(data[at + 43 : at + 51], "big")
            if not attributes & _CONTROL:
                first = open_.get(producer, (base, 0))[0]
                open_[producer] = first, base + int.from_bytes(data[at + 23 : at + 27], "big")
            elif producer in open_:
                first, last = open_.pop(producer)
                if producer not in listed and _aborts(bytes(data[at : at + size])):
                    return _Marker(producer, first, last, base)
        at += size
    return None


def _aborts(batch: bytes) -> bool:
    try:
        (entry,) = records.batches(batch)
        record = next(iter(entry.records()))
        return record.key is not None and len(record.key) >= 4 and int.from_bytes(record.key[2:4], "big") == 0
    except (records.RecordsError, ValueError, StopIteration):
        return False


_PERSISTING = frozenset({
    "fetch-log-start-above-watermark", "fetch-stable-above-watermark", "fetch-beyond-watermark", "fetch-beyond-stable",
})  # fmt: skip


def _below_minus_one(array: str, inner: str, field: str) -> Any:
    def check(pair: Pair) -> Iterator[Seen]:
        for path, p in each(pair.answer, array, inner):
            value = getattr(p, field)
            if not p.error_code and value < -1:
                yield Seen(f"{path}.{field}", f"is {value} without an error")
                return

    return check


def _offsets_by_time(pair: Pair) -> Iterator[Seen]:
    asked = {
        (topic.name, p.partition_index): p.timestamp
        for topic in pair.asked.topics or () for p in topic.partitions or ()
        if p.timestamp >= 0 or p.timestamp == _EARLIEST
    }  # fmt: skip
    for topic in pair.answer.topics or () if asked else ():
        for p in topic.partitions or ():
            wanted = asked.get((topic.name, p.partition_index))
            if wanted is None or p.error_code:
                continue
            if getattr(p, "leader_epoch", -1) >= 0 <= p.offset:
                places = pair.context.of_broker(_Listed).places
                places[topic.name, p.partition_index] = p.offset, p.leader_epoch
            if wanted == _EARLIEST:
                continue
            if (p.offset < 0) != (p.timestamp < 0):
                text = f"has offset {p.offset} and timestamp {p.timestamp}, for timestamp {wanted} that was asked for"
                yield Seen(f"topics.partitions ({topic.name}-{p.partition_index})", text, "list-offsets-half-found")
            elif 0 <= p.timestamp < wanted:
                text = f"has timestamp {p.timestamp} at offset {p.offset}, {wanted - p.timestamp} ms before {wanted} that was asked for"
                yield Seen(f"topics.partitions ({topic.name}-{p.partition_index})", text, "list-offsets-before-time")


def _epoch_above(pair: Pair) -> Iterator[Seen]:
    asked = {(t.topic, p.partition): p.leader_epoch for t in pair.asked.topics or () for p in t.partitions or ()}
    for topic in pair.answer.topics or ():
        for p in topic.partitions or ():
            wanted = asked.get((topic.topic, p.partition))
            if not p.error_code and wanted is not None and p.leader_epoch > wanted:
                text = (
                    f"is {p.leader_epoch} for {topic.topic}-{p.partition}, above the epoch {wanted} that was asked for"
                )
                yield Seen("topics.partitions.leader_epoch", text)
                return


def _epoch_unknown(pair: Pair) -> Iterator[Seen]:
    """The leader accepts the current epoch that a request names, so it knows no later one."""
    asked = {
        (t.topic, p.partition): (p.leader_epoch, p.current_leader_epoch)
        for t in pair.asked.topics or () for p in t.partitions or () if 0 <= p.current_leader_epoch < p.leader_epoch
    }  # fmt: skip
    for topic in pair.answer.topics or () if asked else ():
        for p in topic.partitions or ():
            wanted = asked.get((topic.topic, p.partition))
            if wanted is not None and not p.error_code and (p.leader_epoch, p.end_offset) != (-1, -1):
                text = (
                    f"is {p.leader_epoch} with end offset {p.end_offset} for {topic.topic}-{p.partition} and epoch {wanted[0]}, though the "
                    f"leader's epoch is {wanted[1]}, so that it knows no epoch {wanted[0]}"
                )
                yield Seen("topics.partitions.leader_epoch", text)
                return


def _acquired(pair: Pair) -> Iterator[Seen]:
    for path, p in each(pair.answer, "responses", "partitions"):
        end = -1
        for i, a in enumerate(p.acquired_records or ()):
            where = f"{path}.acquired_records[{i}]"
            if a.last_offset < a.first_offset:
                yield Seen(
                    where, f"ends at {a.last_offset}, before it begins at {a.first_offset}", "share-range-inverted"
                )
            elif a.first_offset <= end:
                yield Seen(
                    where,
                    f"begins at {a.first_offset}; offsets to {end} are in an earlier range",
                    "share-range-overlaps",
                )
            if a.delivery_count < 1:
                yield Seen(where, f"has delivery_count {a.delivery_count}", "share-delivery-count")
            end = max(end, a.last_offset)
        if p.acquired_records and not p.records:
            yield Seen(
                path, f"acquires {len(p.acquired_records)} ranges and has no records", "share-acquired-without-records"
            )


def _fetch(row: str, kafka: str, source: str, severity: str, clients: str, since: int = 0) -> Row:
    return Row(row, "Fetch", kafka, source, _fetched, severity, clients, since=since, errors=True)


def _share(row: str, kafka: str, severity: str, clients: str) -> Row:
    return Row(row, "ShareFetch", kafka, "ShareFetchUtils.processFetchResponse, KIP-932", _acquired, severity, clients)


_MANAGER = "ReplicaManager.readFromLog"
_SKIPS = "Clients drop what they do not expect, and wait for the rest."
ROWS: tuple[Row, ...] = (
    _fetch("fetch-null-records", "sends empty records (length 0) where there are none",
    "FetchResponseData, MemoryRecords.EMPTY", "high",
           "librdkafka refuses the answer (\"invalid MessageSetSize -1\") and fetches again; the Java client reads "
           "null as empty."),
    _fetch("fetch-twice", "answers each partition once", "FetchSession", "medium",
    "Clients may deliver the records twice."),
    _fetch("fetch-unasked", "answers no partitions that the request or its session does not ask for",
    "FetchSession, KIP-227", "medium",
           _SKIPS),
    _fetch("fetch-missing", "answers all partitions of a request without a session and of one that begins a "
    "session, unless it "
           "throttles the client", "FetchSession.FullFetchContext, KIP-227", "medium",
           "Clients wait for the partition's records and ask again."),
    _fetch("fetch-session-changed", "answers with the session id of the request as long as the session lasts",
           "FetchSession.IncrementalFetchContext, KIP-227", "medium", "Clients go on with another session, and lose "
           "track of "
           "what it asks for.", 7),
    _fetch("fetch-watermark-negative", "gives the high watermark of each partition without an error", _MANAGER,
    "medium",
           "Clients cannot tell how far they are behind; some wait for ever."),
    _fetch("fetch-log-start-above-watermark", "never begins its log above the high watermark",
    "UnifiedLog.maybeIncrementLogStartOffset",
           "medium", "Clients see their position as out of range.", 5),
    _fetch("fetch-stable-above-watermark", "never has a last stable offset above the high watermark, but for a moment",
           "UnifiedLog.fetchLastStableOffsetMetadata", "medium", "Clients of read_committed may read what can still "
           "be lost.", 4),
    _fetch("fetch-beyond-watermark", "sends consumers no records at or above the high watermark, but for a moment",
           "Partition.readRecords (FetchIsolation.HIGH_WATERMARK)", "medium",
           "Clients read records that can still be lost."),
    _fetch("fetch-beyond-stable", "sends read_committed consumers no records at or above the last stable offset, but for a moment",
           "Partition.readRecords (FetchIsolation.TXN_COMMITTED), KIP-98", "high",
           "Clients read records of transactions that are open, and may yet be aborted.", 4),
    _fetch("fetch-watermark-back", "never lowers the high watermark of a topic id on one connection without an "
    "error in between: "
           "it only does so after an unclean election", "UnifiedLog.updateHighWatermark", "medium",
           "Records that clients have read are gone, or this broker is another one than before.", 13),
    _fetch("fetch-replica-unknown", "names only brokers of the cluster as the replica to read from",
    "ReplicaManager.findPreferredReadReplica, "
           "KIP-392", "high", "Clients ask for Metadata again and again to find that replica, and do not fetch "
           "meanwhile. "
           "If the number is arbitrary, the broker writes the fields of this version in the wrong places.", 11),
    _fetch("fetch-replica-with-records", "sends no records when it names another replica to read from",
    _MANAGER + ", KIP-392", "medium",
           "Some clients read them, some drop them.", 11),
    _fetch("fetch-abort-unlisted", "lists every aborted transaction whose records it sends in aborted_transactions",
           "LogSegment.collectAbortedTxns, KIP-98", "high",
           "Clients of read_committed rely on that list: they deliver the records of the aborted transaction.", 4),
    _fetch("list-offsets-epoch", "answers ListOffsets for the earliest offset and for a time with the leader epoch "
           "of the record",
           "UnifiedLog.fetchOffsetByTimestamp, KIP-320", "medium",
           "Clients keep or commit the offset with an epoch that is not the record's: they find their position "
           "invalid, or wait."),
    *Items("ListOffsets", "partitions", "topics(name).partitions(partition_index)",
        "topics(name).partitions(partition_index)",
           "KafkaApis.handleListOffsetRequest", "Clients wait for the offset and ask again.").rows(),
    Row("list-offsets-negative", "ListOffsets", "answers an offset from 0 up, or -1 if there is none",
        "ReplicaManager.fetchOffset",
        _below_minus_one("topics", "partitions", "offset"), "medium", "Clients start at a wrong position.", since=1),
    Row("list-offsets-half-found", "ListOffsets", "answers a search by time with the offset and the timestamp of a record, or with -1 and -1 "
        "if no record is as new", "UnifiedLog.fetchOffsetByTimestamp, KIP-79", _offsets_by_time, "medium",
        "Clients fail (Java: IllegalArgumentException), or take the offset for that of a record.", since=1),
    Row("list-offsets-before-time", "ListOffsets", "answers a search by time with the first record that is as new or newer",
        "FileRecords.searchForTimestamp, KIP-79", _offsets_by_time, "medium",
        "Applications that seek by time (offsetsForTimes) get records from before that time.", since=1),
    *Items("OffsetForLeaderEpoch", "partitions", "topics(topic).partitions(partition)",
        "topics(topic).partitions(partition)",
           "KafkaApis.handleOffsetForLeaderEpochRequest", "Clients cannot check whether their position is still in "
           "the log.").rows(),
    Row("leader-epoch-above", "OffsetForLeaderEpoch", "answers the largest epoch up to the one that was asked for",
        "LeaderEpochFileCache.endOffsetFor, KIP-320", _epoch_above, "medium",
        "Clients take a wrong offset for the end of their "
        "epoch, and do not notice lost records.", since=1),
    Row("leader-epoch-unknown", "OffsetForLeaderEpoch", "answers epoch -1 and end offset -1 for an epoch later than all that it knows",
        "LeaderEpochFileCache.endOffsetFor, KIP-320", _epoch_unknown, "medium",
        "Clients take the end offset for the point where the log was truncated: they report lost records and go back to it.", since=2),
    Row("leader-epoch-end-negative", "OffsetForLeaderEpoch", "answers an end offset from 0 up, or -1 if it does not "
        "know the epoch",
        "LeaderEpochFileCache.endOffsetFor, KIP-320", _below_minus_one("topics", "partitions", "end_offset"), "low"),
    *Items("DeleteRecords", "partitions", "topics(name).partitions(partition_index)",
        "topics(name).partitions(partition_index)",
           "KafkaApis.handleDeleteRecordsRequest", "Admin clients fail the call.").rows(),
    Row("delete-records-negative", "DeleteRecords", "answers the new low watermark, or -1 if it waited in vain",
        "ReplicaManager.deleteRecords", _below_minus_one("topics", "partitions", "low_watermark"), "low"),
    _share("share-range-inverted", "acquires ranges that end where they begin or later", "high",
    "Share consumers cannot acknowledge them."),
    _share("share-range-overlaps", "acquires each record once in a response", "high",
    "Share consumers get a record twice."),
    _share("share-delivery-count", "counts deliveries from 1", "low", "Applications cannot tell whether a record "
    "was delivered before."),
    _share("share-acquired-without-records", "acquires only records that it sends", "medium",
           "Share consumers acknowledge the missing records as gaps, which archives them."),
    *Items("ShareFetch", "partitions", "topics(topic_id).partitions(partition_index)",
        "responses(topic_id).partitions(partition_index)",
           "ShareSession, KIP-932", "Share consumers get records twice.", ways=("twice",)).rows(),
    *Items("ShareAcknowledge", "partitions", "topics(topic_id).partitions(partition_index)",
           "responses(topic_id).partitions(partition_index)", "KafkaApis.handleShareAcknowledgeRequest, KIP-932",
           "Share consumers do not know whether their acknowledgement counts.").rows(),
)  # fmt: skip
