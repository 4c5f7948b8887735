"""Every endpoint: method, path, handler, parameters, bodies and answers. The OpenAPI description is made from these."""

from __future__ import annotations

from aiohttp import web

from ...processes.control_messages import Json
from . import changes, openapi, views
from .api import Api, answer
from .bounds import CURSOR, HITS, HITS_SEEN, HITS_TIMEOUT, LIMIT, WAIT
from .openapi import QueryParameter, RequestBody, Route

_FILTER = QueryParameter("filter", "string", "A filter in the filter language (default: all exchanges).")
_ZONE = QueryParameter("zone", "string", "The time zone of times without an offset in the filter, such as Europe/Berlin (default UTC).")
_SINCE = QueryParameter("since", "integer", "A cursor (`next` of the last answer): return only newer items.", bounds=CURSOR)
_LIMIT = QueryParameter("limit", "integer", "Maximum number of items in one answer.", bounds=LIMIT)
_WAIT = QueryParameter("wait", "number", "Wait up to this many seconds for new items.", bounds=WAIT)
_BODIES = QueryParameter("bodies", "boolean", "Include decoded requests and responses.")
_KINDS = QueryParameter("kinds", "string", "Names of events, separated by commas (default: all).")
_LAST = QueryParameter("Last-Event-ID", "string", "The id of the last event that was read: the stream continues after it.", "header")


async def _described(api: Api, request: web.Request) -> web.Response:
    return answer(openapi.document(ROUTES, api.info.version))


_RULES = RequestBody("Rules", "A rule, a list of rules, or a whole rules file; JSON or YAML.")
_RULE = RequestBody("Rule", "One rule; its name is the one in the path.")
_HOLD = RequestBody("InterceptAsked", "What to hold; only requests if neither side is given.")
_RESUME = RequestBody("Resume", "Empty: forward the frame unchanged. `edits`: fields by their paths. `body`: top-level fields.", False)
_DROP = RequestBody("Drop", "An error for the client, the end of its connection, or silence.")
_EXTEND = RequestBody("Extend", "How long.", False)

ROUTES: tuple[Route, ...] = (
    Route("GET", "/openapi.json", _described, "This description.", "Any"),
    Route("GET", "/healthz", views.ready, "Check whether all processes of the proxy run; 503 if not. Needs no token.", "Health", errors=(503,)),
    Route("GET", "/healthz/live", views.live, "Check whether clients are served; 503 if not. Needs no token.", "Health", errors=(503,)),
    Route("GET", "/metrics", views.metrics, "Metrics for Prometheus, if the proxy keeps any.", "text/plain", errors=(404, 503)),
    Route("GET", "/v1/status", views.status, "The state of the proxy.", "Status"),
    Route("GET", "/v1/brokers", views.brokers, "Brokers and their listeners.", "Brokers", errors=(503,)),
    Route(
        "PUT", "/v1/brokers/down", changes.brokers_down,
        "Keep exactly these brokers down: their connections are closed and new ones refused.", "BrokersDown", (),
        RequestBody("BrokersDown", "Their addresses, as `GET /v1/brokers` lists them; an empty list brings all brokers back up."),
        errors=(422, 503),
    ),
    Route("GET", "/v1/plugins", views.plugins, "Plugins, their state and their errors.", "Plugins", errors=(503,)),
    Route("GET", "/v1/connections", views.connections, "Open connections.", "Connections", errors=(503,)),
    Route(
        "DELETE", "/v1/connections/{connection}", changes.close_connection, "Close both sides of a connection.",
        "Closed", (QueryParameter("how", "string", "fin (default) or rst.", choice=("fin", "rst")),), errors=(404, 422, 503),
    ),
    Route(
        "GET", "/v1/exchanges", views.exchanges, "Finished exchanges, oldest first: the newest, or those after a cursor.", "Exchanges",
        (_FILTER, _ZONE, _SINCE, _LIMIT, _WAIT, _BODIES), errors=(422, 503),
    ),
    Route("GET", "/v1/exchanges/pending", views.pending, "Requests that wait for their responses.", "Pending", errors=(503,)),
    Route(
        "GET", "/v1/exchanges/stream", views.exchanges_stream,
        "Exchanges as they finish, as server-sent events `exchange`; an event `lost` if some were missed.",
        "text/event-stream", (_FILTER, _ZONE, _SINCE, _BODIES, _LAST), errors=(422, 503),
    ),
    Route("GET", "/v1/exchanges/{id}", views.exchange, "One exchange in full.", "Exchange", errors=(404, 503)),
    Route("GET", "/v1/findings", views.findings, "Problems found in the traffic.", "Findings", errors=(503,)),
    Route(
        "GET", "/v1/events", views.events, "Past events of the proxy, oldest first.", "Events",
        (_SINCE, _LIMIT, _WAIT, _KINDS), errors=(422,),
    ),
    Route(
        "GET", "/v1/events/stream", views.events_stream,
        "The proxy's events as they happen, as server-sent events by their names.", "text/event-stream",
        (_SINCE, _KINDS, _LAST), errors=(422,),
    ),
    Route("GET", "/v1/rules", changes.rules, "All rules and their hits.", "RuleList", errors=(503,)),
    Route("POST", "/v1/rules", changes.rules_add, "Add rules after the others.", "RuleList", (), _RULES, (201,), (409, 422, 503)),
    Route(
        "PUT", "/v1/rules", changes.rules_replace, "Replace all rules with these; unchanged rules keep their counts.",
        "RuleList", (), _RULES, errors=(422, 503),
    ),
    Route("GET", "/v1/rules/{name}", changes.rule, "One rule.", "RuleStanding", errors=(404, 503)),
    Route(
        "PUT", "/v1/rules/{name}", changes.rule_put,
        "Replace the rule of this name; its counts start at 0.", "RuleStanding", (), _RULE, (200, 201),
        (422, 503),
    ),
    Route(
        "GET", "/v1/rules/{name}/hits", changes.rule_hits,
        "The newest hits of a rule, oldest first, each with the number of its exchange.", "RuleHits",
        (QueryParameter("since", "integer", "Only hits after this one.", bounds=HITS_SEEN), _LIMIT), errors=(404, 422, 503),
    ),
    Route("DELETE", "/v1/rules/{name}", changes.rule_remove, "Remove a rule.", "Removed", errors=(404, 503)),
    Route("POST", "/v1/rules/{name}/enable", changes.rule_enable, "Enable a rule.", "RuleStanding", errors=(404, 503)),
    Route("POST", "/v1/rules/{name}/disable", changes.rule_disable, "Disable a rule.", "RuleStanding", errors=(404, 503)),
    Route(
        "POST", "/v1/rules/{name}/wait", changes.rule_wait, "Wait until a rule has this many hits in total.", "Waited",
        (QueryParameter("hits", "integer", "Number of hits.", bounds=HITS), QueryParameter("timeout", "number", "Seconds.", bounds=HITS_TIMEOUT)),
        errors=(404, 422, 503),
    ),
    Route("GET", "/v1/recording", changes.recording, "The state of the recording.", "Recording", errors=(503,)),
    Route(
        "POST", "/v1/recording/start", changes.recording_start,
        "Start recording into a directory on the proxy's machine.", "Recording", (),
        RequestBody("RecordingAsked", "The directory, and limits."), errors=(409, 422, 503),
    ),
    Route("POST", "/v1/recording/stop", changes.recording_stop, "Stop recording.", "Recording", errors=(404, 503)),
    Route(
        "POST", "/v1/recording/rotate", changes.recording_rotate, "Close the segment and start the next.",
        "Recording", errors=(404, 503),
    ),
    Route(
        "POST", "/v1/recording/flight", changes.recording_flight,
        "Write a flight recording: the traffic kept so far, and what follows shortly after.", "FlightBegun", (),
        RequestBody("FlightAsked", "A label, and a reason.", False), (200, 202), (404, 422, 503),
    ),
    Route("GET", "/v1/intercepts", changes.intercepts, "Active intercepts.", "InterceptList", errors=(503,)),
    Route("POST", "/v1/intercepts", changes.intercept_add, "Hold frames for a decision.", "Intercept", (), _HOLD, (201,), (422, 503)),
    Route(
        "POST", "/v1/intercepts/{id}/renew", changes.intercept_renew, "Renew the lease of an intercept.",
        "Renewed", errors=(404,),
    ),
    Route(
        "DELETE", "/v1/intercepts/{id}", changes.intercept_remove, "Remove an intercept; frames it holds are forwarded.",
        "Removed", errors=(404, 503),
    ),
    Route("GET", "/v1/held", changes.held, "Frames that wait for a decision.", "HeldList", (_WAIT, _BODIES), errors=(422,)),
    Route("GET", "/v1/held/{id}", changes.held_one, "A held frame, decoded, with its bytes.", "Held", errors=(404,)),
    Route(
        "POST", "/v1/held/{id}/resume", changes.held_resume, "Forward a frame, edited or unchanged.", "Decided", (),
        _RESUME, errors=(404, 422, 503),
    ),
    Route(
        "POST", "/v1/held/{id}/drop", changes.held_drop,
        "Answer with an error instead of a frame, close its connection, or discard it silently.", "Decided", (),
        _DROP, errors=(404, 422, 503),
    ),
    Route(
        "POST", "/v1/held/{id}/extend", changes.held_extend, "Hold a frame for longer.", "Held", (), _EXTEND,
        errors=(404, 422, 503),
    ),
    Route("POST", "/v1/shutdown", changes.shutdown, "Stop the proxy; responses in flight are still delivered.", "Stopping", (), None, (202,)),
)


OPEN = frozenset(("/healthz", "/healthz/live"))
"""What needs no token: probes have none."""


def described() -> Json:
    """The OpenAPI description without a proxy."""
    from .... import __version__

    return openapi.document(ROUTES, __version__)
