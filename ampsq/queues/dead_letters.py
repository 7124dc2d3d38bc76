"""Dead letters as objects: what a dead-letter action published, read back to the byte; docs/dead-letters.md."""

from __future__ import annotations

import base64
import json
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple, get_args

from ampsq.base.bookmarks import Bookmark
from ampsq.base.errors import DefinitionError, UnknownMessage, UnknownQueue
from ampsq.base.values import ExpiryReason, check_text, parse_name, shown
from ampsq.definitions.stored import read_stored_queue
from ampsq.protocol.calls import browse as browse_calls
from ampsq.protocol.encoding import decode, decode_body, shorten
from ampsq.protocol.entries import body_in
from ampsq.protocol.limits import BATCH
from ampsq.protocol.reads.clock import server_time
from ampsq.protocol.reads.definitions import read_definition
from ampsq.protocol.reads.message_names import find_bookmarks
from ampsq.queues.browse import sow_queue
from ampsq.queues.explain import explain
from ampsq.queues.query import Query, SowMessage, parse_query_filter

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ampsq.protocol.calls.browse import Browsed
    from ampsq.protocol.context import InstanceContext

__all__ = [
    "NOT_THERE",
    "DeadLetter",
    "NotADeadLetter",
    "Return",
    "dead_letter_filter",
    "dead_letters_by_bookmark",
    "embedded",
    "embedded_text",
    "read_available",
    "read_dead_letters",
]

_TEXTS: Final = ("queue", "topic", "bookmark", "reason")
_MESSAGE: Final = b',"message":'
_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\n\r]*")

#: Why a letter that was named is not to be had.
NOT_THERE: Final = "it is settled, held by a subscription, or no message of this queue"


class NotADeadLetter(ValueError):
    """A message is no dead letter, or one that cannot be read; the text says why."""


class _Returned(NamedTuple):
    came_back: datetime
    cause: str
    subscription: str
    client: str


class Return(_Returned):
    """One delivery of a message that came back: four values, and why, where its consumer said so.

    Attributes:
        came_back: when.
        cause: ``cancelled``, ``lapsed`` or ``disconnected``.
        subscription: the one that had it.
        client: whose subscription that was.
        consumer_reason: why, as its consumer said; "" where it said nothing.
    """

    consumer_reason: str = ""


class DeadLetter:
    """A message that a queue gave up, with what is known of its end.

    Attributes:
        bookmark: of the letter itself, in the queue of letters.
        queue: the queue that gave the message up.
        topic: the topic that the message was published to.
        original: the message's own bookmark.
        reasons: why it was given up: ``max_deliveries``, ``max_cancels``, ``forced_expire``, ``time_limit``.
        consumer_reason: why, as a consumer said, the last one that did; "" where none did.
        deliveries: how often it was delivered.
        cancels: how often it was cancelled.
        history: its deliveries that came back, the oldest first; empty where none are known.
        headers: those that it was published with.
        group: what its publisher said of its group (docs/groups.md); None where it said nothing.
        raw_group: the same to the byte; empty where it said nothing.
        raw: its body, to the byte; for an entry that somebody wrote without ampsq, its fields as JSON.
        age: how long ago it was given up.
    """

    __slots__ = (
        "age", "bookmark", "cancels", "consumer_reason", "deliveries", "group", "headers", "history", "original",
        "queue", "raw", "raw_group", "reasons", "topic",
    )  # fmt: skip

    def __init__(self, message: SowMessage, now: int) -> None:
        values, text = _read(message.raw)
        for name in _TEXTS:
            if not isinstance(values.get(name), str):
                raise NotADeadLetter(f"it is no dead letter: it has no {name}")
        if "message" not in values:
            raise NotADeadLetter("it is no dead letter: it has no message")
        if values.get("lost") is True:
            raise NotADeadLetter("its message was gone from its log already when it expired")
        if message.bookmark is None:
            raise NotADeadLetter("it is no dead letter but the row of a view")
        self.bookmark = message.bookmark
        self.queue: str = values["queue"]
        self.topic: str = values["topic"]
        self.original = Bookmark(values["bookmark"])
        self.reasons = tuple(values["reason"].split(","))
        self.consumer_reason = str(values.get("consumer_reason") or "")
        self.deliveries = _count(values, "deliveries")
        self.cancels = _count(values, "cancels")
        self.history = _history(values.get("history"))
        self.raw = _original(values["message"], text)
        self.headers = message.headers
        self.raw_group = _text_bytes(values.get("group"))
        self.group = self.raw_group.decode(errors="replace") or None
        self.age = timedelta(milliseconds=max(now - int(message.bookmark.id.partition("-")[0]), 0))

    @property
    def data(self) -> Any:
        """The body decoded: what JSON says, or the bytes as they are when they are not JSON."""
        return decode_body(self.raw)

    def __repr__(self) -> str:
        return f"<DeadLetter {self.bookmark} of {self.queue}, {','.join(self.reasons)}: {shorten(self.data)}>"


def _read(raw: bytes) -> tuple[dict[str, Any], str]:
    """Read a letter's values, and its message's own text. As the action writes it, the message is the last member."""
    head, mark, rest = raw.partition(_MESSAGE)
    try:
        values = json.loads(head + b"}")
        if mark and rest.endswith(b"}") and isinstance(values, dict) and "message" not in values:
            text = rest[:-1].decode()
            return {**values, "message": json.loads(text)}, text
    except (ValueError, RecursionError):
        pass
    values, texts = _members(raw)
    return values, texts.get("message", "")


def _members(raw: bytes) -> tuple[dict[str, Any], dict[str, str]]:
    """An object's members, by name: what each says, and its own text."""
    values: dict[str, Any] = {}
    texts: dict[str, str] = {}
    try:
        text = raw.decode()
        at = _expect(text, 0, "{")
        while True:
            name, at = _DECODER.raw_decode(text, at)
            start = _expect(text, at, ":")
            values[name], at = _DECODER.raw_decode(text, start)
            texts[name] = text[start:at]
            at = _skip(text, at)
            if text[at : at + 1] == "}":
                return values, texts
            at = _expect(text, at, ",")
    except (ValueError, RecursionError, TypeError):
        raise NotADeadLetter("it is no dead letter: its body is no JSON object") from None


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _expect(text: str, at: int, sign: str) -> int:
    """Return the place where the text goes on behind a sign."""
    at = _skip(text, at)
    if text[at : at + 1] != sign:
        raise ValueError(f"no {sign}")
    return _skip(text, at + 1)


def _count(values: dict[str, Any], name: str) -> int:
    value = values.get(name, 0)
    return value if isinstance(value, int) else 0


def _history(items: object) -> tuple[Return, ...]:
    """Read the history as far as possible: a letter is none the worse for one that somebody else wrote."""
    found = []
    for item in items if isinstance(items, list) else ():
        came_back = _moment(item.get("came_back")) if isinstance(item, dict) else None
        if came_back is not None:
            returned = Return(came_back, *(str(item.get(name) or "") for name in Return._fields[1:]))
            returned.consumer_reason = str(item.get("consumer_reason") or "")
            found.append(returned)
    return tuple(found)


def _moment(value: object) -> datetime | None:
    """A time in ISO form, or in ms since 1970."""
    try:
        if isinstance(value, int):
            return datetime.fromtimestamp(value / 1000, UTC)
        read = datetime.fromisoformat(str(value))
    except (ValueError, OverflowError, OSError):
        return None
    return read.astimezone(UTC) if read.tzinfo else read.replace(tzinfo=UTC)


def embedded(fields: Mapping[bytes, bytes]) -> bytes:
    """A message as part of a letter: JSON to the byte; other bytes, and JSON that looks like those, as base64.

    Args:
        fields: of its log entry; empty where the log has none any more.
    """
    body = body_in(fields)
    if body is None:
        plain = {
            name.decode(errors="replace"): value.decode(errors="surrogateescape") for name, value in fields.items()
        }
        body = json.dumps(plain or None, separators=(",", ":")).encode()
    try:
        if not _is_base64(decode(body)):
            return body
    except ValueError:
        pass
    return json.dumps({"base64": base64.b64encode(body).decode()}, separators=(",", ":")).encode()


def embedded_text(text: bytes) -> str | dict[str, str]:
    """A text as part of a letter, as base64 where it is not UTF-8."""
    try:
        return text.decode()
    except ValueError:
        return {"base64": base64.b64encode(text).decode()}


def _text_bytes(value: Any) -> bytes:
    """Return what `embedded_text` wrote; empty for anything else that somebody else's letter has there."""
    try:
        return base64.b64decode(value["base64"], validate=True) if _is_base64(value) else value.encode()
    except (AttributeError, TypeError, ValueError):
        return b""


def _is_base64(value: object) -> bool:
    return isinstance(value, dict) and set(value) == {"base64"}


def _original(value: Any, text: str) -> bytes:
    """The body as it was."""
    if _is_base64(value):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except (TypeError, ValueError):
            pass
    return text.encode()


def dead_letter_filter(text: str | None, source: str | None, reason: str | None) -> str | None:
    """The expression over letters that asks for all three; None: everything.

    Args:
        text: an expression over letters, as in ``/message/price > 10``.
        source: the queue that gave the message up.
        reason: one of those for which it was given up.

    Raises:
        DefinitionError: an argument is wrong. ExpressionError: the expression is wrong.
    """
    parts = []
    if text is not None:
        parse_query_filter(text)
        parts.append(f"({text})")
    if source is not None:
        parts.append(f"/queue = '{parse_name(source)}'")
    if reason is not None:
        if reason not in get_args(ExpiryReason):
            allowed = ", ".join(get_args(ExpiryReason))
            raise DefinitionError(f"reason={shown(reason)} is not known; allowed: {allowed}")
        parts.append(f"/reason LIKE '(^|,){reason}(,|$)'")
    return " AND ".join(parts) or None


async def read_available(queue: str, refs: Sequence[bytes]) -> list[Browsed | None]:
    """Some messages of a queue, None in the place of one that is not available."""
    looked: list[Browsed | None] = []
    while len(looked) < len(refs):
        looked += await browse_calls.find_available(queue, refs[len(looked) : len(looked) + BATCH])
    return looked


async def dead_letters_by_bookmark(
    context: InstanceContext, queue: str, bookmarks: Iterable[Bookmark | str]
) -> list[DeadLetter]:
    """The letters with these bookmarks; see `Admin.dead_letters`."""
    named = await find_bookmarks(context.origin, bookmarks)
    now = await server_time()
    looked = await read_available(queue, [each.ref.encode() for each in named])
    letters = []
    for (bookmark, *_), found in zip(named, looked, strict=True):
        if found is None:
            explained = await explain(context, queue, bookmark)
            raise UnknownMessage(queue=queue, bookmark=str(bookmark), told=explained.sentence)
        try:
            letters.append(DeadLetter(SowMessage.of(found, context.origin), now))
        except ValueError as reason:
            raise DefinitionError(f"{bookmark}: {reason}") from None
    return letters


async def read_dead_letters(
    context: InstanceContext,
    queue: str,
    filter: str | None,  # noqa: A002
    top_n: int | None,
) -> list[DeadLetter]:
    """The available letters of a queue that match, in the order of delivery; see `Admin.dead_letters`."""
    check_text("queue", queue)
    stored = await read_definition(context.instance, "queues", queue)
    if stored is None:
        raise UnknownQueue(queue=queue)
    now = await server_time()
    found = (await sow_queue(context, read_stored_queue(stored), Query(filter, (), top_n))).messages()
    letters = []
    for message in found:
        try:
            letters.append(DeadLetter(message, now))
        except NotADeadLetter:
            continue
    return letters
