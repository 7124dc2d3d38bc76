"""What is wrong with the coordinator, and with whom keeps views."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ampsq.base.formatting import span_text
from ampsq.base.values import is_name
from ampsq.operations.doctor.instance_facts import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampsq.operations.doctor.instance_facts import InstanceFacts, RepeatedFacts

__all__ = ["coordinator", "keepers"]

#: Milliseconds for which something due may wait where a coordinator is at work.
_LATE: Final = 2_000
_NEEDED: Final = "so lapsed leases, delays, expirations, dead letters, views and actions wait"
_START: Final = "ampsq coordinator"


def coordinator(before: RepeatedFacts, now: InstanceFacts) -> Iterator[Finding]:
    """Whether one runs, and does in time what is due."""
    oldest = max((now.now - at for at in now.late.values()), default=0)
    if now.is_full and oldest <= _LATE:
        text = "a full server takes no sign of it; nothing that is due waits"
        yield Finding("coordinator", "coordinator", well=True, text=text)
        return
    if not _is_attended(before, now):
        text = "no coordinator is at work" if now.seen.sign else "no coordinator was ever at work"
        yield Finding("coordinator", "coordinator", well=False, text=text, why=_NEEDED, mend=_START)
        return
    if oldest > _LATE:
        text = f"what is due waits for {span_text(oldest)}, and a coordinator is at work"
        mend = "ampsq coordinator    # a second one; and look at the server's load: redis-cli --stat"
        yield Finding("coordinator", "coordinator", well=False, text=text, why=_NEEDED, mend=mend)
    else:
        yield Finding("coordinator", "coordinator", well=True, text="at work, and nothing that is due waits for it")


def keepers(before: RepeatedFacts, now: InstanceFacts) -> Iterator[Finding]:
    """Whether somebody keeps the views: each has one coordinator, which says so every few seconds."""
    is_attended = now.is_full or _is_attended(before, now)
    # Those of actions and of links have other names; the rules of these tell of them.
    for view in filter(is_name, sorted(now.keepers)):
        subject, away = f"view {view}", now.now - now.keepers[view]
        if not is_attended or away > _LATE:
            text = f"nobody has kept it up to date for {span_text(max(away, 0))}"
            why = "its rows are old, and queues over it get none"
            yield Finding("views", subject, well=False, text=text, why=why, mend=_START)
        else:
            yield Finding("views", subject, well=True, text="is kept up to date")


def _is_attended(before: RepeatedFacts, now: InstanceFacts) -> bool:
    """Whether a coordinator showed its life between the looks."""
    return bool(now.seen.sign) and now.seen.sign != before.sign
