"""Handlers that change something: connections, rules, recording, intercepts and what they hold, shutdown."""

from __future__ import annotations

import asyncio
from dataclasses import asdict

from aiohttp import web

from ....plugins.rules.rules import Rule, RuleError, parse_rules
from ...processes import control_messages as messages
from ...processes.control_messages import Failure
from ...processes.shared_counters import new_serial
from ..async_channel import CommandFailed
from .api import Api, answer, flag, in_path, number, text_of
from .bodies import BrokersDown, Drop, Extend, FlightAsked, InterceptAsked, RecordingAsked, Resume, read
from .bounds import HITS, HITS_SEEN, HITS_TIMEOUT, LIMIT, MOST_RULES, RULES_BYTES, WAIT


async def close_connection(api: Api, request: web.Request) -> web.Response:
    how = request.query.get("how", "fin")
    if how not in ("fin", "rst"):
        raise CommandFailed(Failure.INVALID, f"how must be fin or rst, not {how!r}")
    return answer(await api.relays.ask(messages.CloseConnection(in_path(request, "connection"), how)))


async def brokers_down(api: Api, request: web.Request) -> web.Response:
    given = await read(request, BrokersDown)
    return answer(await api.relays.ask(messages.KeepBrokersDown(given.brokers)))


# -- rules -----------------------------------------------------------------------------------------------------


async def _read_rules(request: web.Request, standing: int) -> list[Rule]:
    """The rules in a body; at most as many as still fit beside the `standing` ones."""
    if (request.content_length or 0) > RULES_BYTES:
        raise CommandFailed(Failure.TOO_LARGE, f"a body of rules may have up to {RULES_BYTES} bytes")
    text = await text_of(request)
    if len(text) > RULES_BYTES:
        raise CommandFailed(Failure.TOO_LARGE, f"a body of rules may have up to {RULES_BYTES} bytes")
    try:
        # In a thread, so that other requests are answered meanwhile.
        return await asyncio.to_thread(parse_rules, text, "body", standing + 1, MOST_RULES - standing)
    except RuleError as error:
        raise CommandFailed(Failure.INVALID, error.text, line=error.line, column=error.column) from None


def _entry(rule: Rule) -> messages.RuleEntry:
    return messages.RuleEntry(rule, rule.to_dict(), fresh=new_serial())


async def _rules(api: Api) -> list[messages.RuleState]:
    return (await api.relays.ask(messages.ListRules())).rules


async def rules(api: Api, request: web.Request) -> web.Response:
    return answer(messages.RuleList(await _rules(api)))


async def rules_add(api: Api, request: web.Request) -> web.Response:
    found = await _read_rules(request, len(await _rules(api)))
    done = await api.relays.ask(messages.AddRules([_entry(rule) for rule in found]))
    names = {rule.name for rule in found}
    return answer(messages.RuleList([rule for rule in done.rules if rule.name in names]), 201)


async def rules_replace(api: Api, request: web.Request) -> web.Response:
    found = await _read_rules(request, 0)
    return answer(await api.relays.ask(messages.ReplaceRules([_entry(rule) for rule in found])))


def _one(listed: list[messages.RuleState], name: str) -> messages.RuleState:
    for each in listed:
        if each.name == name:
            return each
    raise CommandFailed(Failure.MISSING, f"no rule is named {name!r}")


async def rule(api: Api, request: web.Request) -> web.Response:
    return answer(_one(await _rules(api), request.match_info["name"]))


async def rule_hits(api: Api, request: web.Request) -> web.Response:
    """The newest hits, each with the number of its exchange (`GET /v1/exchanges/{id}`) as far as that is known."""
    name = request.match_info["name"]
    since = number("since", request.query.get("since"), HITS_SEEN)
    limit = number("limit", request.query.get("limit"), LIMIT)
    found = await api.relays.ask(messages.ListHits(name, since))
    hits = found.hits[-limit:]
    try:
        numbers = (await api.inspector.ask(messages.FindNoted([(hit.connection, hit.note, hit.time_ns) for hit in hits]))).numbers
    except CommandFailed:
        numbers = [None] * len(hits)  # the inspector is gone; the hits are known without it
    listed = [asdict(hit) | {"exchange": each} for hit, each in zip(hits, numbers, strict=True)]
    return answer({"name": name, "total": found.total, "hits": listed})


async def rule_put(api: Api, request: web.Request) -> web.Response:
    name = request.match_info["name"]
    found = await _read_rules(request, 0)
    if len(found) != 1:
        raise CommandFailed(Failure.INVALID, "the body must be one rule")
    fields = found[0].to_dict() | {"name": name}
    done = await api.relays.ask(messages.PutRule(_entry(Rule.from_dict(fields))))
    return answer(_one(done.rules, name), 201 if done.created else 200)


async def rule_remove(api: Api, request: web.Request) -> web.Response:
    name = request.match_info["name"]
    await api.relays.ask(messages.RemoveRule(name))
    return answer(messages.Removed(name))


async def rule_enable(api: Api, request: web.Request) -> web.Response:
    return await _enable(api, request, True)


async def rule_disable(api: Api, request: web.Request) -> web.Response:
    return await _enable(api, request, False)


async def _enable(api: Api, request: web.Request, enabled: bool) -> web.Response:
    name = request.match_info["name"]
    done = await api.relays.ask(messages.EnableRule(name, enabled))
    return answer(_one(done.rules, name))


async def rule_wait(api: Api, request: web.Request) -> web.Response:
    name = request.match_info["name"]
    hits = number("hits", request.query.get("hits"), HITS)
    timeout = number("timeout", request.query.get("timeout"), HITS_TIMEOUT, whole=False)
    waiting = asyncio.ensure_future(api.relays.wait_for_hits(name, hits, timeout + 3600.0))
    done, _ = await asyncio.wait({waiting}, timeout=timeout)
    if done:
        return answer({"name": name, "hits": waiting.result(), "reached": True})
    waiting.cancel()
    found = _one(await _rules(api), name).hits
    return answer({"name": name, "hits": found, "reached": found >= hits})


# -- recording -------------------------------------------------------------------------------------------------


async def recording(api: Api, request: web.Request) -> web.Response:
    return answer(await api.observer.ask(messages.GetRecording()))


async def recording_start(api: Api, request: web.Request) -> web.Response:
    given = await read(request, RecordingAsked)
    return answer(await api.observer.ask(messages.StartRecording(**asdict(given))))


async def recording_stop(api: Api, request: web.Request) -> web.Response:
    return answer(await api.observer.ask(messages.StopRecording(), within=30.0))


async def recording_rotate(api: Api, request: web.Request) -> web.Response:
    return answer(await api.observer.ask(messages.RotateRecording(), within=30.0))


async def recording_flight(api: Api, request: web.Request) -> web.Response:
    given = await read(request, FlightAsked)
    done = await api.observer.ask(messages.WriteFlight(given.label, given.reason), within=30.0)
    return answer(done, 202 if done.flight else 200)


# -- intercepts ------------------------------------------------------------------------------------------------


async def intercepts(api: Api, request: web.Request) -> web.Response:
    return answer(await api.relays.ask(messages.ListIntercepts()))


async def intercept_add(api: Api, request: web.Request) -> web.Response:
    given = await read(request, InterceptAsked)
    requests = given.request if given.request is not None else given.response is None
    if not requests and not given.response:
        raise CommandFailed(Failure.INVALID, "request, response or both must be true")
    wanted = messages.AddIntercept(
        given.filter, given.zone, requests, bool(given.response), given.timeout, given.most, given.times
    )
    added = (await api.relays.ask(wanted)).intercept
    if given.lease is not None:
        api.leases.begin(added.id, given.lease)
    return answer(added, 201)


async def intercept_renew(api: Api, request: web.Request) -> web.Response:
    wanted = in_path(request, "id")
    lease = api.leases.renew(wanted)
    if lease is None:
        raise CommandFailed(Failure.MISSING, f"intercept {wanted} has no lease: it has expired, or there never was one")
    return answer({"id": wanted, "lease": lease})


async def intercept_remove(api: Api, request: web.Request) -> web.Response:
    api.leases.forget(in_path(request, "id"))
    return answer(await api.relays.ask(messages.RemoveIntercept(in_path(request, "id"))))


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
    given = await read(request, Resume)
    edits = given.body | given.edits
    data = frame.with_edits(edits) if edits else b""
    await api.relays.ask(messages.Decide(frame.number, messages.HeldAction.RESUME), data)
    return answer({"id": frame.number, "done": "edited" if edits and data != frame.frame else "resumed"})


async def held_drop(api: Api, request: web.Request) -> web.Response:
    frame = api.held.get(in_path(request, "id"))
    given = await read(request, Drop)
    if [given.error, given.close, given.silent].count(None) != 2:
        raise CommandFailed(
            Failure.INVALID, 'give what happens instead: {"error": NAME}, {"close": "fin"} or "rst", or {"silent": true}'
        )
    if given.silent:
        await api.relays.ask(messages.Decide(frame.number, messages.HeldAction.DROP))
        return answer({"id": frame.number, "done": "dropped"})
    if given.close is not None:
        await api.relays.ask(messages.Decide(frame.number, messages.HeldAction.CLOSE, given.close))
        return answer({"id": frame.number, "done": "closed"})
    data = frame.error_answer(given.error or "")
    action = messages.HeldAction.RESUME if frame.of_response else messages.HeldAction.ANSWER
    await api.relays.ask(messages.Decide(frame.number, action), data)
    return answer({"id": frame.number, "done": "answered"})


async def held_extend(api: Api, request: web.Request) -> web.Response:
    frame = api.held.get(in_path(request, "id"))
    seconds = (await read(request, Extend)).timeout
    await api.relays.ask(messages.ExtendHold(frame.number, seconds))
    frame.wait_for(seconds)
    return answer(frame.to_dict(api.values, body=False))


# -- the end ---------------------------------------------------------------------------------------------------


async def shutdown(api: Api, request: web.Request) -> web.Response:
    asyncio.get_running_loop().call_later(0.05, api.shutdown)  # the answer first
    return answer({"stopping": True}, 202)
