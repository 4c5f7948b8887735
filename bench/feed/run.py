"""The live feed and the meter: rates, losses, and what they cost.

    python bench/feed/run.py [--seconds 4] [--rates 5000,50000,...] [--exchanges 2000,...] [--json]

First the feed alone: a sender of one exchange and a subscriber, in a process each, at several rates and
datagram sizes. Then the meter as a whole: what it does with exchanges of several kinds, per exchange and at most.
Last, a proxy with and without a meter under a paced client: latency, CPU, losses. CPU is of one core.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from barnabas import decoder
from barnabas.captures.recording.index import RECORD
from barnabas.decoder import Exchange, State
from barnabas.proxy import Proxy, ProxyConfig
from barnabas.proxy.metrics.feed import layout as feed_layout
from barnabas.proxy.metrics.feed.client import Batch, FeedReader, Joined, Missed, Totals, listen, subscribe
from barnabas.proxy.metrics.feed.layout import Totals as SentTotals
from barnabas.proxy.metrics.feed.sender import FeedSender, FeedServer
from barnabas.proxy.metrics.meter import TrafficMeter
from barnabas.proxy.metrics.registry import Metrics
from barnabas.proxy.metrics.settings import SEND_BYTES, MeterConfig
from barnabas.proxy.observers.ring_feed import ConnectionEnds
from barnabas.proxy.observers.traffic_decoder import TrafficDecoder

TOKEN = "bench"
Address = tuple[str, int]


def cpu(pid: int) -> float:
    """Seconds of processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# --- the feed alone --------------------------------------------------------------------------------------------


def send(sock: socket.socket, rate: int, seconds: float, datagram: int, answers: Any) -> None:
    """A sender of one exchange, again and again; puts (sent, CPU)."""
    _, request, response = next(kinds())
    exchange = Exchange(
        connection=1, client="10.0.0.1:50000", broker="10.0.0.2:9092", api_key=12, api_version=4, correlation_id=0, client_id="stock-1",
        request=request, request_time_ns=1, response=response, response_time_ns=3, state=State.PAIRED,
    )  # fmt: skip

    async def run() -> None:
        sender = FeedSender(TOKEN, time.time_ns(), datagram=datagram)
        server = FeedServer(sender, time.monotonic, time.time_ns)
        await server.start(sock)
        while not sender.subscribers:
            await asyncio.sleep(0.01)
        started, used, sent = time.monotonic(), time.process_time(), 0
        while (passed := time.monotonic() - started) < seconds:
            now = time.monotonic()
            for _ in range(int(passed * rate) - sent):
                sender.add(exchange, 0, now, time.time_ns())
                sent += 1
            if sender.due(now):
                sender.flush(time.time_ns())
            server.kick()
            await asyncio.sleep(0.005)
        used = time.process_time() - used
        sender.totals(SentTotals(exchanges=sent), time.monotonic(), time.time_ns())
        await server.stop()
        answers.put((sent, used / seconds))

    asyncio.run(run())


def receive(where: Address, kind: str, answers: Any) -> None:
    """A subscriber that unpacks every record; puts (records, missed, CPU)."""
    counts = [0, 0]
    used = 0.0

    def take(event: Any) -> bool:
        nonlocal used
        if isinstance(event, Joined):
            used = time.process_time()
        elif isinstance(event, Batch):
            counts[0] += sum(1 for _ in RECORD.iter_unpack(event.data))
        elif isinstance(event, Missed):
            counts[1] += event.records
        return isinstance(event, Totals)

    async def run() -> None:
        async for event in listen(where, TOKEN):
            if take(event):
                return

    if kind == "asyncio":
        asyncio.run(run())
    else:
        for event in subscribe(where, TOKEN):
            if take(event):
                break
    answers.put((*counts, time.process_time() - used))


def feed_alone(rate: int, seconds: float, datagram: int, kind: str) -> dict[str, Any]:
    context = multiprocessing.get_context("fork")
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)
    sock.bind(("127.0.0.1", 0))
    sent_by, received_by = context.SimpleQueue(), context.SimpleQueue()
    children = [
        context.Process(target=send, args=(sock, rate, seconds, datagram, sent_by)),
        context.Process(target=receive, args=(sock.getsockname(), kind, received_by)),
    ]
    for child in children:
        child.start()
    sent, sender_cpu = sent_by.get()
    records, missed, subscriber_cpu = received_by.get()
    for child in children:
        child.join()
    sock.close()
    return {
        "rate": rate,
        "datagram": datagram,
        "subscriber": kind,
        "sent/s": round(sent / seconds),
        "lost %": round(100 * missed / sent, 3),
        "counted exactly": records + missed == sent,
        "sender CPU %": round(100 * sender_cpu, 1),
        "subscriber CPU %": round(100 * subscriber_cpu / seconds, 1),
    }


# --- the meter -------------------------------------------------------------------------------------------------


def framed(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


def kinds() -> Iterator[tuple[str, bytes, bytes]]:
    """(name, request, response) frames."""
    records = bytes(1000)
    yield (
        "Heartbeat v4",
        decoder.encode_request(12, 4, {"group_id": "g", "member_id": "m"}, correlation_id=0, client_id="stock-1"),
        decoder.encode_response(12, 4, {}, correlation_id=0),
    )
    produce = {"acks": -1, "timeout_ms": 1, "topic_data": [{"name": "orders", "partition_data": [{"index": 0, "records": records}]}]}  # fmt: skip
    produced = {"responses": [{"name": "orders", "partition_responses": [{"index": 0, "error_code": 0}]}]}
    yield (
        "Produce v9, 1 kB",
        decoder.encode_request(0, 9, produce, correlation_id=0, client_id="shop-1"),
        decoder.encode_response(0, 9, produced, correlation_id=0),
    )
    fetch = {"topics": [{"topic": "orders", "partitions": [{"partition": n} for n in range(3)]}]}
    fetched = {"responses": [{"topic": "orders", "partitions": [{"partition_index": n, "records": records} for n in range(3)]}]}  # fmt: skip
    yield (
        "Fetch v12, 3 partitions",
        decoder.encode_request(1, 12, fetch, correlation_id=0, client_id="billing-1"),
        decoder.encode_response(1, 12, fetched, correlation_id=0),
    )


def meter_alone(name: str, request: bytes, response: bytes, by: tuple[str, ...], count: int = 40_000) -> dict[str, Any]:
    """What one exchange costs the meter, without ring and sockets, with a subscriber."""
    sender = FeedSender(TOKEN, 1, datagram=feed_layout.LOOPBACK_DATAGRAM)
    sender.receive(FeedReader(TOKEN).hello(0.0), ("a", 1), 0.0, 1)
    meter = TrafficMeter(Metrics(by), sender)
    traffic = TrafficDecoder(meter.on_event, moved=meter.moved)
    traffic.opened(1, 0, ConnectionEnds(("a", 1), ("b", 2)))
    parts = []
    for start in range(0, count, 20):
        numbers = [n.to_bytes(4, "big") for n in range(start, start + 20)]
        parts.append(b"".join(framed(request[:4] + n + request[8:]) for n in numbers))
        parts.append(b"".join(framed(n + response[4:]) for n in numbers))
    used = time.process_time()
    for number, part in enumerate(parts):
        traffic.data(1, number % 2, number, part)
        sender.outgoing.clear()
    used = time.process_time() - used
    assert meter.exchanges == count
    return {"exchange": name, "by": ",".join(by) or "-", "us": round(used / count * 1e6, 1), "per s": round(count / used)}


# --- a proxy with and without --------------------------------------------------------------------------------


def broker(server: socket.socket) -> None:
    """Answers heartbeats, in a process of its own."""
    answer = decoder.encode_response(12, 4, {}, correlation_id=0)[4:]
    sock, _ = server.accept()
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    data = bytearray()
    with contextlib.suppress(ConnectionError):
        while part := sock.recv(1 << 18):
            data += part
            size = 4 + int.from_bytes(data[:4], "big")
            whole = len(data) // size
            sock.sendall(b"".join(framed(data[n * size + 8 : n * size + 12] + answer) for n in range(whole)))
            del data[: whole * size]


def through_proxy(rate: int, run_seconds: float, metered: bool, at_once: int = 16) -> dict[str, Any]:
    """Heartbeats at a rate, `at_once` in flight. Without a meter: what the relay costs then."""
    context = multiprocessing.get_context("fork")
    server = socket.create_server(("127.0.0.1", 0))
    child = context.Process(target=broker, args=(server,), daemon=True)
    child.start()
    upstream: Address = server.getsockname()[:2]
    config = MeterConfig(feed=("127.0.0.1", 0), metrics=("127.0.0.1", 0)) if metered else None
    received = {"records": 0, "missed": 0, "lost_bytes": 0}
    done = threading.Event()
    with Proxy(ProxyConfig(upstream=upstream, meter=config, probe=False)) as proxy:
        joined = threading.Event()

        def follow() -> None:
            assert proxy.meter is not None and proxy.meter.feed is not None
            for event in subscribe(proxy.meter.feed, proxy.meter.feed_token):
                joined.set()
                if isinstance(event, Batch):
                    received["records"] += len(event)
                elif isinstance(event, Missed):
                    received["missed"] += event.records
                elif isinstance(event, Totals):
                    received["lost_bytes"] = event.lost_bytes
                    if done.is_set():
                        return

        follower = threading.Thread(target=follow)
        if metered:
            follower.start()
            joined.wait(20)
        request = next(kinds())[1]
        answer = 8 + len(decoder.encode_response(12, 4, {}, correlation_id=0)[4:])
        parts = [
            b"".join(framed(request[:4] + n.to_bytes(4, "big") + request[8:]) for n in range(start, start + at_once))
            for start in range(0, int(rate * run_seconds), at_once)
        ]
        pids = {name: child.pid for name, child in proxy._children.items()}
        before = {name: cpu(pid) for name, pid in pids.items()}
        with socket.create_connection(proxy.address) as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            started = time.monotonic()
            buffer = bytearray(1 << 18)
            waits = []
            for number, part in enumerate(parts):
                early = started + number * at_once / rate - time.monotonic()
                if early > 0.001:
                    time.sleep(early)
                asked = time.monotonic()
                client.sendall(part)
                wanted = at_once * answer
                while wanted > 0:
                    wanted -= client.recv_into(buffer, min(wanted, len(buffer)))
                waits.append(time.monotonic() - asked)
            seconds = time.monotonic() - started
            time.sleep(1.5)  # what waits in the ring is read
        used = {name: cpu(pid) - before[name] for name, pid in pids.items()}
        done.set()
        if metered:
            follower.join(10)
    child.terminate()
    server.close()
    total = len(parts) * at_once
    found: dict[str, Any] = {"meter": metered, "exchanges/s": round(total / seconds)}
    found |= {f"p50 of {at_once}, us": round(sorted(waits)[len(waits) // 2] * 1e6)}
    found |= {f"{name} CPU %": round(100 * used[name] / seconds, 1) for name in used}
    if metered:
        found |= {"in the feed %": round(100 * received["records"] / total, 1), "feed lost": received["missed"]}
        found |= {"ring lost kB": received["lost_bytes"] // 1000}
    return found


def table(title: str, rows: list[dict[str, Any]]) -> None:
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = [names, *([str(row.get(name, "")) for name in names] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(names))]
    print(title)
    for line in cells:
        print("  " + "  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)))
    print(flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rates", default="5000,50000,150000,300000")
    parser.add_argument("--exchanges", default="2000,10000,20000", help="per second, through the proxy")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results: dict[str, list[dict[str, Any]]] = {}
    cases = [
        (int(rate), datagram, kind)
        for rate in options.rates.split(",")
        for datagram, kind in (
            (feed_layout.LOOPBACK_DATAGRAM, "socket"),
            (feed_layout.LOOPBACK_DATAGRAM, "asyncio"),
            (feed_layout.DATAGRAM, "socket"),
        )
    ]
    results["the feed alone"] = [feed_alone(rate, options.seconds, size, kind) for rate, size, kind in cases]
    results["the meter, without ring and sockets"] = [
        meter_alone(*kind, by) for kind in kinds() for by in ((), ("client", "topic"))
    ]
    results["through a proxy, heartbeats"] = [
        through_proxy(int(rate), options.seconds, metered)
        for rate in options.exchanges.split(",")
        for metered in (False, True)
    ]
    if options.json:
        json.dump(results, sys.stdout, indent=1)
        return
    for title, rows in results.items():
        table(title, rows)


if __name__ == "__main__":
    main()
