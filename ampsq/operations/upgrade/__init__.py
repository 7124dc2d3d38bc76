"""Turning an instance of the format before into this one: `ampsq upgrade`; docs/upgrading.md is its page.

A step per change of the format. While it lasts no client can do anything at the instance: the format that stands there
is the step's name, so that the scripts of both formats refuse, and those of this release wait. Each call is one atomic
script that does some of the work and moves the cursor beside the format; so it does not matter when an upgrader dies,
or how many there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ampsq.base.errors import FormatMismatch, Unavailable
from ampsq.operations.upgrade.format_4 import STEP as FROM_4
from ampsq.protocol.calls.upgrade import CURRENT, WITH_GROUPS, begin_upgrade, end_upgrade, read_format, upgrade_part

if TYPE_CHECKING:
    from ampsq.operations.upgrade.step import UpgradeStep

__all__ = ["STEPS", "step_for", "upgrade_instance"]

#: The steps that this release knows: the one that ends with its format. A release that raises FORMAT replaces it.
STEPS: Final[tuple[UpgradeStep, ...]] = (FROM_4,)


def step_for(found: str) -> UpgradeStep | None:
    """Return the step that begins with a format, or that is under way; None: it is this release's.

    Args:
        found: as the instance has it.

    Raises:
        FormatMismatch: this release has no step for it: it is too old, newer, or the instance is not there.
    """
    if found in {CURRENT, WITH_GROUPS}:
        return None
    for step in STEPS:
        if found in {str(step.found), step.name}:
            return step
    raise FormatMismatch(found=found or False, expected=CURRENT)


async def upgrade_instance(instance: str, *, limit: int | None = None) -> str:
    """Turn an instance into this release's format, or go on with that; of one that has it, nothing is changed.

    Args:
        instance: its name.
        limit: of how many things one call is, instead of what each part says.

    Returns:
        The format that it has then.

    Raises:
        FormatMismatch: as of `step_for`. Unavailable: the server cannot be reached, or lost what was done.
    """
    stored = await read_format(instance)
    step = step_for(stored.name)
    if step is None:
        return stored.name
    stored = await begin_upgrade(str(step.found), step.name)
    while stored.name == step.name:
        number, _, after = stored.cursor.partition(" ")
        if int(number) > len(step.parts):
            stored = await end_upgrade(step.name, stored.cursor)
        else:
            part = step.parts[int(number) - 1]
            following = [name for name in await part.names(instance) if name > after]
            stored = await upgrade_part(part.script, step.name, stored.cursor, following[: limit or part.limit])
    if stored.name != CURRENT:
        raise Unavailable(f"instance {instance} has format {stored.name or 'none'} now: the server lost the upgrade")
    return stored.name
