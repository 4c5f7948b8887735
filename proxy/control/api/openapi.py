"""The OpenAPI 3.1 description of the control API, from its routes and the schemas of what they give."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from .api import Handler
from .bounds import LINE, NUMBER_IN_PATH, Bounds
from .schemas import SCHEMAS, Schema, ref


@dataclass(frozen=True, slots=True)
class QueryParameter:
    """A parameter of a request. `bounds`: of a number; `choice`: what a text may be, if not anything."""

    name: str
    type: str
    text: str
    place: str = "query"
    bounds: Bounds | None = None
    choice: tuple[str, ...] = ()

    def schema(self) -> Schema:
        if self.bounds is not None:
            return self.bounds.schema(self.type)
        if self.type == "string":
            return {"type": "string", "enum": list(self.choice)} if self.choice else {"type": "string", "maxLength": LINE}
        return {"type": self.type}


@dataclass(frozen=True, slots=True)
class RequestBody:
    """What a request's body holds: the name of a schema."""

    schema: str
    text: str
    required: bool = True


ERRORS = {
    400: "The body cannot be read.",
    401: "The token is missing or wrong.",
    403: "The request comes from a web page, or names another host.",
    404: "Nothing has this name or number (any more).",
    405: "The method is not allowed.",
    409: "It already exists.",
    413: "The body is too large.",
    422: "The request is invalid; `message` gives the reason, `line` and `column` or `start` and `end` the position.",
    500: "An internal error.",
    503: "The process that must answer is not running, or has too many requests.",
}


@dataclass(frozen=True, slots=True)
class Route:
    """One endpoint. `gives`: the name of the answer's schema in `schemas.SCHEMAS`, or a media type with a slash."""

    method: str
    path: str
    handler: Handler
    summary: str
    gives: str
    queries: tuple[QueryParameter, ...] = ()
    body: RequestBody | None = None
    status: tuple[int, ...] = (200,)
    errors: tuple[int, ...] = ()


def document(routes: Iterable[Route], version: str) -> Schema:
    """The whole description."""
    paths: dict[str, Schema] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Barnabas control API",
            "version": version,
            "description": "Inspect and control a running proxy. Loopback and Unix sockets only.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {"schemas": SCHEMAS, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


def _operation(route: Route) -> Schema:
    content = {route.gives: {}} if "/" in route.gives else {"application/json": {"schema": ref(route.gives)}}
    responses = {str(status): {"description": "Done.", "content": content} for status in route.status}
    wrong = {"application/json": {"schema": ref("Error")}}
    body_errors = (400, 413) if route.body is not None else ()
    for status in sorted({401, 403, 500, *route.errors, *body_errors}):
        responses[str(status)] = {"description": ERRORS[status], "content": wrong}
    operation: Schema = {
        "operationId": route.handler.__name__.strip("_"),
        "summary": route.summary,
        "responses": responses,
    }
    parameters: list[Schema] = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string", "maxLength": LINE} if name == "name" else NUMBER_IN_PATH.schema("integer"),
        }
        for name in re.findall(r"{(\w+)}", route.path)
    ]
    parameters += [
        {"name": query.name, "in": query.place, "description": query.text, "schema": query.schema()}
        for query in route.queries
    ]
    if parameters:
        operation["parameters"] = parameters
    if route.body is not None:
        kinds = ["application/json"] + (["application/yaml"] if route.body.schema.startswith("Rule") else [])
        operation["requestBody"] = {
            "description": route.body.text,
            "required": route.body.required,
            "content": {kind: {"schema": ref(route.body.schema)} for kind in kinds},
        }
    return operation
