"""Duty: dead-letter actions. Each expired message is published, with the reason, exactly once.

An action has a cursor in its queue's journal and a publisher of its own name: the message at a place of the journal
always gets the same sequence, so a second publish, by a repeated call or by another coordinator, is a duplicate.
"""

from __future__ import annotations

import base64
import json
import logging
import time
from typing import TYPE_CHECKING, Any, Final

from ampsq import calls
from ampsq.coordinator.definitions import Definitions
from ampsq.delivery import decode
from ampsq.errors import Unavailable
from ampsq.flow import command
from ampsq.models import Action
from ampsq.schema import BYTES, key
from ampsq.values import Bookmark, parse_ref

if TYPE_CHECKING:
    from ampsq.store import Store

__all__ = ["DeadLetter"]

_log = logging.getLogger("ampsq.coordinator")
_PAUSE: Final = 0.1
_ENTRIES: Final = 50
_DEFAULT_COUNTS: Final = "1:0"
#: Seconds until a failed action is tried again.
_AFTER_FAILURE: Final = 2.0


class DeadLetter:
    """Follows the journals of the queues that have a dead-letter action."""

    name = "dead letter"

    def __init__(self) -> None:
        self._definitions = Definitions()
        self._retry_at: dict[str, float] = {}

    def run_once(self, store: Store) -> float:
        """Act on what every action has not seen yet, at most fifty journal entries each."""
        catalog = self._definitions.read(store)
        if not catalog.actions:
            return _PAUSE
        origin = store.call(command(["HGET", key(store.instance, "instance"), "origin"], bytes.decode))
        more = False
        for name, text in catalog.actions.items():
            if time.monotonic() >= self._retry_at.get(name, 0.0):
                more = self._try(store, Action.from_json(text), origin) or more
        return 0.0 if more else _PAUSE

    def _try(self, store: Store, action: Action, origin: str) -> bool:
        """Follow one action. What fails is tried again later, from the same place, and holds up no other action."""
        try:
            more = self._follow(store, action, origin)
        except Unavailable:
            raise
        except Exception as error:  # noqa: BLE001  (one action's failure is no other's)
            self._retry_at[action.name] = time.monotonic() + _AFTER_FAILURE
            _log.warning("action %s failed, trying again in %.0f s: %s", action.name, _AFTER_FAILURE, error)
            return False
        self._retry_at.pop(action.name, None)
        return more

    def _follow(self, store: Store, action: Action, origin: str) -> bool:
        state = key(store.instance, "action", action.name)
        cursor, sequence = store.call(
            command(["HMGET", state, "cursor", "sequence"], lambda reply: (reply[0].decode(), int(reply[1])))
        )
        journal = key(store.instance, "journal", action.queue)
        entries = store.call(
            command(["XRANGE", journal, f"({cursor}", "+", "COUNT", _ENTRIES], list[tuple[bytes, list[bytes]]])
        )
        for entry_id, flat in entries:
            fields = dict(zip(flat[::2], flat[1::2], strict=True))
            refs = fields[b"refs"].decode().split() if fields.get(b"how") == b"expired" else []
            if self._concerns(action, fields):
                self._publish(store, action, fields, refs, sequence, origin)
            # Every message that expired has its number, wanted or not: the numbers must not depend on the definition,
            # which another coordinator may know in an older form.
            done = sequence + len(refs)
            if not store.call(calls.advance(action.name, cursor, entry_id.decode(), done)):
                return True
            cursor, sequence = entry_id.decode(), done
        return len(entries) == _ENTRIES

    @staticmethod
    def _concerns(action: Action, fields: dict[bytes, bytes]) -> bool:
        if fields.get(b"how") != b"expired":
            return False
        reasons = fields.get(b"reason", b"").decode().split(",")
        return not action.reasons or any(reason in action.reasons for reason in reasons)

    def _publish(  # noqa: PLR0917  (all that letters are made of)
        self, store: Store, action: Action, fields: dict[bytes, bytes], refs: list[str], sequence: int, origin: str
    ) -> None:
        """Publish the letters of one journal entry, about a megabyte a call."""
        counts = fields.get(b"attempts", b"").decode().split() or [_DEFAULT_COUNTS] * len(refs)
        reason = fields[b"reason"].decode()
        bodies: list[bytes] = []
        headers: list[bytes] = []
        first = sequence + 1
        for number, (ref, count) in enumerate(zip(refs, counts, strict=True), sequence + 1):
            body, header = self._letter(store, action, ref, count, reason, origin)
            bodies.append(body)
            headers.append(header)
            if sum(map(len, bodies)) >= BYTES or number == sequence + len(refs):
                store.call(calls.publish(action.topic, bodies, headers, f"action:{action.name}", first))
                bodies, headers, first = [], [], number + 1

    def _letter(  # noqa: PLR0917  (all that a letter says)
        self, store: Store, action: Action, ref: str, count: str, reason: str, origin: str
    ) -> tuple[bytes, bytes]:
        topic, stream_id = parse_ref(ref)
        log = key(store.instance, "log", topic)
        found = store.call(command(["XRANGE", log, stream_id, stream_id], lambda reply: reply[0][1] if reply else []))
        fields = dict(zip(found[::2], found[1::2], strict=True))
        deliveries, cancels = map(int, count.split(":"))
        letter: dict[str, Any] = {
            "queue": action.queue,
            "topic": topic,
            "bookmark": str(Bookmark.of(topic, origin, stream_id)),
            "reason": reason,
            "deliveries": deliveries,
            "cancels": cancels,
        }
        text = json.dumps(letter, separators=(",", ":"))
        return text[:-1].encode() + b',"message":' + _embedded(fields) + b"}", fields.get(
            b"h", b""
        ) if b"b" in fields else b""


def _embedded(fields: dict[bytes, bytes]) -> bytes:
    """The original as part of a JSON text: JSON goes in as it is, byte by byte; other bytes as base64."""
    body = fields.get(b"b")
    if body is None:
        plain = {
            name.decode(errors="replace"): value.decode(errors="surrogateescape") for name, value in fields.items()
        }
        return json.dumps(plain or None, separators=(",", ":")).encode()
    try:
        decode(body)
    except ValueError:
        return json.dumps({"base64": base64.b64encode(body).decode()}, separators=(",", ":")).encode()
    return body
