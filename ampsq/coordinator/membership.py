"""Instances that this coordinator cares for, where several coordinators share those of a server."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import socket
import threading
import time
from typing import TYPE_CHECKING, Final, cast

from ampsq.base.errors import AmpsqError, NotPermitted, Unavailable
from ampsq.protocol.reads.clock import server_time
from ampsq.protocol.reads.coordinators import (
    STALE,
    CoordinatorEntry,
    list_coordinator,
    owners_of_instance,
    read_coordinators,
    unlist_coordinators,
)
from ampsq.protocol.reads.instances import count_instances, list_instances
from ampsq.transport.kept_pipeline import KeptPipeline

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ampsq.protocol.request import Call
    from ampsq.transport.store import Store

__all__ = ["PERIOD", "Membership"]

_log = logging.getLogger("ampsq.coordinator")
#: Seconds between two signs of life. One that is killed is without instances `STALE` and one of these later.
PERIOD: Final = 0.9
#: Instances of the server from which on a sign of life counts them, and they are only read where their number is
#: another one; and signs of life of which one reads them all the same.
_COUNTED: Final = 100
_READ_EVERY: Final = 8
#: Seconds after a sign of life in which there is no other one.
_NOT_SOONER: Final = 0.6
#: Milliseconds after which one that died is taken out of the list.
_FORGOTTEN: Final = 60_000
#: Seconds without an answer after which the others, too, have had no chance to give a sign of life.
_UNANSWERED: Final = 1.5


class Membership:
    """This coordinator's place among those of its server. Two threads may use it.

    Args:
        named: the instances that it was told to care for; empty: all of the server.
        powers: what its actions may do outside of an instance, a word each.

    Attributes:
        met_at: when the others were read last, by the monotonic clock.
        listed: the instances of the server as they were read with the others; None: whoever wants to know has to ask.
        changed: set when the others or these instances are not what they were.
        cares_for: how many instances this one cares for now, to be said with its signs of life.
        late: duty -> seconds by which it is late at most, to be said as well.
    """

    def __init__(self, named: Sequence[str], powers: Sequence[str] = ()) -> None:
        self._own = CoordinatorEntry(
            f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}", socket.gethostname(), os.getpid(), 0, 0
        )
        self._own.named, self._own.powers = list(named), list(powers)
        self._alive: list[CoordinatorEntry] = [self._own]
        self._owned: dict[str, bool] = {}
        self.met_at = self._trusted_from = 0.0
        self.listed: Sequence[str] | None = None
        self.changed = threading.Event()
        self.cares_for = 0
        self.late: Mapping[str, float] = {}
        self._is_alone = self._is_listed = self._has_left = False
        self._ahead: float | None = None
        self._forgotten: list[str] = []
        # Signs of life that were given, and whether the last one only counts the instances.
        self._given, self._counts = 0, False
        # Held while what was read is taken in.
        self._judging = threading.Lock()
        # Of the thread that calls `meet`.
        self._asking = KeptPipeline()

    @property
    def id(self) -> str:
        """Name of the coordinator in the list."""
        return self._own.id

    def meet(self, store: Store) -> None:
        """Give a sign of life, and see which others are alive; for one who asks the server nothing else.

        Raises:
            Unavailable: the server does not answer.
        """
        if self._is_alone:
            return
        now = store.call(server_time())
        self._keep_time(now)
        if store.route.is_cluster:
            # The two lists may be on different nodes: one that is away is no reason to be without the other.
            self.take_in((store.call(call) for call in self._signs()), now, has_instances=False)
            if self._forgotten:
                store.call(unlist_coordinators(self._forgotten))
        else:
            with contextlib.closing(self._asking.ask(store, self._calls())) as replies:
                self.take_in(replies, now)

    def calls(self) -> list[Call[object]]:
        """Return the calls that give a sign of life; empty where it is not time for one.

        Whoever sends them gives the replies to `take_in`. Before that, `meet` was called.
        """
        is_soon = time.monotonic() - self.met_at < _NOT_SOONER
        return [] if is_soon or self._is_alone or self._has_left or self._ahead is None else self._calls()

    def is_sign_due(self) -> bool:
        """Return whether the next look is to give a sign of life: each while there are others, else every other one."""
        return len(self._alive) > 1 or time.monotonic() >= self.met_at + PERIOD

    def _calls(self) -> list[Call[object]]:
        calls = self._signs()
        self._given += 1
        self._counts = self.listed is not None and len(self.listed) >= _COUNTED and self._given % _READ_EVERY != 0
        if not self._own.named:
            calls.append(count_instances() if self._counts else list_instances())
        return [*calls, unlist_coordinators(self._forgotten)] if self._forgotten else calls

    def _signs(self) -> list[Call[object]]:
        now = round(((self._ahead or 0.0) + time.monotonic()) * 1000)
        self._own.since, self._own.seen = self._own.since or now, now
        self._own.cares_for, self._own.late = self.cares_for, dict(self.late)
        self._is_listed = True
        return [list_coordinator(self._own), read_coordinators(but=self._own.id)]

    def take_in(self, replies: Iterator[object], now: float, *, has_instances: bool = True) -> None:
        """Take in the replies to `calls`, to the last one.

        Args:
            replies: those that are left of all that was asked.
            now: the server's clock, ms, as an earlier reply says it.
            has_instances: the instances of the server were asked for, unless this coordinator was told its own.

        Raises:
            Unavailable: the server does not answer.
        """
        listed: Sequence[str] | None = None
        try:
            self._keep_time(now)
            next(replies)
            self._judge(cast("list[CoordinatorEntry]", next(replies)), now)
            try:
                if has_instances and not self._own.named:
                    listed = self._read_listed(next(replies))
                for _ in replies:
                    pass
            except NotPermitted:
                # Who asks for the instances alone says so.
                listed = None
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
        except AmpsqError as error:
            _log.debug("the list of coordinators: %s", error)
        if listed != self.listed:
            self.listed = listed
            self.changed.set()

    def _read_listed(self, reply: object) -> Sequence[str] | None:
        """Return the instances of the server; None: there are others than those known, so that they are to be read."""
        if not self._counts:
            return cast("Sequence[str]", reply)
        return self.listed if self.listed is not None and len(self.listed) == reply else None

    def _keep_time(self, now: float) -> None:
        """Note how far the server's clock, ms, is ahead of the own one."""
        self._ahead = now / 1000 - time.monotonic()

    def _judge(self, found: Sequence[CoordinatorEntry], now: float) -> None:
        began = time.monotonic()
        with self._judging:
            if began - self.met_at > _UNANSWERED + PERIOD:
                self._trusted_from = began + (STALE / 1000 if self.met_at else 0.0)
            self.met_at = began
            known = {each.id for each in self._alive}
            alive = [self._own]
            for each in found:
                is_fresh = abs(now - each.seen) < STALE
                if is_fresh or (each.id in known and began < self._trusted_from):
                    alive.append(each)
            if _roles(alive) != _roles(self._alive):
                self._owned = {}
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
