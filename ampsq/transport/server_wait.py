"""Waiting for a lost server, once for all instances that it carries.

A process with a hundred instances that each asked again by itself would be busy with nothing but a server that is not
there, and say so a hundred times. Here one thread asks, with pauses that grow; all others wait for its answer.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Final, Protocol

from ampsq.base.errors import AmpsqError
from ampsq.protocol.reads.server import ping
from ampsq.transport.route import Route
from ampsq.transport.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable

    from ampsq.transport.server_pools import ServerPools

__all__ = ["ServerWait"]

#: Seconds between two questions whether the server is back: the first pause, doubled each time, up to the last.
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 1.0
#: Seconds after which who waits looks whether it is to leave.
_LOOK: Final = 1.0


class _Leaving(Protocol):
    def is_set(self) -> bool: ...


class _Question:
    """One question whether a server answers: asked by one thread, awaited by many."""

    def __init__(self) -> None:
        self.answered = threading.Event()
        self.was_gone = False


class ServerWait:
    """The servers that are lost, and all that waits for them.

    Args:
        log: where one line says that a server is lost, and one that it is back.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._asked: dict[str, _Question] = {}
        self._changing = threading.Lock()
        self._closing = threading.Event()

    def store(
        self, url: str, instance: str, retry_timeout: float, pools: ServerPools | None = None, beside: str = ""
    ) -> Store:
        """Make a store that leaves it to this object to say that its server is lost.

        Args:
            url: an address or several.
            instance: the instance.
            retry_timeout: seconds for which a call is repeated while the server cannot be reached.
            pools: connections that other stores use, too.
            beside: a key outside of all instances, to whose node of a cluster it leads.
        """
        route = Route(url, instance, log_level=logging.DEBUG, beside=beside)
        return Store(route, instance, retry_timeout=retry_timeout, pools=pools)

    def wait(self, store: Store, leaving: _Leaving) -> bool:
        """Wait until the server of a store answers, after a call to it failed.

        Args:
            store: what the call was made with.
            leaving: set when nobody is to wait any more.

        Returns:
            Whether the server was gone, or this object is closed. False: it answers, so that what failed was that call
            alone.
        """
        place = store.route.lost_place
        with self._changing:
            if self._closing.is_set():
                return True
            question = self._asked.get(place)
            if question is None:
                question = self._asked[place] = _Question()
                threading.Thread(
                    target=self._ask, args=(place, question, store), name="ampsq-server-wait", daemon=True
                ).start()
        while not (question.answered.wait(_LOOK) or leaving.is_set() or self._closing.is_set()):
            pass
        return question.was_gone or self._closing.is_set()

    def close(self) -> None:
        """Let all go that wait, and whoever comes later."""
        self._closing.set()
        with self._changing:
            for question in self._asked.values():
                question.answered.set()

    def _ask(self, place: str, question: _Question, store: Store) -> None:
        asking = self.store(store.url, store.instance, 0.0)
        try:
            self._ask_on(question, lambda: asking.call(ping()))
        finally:
            with self._changing:
                del self._asked[place]
            question.answered.set()
            asking.close()

    def _ask_on(self, question: _Question, ask: Callable[[], object]) -> None:
        began, pause = time.monotonic(), _FIRST_PAUSE
        while not self._closing.is_set():
            try:
                ask()
            except AmpsqError as error:
                if self._closing.is_set():
                    return
                if not question.was_gone:
                    question.was_gone = True
                    self._log.warning("the server is away, and all its instances wait for it: %s", error)
                self._closing.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            else:
                if question.was_gone:
                    passed = time.monotonic() - began
                    self._log.warning("the server is back after %.1f s, and its instances go on", passed)
                return
