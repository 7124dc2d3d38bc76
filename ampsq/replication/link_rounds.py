"""Rounds: calls that all links of a process make at one server again and again, in one packet; each alone had ten.

A link says at both ends that it stands, holds its duty, and sees whether what is defined there has changed. A link that
has read everything waits for entries. Both are done here, by a thread each a server (in a cluster: an instance), for
all links that have an end there: a blocked read costs as much as it has streams when it begins, so it goes on over many
rounds while the same links wait. Whatever is out of the ordinary the threads only tell to the link, which then asks by
itself: so there is one place that judges, and a failure of one link is no matter of the others.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, cast

from ampsq.base.errors import AmpsqError, Unavailable
from ampsq.base.log_positions import parse_id
from ampsq.protocol.calls.links import read_raw_groups
from ampsq.protocol.reads.clock import server_time
from ampsq.protocol.reads.instance import version_and_origin
from ampsq.protocol.reads.streams import wait_for_any, wait_for_streams
from ampsq.transport.kept_pipeline import KeptPipeline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ampsq.protocol.reads.streams import Stream
    from ampsq.protocol.request import Call
    from ampsq.transport.server_wait import ServerWait
    from ampsq.transport.store import Store

__all__ = ["EndFacts", "LinkRounds", "NewsWait", "RoundPart", "ServerRounds"]

_log = logging.getLogger("ampsq.replication")
#: Seconds between two rounds, and rounds of which a link has one on which nothing moves.
_ROUND: Final = 1.0
_IDLE_ROUNDS: Final = 2
#: Seconds of one blocked read: a link that begins to wait with the others does so from the next one on. Where it was
#: for the same links as the one before, the next one lasts twice as long, up to the most: for long only where the
#: system looks itself whether an idle connection still stands.
_WAIT: Final = 1.0
_LONGEST_WAIT: Final = 60.0 if hasattr(socket, "TCP_KEEPIDLE") else 2.0
#: Seconds without news after which a link waits with the others: what wakes one has all asked again.
_QUIET_AFTER: Final = 2.0
#: Seconds for which a link waits with the others until it looks whether it is to do anything else; what is wakes it.
_SHARED_WAIT: Final = 30.0
#: Seconds for which who leaves waits until nothing more is said of it.
_LEAVES_WITHIN: Final = 1.0
_RETRY_TIMEOUT: Final = 1.0


class EndFacts(NamedTuple):
    """The state of one of its ends that a link goes by.

    Attributes:
        version: of what is defined there; None: there is no such instance.
        origin: who the instance is.
        groups: of each destination the group that its link found last, to be compared with what it was before.
    """

    version: int | None
    origin: str
    groups: dict[bytes, bytes]


class RoundPart(Protocol):
    """The calls of a link at one of its ends, each round."""

    @property
    def store(self) -> Store:
        """On the instance at that end."""

    @property
    def is_idle(self) -> bool:
        """Return whether nothing has moved lately, so that it is asked less often."""

    def calls(self, now: int) -> Sequence[Call[object]]:
        """Return what is asked; `now`: ms of the server."""

    def take_in(self, facts: EndFacts, replies: Sequence[object]) -> None:
        """Take in what was answered."""

    def fail(self, error: Unavailable | None) -> None:
        """Take in that nothing was answered; `error`: since the server hangs."""


class LinkRounds:
    """The rounds of all servers at which links of this process have an end.

    Args:
        servers: makes stores.
    """

    def __init__(self, servers: ServerWait) -> None:
        self._servers = servers
        self._rounds: dict[tuple[str, str], ServerRounds] = {}
        self._changing = threading.Lock()

    def of(self, store: Store) -> ServerRounds:
        """Return the rounds of a store's server."""
        # In a cluster the instances of one packet would have to be in one slot.
        place = store.url, store.instance if store.route.is_cluster else ""
        with self._changing:
            if place not in self._rounds:
                self._rounds[place] = ServerRounds(self._servers)
            return self._rounds[place]


class ServerRounds:
    """The rounds at one server. Its threads, and a connection of each, are there while links have an end there.

    Args:
        servers: makes stores.
    """

    def __init__(self, servers: ServerWait) -> None:
        # Guards what follows; the threads wait for it to change.
        self._changed = threading.Condition()
        self._parts: list[RoundPart] = []
        self._waits: list[NewsWait] = []
        # Those of which something is being said.
        self._asked: Sequence[RoundPart] = ()
        self._rounds, self._reads = _ServerConnection(servers), _ServerConnection(servers)
        # What the server's clock showed, in ms, and when; 0 where it was not asked yet.
        self._clock = 0, 0.0

    @contextlib.contextmanager
    def joined(self, part: RoundPart) -> Iterator[None]:
        """Ask that, too, while the context lasts; after it nothing more is said of it."""
        with self._changed:
            self._parts.append(part)
            self._rounds.be_used("link-rounds", self._run)
            self._reads.be_used("link-reads", self._run_reads)
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._parts.remove(part)
                if not self._parts:
                    # Somebody may wait on them.
                    self._rounds.disconnect()
                    self._reads.disconnect()
                self._changed.notify_all()
                self._changed.wait_for(lambda: part not in self._asked, _LEAVES_WITHIN)

    def offer(self, wait: NewsWait) -> None:
        """Wait for entries for somebody, too, from the next read on."""
        with self._changed:
            if wait not in self._waits:
                self._waits.append(wait)
                self._changed.notify_all()

    def withdraw(self, wait: NewsWait) -> None:
        """Wait no more for somebody."""
        with self._changed:
            wait.is_shared = False
            if wait in self._waits:
                self._waits.remove(wait)

    # -- rounds

    def _run(self) -> None:
        number, next_round = 0, time.monotonic() + _ROUND
        while store := self._store_of(self._rounds):
            now = time.monotonic()
            is_round = now >= next_round
            if is_round:
                passed = int((now - next_round) // _ROUND) + 1
                number, next_round = number + passed, next_round + passed * _ROUND
            with self._changed:
                parts = self._due(number) if is_round else []
                if not parts:
                    self._changed.wait(max(next_round - now, 0.0))
                    continue
                self._asked = parts
            self._ask(store, parts)

    def _store_of(self, connection: _ServerConnection) -> Store | None:
        """A store on an instance of the server that a link has an end at; None: there is none, the thread ends."""
        with self._changed:
            return connection.choose([part.store for part in self._parts])

    def _due(self, number: int) -> list[RoundPart]:
        return [part for part in self._parts if number % _IDLE_ROUNDS == 0 or not part.is_idle]

    def _ask(self, store: Store, parts: Sequence[RoundPart]) -> None:
        """Send one packet, and read what is answered."""
        unanswered, began = list(parts), time.monotonic()
        try:
            self._exchange(store, unanswered)
        except AmpsqError as error:
            _log.debug("what links ask together failed, so that each asks by itself: %s", error)
            # Who asked by itself would wait as long once more.
            is_hung = isinstance(error, Unavailable) and time.monotonic() - began >= store.route.heartbeat
            for part in list(self._parts) if is_hung else unanswered:
                part.fail(error if isinstance(error, Unavailable) and is_hung else None)
            if is_hung:
                self._reads.disconnect()
        except Exception:  # noqa: BLE001  (without this thread no link would say that it stands)
            # Closed by the last link that left, while it was read.
            if self._parts:
                _log.exception("what links ask together failed, so that each asks by itself")
            for part in unanswered:
                part.fail(None)
        finally:
            self._all_said()

    def _exchange(self, store: Store, unanswered: list[RoundPart]) -> None:
        """Take what is answered off the list of what is not."""
        asked = [(part, part.calls(self._server_now(store))) for part in unanswered]
        # The first one is answered at once: where the connection was lost since the last packet, all is sent again.
        calls: list[Call[object]] = [server_time()]
        names = dict.fromkeys(part.store.instance for part in unanswered)
        for name in names:
            calls += [version_and_origin(name), read_raw_groups(name)]
        calls += [call for _, some in asked for call in some]
        with contextlib.closing(self._rounds.asking.ask(store, calls)) as replies:
            self._clock = cast("int", next(replies)), time.monotonic()
            facts = {name: self._facts(replies) for name in names}
            for part, some in asked:
                part.take_in(facts[part.store.instance], [next(replies) for _ in some])
                unanswered.remove(part)

    def _server_now(self, store: Store) -> int:
        shown, at = self._clock
        if not shown:
            shown, at = self._clock = store.call(server_time()), time.monotonic()
        return shown + round((time.monotonic() - at) * 1000)

    @staticmethod
    def _facts(replies: Iterator[object]) -> EndFacts:
        version, origin = cast("tuple[int | None, str]", next(replies))
        return EndFacts(version, origin, cast("dict[bytes, bytes]", next(replies)))

    def _all_said(self) -> None:
        with self._changed:
            self._asked = ()
            self._changed.notify_all()

    # -- reads

    def _run_reads(self) -> None:
        seconds, before = _WAIT, list[NewsWait]()
        while store := self._store_of(self._reads):
            with self._changed:
                waits = list(self._waits)
                if not waits:
                    # Whoever offers one, and whoever leaves, ends that.
                    self._changed.wait()
                    continue
                for wait in waits:
                    # Where it begins, no entry is missed between two reads.
                    wait.is_shared = True
            seconds = min(2 * seconds, _LONGEST_WAIT) if waits == before else _WAIT
            before = waits
            keys = self._read(store, waits, seconds)
            for wait in waits:
                if keys is None or not keys.isdisjoint(wait.keys):
                    self.withdraw(wait)
                    wait.wake(is_news=keys is not None)

    def _read(self, store: Store, waits: Sequence[NewsWait], seconds: float) -> set[str] | None:
        """Wait until something comes; gives in which streams, None where that failed."""
        try:
            with contextlib.closing(self._reads.asking.ask(store, [_wait_for(waits, seconds)])) as replies:
                return set(cast("list[str]", next(replies)))
        except AmpsqError as error:
            _log.debug("what links wait for together failed, so that each waits by itself: %s", error)
        except Exception:  # noqa: BLE001  (without this thread each link would wait by itself for good)
            # Closed by the last link that left, while it was read.
            if self._parts:
                _log.exception("what links wait for together failed, so that each waits by itself")
        return None


class _ServerConnection:
    """A thread's connection to a server, on an instance there that a link has an end at.

    Args:
        servers: makes stores.

    Attributes:
        asking: what the thread asks with.
    """

    def __init__(self, servers: ServerWait) -> None:
        self._servers = servers
        self.asking = KeptPipeline()
        self._store: Store | None = None
        self._is_used = False

    def be_used(self, name: str, work: Callable[[], None]) -> None:
        """Begin the thread, where there is none; it ends once `choose` gives None."""
        if not self._is_used:
            self._is_used = True
            threading.Thread(target=work, name=name, daemon=True).start()

    def choose(self, stores: Sequence[Store]) -> Store | None:
        """Return a store of its own on one of these instances; None: there is none, so that the thread ends."""
        if self._store is not None and self._store.instance not in {each.instance for each in stores}:
            self._store.close()
            self._store = None
        if not stores:
            self._is_used = False
            self.asking.close()
        elif self._store is None:
            self._store = self._servers.store(stores[0].url, stores[0].instance, _RETRY_TIMEOUT)
        return self._store

    def disconnect(self) -> None:
        """End what is waited for."""
        if self._store is not None:
            self._store.disconnect()


def _wait_for(waits: Sequence[NewsWait], seconds: float) -> Call[list[str]]:
    """Ask for the first entries behind what each of them has read."""
    places: dict[str, str] = {}
    for wait in waits:
        for name, place in wait.keys.items():
            known = places.setdefault(name, place)
            if known != place:
                places[name] = min(known, place, key=parse_id)
    return wait_for_any(places, seconds)


class NewsWait:
    """One reader's waiting for entries: by itself, and where none came for a while together with all others.

    Args:
        store: on the instance that it reads.
        rounds: of its server.

    Attributes:
        keys: key of a stream -> the ID behind which entries are waited for.
        is_shared: it is waited for together with others.
    """

    def __init__(self, store: Store, rounds: ServerRounds) -> None:
        self._store, self._rounds = store, rounds
        self.keys: dict[str, str] = {}
        self.is_shared = False
        self._woken, self._has_news = threading.Event(), False
        self._quiet_since = time.monotonic()

    def wait(self, places: Mapping[Stream, str], seconds: float) -> bool:
        """Wait until something has come, or may have; False when the time is over, or it was woken.

        Args:
            places: the IDs behind which entries are waited for.
            seconds: for which it waits by itself.
        """
        keys = {stream.key(self._store.instance): place for stream, place in places.items()}
        if keys != self.keys:
            self._rounds.withdraw(self)
            self.keys, self._quiet_since = keys, time.monotonic()
        if not self.is_shared:
            if time.monotonic() - self._quiet_since > _QUIET_AFTER:
                # Until it is waited for with the others, it waits by itself: so nothing is missed.
                self._rounds.offer(self)
            return self._store.call(wait_for_streams(self._store.instance, places, seconds))
        if not self._woken.wait(_SHARED_WAIT):
            return False
        self._woken.clear()
        self._rounds.withdraw(self)
        has_news, self._has_news = self._has_news, False
        if has_news:
            self._quiet_since = time.monotonic()
        return has_news

    def wake(self, *, is_news: bool = False) -> None:
        """End its waiting with others; but for news it is to look at something else, or to wait by itself."""
        self._has_news = self._has_news or is_news
        self._woken.set()

    def close(self) -> None:
        """Wait for nothing any more."""
        self._rounds.withdraw(self)
