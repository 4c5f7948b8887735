"""Every endpoint: method, path, handler, parameters, bodies and answers. The OpenAPI description is made from these."""

from __future__ import annotations

from aiohttp import web

from ...settings.control_messages import Json
from . import changes, openapi, views
from .api import Api, answer
from .bounds import CURSOR, HITS, HITS_SEEN, HITS_TIMEOUT, LIMIT, WAIT
from .openapi import QueryParameter, RequestBody, Route

_FILTER = QueryParameter("filter", "string", "The filter language; all exchanges without.")
_ZONE = QueryParameter("zone", "string", "The zone of the filter's times without an offset, such as Europe/Berlin (default UTC).")
_SINCE = QueryParameter("since", "integer", "A cursor (`next` of the last answer): only what is newer.", bounds=CURSOR)
_LIMIT = QueryParameter("limit", "integer", "Most of them in one answer.", bounds=LIMIT)
_WAIT = QueryParameter("wait", "number", "Wait so many seconds for something to come.", bounds=WAIT)
_BODIES = QueryParameter("bodies", "boolean", "Decoded requests and responses, too.")
_KINDS = QueryParameter("kinds", "string", "Names of events, separated by commas; all without.")
_LAST = QueryParameter("Last-Event-ID", "string", "The id of the last event that was read: the stream goes on behind it.", "header")


async def _described(api: Api, request: web.Request) -> web.Response:
    return answer(openapi.document(ROUTES, api.info.version))


_RULES = RequestBody("Rules", "A rule, a list of rules, or a whole rules file; JSON or YAML.")
_RULE = RequestBody("Rule", "One rule; its name is the one in the path.")
_HOLD = RequestBody("InterceptAsked", "What to hold. Of requests only, if neither side is named.")
_RESUME = RequestBody("Resume", "Nothing: as it came. `edits`: fields by their paths. `body`: fields of the top level.", False)
_DROP = RequestBody("Drop", "An error for the client, the end of its connection, or nothing at all.")
_EXTEND = RequestBody("Extend", "For how long.", False)

ROUTES: tuple[Route, ...] = (
    Route("GET", "/openapi.json", _described, "This description.", "Any"),
    Route("GET", "/healthz", views.ready, "Whether all processes of the proxy run; 503 if not. Needs no token.", "Health", errors=(503,)),
    Route("GET", "/healthz/live", views.live, "Whether clients are served; 503 if not. Needs no token.", "Health", errors=(503,)),
    Route("GET", "/metrics", views.metrics, "Metrics for Prometheus, if the proxy keeps any.", "text/plain", errors=(404, 503)),
    Route("GET", "/v1/status", views.status, "How the proxy is.", "Status"),
    Route("GET", "/v1/brokers", views.brokers, "Brokers and the listeners that stand for them.", "Brokers", errors=(503,)),
    Route(
        "PUT", "/v1/brokers/down", changes.brokers_down,
        "Keep exactly these brokers down: their connections are closed and new ones refused.", "BrokersDown", (),
        RequestBody("BrokersDown", "Their addresses, as `GET /v1/brokers` lists them; an empty list brings all of them back."),
        errors=(422, 503),
    ),
    Route("GET", "/v1/plugins", views.plugins, "Plugins, what they are at, and what went wrong with them.", "Plugins", errors=(503,)),
    Route("GET", "/v1/connections", views.connections, "Open connections.", "Connections", errors=(503,)),
    Route(
        "DELETE", "/v1/connections/{connection}", changes.close_connection, "Close a connection, both sides of it.",
        "Closed", (QueryParameter("how", "string", "fin (default) or rst.", choice=("fin", "rst")),), errors=(404, 422, 503),
    ),
    Route(
        "GET", "/v1/exchanges", views.exchanges, "Finished exchanges, oldest first: the newest, or those behind a cursor.", "Exchanges",
        (_FILTER, _ZONE, _SINCE, _LIMIT, _WAIT, _BODIES), errors=(422, 503),
    ),
    Route("GET", "/v1/exchanges/pending", views.pending, "Requests that wait for their responses.", "Pending", errors=(503,)),
    Route(
        "GET", "/v1/exchanges/stream", views.exchanges_stream,
        "Exchanges as they finish, as server-sent events `exchange`; `lost` where some were missed.",
        "text/event-stream", (_FILTER, _ZONE, _SINCE, _BODIES, _LAST), errors=(422, 503),
    ),
    Route("GET", "/v1/exchanges/{id}", views.exchange, "One exchange in full.", "Exchange", errors=(404, 503)),
    Route("GET", "/v1/findings", views.findings, "What was found wrong in the traffic.", "Findings", errors=(503,)),
    Route(
        "GET", "/v1/events", views.events, "What the proxy told so far, oldest first.", "Events",
        (_SINCE, _LIMIT, _WAIT, _KINDS), errors=(422,),
    ),
    Route(
        "GET", "/v1/events/stream", views.events_stream,
        "The proxy's events as they happen, as server-sent events by their names.", "text/event-stream",
        (_SINCE, _KINDS, _LAST), errors=(422,),
    ),
    Route("GET", "/v1/rules", changes.rules, "All rules and their hits.", "RuleList", errors=(503,)),
    Route("POST", "/v1/rules", changes.rules_add, "Add rules behind the others.", "RuleList", (), _RULES, (201,), (409, 422, 503)),
    Route(
        "PUT", "/v1/rules", changes.rules_replace, "Exactly these rules from now on; unchanged ones keep their counts.",
        "RuleList", (), _RULES, errors=(422, 503),
    ),
    Route("GET", "/v1/rules/{name}", changes.rule, "One rule.", "RuleStanding", errors=(404, 503)),
    Route(
        "PUT", "/v1/rules/{name}", changes.rule_put,
        "Put a rule in the place of the one of this name, counting from 0.", "RuleStanding", (), _RULE, (200, 201),
        (422, 503),
    ),
    Route(
        "GET", "/v1/rules/{name}/hits", changes.rule_hits,
        "The newest hits of a rule, oldest first, each with the number of its exchange.", "RuleHits",
        (QueryParameter("since", "integer", "Only hits behind this one.", bounds=HITS_SEEN), _LIMIT), errors=(404, 422, 503),
    ),
    Route("DELETE", "/v1/rules/{name}", changes.rule_remove, "Remove a rule.", "Removed", errors=(404, 503)),
    Route("POST", "/v1/rules/{name}/enable", changes.rule_enable, "Switch a rule on.", "RuleStanding", errors=(404, 503)),
    Route("POST", "/v1/rules/{name}/disable", changes.rule_disable, "Switch a rule off.", "RuleStanding", errors=(404, 503)),
    Route(
        "POST", "/v1/rules/{name}/wait", changes.rule_wait, "Wait until a rule has so many hits in all.", "Waited",
        (QueryParameter("hits", "integer", "How many.", bounds=HITS), QueryParameter("timeout", "number", "Seconds.", bounds=HITS_TIMEOUT)),
        errors=(404, 422, 503),
    ),
    Route("GET", "/v1/recording", changes.recording, "Whether and where something is recorded.", "Recording", errors=(503,)),
    Route(
        "POST", "/v1/recording/start", changes.recording_start,
        "Begin to record into a directory of the proxy's machine.", "Recording", (),
        RequestBody("RecordingAsked", "Where to."), errors=(409, 422, 503),
    ),
    Route("POST", "/v1/recording/stop", changes.recording_stop, "End the recording.", "Recording", errors=(404, 503)),
    Route(
        "POST", "/v1/recording/rotate", changes.recording_rotate, "End the segment and go on in the next one.",
        "Recording", errors=(404, 503),
    ),
    Route(
        "POST", "/v1/recording/flight", changes.recording_flight,
        "Write out what the flight recorder holds, and what follows for a while.", "FlightBegun", (),
        RequestBody("FlightAsked", "A label, and why.", False), (200, 202), (404, 422, 503),
    ),
    Route("GET", "/v1/intercepts", changes.intercepts, "What is held.", "InterceptList", errors=(503,)),
    Route("POST", "/v1/intercepts", changes.intercept_add, "Hold frames for a decision.", "Intercept", (), _HOLD, (201,), (422, 503)),
    Route(
        "POST", "/v1/intercepts/{id}/renew", changes.intercept_renew, "The lease of an intercept begins anew.",
        "Renewed", errors=(404,),
    ),
    Route(
        "DELETE", "/v1/intercepts/{id}", changes.intercept_remove, "Hold these no longer; what waits goes on.",
        "Removed", errors=(404, 503),
    ),
    Route("GET", "/v1/held", changes.held, "Frames that wait for a decision.", "HeldList", (_WAIT, _BODIES), errors=(422,)),
    Route("GET", "/v1/held/{id}", changes.held_one, "A frame that waits, decoded, with its bytes.", "Held", errors=(404,)),
    Route(
        "POST", "/v1/held/{id}/resume", changes.held_resume, "Let a frame go on, edited or as it came.", "Decided", (),
        _RESUME, errors=(404, 422, 503),
    ),
    Route(
        "POST", "/v1/held/{id}/drop", changes.held_drop,
        "Answer with an error instead of a frame, close its connection, or let nothing come of it.", "Decided", (),
        _DROP, errors=(404, 422, 503),
    ),
    Route(
        "POST", "/v1/held/{id}/extend", changes.held_extend, "Hold a frame for longer.", "Held", (), _EXTEND,
        errors=(404, 422, 503),
    ),
    Route("POST", "/v1/shutdown", changes.shutdown, "Stop the proxy: responses in flight still arrive.", "Stopping", (), None, (202,)),
)


OPEN = frozenset(("/healthz", "/healthz/live"))
"""What needs no token: probes have none."""


def described() -> Json:
    """The OpenAPI description without a proxy."""
    from .... import __version__

    return openapi.document(ROUTES, __version__)
