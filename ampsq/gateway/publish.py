"""Requests that change an instance: publishing, changes of records, deletions; once each if the sender numbers them."""

from __future__ import annotations

import hashlib
import json
import re
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from ampsq.base.errors import DefinitionError, TopicNotDefined
from ampsq.base.values import is_name, shown
from ampsq.gateway.client import PublishRequest
from ampsq.gateway.deletion import PublisherSequence
from ampsq.gateway.json_messages import Problem, body_of
from ampsq.gateway.requests import name_of
from ampsq.protocol.limits import BATCH
from ampsq.publishing.envelope import Envelope
from ampsq.publishing.persistence_level import PersistenceLevel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.datastructures import Headers
    from starlette.requests import Request

    from ampsq.gateway.client import PublishResult
    from ampsq.gateway.persistence_steps import PersistenceWait
    from ampsq.gateway.persistence_waits import PersistingShares
    from ampsq.gateway.requests import RequestHandler

__all__ = ["Writing"]

_ENVELOPE: Final = frozenset({"headers", "expiration", "delay", "at", "group"})
_MESSAGE: Final = _ENVELOPE | {"topic", "data", "base64", "key", "persisted"}
_MESSAGES: Final = _ENVELOPE | {"topic", "messages", "key", "persisted"}
_CHANGE: Final = frozenset({"topic", "data", "headers", "expiration", "key", "persisted"})
_DELETION: Final = frozenset({"topic", "keys", "filter", "persisted"})
#: Scripts count with 53 bits.
_LAST_NUMBER: Final = 2**53 - 2 * 10**6
_KEY: Final = re.compile(r"[\x21-\x7e]{1,255}")
#: The part of a request's time that is waited for what it recorded to be persisted.
_SHARE: Final = 0.8


class Writing:
    """The writes of users, each within their entitlements.

    Args:
        desk: where they came in.
        persisting: waits for what they want to be persisted.
    """

    def __init__(self, desk: RequestHandler, persisting: PersistingShares) -> None:
        self._desk, self._persisting = desk, persisting

    async def publish(self, user: str, request: Request) -> dict[str, Any]:
        """Record one message."""
        given = await self._desk.object_of(user, request, _MESSAGE)
        return _of_one(await self._record(user, request, given, [given]))

    async def delta_publish(self, user: str, request: Request) -> dict[str, Any]:
        """Record a change, merged into the record of its key."""
        given = await self._desk.object_of(user, request, _CHANGE)
        return _of_one(await self._record(user, request, given, [given], delta=True))

    async def publish_many(self, user: str, request: Request) -> dict[str, Any]:
        """Record messages in their order."""
        given = await self._desk.object_of(user, request, _MESSAGES)
        messages = given.get("messages")
        if not isinstance(messages, list) or not all(isinstance(each, dict) for each in messages):
            raise DefinitionError('messages: allowed is a list of objects, as in [{"data": 1}, {"base64": "AA=="}]')
        for each in messages:
            if each.keys() - {"data", "base64", "key"}:
                raise DefinitionError(
                    f"messages: {shown(min(each.keys() - {'data', 'base64', 'key'}))} is no element of a message here; "
                    "allowed: data or base64, and key. What is said beside messages holds for all of them"
                )
        recorded = await self._record(user, request, given, messages)
        answer: dict[str, Any] = {"bookmarks": [str(each) if each else None for each in recorded.bookmarks]}
        return answer | ({"duplicates": recorded.duplicates} if recorded.is_numbered else {})

    async def _record(
        self,
        user: str,
        request: Request,
        given: dict[str, Any],
        messages: list[dict[str, Any]],
        *,
        delta: bool = False,
    ) -> PublishResult:
        began = time.monotonic()
        topic, bodies = name_of(given.get("topic"), "topic"), [body_of(each) for each in messages]
        keys = [_key(each, _key(given)) for each in messages]
        envelope, numbered = _envelope(given), _numbered(user, request.headers)
        self._desk.rules.entitlements.check_write(user, topic, map(_as_json, bodies))
        asked, client = PublishRequest(topic, bodies, keys, envelope, numbered, delta), self._desk.client
        try:
            shares = await client.shares(asked)
            wanted = await self._wanted(given, [each.partition for each in shares])
            recorded = await client.record(asked, shares)
        except TopicNotDefined as refusal:
            # Names that the user may not use are not told.
            nearest = [name for name in refusal.nearest if self._desk.rules.entitlements.may_write(user, name)]
            raise TopicNotDefined(refusal.topic, nearest) from None
        if wanted is not None:
            what = f"{len(bodies)} messages, of which {recorded.duplicates} were before, are recorded"
            await self._wait(wanted, recorded.topic, given["persisted"], began, what)
        return recorded

    async def sow_delete(self, user: str, request: Request) -> dict[str, Any]:
        """Delete records, as far as the user may write what they say."""
        began = time.monotonic()
        given = await self._desk.object_of(user, request, _DELETION)
        topic, keys, asked = name_of(given.get("topic"), "topic"), given.get("keys"), given.get("filter")
        if (keys is None) == (asked is None):
            raise DefinitionError('a deletion has keys, as in ["7", "8"], or filter; allowed: one of the two')
        if asked is not None and (not isinstance(asked, str) or not asked.strip()):
            raise DefinitionError(f"filter: {shown(asked)}; allowed: an expression, as in /id > 7")
        if keys is not None and (not isinstance(keys, list) or not 0 < len(keys) <= BATCH):
            raise DefinitionError(f"keys: allowed is a list of 1 to {BATCH} keys")
        # Of a key of several parts JSON has a list.
        keys = [tuple(each) if isinstance(each, list) else each for each in keys] if keys is not None else None
        text, numbered = (
            self._desk.rules.entitlements.to_write(user, topic, asked),
            _numbered(user, request.headers),
        )
        wanted = await self._wanted(given, None)
        number, was_before = await self._desk.client.delete(topic, keys, text, numbered)
        if wanted is not None:
            await self._wait(wanted, topic, given["persisted"], began, "the deletion is recorded")
        return {"deleted": number} | ({"duplicate": was_before} if numbered else {})

    async def _wanted(
        self, given: dict[str, Any], partitions: Sequence[int] | None
    ) -> list[tuple[int, PersistenceWait]] | None:
        level = given.get("persisted")
        return None if level is None else await self._persisting.begin(PersistenceLevel.parse(level), partitions)

    async def _wait(
        self, wanted: Sequence[tuple[int, PersistenceWait]], topic: str, level: str, began: float, what: str
    ) -> None:
        until = began + _SHARE * self._desk.rules.bounds.request_timeout
        lacking = await self._persisting.wait(wanted, topic, until)
        if lacking is not None:
            raise Problem(
                504,
                "NotPersisted",
                f"{what}, and not {level} yet: {lacking}. Ask again with the same Idempotency-Key, "
                "or publisher and sequence",
            )


def _of_one(recorded: PublishResult) -> dict[str, Any]:
    bookmark = recorded.bookmarks[0]
    answer: dict[str, Any] = {"bookmark": str(bookmark) if bookmark else None}
    return answer | ({"duplicate": recorded.duplicates > 0} if recorded.is_numbered else {})


def _numbered(user: str, headers: Headers) -> PublisherSequence | None:
    """Return the publisher and number of a request; its publishers are the user's own, whatever others call theirs.

    Raises:
        DefinitionError: the headers do not go together, or are wrong.
    """
    given = {name: headers.getlist(name) for name in ("idempotency-key", "ampsq-publisher", "ampsq-sequence")}
    for name, texts in given.items():
        if len(texts) > 1:
            raise DefinitionError(f"{name} is there {len(texts)} times; allowed: once")
    key, publisher, sequence = (texts[0] if texts else None for texts in given.values())
    if key is None and publisher is None and sequence is None:
        return None
    if (key is None) == (publisher is None) or (publisher is None) != (sequence is None):
        raise DefinitionError("allowed: Idempotency-Key; or Ampsq-Publisher and Ampsq-Sequence, both")
    # With the length, so that no user's name and publisher read like another's.
    whose = f"{len(user)}/{user}"
    if key is not None:
        if not _KEY.fullmatch(key):
            raise DefinitionError("Idempotency-Key: allowed are 1 to 255 visible characters of ASCII")
        return PublisherSequence(
            f"gateway-key/{hashlib.sha256(f'{whose}/{key}'.encode()).hexdigest()[:48]}", 1, is_request=True
        )
    name = f"gateway/{whose}/{publisher}"
    if not publisher or not is_name(name):
        raise DefinitionError(
            f"Ampsq-Publisher: {shown(publisher)}; allowed is a name, with the user's one of 240 characters at most"
        )
    text = sequence or ""
    if not text.isascii() or not text.isdigit() or len(text) > 16 or not 1 <= int(text) <= _LAST_NUMBER:  # noqa: PLR2004
        raise DefinitionError(f"Ampsq-Sequence: {shown(text)}; allowed is a whole number from 1 to {_LAST_NUMBER}")
    return PublisherSequence(name, int(text))


def _key(given: dict[str, Any], default: str | None = None) -> str | None:
    """Return the key that chooses the partition of a message.

    Raises:
        DefinitionError: it is no text.
    """
    key = given.get("key")
    if key is None:
        return default
    if not isinstance(key, str):
        raise DefinitionError(f"key: {shown(key)} is no text; allowed: a text, whose partition gets the message")
    return key


def _envelope(given: dict[str, Any]) -> Envelope:
    headers, at = given.get("headers"), given.get("at")
    if headers is not None and not isinstance(headers, dict):
        raise DefinitionError(f"headers: {shown(headers)}; allowed: an object of texts")
    due = None if at is None else _time_of(at)
    return Envelope.of(headers, given.get("expiration"), given.get("delay"), due, given.get("group"))


def _time_of(text: object) -> datetime:
    try:
        if isinstance(text, str):
            return datetime.fromisoformat(text)
    except ValueError:
        pass
    raise DefinitionError(f"at: {shown(text)}; allowed is a time with its zone, as in 2026-05-01T09:00:00Z")


def _as_json(data: Any) -> bytes:
    # Of bytes nobody knows what they say until the server has them: they match no filter.
    return b"" if isinstance(data, bytes) else json.dumps(data, ensure_ascii=False).encode("utf-8", "surrogatepass")
