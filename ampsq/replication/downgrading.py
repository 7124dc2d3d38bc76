"""Sync destinations: how far behind each is, and which are waited for: downgraded and upgraded by hand or by age."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ampsq import calls
from ampsq.definitions.destination import Destination
from ampsq.definitions.destination_checks import sent_topic
from ampsq.errors import DefinitionError, UnknownDestination
from ampsq.flow import command
from ampsq.replication import replication_calls
from ampsq.schema import FIELDS, key
from ampsq.values import parse_name

if TYPE_CHECKING:
    from ampsq.calls import Catalog

__all__ = ["SyncState", "downgrade", "downgrade_late", "sync_states", "upgrade", "upgrade_prompt"]

_log = logging.getLogger("ampsq.replication")
#: Milliseconds after which what a link last said of itself counts for nothing: it says so every second.
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
    """

    destination: str
    downgraded: datetime | None
    age: int
    is_connected: bool
    reason: str

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
        oldest, now = await replication_calls.behind(name, _carried(catalog, name))
        peer = await command(["HGET", key(instance, "sent", name), FIELDS["peer"]], lambda reply: reply or b"")
        # Where the other side makes the link, that side speaks for it.
        said = json.loads(links.get(f"out {name}") or links.get(f"in {peer.decode().rpartition('.')[0]}") or "{}")
        is_up = said.get("state") == "connected"
        found[name] = SyncState(
            name,
            datetime.fromtimestamp(int(since) / 1000, UTC) if since else None,
            max(now - oldest, 0) if oldest is not None else 0,
            is_up and now - said["at"] <= _SAID_LATELY,
            f"{said['state']}: {said['reason']}" if said and not is_up else "",
        )
    return found


def _carried(catalog: Catalog, name: str) -> list[str]:
    """What a destination is sent by its definition."""
    definition = Destination.from_json(catalog.destinations[name])
    return [f"log {topic}" for topic in sorted(catalog.topics) if sent_topic(definition, catalog, topic)]


async def downgrade(destination: str) -> bool:
    """Wait for a destination no more; see `Client.downgrade_replication`."""
    return await _change(destination, enabled=True)


async def upgrade(destination: str) -> bool:
    """Wait for a destination again; see `Client.upgrade_replication`."""
    return await _change(destination, enabled=False)


async def _change(destination: str, *, enabled: bool) -> bool:
    try:
        is_changed: bool = await replication_calls.downgrade(parse_name(destination), enabled=enabled)
    except UnknownDestination:
        catalog = await calls.catalog()
        if destination not in catalog.destinations:
            known = ", ".join(sorted(catalog.destinations)) or "none is defined"
            raise DefinitionError(f"destination {destination!r} is not there; there are: {known}") from None
        raise DefinitionError(
            f"destination {destination!r} is configured as async and never waited for; allowed: one of sync_type 'sync'"
        ) from None
    return is_changed


async def downgrade_late(instance: str, age: int, grace_period: int) -> list[str]:
    """Downgrade all destinations that have kept somebody waiting too long; gives those that were not so before.

    Args:
        instance: the instance.
        age: ms for which the oldest message may be without acknowledgement.
        grace_period: ms after the start of the server in which nothing is done.
    """
    if await _is_starting(grace_period):
        return []
    states: dict[str, SyncState] = await sync_states(instance)
    changed = []
    for name, state in states.items():
        if state.downgraded is None and state.age > age and (await _changed(name, enabled=True)):
            _log.warning(
                "destination %s of %s is downgraded: its oldest message is without acknowledgement for %.1f s; "
                "clients must not fail over there until it is upgraded",
                *(name, instance, state.age / 1000),
            )
            changed.append(name)
    return changed


async def upgrade_prompt(instance: str, age: int, grace_period: int) -> list[str]:
    """Upgrade all downgraded destinations that have caught up and whose link stands; gives their names.

    Args:
        instance: the instance.
        age: ms; the oldest message without acknowledgement is younger.
        grace_period: ms after the start of the server in which nothing is done.
    """
    if await _is_starting(grace_period):
        return []
    states: dict[str, SyncState] = await sync_states(instance)
    changed = []
    for name, state in states.items():
        # One whose link is down would only be waited for in vain.
        is_prompt = state.is_connected and state.age < age
        if state.downgraded is not None and is_prompt and (await _changed(name, enabled=False)):
            _log.info("destination %s of %s is upgraded: it has caught up", name, instance)
            changed.append(name)
    return changed


async def _changed(name: str, *, enabled: bool) -> bool:
    """As `_change`; one that went meanwhile is no error."""
    try:
        is_changed: bool = await replication_calls.downgrade(name, enabled=enabled)
    except UnknownDestination:
        return False
    return is_changed


async def _is_starting(grace_period: int) -> bool:
    facts = await command(["INFO", "server"], bytes.decode)
    seconds = next(line.partition(":")[2] for line in facts.splitlines() if line.startswith("uptime_in_seconds:"))
    return int(seconds) * 1000 < grace_period


def _texts(reply: Any) -> dict[str, str]:
    pairs = zip(reply[::2], reply[1::2], strict=True) if isinstance(reply, list) else reply.items()
    return {name.decode(): value.decode() for name, value in pairs}
