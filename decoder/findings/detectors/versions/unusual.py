"""What in an answer is unusual, though no error: what clients are known to fail on, likeliest first (`ROWS`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from functools import cached_property
from typing import Any, NamedTuple

from ....connection.exchange import Exchange
from ....records import Batch, Message, Partial, RecordsError, batches
from ....reference import releases
from ....schema import facts
from ...engine.formatting import size, some
from ...engine.traffic import ClientConnection
from ...models.fetch import FetchExchange

_LARGE = 1 << 20
"""Bytes of an answer that is not about records."""
_KAFKA_3 = releases.release("3.9").offered
_CREATE_TOPICS = facts.api_key("CreateTopics")
_FILLER = -1
"""The offset of the entry that fills up converted records (`LazyDownConversionRecordsSend.buildOverflowBatch`)."""
_MANY_RECORDS = 131_070
"""The largest number of records in a batch that sarama has read (twice 65,535, sarama#1225)."""
_USUAL_NULLS = "rack", "error_message", "group_instance_id", "instance_id", "records", "aborted_transactions", "value"


class Case:
    """An answer to look at. `apis`: those answered on its connection. `fetched`: of a Fetch."""

    def __init__(
        self, conn: ClientConnection, exchange: Exchange, apis: AbstractSet[int], fetched: FetchExchange | None = None
    ) -> None:
        self.conn, self.exchange, self.apis, self.fetched = conn, exchange, apis, fetched

    @property
    def answer(self) -> Any:
        """The values of the response; fields are attributes."""
        return None if self.exchange.response_view is None else self.exchange.response_view.values

    @cached_property
    def entries(self) -> list[Batch | Message | Partial]:
        """The batches of the first partition with records, as far as they can be read."""
        found: list[Batch | Message | Partial] = []
        part = next((part for part in self.fetched.answered if part.size), None) if self.fetched is not None else None
        try:
            for entry in batches(part.records) if part is not None else ():
                found.append(entry)
        except RecordsError:
            pass
        return found


class Row(NamedTuple):
    """Something unusual. `find` says where it is, "" if it is not there. `why`: who fails on it, with a source.
    `usual`: healthy answers have it often, so it is only a hint."""

    apis: str
    find: Callable[[Case], str]
    why: str
    remedy: str = ""
    usual: bool = False


class Unusual(NamedTuple):
    """A row that was found (its number, as states are kept in files), and where."""

    number: int
    text: str

    @property
    def row(self) -> Row:
        return ROWS[self.number]


def unusual(case: Case) -> list[Unusual]:
    """What is unusual in an answer, likeliest first."""
    found = []
    for number, row in enumerate(ROWS):
        if (not row.apis or case.exchange.api in row.apis.split()) and (text := row.find(case)):
            found.append(Unusual(number, text))
    return sorted(found, key=lambda each: each.row.usual)


REBALANCED = facts.error_code_set("REBALANCE_IN_PROGRESS", "ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID")
"""Errors of a commit that only say that the group has changed: the client goes on."""


def _error(case: Case) -> str:
    return f"it has the error {facts.error_name(case.exchange.error)}" if case.exchange.error in REBALANCED else ""


def _unknown_apis(case: Case) -> str:
    keys = [key for key, *_ in case.answer.api_keys or () if key not in facts.api_keys()]
    return f"it names APIs that no release of Kafka known here has: {', '.join(map(str, keys[:5]))}" if keys else ""


def _feature_from_zero(case: Case) -> str:
    features = getattr(case.answer, "supported_features", None) or ()
    name = next((f.name for f in features if f.min_version == 0 and case.exchange.api_version < 4), "")
    return f"feature {name!r} is supported from version 0 on" if name else ""


def _api_keys(case: Case) -> str:
    keys = [key for key, *_ in case.answer.api_keys or ()]
    again = next((key for i, key in enumerate(keys) if key in keys[:i]), None)
    if again is not None:
        return f"{_api(again)} is named twice"
    return "" if keys == sorted(keys) else "its API keys are not in ascending order"


def _raised(case: Case) -> str:
    keys = case.answer.api_keys or ()
    found = [f"{_api(key)} from v{low}" for key, low, *_ in keys if low > _KAFKA_3.get(key, (low,))[0]]
    return f"ranges begin above those of Kafka 3.9: {some(found, 4)}" if found else ""


def _api(key: int) -> str:
    return facts.api_name(key) if key in facts.api_keys() else f"API {key}"


def _partitions(case: Case) -> Iterator[tuple[str, Any]]:
    for topic in case.answer.topics or ():
        for partition in topic.partitions or ():
            yield topic.name, partition


def _leaderless(case: Case) -> str:
    found = [f"{name}-{p.partition_index}" for name, p in _partitions(case) if p.leader_id < 0 or p.error_code]
    return f"{some(found)} {'has' if len(found) == 1 else 'have'} no leader (LEADER_NOT_AVAILABLE)" if found else ""


def _without_partitions(case: Case) -> str:
    found = [topic.name for topic in case.answer.topics or () if not topic.partitions and not topic.error_code]
    return f"topic {found[0]!r} has no partitions and no error" if found else ""


def _coordinator(case: Case) -> str:
    nodes = case.conn.cluster.nodes
    for found in getattr(case.answer, "coordinators", None) or (case.answer,):
        known = nodes.get(found.node_id)
        if nodes and known is None:
            return f"the coordinator is broker {found.node_id}, which Metadata does not list"
        if known is not None and known != f"{found.host}:{found.port}" and ":" not in found.host:
            return f"broker {found.node_id}, the coordinator, is at {found.host}:{found.port}, in Metadata at {known}"
    return ""


def _no_offset(case: Case) -> str:
    found = [(name, p) for name, p in _partitions(case) if not getattr(p, "old_style_offsets", True)]
    return f"it has no offset for {found[0][0]}-{found[0][1].partition_index}, and no error" if found else ""


def _policy(case: Case) -> str:
    if _CREATE_TOPICS not in case.apis:
        return ""  # a tool that shows topics
    for result in case.answer.results or ():
        for config in result.configs or ():
            if config.name == "cleanup.policy" and config.value != "compact":
                return f"topic {result.resource_name!r} has cleanup.policy={config.value}"
    return ""


def _many_records(case: Case) -> str:
    count = max((entry.record_count for entry in case.entries if isinstance(entry, Batch)), default=0)
    return f"a batch has {count:,} records" if count > _MANY_RECORDS else ""


def _filler(case: Case) -> str:
    last = case.entries[-1] if len(case.entries) > 1 else None
    return "a filler at their end" if isinstance(last, Partial) and last.base_offset == _FILLER else ""


def _records(case: Case) -> str:
    first = case.entries[0] if case.entries else None
    if not isinstance(first, Batch | Message):
        return ""
    codec = f", compressed with {first.codec_name}" if first.codec else ""
    control = "; control batches among them" if any(isinstance(e, Batch) and e.control for e in case.entries) else ""
    return f"records of format {first.magic}{codec}{control}"


def _nulls(case: Case) -> str:
    view = case.exchange.response_view
    found: list[str] = []
    waiting = [(view.plan.root, case.answer, "")] if view is not None else []
    while waiting and len(found) < 3:
        plan, values, prefix = waiting.pop()
        for field, value in zip(plan.fields, values, strict=False):
            if value is None and field.name not in _USUAL_NULLS:
                found.append(prefix + field.name)
            elif field.struct is not None and value:
                first = value[0] if field.array else value
                waiting.append((field.struct, first, f"{prefix}{field.name}{'[0]' if field.array else ''}."))
    return f"{', '.join(found)} {'is' if len(found) == 1 else 'are'} null" if found else ""


def _size(case: Case) -> str:
    large = (case.exchange.response_size or 0) >= _LARGE and case.fetched is None
    return f"it is {size(case.exchange.response_size or 0)} long" if large else ""


ROWS = (
    Row("OffsetCommit", _error, "a commit is refused when the group rebalances; a client must poll on and rejoin. An "
        "application that takes the exception for fatal ends and starts again, which is the next rebalance", "go on "
        "polling after the exception, and commit in the callback for revoked partitions; upgrade the client"),
    Row("ApiVersions", _unknown_apis, "clients whose table of APIs ends with the releases they know fail on newer "
        "ones (kroxylicious#444)", "upgrade the client, or let a proxy hide these APIs"),
    Row("ApiVersions", _feature_from_zero, "clients before Kafka 4.0 cannot read such a feature, so Kafka leaves it "
        "out before ApiVersions v4 (KAFKA-17011)", "report it to the developers of the broker; use a client that "
        "sends ApiVersions v4"),
    Row("Metadata", _leaderless, "a client must wait until such a partition has a leader, and ask for Metadata again; "
        "some fail on it instead (vertx-kafka-client#114, platformatic-kafka#319)", "see why the partition has no "
        "leader; the client library must wait: upgrade it, or report it to its developers"),
    Row("Metadata", _without_partitions, "clients that divide by the number of partitions fail "
        "(platformatic-kafka#109)"),
    Row("FindCoordinator", _coordinator, "clients that look the coordinator's id up in Metadata do not find it "
        "(kafkajs#802)", "use a client that connects to the address in the answer; let the broker name the same "
        "addresses everywhere"),
    Row("ListOffsets", _no_offset, "clients that take the first offset without looking fail (kafka-rust#32)", "ask "
        "for the time -1 (latest) or -2 (earliest), or for one that records have; upgrade the client"),
    Row("DescribeConfigs", _policy, "Kafka Connect requires compact for its three topics, and ends otherwise "
        "(KAFKA-9216)", "kafka-configs.sh --alter --entity-type topics --add-config cleanup.policy=compact"),
    Row("Fetch", _many_records, "clients with a limit of their own take the number for a broken batch: sarama 1.18 "
        "read up to 131,070 records (sarama#1225)", "upgrade the client; limit the batches (sarama: "
        "Producer.Flush.MaxMessages)"),
    Row("Fetch", _filler, "Fetch below v4 asks for an old record format: Kafka 2.0 and newer converts the records and "
        "fills the rest of the response with an entry of offset -1 that is never complete (KIP-283). Clients that "
        "take it for a message fail ('CRC didn't match expected 0x0', sarama before 1.18)", "upgrade the client's "
        "library, which then uses a newer version of Fetch (sarama: set Config.Version to the broker's release)"),
    Row("", _size, "clients limit the size of responses (librdkafka: receive.message.max.bytes)", usual=True),
    Row("ApiVersions", _api_keys, "clients that search in the list expect it in order", usual=True),
    Row("ApiVersions", _raised, "a client that has only older versions finds no common one (KIP-896)", "upgrade it",
        True),
    Row("Fetch", _records, "the client cannot read them (their format or codec, a header, its own limits), and its "
        "log says why; a tool or health check reads them, and starts again and again", "read the client's log; "
        "upgrade its library, which then knows more formats and versions; install the codec where it is a package of "
        "its own (kafkajs#254)", True),
    Row("", _nulls, "the field may be null, which clients forget", usual=True),
)  # fmt: skip
