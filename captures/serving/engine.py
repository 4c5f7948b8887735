"""The serving engine: a live request in, its answer out, or `NotRecorded`.

Sans-IO: the server (`proxy.serve`) has the sockets and the clock. Stateless answers come from the recording (`recorded_answers`,
`cluster`); state that depends on what live clients do is simulated (`partitions`, `offsets`, `groups`, `transactions`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ... import decoder
from ...decoder import Exchange
from ...decoder.codec.message_view import view_of
from ...decoder.schema import facts
from .answers import DelayedReply, LiveRequest, LiveSession, NotRecorded, Reply
from .cluster import API_VERSIONS, OfferMode, Offers, ServedCluster
from .generated_names import GeneratedNames
from .groups import ClassicGroups, ConsumerGroups
from .logs import Logs
from .offsets import Offsets
from .partitions import Partitions
from .recorded_answers import RecordedAnswers, ServingProgress
from .recorded_exchanges import RecordedExchanges
from .transactions import Transactions
from .usage import Content, Produced, Unused, Usage

_WAIT_BY_NATURE = frozenset({"Fetch", "JoinGroup", "SyncGroup"})
"""Their answers come when there is something to report: recorded times are not added."""

Handler = Callable[[LiveRequest], "Reply | DelayedReply"]


@dataclass(frozen=True, slots=True)
class ServingSummary:
    """Answers, all and by how they came about; requests by API, those without an answer, and those that only the recording has; recorded
    answers and records that were not used."""

    answers: int
    by_kind: dict[str, int]
    asked: dict[str, int]
    misses: dict[str, int]
    never_asked: dict[str, int]
    unused: list[Unused]


class Engine:
    """Answers for one recording. `everything`: records that recorded clients produced are there from the start.
    `content`: what of each produced record is compared with what was recorded (`produced`); None: nothing.

    `counts` counts answers by how they came about, `asked` requests by API, `misses` what was not answered.
    """

    def __init__(
        self,
        exchanges: Iterable[Exchange],
        *,
        everything: bool = False,
        offer: OfferMode = OfferMode.RECORDED,
        content: Content | None = None,
    ) -> None:
        self.recorded = recorded = RecordedExchanges(exchanges)
        self.ports: dict[int, int] = {}
        """The served port of every node; the server fills it in."""
        self.names = GeneratedNames(recorded)
        self.progress = ServingProgress(recorded)
        self.logs = Logs(recorded, everything)
        self.counts: Counter[str] = Counter()
        self.asked: Counter[str] = Counter()
        self.misses: Counter[str] = Counter()
        self._recorded_answers = RecordedAnswers(recorded, self.progress)
        self._cluster = ServedCluster(recorded, self.progress, self.ports)
        self._groups = ClassicGroups(recorded)
        self._offsets = Offsets(recorded, self._groups.judge)
        self._consumer_groups = ConsumerGroups(recorded, self.logs)
        self._groups.learn(self._cluster.groups | self._offsets.groups)
        self._offsets.groups |= self._groups.known | self._consumer_groups.known
        self.produced = Produced(self.logs.sent, content)
        self._partitions = Partitions(recorded, self.logs, self.progress, self.produced)
        self._transactions = Transactions(recorded, self.logs, self._offsets)
        simulated: dict[str, Handler] = {
            "Produce": self._produce,
            "Fetch": self._partitions.fetch,
            "ListOffsets": self._partitions.list_offsets,
            "OffsetForLeaderEpoch": self._partitions.offset_for_leader_epoch,
            "Metadata": self._cluster.metadata,
            "FindCoordinator": self._cluster.find_coordinator,
            "OffsetCommit": self._offsets.commit,
            "OffsetFetch": self._offsets.fetch,
            "JoinGroup": self._groups.join,
            "SyncGroup": self._groups.sync,
            "Heartbeat": self._groups.heartbeat,
            "LeaveGroup": self._groups.leave,
            "ConsumerGroupHeartbeat": self._consumer_groups.heartbeat,
            "InitProducerId": self._transactions.init_producer_id,
            "AddPartitionsToTxn": self._transactions.add_partitions,
            "AddOffsetsToTxn": self._transactions.add_offsets,
            "TxnOffsetCommit": self._transactions.commit_offsets,
            "EndTxn": self._transactions.end,
        }
        self._offers = Offers(recorded, frozenset(simulated), offer)
        self._handlers = simulated | {"ApiVersions": self._offers.answer}
        outcomes = (
            self._partitions.list_errors, self._groups.errors, self._offsets.errors, self._offsets.fetch_errors,
            self._transactions.errors,
        )  # fmt: skip
        self.usage = Usage(recorded, self.progress, self.logs, self.produced, outcomes, frozenset(simulated), everything)
        self._latencies = {key: [exchange.latency for exchange in known] for key, known in recorded.by_api.items()}
        self._timed: Counter[int] = Counter()

    @property
    def nodes(self) -> dict[int, tuple[str, int]]:
        """The recorded brokers by node id, as in answers to clients."""
        return self.recorded.brokers

    def read(self, session: LiveSession, frame: bytes, now: float, time_ms: int) -> LiveRequest:
        """A live request. Raises `decoder.DecodeError` for one that cannot be read, and `NotRecorded` for an unknown
        version (but of ApiVersions, whose refusal names the versions that the client may use)."""
        try:
            message = decoder.read_request(frame)  # some clients leave bytes behind the message
        except decoder.UnknownVersion:
            key, version, _ = decoder.peek_request(frame)
            if key == API_VERSIONS:
                message = self._stand_in(frame)
                return LiveRequest(session, message, {}, now, time_ms)
            raise NotRecorded(f"{facts.api_name(key)} v{version}, an unknown version") from None
        self.asked[message.api] += 1
        null = next(view_of(message).forbidden_nulls(), None)
        if null is not None:
            raise NotRecorded(f"{message.api} v{message.api_version} with a null where Kafka allows none ({null})")
        message = self.names.recorded(message)
        self.usage.asked(message)
        return LiveRequest(session, message, message.to_dict(), now, time_ms)

    def _stand_in(self, frame: bytes) -> decoder.Message:
        """An ApiVersions request of an unknown version as one that is refused: of a version that is not offered."""
        header, _ = decoder.decode_request_header(frame)
        known = facts.api(API_VERSIONS).versions.every()
        clear = decoder.encode_request(
            API_VERSIONS, known[-1], {}, correlation_id=header["correlation_id"], client_id=header.get("client_id")
        )
        message = decoder.decode_request(clear)
        message.header["refused"] = True
        return message

    def answer(self, request: LiveRequest) -> Reply | DelayedReply:
        """The answer. Raises `NotRecorded` when the recording has none, with the nearest recorded request."""
        if request.message.header.get("refused"):
            return self._offers.refusal()
        try:
            handler = self._handlers.get(request.api)
            if handler is not None:
                return handler(request)
            reply = self._recorded_answers.answer(request)
        except NotRecorded as missed:
            if missed.nearest is None:
                missed.nearest = self._recorded_answers.nearest(request.message)
            raise
        self._apply_changes(request, reply)
        return reply

    def _produce(self, request: LiveRequest) -> Reply:
        reply = self._partitions.produce(request)
        self._transactions.produced(request)
        return reply

    def _apply_changes(self, request: LiveRequest, reply: Reply) -> None:
        """Apply what recorded answers change in the simulated state."""
        fields = reply.fields or {}
        if request.api == "DeleteTopics":
            for item in fields["responses"]:
                if not item["error_code"]:
                    self.logs.forget(self.recorded.topic_of(item))
        elif request.api == "DeleteGroups":
            for item in fields["results"]:
                if not item["error_code"]:
                    self._offsets.forget(item["group_id"])
        elif request.api == "DeleteRecords":
            for topic in fields["topics"]:
                for item in topic["partitions"]:
                    log = self.logs.log((topic["name"], item["partition_index"]))
                    if log is not None and not item["error_code"]:
                        log.start = min(max(log.start, item["low_watermark"]), log.end)

    def encode(self, request: LiveRequest, reply: Reply) -> bytes | None:
        """The frame of an answer, with the served addresses; None where none is due. Raises `NotRecorded` for an answer
        that the version cannot carry."""
        self.counts[reply.how] += 1
        self.usage.given(reply)
        if reply.fields is None:
            return None
        self._cluster.readdress(reply.fields, request.session)
        version = request.version if reply.version is None else reply.version
        correlation_id = request.message.header["correlation_id"]
        try:
            frame = decoder.encode_response(request.api_key, version, reply.fields, correlation_id=correlation_id)
            return self.with_live_names(request, frame, version)
        except decoder.EncodeError as error:
            raise NotRecorded(f"{request.api} v{request.version}: {error}", reply.source) from None

    def with_live_names(self, request: LiveRequest, frame: bytes | None, version: int | None = None) -> bytes | None:
        """An answer's frame with the names that the live client uses."""
        if frame is None or not self.names.taken:
            return frame
        version = request.version if version is None else version
        answer = decoder.decode_response(frame, api_key=request.api_key, api_version=version)
        return self.names.live(answer).encode()

    def latency(self, request: LiveRequest, reply: Reply) -> float:
        """How long the recorded broker took for this answer, in seconds."""
        if request.api in _WAIT_BY_NATURE:
            return 0.0
        if reply.source is not None:
            return reply.source.latency
        known = self._latencies.get(request.api_key)
        if not known:
            return 0.0
        at = self._timed[request.api_key]
        self._timed[request.api_key] += 1
        return known[min(at, len(known) - 1)]

    def never_asked(self) -> dict[str, int]:
        """APIs of the recording that no live client has asked for, with how often the recorded ones did."""
        return {
            facts.api_name(key): len(known)
            for key, known in sorted(self.recorded.by_api.items())
            if facts.api_name(key) not in self.asked
        }

    def unproduced(self) -> dict[tuple[str, int], int]:
        """By partition, how many recorded records wait for live producers, where nothing was produced yet."""
        return {
            partition: count
            for partition, count in self.logs.hidden.items()
            if count and not self.logs.produced(partition)
        }

    def summary(self) -> ServingSummary:
        """Hits and misses so far."""
        answers = sum(self.counts.values())
        return ServingSummary(answers, dict(self.counts), dict(self.asked), dict(self.misses), self.never_asked(), self.usage.unused())
