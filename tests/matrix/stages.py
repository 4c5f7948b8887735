"""What every client program does, in whatever language: PROGRAM BOOTSTRAP RUN, and one line of JSON at the end (the last one counts).

The topics RUN-orders and RUN-booked exist, with two partitions each. Four stages, each tried whatever became of the
others:

- `group`: ten records "plain 0" to "plain 9" to RUN-orders, a member of RUN-group reads and commits them; ten more, "gzip 0"
  to "gzip 9", compressed; another member of the group must go on with exactly these.
  {"first": [...], "second": [...], "committed": [10, 20]}, sorted; without `committed` where the client cannot ask;
  `ends` of both partitions where it can do only that.
- `defaults`: "default" to partition 1 of RUN-booked, by a producer that has the library's own settings, which a client may
  derive from the versions that the broker offers. {"sent": 1}; left out where `group` has these settings already
- `transactions`: "booked 0" to "booked 2" to partition 0 of RUN-booked in a transaction, with offset 7 of RUN-orders'
  partition 0 for RUN-ledger where the client can; "dropped" in one that is aborted; "end" in a third.
  {"committed": what read_committed gives until "end", "offset": 7}
- `admin`: RUN-made is created with three partitions and retention.ms=3600000, looked at and deleted.
  {"partitions": 3, "retention": "3600000", "deleted": true}, without what the client has no call for. Its settings are
  asked for once its metadata is there: with KRaft both appear a moment after the answer.

A stage that fails gives {"error": a name, "text": what the client said}; one that the client does not have is left out.
`client` is the library with its version. Idempotence is off in `group`: brokers before 0.11 do not have it.

BARNABAS_TEST_PATIENCE: the seconds that a stage may wait for something, in every language.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

Stage = Callable[[str, str], dict[str, Any]]
PLAIN = [f"plain {number}" for number in range(10)]
GZIP = [f"gzip {number}" for number in range(10)]
BOOKED = ["booked 0", "booked 1", "booked 2", "end"]
EXPECTED: dict[str, dict[str, Any]] = {
    "group": {"first": PLAIN, "second": GZIP, "committed": [10, 20], "ends": [10, 10]},
    "defaults": {"sent": 1},
    "transactions": {"committed": BOOKED, "offset": 7},
    "admin": {"partitions": 3, "retention": "3600000", "deleted": True},
}


def reached(stage: str, outcome: dict[str, Any]) -> bool:
    """Whether that is what the stage must give, as far as this client can say."""
    return bool(outcome) and all(EXPECTED[stage].get(key) == value for key, value in outcome.items())


def main(client: str, **stages: Stage) -> None:
    """Run a Python client's stages."""
    bootstrap, run = sys.argv[1:3]
    outcomes: dict[str, Any] = {"client": client}
    for name, stage in stages.items():
        try:
            outcomes[name] = stage(bootstrap, run)
        except Exception as error:
            outcomes[name] = {"error": name_of(error), "text": str(error)}
    print(json.dumps(outcomes), flush=True)


def name_of(error: Exception) -> str:
    """The error's own name: Kafka's code where the client keeps one."""
    inner = error.args[0] if error.args else None
    code = getattr(inner, "name", None)
    return str(code()) if callable(code) else type(error).__name__
