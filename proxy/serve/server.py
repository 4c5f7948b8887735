"""The sockets of a served recording: a listener for each recorded broker, connections with one request at a time."""

from __future__ import annotations

import asyncio
import errno
import struct
import time
from collections.abc import Callable
from typing import Any

from ...captures import Recorder
from ...captures.serving import DelayedReply, Engine, LiveRequest, LiveSession, NotRecorded, Reply
from ...captures.serving.recorded_answers import describe
from ...captures.serving.recorded_exchanges import addresses
from ...decoder import DecodeError
from ...decoder.schema import facts
from ...decoder.wire.frame import MAX_FRAME
from ...diagnostics import contained
from ..events import Address
from ..relay.addressing.address_map import TRIES, reason
from ..relay.interception.frame_editor import broker_addresses
from .config import OnMiss, ServeConfig
from .events import Miss, NameTaken, ProducedOtherwise, ServeEvent, Serving, Trouble, WaitsForProducer
from .record_text import show_both
from .refusal import refusal
from .upstream import Brokers, Upstream, read_answer

_SIZE = struct.Struct(">i")
_AGAIN_SECONDS = 0.1
_PRODUCE = facts.api_key("Produce")


class RecordingServer:
    """Serves one `Engine`. Everything happens in the event loop that `start` is called in."""

    def __init__(self, config: ServeConfig, engine: Engine, emit: Callable[[ServeEvent], None]) -> None:
        self._config, self._engine, self._emit = config, engine, emit
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._numbers = 0
        self._reported: set[tuple[str, int]] = set()
        self._brokers = Brokers(config.broker) if config.broker else None
        self._recorder: Recorder | None = None
        self._next_port = config.listen[1] + 1 if config.listen[1] else 0
        self.address: Address = config.listen

    async def start(self) -> None:
        """Listen. Raises OSError."""
        if self._config.on_miss is OnMiss.RECORD:
            self._recorder = Recorder(self._config.capture)
        nodes = sorted(self._engine.nodes)
        self.address = await self._listen(self._config.listen, nodes[0] if nodes else None)
        if nodes:
            self._engine.ports[nodes[0]] = self.address[1]
        for node in nodes[1:]:
            await self._add_node(node)
        served = {node: (self.address[0], port) for node, port in self._engine.ports.items()}
        recorded = self._engine.recorded
        self._emit(Serving(self.address, len(recorded.all), served, cut=recorded.cut))

    async def _listen(self, address: Address, node: int | None) -> Address:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            try:
                await self._connection(reader, writer, node)
            except asyncio.CancelledError:
                pass
            finally:
                self._tasks.discard(task)
                writer.close()

        server = await asyncio.start_server(accept, *address)
        self._servers.append(server)
        host, port = server.sockets[0].getsockname()[:2]
        return host, port

    async def _add_node(self, node: int) -> None:
        """Add a listener for one more broker: on the next free port, or on any if the first port was chosen freely."""
        for _ in range(TRIES):
            port = self._next_port
            self._next_port += bool(port)
            try:
                _, self._engine.ports[node] = await self._listen((self.address[0], port), node)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                return
        raise OSError(errno.EADDRINUSE, "no free port")

    async def stop(self) -> None:
        """Close all connections and listeners."""
        for server in self._servers:
            server.close()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=5)
        if self._recorder:
            self._recorder.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, node: int | None) -> None:
        peer, local = writer.get_extra_info("peername")[:2], writer.get_extra_info("sockname")[:2]
        self._numbers += 1
        connection = _Connection(self._numbers, peer, LiveSession(self._numbers, local[0]), node)
        try:
            while True:
                try:
                    size = _SIZE.unpack(await reader.readexactly(4))[0]
                    if not 8 <= size <= MAX_FRAME:
                        self._emit(Trouble(connection.name, f"{size} bytes are not a request: the connection is closed"))
                        return
                    frame = await reader.readexactly(size)
                except (asyncio.IncompleteReadError, OSError):
                    return
                try:
                    answer = await self._answer(connection, frame)
                except Exception as error:  # one request must not end the others' test
                    contained("a request to a served recording", error, reported=True)
                    what = f"{type(error).__name__}: {error}: the connection is closed"
                    self._emit(Trouble(connection.name, what))
                    return
                if answer is _CLOSE:
                    return
                if isinstance(answer, bytes):
                    writer.write(_SIZE.pack(len(answer)) + answer)
                    try:
                        await writer.drain()
                    except OSError:
                        return
        finally:
            connection.close()

    async def _answer(self, connection: _Connection, frame: bytes) -> bytes | object | None:
        """The answer's frame, None for none, or `_CLOSE`."""
        started = time.monotonic()
        try:
            ask = self._engine.read(connection.session, frame, started, time.time_ns() // 1_000_000)
        except DecodeError as error:
            self._emit(Trouble(connection.name, f"a request that cannot be read ({error}): the connection is closed"))
            return _CLOSE
        except NotRecorded as missed:
            return await self._answer_miss(connection, frame, None, missed)
        for live, recorded in self._engine.names.news:
            self._emit(NameTaken(live, recorded))
        try:
            reply = await self._reply(ask)
            answer = self._engine.encode(ask, reply)
        except NotRecorded as missed:
            return await self._answer_miss(connection, frame, ask, missed)
        finally:
            for difference in self._engine.produced.news():
                place = difference.topic, difference.partition
                self._emit(ProducedOtherwise(connection.name, *place, *show_both(difference)))
        if self._config.recorded_times:
            await asyncio.sleep(max(0.0, self._engine.latency(ask, reply) - (time.monotonic() - started)))
        return answer

    async def _reply(self, ask: LiveRequest) -> Reply:
        found = self._engine.answer(ask)
        self._wake()
        while isinstance(found, DelayedReply):
            self._hint(ask)
            left = found.deadline - time.monotonic()
            changed = self._changed
            try:
                await asyncio.wait_for(changed.wait(), left if left > 0 else _AGAIN_SECONDS)
            except TimeoutError:
                pass
            now = time.monotonic()
            reply = found.poll(now, now >= found.deadline)
            if reply is not None:
                self._wake()
                return reply
        return found

    def _wake(self) -> None:
        """Wake all waiting requests: something may have changed."""
        self._changed.set()
        self._changed = asyncio.Event()

    def _hint(self, ask: LiveRequest) -> None:
        if ask.api == "Fetch" and not self._reported:
            for (topic, partition), count in self._engine.unproduced().items():
                if (topic, partition) not in self._reported and not self._engine.asked["Produce"]:
                    self._reported.add((topic, partition))
                    self._emit(WaitsForProducer(topic, partition, count))

    # --- misses ------------------------------------------------------------------------------------------------

    async def _answer_miss(
        self, connection: _Connection, frame: bytes, ask: LiveRequest | None, missed: NotRecorded
    ) -> bytes | object | None:
        api = facts.api_name(int.from_bytes(frame[:2], "big", signed=True))
        forward = self._brokers is not None and missed.whole and self._config.on_miss is not OnMiss.FAIL
        if forward:
            try:
                answer = await self._forward(connection, frame, ask)
            except (OSError, TimeoutError) as error:
                why = reason(error) if isinstance(error, OSError) else "no answer"
                self._report_miss(connection, missed, f"the broker could not be reached either ({why}): the connection is closed")
                self._engine.misses[api] += 1
                return _CLOSE
            self._engine.counts["forwarded"] += 1
            self._report_miss(connection, missed, "a real broker answered", warning=False)
            return answer
        if ask is not None and missed.rest is not None and missed.bearable:
            return self._engine.encode(ask, missed.rest)
        self._engine.misses[api] += 1
        if ask is not None and missed.rest is not None:
            self._report_miss(connection, missed, "an error in its place")
            return self._engine.encode(ask, missed.rest)
        silent = ask is not None and ask.api_key == _PRODUCE and ask.fields["acks"] == 0
        answer = None
        if ask is not None and not silent:
            correlation_id = ask.message.header["correlation_id"]
            answer = refusal(ask.message, correlation_id, f"not in the recording: {missed.what}")
            answer = self._engine.with_live_names(ask, answer)
        if answer is None:
            self._report_miss(connection, missed, "the connection is closed")
            return _CLOSE
        self._report_miss(connection, missed, "UNKNOWN_SERVER_ERROR")
        return answer

    def _report_miss(self, connection: _Connection, missed: NotRecorded, done: str, warning: bool = True) -> None:
        near = missed.nearest
        words = describe(near.request, self._engine.recorded.words(near)) if near else ""
        self._emit(Miss(connection.name, missed.what, done, words, near.position if near else None, warning))

    async def _forward(self, connection: _Connection, frame: bytes, ask: LiveRequest | None) -> bytes | None:
        assert self._brokers is not None
        broker = self._brokers.of(connection.node)
        upstream = connection.upstreams.get(broker)
        if upstream is None:
            upstream = Upstream(connection.session.number, connection.peer, broker, self._recorder)
            connection.upstreams[broker] = upstream
        silent = ask is not None and ask.api_key == _PRODUCE and ask.fields["acks"] == 0
        answer = await upstream.ask(frame, silent)
        if answer is None:
            return None
        if ask is not None:
            message = read_answer(answer, ask.api_key, ask.version)
            if message is not None and addresses(message.to_dict()):
                self._brokers.learn(message)
                edits: dict[str, Any] = {}
                for each in broker_addresses(message):
                    if each.host and each.node >= 0:
                        if each.node not in self._engine.ports:
                            if not self._engine.ports:
                                self._engine.ports[each.node] = self.address[1]
                            else:
                                await self._add_node(each.node)
                        edits.update(each.moved((connection.session.local_host, self._engine.ports[each.node])))
                answer = message.replace(edits).encode() if edits else answer
        upstream.record_response(answer)
        return answer


_CLOSE = object()


class _Connection:
    """One live connection."""

    def __init__(self, number: int, peer: Address, session: LiveSession, node: int | None) -> None:
        self.number, self.peer, self.session, self.node = number, peer, session, node
        self.upstreams: dict[Address, Upstream] = {}

    @property
    def name(self) -> str:
        """The client's address."""
        return f"{self.peer[0]}:{self.peer[1]}"

    def close(self) -> None:
        """The client is gone."""
        for upstream in self.upstreams.values():
            upstream.close()
