"""Old versions that still work: removed in the next upgrade, costly, or far behind; and compression that is off."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache

from ....codec.message_view import lists_at
from ....connection.exchange import Exchange, State
from ....reference import releases
from ....schema import facts
from ....schema.plan import API_VERSIONS
from ...engine.counters import BoundedDict, Tally
from ...engine.detector import Detector
from ...engine.finding import Severity
from ...engine.formatting import several
from ...engine.traffic import ClientConnection
from ...models.offered_versions import (
    FETCH,
    PRODUCE,
    OfferedVersions,
    Table,
    brokers_version,
    refused,
    removal,
    since,
    version_range,
)

_MAGIC_AT = 16
_ATTRIBUTES_AT = 22  # the low byte of a batch's attributes
_CODEC = 0x07
_RECORDS = {PRODUCE: ("topic_data.partition_data.records",), FETCH: ("responses.partitions.records",)}
_MAGIC_2 = {PRODUCE: 3, FETCH: 4}  # the first version with record batches (KIP-98)


def areas(exchange: Exchange) -> list[bytes]:
    """The records of a Produce request, or of a Fetch response, of each partition that has some."""
    message = exchange.request_view if exchange.api_key == PRODUCE else exchange.response_view
    if message is None:
        return []
    found = lists_at(message, *_RECORDS[exchange.api_key])[0]
    return [bytes(area) for area in found if area is not None and len(area) > _ATTRIBUTES_AT]


TARGET = "4.0"


@lru_cache(1024)
def _dropped(api_key: int, version: int) -> bool:
    """Dropped in 4.0 and not taken up again later (as JoinGroup v0 was in 4.1), of an API that is still there."""
    gone = removal(api_key, version)
    return gone is not None and gone.release == TARGET and releases.release(TARGET).served(api_key) is not None


@dataclass(slots=True)
class _Client:
    """What a client uses: `counts` by (api key, version), and the table of the broker that it last used for something new."""

    conn: ClientConnection
    counts: Counter[tuple[int, int]] = field(default_factory=Counter)
    table: Table | None = None


class RemovedVersions(Detector):
    id = "removed-in-kafka-4"
    severity = Severity.MEDIUM
    title = "a client uses versions that Kafka 4.0 dropped (KIP-896)"

    def setup(self) -> None:
        self._offers = self.traffic.model(OfferedVersions)
        self._counts: BoundedDict[object, Counter[tuple[int, int]]] = BoundedDict()

    @classmethod
    def concerns(cls, api_key: int, version: int) -> bool:
        return _dropped(api_key, version)

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        at = exchange.api_key, exchange.api_version
        if exchange.state is not State.PAIRED or refused(exchange):
            return
        if not _dropped(exchange.api_key, brokers_version(exchange)):
            return  # the broker never got it: a proxy translated it
        counts = self._counts.of(conn.identity, Counter)
        counts[at] += 1
        finding = self.report(conn.identity, exchange, "", "", facts=conn.facts)
        table = self._offers.of(conn)
        # The cause: a client that stays below the offer, or a broker that offers no more.
        stays = [at for at in counts if table is not None and self._could(table, *at)]
        used = ", ".join(f"{facts.api_name(k)} v{v}" for k, v in sorted(counts)[:6])
        more = f" and {len(counts) - 6} more" if len(counts) > 6 else ""
        finding.about["versions"] = [[facts.api_name(k), v] for k, v in sorted(counts)]
        finding.seen = (
            f"{conn.who} sent {several(finding.count, 'request')} in versions that Kafka {TARGET} dropped: "
            f"{used}{more}; {conn.where} still accepts them"
        )
        finding.severity = Severity.MEDIUM if stays else Severity.INFO
        broken = "Kafka 4.0 removed the oldest versions (KIP-896); a 4.x broker closes the connection on them."
        if stays:
            key, version = sorted(stays)[0]
            assert table is not None
            finding.why = (
                f"{broken} This broker already offers more ({facts.api_name(key)} {version_range(table.get(key))}), "
                f"but the client stays at v{version}: it works here, but will stop working after the upgrade."
            )
            finding.remedy = (
                "before brokers go to 4.x, upgrade the client (Java: 2.1 or newer), or let it negotiate: kafka-python "
                "without api_version, librdkafka without broker.version.fallback and api.version.request=false, "
                "sarama with Config.Version of 2.1 or more"
            )
        else:
            finding.why = (
                f"{broken} The newer versions that this broker offers were not seen, or it is itself too old to offer any."
            )
            finding.remedy = (
                "first upgrade the brokers to 2.1 or newer, so that clients can use newer versions; upgrade to 4.x "
                "last"
            )

    def _could(self, table: Table, api_key: int, version: int) -> bool:
        """Whether broker and Kafka 4.0 have a version in common: then the client could use it."""
        ours, theirs = table.get(api_key), releases.release(TARGET).served(api_key)
        return ours is not None and theirs is not None and ours[1] >= theirs[0] > version


class OldRecordFormat(Detector):
    id = "old-record-format"
    severity = Severity.LOW
    title = "records are sent in the formats before Kafka 0.11 (magic 0 and 1), and the broker converts them"
    apis = frozenset({PRODUCE, FETCH})

    ENOUGH = 5
    """Messages with old records: one or two may be a tool."""

    def setup(self) -> None:
        self._offers = self.traffic.model(OfferedVersions)
        self._tallies: BoundedDict[object, Tally] = BoundedDict()

    @classmethod
    def concerns(cls, api_key: int, version: int) -> bool:
        return version < _MAGIC_2[api_key]

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        newest = max(exchange.api_version, brokers_version(exchange))
        if newest >= _MAGIC_2[exchange.api_key] or exchange.state is State.NO_RESPONSE:
            return  # or it is a proxy that converts
        table = self._offers.of(conn)
        if table is None or table.get(exchange.api_key, (0, 0))[1] < _MAGIC_2[exchange.api_key]:
            return  # an old broker stores what it gets
        old = [area for area in areas(exchange) if area[_MAGIC_AT] < 2]
        if not old or exchange.error:
            return
        key = conn.identity, exchange.api_key
        tally = self._tallies.of(key, Tally)
        tally.add(0, sum(map(len, old)))
        if tally.count < self.ENOUGH:
            return
        magic = old[0][_MAGIC_AT]
        reads = exchange.api_key == FETCH
        finding = self.report(
            key,
            exchange,
            "the broker stores record batches (magic 2, KIP-98) and must unpack, rewrite and recompress everything "
            + ("for this consumer; it cannot send them from the page cache. " if reads else "that it receives. ")
            + "Headers, idempotence and transactions do not exist in these formats, and Kafka 4.0 no longer converts "
              "them (KIP-896, KIP-724).",
            f"let the client use {exchange.api} v{_MAGIC_2[exchange.api_key]} or newer: upgrade it, or remove "
            "api_version (kafka-python), broker.version.fallback (librdkafka), Config.Version (sarama)",
            magic=magic,
        )
        finding.count = tally.count
        finding.about["bytes"] = tally.size
        finding.seen = (
            f"{conn.who} {'was sent' if reads else 'sent'} records of magic {magic} in {tally.count} {exchange.api} "
            f"v{exchange.api_version} {'responses' if reads else 'requests'} ({tally.size} bytes); {conn.where} offers "
            f"{version_range(table.get(exchange.api_key))}"
        )


class FarBehind(Detector):
    id = "client-far-behind"
    severity = Severity.INFO
    title = "a client uses no versions introduced in its broker's latest releases"
    why = (
        "the client works, but does not get the benefits of later versions: fewer bytes, faster recovery when leaders "
        "move, clearer errors. Future releases will drop the oldest versions first (KIP-896)."
    )
    remedy = (
        "upgrade the client library; if it is already new, check whether it is configured with an old broker version "
        "(api_version, broker.version.fallback, Config.Version)"
    )

    RELEASES = 6
    """Two years of Kafka's releases, of which there are three a year."""
    APIS = 3
    """Different APIs that the judgement rests on, and requests in all."""
    REQUESTS = 8

    def setup(self) -> None:
        self._offers = self.traffic.model(OfferedVersions)
        self._clients: BoundedDict[object, _Client] = BoundedDict()

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.api_key == API_VERSIONS or exchange.state is not State.PAIRED:
            return
        client = self._clients.get(conn.identity)
        if client is None:
            client = self._clients[conn.identity] = _Client(conn)
        kind = exchange.api_key, exchange.api_version
        known = client.counts.get(kind, 0)
        if not known and since(*kind) is None:
            return
        client.counts[kind] = known + 1
        if not known or client.table is None:
            client.table = self._offers.of(conn) or client.table

    def finish(self, now_ns: int) -> None:
        order: dict[str, int] = {}
        for identity, client in self._clients.items():
            table = client.table
            if table is None or client.counts.total() < self.REQUESTS:
                continue
            used: dict[int, int] = {}
            for key, version in client.counts:
                used[key] = max(version, used.get(key, 0))
            if len(used) < self.APIS:
                continue
            order = order or {name: number for number, name in enumerate(releases.releases())}
            brought_by = [since(key, version) for key, version in used.items() if key in table]
            could = [since(key, table[key][1]) for key in used if key in table]
            known = [name for name in brought_by if name in order]
            most = max((order[name] for name in could if name in order), default=0)
            if not known or len(known) < len(brought_by) or most - max(order[n] for n in known) < self.RELEASES:
                self._found.pop(identity, None)
                continue
            level = max(known, key=order.__getitem__)
            if identity not in self._found:
                self._state(identity, client, table, used, level, list(order)[most])

    def _state(
        self, identity: object, client: _Client, table: Table, used: dict[int, int], level: str, newest: str
    ) -> None:
        conn = client.conn
        behind = [k for k in sorted(used) if k in table and table[k][1] > used[k]]
        shown = ", ".join(f"{facts.api_name(k)} v{used[k]} of {table[k][1]}" for k in behind[:4])
        self.report(
            identity,
            None,
            seen=f"{conn.who} uses no versions newer than those of Kafka {level}; {conn.where} offers versions up to "
                 f"those of {newest}: {shown}",
            time_ns=conn.last_ns,
            level=level,
            broker_level=newest,
            used={facts.api_name(k): v for k, v in sorted(used.items())},
            **conn.facts
        )
        self._found[identity].count = client.counts.total()


class CompressionOff(Detector):
    """librdkafka before 2.11.1 does not compress with gzip, snappy or lz4 where Produce v0 is not offered.

    It looks for Produce v0 in the ApiVersions answer before it uses those codecs (librdkafka #4956), and sends the
    batch as it is when that is missing; Kafka 4 therefore names v0 without serving it (KAFKA-18659). What is
    configured does not travel. What does: the answer, the client's version, and batches that are not compressed.
    """

    id = "compression-off"
    severity = Severity.LOW
    title = "an old librdkafka cannot compress because the broker's Produce range does not begin at 0"
    why = (
        "before it uses gzip, snappy or lz4, librdkafka up to 2.11.0 looks for Produce v0 in the versions that the "
        "broker offers (its issue 4956), and if v0 is missing, it sends uncompressed batches regardless of "
        "compression.type; only its log shows this. Kafka 4 lists v0 for this reason alone (KAFKA-18659); something "
        "that edits ApiVersions, or another kind of broker, does not."
    )
    remedy = (
        "upgrade librdkafka to 2.11.1 or newer (confluent-kafka 2.11.1), or set compression.type=zstd, which is not "
        "affected. A proxy that edits ApiVersions should leave Produce's minimum at 0. If no compression is "
        "configured, nothing is wrong"
    )
    apis = frozenset({PRODUCE})

    FIXED = (2, 11, 1)
    """Seen with the libraries themselves: 2.8.0, 2.10.1 and 2.11.0 do it, 2.11.1, 2.12.0, 2.13.0 and 2.16.0 do not."""
    REQUESTS = 5
    BYTES = 4096
    """Uncompressed, so much that compression would have had something to save."""

    def setup(self) -> None:
        self._offers = self.traffic.model(OfferedVersions)
        # By client: requests and bytes not compressed here, and whether it compresses where v0 is offered.
        self._tallies: BoundedDict[object, Tally] = BoundedDict()
        self._compresses: BoundedDict[object, bool] = BoundedDict()

    @staticmethod
    @lru_cache(1024)
    def _concerned(software: str) -> bool:
        version = re.search(r"rdkafka[- ]v?(\d+)\.(\d+)\.(\d+)", software)
        return version is not None and tuple(map(int, version.groups())) < CompressionOff.FIXED

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if not self._concerned(conn.software):
            return
        table = OfferedVersions.of_connection(conn)
        if table is None or PRODUCE not in table:
            return
        found = [a for a in areas(exchange) if a[_MAGIC_AT] == 2]
        plain = [a for a in found if not a[_ATTRIBUTES_AT] & _CODEC]
        client = conn.identity
        if table[PRODUCE][0] == 0:
            if len(plain) < len(found):
                self._compresses[client] = True
            return
        if not plain:
            return
        tally = self._tallies.of(client, Tally)
        tally.add(0, sum(map(len, plain)))
        if tally.count < self.REQUESTS or tally.size < self.BYTES:
            return
        elsewhere = client in self._compresses
        finding = self.report(conn.identity, exchange, offered=table[PRODUCE])
        finding.count = tally.count
        finding.about |= {"uncompressed_bytes": tally.size, "compresses_elsewhere": elsewhere}
        finding.severity = Severity.MEDIUM if elsewhere else Severity.LOW
        finding.seen = (
            f"{conn.who} sent {tally.count} Produce requests without compression ({tally.size} bytes) to "
            f"{conn.where}, which offers Produce {version_range(table[PRODUCE])}: with this range, the client cannot "
            f"use gzip, snappy or lz4{'; where v0 is offered, it compresses' if elsewhere else ''}"
        )
