"""States of a client's connection, reported to listeners in order, from one thread, never under a lock."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from dataclasses import dataclass
from enum import StrEnum
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["AsyncListeners", "ConnectionEvent", "ConnectionState", "Listeners"]

_log = logging.getLogger("ampsq")
#: Seconds that closing waits for a listener that has not returned.
_ENDED_WITHIN: Final = 5.0


class ConnectionState(StrEnum):
    """The states of a connection, by AMPS's names, in the order in which they are reached."""

    #: A connection stands, the server is a primary, and it is the instance that the client knows.
    CONNECTED = "connected"
    #: The instance is open: calls are answered.
    LOGGED_ON = "logged_on"
    #: The client shows that it lives, and looks whether the server does; only clients with subscriptions do.
    HEARTBEAT_INITIATED = "heartbeat_initiated"
    #: What a publish store held is sent again.
    PUBLISH_REPLAYED = "publish_replayed"
    #: After a reconnect: every subscription is known to the server again.
    RESUBSCRIBED = "resubscribed"
    #: The connection is lost, for the reason told; the client looks for a server.
    DISCONNECTED = "disconnected"
    #: The client was closed.
    SHUTDOWN = "shutdown"


@dataclass(frozen=True, slots=True)
class ConnectionEvent:
    """One change.

    Attributes:
        state: what was reached.
        address: of the server, without passwords; empty where it has nothing to do with one.
        reason: why the connection was lost; of `CONNECTED`: what the client has to know, as that messages are lost.
    """

    state: ConnectionState
    address: str = ""
    reason: str = ""


_Listener: TypeAlias = "Callable[[ConnectionEvent], object]"
#: Whom to tell (None: everybody), and what; None ends it.
_Told: TypeAlias = "tuple[_Listener | None, ConnectionEvent] | None"


class Listeners:
    """Tells events to functions, in a thread of its own that runs while there is one to tell."""

    def __init__(self) -> None:
        self._listeners: list[_Listener] = []
        self._reached: list[ConnectionEvent] = []
        self._changing = threading.Lock()
        self._reported: SimpleQueue[_Told] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False

    def add(self, listener: Callable[[ConnectionEvent], object]) -> None:
        """Tell a function what the present connection has reached so far, and every change from now on."""
        with self._changing:
            for event in self._reached:
                self._put((listener, event))
            self._listeners = [*self._listeners, listener]
            self._start()

    def remove(self, listener: Callable[[ConnectionEvent], object]) -> None:
        """Tell a function no more."""
        with self._changing:
            self._listeners = [each for each in self._listeners if each != listener]

    def tell(self, event: ConnectionEvent) -> None:
        """Say what was reached; returns at once."""
        with self._changing:
            if self._closed:
                return
            if event.state in (ConnectionState.CONNECTED, ConnectionState.DISCONNECTED, ConnectionState.SHUTDOWN):
                self._reached = []
            self._reached.append(event)
            if self._listeners:
                self._put((None, event))

    def close(self) -> None:
        """Tell the last event, and wait until all are told."""
        self.tell(ConnectionEvent(ConnectionState.SHUTDOWN))
        with self._changing:
            if self._closed:
                return
            self._closed = True
            self._put(None)
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(_ENDED_WITHIN)

    def _put(self, told: _Told) -> None:
        self._reported.put(told)

    def _start(self) -> None:
        if self._thread is None and not self._closed:
            self._thread = threading.Thread(target=self._run, name="ampsq-connection-state", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while (told := self._reported.get()) is not None:
            for listener in self._to(told[0]):
                try:
                    listener(told[1])
                except Exception:  # noqa: BLE001  (whatever it raises, the others are told)
                    _log.exception("a connection state listener failed at %s", told[1].state)

    def _to(self, listener: _Listener | None) -> list[_Listener]:
        return self._listeners if listener is None else [listener]


class AsyncListeners(Listeners):
    """The same for asyncio: the functions are called in the event loop, and awaited where they are coroutines."""

    def __init__(self) -> None:
        super().__init__()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: asyncio.Queue[_Told] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    def _put(self, told: _Told) -> None:
        if self._loop is None:
            self._waiting.put_nowait(told)
        elif not self._loop.is_closed():
            # Also from the keepalive thread.
            self._loop.call_soon_threadsafe(self._waiting.put_nowait, told)

    def _start(self) -> None:
        if self._task is None and not self._closed:
            self._loop = asyncio.get_running_loop()
            self._task = self._loop.create_task(self._consume(), name="ampsq-connection-state")

    async def aclose(self) -> None:
        """Tell the last event, and wait until all are told."""
        self.close()
        if self._task is not None and self._task is not asyncio.current_task():
            await asyncio.wait([self._task], timeout=_ENDED_WITHIN)

    async def _consume(self) -> None:
        while (told := await self._waiting.get()) is not None:
            for listener in self._to(told[0]):
                try:
                    answer = listener(told[1])
                    if inspect.isawaitable(answer):
                        await answer
                except Exception:  # noqa: BLE001  (whatever it raises, the others are told)
                    _log.exception("a connection state listener failed at %s", told[1].state)
