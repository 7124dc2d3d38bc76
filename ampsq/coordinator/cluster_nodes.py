"""A cluster as a coordinator sees it: which primary serves which instance, and the lists outside of all instances.

Both lists and the instances are each in a slot of their own. While all is as it was, two nodes are asked one question
each a second: one which coordinators are listed, the other one how many instances are, and who serves which slots.
"""

from __future__ import annotations

import contextlib
import logging
from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import AmpsqError, Unavailable
from ampsq.protocol.reads.coordinators import LIST_KEY as COORDINATORS_KEY
from ampsq.protocol.reads.coordinators import list_ids
from ampsq.protocol.reads.instances import LIST_KEY, count_instances, list_instances
from ampsq.protocol.reads.server import slots
from ampsq.transport.discovery import addresses_of, primaries_by_slot, slot_of
from ampsq.transport.repeated_question import RepeatedQuestion

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampsq.coordinator.membership import Membership
    from ampsq.protocol.request import Call
    from ampsq.transport.server_wait import ServerWait

__all__ = ["ClusterNodes"]

_log = logging.getLogger("ampsq.coordinator")
#: Times of which all is looked at once though it is as it was: one without others gives a sign of life then.
_LOOKED_AT_EVERY: Final = 7
#: Seconds for which a call is repeated while a node cannot be reached, and in which one has to say who serves what.
_RETRY_TIMEOUT: Final = 0.5
_ANSWERS_WITHIN: Final = 2.0


class ClusterNodes:
    """The nodes of a cluster, for the thread that follows its instances.

    Args:
        servers: what waits for a server that is lost.
        url: the cluster.

    Attributes:
        runs: the first and the last slot of each run of slots, and the primary that serves them, in order.
    """

    def __init__(self, servers: ServerWait, url: str) -> None:
        self._coordinators = servers.store(url, "", _RETRY_TIMEOUT, beside=COORDINATORS_KEY)
        self._instances = servers.store(url, "", _RETRY_TIMEOUT, beside=LIST_KEY)
        self._stores = self._coordinators, self._instances
        asked: tuple[list[Call[object]], ...] = [list_ids()], [count_instances(), slots()]
        self._asked, self._questions = asked, (RepeatedQuestion(), RepeatedQuestion())
        self._turn = 0
        # Those that are asked who serves what: the one that answered last, all primaries, and those that were given.
        self._given = self._nodes = addresses_of(url)
        self.runs: list[tuple[int, int, str]] = []
        self._slots: dict[str, int] = {}
        #: Somebody has found an instance, or a node, otherwise than it was.
        self.is_doubtful = True

    def are_as_before(self) -> bool:
        """Ask whether all is as it was; False: it is not, or it is time to look at it all the same."""
        self._turn += 1
        is_sure = self._turn % _LOOKED_AT_EVERY != 0 and not self.is_doubtful
        if self.is_doubtful:
            # The one that was asked last may not know yet what others do.
            self._nodes = [*self._nodes[1:], *self._nodes[:1]]
        elif self._instances.route.current is not None:
            # The one whose answer has changed knows best.
            self._nodes = list(dict.fromkeys([self._instances.route.current.url, *self._nodes]))
        # What changes after this, the next question tells.
        self.is_doubtful = False
        shown: list[float | None] = []
        for store, question, calls in zip(self._stores, self._questions, self._asked, strict=True):
            if not question.is_open:
                question.put(store, calls)
            shown.append(question.ask(store))
        return is_sure and None not in shown

    def meet(self, membership: Membership) -> None:
        """Share the instances with the other coordinators."""
        # One whose list of coordinators is out of reach cares for the instances that it has.
        try:
            membership.meet(self._coordinators, has_instances=False)
        except Unavailable as error:
            _log.debug("the list of coordinators: %s", error)

    def list_instances(self) -> Sequence[str]:
        """Read the instances of the cluster; raises `AmpsqError`."""
        return self._instances.call(list_instances())

    def find_primaries(self) -> None:
        """Read which primary serves which slots; where no node says it, all is as it was."""
        for url in self._nodes:
            with contextlib.suppress(AmpsqError):
                self.runs = sorted(primaries_by_slot(url, _ANSWERS_WITHIN))
                # What answers is asked first.
                self._nodes = list(dict.fromkeys([url, *(primary for _, _, primary in self.runs), *self._given]))
                return
        _log.debug("no node of the cluster says who serves which slots")

    def primary_of(self, instance: str) -> str:
        """Return the address of the primary that serves an instance; "" where that is not known."""
        slot = self._slots.get(instance)
        if slot is None:
            slot = self._slots[instance] = slot_of(instance)
        place = bisect_right(self.runs, slot, key=lambda run: run[0])
        _, last, primary = self.runs[place - 1] if place else (0, -1, "")
        return primary if slot <= last else ""

    def close(self) -> None:
        """Close the connections."""
        for question, store in zip(self._questions, self._stores, strict=True):
            question.close()
            store.close()
