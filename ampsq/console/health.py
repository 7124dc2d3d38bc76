"""Health of the process, and its readiness for work: `/healthz` and `/readyz`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ampsq.base.errors import AmpsqError
from ampsq.protocol.reads.instance import is_attended

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ampsq.console.observer import Observer

__all__ = ["LATE", "readiness_faults"]

#: Seconds for which a duty may have something to do, and not do it to its end.
LATE: Final = 30.0


async def _is_attended(instance: str) -> bool:
    return await is_attended(instance)


def readiness_faults(observer: Observer, rounds: Callable[[], Mapping[tuple[str, str], float]] | None) -> Iterator[str]:
    """Yield what is not as it has to be, a line each; none: ready.

    Args:
        observer: on the server.
        rounds: instance and duty -> seconds by which it is late, of the coordinator in this process; None where that is
            another process: then whether one listens at the server counts.
    """
    try:
        observer.ping()
        for instance in observer.instances():
            if rounds is None and not observer.run(instance, _is_attended(instance)):
                yield f"{instance}: no coordinator is at work"
    except AmpsqError as error:
        yield f"the server: {error}"
        return
    for (instance, duty), age in (rounds or dict)().items():
        if age > LATE:
            yield f"{instance}: {duty} is late by {age:.0f} s"
