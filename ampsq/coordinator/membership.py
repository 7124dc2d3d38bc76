"""Instances that this coordinator cares for, where several coordinators share those of a server."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import socket
import threading
import time
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from ampsq.base.errors import AmpsqError, NotPermitted, Unavailable
from ampsq.protocol.reads.clock import server_time
from ampsq.protocol.reads.coordinators import (
    STALE,
    CoordinatorEntry,
    list_coordinator,
    list_ids,
    owners_of_instance,
    read_coordinators,
    unlist_coordinators,
)
from ampsq.protocol.reads.instances import count_instances, list_instances
from ampsq.transport.kept_pipeline import KeptPipeline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ampsq.protocol.request import Call
    from ampsq.transport.store import Store

__all__ = ["PERIOD", "Membership", "MembershipQuestion"]

_log = logging.getLogger("ampsq.coordinator")
#: Seconds between two signs of life. One that is killed is without instances `STALE` and one of these later.
PERIOD: Final = 0.9
#: Instances of the server from which on a sign of life counts them, and they are only read where their number is
#: another one; and signs of life of which one reads them all the same.
_COUNTED: Final = 100
_READ_EVERY: Final = 8
#: Seconds after a sign of life in which there is no other one.
_NOT_SOONER: Final = 0.6
#: Milliseconds for which one that knows of no other one gives no sign of life: each is written to the server's disk. It
#: looks for others all the same, and gives one at once when it finds one.
_QUIET: Final = 6_000
#: Milliseconds after which one that died is taken out of the list.
_FORGOTTEN: Final = 60_000
#: Seconds without an answer after which the others, too, have had no chance to give a sign of life.
_UNANSWERED: Final = 1.5


class MembershipQuestion(NamedTuple):
    """Calls by which a coordinator asks for the others, most of them with a sign of life.

    Attributes:
        calls: to be sent in this order.
        has_sign: the first one is a sign of life.
        has_instances: they ask for the instances of the server, or for their number.
    """

    calls: list[Call[object]]
    has_sign: bool = False
    has_instances: bool = False


class Membership:
    """This coordinator's place among those of its server. Two threads may use it.

    Args:
        named: the instances that it was told to care for; empty: all of the server.
        powers: what its actions may do outside of an instance, a word each.
        work: gives how many instances it cares for, and duty -> seconds by which it is late at most: what is said with
            signs of life.

    Attributes:
        met_at: when the others were read last, by the monotonic clock.
        listed: the instances of the server as they were read with the others; None: whoever wants to know has to ask.
        changed: set when the others or these instances are not what they were.
        version: another number where this coordinator may own other instances than before.
        owes_sign: there is another one, which waits for a sign of life.
    """

    def __init__(
        self,
        named: Sequence[str],
        powers: Sequence[str] = (),
        work: Callable[[], tuple[int, Mapping[str, float]]] = lambda: (0, {}),
    ) -> None:
        self._own = CoordinatorEntry(
            f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}", socket.gethostname(), os.getpid(), 0, 0
        )
        self._own.named, self._own.powers = list(named), list(powers)
        self._alive: list[CoordinatorEntry] = [self._own]
        self._owned: dict[str, bool] = {}
        self.met_at = self._trusted_from = 0.0
        self.listed: Sequence[str] | None = None
        self.changed, self.version = threading.Event(), 0
        self.owes_sign = False
        self._work = work
        self._is_alone = self._is_listed = self._has_left = False
        self._ahead: float | None = None
        self._forgotten: list[str] = []
        # Questions that were made, and whether the last one only counts the instances.
        self._asked, self._counts = 0, False
        # When the others were met first, and what the last sign of life said of the own work, by the server's clock.
        self._joined_at = 0.0
        self._said: tuple[int, Mapping[str, float]] = 0, {}
        # Held while what was read is taken in.
        self._judging = threading.Lock()
        # Of the thread that calls `meet`.
        self._asking = KeptPipeline()

    @property
    def id(self) -> str:
        """Name of the coordinator in the list."""
        return self._own.id

    def meet(self, store: Store, *, has_instances: bool = True) -> None:
        """Give a sign of life, and see which others are alive; for one who asks the server nothing else.

        Args:
            store: on the server that has the list of coordinators.
            has_instances: that server has the list of instances, too.

        Raises:
            Unavailable: the server does not answer.
        """
        if self._is_alone:
            return
        now = store.call(server_time())
        self.keep_time(now)
        asked = self._question(has_instances=has_instances)
        with contextlib.closing(self._asking.ask(store, asked.calls)) as replies:
            self.take_in(asked, replies, now)

    def question(self, *, has_instances: bool = True) -> MembershipQuestion:
        """Return what a look asks: for the others, with a sign of life where it is time for one.

        Whoever sends it gives the replies to `take_in`. Before that, `meet` was called.

        Args:
            has_instances: ask for the instances of the server, too.
        """
        is_soon = time.monotonic() - self.met_at < _NOT_SOONER
        if is_soon or self._is_alone or self._has_left or self._ahead is None:
            return MembershipQuestion([])
        return self._question(has_instances=has_instances)

    @property
    def is_among_others(self) -> bool:
        """Return whether there are other coordinators, so that each look gives a sign of life."""
        return len(self._alive) > 1

    def _question(self, *, has_instances: bool) -> MembershipQuestion:
        calls: list[Call[object]] = []
        if is_due := self._is_sign_due():
            self._own.since = self._own.since or self._own.seen
            self._is_listed, self.owes_sign = True, False
            calls.append(list_coordinator(self._own))
        calls.append(read_coordinators(but=self._own.id))
        has_instances = has_instances and not self._own.named
        if has_instances:
            self._asked += 1
            self._counts = self.listed is not None and len(self.listed) >= _COUNTED and self._asked % _READ_EVERY != 0
            calls.append(count_instances() if self._counts else list_instances())
        calls += [unlist_coordinators(self._forgotten)] if self._forgotten else []
        return MembershipQuestion(calls, is_due, has_instances)

    def _is_sign_due(self) -> bool:
        """Return whether a sign of life is to be given now; then the own entry has what it says."""
        now = round(self.now())
        quiet, work = 0 if self.is_among_others else _QUIET, self._work()
        is_known = quiet == self._own.quiet and work == self._said and 0 <= now - self._own.seen < quiet
        if is_known and not self.owes_sign:
            return False
        self._said = work
        self._own.cares_for, self._own.late = work[0], dict(work[1])
        self._own.seen, self._own.quiet = now, quiet
        return True

    def take_in(self, asked: MembershipQuestion, replies: Iterator[object], now: float) -> None:
        """Take in the replies to a question, and no others.

        Args:
            asked: the question.
            replies: to all that was asked.
            now: the server's clock, ms.

        Raises:
            Unavailable: the server does not answer.
        """
        if not asked.calls:
            return
        listed: Sequence[str] | None = None
        try:
            if asked.has_sign:
                next(replies)
            self._judge(cast("list[CoordinatorEntry]", next(replies)), now)
            listed = self._take_in_instances(asked, replies)
        except Unavailable:
            raise
        except NotPermitted as error:
            if not self._is_alone:
                _log.warning(
                    "this coordinator cares for its instances beside all others, since its user may not use the list "
                    "of coordinators; `ampsq acl coordinator` prints the rights that it needs: %s",
                    error,
                )
            self._is_alone, self._alive, self._owned = True, [self._own], {}
            self.version += 1
        except AmpsqError as error:
            _log.debug("the list of coordinators: %s", error)
        if asked.has_instances and listed != self.listed:
            self.listed = listed
            self.changed.set()

    def _take_in_instances(self, asked: MembershipQuestion, replies: Iterator[object]) -> Sequence[str] | None:
        """Read what is left of the replies; gives the instances of the server, None where they are to be asked for."""
        left = len(asked.calls) - asked.has_sign - 1
        listed: Sequence[str] | None = None
        try:
            if asked.has_instances:
                listed, left = self._read_listed(next(replies)), left - 1
            for _ in range(left):
                next(replies)
        except NotPermitted:
            # Who asks for the instances alone says so.
            return None
        return listed

    def _read_listed(self, reply: object) -> Sequence[str] | None:
        """Return the instances of the server; None: there are others than those known, so that they are to be read."""
        if not self._counts:
            return cast("Sequence[str]", reply)
        return self.listed if self.listed is not None and len(self.listed) == reply else None

    def reads(self) -> list[Call[object]]:
        """Return what tells whether other coordinators, or instances, are there than before."""
        if self._is_alone or self._has_left:
            return []
        instances: list[Call[object]] = (
            [] if self._own.named else [count_instances() if self._counts else list_instances()]
        )
        return [list_ids(), *instances]

    def now(self) -> float:
        """The server's clock, ms, by the own one since it was seen last."""
        return ((self._ahead or 0.0) + time.monotonic()) * 1000

    def keep_time(self, now: float) -> None:
        """Note how far the server's clock, ms, is ahead of the own one."""
        self._ahead = now / 1000 - time.monotonic()

    def _judge(self, found: Sequence[CoordinatorEntry], now: float) -> None:
        began = time.monotonic()
        with self._judging:
            if began - self.met_at > _UNANSWERED + PERIOD:
                self._trusted_from = began + (STALE / 1000 if self.met_at else 0.0)
                self._joined_at = began
            self.met_at = began
            known = {each.id for each in self._alive}
            alive = [self._own]
            for each in found:
                is_fresh = abs(now - each.seen) < STALE
                # One that was alone learns of this one, and gives a sign, before this one has waited as long as for
                # others.
                is_quiet = began < self._joined_at + STALE / 1000 and each.is_alive(round(now))
                if is_fresh or is_quiet or (each.id in known and began < self._trusted_from):
                    alive.append(each)
            if _roles(alive) != _roles(self._alive):
                self.owes_sign = self.owes_sign or self._own.quiet > 0
                self._owned = {}
                self.version += 1
                self.changed.set()
            self._alive = alive
            self._forgotten = [each.id for each in found if now - each.seen > _FORGOTTEN]

    def owns(self, instance: str) -> bool:
        """Return whether this coordinator is the one to care for an instance."""
        owned = self._owned
        if instance not in owned:
            owned[instance] = self._is_alone or self._own.id in owners_of_instance(instance, self._alive)
        return owned[instance]

    def others_of(self, instance: str) -> set[str]:
        """The coordinators that care for an instance in place of this one."""
        return owners_of_instance(instance, self._alive) - {self._own.id}

    def leave(self, store: Store) -> None:
        """Let the others have the instances at once."""
        self._has_left = True
        if self._is_listed:
            try:
                store.call(unlist_coordinators([self._own.id]))
            except AmpsqError as error:
                _log.debug("the list of coordinators: %s", error)


def _roles(entries: Sequence[CoordinatorEntry]) -> set[tuple[str, ...]]:
    """Return what decides which coordinator has an instance: of each its ID, the instances it was told, its powers."""
    return {(each.id, *each.named, "/", *each.powers) for each in entries}
