"""Whether the process works, and whether what it is for can be done: `/healthz` and `/readyz`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ampsq.base.errors import AmpsqError
from ampsq.queues.explain import is_attended

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ampsq.console.observer import Observer

__all__ = ["LATE", "readiness_faults"]

#: Seconds after which a duty that did not run to its end is late; the rarest has its turn every eight.
LATE: Final = 30.0


def readiness_faults(observer: Observer, rounds: Callable[[], Mapping[tuple[str, str], float]] | None) -> Iterator[str]:
    """What is not as it has to be, a line each; none: ready.

    Args:
        observer: on the server.
        rounds: instance and duty -> seconds since it last ran, of the coordinator in this process; None where that is
            another process: then its life sign at the server counts.
    """
    try:
        observer.ping()
        for instance in observer.instances():
            if rounds is None and not observer.run(instance, is_attended(instance)):
                yield f"{instance}: no coordinator is at work"
    except AmpsqError as error:
        yield f"the server: {error}"
        return
    for (instance, duty), age in (rounds or dict)().items():
        if age > LATE:
            yield f"{instance}: {duty} last ran {age:.0f} s ago"
