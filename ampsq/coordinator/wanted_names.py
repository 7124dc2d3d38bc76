"""Duty: topics and queues that somebody used first who may not define them."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, ClassVar

from ampsq.base.errors import DefinitionError, Rejected
from ampsq.catalog.first_use import add_published
from ampsq.protocol.calls import definitions as define_calls

if TYPE_CHECKING:
    from ampsq.coordinator.duty import Happened
    from ampsq.transport.store import Store

__all__ = ["WantedNames"]

_log = logging.getLogger("ampsq.coordinator")


class WantedNames:
    """Makes what was asked for: a topic, or the queue where an address setting says so, and nothing else."""

    name = "first use"
    wakes: ClassVar[frozenset[Happened]] = frozenset({"names"})

    def run_once(self, store: Store) -> float:
        """Make all that is asked for; what cannot be made is told and forgotten."""
        wanted = store.call(define_calls.read_wanted(store.instance))
        for name in wanted:
            try:
                store.run(add_published(name))
            except (DefinitionError, Rejected) as error:
                _log.warning("%s was used first in %s, and cannot be made: %s", name, store.instance, error)
            store.call(define_calls.drop_wanted(store.instance, [name]))
        return math.inf
