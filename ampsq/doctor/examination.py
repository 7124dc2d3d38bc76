"""Two looks with a moment between them, and what the rules say of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ampsq.doctor.look import glance, life_sign, look
from ampsq.doctor.rules import RULES
from ampsq.flow import Pause

if TYPE_CHECKING:
    from ampsq.connections.channels import Channel
    from ampsq.doctor.look import Finding
    from ampsq.flow import Flow

__all__ = ["examine"]

#: Times that the life sign of a coordinator which is just being started is waited for, and seconds between them.
_LOOKS: Final = 12
_PAUSE: Final = 0.25


def examine(instance: str, origin: str, channel: Channel, interval: float) -> Flow[list[Finding]]:
    """Look twice, and judge: what is wrong first.

    Args:
        instance: its name.
        origin: as bookmarks have it.
        channel: for calls on their way together, of the store that runs this.
        interval: seconds between the two looks: what grows and what stands still shows in them. A coordinator shows
            its life every tenth of a second.
    """
    before = yield from glance(instance, channel)
    yield Pause(interval)
    for _ in range(_LOOKS):
        if (yield from life_sign(instance)) not in {"", before.sign}:
            break
        yield Pause(_PAUSE)
    after = yield from look(instance, origin, channel)
    found = [finding for rule in RULES for finding in rule(before, after)]
    return sorted(found, key=lambda finding: finding.well)
