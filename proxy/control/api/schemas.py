"""What the control API's answers and requests hold, as JSON schemas by the names that the routes use."""

from __future__ import annotations

from typing import get_type_hints

from ...processes import control_messages as messages
from ...processes.control_messages import Json
from . import bodies
from .bodies import ADDRESS, BODIES
from .bounds import MOST_RULES

Schema = Json


def _object(required: Schema, optional: Schema | None = None, more: bool = False) -> Schema:
    return {
        "type": "object", "properties": required | (optional or {}), "required": list(required),
        "additionalProperties": more,
    }


def _list(of: Schema | str) -> Schema:
    return {"type": "array", "items": ref(of) if isinstance(of, str) else of}


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _or_null(kind: str) -> Schema:
    return {"type": [kind, "null"]}


def _of(kind: type, **special: Schema) -> Schema:
    """A dataclass; `special`: fields that have more limits than their types."""
    return _object(_properties(kind) | special)


def _properties(kind: type) -> dict[str, Schema]:
    return {name: _SCHEMA_OF.get(hint, OBJECT) for name, hint in get_type_hints(kind).items()}


TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
YES: Schema = {"type": "boolean"}
OBJECT: Schema = {"type": "object"}
_SCHEMA_OF: dict[object, Schema] = {
    bool: YES, int: WHOLE, float: NUMBER, str: TEXT, list[str]: _list(TEXT), int | None: _or_null("integer"), float | None: _or_null("number"),
    str | None: _or_null("string"), dict[str, int]: {"type": "object", "additionalProperties": WHOLE},
}  # fmt: skip

_EXCHANGE = {
    "id": WHOLE, "time_ns": _or_null("integer"), "connection": WHOLE, "client": TEXT, "broker": TEXT, "api": TEXT,
    "api_key": WHOLE, "api_version": WHOLE, "correlation_id": WHOLE, "client_id": _or_null("string"),
    "request_size": _or_null("integer"), "response_size": _or_null("integer"), "latency_ns": _or_null("integer"),
    "state": {"enum": ["paired", "no_response", "orphan", "pending"]}, "error": _or_null("string"),
    "undecoded": _or_null("string"), "request": _or_null("object"), "response": _or_null("object"),
}
_MORE_OF_EXCHANGE: Schema = {
    "notes": _list(TEXT), "changed": YES, "left_out": YES, "surplus_bytes": OBJECT, "embedded": OBJECT, "guess": OBJECT,
}
_HELD = {name: of for name, of in _properties(messages.HeldNotice).items() if name != "request_size"} | {
    "side": {"enum": ["request", "response"]}, "api": TEXT, "size": WHOLE, "remaining": NUMBER, "undecoded": _or_null("string"),
}
_MANY_RULES: Schema = _list("Rule") | {"maxItems": MOST_RULES}
_COUNTS = ("connections", "opened", "exchanges", "errors", "undecoded", "request_bytes", "response_bytes")
_LOST = ("observer_bytes", "observer_chunks", "inspector_bytes", "events")

_HOW = {"enum": ["fin", "rst"]}
SCHEMAS: dict[str, Schema] = {body.__name__: bodies.schema(body) for body in BODIES} | {
    "Plugin": _of(
        messages.PluginState,
        source=TEXT | {"description": "As given with --plugin."},
        state={"enum": ["running", "starting", "disabled", "gone"]},
        calls=WHOLE | {"description": "How often its hooks were called for a message or an event."},
    ),
    "Connection": _of(messages.ConnectionState),
    "Closed": _of(messages.ConnectionClosed, how=_HOW),
    "Finding": _of(messages.FindingState),
    "Findings": _object({"findings": _list("Finding")}),
    "RuleStanding": _of(messages.RuleState, origin={"enum": ["file", "api"]}, source=ref("Rule")),
    "RuleHitLine": _object(
        _properties(messages.Hit)
        | {
            "note": TEXT | {"description": "As in the exchange's `notes` and in recordings."},
            "exchange": _or_null("integer") | {"description": "Id for GET /v1/exchanges/{id}; null: not finished, or no longer kept."},
        }
    ),
    "Removed": _of(messages.Removed, removed={"type": ["string", "integer"]}),
    "Recording": _of(messages.RecordingState, flight={"anyOf": [ref("Flight"), {"type": "null"}]}),
    "Flight": _of(messages.FlightState),
    "FlightBegun": _of(messages.FlightBegun, flight=_or_null("string") | {"description": "The directory to be written; null: none."}),
    "Intercept": _of(messages.InterceptState),
    "Any": OBJECT,
    "Error": _object({"error": TEXT, "message": TEXT}, dict.fromkeys(("line", "column", "start", "end"), WHOLE)),
    "Process": _object({"alive": YES}, {"pid": WHOLE, "code": WHOLE}),
    "Status": _object(
        {
            "version": TEXT, "started_ns": WHOLE, "uptime": NUMBER, "upstream": ADDRESS, "listen": ADDRESS,
            "control": TEXT, "processes": {"type": "object", "additionalProperties": ref("Process")},
            "counts": _object(dict.fromkeys(_COUNTS, WHOLE)), "lost": _object(dict.fromkeys(_LOST, WHOLE)),
            "exchanges": _object(dict.fromkeys(("kept", "bytes", "oldest", "newest"), WHOLE)),
            "recording": {"anyOf": [ref("Recording"), {"type": "null"}]}, "rules": WHOLE, "held": WHOLE,
            "insecure": _list(TEXT),
        }
    ),
    "Brokers": _object(
        {"brokers": _list(_object({"node": WHOLE, "broker": ADDRESS, "listen": ADDRESS, "bootstrap": YES, "down": YES}))}
    ),
    "Plugins": _object({"plugins": _list("Plugin")}),
    "Connections": _object({"connections": _list("Connection")}),
    "Exchange": _object(_EXCHANGE, _MORE_OF_EXCHANGE),
    "Exchanges": _object({"exchanges": _list("Exchange"), "next": WHOLE, "lost": WHOLE, "more": YES, "pending": _list("InFlight")}),
    "InFlight": _object({k: v for k, v in _EXCHANGE.items() if k != "id"} | {"pending_ns": WHOLE}, _MORE_OF_EXCHANGE),
    "Pending": _object({"exchanges": _list("InFlight")}),
    "Event": _object({"id": WHOLE, "time_ns": WHOLE, "event": TEXT, "text": TEXT, "warning": YES}, more=True),
    "Events": _object({"events": _list("Event"), "next": WHOLE, "lost": WHOLE}),
    "Rule": _object({"match": TEXT, "do": OBJECT}, {"name": TEXT, "when": OBJECT}, more=True),
    "Rules": {"anyOf": [ref("Rule"), _MANY_RULES, _object({"rules": _MANY_RULES})]},
    "RuleList": _object({"rules": _list("RuleStanding")}),
    "RuleHits": _object(
        {
            "name": TEXT,
            "total": WHOLE | {"description": "How often the rule has fired in total; the newest 1,000 hits are kept."},
            "hits": _list("RuleHitLine"),
        }
    ),
    "Waited": _object({"name": TEXT, "hits": WHOLE, "reached": YES}),
    "InterceptList": _object({"intercepts": _list("Intercept")}),
    "Renewed": _object({"id": WHOLE, "lease": NUMBER}),
    "Held": _object(
        _HELD,
        {
            "body": _or_null("object"),
            "frame": TEXT | {"description": "Only with /v1/held/{id}: its bytes without the size, in hexadecimal; secrets are masked."},
            "hidden": _list(_list(WHOLE))
            | {"description": "Start and end of record contents in `frame`, which are masked there with `2a`."},
        },
    ),
    "HeldList": _object({"held": _list("Held")}),
    "Decided": _object({"id": WHOLE, "done": {"enum": ["resumed", "edited", "answered", "closed", "dropped"]}}),
    "Stopping": _object({"stopping": YES}),
    "Health": _object({"live": YES, "ready": YES, "down": {"type": "array", "items": TEXT}}),
}
