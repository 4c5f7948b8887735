"""Topics that are there before a client comes: Metadata v0 makes them on every release."""

from __future__ import annotations

import socket
from typing import Any

from barnabas.decoder import decode_response, encode_request
from barnabas.decoder.schema import facts
from harness.waiting import PATIENCE, NeverHappened, until
from harness.wire import with_size
from matrix.brokers import Address

METADATA = facts.api_key("Metadata")


def ask(address: Address, request: bytes) -> bytes:
    """The frame that answers this one."""
    with socket.create_connection(address, PATIENCE) as connection, connection.makefile("rb") as answers:
        connection.sendall(with_size(request))
        return answers.read(int.from_bytes(answers.read(4), "big"))


def make(address: Address, names: list[str]) -> None:
    """Return when each of these topics has leaders; TimeoutError where that takes too long."""
    request = encode_request(
        METADATA, 0, {"topics": [{"name": name} for name in names]}, correlation_id=1, client_id="matrix"
    )

    def answer() -> list[dict[str, Any]]:
        topics: list[dict[str, Any]] = decode_response(
            ask(address, request), api_key=METADATA, api_version=0
        ).to_dict()["topics"]
        return topics

    def led() -> bool:
        topics = answer()
        codes = {topic["error_code"] for topic in topics} | {p["error_code"] for t in topics for p in t["partitions"]}
        return codes == {0} and all(topic["partitions"] for topic in topics)

    try:
        until(led, answer, pause=0.1)
    except NeverHappened as reason:
        raise TimeoutError(f"no leaders for {', '.join(names)}: {reason}") from None
