"""Duty: how the server flushes, noted for those who may not ask it: publishers and workers under their roles."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import NotPermitted, ScriptBug
from ampsq.protocol.calls import duties as duty_calls
from ampsq.protocol.reads.server import ON_REWRITE, configuration, information

if TYPE_CHECKING:
    from ampsq.transport.store import Store

__all__ = ["FlushSettings"]

_log = logging.getLogger("ampsq.coordinator")
_PAUSE: Final = 1.0


class FlushSettings:
    """Notes the server's run and when it flushes, and notes it again when either has changed."""

    name = "flushing"

    def __init__(self) -> None:
        self._reported = ""

    def run_once(self, store: Store) -> float:
        """Ask the server, and note what it says; one that may not be asked is told of once."""
        # On one connection, so that both are of one run of the server.
        pipeline = store.pinned()
        try:
            run = pipeline.ask(information()).get("run_id", "")
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
        store.call(duty_calls.note_flushing(run, settings["appendfsync"], settings[ON_REWRITE]))
        return _PAUSE

    def _say(self, instance: str, error: NotPermitted) -> None:
        if str(error) != self._reported:
            self._reported = str(error)
            _log.warning(
                "how the server flushes is not noted for those of %s who may not ask, so that nothing is promised to "
                "them of its disk: %s",
                *(instance, error),
            )
