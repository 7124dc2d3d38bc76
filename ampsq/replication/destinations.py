"""The destinations that there are, and how one goes."""

from __future__ import annotations

from ampsq.base.values import parse_name
from ampsq.definitions.destination import Destination
from ampsq.protocol.calls import catalog as catalog_calls
from ampsq.protocol.calls import definitions as define_calls

__all__ = ["read_destinations", "remove_destination"]


async def read_destinations() -> dict[str, Destination]:
    """Read all destinations, by name."""
    catalog = await catalog_calls.catalog()
    return {name: Destination.from_json(text) for name, text in sorted(catalog.destinations.items())}


async def remove_destination(name: str) -> bool:
    """Forget a destination; see `Admin.remove_destination`."""
    was_there: bool = await define_calls.remove_destination(parse_name(name))
    return was_there
