"""The destinations that there are, and how one goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampsq import calls
from ampsq.definitions import define_calls
from ampsq.definitions.destination import Destination
from ampsq.values import parse_name

if TYPE_CHECKING:
    from ampsq.flow import Flow

__all__ = ["read_destinations", "remove_destination"]


def read_destinations() -> Flow[dict[str, Destination]]:
    """Read all destinations, by name."""
    catalog = yield calls.catalog()
    return {name: Destination.from_json(text) for name, text in sorted(catalog.destinations.items())}


def remove_destination(name: str) -> Flow[bool]:
    """Forget a destination; see `Client.remove_destination`."""
    was_there: bool = yield define_calls.remove_destination(parse_name(name))
    return was_there
