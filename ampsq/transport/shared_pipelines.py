"""Calls to several instances in flight, for threads: on one connection to each server, whichever instance they are for.

`ampsq.transport.async_shared_pipelines` is made from this file.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import redis

from ampsq.base.errors import TooMuchToRead, Unavailable
from ampsq.transport.attempts import Attempts
from ampsq.transport.errors import translate_error

if TYPE_CHECKING:
    from ampsq.base.errors import AmpsqError
    from ampsq.protocol.request import Call
    from ampsq.transport.route import ServerAddress
    from ampsq.transport.store import Connection, Store

__all__ = ["SharedPipelines"]


@dataclass(slots=True, eq=False)
class _SharedConnection:
    """A connection to a server; None: it broke."""

    connection: Connection | None


class _Sent(NamedTuple):
    """A call on its way: whose it is, the server as its route has it, and on which connection."""

    store: Store
    call: Call[object]
    server: ServerAddress
    on: _SharedConnection


class SharedPipelines:
    """Calls of several stores in flight, answered in the order in which they were sent; none depends on another one.

    The stores have the same `ServerPools`. What a server refuses before it runs, such as `MOVED`, is made again by
    its store alone, as a single call is; the others stay in flight. So calls of one store whose order matters are not
    in flight at once.
    """

    def __init__(self) -> None:
        self._sent: deque[_Sent] = deque()
        # By the address of their server.
        self._shared: dict[str, _SharedConnection] = {}

    @property
    def servers(self) -> int:
        """Number of servers to which something was sent."""
        return len(self._shared)

    def post(self, store: Store, call: Call[object]) -> bool:
        """Send a call to the instance of a store, on the connection to its server.

        Returns:
            False: nothing was sent, since its server is not known, or that connection was not lent for this instance
                yet. Collect what is in flight, `close`, and make the call by itself.

        Raises:
            Unavailable: the connection broke: nobody knows what ran. Or there is none: nothing was sent, and
                `may_have_run` is False.
        """
        server = store.route.current
        if server is None:
            return False
        shared = self._shared.get(server.url)
        connection = shared.connection if shared is not None else store.take_connection()
        if shared is None and connection is not None:
            shared = self._shared[server.url] = _SharedConnection(connection)
        if shared is None or connection is None or not connection.is_greeted_as(server):
            return False
        call.key = store.key
        try:
            connection.send(call)
        except (redis.RedisError, OSError) as error:
            raise self._failed(_Sent(store, call, server, shared), error) from error
        except BaseException:
            self._drop(shared)
            raise
        self._sent.append(_Sent(store, call, server, shared))
        return True

    def collect(self) -> object:
        """Read the reply of the earliest call; raises what a single call raises."""
        sent = self._sent.popleft()
        shared = sent.on
        if shared.connection is None:
            raise Unavailable("the connection broke while calls were in flight")
        try:
            reply = shared.connection.read()
        except redis.ResponseError as error:
            return self._call_again(sent, error)
        except (redis.RedisError, OSError) as error:
            raise self._failed(sent, error) from error
        except BaseException:
            self._drop(shared)
            raise
        return sent.call.read(reply)  # type: ignore[arg-type]  # it says of what its reply is made

    @staticmethod
    def _call_again(sent: _Sent, error: redis.ResponseError) -> object:
        """Make a call again that did not run, by its store; raises what the answer means where it may have."""
        store, call = sent.store, sent.call
        attempts = Attempts(call, store.route, store.retry_timeout, time.monotonic())
        try:
            time.sleep(attempts.after(error, sent.server))
        except TooMuchToRead:
            if call.parts is None:
                raise
        return store.call(call)

    def _failed(self, sent: _Sent, error: Exception) -> AmpsqError:
        """Drop the connection, and say what the failure means: what else is in flight on it may have run."""
        ours = translate_error(error, sent.call, sent.server.url)
        if isinstance(ours, Unavailable):
            sent.store.route.failed(sent.server, ours)
        self._drop(sent.on)
        return ours

    @staticmethod
    def _drop(shared: _SharedConnection) -> None:
        connection, shared.connection = shared.connection, None
        if connection is not None:
            connection.drop()
            connection.release()

    def close(self) -> None:
        """Give the connections back; those with unread replies are dropped."""
        unread = {id(sent.on) for sent in self._sent}
        former, self._shared = list(self._shared.values()), {}
        self._sent.clear()
        for each in former:
            connection, each.connection = each.connection, None
            if connection is not None:
                if id(each) in unread:
                    connection.drop()
                connection.release()
