"""Events that failed: tried again, later and later, without holding up any other."""

from __future__ import annotations

import json
import logging
import secrets
import time
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import Unavailable, UnknownTopic
from ampsq.catalog.apply import add_topic
from ampsq.coordinator.actions.event import ActionEvent, EventFacts, iso_time
from ampsq.coordinator.actions.follow import back_off
from ampsq.coordinator.actions.run import TRANSIENT, named_topic
from ampsq.definitions.action_parts import Do
from ampsq.protocol.calls import actions as action_calls
from ampsq.protocol.reads.actions import StoredEvent, due_retries, first_retry, read_failed_event
from ampsq.protocol.reads.clock import server_time

if TYPE_CHECKING:
    from ampsq.coordinator.actions.follow import Followed
    from ampsq.transport.store import Store

__all__ = ["retry_failed"]

_log = logging.getLogger("ampsq.actions")
#: Events of one round, and the seconds that it may take.
_BATCH: Final = 500
_BUDGET: Final = 0.1


def retry_failed(store: Store, followed: Followed) -> tuple[bool, bool]:
    """Try the failed events of an action whose time has come, for a while.

    Any number of coordinators may do it at once: each step ends with a script that moves the event on from where it was
    seen, publishing in the same step, so that the second one to come changes nothing.

    Returns:
        Whether some failed, and whether there are more whose time has come.
    """
    action = followed.action.name
    first = store.call(first_retry(store.instance, action))
    if first is None:
        return False, False
    now, until = store.call(server_time()), time.monotonic() + _BUDGET
    if first > now:
        return True, False
    due = store.call(due_retries(store.instance, action, now, _BATCH))
    for number in due:
        if time.monotonic() >= until:
            return True, True
        _Retry(store, followed, number).make(now)
    return True, len(due) == _BATCH


class _FailedFacts(EventFacts):
    """A failed event as it is kept: also why, how often it was tried, since when, when next, and by whom last."""

    error: str
    tries: int
    failed: str
    next: str
    by: str


class _Retry:
    """One failed event while it is tried again."""

    def __init__(self, store: Store, followed: Followed, number: int) -> None:
        self._store, self._followed, self._action, self._number = store, followed, followed.action, number
        self._revision = 0
        self._facts: _FailedFacts
        self._at = 0

    def make(self, now: int) -> None:
        """Go on where it failed, as far as that is possible now."""
        found = self._read()
        if found is None:
            self._store.call(action_calls.drop_retry(self._store.instance, self._action.name, self._number))
            return
        self._revision, self._facts = found.revision, json.loads(found.text)
        event = ActionEvent.from_facts(self._facts)
        # First comes the claim: whoever makes it tries, and the others see that it was tried.
        self._at = now + back_off(self._facts["tries"] + 1)
        self._facts["tries"] += 1
        self._facts["next"], self._facts["by"] = iso_time(self._at), secrets.token_hex(4)
        if not self._write(event):
            return
        try:
            self._go_on(event)
        except Unavailable:
            raise
        except TRANSIENT as error:
            _log.debug("event %s of action %s waits: %s", self._number, self._action.name, error)
        except Exception as error:  # noqa: BLE001  (whatever a step raises is this event's failure)
            _log.debug("event %s of action %s failed again: %s", self._number, self._action.name, error)
            self._facts["error"] = str(error)
            self._write(event)

    def _read(self) -> StoredEvent | None:
        """The event as it is stored now."""
        return self._store.call(read_failed_event(self._store.instance, self._action.name, self._number))

    def _go_on(self, event: ActionEvent) -> None:
        if event.step < 0:
            if not self._followed.performer.holds(event, self._action.if_):
                self._end()
                return
            event.step = 0
        while event.step < len(self._action.do):
            step = self._action.do[event.step]
            if isinstance(step, Do.publish):
                if not self._publish(event, step):
                    return
            else:
                place = f"failed {self._number}"
                self._followed.performer.perform(step, event, place, event.step + 1)
                event.step += 1
                if not self._write(event):
                    return
        self._end()

    def _publish(self, event: ActionEvent, step: Do.publish) -> bool:
        """Publish and move on in one step; False when somebody else did."""
        publisher = f"action:{self._action.name}@{self._followed.origin}:failed:{self._number}:{event.step}"
        message = action_calls.EventMessage(named_topic(event, step), event.body(step.data), event.headers, publisher)
        event.step += 1
        try:
            return self._write_with_topic(event, message)
        except Exception:
            # It is as it was, whatever refused: the topic too.
            event.step -= 1
            raise

    def _write_with_topic(self, event: ActionEvent, message: action_calls.EventMessage) -> bool:
        try:
            return self._write(event, message)
        except UnknownTopic:
            self._store.run(add_topic(message.topic))
            return self._write(event, message)

    def _write(self, event: ActionEvent, message: action_calls.EventMessage | None = None) -> bool:
        """Write where the event is; False when somebody else did."""
        said = self._facts
        value = event.to_json(
            error=said["error"], tries=said["tries"], failed=said["failed"], next=said["next"], by=said["by"]
        )
        call = action_calls.redo(self._action.name, str(self._number), self._revision, value, self._at, message=message)
        done = self._store.call(call)
        if not done and call.repeated:
            # Its first run may have done it; what is there says whose it is.
            done = self._read() == StoredEvent(self._revision + 1, value)
        self._revision += done
        return done

    def _end(self) -> None:
        self._store.call(action_calls.finish(self._action.name, str(self._number), self._revision, self._at))
