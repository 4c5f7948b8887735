"""Why a record of an idempotent producer comes twice under error and drop rules, from the recordings of what was produced and read.

A broker recognises a batch that it has appended by producer id, epoch and sequence. A record comes twice only where a rule kept the broker's
"appended" from its producer, and the producer went on with a new epoch and sent it again (KIP-360): that is what such a
rule is for. The same identity twice, or a new one though the producer was told of the first, would be a fault.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from barnabas.captures import open_capture
from barnabas.decoder import Exchange
from barnabas.decoder.records import Batch, batches
from barnabas.plugins.rules.rules import Rule

TOPIC = "rules"
OF_PRODUCE = f"api == Produce and topic == {TOPIC}"


def fault(name: str, every: int, **action: str) -> Rule:
    return Rule.of(OF_PRODUCE, name=name, when={"every": every}, **action)


EXECUTED = "appended"
RULES = [
    fault("request dropped", 97, drop="request"),
    fault("appended, response dropped", 89, drop="response"),
    fault("refused", 23, error="NOT_LEADER_OR_FOLLOWER", broker="skipped"),
    fault("appended, timed out", 29, error="REQUEST_TIMED_OUT", broker="executed"),
    fault("appended, too few replicas", 31, error="NOT_ENOUGH_REPLICAS_AFTER_APPEND", broker="executed"),
]


class Identity(NamedTuple):
    """What a broker recognises a record by."""

    partition: int
    producer_id: int
    epoch: int
    sequence: int


def appended(folder: Path) -> dict[int, dict[Identity, set[int]]]:
    """Number of a record -> each identity under which it was read -> the offsets."""
    found: dict[int, dict[Identity, set[int]]] = defaultdict(lambda: defaultdict(set))
    with open_capture(folder) as capture:
        for exchange in capture.exchanges():
            message = exchange.response_message if exchange.api == "Fetch" else None
            for topic in message.to_dict()["responses"] if message is not None else ():
                for partition in topic["partitions"]:
                    for batch in batches(partition["records"] or b""):
                        if not isinstance(batch, Batch):
                            continue
                        for record in batch.records():
                            sequence = batch.base_sequence + record.offset - batch.base_offset
                            identity = Identity(partition["partition_index"], batch.producer_id, batch.producer_epoch, sequence)
                            found[int(record.value)][identity].add(record.offset)
    return found


def sent(folder: Path) -> dict[Identity, list[Exchange]]:
    """The Produce requests of each identity."""
    found: dict[Identity, list[Exchange]] = defaultdict(list)
    with open_capture(folder) as capture:
        for exchange in capture.exchanges():
            message = exchange.request_message if exchange.api == "Produce" else None
            for topic in message.to_dict()["topic_data"] if message is not None else ():
                for partition in topic["partition_data"]:
                    for batch in batches(partition["records"]):
                        assert isinstance(batch, Batch)
                        for sequence in range(batch.base_sequence, batch.base_sequence + batch.record_count):
                            found[Identity(partition["index"], batch.producer_id, batch.producer_epoch, sequence)].append(exchange)
    return found


def why_twice(of: dict[Identity, set[int]], requests: dict[Identity, list[Exchange]]) -> str:
    """The rule for which the producer sent a record under another identity; "" if there is none, which is a fault. `of`: the
    record's identities and their offsets."""
    if any(len(offsets) > 1 for offsets in of.values()):
        return ""
    names: list[str] = []
    for identity in sorted(of, key=lambda each: each.epoch)[:-1]:
        tries = requests[identity]
        if any(each.response is not None and not each.error and not each.marks.has_notes for each in tries):
            return ""  # the producer was told that it is there
        notes = [note for each in tries for note in each.marks.notes]
        names.append(next((rule.name for rule in RULES if EXECUTED in rule.name and any(rule.name in note for note in notes)), ""))
    return names[0] if all(names) and names else ""
