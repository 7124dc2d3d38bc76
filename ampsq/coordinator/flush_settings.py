"""Duty: how the server flushes, noted for those who may not ask it, or who came after its clock was set back."""

from __future__ import annotations

import logging
import time
from math import ceil
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import NotPermitted, ScriptBug
from ampsq.protocol.calls import duties as duty_calls
from ampsq.protocol.reads.server import ON_REWRITE, configuration, flush_facts
from ampsq.publishing.server_clock import Moment, clock_of

if TYPE_CHECKING:
    from ampsq.transport.store import Store

__all__ = ["FlushSettings"]

_log = logging.getLogger("ampsq.coordinator")
_PAUSE: Final = 1.0


class FlushSettings:
    """Notes the server's run, when it flushes, and whether its clock was set back; again when one of them changed."""

    name = "flushing"

    def __init__(self) -> None:
        self._reported = ""

    def run_once(self, store: Store) -> float:
        """Ask the server, and note what it says; one that may not be asked is told of once."""
        # On one connection, so that both are of one run of the server.
        pipeline = store.pinned()
        try:
            asked = time.monotonic()
            facts = pipeline.ask(flush_facts())
            clock = clock_of(facts.run, time.monotonic)
            if facts.time is not None:
                clock.learn(facts.time, Moment(asked, time.monotonic()))
            settings = pipeline.ask(configuration())
        except ScriptBug:
            # A server without CONFIG has none for anybody, and nobody waits for a note.
            return _PAUSE
        except NotPermitted as error:
            self._say(store.instance, error)
            return _PAUSE
        finally:
            pipeline.close()
        self._reported = ""
        held_until = ceil(clock.held_until * 1000)
        store.call(duty_calls.note_flushing(facts.run, settings["appendfsync"], settings[ON_REWRITE], held_until))
        return _PAUSE

    def _say(self, instance: str, error: NotPermitted) -> None:
        if str(error) != self._reported:
            self._reported = str(error)
            _log.warning(
                "how the server flushes is not noted for those of %s who may not ask, so that nothing is promised to "
                "them of its disk: %s",
                *(instance, error),
            )
