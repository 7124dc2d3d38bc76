"""The definitions as the coordinator sees them: read again only when their version has changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampsq import calls
from ampsq.flow import command
from ampsq.schema import key

if TYPE_CHECKING:
    from ampsq.calls import Catalog
    from ampsq.store import Store

__all__ = ["Definitions"]


class Definitions:
    """One duty's copy of the catalog."""

    def __init__(self) -> None:
        self._catalog: Catalog | None = None

    def read(self, store: Store) -> Catalog:
        """The catalog as it stands; one small read while nothing changes."""
        instance = key(store.instance, "instance")
        version = store.call(command(["HGET", instance, "catalog"], lambda reply: int(reply or -1)))
        if self._catalog is None or self._catalog.version != version:
            self._catalog = store.call(calls.catalog())
        return self._catalog
