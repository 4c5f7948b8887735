"""How fast whole exchanges are translated: an old client's Produce request, and the response to its Fetch request.

    python bench/translation/exchanges.py [--size 1024] [--batch 100000] [--rounds 15] [--json] [--check]

MB/s of keys and values on one core, CPU time, medians: frame in, frame out, through `Translator` (decode, convert the
records, encode), as the proxy does it for clients of 0.9 and 0.10 in front of 4.3. `--check` ends with status 1 where a
goal is missed: 50 MB/s without compression.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

from barnabas import decoder
from barnabas.decoder import records as R
from barnabas.decoder.native import accelerator
from barnabas.decoder.reference import releases
from barnabas.decoder.schema import facts
from barnabas.plugins.translation import Translated, Translator, served_by
from run import GOAL_MB_S, median_seconds, read_arguments, rows

PRODUCE, FETCH = facts.api_key("Produce"), facts.api_key("Fetch")
ASKED_AT = {0: 1, 1: 2}
"""The version at which clients of each magic produce and fetch."""


def produce(translator: Translator, made: list[R.Record], magic: int, codec: int) -> Callable[[], object]:
    """An old client's request."""
    data = R.encode_messages(made, magic=magic, codec=codec)
    topics = [{"name": "t", "partition_data": [{"index": 0, "records": data}]}]
    fields = {"acks": -1, "timeout_ms": 1000, "topic_data": topics}
    frame = decoder.encode_request(PRODUCE, ASKED_AT[magic], fields, client_id="old")
    return lambda: translator.request(frame)


def fetch(translator: Translator, made: list[R.Record], magic: int, codec: int) -> Callable[[], object]:
    """The broker's response."""
    asked = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]
    fields = {"replica_id": -1, "max_wait_ms": 1, "min_bytes": 1, "topics": [{"topic": "t", "partitions": asked}]}
    found = translator.request(decoder.encode_request(FETCH, ASKED_AT[magic], fields))
    assert isinstance(found, Translated)
    data = R.encode_batch(made, codec=codec)
    part = {"partition_index": 0, "high_watermark": len(made), "aborted_transactions": None, "records": data}
    response = decoder.encode_response(FETCH, 4, {"responses": [{"topic": "t", "partitions": [part]}]})
    return lambda: translator.response(found, [response])


def main() -> int:
    given = read_arguments(__doc__)
    made = rows(given.size, given.batch)
    size = sum(len(r.key or b"") + len(r.value or b"") for r in made)
    translator = Translator(served_by(releases.release("4.3").offered))
    cases = {
        (what.__name__, magic, codec): what(translator, made, magic, codec)
        for what, last in ((produce, 4), (fetch, 5))
        for magic in (1, 0)
        for codec in range(last)
    }
    found = {case: size / taken / 1e6 for case, taken in median_seconds(cases, given.rounds).items()}
    if given.json:
        rates = [{"what": w, "magic": m, "codec": R.codecs.name(c), "mb_s": rate} for (w, m, c), rate in found.items()]
        print(json.dumps({"accelerator": accelerator.native is not None, "rates": rates}))
    else:
        print(f"{len(made)} records, {size} bytes; {'with' if accelerator.native else 'without'} the accelerator")
        for (what, magic, codec), rate in found.items():
            print(f"{what:<8} message format {magic}  {R.codecs.name(codec):<7} {rate:7.0f} MB/s")
    missed = [case for case, rate in found.items() if not case[2] and rate < GOAL_MB_S]
    return 1 if given.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
