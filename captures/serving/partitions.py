"""Produce, Fetch, ListOffsets and OffsetForLeaderEpoch: answers from the logs, with the recorded errors in place.

Fetch sessions (KIP-227) remember what a client asked for and was sent, so that requests and answers hold only changes.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from ...decoder import records
from ...decoder.schema import facts
from .answers import DelayedReply, LiveRequest, NotRecorded, Outcomes, Reply
from .logs import Logs
from .recorded_answers import ServingProgress
from .recorded_exchanges import RecordedExchange, RecordedExchanges
from .usage import Produced

NOT_FOUND = facts.error_code("FETCH_SESSION_ID_NOT_FOUND")
BAD_EPOCH = facts.error_code("INVALID_FETCH_SESSION_EPOCH")
_NEW, _NONE = 0, -1

Wanted = list[tuple[dict[str, Any], dict[str, Any]]]
"""(topic, partition) of a request"""


@dataclass(slots=True)
class _Session:
    epoch: int = 1
    wanted: dict[Any, tuple[dict[str, Any], dict[str, Any]]] = field(default_factory=dict)
    sent: dict[Any, Any] = field(default_factory=dict)


class FetchSessions:
    """All sessions; their ids are counted from 1."""

    def __init__(self) -> None:
        self._sessions: dict[int, _Session] = {}
        self._last = 0

    def asked(self, request: LiveRequest) -> tuple[Wanted, int]:
        """The partitions that a request asks for, with those of its session; and an error code, if the session is unknown."""
        number, epoch = request.fields.get("session_id", 0), request.fields.get("session_epoch", _NONE)
        listed = [
            ({"topic": topic.get("topic"), "topic_id": topic.get("topic_id")}, item)
            for topic in request.fields["topics"]
            for item in topic["partitions"]
        ]
        session = request.session
        session.fetch_session, session.incremental = 0, False
        if epoch in (_NEW, _NONE):
            self._sessions.pop(number, None)
            if epoch == _NEW and request.version >= 7:
                self._last += 1
                new = self._sessions[self._last] = _Session()
                new.wanted = {_key(topic, item["partition"]): (topic, item) for topic, item in listed}
                session.fetch_session = self._last
            return listed, 0
        known = self._sessions.get(number)
        if known is None:
            return [], NOT_FOUND
        if epoch != known.epoch:
            return [], BAD_EPOCH
        known.epoch = known.epoch % 0x7FFFFFFF + 1
        for topic, item in listed:
            known.wanted[_key(topic, item["partition"])] = topic, item
        for topic in request.fields.get("forgotten_topics_data") or ():
            for partition in topic["partitions"]:
                known.wanted.pop(_key(topic, partition), None)
        session.fetch_session, session.incremental = number, True
        return list(known.wanted.values()), 0

    def answered(self, request: LiveRequest, items: list[tuple[dict[str, Any], dict[str, Any]]]) -> list[dict[str, Any]]:
        """The topics of the answer: in a session only partitions with records, errors, or another end of the log."""
        known = self._sessions.get(request.session.fetch_session)
        topics: dict[Any, dict[str, Any]] = {}
        for topic, item in items:
            key = _key(topic, item["partition_index"])
            state = (item["high_watermark"], item.get("last_stable_offset"), item.get("log_start_offset"))
            if known is not None:
                same = known.sent.get(key) == state and not item["records"] and not item["error_code"]
                known.sent[key] = state
                if same and request.session.incremental:
                    continue
            answer = topics.setdefault(_key(topic, 0)[:2], topic | {"partitions": []})
            answer["partitions"].append(item)
        return list(topics.values())


def _key(topic: dict[str, Any], partition: int) -> tuple[Any, Any, int]:
    return topic.get("topic"), topic.get("topic_id"), partition


OUT_OF_RANGE = facts.error_code("OFFSET_OUT_OF_RANGE")
UNKNOWN_PARTITION = facts.error_code("UNKNOWN_TOPIC_OR_PARTITION")
CORRUPT = facts.error_code("CORRUPT_MESSAGE")
_LATEST, _EARLIEST, _MAX_TIMESTAMP, _EARLIEST_LOCAL, _LATEST_TIERED = -1, -2, -3, -4, -5


class Partitions:
    """The APIs that leaders of partitions answer."""

    def __init__(self, recorded: RecordedExchanges, logs: Logs, progress: ServingProgress, produced: Produced) -> None:
        self._recorded, self._logs, self._progress, self._produced_records = recorded, logs, progress, produced
        self._sessions = FetchSessions()
        self._listed: dict[Any, dict[int, tuple[RecordedExchange, dict[str, Any]]]] = defaultdict(dict)
        self.list_errors: Outcomes[tuple[object, ...]] = Outcomes()
        self._read_list_offsets()

    def _read_list_offsets(self) -> None:
        for exchange in self._recorded.of("ListOffsets"):
            asked = exchange.request.to_dict()
            times = {
                (t["name"], p["partition_index"]): p["timestamp"] for t in asked["topics"] for p in t["partitions"]
            }
            for topic in exchange.response.to_dict()["topics"]:
                for item in topic["partitions"]:
                    partition = (topic["name"], item["partition_index"])
                    if partition in times:
                        key = (*partition, times[partition])
                        self.list_errors.add(key, item["error_code"], exchange)
                        if not item["error_code"]:
                            self._listed[key][exchange.position] = exchange, item

    # --- Produce -----------------------------------------------------------------------------------------------

    def produce(self, request: LiveRequest) -> Reply:
        """Take the records; the answer has the offsets that they got."""
        out = []
        for topic in request.fields["topic_data"]:
            name = self._recorded.topic_of(topic)
            items = [self._produced(name, item) for item in topic["partition_data"]]
            out.append({"name": topic.get("name"), "topic_id": topic.get("topic_id"), "partition_responses": items})
        if request.fields["acks"] == 0:
            return self._checked(request, request.fields["topic_data"], Reply(None))
        reply = request.reply({"responses": out})
        return self._checked(request, request.fields["topic_data"], reply)

    def _produced(self, topic: str, item: dict[str, Any]) -> dict[str, Any]:
        partition = (topic, item["index"])
        log = self._logs.log(partition)
        none = {"index": item["index"], "base_offset": -1}
        if log is None:
            return none | {"error_code": UNKNOWN_PARTITION}
        errors = self._logs.produce_errors.get(partition)
        if errors and errors[0][0] <= log.end:
            recorded = errors.pop(0)[1]
            names = ("error_code", "error_message", "record_errors", "current_leader")
            return none | {name: recorded[name] for name in names if name in recorded}
        try:
            base, taken = log.append(item["records"] or b"")
        except records.RecordsError:
            return none | {"error_code": CORRUPT}
        self._logs.live.add(partition)
        self._produced_records.take(partition, taken)
        return {"index": item["index"], "error_code": 0, "base_offset": base, "log_start_offset": log.start}

    # --- Fetch -------------------------------------------------------------------------------------------------

    def fetch(self, request: LiveRequest) -> Reply | DelayedReply:
        """Records; at the end of the log none, after `max_wait_ms`."""
        wanted, error = self._sessions.asked(request)
        if error:
            return Reply({"error_code": error, "responses": []})
        deadline = request.now + max(request.fields["max_wait_ms"], 0) / 1000

        def poll(now: float, last: bool) -> Reply | None:
            items, size, must_answer = self._fetched(request, wanted)
            if not (last or must_answer or size >= request.fields["min_bytes"]):
                return None
            body: dict[str, Any] = {"responses": self._sessions.answered(request, items)}
            body["session_id"] = request.session.fetch_session
            reply = request.reply(body)
            return self._checked(request, [topic for topic, _ in wanted], reply)

        return poll(request.now, False) or DelayedReply(deadline, poll)

    def _fetched(self, request: LiveRequest, wanted: list[tuple[dict[str, Any], dict[str, Any]]]) -> tuple[list[Any], int, bool]:
        """((topic, partition answer) of each partition, bytes of records, whether there is anything else to send)."""
        out: list[Any] = []
        left = request.fields.get("max_bytes", 0x7FFFFFFF)
        committed = request.fields.get("isolation_level", 0) == 1
        size, must_answer = 0, False
        for topic, item in wanted:
            name = self._recorded.topic_of(topic)
            number, offset = item["partition"], item["fetch_offset"]
            answer = self._error(name, number, offset)
            log = self._logs.log((name, number))
            if answer is None and log is None:
                answer = {"error_code": UNKNOWN_PARTITION, "high_watermark": -1}
            elif answer is None and log is not None and not log.start <= offset <= log.end:
                answer = {"error_code": OUT_OF_RANGE, "high_watermark": log.end, "log_start_offset": log.start}
            if answer is not None:
                must_answer = True
            else:
                assert log is not None
                data = b""
                aborted: list[tuple[int, int]] = []
                if left > 0:
                    data, aborted = log.read(offset, min(item["partition_max_bytes"], left), committed)
                left, size = left - len(data), size + len(data)
                answer = {
                    "error_code": 0, "high_watermark": log.end, "last_stable_offset": log.stable,
                    "log_start_offset": log.start, "records": data,
                    "aborted_transactions": [{"producer_id": who, "first_offset": first} for who, first in aborted]
                    if committed else None,
                }  # fmt: skip
            answer = {
                "partition_index": number,
                "records": b"",
                "aborted_transactions": None,
                "preferred_read_replica": -1,
            } | answer
            out.append((topic, answer))
        return out, size, must_answer

    def _error(self, topic: str, partition: int, offset: int) -> dict[str, Any] | None:
        errors = self._logs.fetch_errors.get((topic, partition, offset))
        if not errors:
            return None
        recorded = errors.pop(0)
        names = (
            "error_code",
            "high_watermark",
            "last_stable_offset",
            "log_start_offset",
            "diverging_epoch",
            "current_leader",
        )
        return {name: recorded[name] for name in names if name in recorded}

    # --- offsets -----------------------------------------------------------------------------------------------

    def list_offsets(self, request: LiveRequest) -> Reply:
        committed = request.fields.get("isolation_level", 0) == 1
        topics = []
        for topic in request.fields["topics"]:
            items = [self._listing(topic["name"], item, committed) for item in topic["partitions"]]
            topics.append({"name": topic["name"], "partitions": items})
        reply = request.reply({"topics": topics})
        return self._checked(request, request.fields["topics"], reply)

    def _listing(self, topic: str, item: dict[str, Any], committed: bool) -> dict[str, Any]:
        number, timestamp = item["partition_index"], item["timestamp"]
        key = (topic, number, timestamp)
        error = self.list_errors.next_error(key)
        log = self._logs.log((topic, number))
        out = {"partition_index": number, "error_code": 0, "timestamp": -1, "offset": -1, "leader_epoch": 0}
        if error is not None or log is None:
            return out | {"error_code": error[0] if error else UNKNOWN_PARTITION, "leader_epoch": -1}
        known = self._listed.get(key)
        if known and ((topic, number) in self._logs.others or timestamp != _LATEST):
            # Others wrote here at unknown times: the recorded answer is given again.
            place = self._progress.place(("offset", *key), sorted(known), frozenset({topic}))
            recorded = known[place][1]
            if (topic, number) in self._logs.others or timestamp in (_EARLIEST, _EARLIEST_LOCAL):
                return out | {name: value for name, value in recorded.items() if value != -1 or name == "offset"}
        if timestamp == _LATEST:
            out["offset"] = log.stable if committed else log.end
        elif timestamp in (_EARLIEST, _EARLIEST_LOCAL):
            out["offset"] = log.start
        elif timestamp == _MAX_TIMESTAMP:
            out["offset"], out["timestamp"] = log.latest_timestamp()
        elif timestamp >= 0:
            out["offset"], out["timestamp"] = log.offset_for_time(timestamp)
        out["old_style_offsets"] = [out["offset"]] if out["offset"] >= 0 else []
        return out

    def offset_for_leader_epoch(self, request: LiveRequest) -> Reply:
        """The end of the log for the one epoch that it has here."""
        topics = []
        for topic in request.fields["topics"]:
            items = []
            for item in topic["partitions"]:
                log = self._logs.log((topic["topic"], item["partition"]))
                known = (
                    {"end_offset": log.end, "leader_epoch": item["leader_epoch"]}
                    if log
                    else {"error_code": UNKNOWN_PARTITION}
                )
                items.append({"partition": item["partition"]} | known)
            topics.append({"topic": topic["topic"], "partitions": items})
        reply = request.reply({"topics": topics})
        return self._checked(request, request.fields["topics"], reply)

    def _checked(self, request: LiveRequest, topics: list[dict[str, Any]], reply: Reply) -> Reply:
        """The answer; raises `NotRecorded` with it if there are topics that the recording does not have."""
        names = {self._recorded.topic_of(topic) or str(topic.get("topic_id")) for topic in topics}
        unknown = sorted(name for name in names if not self._logs.knows(name))
        if unknown:
            raise NotRecorded(f"{request.api} v{request.version} for {', '.join(unknown)}", None, reply, len(unknown) == len(names))
        return reply
