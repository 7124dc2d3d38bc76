"""The sync destinations of an instance: which of them is waited for, and how far it is behind."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from ampsq.catalog.sent_streams import sent_topic
from ampsq.definitions.stored_destination import read_stored_destination
from ampsq.protocol.calls import catalog as catalog_calls
from ampsq.protocol.calls import replication as replication_calls
from ampsq.protocol.calls.links import read_link_reports
from ampsq.protocol.reads.destinations import read_peer, read_sync
from ampsq.protocol.reads.origin import name_of

if TYPE_CHECKING:
    from ampsq.protocol.calls.catalog import Catalog

__all__ = ["SyncState", "sync_states"]

#: ms for which what a link said of itself holds.
_SAID_LATELY: Final = 5_000


class SyncState(NamedTuple):
    """A destination whose acknowledgement is waited for, or would be.

    Attributes:
        destination: its name.
        downgraded: since when it is not waited for; None: it is.
        age: ms since the oldest message was recorded that it has not acknowledged; 0 where it has everything, however
            long nothing was published.
        is_connected: its link said within the last seconds that it stands.
        reason: what the link says, where it does not stand; "" where it said nothing.
        is_final: nothing but another definition of the destination ends that.
    """

    destination: str
    downgraded: datetime | None
    age: int
    is_connected: bool
    reason: str
    is_final: bool = False

    def __str__(self) -> str:
        text = f"sync destination {self.destination!r} has not acknowledged it"
        if self.age:
            text += f": its oldest message waits for {self.age / 1000:.1f} s"
        return text + (f"; its link is {self.reason}" if self.reason else "")


async def sync_states(instance: str) -> dict[str, SyncState]:
    """Read how each destination configured as sync stands, by name."""
    catalog = await catalog_calls.catalog()
    states = await read_sync(instance)
    links = await read_link_reports(instance)
    found = {}
    for name, since in sorted(states.items()):
        if name not in catalog.destinations:
            continue
        # Every client that reads a topic imports this file, and few have a sync destination.
        from ampsq.definitions.destination import Address, Destination  # noqa: PLC0415

        waiting = await replication_calls.behind_since(name, _carried(catalog, name))
        peer = name_of(await read_peer(instance, name))
        # Where the other side makes the link, that side speaks for it.
        link = links.outgoing.get(name) or links.incoming.get(peer)
        is_up = link is not None and link.state == "connected"
        # It may have been said of addresses that are no more, and before another one was added.
        addresses = {str(Address(*each)) for each in Destination.from_json(catalog.destinations[name]).peers}
        found[name] = SyncState(
            name,
            datetime.fromtimestamp(since / 1000, UTC) if since is not None else None,
            max(waiting.now - waiting.oldest, 0) if waiting.oldest is not None else 0,
            link is not None and is_up and waiting.now - link.at <= _SAID_LATELY,
            f"{link.state}: {link.reason}" if link is not None and not is_up else "",
            link is not None and link.is_final and addresses <= set(link.address.split(", ")),
        )
    return found


def _carried(catalog: Catalog, name: str) -> list[str]:
    """Return what a destination is sent by its definition."""
    definition = read_stored_destination(catalog.destinations[name])
    return [f"log {topic}" for topic in sorted(catalog.topics) if sent_topic(definition, catalog, topic)]
