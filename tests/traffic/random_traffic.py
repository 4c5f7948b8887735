"""Random traffic as a recorder gets it: many APIs at all their versions, pipelined, cut anywhere, and now and then
something that is not plain. The same seed gives the same traffic."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

from barnabas import decoder
from barnabas.captures import Recorder
from barnabas.decoder.records import Record, encode_batch
from barnabas.decoder.schema import facts
from harness.wire import with_size

START = 1_795_223_022_000_000_000
USUAL = ("Produce", "Fetch", "Metadata", "Heartbeat", "OffsetCommit", "OffsetFetch", "FindCoordinator", "JoinGroup",
         "SyncGroup", "ListOffsets", "DescribeGroups", "EndTxn")  # fmt: skip
RARE = ("ApiVersions", "SaslHandshake", "SaslAuthenticate", "CreateDelegationToken", "IncrementalAlterConfigs",
        "AlterUserScramCredentials", "ControlledShutdown", "CreateTopics")  # fmt: skip
SECRET = b"canary-5d1f"


class Peer:
    """One connection: what was asked and not answered yet, and bytes that were not sent yet, by direction."""

    def __init__(self, number: int, client_id: str | None) -> None:
        self.number, self.client_id = number, client_id
        self.asked: deque[tuple[int, int, int]] = deque()
        self.unsent = [b"", b""]
        self.next_id = 0


class MixedTraffic:
    """`run(recorder)` records it. `odd`: how often something happens that is not plain, 0 to 1."""

    def __init__(self, seed: int, steps: int, odd: float = 0.05, large: float = 0.01) -> None:
        self.random = random.Random(seed)
        self.steps, self.odd, self.large = steps, odd, large
        self.time_ns = START
        self.peers: list[Peer] = []
        self.numbers = 0

    def run(self, recorder: Recorder) -> None:
        chance = self.random.random
        while len(self.peers) < 4:
            self._open(recorder)
        for _ in range(self.steps):
            peer = self.random.choice(self.peers)
            if chance() < 0.6 and len(peer.asked) < 30:
                self._ask(peer)
            else:
                self._answer(peer)
            if chance() < self.odd:
                self._something(recorder, peer)
            if chance() < 0.5:
                self._send(recorder, peer)

    def _open(self, recorder: Recorder) -> None:
        self.numbers += 1
        peer = Peer(self.numbers, self.random.choice(("stock-1", "länge-2", "", None)))
        self.peers.append(peer)
        host = self.random.choice(("10.0.0.1", "::1"))
        recorder.opened(peer.number, self._now(), (host, 1000 + peer.number), ("10.0.0.9", 9092))

    def _now(self) -> int:
        self.time_ns += self.random.randrange(1_000_000)
        return self.time_ns

    def _ask(self, peer: Peer) -> None:
        pick = self.random
        name = pick.choice(USUAL if pick.random() > self.odd else RARE)
        key = facts.api_key(name)
        version = pick.choice(list(facts.api(key).versions.every()))
        client_id = peer.client_id if pick.random() < 0.95 else f"other-{pick.randrange(3)}"
        frame = decoder.encode_request(
            key, version, self._fields(name), correlation_id=peer.next_id, client_id=client_id
        )
        silent = name == "Produce" and decoder.decode_request(frame)["acks"] == 0
        if pick.random() < self.odd / 3:
            frame = pick.choice((frame + b"behind", frame[: len(frame) // 2 + 5]))
        elif name not in RARE and pick.random() < self.odd / 3:
            frame = b"\x7f\x01" + frame[2:]  # an API that nobody knows: nobody knows its secrets
        peer.unsent[0] += with_size(frame)
        if not silent:
            peer.asked.append((key, version, peer.next_id))
        peer.next_id += 1

    def _fields(self, name: str) -> dict[str, Any]:
        pick = self.random
        size = pick.randrange(300_000) if pick.random() < self.large else pick.randrange(2000)
        match name:
            case "Produce":
                records = bytes(encode_batch([Record(0, 1, None, pick.randbytes(size))]))
                partition = {"index": 0, "records": records}
                topics = [{"partition_data": [partition]}]
                return {"acks": pick.choice((0, 1, -1, -1, -1)), "timeout_ms": 5, "topic_data": topics}
            case "Heartbeat":
                return {"group_id": "g" * (size % 900), "generation_id": 1, "member_id": "m"}
            case "SaslAuthenticate":
                return {"auth_bytes": SECRET}
            case "SaslHandshake":
                return {"mechanism": "PLAIN"}
        return {}

    def _answer(self, peer: Peer) -> None:
        if not peer.asked:
            return
        pick = self.random
        at = 0 if pick.random() > self.odd / 4 else pick.randrange(len(peer.asked))
        for _ in range(at + 1):
            key, version, number = peer.asked.popleft()
        name, error = facts.api_name(key), pick.choice((0, 0, 0, 3, 27, -1))
        fields: dict[str, Any] = {}
        match name:
            case "Produce":
                partitions = [{"index": n, "error_code": error if n == 1 else 0, "base_offset": 1} for n in range(3)]
                fields = {"responses": [{"partition_responses": partitions}]}
            case "Fetch":
                records = pick.randbytes(pick.randrange(200_000 if pick.random() < self.large else 500))
                topic: dict[str, Any] = {"partitions": [{"error_code": error, "records": records}]}
                fields = {"responses": [topic]}
            case "Metadata":
                fields = {"topics": [{"name": "orders", "error_code": error, "partitions": [{"error_code": 5}]}]}
            case "SaslAuthenticate":
                fields = {"auth_bytes": SECRET}
            case "Heartbeat" | "JoinGroup" | "SyncGroup" | "EndTxn":
                fields = {"error_code": error}
        frame = decoder.encode_response(key, version, fields, correlation_id=number)
        if pick.random() < self.odd / 3:
            frame = pick.choice((frame + b"!", frame[:-1], (number + (1 << 30)).to_bytes(4, "big") + frame[4:]))
        peer.unsent[1] += with_size(frame)

    def _send(self, recorder: Recorder, peer: Peer) -> None:
        for direction in (0, 1):
            # What was asked goes first: a response must not overtake its request.
            data = peer.unsent[direction]
            whole = direction == 0 or self.random.random() < 0.5
            end = len(data) if whole else self.random.randrange(len(data) + 1)
            if direction == 0 and self.random.random() < 0.3:
                cut = self.random.randrange(len(data) + 1)
                recorder.data(peer.number, 0, self._now(), data[:cut])
                data, end = data[cut:], end - cut
            recorder.data(peer.number, direction, self._now(), memoryview(data)[:end])
            peer.unsent[direction] = data[end:]

    def _something(self, recorder: Recorder, peer: Peer) -> None:
        pick = self.random
        waiting = peer.asked[-1][2] if peer.asked else 0
        match pick.randrange(8):
            case 0 | 1:
                recorder.note(peer.number, waiting, "leader moved")
            case 2:
                self._send(recorder, peer)
                frame = decoder.encode_response(3, 1, {}, correlation_id=waiting)
                recorder.broker_leg(peer.number, 1, self._now(), with_size(frame), "addresses")
            case 3 if not peer.unsent[1]:
                recorder.lost(peer.number, 1, pick.randrange(1, 5000))
            case 4:
                recorder.flush()
            case 5 if pick.random() < 0.3:
                recorder.rotate()
            case 6 if pick.random() < 0.2:
                recorder.data(peer.number, 0, self._now(), peer.unsent[0] + b"\xff\xff\xff\xff garbage")
                peer.unsent[0] = b""
            case 7 if pick.random() < 0.5:
                recorder.closed(peer.number, self._now(), pick.choice(("fin", "rst")), pick.choice(("client", "")))
                self.peers.remove(peer)
                self._open(recorder)
