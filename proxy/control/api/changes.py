"""Handlers that change something: connections, rules, recording, intercepts and what they hold, shutdown."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web

from ....plugins.rules.rules import Rule, RuleError, parse_rules
from ...supervisor.shared_counters import new_serial
from ..async_channel import CommandFailed
from .api import Api, answer, body_of, flag, in_path, number, reject_unknown, text_of, zone
from .bounds import (
    HITS,
    HITS_SEEN,
    HITS_TIMEOUT,
    HOLD_TIMEOUT,
    LEASE,
    LIMIT,
    LONGEST_TEXT,
    MOST_DOWN,
    MOST_HELD,
    MOST_RULES,
    RULES_BYTES,
    SECONDS,
    SIZE,
    TIMES,
    WAIT,
)

_KEPT = {
    "rotate_bytes": (SIZE, True),
    "rotate_seconds": (SECONDS, False),
    "keep_bytes": (SIZE, True),
    "keep_seconds": (SECONDS, False),
}
"""How a recording is cut and kept: fields, what they can be, and whether they are whole."""


async def close_connection(api: Api, request: web.Request) -> web.Response:
    how = request.query.get("how", "fin")
    if how not in ("fin", "rst"):
        raise CommandFailed("invalid", f"how is fin or rst and not {how!r}")
    return answer(await api.relays.ask("close", connection=in_path(request, "connection"), how=how))


async def brokers_down(api: Api, request: web.Request) -> web.Response:
    given = await body_of(request)
    reject_unknown(given, "brokers")
    brokers = given.get("brokers")
    if not isinstance(brokers, list) or len(brokers) > MOST_DOWN or not all(map(_is_address, brokers)):
        raise CommandFailed("invalid", f"brokers is a list of up to {MOST_DOWN} addresses: [host, port]")
    return answer(await api.relays.ask("brokers.down", brokers=brokers))


def _is_address(given: Any) -> bool:
    if not isinstance(given, list) or len(given) != 2:
        return False
    host, port = given
    return isinstance(host, str) and 0 < len(host) <= LONGEST_TEXT and type(port) is int and 0 < port < 65536


# -- rules -----------------------------------------------------------------------------------------------------


async def _read(request: web.Request, standing: int) -> list[Rule]:
    """The rules in a body; at most as many as still fit beside the `standing` ones."""
    if (request.content_length or 0) > RULES_BYTES:
        raise CommandFailed("too large", f"a body of rules has up to {RULES_BYTES} bytes")
    text = await text_of(request)
    if len(text) > RULES_BYTES:
        raise CommandFailed("too large", f"a body of rules has up to {RULES_BYTES} bytes")
    try:
        # In a thread, so that other requests are answered meanwhile.
        return await asyncio.to_thread(parse_rules, text, "body", standing + 1, MOST_RULES - standing)
    except RuleError as error:
        raise CommandFailed("invalid", error.text, line=error.line, column=error.column) from None


def _active_rule(rule: Rule, enabled: bool = True) -> dict[str, Any]:
    return {"rule": rule.to_dict(), "source": rule.to_dict(), "enabled": enabled, "fresh": new_serial()}


async def _rules(api: Api) -> list[dict[str, Any]]:
    return list((await api.relays.ask("rules"))["rules"])


async def rules(api: Api, request: web.Request) -> web.Response:
    return answer({"rules": await _rules(api)})


async def rules_add(api: Api, request: web.Request) -> web.Response:
    found = await _read(request, len(await _rules(api)))
    done = await api.relays.ask("rules.add", rules=[_active_rule(rule) for rule in found])
    names = {rule.name for rule in found}
    return answer({"rules": [rule for rule in done["rules"] if rule["name"] in names]}, 201)


async def rules_replace(api: Api, request: web.Request) -> web.Response:
    found = await _read(request, 0)
    return answer(await api.relays.ask("rules.replace", rules=[_active_rule(rule) for rule in found]))


def _one(listed: list[dict[str, Any]], name: str) -> dict[str, Any]:
    for each in listed:
        if each["name"] == name:
            return each
    raise CommandFailed("missing", f"no rule is named {name!r}")


async def rule(api: Api, request: web.Request) -> web.Response:
    return answer(_one(await _rules(api), request.match_info["name"]))


async def rule_hits(api: Api, request: web.Request) -> web.Response:
    """The newest hits, each with the number of its exchange (`GET /v1/exchanges/{id}`) as far as that is known."""
    name = request.match_info["name"]
    since = number("since", request.query.get("since"), HITS_SEEN)
    limit = number("limit", request.query.get("limit"), LIMIT)
    found = await api.relays.ask("rules.hits", name=name, since=since)
    hits = found["hits"][-limit:]
    wanted = [(hit["connection"], hit["note"], hit["time_ns"]) for hit in hits]
    try:
        numbers = (await api.inspector.ask("noted", wanted=wanted))["numbers"]
    except CommandFailed:
        numbers = [None] * len(hits)  # the inspector is gone; the hits are known without it
    listed = [{**hit, "exchange": each} for hit, each in zip(hits, numbers, strict=True)]
    return answer({"name": name, "total": found["total"], "hits": listed})


async def rule_put(api: Api, request: web.Request) -> web.Response:
    name = request.match_info["name"]
    found = await _read(request, 0)
    if len(found) != 1:
        raise CommandFailed("invalid", "the body is one rule")
    fields = found[0].to_dict() | {"name": name}
    done = await api.relays.ask("rules.put", rule=_active_rule(Rule.from_dict(fields)))
    return answer(_one(done["rules"], name), 201 if done["created"] else 200)


async def rule_remove(api: Api, request: web.Request) -> web.Response:
    name = request.match_info["name"]
    await api.relays.ask("rules.remove", name=name)
    return answer({"removed": name})


async def rule_enable(api: Api, request: web.Request) -> web.Response:
    return await _enable(api, request, True)


async def rule_disable(api: Api, request: web.Request) -> web.Response:
    return await _enable(api, request, False)


async def _enable(api: Api, request: web.Request, enabled: bool) -> web.Response:
    name = request.match_info["name"]
    done = await api.relays.ask("rules.enable", name=name, enabled=enabled)
    return answer(_one(done["rules"], name))


async def rule_wait(api: Api, request: web.Request) -> web.Response:
    name = request.match_info["name"]
    hits = number("hits", request.query.get("hits"), HITS)
    timeout = number("timeout", request.query.get("timeout"), HITS_TIMEOUT, whole=False)
    waiting = asyncio.ensure_future(api.relays.ask("wait", within=timeout + 3600.0, name=name, hits=hits))
    done, _ = await asyncio.wait({waiting}, timeout=timeout)
    if done:
        return answer({"name": name, "hits": waiting.result()["hits"], "reached": True})
    waiting.cancel()
    return answer({"name": name, "hits": _one(await _rules(api), name)["hits"], "reached": False})


# -- recording -------------------------------------------------------------------------------------------------


async def recording(api: Api, request: web.Request) -> web.Response:
    return answer(await api.observer.ask("recording"))


async def recording_start(api: Api, request: web.Request) -> web.Response:
    given = await body_of(request)
    reject_unknown(given, "directory", *_KEPT)
    directory = given.get("directory")
    if not isinstance(directory, str) or not directory.startswith("/") or "\0" in directory:
        raise CommandFailed("invalid", "directory is an absolute path")
    kept = {name: number(name, given.get(name), bounds, whole) for name, (bounds, whole) in _KEPT.items()}
    return answer(await api.observer.ask("recording.start", directory=directory, **kept))


async def recording_stop(api: Api, request: web.Request) -> web.Response:
    return answer(await api.observer.ask("recording.stop", within=30.0))


async def recording_rotate(api: Api, request: web.Request) -> web.Response:
    return answer(await api.observer.ask("recording.rotate", within=30.0))


async def recording_flight(api: Api, request: web.Request) -> web.Response:
    given = await body_of(request)
    reject_unknown(given, "label", "reason")
    for name in given:
        if not isinstance(given[name], str) or len(given[name]) > LONGEST_TEXT:
            raise CommandFailed("invalid", f"{name} is a text of up to {LONGEST_TEXT} characters")
    done = await api.observer.ask("recording.flight", within=30.0, **given)
    return answer(done, 202 if done["flight"] else 200)


# -- intercepts ------------------------------------------------------------------------------------------------


async def intercepts(api: Api, request: web.Request) -> web.Response:
    return answer(await api.relays.ask("intercepts"))


async def intercept_add(api: Api, request: web.Request) -> web.Response:
    given = await body_of(request)
    reject_unknown(given, "filter", "zone", "request", "response", "timeout", "most", "times", "lease")
    text = given.get("filter")
    if not isinstance(text, str) or not text.strip():
        raise CommandFailed("invalid", "filter says which exchanges: text in the filter language")
    sides = {side: given.get(side, False) for side in ("request", "response")}
    if not any(sides.values()) and not {"request", "response"} & given.keys():
        sides["request"] = True
    if not any(sides.values()) or not all(isinstance(value, bool) for value in sides.values()):
        raise CommandFailed("invalid", "request and response are true or false, and one of them is true")
    lease = number("lease", given.get("lease"), LEASE, whole=False)
    done = await api.relays.ask(
        "intercepts.add",
        filter=text,
        zone=zone("zone", given.get("zone")),
        timeout=number("timeout", given.get("timeout"), HOLD_TIMEOUT, whole=False),
        most=number("most", given.get("most"), MOST_HELD),
        times=number("times", given.get("times"), TIMES),
        **sides,
    )
    if lease is not None:
        api.leases.begin(done["intercept"]["id"], lease)
    return answer(done["intercept"], 201)


async def intercept_renew(api: Api, request: web.Request) -> web.Response:
    wanted = in_path(request, "id")
    lease = api.leases.renew(wanted)
    if lease is None:
        raise CommandFailed("missing", f"intercept {wanted} has no lease: it has run out, or it never had one")
    return answer({"id": wanted, "lease": lease})


async def intercept_remove(api: Api, request: web.Request) -> web.Response:
    api.leases.forget(in_path(request, "id"))
    return answer(await api.relays.ask("intercepts.remove", intercept=in_path(request, "id")))


async def held(api: Api, request: web.Request) -> web.Response:
    until = asyncio.get_running_loop().time() + number("wait", request.query.get("wait"), WAIT, whole=False)
    while not (found := api.held.listed()) and (left := until - asyncio.get_running_loop().time()) > 0:
        await api.history.wait(min(left, 0.05))
    bodies = flag("bodies", request.query.get("bodies"))
    return answer({"held": [frame.to_dict(api.values, bodies) for frame in found]})


async def held_one(api: Api, request: web.Request) -> web.Response:
    frame = api.held.get(in_path(request, "id"))
    return answer(frame.to_dict(api.values) | frame.covered_bytes(api.values))


async def held_resume(api: Api, request: web.Request) -> web.Response:
    frame = api.held.get(in_path(request, "id"))
    given = await body_of(request)
    reject_unknown(given, "edits", "body")
    edits: dict[str, Any] = {}
    for name in ("body", "edits"):
        part = given.get(name, {})
        if not isinstance(part, dict):
            raise CommandFailed("invalid", f"{name} is an object: fields and their values")
        edits |= part
    data = frame.with_edits(edits) if edits else b""
    await api.relays.ask("decide", data, held=frame.number, action="resume")
    return answer({"id": frame.number, "done": "edited" if edits and data != frame.frame else "resumed"})


async def held_drop(api: Api, request: web.Request) -> web.Response:
    frame = api.held.get(in_path(request, "id"))
    given = await body_of(request)
    reject_unknown(given, "error", "close", "silent")
    if len(given) != 1 or given.get("silent", True) is not True:
        raise CommandFailed(
            "invalid", 'say what happens instead: {"error": NAME}, {"close": "fin"} or "rst", or {"silent": true}'
        )
    if "silent" in given:
        await api.relays.ask("decide", held=frame.number, action="drop")
        return answer({"id": frame.number, "done": "dropped"})
    if "close" in given:
        if given["close"] not in ("fin", "rst"):
            raise CommandFailed("invalid", "close is fin or rst")
        await api.relays.ask("decide", held=frame.number, action="close", how=given["close"])
        return answer({"id": frame.number, "done": "closed"})
    data = frame.error_answer(str(given["error"]))
    await api.relays.ask("decide", data, held=frame.number, action="resume" if frame.of_response else "answer")
    return answer({"id": frame.number, "done": "answered"})


async def held_extend(api: Api, request: web.Request) -> web.Response:
    frame = api.held.get(in_path(request, "id"))
    given = await body_of(request)
    reject_unknown(given, "timeout")
    seconds = number("timeout", given.get("timeout"), HOLD_TIMEOUT, whole=False)
    await api.relays.ask("extend", held=frame.number, seconds=seconds)
    frame.wait_for(seconds)
    return answer(frame.to_dict(api.values, body=False))


# -- the end ---------------------------------------------------------------------------------------------------


async def shutdown(api: Api, request: web.Request) -> web.Response:
    asyncio.get_running_loop().call_later(0.05, api.shutdown)  # the answer first
    return answer({"stopping": True}, 202)
