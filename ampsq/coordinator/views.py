"""Duty: views. Their rows are kept up to date, written down for queries, and published when they change.

One coordinator at a time keeps a view; another takes it over a few seconds after the first one is gone, from the rows
written down. What is to be published is written down first, with the sequence of its first message: whoever takes over
publishes it again, under the same numbers, so that each change of a row is published exactly once.
"""

from __future__ import annotations

import json
import logging
import math
import secrets
import time
from typing import TYPE_CHECKING, ClassVar, Final

from ampsq.base.errors import ServerFull, Unavailable, UnknownTopic
from ampsq.catalog.apply import add_topic
from ampsq.coordinator.duty import Definitions
from ampsq.definitions.queue import View
from ampsq.protocol.calls import duties as duty_calls
from ampsq.protocol.calls import publish as publish_calls
from ampsq.protocol.calls import views as view_calls
from ampsq.protocol.context import InstanceContext
from ampsq.protocol.limits import BATCH, BYTES
from ampsq.protocol.reads.origin import read_origin
from ampsq.protocol.reads.publishers import read_last_sequence
from ampsq.protocol.reads.views import read_rows
from ampsq.views.upkeep import (
    Follower,
    RowChange,
    fingerprint,
    is_over_queue,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ampsq.coordinator.duty import Happened
    from ampsq.protocol.calls.catalog import Catalog
    from ampsq.transport.store import Store

__all__ = ["Views"]

_log = logging.getLogger("ampsq.coordinator")
#: Least seconds between two rounds. A round costs the server about 20 us a view.
_PAUSE: Final = 0.05
#: Milliseconds for which a view is kept without a sign of life, and seconds after which one is given.
_PERIOD: Final = 5_000
_RENEW: Final = 1.5
#: Seconds between two looks whether a view that somebody else keeps is free.
_LOOK_AGAIN: Final = 1.0
#: Seconds of one round, and for one view of it: the other duties wait meanwhile.
_ROUND: Final = 0.1
_BUDGET: Final = 0.03
#: Least seconds between two versions of a row.
_CONFLATE: Final = 0.1
#: Seconds until a view that failed is tried again.
_AFTER_FAILURE: Final = 2.0


class Views:
    """Keeps the views that no other coordinator keeps.

    Args:
        definitions: the catalog that it goes by; default one of its own.
        clock: seconds by which it paces itself, which never go back.
    """

    name = "views"
    wakes: ClassVar[frozenset[Happened]] = frozenset({"catalog", "news"})

    def __init__(self, definitions: Definitions | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._definitions = definitions or Definitions()
        self._owner = secrets.token_hex(8)
        self._kept: dict[str, _Kept] = {}
        self._retry_at: dict[str, float] = {}
        self._turn = 0

    def run_once(self, store: Store) -> float:
        """Work on one view after the other, until the time of a round is over; the next round goes on from there."""
        catalog = self._definitions.read(store)
        names = sorted(catalog.views)
        until = self._clock() + _ROUND
        more = False
        for done, name in enumerate(names[self._turn :] + names[: self._turn]):
            if done and self._clock() >= until:
                self._turn = (self._turn + done) % len(names)
                return 0.0
            if self._clock() >= self._retry_at.get(name, 0.0):
                more = self._try(store, catalog, name, catalog.views[name]) or more
        return 0.0 if more else self._rest(names)

    def _rest(self, names: Sequence[str]) -> float:
        """Seconds until a round is wanted though nothing happens."""
        # One that was lost, or could not be begun, is tried again, whatever the reason.
        soon = self._clock() + _LOOK_AGAIN
        moments = [self._retry_at.get(name, soon) for name in names if name not in self._kept]
        moments += [kept.wanted_at for kept in self._kept.values()]
        return max(min(moments, default=math.inf) - self._clock(), _PAUSE)

    def _try(self, store: Store, catalog: Catalog, name: str, text: str) -> bool:
        """Work on one view. What fails begins anew later, and holds up no other view."""
        try:
            return self._work(store, catalog, name, text)
        except ServerFull as error:
            _log.warning("view %s of %s waits: %s", name, store.instance, error)
            self._retry_at[name] = self._clock() + _AFTER_FAILURE
            return False
        except Unavailable:
            self._kept.clear()
            raise
        except Exception:  # noqa: BLE001  (one view that cannot be kept must not stop the others)
            _log.exception("view %s of %s failed; trying again", name, store.instance)
            self._kept.pop(name, None)
            self._retry_at[name] = self._clock() + _AFTER_FAILURE
            return False

    def _work(self, store: Store, catalog: Catalog, name: str, text: str) -> bool:
        kept = self._kept.get(name)
        if kept is not None and not kept.is_of(catalog, text):
            kept = None
        if kept is None or self._clock() >= kept.renew_at:
            renew_at = self._clock() + _RENEW
            if not store.call(duty_calls.hold_view(name, self._owner, _PERIOD)):
                self._kept.pop(name, None)
                self._retry_at[name] = self._clock() + _LOOK_AGAIN
                return False
            if kept is None:
                kept = self._kept[name] = _Kept(store, View.from_json(text), text, catalog, self._clock)
            kept.renew_at = renew_at
        more = kept.work(store)
        if kept.lost:
            _log.warning("view %s of %s was kept by somebody else meanwhile", name, store.instance)
            del self._kept[name]
        return more


class _Kept:
    """One view while it is kept here.

    Attributes:
        renew_at: when to give a sign of life, by the monotonic clock.
        wanted_at: when something is to be done though nothing happens.
        lost: whether somebody else published its rows meanwhile.
    """

    def __init__(self, store: Store, view: View, text: str, catalog: Catalog, clock: Callable[[], float]) -> None:
        self._view, self._text, self._clock = view, text, clock
        self._over_queue = is_over_queue(catalog, view)
        self._publisher = f"view:{view.name}"
        self._publish_at = 0.0
        self._complete = False
        self._left_out = 0
        self.renew_at, self.wanted_at, self.lost = 0.0, 0.0, False
        # Until everything was read here, the rows written down are those of whoever kept the view before.
        store.call(view_calls.begin_rows(store.instance, view.name))
        self._sequence = self._last_sequence(store)
        self._finish_pending(store)
        origin = store.call(read_origin(store.instance))
        given = store.run(read_rows(store.instance, view.name))
        self._follower = Follower(InstanceContext(store.instance, origin), view, catalog, given, clock)
        self._knows_rows = self._mark_rows(store, bool(given))

    def _mark_rows(self, store: Store, has_rows: bool) -> bool:  # noqa: FBT001
        """Say whether this definition made all rows that there are, and note it while it is so."""
        mark = fingerprint(self._view)
        made = store.call(view_calls.read_maker(store.instance, self._view.name))
        if has_rows and made != mark.encode():
            store.call(view_calls.forget_maker(store.instance, self._view.name))
            return False
        store.call(view_calls.note_maker(store.instance, self._view.name, mark))
        return True

    def is_of(self, catalog: Catalog, text: str) -> bool:
        """Return whether this is still what the catalog says."""
        return text == self._text and self._over_queue == is_over_queue(catalog, self._view)

    def work(self, store: Store) -> bool:
        """Read for a while and tell what changed; True when there is more to read at once."""
        until = self._clock() + _BUDGET
        more = True
        while more and self._clock() < until:
            more = store.run(self._follower.step())
        self.wanted_at = min(self.renew_at, self._clock() + self._follower.rest)
        if not self._follower.complete or self._clock() < self._publish_at:
            self.wanted_at = min(self.wanted_at, max(self._publish_at, self._clock()))
            return more
        for batch in _batches(self._follower.changes(BATCH)):
            # The end of a group that another definition made means nothing to whoever reads the rows of this one.
            told = batch if self._knows_rows else [_unsaid(change) for change in batch]
            if not self._tell(store, told):
                self.lost = True
                return False
            self._follower.accept(batch)
        if not self._follower.is_told:
            return True
        self._note_left_out(store)
        self._publish_at = self._clock() + _CONFLATE
        if not self._complete:
            store.call(view_calls.note_complete(store.instance, self._view.name, fingerprint(self._view)))
            self._complete = self._knows_rows = True
        return more

    def _note_left_out(self, store: Store) -> None:
        """Write down how many messages are in no row, and warn of the first."""
        count = self._follower.left_out
        if count == self._left_out:
            return
        if not self._left_out:
            _log.warning(
                "view %s of %s leaves out %d messages, whose bodies are more than expressions read (expression_limit)",
                self._view.name, store.instance, count,
            )  # fmt: skip
        store.call(view_calls.note_left_out(store.instance, self._view.name, count))
        self._left_out = count

    def _last_sequence(self, store: Store) -> int:
        return store.call(read_last_sequence(store.instance, self._publisher))

    def _finish_pending(self, store: Store) -> None:
        """Publish what somebody had begun to publish; what was recorded then is not recorded again."""
        pending = store.call(view_calls.read_pending(store.instance, self._view.name))
        if pending is not None:
            first, changes = _read_pending(pending)
            self._publish(store, first, changes)
            self._write_down(store, changes)

    def _tell(self, store: Store, changes: list[RowChange]) -> bool:
        """Publish a batch of changes and write them down; False when somebody else has published under its numbers."""
        first = self._sequence + 1
        store.call(view_calls.note_pending(store.instance, self._view.name, _write_pending(first, changes)))
        if not self._publish(store, first, changes):
            return False
        self._write_down(store, changes)
        return True

    def _publish(self, store: Store, first: int, changes: list[RowChange]) -> bool:
        """Publish rows under fixed numbers; False when others had these numbers already."""
        bodies = [change.text for change in changes if change.text]
        if not bodies:
            return True
        call = publish_calls.publish(self._view.name, bodies, [], self._publisher, first)
        try:
            published = store.call(call)
        except UnknownTopic:
            store.run(add_topic(self._view.name))
            published = store.call(call)
        self._sequence = max(self._sequence, first + len(bodies) - 1)
        return call.repeated or not any(part.duplicates for part in published.parts)

    def _write_down(self, store: Store, changes: list[RowChange]) -> None:
        """Write what was published; after this, it is not published again."""
        rows = {change.key: change.text for change in changes if not change.gone}
        if rows:
            store.call(view_calls.write_rows(store.instance, self._view.name, rows))
        gone = [change.key for change in changes if change.gone]
        store.call(view_calls.end_rows(store.instance, self._view.name, gone))


def _unsaid(change: RowChange) -> RowChange:
    """A change that is written down and, if its group is gone, not published."""
    return change._replace(text=b"") if change.gone else change


def _batches(changes: list[RowChange]) -> Iterator[list[RowChange]]:
    """Cut changes so that each part is one call: at most 500 rows, and about a megabyte."""
    batch: list[RowChange] = []
    total = 0
    for change in changes:
        batch.append(change)
        total += len(change.text)
        if len(batch) == BATCH or total >= BYTES:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch


def _write_pending(first: int, changes: list[RowChange]) -> bytes:
    return json.dumps([first, [[change.key, change.text.decode(), change.gone] for change in changes]]).encode()


def _read_pending(text: bytes) -> tuple[int, list[RowChange]]:
    first, changes = json.loads(text)
    return first, [RowChange(name, row.encode(), gone) for name, row, gone in changes]
