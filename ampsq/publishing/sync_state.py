"""The sync destinations of an instance: which of them is waited for, and how far it is behind."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ampsq.catalog.destination_checks import sent_topic
from ampsq.definitions.destination import Address, Destination
from ampsq.protocol.calls import queues as calls
from ampsq.protocol.calls import replication as replication_calls
from ampsq.protocol.request import command
from ampsq.protocol.schema import FIELDS, key

if TYPE_CHECKING:
    from ampsq.protocol.calls.queues import Catalog

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
    catalog = await calls.catalog()
    states = await command(["HGETALL", key(instance, "sync")], _texts)
    links = await command(["HGETALL", key(instance, "links")], _texts)
    found = {}
    for name, since in sorted(states.items()):
        if name not in catalog.destinations:
            continue
        oldest, now = await replication_calls.behind_since(name, _carried(catalog, name))
        peer = await command(["HGET", key(instance, "sent", name), FIELDS["peer"]], lambda reply: reply or b"")
        # Where the other side makes the link, that side speaks for it.
        said = json.loads(links.get(f"out {name}") or links.get(f"in {peer.decode().rpartition('.')[0]}") or "{}")
        is_up = said.get("state") == "connected"
        # It may have been said of addresses that are no more.
        addresses = (Address(*each) for each in Destination.from_json(catalog.destinations[name]).peers)
        found[name] = SyncState(
            name,
            datetime.fromtimestamp(int(since) / 1000, UTC) if since else None,
            max(now - oldest, 0) if oldest is not None else 0,
            is_up and now - said["at"] <= _SAID_LATELY,
            f"{said['state']}: {said['reason']}" if said and not is_up else "",
            bool(said.get("is_final")) and said["address"] in ("", *map(str, addresses)),
        )
    return found


def _carried(catalog: Catalog, name: str) -> list[str]:
    """What a destination is sent by its definition."""
    definition = Destination.from_json(catalog.destinations[name])
    return [f"log {topic}" for topic in sorted(catalog.topics) if sent_topic(definition, catalog, topic)]


def _texts(reply: Any) -> dict[str, str]:
    pairs = zip(reply[::2], reply[1::2], strict=True) if isinstance(reply, list) else reply.items()
    return {name.decode(): value.decode() for name, value in pairs}
