"""Sync destinations: how far behind each is, and which are waited for: downgraded and upgraded by hand or by age."""

from __future__ import annotations

import logging
from typing import Final

from ampsq.base.errors import DefinitionError, UnknownDestination
from ampsq.base.values import parse_name
from ampsq.protocol.calls import catalog as catalog_calls
from ampsq.protocol.calls import replication as replication_calls
from ampsq.protocol.reads.server import server_run
from ampsq.publishing.sync_state import SyncState, sync_states

__all__ = ["downgrade", "downgrade_late", "upgrade", "upgrade_prompt"]

_log = logging.getLogger("ampsq.replication")
#: Milliseconds after which what a link last said of itself counts for nothing: it says so every second.
_SAID_LATELY: Final = 5_000


async def downgrade(destination: str) -> bool:
    """Wait for a destination no more; see `Admin.downgrade_replication`."""
    return await _change(destination, enabled=True)


async def upgrade(destination: str) -> bool:
    """Wait for a destination again; see `Admin.upgrade_replication`."""
    return await _change(destination, enabled=False)


async def _change(destination: str, *, enabled: bool) -> bool:
    try:
        is_changed: bool = await replication_calls.downgrade(parse_name(destination), enabled=enabled)
    except UnknownDestination:
        catalog = await catalog_calls.catalog()
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
    run = await server_run()
    return run.uptime * 1000 < grace_period
