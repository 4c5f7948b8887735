"""Clients throttled by a quota: throttle_time_ms in any response (KIP-13, KIP-124, KIP-219, KIP-599)."""

from __future__ import annotations

from dataclasses import dataclass, field

from ....connection.exchange import Exchange, State
from ....schema import facts
from ...engine.counters import BoundedDict
from ...engine.detector import Detector
from ...engine.finding import Severity
from ...engine.formatting import SECOND, duration, size, times
from ...engine.traffic import ClientConnection, ClientIdentity
from ...models.response_times import ResponseTimes, kept_back, throttle_ms

PRODUCE, FETCH = facts.api_key("Produce"), facts.api_key("Fetch")
MUTATIONS = facts.api_key_set("CreateTopics", "DeleteTopics", "CreatePartitions")
QUOTA_EXCEEDED = facts.error_code("THROTTLING_QUOTA_EXCEEDED")


@dataclass(slots=True)
class _Moved:
    """Bytes a client produced and fetched since it was first seen."""

    first_ns: int
    produced: int = 0
    fetched: int = 0


@dataclass(slots=True)
class _Held:
    """How a client was throttled, through one API."""

    conn: ClientConnection
    worst_ms: int = 0
    refused: int = 0
    meanwhile: int = 0
    kept_ns: int = 0
    kept_back: int = 0
    """Responses sent only after the throttle time."""
    first_ns: int = 0
    until: dict[str, int] = field(default_factory=dict)  # by broker


class Throttled(Detector):
    id = "throttled-by-quota"
    severity = Severity.MEDIUM
    title = "a client is throttled by a quota (throttle_time_ms)"

    SMALL_NS = SECOND
    """A lower total means that the client barely exceeded the quota."""

    def setup(self) -> None:
        self.response_times = self.traffic.model(ResponseTimes)
        self._moved: BoundedDict[ClientIdentity, _Moved] = BoundedDict(5000)
        self._held: BoundedDict[tuple[ClientIdentity, int], _Held] = BoundedDict(1000)

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.state is not State.PAIRED:
            return
        if exchange.api_key in (PRODUCE, FETCH):
            moved = self._moved.get(conn.identity)
            if moved is None:
                began_ns = exchange.request_time_ns or exchange.response_time_ns or 0
                moved = self._moved[conn.identity] = _Moved(began_ns)
            if exchange.api_key == PRODUCE:
                moved.produced += exchange.request_size or 0
            else:
                moved.fetched += exchange.response_size or 0
        if self._held:
            self._meanwhile(conn, exchange)
        response_time = self.response_times.response_time
        throttle = response_time.throttle_ms if response_time is not None else throttle_ms(exchange)
        refused = exchange.api_key in MUTATIONS and exchange.error == QUOTA_EXCEEDED
        if throttle > 0 or refused:
            self._throttled(conn, exchange, throttle, refused)

    def _meanwhile(self, conn: ClientConnection, exchange: Exchange) -> None:
        for kind in (PRODUCE, FETCH, -1):
            held = self._held.get((conn.identity, kind))
            asked_ns = exchange.request_time_ns or 0
            if (
                held is not None
                and held.until.get(conn.broker, 0) - asked_ns > SECOND // 50
                and asked_ns > held.first_ns
            ):
                held.meanwhile += 1
                return

    def _throttled(self, conn: ClientConnection, exchange: Exchange, throttle: int, refused: bool) -> None:
        time_ns = exchange.response_time_ns or 0
        kind = exchange.api_key if exchange.api_key in (PRODUCE, FETCH) else -1
        key = conn.identity, kind
        held = self._held.of(key, lambda: _Held(conn, first_ns=time_ns))
        covered = held.until.get(conn.broker, 0)
        if throttle > 0 and kept_back(conn, exchange, throttle):
            began, until = time_ns - throttle * 1_000_000, time_ns
            held.kept_back += 1
        else:
            began, until = time_ns, time_ns + throttle * 1_000_000
        held.kept_ns += max(0, until - max(began, covered))
        held.until[conn.broker] = max(covered, until)
        held.worst_ms = max(held.worst_ms, throttle)
        held.refused += refused
        quota = (
            "producer_byte_rate"
            if kind == PRODUCE
            else "consumer_byte_rate"
            if kind == FETCH
            else "controller_mutation_rate"
            if exchange.api_key in MUTATIONS
            else "request_percentage"
        )
        self.report(
            key,
            exchange,
            "",
            "show the quotas: kafka-configs.sh --describe --entity-type clients (and users); raise one: "
            f"kafka-configs.sh --alter --entity-type clients --entity-name {conn.client_id or '...'} --add-config "
            f"{quota}=...; or send less: use compression.type=zstd with linger.ms=20 and a bigger batch.size, send "
            "smaller records, and do not let several clients share an id and its quota",
            quota=quota,
        )

    def finish(self, now_ns: int) -> None:
        for key, held in self._held.items():
            finding = self._found[key]
            api = finding.about["api"]
            finding.why = self._why(held.conn, key[1], finding.about["quota"], held.kept_back > 0)
            finding.severity = Severity.LOW if held.kept_ns < self.SMALL_NS and not held.refused else Severity.MEDIUM
            finding.about |= {"throttled_ms": held.kept_ns // 1_000_000, "worst_ms": held.worst_ms}
            text = (
                f"{held.conn.who} is throttled by {held.conn.where}: {api} responses carried throttle_time_ms "
                f"{times(finding.count)}, {duration(held.kept_ns)} in total, up to {duration(held.worst_ms * 1e6)} "
                "at once"
            )
            moved = self._moved.get(key[0])
            if moved is not None and key[1] in (PRODUCE, FETCH):
                count = moved.produced if key[1] == PRODUCE else moved.fetched
                rate = count * SECOND / max((finding.last_ns or now_ns) - moved.first_ns, SECOND)
                text += f"; it {'sent' if key[1] == PRODUCE else 'got'} {size(rate)}/s meanwhile"
                finding.about["bytes_per_second"] = round(rate)
            if held.refused:
                text += f"; {times(held.refused)} with THROTTLING_QUOTA_EXCEEDED"
            if held.meanwhile:
                text += f"; it kept sending before the throttle time was over {times(held.meanwhile)}"
            finding.seen = text

    @staticmethod
    def _why(conn: ClientConnection, kind: int, quota: str, kept_back: bool) -> str:
        whose = f"client id {conn.client_id!r}" if conn.client_id else "clients without a client id"
        return (
            f"the quota {quota} of the user or of {whose} is used up{' (or request_percentage)' if kind in (PRODUCE, FETCH) else ''}. "
            + (
                "The broker, older than Kafka 2.0, holds its responses until the throttle time is over (KIP-13); "
                if kept_back
                else (
                    "The broker answers at once and then does not read from the connection until the throttle time is "
                    "over (KIP-219); "
                )
            )
            + "records queue up in the client until buffer.memory, delivery.timeout.ms or max.poll.interval.ms is reached."
        )
