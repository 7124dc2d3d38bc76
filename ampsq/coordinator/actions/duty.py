"""The duty: every action in its turn; what fails of one holds up no other."""

from __future__ import annotations

import logging
import math
import secrets
import threading
import time
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Final

from ampsq.base.errors import AmpsqError, Unavailable
from ampsq.coordinator.actions.failed_events import retry_failed
from ampsq.coordinator.actions.follow import Followed
from ampsq.coordinator.actions.webhooks import OutsidePermissions
from ampsq.coordinator.duty import Definitions
from ampsq.definitions.action import Action
from ampsq.protocol.calls import actions as action_calls
from ampsq.protocol.calls import duties as duty_calls
from ampsq.protocol.reads.origin import read_origin

if TYPE_CHECKING:
    from collections.abc import Callable

    from ampsq.coordinator.duty import Happened
    from ampsq.protocol.calls.catalog import Catalog
    from ampsq.transport.store import Store

__all__ = ["Actions"]

_log = logging.getLogger("ampsq.coordinator")
#: Seconds between two rounds where something is due by the clock: schedules, and conditions that last.
_CLOCK_PAUSE: Final = 0.1
#: The same while an action waits for what is outside of the instance, and where events failed.
_APART_PAUSE: Final = 0.2
_FAILED_PAUSE: Final = 1.0
#: The least, so that a moment that is over is no reason to be busy.
_LEAST_PAUSE: Final = 0.05
#: Seconds of one round: the other duties wait meanwhile.
_ROUND: Final = 0.1
#: Seconds until an action that cannot be followed at all is tried again.
_AFTER_FAILURE: Final = 2.0
#: Milliseconds for which an action with effects outside is one coordinator's, beside what its steps may take, and
#: seconds after which that is renewed.
_PERIOD: Final = 5_000
_RENEW: Final = 1.5
_LOOK_AGAIN: Final = 1.0
#: Seconds for which a coordinator that may not do what an action does leaves it to others, and ms for which it then
#: holds it.
_LEFT_TO_OTHERS: Final = 10.0
_BRIEFLY: Final = 1_000


@lru_cache(maxsize=1024)
def _read_action(text: str) -> Action:
    return Action.from_json(text)


class Actions:
    """Follows all actions of an instance.

    Args:
        powers: what may be done outside of it; default nothing.
        definitions: the catalog that it goes by; default one of its own.
        clock: seconds by which it paces itself, which never go back.
    """

    name = "actions"
    wakes: ClassVar[frozenset[Happened]] = frozenset({"catalog", "news"})

    def __init__(
        self,
        powers: OutsidePermissions | None = None,
        definitions: Definitions | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._powers = powers or OutsidePermissions()
        self._definitions = definitions or Definitions()
        self._owner = secrets.token_hex(8)
        self._retry_at: dict[str, float] = {}
        self._renew_at: dict[str, float] = {}
        self._left_at: dict[str, float] = {}
        self._followed: dict[str, Followed] = {}
        self._apart: dict[str, threading.Thread] = {}
        self._known: tuple[int, str] = (-1, "")
        self._turn = 0

    def run_once(self, store: Store) -> float:
        """Act on what every action has not seen yet, for a while each, and on what failed before."""
        catalog = self._definitions.read(store)
        if not catalog.actions:
            return math.inf
        origin = store.call(read_origin(store.instance))
        if self._known != (catalog.version, origin):
            self._known = (catalog.version, origin)
            self._followed.clear()
        more, until = False, self._clock() + _ROUND
        names = sorted(catalog.actions)
        first = self._turn % len(names)
        for name in names[first:] + names[:first]:
            if self._clock() >= until:
                return 0.0
            self._turn += 1
            text = catalog.actions[name]
            if self._clock() < self._retry_at.get(name, 0.0):
                continue
            if self._powers.wait_for(_read_action(text)):
                self._begin_apart(store, catalog, name, text)
            elif followed := self._held(store, catalog, name, text):
                more = self._try(store, followed) or more
        return 0.0 if more else self._rest(catalog)

    def _rest(self, catalog: Catalog) -> float:
        """Seconds until a round is wanted though nothing happens."""
        pauses = [math.inf]
        if any(thread.is_alive() for thread in self._apart.values()):
            pauses.append(_APART_PAUSE)
        for name, followed in self._followed.items():
            if name in catalog.actions:
                pauses.append(
                    _CLOCK_PAUSE if followed.is_clocked else _FAILED_PAUSE if followed.has_failed else math.inf
                )
        pauses += [at - self._clock() for name, at in self._retry_at.items() if name in catalog.actions]
        # One that waits for what others do outside is held, or asked for again, in time.
        if any(not followed.is_repeatable for followed in self._followed.values()):
            pauses.append(_RENEW)
        return max(min(pauses), _LEAST_PAUSE)

    def _begin_apart(self, store: Store, catalog: Catalog, name: str, text: str) -> None:
        """Let an action that waits for what is outside have a thread of its own, until it has nothing more to do."""
        thread = self._apart.get(name)
        if thread is None or not thread.is_alive():
            thread = threading.Thread(
                target=self._work_apart, args=(store, catalog, name, text), name=f"action-{name}", daemon=True
            )
            self._apart[name] = thread
            thread.start()

    def _work_apart(self, store: Store, catalog: Catalog, name: str, text: str) -> None:
        try:
            more = True
            while more and (followed := self._held(store, catalog, name, text)):
                more = self._try(store, followed)
        except AmpsqError as error:
            # The next round begins it anew, from where it is.
            _log.debug("action %s: %s", name, error)

    def _held(self, store: Store, catalog: Catalog, name: str, text: str) -> Followed | None:
        """An action, where it is this coordinator's to follow."""
        try:
            followed = self._followed.get(name)
            if followed is None or followed.catalog is not catalog:
                followed = Followed(store, _read_action(text), catalog, self._known[1], self._powers)
                self._followed[name] = followed
            mine = followed.is_repeatable or self._holds(store, followed.action)
        except Unavailable:
            raise
        except Exception as error:  # noqa: BLE001  (one action's failure is no other's)
            self._wait(store, name, error)
            return None
        return followed if mine else None

    def _try(self, store: Store, followed: Followed) -> bool:
        """Follow one action. What fails is tried again later, from the same place."""
        name = followed.action.name
        try:
            more = followed.work()
            followed.has_failed, is_more = retry_failed(store, followed)
            more = is_more or more
        except Unavailable:
            raise
        except Exception as error:  # noqa: BLE001  (one action's failure is no other's)
            self._wait(store, name, error)
            return False
        self._retry_at.pop(name, None)
        return more

    def _wait(self, store: Store, name: str, error: Exception) -> None:
        """Try an action again later, and show why."""
        self._retry_at[name] = self._clock() + _AFTER_FAILURE
        _log.warning("action %s waits, trying again in %.0f s: %s", name, _AFTER_FAILURE, error)
        try:
            store.call(action_calls.note_error(store.instance, name, str(error)))
        except AmpsqError as fault:
            _log.debug("action %s: %s", name, fault)

    def _holds(self, store: Store, action: Action) -> bool:
        """Be the only one that follows an action, for a while: what it does outside should be done once."""
        name, now = action.name, self._clock()
        if now < self._renew_at.get(name, 0.0):
            return True
        if not self._powers.suffice(action):
            return self._holds_briefly(store, name)
        if store.call(duty_calls.hold_view(f"action:{name}", self._owner, _PERIOD + self._powers.longest(action))):
            self._renew_at[name] = now + _RENEW
            return True
        self._renew_at.pop(name, None)
        self._retry_at[name] = now + _LOOK_AGAIN
        return False

    def _holds_briefly(self, store: Store, name: str) -> bool:
        """Show what fails here, where nobody else may do it, and leave the action to others that come."""
        now = self._clock()
        if name not in self._left_at:
            self._left_at[name] = now
        left = self._left_at[name] + _LEFT_TO_OTHERS
        if now < left or not store.call(duty_calls.hold_view(f"action:{name}", self._owner, _BRIEFLY)):
            self._retry_at[name] = max(left, now + _LOOK_AGAIN)
            return False
        self._left_at[name] = now
        return True
