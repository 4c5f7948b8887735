"""Produce and Fetch between versions: record formats, limits, sessions.

Sources: `ProduceRequest.validateRecords` (one batch per partition from version 3 on), `KafkaApis.processFetchRequest`
(down-conversion), `FetchRequest` (KIP-74, KIP-227, KIP-392, KIP-516), `ProduceRequest` (KIP-98).
"""

from __future__ import annotations

from struct import unpack_from

from ...decoder import records
from .fields import Fields
from .message_format import ConversionCounts, stored
from .message_format import down as older
from .message_format import up as newer
from .steps import ConversionContext, Unbridgeable, difference, down, droppable, each_partition, impossible, up

ALL_REPLICAS = -1
TIMELESS, TIMED = 0, 1  # magics
ENTRY = 12  # offset and size before each message
_IDS = "it contains topic ids, which this broker does not support (KIP-516)"

# --- Produce -----------------------------------------------------------------------------------------------------------


@up("request", "Produce", 3)
def _messages_to_batch(fields: Fields, context: ConversionContext) -> None:
    if fields["acks"] not in (0, 1, ALL_REPLICAS):
        context.note(f"acks={fields['acks']}, a number of replicas, is acks=all since 0.9")
        fields["acks"] = ALL_REPLICAS
    for partition in each_partition(fields, "topic_data", "partition_data"):
        if partition["records"]:
            partition["records"] = newer(partition["records"])


@down("request", "Produce", 3)
def _batch_to_messages(fields: Fields, context: ConversionContext) -> None:
    if fields.pop("transactional_id") is not None:
        raise Unbridgeable("the broker has no transactions")
    _older_records(fields, context, TIMED if context.served >= 2 else TIMELESS)


@down("request", "Produce", 2)
def _messages_without_times(fields: Fields, context: ConversionContext) -> None:
    _older_records(fields, context, TIMELESS)


def _older_records(fields: Fields, context: ConversionContext, magic: int) -> None:
    counts = ConversionCounts()
    for partition in each_partition(fields, "topic_data", "partition_data"):
        if partition["records"]:
            partition["records"] = older(partition["records"], magic=magic, counts=counts)
    _note_losses(context, counts)


def _note_losses(context: ConversionContext, counts: ConversionCounts) -> None:
    if counts.headers_lost:
        context.note(f"{counts.headers_lost} record headers left out: the older message format has none")
    if counts.times_lost:
        context.note(f"{counts.times_lost} records without their times: message format 0 has none")


impossible("Produce", 13, _IDS)
difference("Produce", 3, "message sets become one batch; acks above 1 become all", upward=True)
difference("Produce", 3, "batches become message sets: record headers are left out, zstd becomes gzip")
difference("Produce", 2, "records lose their times")

# --- Fetch -------------------------------------------------------------------------------------------------------------


@up("request", "Fetch", 4)
def _skip_invisible_offsets(fields: Fields, context: ConversionContext) -> None:
    for topic in fields["topics"]:
        for partition in topic["partitions"]:
            known = context.offset_overrides.get((topic["topic"], partition["partition"]))
            if known is not None and known[0] == partition["fetch_offset"]:
                partition["fetch_offset"] = known[1]


@down("response", "Fetch", 4)
def _fetched_batches_to_messages(fields: Fields, context: ConversionContext) -> None:
    _older_fetched_records(fields, context, TIMED if context.version >= 2 else TIMELESS)


@down("response", "Fetch", 2)
def _fetched_messages_without_times(fields: Fields, context: ConversionContext) -> None:
    if context.served < 4:
        _older_fetched_records(fields, context, TIMELESS)


def _older_fetched_records(fields: Fields, context: ConversionContext, magic: int) -> None:
    offsets = {
        (topic["topic"], partition["partition"]): partition["fetch_offset"]
        for topic in context.request["topics"]
        for partition in topic["partitions"]
    }
    counts = ConversionCounts()
    for topic in fields["responses"]:
        for partition in topic["partitions"]:
            data = partition["records"]
            if not data:
                partition["records"] = b""  # null was not known
                continue
            place = topic["topic"], partition["partition_index"]
            offset = offsets.get(place, 0)
            partition["records"] = older(data, magic=magic, first_offset=offset, counts=counts)
            if last_offset(partition["records"]) >= offset:
                context.offset_overrides.pop(place, None)
            elif (end := _end_of(data)) is not None and end > offset:
                # Only transaction markers or compacted records: old clients would repeat this fetch forever.
                partition["records"] = b""
                context.offset_overrides[place] = offset, end
                context.note(f"nothing for this client in {place[0]}-{place[1]} before offset {end}")
    if counts.headers_lost:
        _note_losses(context, counts)


@up("response", "Fetch", 4)
def _fetched_messages_to_batches(fields: Fields, context: ConversionContext) -> None:
    for topic in fields["responses"]:
        for partition in topic["partitions"]:
            if partition["records"]:
                partition["records"] = stored(partition["records"])


def last_offset(data: bytes) -> int:
    """The offset of a message set's last whole message, -1 without any."""
    found, at = -1, 0
    while at + ENTRY <= len(data):
        offset, size = unpack_from(">qi", data, at)
        at += ENTRY + size
        if size < 0 or at > len(data):
            break
        found = offset
    return found


def _end_of(data: bytes) -> int | None:
    """The offset after the last whole batch."""
    end = None
    for entry in records.batches(data):
        if isinstance(entry, records.Batch):
            end = entry.base_offset + entry.last_offset_delta + 1
        elif isinstance(entry, records.Message):
            end = entry.offset + 1
    return end


@down("request", "Fetch", 7)
def _refuse_sessions(fields: Fields, context: ConversionContext) -> None:
    if fields["session_id"]:
        raise Unbridgeable("the broker has no fetch sessions (KIP-227)", "FETCH_SESSION_ID_NOT_FOUND")


droppable("Fetch", "topics.partitions.last_fetched_epoch", "the broker does not report where logs diverge (KIP-595)")
droppable("Fetch", "isolation_level", "the broker has no transactions, so everything is committed")
impossible("Fetch", 13, _IDS)
difference("Fetch", 4, "batches become message sets: no record headers, no transaction markers, zstd becomes gzip", upward=True)
difference("Fetch", 2, "records lose their times", upward=True)
difference("Fetch", 7, "no fetch sessions: every request names all partitions")
difference("Fetch", 4, "message sets become batches, with their offsets and times: not every client still reads them")
