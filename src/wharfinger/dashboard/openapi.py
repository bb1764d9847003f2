"""The OpenAPI document of the endpoints."""

from __future__ import annotations

import re
from collections.abc import Iterable

import wharfinger
from wharfinger.api.registry import Document
from wharfinger.dashboard.endpoints import Endpoint

_STATUS = {
    "type": "object",
    "properties": {"kind": {"const": "Status"}, "code": {"type": "integer"}, "message": {"type": "string"}},
}


def openapi(endpoints: Iterable[Endpoint]) -> Document:
    paths: dict[str, Document] = {}
    for each in endpoints:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Wharfinger dashboard",
            "version": wharfinger.__version__,
            "description": "What waits and why, what is promised, and what would happen if. Every answer holds only what "
            "the caller may list.",
        },
        "security": [{"bearer": []}, {"session": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": "wharf-session"},
            },
            "schemas": {"Status": _STATUS},
        },
    }


def _operation(each: Endpoint) -> Document:
    in_path = re.findall(r"\{(\w+)\}", each.path)
    parameters = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in in_path]
    parameters += [
        {"name": name, "in": "query", "description": text, "schema": {"type": "string"}}
        for name, text in each.parameters.items()
    ]
    media = "text/event-stream" if each.path == "/api/changes" else "application/json"
    error = {
        "description": "an error",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Status"}}},
    }
    operation: Document = {
        "summary": each.summary,
        "operationId": f"{each.method.lower()}{re.sub('[^A-Za-z]+', ' ', each.path).title().replace(' ', '')}",
        "responses": {"200": {"description": "the answer", "content": {media: {}}}, "default": error},
    }
    if parameters:
        operation["parameters"] = parameters
    if each.body is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": dict(each.body)}}}
    return operation
