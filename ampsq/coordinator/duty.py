"""The common form of duties: one bounded round, and when the next one is wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

from ampsq.protocol.calls import catalog as catalog_calls
from ampsq.protocol.reads.instance import catalog_version

if TYPE_CHECKING:
    from ampsq.protocol.calls.catalog import Catalog
    from ampsq.transport.store import Store


__all__ = ["Definitions", "Duty", "Happened"]


#: What happens at an instance, as scripts say it when they wake a coordinator (lua/lib/timetable.lua), or as it sees it
#: itself: something is `due`; there is `news` in a log or journal; the `catalog` changed; `names` were used first;
#: `clients` came or may be gone; `rebuilds` were left; messages are `remote`: others own them; the server is `flushing`
#: in another way.
Happened = Literal["due", "news", "catalog", "names", "clients", "rebuilds", "remote", "flushing"]


class Duty(Protocol):
    """One thing that the coordinator does over time, for one instance.

    Any number of coordinators may do the same duty at once: each round is made of calls that are safe to repeat.

    Attributes:
        name: as logs and metrics have it.
        wakes: what happens that gives it something to do; see `Happened`.
    """

    name: str
    wakes: ClassVar[frozenset[Happened]]

    def run_once(self, store: Store) -> float:
        """Do one bounded round.

        Returns:
            The seconds until the next one is wanted though nothing happens meanwhile: 0 when more is to do, `math.inf`
            where only what happens counts.
        """
        ...


class Definitions:
    """A copy of the catalog.

    Attributes:
        is_current: whether somebody else sees to it that a change is not missed; then nothing is asked.
    """

    def __init__(self) -> None:
        self._catalog: Catalog | None = None
        self.is_current = False

    @property
    def known(self) -> Catalog | None:
        """The catalog as it was read last."""
        return self._catalog

    def read(self, store: Store) -> Catalog:
        """The catalog as it stands; one small read while nothing changes."""
        if self.is_current and self._catalog is not None:
            return self._catalog
        version = store.call(catalog_version(store.instance))
        if self._catalog is None or self._catalog.version != version:
            self._catalog = store.call(catalog_calls.catalog())
        return self._catalog
