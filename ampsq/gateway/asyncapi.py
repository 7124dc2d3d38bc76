"""Messages over the WebSockets, as an AsyncAPI 3 document made of the models that check them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from pydantic.json_schema import models_json_schema

from ampsq import __version__
from ampsq.gateway.frames import SENT, Ack, Cancel, Expire, Extend, Handled

if TYPE_CHECKING:
    from pydantic import BaseModel

__all__ = ["frames_document"]

_TEXT: Final = {"type": "string"}
_WHOLE: Final = {"type": "integer", "minimum": 1}
_FILTER: Final = {**_TEXT, "description": "an expression; what the user is entitled to is added to it"}
_BOOKMARK: Final = {**_TEXT, "description": "now (default), epoch, a bookmark, a position, a time, or a range"}
_SAID: Final[dict[str, tuple[type[BaseModel], ...]]] = {
    "queue": (Ack, Cancel, Expire, Extend),
    "durable": (Handled,),
}
#: Address, what it is, and the parameters of each channel; those that are required first.
_CHANNELS: Final[dict[str, tuple[str, str, str, dict[str, Any]]]] = {
    "queue": (
        "/v1/subscribe",
        "A queue, whose messages are leased until they are settled.",
        "queue",
        {"queue": _TEXT, "filter": _FILTER, "max_backlog": _WHOLE},
    ),
    "topic": (
        "/v1/subscribe",
        "A topic, live or replayed.",
        "topic",
        {"topic": _TEXT, "filter": _FILTER, "bookmark": _BOOKMARK},
    ),
    "durable": (
        "/v1/subscribe",
        "A topic, durably: what was handled is kept at the server.",
        "topic sub_id",
        {"topic": _TEXT, "sub_id": _TEXT, "filter": _FILTER, "bookmark": _BOOKMARK, "max_backlog": _WHOLE},
    ),
    "records": (
        "/v1/sow_and_subscribe",
        "The records of a topic, then what changes them.",
        "topic",
        {
            "topic": _TEXT,
            "filter": _FILTER,
            "order_by": _TEXT,
            "top_n": _WHOLE,
            "oof": {"enum": ["true", "false"], "description": "tell what leaves the view"},
        },
    ),
}


def _to(*parts: str) -> dict[str, str]:
    return {"$ref": "/".join(("#", *parts))}


def _channel(name: str) -> dict[str, Any]:
    address, what, required, query = _CHANNELS[name]
    messages = (*SENT[name], *_SAID.get(name, ()))
    return {
        "address": address,
        "description": what,
        "messages": {each.__name__: _to("components", "messages", each.__name__) for each in messages},
        "bindings": {
            "ws": {
                "method": "GET",
                "query": {
                    "type": "object",
                    "required": required.split(),
                    "properties": query,
                    "additionalProperties": False,
                },
            }
        },
    }


def _operation(action: str, channel: str, models: tuple[type[BaseModel], ...]) -> dict[str, Any]:
    return {
        "action": action,
        "channel": _to("channels", channel),
        "messages": [_to("channels", channel, "messages", each.__name__) for each in models],
    }


def _operations() -> dict[str, Any]:
    # Named from where the gateway stands: it sends, and receives.
    found = {f"tell_{name}": _operation("send", name, models) for name, models in SENT.items()}
    for name, models in _SAID.items():
        answers = [_to("channels", name, "messages", each) for each in ("Settled", "Refused")]
        reply = {"channel": _to("channels", name), "messages": answers}
        found[f"order_{name}"] = {**_operation("receive", name, models), "reply": reply}
    return found


@cache
def frames_document() -> dict[str, Any]:
    """The document."""
    models = {each.__name__: each for models in (*SENT.values(), *_SAID.values()) for each in models}
    _, schemas = models_json_schema(
        [(each, "validation") for each in models.values()], ref_template="#/components/schemas/{model}"
    )
    # Every schema stands by itself, so that its name is its message's.
    made = schemas["$defs"]
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "ampsq gateway",
            "version": __version__,
            "description": "WebSockets of the gateway, whose requests are in /openapi.json. A frame is a JSON object.",
        },
        "defaultContentType": "application/json",
        "channels": {name: _channel(name) for name in _CHANNELS},
        "operations": _operations(),
        "components": {
            "messages": {
                name: {
                    "name": name,
                    "summary": (each.__doc__ or "").partition("\n")[0],
                    "payload": _to("components", "schemas", name),
                }
                for name, each in models.items()
            },
            "schemas": {name: made[name] for name in sorted(made)},
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "bearer": {"type": "http", "scheme": "bearer", "description": "NAME:SECRET"},
            },
        },
    }
