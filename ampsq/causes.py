"""What redis-py raises, as the one exception of ours that says it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import redis

from ampsq.addresses import redacted
from ampsq.errors import AmpsqError, ScriptBug, ServerFull, Unavailable, rejection

if TYPE_CHECKING:
    from ampsq.flow import Call

__all__ = ["never_sent", "translated"]

_LINE = re.compile(r"user_script:(\d+)")
#: What redis-py raises while there is no server that could serve us. It takes the first word off the texts of those
#: that it knows, so that they cannot be told by it.
_AWAY = (
    redis.ConnectionError,
    redis.TimeoutError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.MasterDownError,
    redis.exceptions.ClusterDownError,
    redis.exceptions.TryAgainError,
    OSError,
)
_AWAY_TEXTS = ("MISCONF", "READONLY", "LOADING", "MASTERDOWN", "NOREPLICAS", "CLUSTERDOWN", "BUSY ")


def translated(error: Exception, call: Call[Any] | None, url: str) -> AmpsqError:
    """Turn what redis-py raised into the one exception of ours that says it."""
    text = str(error)
    if isinstance(error, redis.OutOfMemoryError) or text.startswith("OOM"):
        return ServerFull(f"{redacted(url)} is out of memory: acknowledge or expire messages, or raise maxmemory")
    if isinstance(error, _AWAY) or text.startswith(_AWAY_TEXTS):
        return Unavailable(f"{redacted(url)}: {text}")
    return rejection(text) or ScriptBug(_blame(text, call))


def _blame(text: str, call: Call[Any] | None) -> str:
    """The error with the Lua file and line that it came from, as far as they are known."""
    if call is None:
        return text
    if call.script is None:
        return f"{call.arguments[0]!r}: {text}"
    line = _LINE.search(text)
    return f"{call.script.place(int(line[1])) if line else call.script.name}: {text}"


def never_sent(error: Exception) -> bool:
    """Whether the request cannot have reached the server: redis-py failed while it connected."""
    return isinstance(error, redis.ConnectionError) and "connecting to" in str(error)
