"""Handlers that change nothing: status, brokers, connections, exchanges, findings, events, metrics."""

from __future__ import annotations

import time
from dataclasses import asdict

from aiohttp import web

from ...events import Counts, Listening
from ..async_channel import AsyncChannel, CommandFailed
from ..relays import Relays
from .api import HEARTBEAT_SECONDS, Api, answer, cursor_of, flag, in_path, number, send_event, stream, zone
from .bounds import CURSOR, LIMIT, WAIT


async def _or_none(channel: AsyncChannel | Relays, do: str) -> dict[str, object] | None:
    try:
        return await channel.ask(do, within=3.0)
    except CommandFailed:
        return None


async def status(api: Api, request: web.Request) -> web.Response:
    info = api.info
    counts = api.latest.get("Counts")
    kept = await _or_none(api.inspector, "kept")
    recording = await _or_none(api.observer, "recording")
    rules = await _or_none(api.relays, "rules")
    listed = rules["rules"] if rules else []
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
                "inspector_bytes": kept["lost_bytes"] if kept else 0, "events": api.history.missed,
            },
            "exchanges": {name: kept[name] if kept else 0 for name in ("kept", "bytes", "oldest", "newest")},
            "recording": recording,
            "rules": len(listed) if isinstance(listed, list) else 0,
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
        health |= {"error": "gone", "message": f"not running: {', '.join(down)}"}
    return answer(health, 200 if fine else 503)


_COUNTED = ("connections", "opened", "exchanges", "errors", "undecoded", "request_bytes", "response_bytes")


async def plugins(api: Api, request: web.Request) -> web.Response:
    return answer({"plugins": (await api.relays.ask("plugins"))["plugins"]})


async def brokers(api: Api, request: web.Request) -> web.Response:
    known = await api.relays.ask("brokers")
    found, down = known["brokers"], known["down"]
    listening = api.latest.get("Listening")
    own = listening.address if isinstance(listening, Listening) else api.info.listen
    upstream = list(api.info.upstream)
    first = {"node": -1, "broker": upstream, "listen": list(own), "bootstrap": True, "down": upstream in down}
    rest = [
        {"node": each["node"], "broker": each["broker"], "listen": each["address"], "bootstrap": False, "down": each["broker"] in down}
        for each in found
    ]
    return answer({"brokers": [first, *rest]})


async def connections(api: Api, request: web.Request) -> web.Response:
    return answer({"connections": (await api.inspector.ask("connections"))["connections"]})


async def exchanges(api: Api, request: web.Request) -> web.Response:
    query = request.query
    wait = number("wait", query.get("wait"), WAIT, whole=False)
    found = await api.inspector.ask(
        "exchanges",
        within=wait + 30.0,
        filter=query.get("filter"),
        zone=zone("zone", query.get("zone")),
        since=number("since", query.get("since"), CURSOR),
        limit=number("limit", query.get("limit"), LIMIT),
        wait=wait,
        bodies=flag("bodies", query.get("bodies")),
    )
    return answer(found)


async def exchange(api: Api, request: web.Request) -> web.Response:
    return answer((await api.inspector.ask("exchange", number=in_path(request, "id")))["exchange"])


async def pending(api: Api, request: web.Request) -> web.Response:
    return answer(await api.inspector.ask("pending"))


async def exchanges_stream(api: Api, request: web.Request) -> web.StreamResponse:
    query = request.query
    wanted, bodies = query.get("filter"), flag("bodies", query.get("bodies"))
    times_in = zone("zone", query.get("zone"))
    cursor = cursor_of(request)
    if cursor is None:
        cursor = int((await api.inspector.ask("kept"))["newest"])
    # Asked once before the answer begins, so that a wrong filter is an error and not a stream.
    await api.inspector.ask("exchanges", filter=wanted, zone=times_in, since=cursor, limit=1)
    response = await stream(request, cursor)
    while True:
        found = await api.inspector.ask(
            "exchanges",
            within=HEARTBEAT_SECONDS + 30.0,
            filter=wanted,
            zone=times_in,
            since=cursor,
            limit=200,
            wait=HEARTBEAT_SECONDS,
            bodies=bodies,
        )
        if found["lost"]:
            await send_event(response, "lost", {"exchanges": found["lost"]}, found["next"] if not found["exchanges"] else None)
        for each in found["exchanges"]:
            await send_event(response, "exchange", each, each["id"])
        cursor = int(found["next"])
        if not found["exchanges"]:
            # The cursor moves on over what the filter leaves out, so that a reader that comes again need not.
            await response.write(f"id: {cursor}\n: nothing new\n\n".encode())


async def findings(api: Api, request: web.Request) -> web.Response:
    return answer(await api.inspector.ask("findings"))


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
        raise CommandFailed("missing", "this proxy keeps no metrics: start it with --metrics HOST:PORT")
    try:
        text, kind = await api.metrics(request.headers.get("Accept", ""))
    except (OSError, TimeoutError, ValueError) as error:
        raise CommandFailed("gone", f"the metrics cannot be read: {error or type(error).__name__}") from None
    return web.Response(body=text, headers={"Content-Type": kind})
