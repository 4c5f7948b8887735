"""Handlers that change nothing: status, brokers, connections, exchanges, findings, events, metrics."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TypeVar

from aiohttp import web

from ...events import Counts, Listening
from ...processes import control_messages as messages
from ...processes.control_messages import Failure
from ..async_channel import AsyncChannel, CommandFailed
from ..relays import Relays
from .api import HEARTBEAT_SECONDS, Api, answer, cursor_of, flag, in_path, number, send_event, stream
from .bodies import zone
from .bounds import CURSOR, LIMIT, WAIT

A = TypeVar("A")


async def _or_none(channel: AsyncChannel | Relays, command: messages.Command[A]) -> A | None:
    try:
        return await channel.ask(command, within=3.0)
    except CommandFailed:
        return None


async def status(api: Api, request: web.Request) -> web.Response:
    info = api.info
    counts = api.latest.get("Counts")
    kept = await _or_none(api.inspector, messages.CountKept())
    recording = await _or_none(api.observer, messages.GetRecording())
    rules = await _or_none(api.relays, messages.ListRules())
    observed = asdict(counts) if isinstance(counts, Counts) else {}
    return answer(
        {
            "version": info.version,
            "started_ns": info.started_ns,
            "uptime": round((time.time_ns() - info.started_ns) / 1e9, 3),
            "upstream": info.upstream,
            "listen": info.listen,
            "control": info.control,
            "processes": {name: state.to_dict() for name, state in api.processes.items()},
            "counts": {name: observed.get(name, 0) for name in _COUNTED},
            "lost": {
                "observer_bytes": observed.get("lost_bytes", 0), "observer_chunks": observed.get("lost_chunks", 0),
                "inspector_bytes": kept.lost_bytes if kept else 0, "events": api.history.missed,
            },
            "exchanges": {name: getattr(kept, name, 0) for name in ("kept", "bytes", "oldest", "newest")},
            "recording": recording,
            "rules": len(rules.rules) if rules else 0,
            "held": len(api.held.listed()),
            "insecure": info.insecure,
        }
    )


async def ready(api: Api, request: web.Request) -> web.Response:
    return _health(api, api.live and not api.down)


async def live(api: Api, request: web.Request) -> web.Response:
    return _health(api, api.live)


def _health(api: Api, fine: bool) -> web.Response:
    down = api.down
    health: dict[str, object] = {"live": api.live, "ready": api.live and not down, "down": down}
    if not fine:
        health |= {"error": Failure.GONE, "message": f"not running: {', '.join(down)}"}
    return answer(health, 200 if fine else 503)


_COUNTED = ("connections", "opened", "exchanges", "errors", "undecoded", "request_bytes", "response_bytes")


async def plugins(api: Api, request: web.Request) -> web.Response:
    return answer(await api.relays.ask(messages.ListPlugins()))


async def brokers(api: Api, request: web.Request) -> web.Response:
    known = await api.relays.ask(messages.ListBrokers())
    down = known.down
    listening = api.latest.get("Listening")
    own = listening.address if isinstance(listening, Listening) else api.info.listen
    upstream = api.info.upstream
    first = {"node": -1, "broker": upstream, "listen": own, "bootstrap": True, "down": upstream in down}
    rest = [
        {"node": each.node, "broker": each.broker, "listen": each.address, "bootstrap": False, "down": each.broker in down}
        for each in known.found
    ]
    return answer({"brokers": [first, *rest]})


async def connections(api: Api, request: web.Request) -> web.Response:
    return answer(await api.inspector.ask(messages.ListConnections()))


async def exchanges(api: Api, request: web.Request) -> web.Response:
    query = request.query
    wait = number("wait", query.get("wait"), WAIT, whole=False)
    wanted = messages.FindExchanges(
        query.get("filter"),
        zone("zone", query.get("zone")),
        number("since", query.get("since"), CURSOR),
        number("limit", query.get("limit"), LIMIT),
        wait,
        flag("bodies", query.get("bodies")),
    )
    return answer(await api.inspector.ask(wanted, within=wait + 30.0))


async def exchange(api: Api, request: web.Request) -> web.Response:
    return answer((await api.inspector.ask(messages.GetExchange(in_path(request, "id")))).exchange)


async def pending(api: Api, request: web.Request) -> web.Response:
    return answer(await api.inspector.ask(messages.ListPending()))


async def exchanges_stream(api: Api, request: web.Request) -> web.StreamResponse:
    query = request.query
    wanted, bodies = query.get("filter"), flag("bodies", query.get("bodies"))
    times_in = zone("zone", query.get("zone"))
    cursor = cursor_of(request)
    if cursor is None:
        cursor = (await api.inspector.ask(messages.CountKept())).newest
    # Asked once before the answer begins, so that a wrong filter is an error and not a stream.
    await api.inspector.ask(messages.FindExchanges(wanted, times_in, cursor, 1))
    response = await stream(request, cursor)
    while True:
        following = messages.FindExchanges(wanted, times_in, cursor, 200, HEARTBEAT_SECONDS, bodies)
        found = await api.inspector.ask(following, within=HEARTBEAT_SECONDS + 30.0)
        if found.lost:
            await send_event(response, "lost", {"exchanges": found.lost}, found.next if not found.exchanges else None)
        for each in found.exchanges:
            await send_event(response, "exchange", each, each["id"])
        cursor = found.next
        if not found.exchanges:
            # The cursor moves on over what the filter leaves out, so that a reader that comes again need not.
            await response.write(f"id: {cursor}\n: nothing new\n\n".encode())


async def findings(api: Api, request: web.Request) -> web.Response:
    return answer(await api.inspector.ask(messages.ListFindings()))


async def events(api: Api, request: web.Request) -> web.Response:
    query = request.query
    since = number("since", query.get("since"), CURSOR) or 0
    limit = number("limit", query.get("limit"), LIMIT)
    kinds = frozenset(filter(None, query.get("kinds", "").split(",")))
    until = time.monotonic() + number("wait", query.get("wait"), WAIT, whole=False)
    while True:
        found, cursor, lost = api.history.since(since, limit, kinds)
        left = until - time.monotonic()
        if found or lost or left <= 0:
            return answer({"events": found, "next": cursor, "lost": lost})
        await api.history.wait(left)


async def events_stream(api: Api, request: web.Request) -> web.StreamResponse:
    kinds = frozenset(filter(None, request.query.get("kinds", "").split(",")))
    cursor = cursor_of(request)
    if cursor is None:
        cursor = api.history.newest
    response = await stream(request, cursor)
    while True:
        found, cursor, lost = api.history.since(cursor, 200, kinds)
        if lost:
            await send_event(response, "lost", {"events": lost}, None if found else cursor)
        for each in found:
            await send_event(response, each["event"], each, each["id"])
        if not found:
            await response.write(f"id: {cursor}\n: nothing new\n\n".encode())
            await api.history.wait(HEARTBEAT_SECONDS)


async def metrics(api: Api, request: web.Request) -> web.Response:
    if api.metrics is None:
        raise CommandFailed(Failure.MISSING, "this proxy keeps no metrics: start it with --metrics HOST:PORT")
    try:
        text, kind = await api.metrics(request.headers.get("Accept", ""))
    except (OSError, TimeoutError, ValueError) as error:
        raise CommandFailed(Failure.GONE, f"the metrics cannot be read: {error or type(error).__name__}") from None
    return web.Response(body=text, headers={"Content-Type": kind})
