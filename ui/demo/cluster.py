"""Three mock brokers out of librdkafka, in a process of their own.

    python -m barnabas.ui.demo.cluster BROKERS

prints one line of JSON, ``{"bootstrap": "127.0.0.1:PORT", "brokers": [...]}``, and serves until its standard input is closed,
which also happens when the process that started it dies.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def serve(brokers: int) -> None:
    """Serve until standard input ends."""
    from confluent_kafka import Producer

    owner: Any = Producer(
        {
            "bootstrap.servers": "127.0.0.1:1",  # ignored once mock brokers are asked for
            "test.mock.num.brokers": brokers,
            "log_level": 2,
        }
    )
    found = owner.list_topics(timeout=20).brokers.values()
    addresses = sorted(f"{b.host}:{b.port}" for b in found)
    print(json.dumps({"bootstrap": addresses[0], "brokers": addresses}), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    serve(int(sys.argv[1]))
