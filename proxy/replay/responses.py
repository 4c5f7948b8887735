"""The target's responses: ids are learned from them, they are compared with the recorded ones, or the request is
retried."""

from __future__ import annotations

from typing import NamedTuple

from ...captures.replay.comparison import FETCHES, AbsentTopics, Comparer, FieldDifference, SkippedRequests, lacking
from ...captures.replay.partial_requests import PRODUCE, merged_answers, partitions_to_retry, without_partitions
from ...captures.replay.policy import forbidden_null
from ...captures.replay.preparer import Preparer
from ...captures.replay.report import ReplayReport
from ...captures.replay.script import RecordedCall, Script
from ...decoder import Exchange, read_response
from ...decoder.codec.message import Message
from ...decoder.codec.message_view import view_of
from ...decoder.errors import DecodeError
from ...decoder.schema import facts
from .resolver import TargetResolver
from .settings import SECOND, Settings

MS = 1_000_000
_AGAIN_NS = 50 * MS
_SETTLES_NS = 500 * MS
_READS = ("Describe", "List", "Metadata", "ConsumerGroupDescribe", "ShareGroupDescribe")
"""APIs that only read: changes by other requests may show sooner or later than when recorded."""
# Responses with identical bytes need not be read, except for these: ids and sessions are learned from them.
_ALWAYS_READ = frozenset(
    facts.api_key(name)
    for name in (
        "InitProducerId", "EndTxn", "JoinGroup", "ConsumerGroupHeartbeat", "ShareGroupHeartbeat", "StreamsGroupHeartbeat",
        "CreateTopics", "Fetch", "ShareFetch", "GetTelemetrySubscriptions",
    )
)  # fmt: skip
_MOVED = frozenset(
    facts.error_code(name)
    for name in ("NOT_LEADER_OR_FOLLOWER", "UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID", "NOT_COORDINATOR",
                 "LEADER_NOT_AVAILABLE", "FENCED_LEADER_EPOCH", "INCONSISTENT_TOPIC_ID")
)  # fmt: skip


class _OpenDifferences(NamedTuple):
    """Differences of a read that may be repeated."""

    call: RecordedCall
    found: list[FieldDifference]
    response: Message


class ResponseChecker:
    """Checks the responses of one replay."""

    def __init__(self, script: Script, preparer: Preparer, resolver: TargetResolver, report: ReplayReport, settings: Settings) -> None:
        self.comparer = Comparer(preparer.mapping, preparer)
        self.report = report
        self._script, self._preparer, self._resolver = script, preparer, resolver
        self._mapping = preparer.mapping
        self._patience_ns = int(settings.patience * SECOND)
        self._settling_ns = self._patience_ns
        self._absent = AbsentTopics()
        self.left_out = SkippedRequests(preparer.mapping.recorded.topics)
        self._concerned: dict[tuple[str, int], set[str]] = {}
        """By partition, the names in its fetches that skipped requests concern."""
        # Differences of reads that may be repeated later: the target may be ahead of the recording.
        self._open: dict[tuple[int, bytes], _OpenDifferences] = {}

    def is_recorded(self, exchange: Exchange, frame: bytes) -> bool:
        """Whether a response is the recorded one, byte for byte, with nothing to learn from it."""
        recorded = exchange.response
        if recorded is None or exchange.api_key in _ALWAYS_READ or len(recorded) != len(frame):
            return False
        if exchange.api_key == PRODUCE and self._mapping.offsets:
            return False
        return memoryview(recorded)[4:] == memoryview(frame)[4:]

    def check(self, call: RecordedCall, frame: bytes, version: int, now: int, closing: bool = False) -> int:
        """Read a response, learn from it and compare it. Returns after how many ns the request is to be retried; 0: it is
        done."""
        exchange = call.exchange
        got = self._read(call, frame, version)
        if got is None:
            return 0
        self._preparer.answered(call, got)
        self._absent.answered(got)
        asked, recorded = exchange.request_message, call.recorded
        if recorded is not None and call.left_out:
            recorded = without_partitions(recorded, call.left_out)
        why = None if closing else lacking(recorded, got)
        if why is not None and self._retry_may_help(call, got, now):
            if recorded is not None and exchange.api == "Fetch":
                self.comparer.fetched.again(got, recorded)
            if any(code in _MOVED for _, code in got.errors()):
                self._resolver.refresh()
            if exchange.api_key == PRODUCE:
                taken = without_partitions(got, partitions_to_retry(got))
                call.taken = taken if call.taken is None else merged_answers(call.taken, taken)
            return self._retry(call, why)
        if call.taken is not None:
            got = merged_answers(call.taken, got)
        if asked is None or recorded is None:
            self.report.note("answers where the recording has none")
            return 0
        self._mapping.learn(asked, recorded, got)
        found = self.comparer.differences(exchange, got, recorded)
        if exchange.api_key in FETCHES and (names := self.left_out.concerned(exchange)):
            for place in self.comparer.fetched.places(recorded):
                self._concerned.setdefault(place, set()).update(names)
        reads = exchange.api.startswith(_READS)
        if found and reads and not closing and self._may_settle(call, now):
            return self._retry(call, "not the same yet")
        if reads:
            self._defer_comparison(call, asked, found, got)
        elif found:
            self._add_differences(call, found)
        else:
            self.report.equal += 1
        return 0

    def _add_differences(self, call: RecordedCall, found: list[FieldDifference]) -> None:
        self.report.differ(call, found)
        self.left_out.differs(self.left_out.concerned(call.exchange))

    def _read(self, call: RecordedCall, frame: bytes, version: int) -> Message | None:
        try:
            got = read_response(frame, api_key=call.exchange.api_key, api_version=version)
        except DecodeError as fault:
            self.report.fail(call, f"its answer cannot be read: {fault}")
            return None
        if got.trailing:
            self.report.note("responses with extra bytes at the end")
        null = forbidden_null(view_of(got))
        if null is not None:
            self.report.fail(call, f"its answer has a null where Kafka allows none ({null})")
            return None
        return got

    def _retry(self, call: RecordedCall, why: str) -> int:
        if call.attempts == 0:
            self.report.note(f"{call.exchange.api} sent again: {why}")
        call.attempts += 1
        return min(call.attempts, 5) * _AGAIN_NS

    def _retry_may_help(self, call: RecordedCall, got: Message, now: int) -> bool:
        """Whether another attempt may still help."""
        if self._absent.lacks_only_absent_topics(got):
            self.report.note("topics that the target did not have in time are not waited for again")
            return False
        if not call.attempts:
            call.due_ns = now  # from here on: when it was first answered
        if now - call.due_ns < self._patience_ns:
            return True
        self._absent.give_up(got)
        return False

    def _may_settle(self, call: RecordedCall, now: int) -> bool:
        """Whether to wait a little for changes that may show later; all such waits together are bounded."""
        if not call.attempts:
            call.due_ns = now
        if now - call.due_ns > _SETTLES_NS or self._settling_ns <= 0:
            return False
        self._settling_ns -= min(call.attempts + 1, 5) * _AGAIN_NS
        return True

    def _defer_comparison(self, call: RecordedCall, asked: Message, found: list[FieldDifference], got: Message) -> None:
        """Keep differences until the same read is repeated: it is no difference if the recording has this response a
        moment later."""
        place = asked.api_key, asked.frame[asked.body_start :]
        before = self._open.pop(place, None)
        if before is not None:
            if self.comparer.differences(call.exchange, before.response, call.recorded):
                self._add_differences(before.call, before.found)
            else:
                self.report.equal += 1
                why = "the target was ahead of the recording"
                self.comparer.ignored[why] = self.comparer.ignored.get(why, 0) + 1
        if found:
            self._open[place] = _OpenDifferences(call, found, got)
        else:
            self.report.equal += 1

    def finish(self, complete: bool) -> None:
        """Report what is left. `complete`: the replay was not ended early, so outcomes can be compared."""
        for each in self._open.values():
            self._add_differences(each.call, each.found)
        self._open.clear()
        if complete:
            self._outcomes()
        why = self.left_out.explanation()
        if why is not None and why not in self.report.warnings:
            self.report.warnings.append(why)
        for why, count in self.comparer.ignored.items():
            self.report.ignored[why] = self.report.ignored.get(why, 0) + count

    def _outcomes(self) -> None:
        for mismatch in self.comparer.fetched.mismatches():
            known = self._script.recorded.ends.get((mismatch.topic, mismatch.partition), 0)
            if mismatch.offset < known and not mismatch.got:
                self.report.note("a fetched batch was written before the recording began")
                continue
            there = f"a different batch at offset {mismatch.target_offset}" if mismatch.got else f"none fetched at offset {mismatch.target_offset}"
            path = f"records of {mismatch.topic}-{mismatch.partition} at offset {mismatch.offset}"
            self.report.differ_at_the_end("Fetch", "Fetch records", FieldDifference(path, "a batch", there))
            self.left_out.differs(self._concerned.get((mismatch.topic, mismatch.partition), ()))
        for difference in self.comparer.differing_assignments():
            self.report.differ_at_the_end("group", "assignments at the end", difference)
