"""Live updates of pages: server-sent events that tell a page when there are new figures, and when there are none."""

from __future__ import annotations

import asyncio
import math
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from jinja2 import Environment

    from ampsq.console.examiner import Examiner
    from ampsq.console.observer import Observer

__all__ = ["LiveUpdates"]

#: Seconds between two looks for something new, and between two signs of life of a stream.
_LOOK: Final = 0.2
_SIGN: Final = 15.0
#: Seconds between two tellings that there is something new.
_APART: Final = 0.8


class LiveUpdates:
    """Streams of one console.

    Args:
        observer: has the figures of instances.
        examiner: has what the overview shows besides.
        templates: those of the pages.
        stopping: whether the server is to end, so that streams do.
    """

    def __init__(
        self, observer: Observer, examiner: Examiner, templates: Environment, stopping: Callable[[], bool]
    ) -> None:
        self._observer, self._examiner, self._templates, self._stopping = observer, examiner, templates, stopping

    def _number(self, instance: str | None) -> int:
        """Return the number of what there is to show, of an instance or of all."""
        if instance is not None:
            return self._observer.number(instance)
        return self._examiner.number + sum(map(self._observer.number, self._observer.listed))

    def _state(self, instance: str | None) -> str:
        """Return one line of the page that tells whether its figures are current."""
        line: Callable[[str, str], str] = vars(self._templates.get_template("parts.html").module)["state"]
        if instance is None:
            # The card of an instance says that it is away; this line says so only where all are, as the server is.
            faults = [self._observer.fault(each) for each in self._observer.listed]
            return " ".join(line(faults[0] if faults and all(faults) else "", "").split())
        fault = self._observer.fault(instance)
        return " ".join(line(fault, self.since(instance) if fault else "").split())

    def since(self, instance: str) -> str:
        """Return when the figures that a page shows were read; "" where there are none."""
        age = self._observer.age(instance)
        return "" if age is None or math.isinf(age) else f"{datetime.now(UTC) - timedelta(seconds=age):%H:%M:%S} UTC"

    async def stream(self, instance: str | None) -> AsyncIterator[str]:
        """Give events until the server is to end: whether figures are current, and that there are new ones."""
        seen, silent, told = self._number(instance), 0.0, ""
        yield "retry: 2000\n\n"
        while not self._stopping():
            self._observer.looked()
            if instance is None:
                self._examiner.looked()
            state = self._state(instance)
            if state != told:
                told = state
                yield f"event: state\ndata: {state}\n\n"
            number = self._number(instance)
            # Of many instances there is always something new: once a second is as much as anybody reads.
            if number != seen and silent >= _APART:
                seen, silent = number, 0.0
                yield f"event: reading\ndata: {number}\n\n"
            elif silent >= _SIGN:
                silent = 0.0
                yield ": still here\n\n"
            await asyncio.sleep(_LOOK)
            silent += _LOOK
