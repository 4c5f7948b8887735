"""How fast records go from one message format to another: a producer's message set up, a consumer's batches down.

    python bench/translation/run.py [--size 1024] [--batch 100000] [--rounds 15] [--json] [--check]

MB/s of keys and values on one core, CPU time, medians of interleaved rounds; CRCs are checked and made. Beside each case
stands the same done with kafka-python's readers and builders of both formats. `--check` ends with status 1 where a goal
is missed: 50 MB/s without compression.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from barnabas.decoder import records as R
from barnabas.decoder.native import accelerator
from barnabas.plugins.translation.message_format import down, up

K = TypeVar("K")
GOAL_MB_S = 50.0
TIME = 1_790_000_000_000
CASES = [("up", magic, codec) for magic in (1, 0) for codec in range(4)]
CASES += [("down", magic, codec) for magic in (1, 0) for codec in range(5)]


def rows(size: int, batch: int) -> list[R.Record]:
    """Records of `size` bytes (key and value), about as compressible as JSON, `batch` bytes together."""
    random_ = random.Random(1)
    words = [random_.randbytes(8).hex().encode() for _ in range(400)]
    made = []
    for number in range(batch // size):
        key = b"order-%06d" % number
        value = b"".join(random_.choice(words) for _ in range(size // 16 + 1))[: size - len(key)]
        made.append(R.Record(number, TIME + number, key, value))
    return made


def peer(way: str, magic: int, codec: int) -> Callable[[bytes], bytes] | None:
    """The same conversion by kafka-python."""
    try:
        from kafka.record.default_records import DefaultRecordBatchBuilder
        from kafka.record.legacy_records import LegacyRecordBatchBuilder
        from kafka.record.memory_records import MemoryRecords
    except ImportError:
        return None
    if codec == 4 or (codec == 3 and magic == 0):
        return None  # what it cannot do

    def convert(data: bytes) -> bytes:
        if way == "up":
            builder = DefaultRecordBatchBuilder(2, codec, False, -1, -1, -1, 1 << 24)
        else:
            builder = LegacyRecordBatchBuilder(magic, codec, 1 << 24)
        walk, number = MemoryRecords(data), 0
        while walk.has_next():
            entry = walk.next_batch()
            assert entry.validate_crc()
            for record in entry:
                time_ms = TIME if record.timestamp is None or record.timestamp < 0 else record.timestamp
                if way == "up":
                    assert builder.append(number, time_ms, record.key, record.value, []) is not None
                else:
                    assert builder.append(record.offset, time_ms, record.key, record.value) is not None
                number += 1
        return bytes(builder.build())

    return convert


def median_seconds(works: dict[K, Callable[[], object]], rounds: int) -> dict[K, float]:
    """CPU seconds of one call of each, interleaved; a round of a work is as many calls as take some 20 ms."""
    times: dict[K, list[float]] = {name: [] for name in works}
    repeats = {}
    for name, work in works.items():
        began = time.process_time()
        work()
        repeats[name] = max(1, int(0.02 / max(1e-6, time.process_time() - began)))
    gc.disable()
    for _ in range(rounds):
        for name, work in works.items():
            began = time.process_time()
            for _ in range(repeats[name]):
                work()
            times[name].append((time.process_time() - began) / repeats[name])
    gc.enable()
    return {name: statistics.median(taken) for name, taken in times.items()}


def read_arguments(text: str | None) -> argparse.Namespace:
    """The options that both programs of this folder have."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true")
    return parser.parse_args()


def main() -> int:
    given = read_arguments(__doc__)
    records = rows(given.size, given.batch)
    payload = sum(len(record.key or b"") + len(record.value or b"") for record in records)
    table = []
    for way, magic, codec in CASES:
        if way == "up":
            data = R.encode_messages(records, magic=magic, codec=codec)
            ours: Callable[[], bytes] = partial(up, data)
        else:
            data = R.encode_batch(records, codec=codec)
            ours = partial(down, data, magic=magic)
        works = {"ours": ours}
        other = peer(way, magic, codec)
        if other is not None:
            works["kafka-python"] = partial(other, data)
        seconds = median_seconds(works, given.rounds)
        row = {"way": way, "magic": magic, "codec": R.codecs.name(codec), "bytes in": len(data), "bytes out": len(ours())}
        table.append(row | {name: payload / taken / 1e6 for name, taken in seconds.items()})

    conditions = {
        "records": len(records),
        "record bytes": given.size,
        "accelerator": accelerator.native is not None,
        "python": sys.version.split()[0],
    }
    missed = [row for row in table if row["codec"] == "none" and row["ours"] < GOAL_MB_S]
    if given.json:
        print(json.dumps({"conditions": conditions, "rows": table, "goal": GOAL_MB_S, "missed": missed}, indent=1))
    else:
        print(", ".join(f"{name} {value}" for name, value in conditions.items()))
        print(f"{'':<28}{'MB/s':>8}{'kafka-python':>14}{'bytes in':>10}{'out':>9}")
        for row in table:
            name = f"{row['way']} {'from' if row['way'] == 'up' else 'to'} magic {row['magic']}, {row['codec']}"
            other_figure = f"{row['kafka-python']:.0f}" if "kafka-python" in row else "-"
            print(f"{name:<28}{row['ours']:>8.0f}{other_figure:>14}{row['bytes in']:>10}{row['bytes out']:>9}")
        print(f"goal: {GOAL_MB_S:.0f} MB/s without compression: {'missed' if missed else 'kept'}")
    return 1 if given.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
