"""Messages as JSON, and errors as problems with a status."""

from __future__ import annotations

import base64
import binascii
import json
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ampsq.base.errors import (
    AmpsqError,
    BookmarkNotFound,
    Closed,
    DefinitionError,
    Rejected,
    ScriptBug,
    ServerFull,
    ServerUnsuitable,
    TopicNotDefined,
    Unavailable,
)
from ampsq.base.limits import limits
from ampsq.gateway.entitlements import NotEntitled

if TYPE_CHECKING:
    from ampsq.queues.async_subscription import AsyncMessage
    from ampsq.queues.query import SowMessage
    from ampsq.topics.async_subscription import AsyncTopicMessage

__all__ = ["Problem", "body_of", "dumped", "leased_frame", "loaded", "message_frame", "problem_of"]


@dataclass
class Problem(Exception):
    """An answer that is a refusal.

    Attributes:
        status: of HTTP.
        error: the name of the error, for programs.
        text: what was wrong and what to do, for people.
        after: seconds after which it may be tried again, if that is known.
    """

    status: int
    error: str
    text: str
    after: int | None = None

    def as_dict(self) -> dict[str, object]:
        """The same as JSON has it."""
        return {"type": "error", "error": self.error, "text": self.text}


#: The first one that an error is.
_STATUS: Final[tuple[tuple[type[Exception], int], ...]] = (
    (NotEntitled, 403),
    (TopicNotDefined, 404),
    (DefinitionError, 400),
    (BookmarkNotFound, 410),
    (ServerFull, 507),
    (Closed, 503),
    (ServerUnsuitable, 409),
    (Unavailable, 503),
    (TimeoutError, 504),
    (Rejected, 409),
)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
#: In place of texts with addresses.
_LATER: Final = "the server did not answer now; try again, and mind that what was published may have been recorded"
#: Seconds after which to ask again what could not be served now.
_AGAIN: Final = 5
#: What is told of an error that may name servers and rights: it is in the gateway's log.
_OURS: Final = "the gateway could not do it; its log has the reason, for its operator"


def problem_of(error: Exception) -> Problem:
    """Return the problem to send for an error. It tells no addresses and nothing internal."""
    if isinstance(error, Problem):
        return error
    # Why a server is away is nothing that a client could do anything about.
    name = "Unavailable" if isinstance(error, Unavailable) else type(error).__name__
    for kind, status in _STATUS:
        if isinstance(error, kind):
            is_private = isinstance(error, Unavailable | ServerFull | TimeoutError)
            text = _LATER if is_private else str(error)
            after = _AGAIN if status == 503 else None  # noqa: PLR2004 - ours
            return Problem(404 if name.startswith("Unknown") else status, name, text, after)
    is_known = isinstance(error, AmpsqError) and not isinstance(error, ScriptBug)
    return Problem(500, name if is_known else "InternalError", _OURS)


def loaded(raw: bytes | str) -> Any:
    """Read what a client sent.

    Raises:
        DefinitionError: it is no JSON, or nested too deep.
    """
    text = raw.encode() if isinstance(raw, str) else raw
    limits().check_depth(text)
    try:
        return json.loads(text)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DefinitionError(f"what was sent is no JSON: {error}; allowed: an object") from error
    except ValueError as error:
        # Python reads no number that is longer.
        told = f"what was sent has a number of more than {sys.get_int_max_str_digits():,} digits; allowed: shorter ones"
        raise DefinitionError(told) from error


def body_of(message: dict[str, Any]) -> Any:
    """Return the body to publish of an object with ``data``, or with ``base64``: bytes.

    Raises:
        DefinitionError: it has neither, or both.
    """
    if ("data" in message) == ("base64" in message):
        raise DefinitionError("a message has data, or base64; allowed: one of the two")
    if "data" in message:
        return message["data"]
    try:
        return base64.b64decode(message["base64"], validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise DefinitionError(f"base64: {error}; allowed: bytes in base64") from error


def dumped(value: Any) -> str:
    """Write JSON; raises ValueError for NaN and infinity, which it does not have."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    if not text.isascii() and _SURROGATE.search(text):
        # Half a character, which somebody has put into a header or a key, cannot be sent as it is.
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text


def _body(message: Any) -> dict[str, Any]:
    """Return its data, or its bytes where JSON cannot hold them."""
    data = message.data
    if not isinstance(data, bytes):
        try:
            json.dumps(data, ensure_ascii=False, allow_nan=False).encode()
        except (ValueError, TypeError):
            # Such as a time of MessagePack, or half a character: the bytes say it.
            pass
        else:
            return {"data": data}
    return {"base64": base64.b64encode(message.raw).decode()}


def message_frame(message: AsyncTopicMessage | SowMessage) -> dict[str, Any]:
    """A message of a topic, a record or a row."""
    facts: dict[str, Any] = {
        "type": getattr(message, "command", "message"),
        "topic": message.topic,
        "bookmark": str(message.bookmark) if message.bookmark is not None else None,
        "headers": message.headers,
        **_body(message),
    }
    for name in ("key", "reason"):
        if value := getattr(message, name, None):
            facts[name] = value
    return facts


def leased_frame(message: AsyncMessage, number: int) -> dict[str, Any]:
    """A message of a queue, under the number by which its subscriber settles it."""
    return {
        "type": "barrier" if message.is_barrier else "message",
        "id": number,
        "queue": message.queue,
        "topic": message.topic,
        "bookmark": str(message.bookmark),
        "delivery": message.delivery,
        "headers": message.headers,
        **_group(message),
        **_body(message),
    }


def _group(message: AsyncMessage) -> dict[str, Any]:
    group = message.group
    if group is None:
        return {}
    return {"group": group, "group_begins": True} if message.group_begins else {"group": group}
