"""What the control API's answers and requests hold, as JSON schemas by the names that the routes use."""

from __future__ import annotations

from typing import Any

from .bounds import HOLD_TIMEOUT, LEASE, LONGEST_TEXT, MOST_DOWN, MOST_HELD, MOST_RULES, SECONDS, SIZE, TIMES

Schema = dict[str, Any]


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


TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
SHORT_TEXT: Schema = {"type": "string", "maxLength": LONGEST_TEXT}
YES: Schema = {"type": "boolean"}
OBJECT: Schema = {"type": "object"}
ADDRESS: Schema = {"type": "array", "prefixItems": [TEXT, WHOLE], "minItems": 2, "maxItems": 2}

_EXCHANGE = {
    "id": WHOLE, "time_ns": _or_null("integer"), "conn": WHOLE, "client": TEXT, "broker": TEXT, "api": TEXT,
    "api_key": WHOLE, "api_version": WHOLE, "correlation_id": WHOLE, "client_id": _or_null("string"),
    "request_size": _or_null("integer"), "response_size": _or_null("integer"), "latency_ns": _or_null("integer"),
    "state": {"enum": ["paired", "no_response", "orphan", "pending"]}, "error": _or_null("string"),
    "undecoded": _or_null("string"), "request": _or_null("object"), "response": _or_null("object"),
}
_MORE_OF_EXCHANGE: Schema = {
    "notes": _list(TEXT), "changed": YES, "left_out": YES, "surplus_bytes": OBJECT, "embedded": OBJECT, "guess": OBJECT,
}
_HELD = {
    "id": WHOLE, "intercept": WHOLE, "connection": WHOLE, "client": TEXT, "broker": TEXT,
    "side": {"enum": ["request", "response"]}, "api": TEXT, "api_key": WHOLE, "api_version": WHOLE,
    "correlation_id": WHOLE, "client_id": _or_null("string"), "time_ns": WHOLE, "timeout": NUMBER, "remaining": NUMBER,
    "size": WHOLE, "undecoded": _or_null("string"),
}
_MANY_RULES: Schema = _list("Rule") | {"maxItems": MOST_RULES}
_COUNTS = ("connections", "opened", "exchanges", "errors", "undecoded", "request_bytes", "response_bytes")
_LOST = ("observer_bytes", "observer_chunks", "inspector_bytes", "events")

SCHEMAS: dict[str, Schema] = {
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
    "BrokersDown": _object({"brokers": _list(ADDRESS) | {"maxItems": MOST_DOWN}}),
    "Plugins": _object({"plugins": _list("Plugin")}),
    "Plugin": _object(
        {
            "name": TEXT, "source": TEXT | {"description": "As it was given with --plugin."}, "hooks": _list(TEXT),
            "state": {"enum": ["running", "starting", "disabled", "gone"]},
            "calls": WHOLE | {"description": "How often its hooks were called for a message or an event."},
            "faults": WHOLE, "last_fault": _or_null("string"),
        }
    ),
    "Connection": _object(
        {
            "connection": WHOLE, "client": TEXT, "broker": TEXT, "opened_ns": WHOLE, "last_ns": WHOLE,
            "request_bytes": WHOLE, "response_bytes": WHOLE, "exchanges": WHOLE, "client_id": _or_null("string"),
            "software": _or_null("string"),
        }
    ),
    "Connections": _object({"connections": _list("Connection")}),
    "Closed": _object({"closed": WHOLE, "how": {"enum": ["fin", "rst"]}}),
    "Exchange": _object(_EXCHANGE, _MORE_OF_EXCHANGE),
    "Exchanges": _object({"exchanges": _list("Exchange"), "next": WHOLE, "lost": WHOLE, "more": YES}),
    "Pending": _object(
        {
            "exchanges": _list(
                _object({k: v for k, v in _EXCHANGE.items() if k != "id"} | {"pending_ns": WHOLE}, _MORE_OF_EXCHANGE)
            )
        }
    ),
    "Findings": _object(
        {
            "findings": _list(
                _object(dict.fromkeys(("id", "severity", "seen", "why", "remedy"), TEXT)
                    | {"count": WHOLE, "about": OBJECT, "injected": YES, "rules": _list(TEXT)})
            )
        }
    ),
    "Event": _object({"id": WHOLE, "time_ns": WHOLE, "event": TEXT, "text": TEXT, "warning": YES}, more=True),
    "Events": _object({"events": _list("Event"), "next": WHOLE, "lost": WHOLE}),
    "Rule": _object({"match": TEXT, "do": OBJECT}, {"name": TEXT, "when": OBJECT}, more=True),
    "Rules": {"anyOf": [ref("Rule"), _MANY_RULES, _object({"rules": _MANY_RULES})]},
    "RuleStanding": _object(
        {"name": TEXT, "enabled": YES, "matched": WHOLE, "hits": WHOLE, "origin": {"enum": ["file", "api"]}, "source": ref("Rule")}
    ),
    "RuleList": _object({"rules": _list("RuleStanding")}),
    "RuleHits": _object(
        {
            "name": TEXT,
            "total": WHOLE | {"description": "How often the rule has fired in all; the newest 1,000 hits are kept."},
            "hits": _list("RuleHitLine"),
        }
    ),
    "RuleHitLine": _object(
        {
            "hit": WHOLE, "time_ns": WHOLE, "connection": WHOLE, "client": TEXT, "client_id": _or_null("string"),
            "broker": TEXT, "api_key": WHOLE, "api": TEXT, "api_version": WHOLE, "correlation_id": WHOLE,
            "done": {"type": "array", "items": TEXT},
            "note": TEXT | {"description": "As it stands in the exchange's `notes` and in recordings."},
            "exchange": _or_null("integer") | {"description": "Of GET /v1/exchanges/{id}; null: not finished, or gone."},
        }
    ),
    "Removed": _object({"removed": {"type": ["string", "integer"]}}),
    "Waited": _object({"name": TEXT, "hits": WHOLE, "reached": YES}),
    "Recording": _object(
        {
            "recording": YES, "directory": _or_null("string"), "segment": _or_null("string"), "paused": YES,
            "trouble": _or_null("string"), "counts": {"type": "object", "additionalProperties": WHOLE},
        },
        {"flight": {"anyOf": [ref("Flight"), {"type": "null"}]}},
    ),
    "RecordingAsked": _object(
        {"directory": TEXT | {"description": "An absolute path; made if it is not there."}},
        {
            "rotate_bytes": SIZE.schema("integer") | {"description": "Size of a segment; as the proxy was started, if not said."},
            "rotate_seconds": SECONDS.schema("number"),
            "keep_bytes": SIZE.schema("integer") | {"description": "The oldest segments are removed when all are larger."},
            "keep_seconds": SECONDS.schema("number") | {"description": "Segments are removed when they are older."},
        },
    ),
    "Flight": _object(
        {
            "directory": TEXT, "seconds": _or_null("number"), "bytes": _or_null("integer"), "after": NUMBER,
            "written": WHOLE, "counted": WHOLE, "writing": _or_null("string"),
        }
    ),
    "FlightAsked": _object(
        {},
        {
            "label": SHORT_TEXT | {"description": "What its name begins with."},
            "reason": SHORT_TEXT | {"description": "Kept with it."},
        },
    ),
    "FlightBegun": _object(
        {"flight": _or_null("string") | {"description": "The directory that it will be; null: none."}, "text": TEXT}
    ),
    "Intercept": _object(
        {
            "id": WHOLE,
            "filter": TEXT,
            "zone": TEXT,
            "request": YES,
            "response": YES,
            "timeout": NUMBER,
            "most": WHOLE,
            "times_left": _or_null("integer"),
            "held": WHOLE,
            "passed": WHOLE,
            "failed": _or_null("string"),
        }
    ),
    "InterceptList": _object({"intercepts": _list("Intercept")}),
    "InterceptAsked": _object(
        {"filter": TEXT | {"description": "The filter language; for requests one that needs no response."}},
        {
            "zone": SHORT_TEXT | {"description": "The zone of its times without an offset, such as Europe/Berlin (default: UTC)."},
            "request": YES | {"description": "Hold requests before they are forwarded."},
            "response": YES | {"description": "Hold responses before they are delivered."},
            "timeout": HOLD_TIMEOUT.schema("number") | {"description": "Seconds after which a frame goes on as it came."},
            "most": MOST_HELD.schema("integer") | {"description": "Most frames at one time; others pass."},
            "times": TIMES.schema("integer") | {"description": "Hold so many in all (default: no end)."},
            "lease": LEASE.schema("number") | {"description": "Seconds after which it ends unless it is renewed (default: no end)."},
        },
    ),
    "Renewed": _object({"id": WHOLE, "lease": NUMBER}),
    "Held": _object(
        _HELD,
        {
            "body": _or_null("object"),
            "frame": TEXT | {"description": "Of /v1/held/{id}: its bytes without the size, in hexadecimal; secrets are masked."},
            "hidden": _list(_list(WHOLE))
            | {"description": "Start and end of what records say in `frame`, and is covered there by `2a`."},
        },
    ),
    "HeldList": _object({"held": _list("Held")}),
    "Resume": _object({}, {"edits": OBJECT, "body": OBJECT}),
    "Drop": _object(
        {},
        {
            "error": TEXT | {"description": "A Kafka error code's name."}, "close": {"enum": ["fin", "rst"]},
            "silent": {"const": True, "description": "It goes nowhere, and nothing comes instead."},
        },
    ),
    "Extend": _object({}, {"timeout": HOLD_TIMEOUT.schema("number") | {"description": "Seconds from now on."}}),
    "Decided": _object({"id": WHOLE, "done": {"enum": ["resumed", "edited", "answered", "closed", "dropped"]}}),
    "Stopping": _object({"stopping": YES}),
    "Health": _object({"live": YES, "ready": YES, "down": {"type": "array", "items": TEXT}}),
}
