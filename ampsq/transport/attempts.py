"""Decisions that stores share, for threads and for asyncio: whether a call is sent again, and where.

A call is repeated only where it was not done, or says that this is harmless. Where a server is, the route knows
(`ampsq.transport.route`).
"""

from __future__ import annotations

import socket
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Generic, Self, TypeVar

import redis

from ampsq.base.errors import DefinitionError, StillUpgrading, Unavailable
from ampsq.base.values import shown
from ampsq.protocol.replies import plain
from ampsq.transport.discovery import options_of
from ampsq.transport.errors import RetryPauses, may_repeat, translate_error
from ampsq.transport.route import Route

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ampsq.protocol.request import Call
    from ampsq.transport.discovery import RedisOptions
    from ampsq.transport.route import ServerAddress

__all__ = [
    "REDIRECTS",
    "SENT_AHEAD",
    "Attempts",
    "UpcomingCalls",
    "lost_in_cluster",
    "pool_options",
    "route_to",
    "unsendable",
    "with_raw_reply",
]

T = TypeVar("T")
#: Nodes of a cluster that may send us on, one after the other.
REDIRECTS: Final = 5
#: Calls of a stream that are sent before the first one's reply is read.
SENT_AHEAD: Final = 2
#: Nodes that may send a call about another key on, one after the other.
_DETOURS: Final = 5
#: Connections of a pool: as good as no bound.
_UNBOUND: Final = 2**31
#: Probes of a connection on which nothing is sent, before the system gives it up.
_PROBES: Final = 3
#: Characters of a refused text that an error shows.
_SHOWN: Final = 60
#: What a request is made of.
_SENT: Final = (str, bytes, int, float)


class Attempts:
    """The attempts at a call whose first one failed: when to send it again, and where. The waiting is the store's.

    Args:
        call: the call.
        route: the way to the server.
        retry_timeout: seconds for which it is repeated.
        began: when it was sent first, by the monotonic clock.
    """

    def __init__(self, call: Call[object], route: Route, retry_timeout: float, began: float) -> None:
        self._call, self._route, self._number = call, route, 0
        self._pauses = RetryPauses(route.pause)
        self._retry_timeout = min(retry_timeout, call.patience)
        self._until = began + self._retry_timeout
        #: The server does not know the script, so that its text is to be sent.
        self.whole = False

    def after(self, error: Exception, server: ServerAddress | None) -> float:
        """Return the seconds to wait before the next attempt; raises when there is none.

        Args:
            error: what came instead of an answer.
            server: the server that the call was sent to; None: to none.
        """
        if isinstance(error, redis.exceptions.NoScriptError):
            self.whole = True
            return 0.0
        if server is not None and isinstance(error, redis.exceptions.MovedError):
            self._route.redirect(server, error)
        ours = translate_error(error, self._call, server.url if server else "")
        if server is not None and isinstance(ours, Unavailable) and _is_lost(error, ours):
            self._route.failed(server, ours)
        if not isinstance(ours, Unavailable) or not may_repeat(ours, self._call):
            raise ours from error
        # Every address is tried once, however short `retry_timeout` is.
        is_over = time.monotonic() >= self._until and self._number + 1 >= self._route.number
        if self._route.is_hopeless or is_over or self._route.left:
            ours.may_have_run = ours.may_have_run or self._call.repeated
            raise self._route.summed_up(ours, self._retry_timeout) from error
        self._call.repeated = self._call.repeated or ours.may_have_run
        self._number += 1
        return self._pauses.after(error)

    def detour(self, error: Exception, server: ServerAddress | None) -> Route | None:
        """Return the way to another node of the cluster, for a call about a key outside of the instance.

        Returns:
            None: the error says nothing of the kind.

        Raises:
            Unavailable: the nodes send the call from one to the other.
        """
        route = self._route
        if server is None or not isinstance(error, redis.exceptions.MovedError):
            return None
        if error.slot_id == route.slot:
            return None
        if route.detours >= _DETOURS:
            raise translate_error(error, self._call, server.url) from error
        there = Route(route.aside(server, error), "", heartbeat=min(route.heartbeat, self._call.patience))
        there.detours = route.detours + 1
        return there


def _is_lost(error: Exception, ours: Unavailable) -> bool:
    """Return whether the connection is of no use any more; a server that only refuses for now keeps it."""
    if isinstance(error, redis.exceptions.AskError) or isinstance(ours, StillUpgrading):
        return False
    return not isinstance(error, redis.ResponseError) or type(ours) is not Unavailable or "CLUSTERDOWN" in str(ours)


def with_raw_reply(call: Call[object]) -> Call[object]:
    """Return the same call, whose reply is still to be read."""
    return replace(call, read=plain, blocks=0.0, repeated=False, parts=None, is_sent_ahead=True)


def route_to(where: str | Sequence[str] | Route, instance: str) -> Route:
    """Return the route to an instance, which may be there already."""
    return where if isinstance(where, Route) else Route(where, instance)


def lost_in_cluster(server: ServerAddress) -> Unavailable:
    """Return the error of a connection for which each node of a cluster named another one."""
    error = Unavailable(f"{server}: the nodes of the cluster send one to each other: a failover is under way")
    error.may_have_run = False
    return error


def unsendable(error: UnicodeEncodeError | TypeError, words: Sequence[object]) -> DefinitionError:
    """Return the error of a request that cannot be packed.

    Halves of characters (surrogates) are what bytes of an argument become that are not UTF-8.
    """
    if isinstance(error, UnicodeEncodeError):
        return DefinitionError(f"{error.object[:_SHOWN]!r} is not a text in UTF-8; allowed: names and texts that are")
    wrong = next((word for word in words if type(word) not in _SENT), words)
    return DefinitionError(f"{shown(wrong)} cannot be sent to a server; allowed: a text, bytes, or a number")


def pool_options(url: str, seconds: float) -> RedisOptions:
    """Return the options of redis-py's connections to a server that is taken to be dead after so many seconds."""
    # One more than redis-py has by default would look like a server that is lost; how many there are, calls bound.
    options = options_of(seconds)
    options["max_connections"] = _UNBOUND
    if url.startswith("unix://"):
        return options
    wanted = {
        "TCP_KEEPIDLE": max(round(seconds), 1),
        "TCP_KEEPINTVL": max(round(seconds / _PROBES), 1),
        "TCP_KEEPCNT": _PROBES,
        # Milliseconds after which what was sent and not confirmed ends the connection.
        "TCP_USER_TIMEOUT": round(2000 * seconds),
    }
    known = {getattr(socket, name): value for name, value in wanted.items() if hasattr(socket, name)}
    options["socket_keepalive"], options["socket_keepalive_options"] = True, known
    return options


class UpcomingCalls(Generic[T]):
    """The calls of a stream, up to where making them fails: that is raised when those before it are answered."""

    def __init__(self, calls: Iterable[Call[T]]) -> None:
        self._calls = iter(calls)
        self._failure: Exception | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Call[T]:
        try:
            return next(self._calls)
        except StopIteration:
            raise
        except Exception as error:
            self._failure = error
            raise StopIteration from error

    def raise_failure(self) -> None:
        """Raise what ended the calls, if that was not their end."""
        if self._failure is not None:
            raise self._failure
