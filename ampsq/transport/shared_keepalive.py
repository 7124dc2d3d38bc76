"""Showing a server which clients of this process live: one connection to it and one thread, whatever their number.

A process that is killed loses the connection, and with it the channels to which its clients are subscribed there: that
is how a coordinator notices within a second. What needs a moment of a client's own (reconnecting, sending
acknowledgements, renewing leases) is done elsewhere, so that no client delays the signs of life of the others.

A client subscribes twice: to a channel as coordinators of the version before count them, and to a sharded one. Where a
cluster moves a slot, the source ends sharded subscriptions at once, and leaves the plain ones as they are.
"""
# Long: joining, sending, answers and the end are one connection's life, under one lock.

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import selectors
import socket
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import hiredis
import redis

from ampsq.protocol import scripts
from ampsq.protocol.calls import subscriptions as subscription_calls
from ampsq.protocol.calls.subscriptions import ClientHeartbeat
from ampsq.protocol.keepalive import (
    HEARTBEAT,
    LONGEST_HEARTBEAT,
    SESSION_TIMEOUT,
    attach,
    count_coordinators,
    detach,
    wake_channel,
)
from ampsq.transport.attempts import pool_options
from ampsq.transport.errors import translate_connect_error, translate_error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redis.connection import Connection as RawConnection
    from redis.typing import EncodableT

    from ampsq.base.errors import AmpsqError
    from ampsq.protocol.calls.subscriptions import HeartbeatReply
    from ampsq.protocol.request import Call

__all__ = ["LiveClient", "SharedKeepalive"]

_log = logging.getLogger("ampsq")
#: Seconds between two looks at what the clients need.
_TICK: Final = 0.1
#: Clients whose signs of life are one call: a millisecond of the server's at most.
_SIGNS: Final = 100
#: Seconds for which a client that leaves waits for the connection, which others write to.
_LEAVES_WITHIN: Final = 0.5
#: redis-py asks some servers to announce their maintenance, where it speaks this protocol; not all its versions can.
_ANNOUNCES_MAINTENANCE: Final = importlib.util.find_spec("redis.maint_notifications") is not None


def _packed(words: Sequence[EncodableT]) -> bytes:
    request: bytes = hiredis.pack_command(words)  # type: ignore[arg-type]  # its stub knows requests of one word
    return request


class LiveClient(Protocol):
    """A client that shows that it lives. Its methods are called in the thread of `SharedKeepalive`: none may wait.

    Attributes:
        instance: its instance.
        client: its name, unlike any other's.
    """

    instance: str
    client: str

    def subscription_ids(self) -> list[str]:
        """Return the names of its subscriptions, which end where it shows no life."""

    def take_latencies(self) -> str:
        """Return what it measured since the last time, as a heartbeat takes it."""

    def answered(self, sent: float, received: float, found: HeartbeatReply) -> None:
        """Note the answer to its sign of life: when it was sent and received, and what the server says."""

    def attended(self, *, is_attended: bool) -> None:
        """Note whether a coordinator is at work at its instance."""

    def look(self, shared: SharedKeepalive) -> None:
        """See whether something is to be done; called ten times a second."""

    def refused(self, shared: SharedKeepalive) -> None:
        """Note that its sign of life was refused, as by a server that was demoted."""

    def moved(self, shared: SharedKeepalive) -> None:
        """Note that the server does not serve its instance any more."""

    def lost(self, shared: SharedKeepalive, error: AmpsqError) -> None:
        """Note that the connection is lost."""


class _Joining:
    """A client that waits until the server knows it."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.error: Exception | None = None

    def end(self, error: Exception | None = None) -> None:
        self.error = self.error or error
        self.done.set()


@dataclass(slots=True)
class _Asked:
    """A command that is not answered yet.

    Attributes:
        kind: the word that its answer begins with, of one that subscribes; ``heartbeat`` or ``ping``.
        at: when it was sent.
        client: whom it is about.
        joining: who waits for the answer.
        heartbeat: the call, of signs of life.
        living: those whom it is about.
        instances: the clients by their instances' channels, of the question for coordinators.
    """

    kind: str
    at: float
    client: LiveClient | None = None
    joining: _Joining | None = None
    heartbeat: Call[list[HeartbeatReply]] | None = None
    living: Sequence[LiveClient] = ()
    instances: dict[str, list[LiveClient]] | None = None


class SharedKeepalive:
    """A connection to a server that shows which clients live, from when it is made until it is lost.

    Args:
        url: the server's address with credentials and options: clients that differ in one of these share nothing.
        heartbeat: seconds between two signs of life, and in which each is answered.
    """

    #: Those of this process, by address and heartbeat.
    _open: Final[dict[tuple[str, float], SharedKeepalive]] = {}
    _changing = threading.Lock()

    def __init__(self, url: str, heartbeat: float) -> None:
        self._url, self._heartbeat = url, heartbeat
        self._raw: RawConnection | None = None
        self._link: socket.socket | None = None
        self._clients: dict[str, LiveClient] = {}
        self._unanswered: deque[_Asked] = deque()
        #: How many have joined or are about to.
        self._users = 0
        self._not_connected: Exception | None = None
        self._lost_by: Exception = redis.ConnectionError("the connection was closed")
        self._has_ended = False
        self._next_heartbeat = 0.0
        # Each heartbeat asks whether the server is there; signs of life go with each second one, where that is enough.
        self._signs_every = 2 if 2 * heartbeat * 1000 <= LONGEST_HEARTBEAT else 1
        self._heartbeats = 0
        self._connecting = threading.Lock()
        # Held by who reads or writes: a connection with TLS bears one at a time.
        self._using = threading.Lock()

    @classmethod
    def join(cls, url: str, heartbeat: float, client: LiveClient) -> SharedKeepalive:
        """Show that a client lives, from now on; returns when the server knows it.

        Raises:
            AmpsqError: no connection could be made. RedisError, OSError: it was lost, or the server refused.
        """
        # The same server, whether a client named it itself or a cluster did.
        url = url.removesuffix("/")
        with cls._changing:
            shared = cls._open.get((url, heartbeat))
            if shared is None:
                shared = cls._open[url, heartbeat] = cls(url, heartbeat)
            shared._users += 1
        try:
            shared._join(client)
        except BaseException:
            shared.leave(client)
            raise
        return shared

    def leave(self, client: LiveClient) -> None:
        """Show no more life of a client; the connection ends with its last one."""
        with self._changing:
            self._users -= 1
            is_last = self._users <= 0
            if is_last:
                self._forget()
        if not self._using.acquire(timeout=_LEAVES_WITHIN):
            # The server takes nothing in: the thread finds that the connection is lost, and tells the others.
            self._hang_up()
            return
        try:
            channel = self._channel(client)
            if self._clients.get(channel, client) is client:
                self._clients.pop(channel, None)
                if not is_last:
                    with contextlib.suppress(redis.RedisError, OSError):
                        self._subscribe(detach(client.instance, client.client), client)
            if is_last:
                self._hang_up()
        finally:
            self._using.release()

    def shows(self, client: LiveClient) -> bool:
        """Return whether the server is shown that a client lives; False: connection lost, or its slot moved."""
        return not self._has_ended and self._clients.get(self._channel(client)) is client

    @classmethod
    def show_now(cls, url: str) -> None:
        """Send the signs of life of this process's clients of a server, and wait until they are answered."""
        with cls._changing:
            found = [shared for (address, _), shared in cls._open.items() if address == url.removesuffix("/")]
        for shared in found:
            shared._show_now()  # noqa: SLF001  (ours)

    def _show_now(self) -> None:
        joining = _Joining()
        # Where the connection is lost, its own thread finds that and tells the clients.
        with contextlib.suppress(redis.RedisError, OSError):
            with self._using:
                self._ask_heartbeats(list(self._clients.values()), joining)
            joining.done.wait(self._heartbeat)

    # -- joining

    def _join(self, client: LiveClient) -> None:
        self._connect()
        joining = _Joining()
        with self._using:
            self._clients[self._channel(client)] = client
            self._subscribe(attach(client.instance, client.client), client, joining)
        if not joining.done.wait(self._heartbeat):
            joining.error = redis.TimeoutError(f"no answer within {self._heartbeat:g} s")
        if joining.error is not None:
            raise joining.error

    def _connect(self) -> None:
        """Connect, once for all who join meanwhile."""
        with self._connecting:
            if self._not_connected is None and self._raw is None:
                try:
                    self._raw = self._connected()
                except (redis.RedisError, OSError) as error:
                    self._not_connected, self._has_ended = error, True
                    with self._changing:
                        self._forget()
                else:
                    self._next_heartbeat = time.monotonic() + self._heartbeat
                    # Nothing of redis-py waits for what comes without reading it.
                    self._link = self._raw._sock  # noqa: SLF001
                    threading.Thread(target=self._run, name="ampsq-keepalive-shared", daemon=True).start()
        if self._not_connected is not None:
            raise translate_connect_error(self._not_connected, self._url) from self._not_connected

    def _connected(self) -> RawConnection:
        options = pool_options(self._url, self._heartbeat)
        # Of the third one, so that the connection carries other commands while it is subscribed.
        options["protocol"] = 3
        if _ANNOUNCES_MAINTENANCE:
            from redis.maint_notifications import MaintNotificationsConfig  # noqa: PLC0415  (not in all versions)

            options["maint_notifications_config"] = MaintNotificationsConfig(enabled=False)
        return redis.ConnectionPool.from_url(self._url, **options).get_connection()

    def _forget(self) -> None:
        if self._open.get((self._url, self._heartbeat)) is self:
            del self._open[self._url, self._heartbeat]

    # -- sending; what does is given the connection

    def _send(self, request: bytes, asked: Sequence[_Asked]) -> None:
        # redis-py would connect again, and nobody would be subscribed there.
        if self._raw is None or self._has_ended:
            raise redis.ConnectionError("the connection was lost")
        self._unanswered.extend(asked)
        try:
            self._raw.send_packed_command([request], check_health=False)
        except (redis.RedisError, OSError) as error:
            self._has_ended, self._lost_by = True, error
            raise

    def _subscribe(
        self, commands: Sequence[tuple[str, str]], client: LiveClient, joining: _Joining | None = None
    ) -> None:
        now = time.monotonic()
        asked = [_Asked(words[0].lower(), now, client, joining) for words in commands]
        # Its answer comes behind theirs, of which one that ends a sharded subscription tells nothing by itself.
        asked.append(_Asked("ping", now))
        self._send(b"".join(map(_packed, (*commands, HEARTBEAT))), asked)

    def _ask_heartbeats(self, clients: Sequence[LiveClient], joining: _Joining | None = None) -> None:
        """Send the signs of life of all in one packet."""
        now = time.monotonic()
        requests: list[bytes] = []
        asked: list[_Asked] = []
        if instances := self._instances():
            requests.append(_packed(count_coordinators(instances)))
            asked.append(_Asked("coordinators", now, instances=instances))
        signs = [
            (client, ClientHeartbeat(client.instance, ids, client.take_latencies()))
            for client in clients
            if (ids := client.subscription_ids())
        ]
        for first in range(0, len(signs), _SIGNS):
            living, some = zip(*signs[first : first + _SIGNS], strict=True)
            call = subscription_calls.heartbeat_all(SESSION_TIMEOUT, some)
            requests.append(self._heartbeat_request(call))
            asked.append(_Asked("heartbeat", now, heartbeat=call, living=living))
        requests.append(_packed(HEARTBEAT))
        asked.append(_Asked("ping", now, joining=joining))
        self._send(b"".join(requests), asked)

    def _instances(self) -> dict[str, list[LiveClient]]:
        """The clients with subscriptions by their instances' channels, on which coordinators listen."""
        found: dict[str, list[LiveClient]] = {}
        for client in self._clients.values():
            if client.subscription_ids():
                found.setdefault(wake_channel(client.instance), []).append(client)
        return found

    def _ask_heartbeat_again(self, living: Sequence[LiveClient], call: Call[list[HeartbeatReply]]) -> None:
        """Send signs of life with the script's text, which the server did not know."""
        asked = _Asked("heartbeat", time.monotonic(), heartbeat=call, living=living)
        self._send(self._heartbeat_request(call, whole=True), [asked])

    def _ask_heartbeats_singly(self, living: Sequence[LiveClient]) -> None:
        """Send the sign of life of each client by itself, since that of one of them was refused.

        What they measured went with the other ones: it may have been counted.
        """
        now = time.monotonic()
        calls = [
            (client, subscription_calls.heartbeat_all(SESSION_TIMEOUT, [ClientHeartbeat(client.instance, ids)]))
            for client in living
            if (ids := client.subscription_ids())
        ]
        asked = [_Asked("heartbeat", now, heartbeat=call, living=(client,)) for client, call in calls]
        self._send(b"".join([self._heartbeat_request(call) for _, call in calls]), asked)

    @staticmethod
    def _heartbeat_request(call: Call[list[HeartbeatReply]], *, whole: bool = False) -> bytes:
        script = scripts.script("heartbeat")
        head = ("EVAL", script.source) if whole else ("EVALSHA", script.sha)
        return _packed((*head, 1, call.key, *call.arguments))

    # -- the thread

    def _run(self) -> None:
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self._link, selectors.EVENT_READ)  # type: ignore[arg-type]  # it is connected
                while not self._has_ended:
                    self._work(is_readable=bool(selector.select(_TICK)))
        except (redis.RedisError, OSError) as error:
            self._lost_by = error
        except Exception:  # noqa: BLE001  (without this thread nobody is seen to live)
            if not self._has_ended:
                _log.exception("keepalive failed; trying again")
        self._end()

    def _work(self, *, is_readable: bool) -> None:
        now = time.monotonic()
        if is_readable:
            self._take_in()
        with self._using:
            if self._has_ended:
                return
            if self._unanswered and now - self._unanswered[0].at >= self._heartbeat:
                raise redis.TimeoutError(f"no answer to a heartbeat within {self._heartbeat:g} s")
            if now >= self._next_heartbeat:
                self._next_heartbeat = now + self._heartbeat
                self._heartbeats += 1
                has_signs = self._heartbeats % self._signs_every == 0
                self._ask_heartbeats(list(self._clients.values()) if has_signs else ())
        for client in list(self._clients.values()):
            client.look(self)

    def _take_in(self) -> None:
        """Read what came."""
        while True:
            with self._using:
                raw = self._raw
                if self._has_ended or raw is None or not raw.can_read(timeout=0):
                    return
                reply: object
                try:
                    reply = raw.read_response(push_request=True)
                except redis.ResponseError as error:
                    reply = error
                tell = self._pushed(reply) if isinstance(reply, hiredis.PushNotification) else self._answered(reply)
            if tell is not None:
                tell(self)

    def _answered(self, reply: object) -> Callable[[SharedKeepalive], None] | None:
        """Take in the answer to the oldest command; gives what is to be called."""
        asked = self._unanswered.popleft()
        if asked.kind == "sunsubscribe" and not isinstance(reply, Exception):
            # That was answered by a push, and this is the answer to what was sent behind it.
            asked = self._unanswered.popleft()
        if asked.instances is not None:
            self._coordinators_counted(asked.instances, reply)
        if asked.heartbeat is not None:
            return self._heartbeat_answered(asked, asked.heartbeat, reply)
        if asked.client is None:
            if asked.joining is not None:
                asked.joining.end()
            return None
        if not isinstance(reply, Exception):
            return None
        if asked.joining is not None:
            # Users whose rules an older release made may not subscribe to shards; coordinators see the other channel.
            is_allowed = asked.kind == "ssubscribe" and isinstance(reply, redis.exceptions.NoPermissionError)
            asked.joining.end(None if is_allowed else reply)
        return None

    @staticmethod
    def _coordinators_counted(instances: dict[str, list[LiveClient]], reply: object) -> None:
        # Users whose rules an older release made may not ask: whoever waits for messages looks by itself.
        if isinstance(reply, list):
            for clients, number in zip(instances.values(), reply[1::2], strict=True):
                for client in clients:
                    client.attended(is_attended=bool(number))

    def _heartbeat_answered(
        self, asked: _Asked, call: Call[list[HeartbeatReply]], reply: object
    ) -> Callable[[SharedKeepalive], None] | None:
        if isinstance(reply, redis.exceptions.NoScriptError):
            self._ask_heartbeat_again(asked.living, call)
        elif isinstance(reply, Exception) and len(asked.living) > 1:
            self._ask_heartbeats_singly(asked.living)
        elif isinstance(reply, Exception):
            _log.debug("keepalive: %s", reply)
            return asked.living[0].refused
        else:
            received = time.monotonic()
            found = call.read(reply)  # type: ignore[arg-type]  # the script's own
            for client, each in zip(asked.living, found, strict=True):
                client.answered(asked.at, received, each)
        return None

    def _pushed(self, push: Sequence[object]) -> Callable[[SharedKeepalive], None] | None:
        """Take in what answers no command, or one that subscribes; gives what is to be called."""
        kind, channel = (word.decode(errors="replace") if isinstance(word, bytes) else "" for word in push[:2])
        head = self._unanswered[0] if self._unanswered else None
        if head is not None and head.client is not None and (head.kind, self._channel(head.client)) == (kind, channel):
            # Of one that ends a sharded subscription: or its slot was moved, which an error then says.
            if kind != "sunsubscribe":
                self._unanswered.popleft()
            if head.joining is not None and kind == "ssubscribe":
                head.joining.end()
        elif kind == "sunsubscribe" and (client := self._clients.pop(channel, None)) is not None:
            # Its slot was moved to another server.
            return client.moved
        return None

    @staticmethod
    def _channel(client: LiveClient) -> str:
        return attach(client.instance, client.client)[0][1]

    # -- the end

    def _end(self) -> None:
        """Tell all clients that the connection is lost."""
        with self._changing:
            self._forget()
        with self._using:
            self._has_ended = True
            self._disconnect()
            for asked in self._unanswered:
                if asked.joining is not None:
                    asked.joining.end(self._lost_by)
            self._unanswered.clear()
            clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            client.lost(self, translate_error(self._lost_by, None, self._url))

    def _hang_up(self) -> None:
        """End the connection; the thread learns of it, as the server does, and closes it."""
        self._has_ended = True
        if self._link is not None:
            with contextlib.suppress(OSError):
                self._link.shutdown(socket.SHUT_RDWR)

    def _disconnect(self) -> None:
        if self._raw is not None:
            with contextlib.suppress(redis.RedisError, OSError):
                self._raw.disconnect()

    @classmethod
    def _forked(cls) -> None:
        """Close in a new process what it has of its parent's connections: they would outlive the parent."""
        cls._changing = threading.Lock()
        for shared in cls._open.values():
            shared._using, shared._connecting = threading.Lock(), threading.Lock()  # noqa: SLF001  (ours)
            shared._has_ended = True  # noqa: SLF001  (ours)
            shared._disconnect()  # noqa: SLF001  (ours)
            shared._link = None  # noqa: SLF001  (ours)
        cls._open.clear()


os.register_at_fork(after_in_child=SharedKeepalive._forked)  # noqa: SLF001  (our own)
