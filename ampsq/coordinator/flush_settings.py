"""Duty: how the server flushes, noted for those who may not ask it, or who came after its clock was set back."""

from __future__ import annotations

import logging
import math
import time
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from ampsq.base.errors import NotPermitted, ScriptBug
from ampsq.protocol.calls import duties as duty_calls
from ampsq.protocol.reads.server import ON_REWRITE, configuration, flush_facts
from ampsq.publishing.server_clock import Moment, clock_of

if TYPE_CHECKING:
    from ampsq.coordinator.duty import Happened
    from ampsq.protocol.reads.server import FlushFacts
    from ampsq.transport.pipeline import Pipeline
    from ampsq.transport.store import Store

__all__ = ["FlushSettings", "FlushState", "read_flush_state"]

_log = logging.getLogger("ampsq.coordinator")


class FlushState(NamedTuple):
    """A server's settings for flushing its append-only file.

    Attributes:
        run: the ID of its process.
        appendfsync: the setting.
        on_rewrite: the setting ``no-appendfsync-on-rewrite``.
        held_until: its clock was set back: until it shows this, in ms, it flushes nothing; 0: it was not.
    """

    run: str
    appendfsync: str
    on_rewrite: str
    held_until: int


def read_flush_state(pipeline: Pipeline) -> FlushState | None:
    """Ask a server how it flushes; None: it has no such settings.

    Args:
        pipeline: nothing is in flight on it.

    Raises:
        NotPermitted: this user may not ask.
    """
    asked = time.monotonic()
    # In one write on one connection, so that both are of one run of the server.
    pipeline.post_all([flush_facts(), configuration()])
    try:
        facts: FlushFacts = pipeline.collect()  # type: ignore[assignment]  # what was posted
        clock = clock_of(facts.run, time.monotonic)
        if facts.time is not None:
            clock.learn(facts.time, Moment(asked, time.monotonic()))
        settings: dict[str, str] = pipeline.collect()  # type: ignore[assignment]  # see above
    except ScriptBug:
        # A server without CONFIG has none for anybody, and nobody waits for a note.
        return None
    finally:
        if pipeline.open_calls:
            pipeline.close()
    return FlushState(facts.run, settings["appendfsync"], settings[ON_REWRITE], math.ceil(clock.held_until * 1000))


class FlushSettings:
    """Notes the server's run, when it flushes, and whether its clock was set back; again when one of them changed."""

    name = "flushing"
    wakes: ClassVar[frozenset[Happened]] = frozenset({"flushing"})

    def __init__(self) -> None:
        self._reported = ""

    def run_once(self, store: Store) -> float:
        """Ask the server, and note what it says; one that may not be asked is told of once."""
        try:
            with store.pipeline() as pipeline:
                state = read_flush_state(pipeline)
        except NotPermitted as error:
            self._say(store.instance, error)
            return math.inf
        self._reported = ""
        if state is not None:
            store.call(duty_calls.note_flushing(*state))
        return math.inf

    def _say(self, instance: str, error: NotPermitted) -> None:
        if str(error) != self._reported:
            self._reported = str(error)
            _log.warning(
                "how the server flushes is not noted for those of %s who may not ask, so that nothing is promised to "
                "them of its disk: %s",
                *(instance, error),
            )
