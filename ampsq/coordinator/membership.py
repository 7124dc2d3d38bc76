"""Which instances this coordinator cares for, where several coordinators share those of a server."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import time
from typing import TYPE_CHECKING, Final

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

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ampsq.transport.store import Store

__all__ = ["PERIOD", "Membership"]

_log = logging.getLogger("ampsq.coordinator")
#: Seconds between two signs of life. One that is killed is without instances `STALE` and one of these later.
PERIOD: Final = 0.9
#: Seconds between two questions what time it is at the server.
_ASK_TIME: Final = 10.0
#: Milliseconds after which one that died is taken out of the list.
_FORGOTTEN: Final = 60_000
#: Seconds without an answer after which the others, too, have had no chance to give a sign of life.
_UNANSWERED: Final = 1.5


class Membership:
    """This coordinator's place among those of its server.

    Args:
        named: the instances that it was told to care for; empty: all of the server.
        powers: what its actions may do outside of an instance, a word each.
    """

    def __init__(self, named: Sequence[str], powers: Sequence[str] = ()) -> None:
        self._own = CoordinatorEntry(
            f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}", socket.gethostname(), os.getpid(), 0, 0
        )
        self._own.named, self._own.powers = list(named), list(powers)
        self._alive: list[CoordinatorEntry] = [self._own]
        self._answered_at = self._trusted_from = 0.0
        self._is_alone = False
        self._is_listed = False
        self._ahead: float | None = None
        self._asked_at = 0.0

    @property
    def id(self) -> str:
        """Its name in the list."""
        return self._own.id

    def meet(self, store: Store, cares_for: int, late: Mapping[str, float]) -> None:
        """Give a sign of life, and see which others are alive.

        Args:
            store: on the server.
            cares_for: how many instances this one cares for now.
            late: duty -> seconds by which it is late at most.

        Raises:
            Unavailable: the server does not answer.
        """
        if self._is_alone:
            return
        try:
            now = self._server_time(store)
            self._own.since, self._own.seen = self._own.since or now, now
            self._own.cares_for, self._own.late = cares_for, dict(late)
            self._is_listed = True
            found = self._exchange(store)
        except Unavailable:
            raise
        except NotPermitted as error:
            _log.warning(
                "this coordinator cares for its instances beside all others, since its user may not use the list of "
                "coordinators; `ampsq acl coordinator` prints the rights that it needs: %s",
                error,
            )
            self._is_alone, self._alive = True, [self._own]
            return
        except AmpsqError as error:
            _log.debug("the list of coordinators: %s", error)
            return
        self._judge(store, found, now)

    def _server_time(self, store: Store) -> int:
        """The server's clock, ms, which is asked for now and then."""
        began = time.monotonic()
        if began - self._asked_at > _ASK_TIME or self._ahead is None:
            self._asked_at, self._ahead = began, store.call(server_time()) / 1000 - began
        return round((self._ahead + began) * 1000)

    def _exchange(self, store: Store) -> list[CoordinatorEntry]:
        """Say that this one is alive, and read the list."""
        if store.route.is_cluster:
            store.call(list_coordinator(self._own))
            return store.call(read_coordinators())
        with store.pipeline() as pipeline:
            pipeline.post(list_coordinator(self._own))
            pipeline.post(read_coordinators())
            pipeline.collect()
            found: list[CoordinatorEntry] = pipeline.collect()  # type: ignore[assignment]  # what was posted
            return found

    def _judge(self, store: Store, found: Sequence[CoordinatorEntry], now: int) -> None:
        began = time.monotonic()
        if began - self._answered_at > _UNANSWERED + PERIOD:
            self._trusted_from = began + (STALE / 1000 if self._answered_at else 0.0)
        self._answered_at = began
        known = {each.id for each in self._alive}
        alive = [self._own]
        for each in found:
            is_fresh = abs(now - each.seen) < STALE
            if each.id != self._own.id and (is_fresh or (each.id in known and began < self._trusted_from)):
                alive.append(each)
        self._alive = alive
        forgotten = [each.id for each in found if now - each.seen > _FORGOTTEN]
        if forgotten:
            store.call(unlist_coordinators(forgotten))

    def owns(self, instance: str) -> bool:
        """Whether this coordinator is the one to care for an instance."""
        return self._is_alone or self._own.id in owners_of_instance(instance, self._alive)

    def others_of(self, instance: str) -> set[str]:
        """The coordinators that care for an instance in place of this one."""
        return owners_of_instance(instance, self._alive) - {self._own.id}

    def leave(self, store: Store) -> None:
        """Let the others have the instances at once."""
        if self._is_listed:
            try:
                store.call(unlist_coordinators([self._own.id]))
            except AmpsqError as error:
                _log.debug("the list of coordinators: %s", error)
