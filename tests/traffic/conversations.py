"""Connections built request by request and passed to the detectors, with their own clock.

For traffic that no recording has: every version of an API, addresses and faults that a real broker does not send.
"""

from __future__ import annotations

from typing import Any

from barnabas import decoder
from barnabas.decoder import Exchange
from barnabas.decoder.connection.connection import Event, ExchangeDone, Opaque
from barnabas.decoder.connection.events import Closed, NonKafkaData, Opened
from barnabas.decoder.findings import Finding, Inspector
from barnabas.decoder.schema import facts
from harness.wire import with_size

SECOND = 1_000_000_000
BROKER = "10.0.0.1:9092"


class Conversations:
    """Connections of one client with a broker, passed to the detectors named (all by default).

    `now` is the time of what happens next; only `wait` and the tests move it.
    """

    def __init__(self, *ids: str, client: str = "10.0.0.5", broker: str = BROKER) -> None:
        self.inspector = Inspector(ids or None)
        self.client, self.broker = client, broker
        self.now = 1_000 * SECOND
        self.exchanges: list[Exchange] = []
        """All that are done."""
        self._number = self._correlation_id = 0

    def wait(self, seconds: float) -> None:
        self.now += int(seconds * SECOND)

    def open(self, broker: str = "", established: bool = True) -> decoder.Connection:
        """A new connection, to another broker if so."""
        self._number += 1
        connection = decoder.Connection(self._number, f"{self.client}:{40000 + self._number}", broker or self.broker)
        self.inspector.feed(Opened(self._number, connection.client, connection.broker, self.now, established))
        return connection

    def ask(
        self,
        connection: decoder.Connection,
        api: str,
        version: int,
        body: dict[str, Any],
        answer: dict[str, Any] | bytes | None,
        took: float = 0.001,
        client_id: str | None = "shop",
    ) -> None:
        """A request and its response (the frame without its size, if bytes), `took` s later; None: it has none yet."""
        self._correlation_id += 1
        key, number = facts.api_key(api), self._correlation_id
        request = decoder.encode_request(key, version, body, correlation_id=number, client_id=client_id)
        self.sent(connection, with_size(request))
        if isinstance(answer, dict):
            answer = decoder.encode_response(key, version, answer, correlation_id=number)
        elif answer is not None:
            answer = number.to_bytes(4, "big") + answer[4:]
        if answer is not None:
            self.received(connection, with_size(answer), took)

    def sent(self, connection: decoder.Connection, data: bytes) -> None:
        """Bytes of the client."""
        self._feed(connection.number, connection.receive_from_client(data, self.now))

    def received(self, connection: decoder.Connection, data: bytes, after: float = 0.0) -> None:
        """Bytes of the broker."""
        self._feed(connection.number, connection.receive_from_broker(data, self.now + int(after * SECOND)))

    def close(self, connection: decoder.Connection, how: str = "fin", by: str = "client") -> None:
        self._feed(connection.number, connection.close(self.now))
        self.inspector.feed(Closed(connection.number, self.now, how, by))

    def _feed(self, number: int, events: list[Event]) -> None:
        for event in events:
            self.inspector.feed(NonKafkaData(number, event) if isinstance(event, Opaque) else event)
            if isinstance(event, ExchangeDone):
                self.exchanges.append(event.exchange)

    def findings(self) -> list[Finding]:
        return self.inspector.findings()
