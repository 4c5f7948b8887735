"""Why a broker finds a batch out of sequence, by what the capture shows of the batches before it (KIP-98, KIP-360)."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from ....schema import facts
from ....schema.facts import error_name
from ...engine.formatting import SECOND, duration, several
from ...models.sent_batches import LAST_SEQUENCE, NO_ANSWER, WAITING, BatchHistory, SentBatch

OUT_OF_ORDER = facts.error_code("OUT_OF_ORDER_SEQUENCE_NUMBER")
SILENCE_NS = 60 * SECOND
"""Producers that pause for less are not forgotten by any known broker."""
REMEMBERED = 5
"""`ProducerStateEntry.NUM_BATCHES_TO_RETAIN`: batches of a producer id and partition that a broker remembers."""

_SEQUENCES = (
    "Brokers keep the last sequence number of each producer id and partition, so that no batch is written twice or "
    "skipped (KIP-98). "
)
_FATAL = (
    "Java clients of 2.5 and newer get a new epoch and continue (KIP-360); librdkafka raises a fatal error, and the application "
    "must create a new producer"
)


class CauseKind(StrEnum):
    """What is known of the cause; `Finding.about` has it as ``cause``."""

    DROPPED = "batch-dropped"
    GAP = "sequence-gap"
    NEW_EPOCH = "epoch-without-start"
    REUSED = "sequence-reused"
    REPEATED = "sent-again"
    LATE = "sent-again-too-late"
    SKIPPED = "refused-batch-skipped"
    OVERTAKEN = "overtaken"
    SHARED = "producer-id-shared"
    FORGOTTEN = "producer-forgotten"
    MOVED = "new-leader-behind"
    LOST = "broker-contradicts-itself"
    BEHIND = "behind-a-failed-batch"
    UNSEEN = "not-in-the-capture"


PERHAPS_SHARED = frozenset({CauseKind.GAP, CauseKind.NEW_EPOCH, CauseKind.LOST, CauseKind.FORGOTTEN, CauseKind.UNSEEN})
"""Causes that another producer with the same id would explain better."""


class SequenceCause(NamedTuple):
    """A cause. `seen` continues the sentence that says what was refused. `sure`: what the client or broker did is on the wire, so
    retrying will not help. `dropped`: the sequence that the client gave up, -1 for none."""

    kind: CauseKind
    seen: str
    why: str
    remedy: str
    sure: bool = False
    dropped: int = -1
    explains: tuple[str, ...] = ()


def cause_of(history: BatchHistory, sent: SentBatch) -> SequenceCause:
    """Why `sent` was refused."""
    earlier = history.before(sent)
    reused = _reused([sent, *earlier])
    if reused is not None:
        return reused
    if sent.expected is not None:
        return _gap(earlier, sent, sent.expected)
    again = _again(earlier, sent)
    if again is not None:
        return again
    before = _before(earlier, sent)
    if before is None:
        return _unseen(sent, first=not earlier)
    if before.code == NO_ANSWER:
        return _dropped(before, sent, "")
    if before.code == WAITING:
        return _overtaken(before, sent)
    return _contradicted(before, sent) if before.code == 0 else _behind(before, sent)


def _before(earlier: list[SentBatch], sent: SentBatch) -> SentBatch | None:
    """The batch right before it; if that one was refused as out of sequence too, the first that was not."""
    sequence = sent.sequence
    for batch in earlier:
        if batch.next_sequence == sequence and batch.count:
            if batch.code != OUT_OF_ORDER:
                return batch
            sequence = batch.sequence
    return None


def _gap(earlier: list[SentBatch], sent: SentBatch, expected: int) -> SequenceCause:
    lost = next((b for b in earlier if b.next_sequence == expected and b.code == NO_ANSWER), None)
    if lost is not None:
        return _dropped(lost, sent, f" (nor was sequence {expected} ever sent)")
    seen = f"sequence {sent.sequence} arrived, but {expected} was expected"
    if not earlier:
        return SequenceCause(
            CauseKind.NEW_EPOCH,
            f"{seen}: it is the first batch of epoch {sent.epoch}",
            _SEQUENCES + "With a new epoch, sequences begin at 0; this client went on with those of the epoch before.",
            "upgrade the client: after a new epoch it must number its batches from 0 (KIP-360). If packets are missing from the "
            "capture, look for them first",
            sure=True,
        )
    if sent.sequence < expected and expected > LAST_SEQUENCE - REMEMBERED:
        return SequenceCause(
            CauseKind.GAP,
            f"{seen}: the client began at 0 again before sequence {LAST_SEQUENCE}, the last there is",
            _SEQUENCES + f"Sequences run to {LAST_SEQUENCE} and then begin at 0 (DefaultRecordBatch.incrementSequence); this client leaves some out.",
            f"upgrade the client library, or report it to its developers; a restart of the producer begins at 0 with another producer id. {_FATAL}",
            sure=True,
        )
    return SequenceCause(
        CauseKind.GAP,
        f"{seen}, and the batch with it was not sent",
        _SEQUENCES + "The client gave sequence numbers to records that it never sent: they timed out in its queue, or it lost them.",
        "raise delivery.timeout.ms (librdkafka: message.timeout.ms), so that records do not expire in the client's queue; otherwise "
        f"upgrade the client. {_FATAL}",
        sure=True,
    )


def _dropped(lost: SentBatch, sent: SentBatch, more: str) -> SequenceCause:
    return SequenceCause(
        CauseKind.DROPPED,
        f"sequence {lost.sequence}, sent {duration(sent.sent_ns - lost.sent_ns)} before it, got no answer and was never sent again"
        f"{more}; the client dropped that batch and went on with sequence {sent.sequence}",
        _SEQUENCES + "The client gave up a batch that was under way (message.timeout.ms in librdkafka, delivery.timeout.ms in Java), but "
        "its sequence numbers stay used: unless the lost request was written, every later batch is refused.",
        "raise message.timeout.ms (librdkafka) or delivery.timeout.ms (Java) well above socket.timeout.ms or request.timeout.ms, so "
        "that a request without an answer is sent again; then find out why it got none. Upgrade the client: newer ones get a new "
        "epoch or stop after a batch that they gave up",
        sure=True,
        dropped=lost.sequence,
        explains=("unanswered-request", "closed-without-answer"),
    )


def _reused(batches: list[SentBatch]) -> SequenceCause | None:
    """Two batches with one sequence and other records, the first of which was not refused. The latest batch comes first."""
    last: dict[int, SentBatch] = {}
    for batch in reversed(batches):
        first = last.get(batch.sequence)
        if first is not None and first.crc != batch.crc and first.code <= 0:
            outcome = {0: "acknowledged", WAITING: "still waiting for its answer"}.get(first.code, "left without an answer")
            return SequenceCause(
                CauseKind.REUSED,
                f"the client used sequence {batch.sequence} twice: the first batch ({several(first.count, 'record')}, {outcome}) had "
                f"other records than the second one ({several(batch.count, 'record')})",
                _SEQUENCES + "A sequence number stands for the same records in every attempt; the broker takes a batch of the same length "
                "for a duplicate and drops it, so records can be lost without an error.",
                "send one request at a time to a partition, or upgrade the client: it numbers a batch before the one ahead is settled "
                "(kafkajs with concurrent send() calls), or builds it anew for a retry",
                sure=True,
            )
        last[batch.sequence] = batch
    return None


def _again(earlier: list[SentBatch], sent: SentBatch) -> SequenceCause | None:
    """The causes where its own sequence was sent before."""
    same = [b for b in earlier if b.sequence == sent.sequence]
    later = sum(1 for b in earlier if b.code == 0 and 0 < (b.sequence - sent.sequence) & 0x7FFFFFFF < 1 << 30)
    if any(b.code == 0 for b in same):
        return SequenceCause(
            CauseKind.REPEATED,
            f"sequence {sent.sequence} was acknowledged before, and the client sent the same batch again after {later} later ones",
            _SEQUENCES + f"A broker recognises the last {REMEMBERED} batches when they are repeated; older ones are out of order.",
            "nothing is lost: the batch is written. Upgrade the client, which lost track of an acknowledgement",
            sure=True,
        )
    if same and later >= REMEMBERED:
        return SequenceCause(
            CauseKind.LATE,
            f"sequence {sent.sequence} was sent again after {later} later batches had been acknowledged",
            _SEQUENCES + f"A broker recognises the last {REMEMBERED} batches when they are repeated, so it cannot tell whether this one "
            "was written.",
            "set max.in.flight.requests.per.connection to 5 or less, and upgrade a client that sends later batches before the one that "
            "failed",
            sure=True,
        )
    return None


def _overtaken(before: SentBatch, sent: SentBatch) -> SequenceCause:
    return SequenceCause(
        CauseKind.OVERTAKEN,
        f"it overtook sequence {before.sequence}, which was still waiting for its answer on another connection "
        f"(from {before.conn.client}, this one from {sent.conn.client})",
        _SEQUENCES + "The order of batches holds on one connection only.",
        "upgrade the client: it must not use a new connection for a partition while requests wait on the old one",
        sure=True,
    )


def _contradicted(before: SentBatch, sent: SentBatch) -> SequenceCause:
    """The broker acknowledged the batch before it."""
    silence = sent.sent_ns - before.answered_ns
    if before.last_sequence == LAST_SEQUENCE:
        return SequenceCause(
            CauseKind.LOST,
            f"no sequence was skipped: the batch before it ended at sequence {LAST_SEQUENCE}, the last there is, and this one begins at 0 again",
            _SEQUENCES + f"After {LAST_SEQUENCE}, sequences begin at 0 again (DefaultRecordBatch.incrementSequence). Apache Kafka accepts that; "
            "this broker is another product that does not.",
            "report it to the developers of the broker; until then, restart the producer before it has sent 2^31 records to a partition: "
            "it gets another producer id",
            sure=True,
        )
    fact = f"no sequence was skipped: the batch before it, up to sequence {before.last_sequence}, was acknowledged"
    if silence >= SILENCE_NS:
        return SequenceCause(
            CauseKind.FORGOTTEN,
            f"{fact}, and after {silence // SECOND} s of silence the broker has forgotten the producer",
            "Apache Kafka accepts any sequence of a producer id that it has forgotten (KIP-360; before 2.5 it answered "
            "UNKNOWN_PRODUCER_ID), and forgets it after producer.id.expiration.ms (1 day). So this is probably another product, with a "
            "shorter expiration (Redpanda: transactional_id_expiration_ms). In Apache Kafka, only a log that was truncated during the "
            "silence has this effect (unclean.leader.election.enable).",
            "raise the broker's expiration of producer ids (Redpanda: transactional_id_expiration_ms) above the longest pause of its "
            f"producers, or let the producer write now and then. {_FATAL}",
            sure=True,
        )
    if before.conn.broker != sent.conn.broker:
        return SequenceCause(
            CauseKind.MOVED,
            f"{fact} by {before.conn.where}; {sent.conn.where}, which leads the partition now, does not have it",
            _SEQUENCES + "The new leader lacks an acknowledged batch: its log is behind or was truncated "
            "(unclean.leader.election.enable, min.insync.replicas=1), or it lacks the producer's state.",
            f"look for an unclean election in the brokers' logs at that time; set min.insync.replicas=2. {_FATAL}",
        )
    return SequenceCause(
        CauseKind.LOST,
        f"no sequence was skipped; the same broker acknowledged the batch before it, up to sequence {before.last_sequence}, "
        f"{duration(silence)} earlier",
        _SEQUENCES + "The broker contradicts its own acknowledgement: it lost the producer's last state (a log that was truncated, or a "
        "product that keeps this state in memory and restarted). Apache Kafka writes it with the records.",
        f"look at the broker's log at that time, for truncation, recovery or a restart. {_FATAL}",
    )


def _behind(before: SentBatch, sent: SentBatch) -> SequenceCause:
    error = facts.errors().get(before.code)
    fact = f"sequence {before.sequence}, before it, was refused with {error_name(before.code)}"
    if error is not None and error.retriable:
        return SequenceCause(
            CauseKind.BEHIND,
            f"no sequence was skipped; {fact}",
            _SEQUENCES + "When a batch fails, those in flight behind it are refused too and sent again after it: that is normal.",
            f"if it does not recover, find out why the first one failed ({error_name(before.code)})",
        )
    return SequenceCause(
        CauseKind.SKIPPED,
        f"{fact}, and the client went on with the next sequence",
        _SEQUENCES + "That error is final. Its records are not written, so the numbers behind it do not fit, unless the client gets a new "
        "epoch (KIP-360).",
        f"find out why that batch was refused ({error_name(before.code)}). {_FATAL}",
    )


_UNSEEN = SequenceCause(
    CauseKind.UNSEEN,
    "the batch before it is not in the capture, so it is unknown whether one is missing",
    _SEQUENCES + "When a batch fails, those in flight behind it are refused too and sent again after it: that is normal. If it does "
    "not recover, a batch before it was given up or lost.",
    f"capture from the producer's start, or look for batches that timed out in its log (delivery.timeout.ms). {_FATAL}",
)


def _unseen(sent: SentBatch, first: bool) -> SequenceCause:
    if first and sent.sequence == 0:
        return SequenceCause(
            CauseKind.UNSEEN,
            f"it is the first batch of epoch {sent.epoch} and has sequence 0",
            "The broker knows later sequences of this producer id and epoch, and no other client in the capture sent them. Most likely the "
            "id was given out before: a cluster whose ZooKeeper or controller data was reset counts producer ids from 0 again, while "
            "its logs still have the old producers. Or this producer began before the capture.",
            "create a new producer; if this goes on after a cluster was reset, its old logs must go too, or producer ids must grow past the "
            "old ones",
        )
    return _UNSEEN


def shared(other: SentBatch) -> SequenceCause:
    """Another client writes with the same producer id and epoch."""
    return SequenceCause(
        CauseKind.SHARED,
        f"{other.conn.who} writes to the partition with the same producer id and epoch (up to sequence {other.last_sequence})",
        _SEQUENCES + "One producer id belongs to one producer: with two, their sequences get mixed up.",
        "do not share a producer between processes (after fork, create a new one); if each asked InitProducerId itself, the broker gave "
        "the same id and epoch twice, which is the broker's fault",
        sure=True,
    )


def late(sequence: int) -> SequenceCause:
    """The client sent a batch that had no answer after the ones behind it."""
    return SequenceCause(
        CauseKind.BEHIND,
        f"sequence {sequence}, before it, got no answer and was sent again only later",
        _SEQUENCES + "Batches behind one that is missing are refused until it has been sent again.",
        "if it does not recover, upgrade the client: it must send a batch without an answer again before those behind it",
    )
