"""What all duties have in common: a round that is pure of timing, and the pause until the next one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ampsq.protocol.calls import catalog as catalog_calls
from ampsq.protocol.reads.instance import catalog_version

if TYPE_CHECKING:
    from ampsq.protocol.calls.catalog import Catalog
    from ampsq.transport.store import Store


__all__ = ["Definitions", "Duty"]


class Duty(Protocol):
    """One thing that the coordinator does over time, for one instance.

    Any number of coordinators may do the same duty at once: each round is made of calls that are safe to repeat.
    """

    name: str

    def run_once(self, store: Store) -> float:
        """Do one bounded round; returns the seconds until the next one is wanted, 0 when more is to do."""
        ...


class Definitions:
    """One duty's copy of the catalog."""

    def __init__(self) -> None:
        self._catalog: Catalog | None = None

    def read(self, store: Store) -> Catalog:
        """The catalog as it stands; one small read while nothing changes."""
        version = store.call(catalog_version(store.instance))
        if self._catalog is None or self._catalog.version != version:
            self._catalog = store.call(catalog_calls.catalog())
        return self._catalog
