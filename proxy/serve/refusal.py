"""The error for a request that the recording cannot answer, with the reason where the response has a field for it."""

from __future__ import annotations

from typing import Any

from ... import decoder
from ...decoder.codec.message import Message
from ...decoder.schema import facts
from ...plugins.answers.responses import error_response

UNKNOWN_SERVER_ERROR = facts.error_code("UNKNOWN_SERVER_ERROR")


def refusal(request: Message, correlation_id: int, reason: str) -> bytes | None:
    """The response frame; None if this API has no place for an error (the connection is closed then)."""
    frame = error_response(request, UNKNOWN_SERVER_ERROR, correlation_id)
    message = decoder.decode_response(frame, api_key=request.api_key, api_version=request.api_version)
    fields = message.to_dict()
    if not any(True for _ in message.errors()) and not _fail_each(request, message, fields):
        return None
    _explain(fields, reason)
    return decoder.encode_response(request.api_key, request.api_version, fields, correlation_id=correlation_id)


def _fail_each(request: Message, response: Message, fields: dict[str, Any]) -> bool:
    """Add an entry with the error for each name that the request has in a plain list (such as groups to describe)."""
    for asked in request.plan.root.fields:
        if not asked.array or asked.type != "string" or asked.entity is None:
            continue
        for field in response.plan.root.fields:
            inside = field.struct.fields if field.array and field.struct is not None else ()
            name = next((f.name for f in inside if f.entity == asked.entity and not f.array), None)
            if name is not None and any(f.name == "error_code" for f in inside):
                names = request.to_dict()[asked.name] or ()
                fields[field.name] = [
                    {name: each, "error_code": UNKNOWN_SERVER_ERROR}
                    | ({"error_message": ""} if any(f.name == "error_message" for f in inside) else {})
                    for each in names
                ]
                return bool(names)
    return False


def _explain(fields: dict[str, Any], reason: str) -> None:
    if fields.get("error_code") and "error_message" in fields:
        fields["error_message"] = reason
    for value in fields.values():
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, dict):
                _explain(item, reason)
