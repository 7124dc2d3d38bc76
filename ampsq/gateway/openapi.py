"""Requests that the gateway serves, as an OpenAPI 3.1 document.

WebSockets stand in it as the requests that open them.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from ampsq import __version__
from ampsq.protocol.limits import BATCH

__all__ = ["document"]

_TEXT: Final = {"type": "string"}
_HEADERS: Final = {"type": "object", "additionalProperties": _TEXT}
_ANY: Final[dict[str, Any]] = {}
_BODY: Final = {
    "data": {"description": "any JSON; written as the topic's message type says"},
    "base64": {**_TEXT, "contentEncoding": "base64", "description": "the body itself, instead of data"},
}
_KEY: Final = {
    "key": {
        **_TEXT,
        "description": "of an instance with partitions: its partition gets the message; default what the topic says",
    }
}
_EXPIRATION: Final = {"expiration": {**_TEXT, "description": "an interval, as 30s"}}
_PERSISTED: Final = {
    "persisted": {
        **_TEXT,
        "pattern": "^(memory|fsync|replicas=[1-9][0-9]{0,3})$",
        "description": "answered when it is there, and sync destinations have it",
    }
}
_ENVELOPE: Final = {
    "headers": _HEADERS,
    **_EXPIRATION,
    "delay": {**_TEXT, "description": "an interval, as 30s"},
    "at": {**_TEXT, "format": "date-time", "description": "when it is due, instead of delay"},
    "group": {**_TEXT, "description": "its group, in queues with groups, instead of what their group_by says"},
    **_PERSISTED,
}
_TOLD: Final = {
    "type": "object",
    "required": ["type", "topic", "bookmark"],
    "properties": {
        "type": _TEXT,
        "topic": _TEXT,
        "bookmark": {"type": ["string", "null"]},
        "headers": _HEADERS,
        "key": _TEXT,
        "reason": _TEXT,
        "deliveries": {"type": "integer"},
        **_BODY,
    },
}
_PROBLEM: Final = {
    "type": "object",
    "required": ["type", "error", "text"],
    "properties": {"type": {"const": "error"}, "error": _TEXT, "text": _TEXT},
}
_REFUSALS: Final = {
    400: "what was asked for is wrong, and the text says what is allowed",
    401: "no name and secret that are known",
    403: "the user is not entitled to it",
    404: "there is no such topic or queue, or no such address",
    405: "the address has other methods, which the text names",
    409: "refused by the state of the instance, or by what its server cannot do",
    410: "the log does not have it any more",
    413: "the request is too large",
    415: "the request is no application/json",
    421: "the request names a host that the gateway was not given",
    429: "the user has too many subscriptions or requests, or its address too many failed logins",
    500: "the gateway could not do it, and its log says why",
    503: "the server, or the gateway, cannot serve now",
    504: "no answer in time, or not persisted in time; what was published may have been recorded",
    507: "the server is full",
}


def _object(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": required, "additionalProperties": False, "properties": properties}


def _parameter(name: str, text: str, *, required: bool = False, schema: Any = None) -> dict[str, Any]:
    return {
        "name": name,
        "in": "query",
        "required": required,
        "description": text,
        "schema": schema or _TEXT,
    }


def _operation(summary: str, success: dict[str, Any], **others: Any) -> dict[str, Any]:
    refused = {"$ref": "#/components/responses/Refused"}
    return {"summary": summary, "responses": {**success, **{str(status): refused for status in _REFUSALS}}, **others}


def _answer(schema: dict[str, Any]) -> dict[str, Any]:
    return {"200": {"description": "done", "content": {"application/json": {"schema": schema}}}}


def _sent(schema: dict[str, Any]) -> dict[str, Any]:
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def _header(name: str, text: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": False, "description": text, "schema": _TEXT}


_MAYBE: Final = {"type": ["string", "null"], "description": "null: recorded before, and not found any more"}
_FLAG: Final = {"type": "boolean", "description": "whether it was done before"}
_ONCE: Final = [
    _header("Idempotency-Key", "what is sent again with the same key is done once"),
    _header("Ampsq-Publisher", "a publisher of the user's own, whose numbers rise"),
    _header("Ampsq-Sequence", "the number of the first message"),
]
_WHOLE: Final = {"type": "integer", "minimum": 1}
_FILTER: Final = _parameter("filter", "an expression; what the user is entitled to is added to it")
_TOPIC: Final = _parameter("topic", "a topic's name, in full")
_BOOKMARK: Final = _parameter(
    "bookmark", "where to begin: now (default), epoch, a bookmark, a position, a time, or a range of these"
)
_SWITCHES: Final = {"101": {"description": "a WebSocket; /asyncapi.json says what travels over it"}}
_PLAIN: Final = {"200": {"description": "it answers", "content": {"text/plain": {"schema": _TEXT}}}}
_DOCUMENT: Final = {"200": {"description": "the document", "content": {"application/json": {"schema": _ANY}}}}


def _paths() -> dict[str, Any]:
    one = _object(["topic"], topic=_TEXT, **_BODY, **_KEY, **_ENVELOPE)
    change = _object(
        ["topic", "data"], topic=_TEXT, data=_BODY["data"], **_KEY, headers=_HEADERS, **_EXPIRATION, **_PERSISTED
    )
    deletion = _object(
        ["topic"], topic=_TEXT, keys={"type": "array", "minItems": 1, "maxItems": BATCH}, filter=_TEXT, **_PERSISTED
    )
    recorded = _answer(_object(["bookmark"], bookmark=_MAYBE, duplicate=_FLAG))
    message = _object([], **_BODY, **_KEY)
    many = _object(
        ["topic", "messages"], topic=_TEXT, messages={"type": "array", "items": message}, **_KEY, **_ENVELOPE
    )
    order = _parameter("order_by", "an expression, behind which may stand DESC")
    top = _parameter("top_n", "how many at most", schema=_WHOLE)
    stream = {"200": {"description": "events", "content": {"text/event-stream": {"schema": _TEXT}}}}
    last = {"name": "Last-Event-ID", "in": "header", "description": "goes before bookmark", "schema": _TEXT}
    return {
        "/healthz": {"get": {"summary": "Whether the process answers.", "security": [], "responses": _PLAIN}},
        "/readyz": {
            "get": {
                "summary": "Whether the server behind the gateway answers.",
                "security": [],
                "responses": {
                    **_PLAIN,
                    "503": {"description": "it does not", "content": {"text/plain": {"schema": _TEXT}}},
                },
            }
        },
        "/openapi.json": {"get": {"summary": "This document.", "security": [], "responses": _DOCUMENT}},
        "/asyncapi.json": {
            "get": {"summary": "The frames of the WebSockets, as AsyncAPI.", "security": [], "responses": _DOCUMENT}
        },
        "/v1/publish": {"post": _operation("Record one message.", recorded, requestBody=_sent(one), parameters=_ONCE)},
        "/v1/delta_publish": {
            "post": _operation(
                "Record a change, merged into the record of its key.",
                recorded,
                requestBody=_sent(change),
                parameters=_ONCE,
            )
        },
        "/v1/sow_delete": {
            "post": _operation(
                "Delete records, of keys or all that match a filter, as far as the user may write them.",
                _answer(_object(["deleted"], deleted={"type": "integer"}, duplicate=_FLAG)),
                requestBody=_sent(deletion),
                parameters=_ONCE,
            )
        },
        "/v1/publish_many": {
            "post": _operation(
                "Record messages in their order.",
                _answer(
                    _object(["bookmarks"], bookmarks={"type": "array", "items": _MAYBE}, duplicates={"type": "integer"})
                ),
                requestBody=_sent(many),
                parameters=_ONCE,
            )
        },
        "/v1/sow": {
            "get": _operation(
                "Query the records of a topic with a key, the rows of a view, or what is available in a queue.",
                _answer(_object(["messages"], messages={"type": "array", "items": _TOLD})),
                parameters=[
                    _parameter("name", "the topic, view or queue", required=True),
                    _FILTER,
                    order,
                    top,
                    _parameter(
                        "skip_n", "how many of the first ones are left out", schema={"type": "integer", "minimum": 0}
                    ),
                ],
            )
        },
        "/v1/events": {
            "get": _operation("A topic as server-sent events.", stream, parameters=[_TOPIC, _FILTER, _BOOKMARK, last])
        },
        "/v1/subscribe": {
            "get": _operation(
                "Open a WebSocket: a queue with leases, or a topic.",
                _SWITCHES,
                parameters=[
                    _parameter("queue", "a queue's name, in full; or topic"),
                    _TOPIC,
                    _FILTER,
                    _BOOKMARK,
                    _parameter("max_backlog", "unacknowledged messages at most; of a queue default 1", schema=_WHOLE),
                    _parameter("sub_id", "of a topic: makes it durable under this name of the user's own"),
                ],
            )
        },
        "/v1/sow_and_subscribe": {
            "get": _operation(
                "Open a WebSocket: the records of a topic, then what changes them.",
                _SWITCHES,
                parameters=[
                    _TOPIC,
                    _FILTER,
                    order,
                    top,
                    _parameter("oof", "tell what leaves the view", schema={"enum": ["true", "false"]}),
                ],
            )
        },
    }


@cache
def document() -> dict[str, Any]:
    """The document."""
    refusals = "\n".join(f"- {status}: {text}" for status, text in _REFUSALS.items())
    return {
        "openapi": "3.1.0",
        "info": {"title": "ampsq gateway", "version": __version__},
        "externalDocs": {"url": "/asyncapi.json", "description": "the frames of the WebSockets, as AsyncAPI"},
        "security": [{"basic": []}, {"bearer": []}],
        "paths": _paths(),
        "components": {
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "bearer": {"type": "http", "scheme": "bearer", "description": "NAME:SECRET"},
            },
            "responses": {"Refused": {"description": refusals, "content": {"application/json": {"schema": _PROBLEM}}}},
        },
    }
