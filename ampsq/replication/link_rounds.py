"""Rounds: calls that all links of a process make at one server again and again, in one packet; each alone had ten.

A link says at both ends that it stands, holds its duty, and sees whether what is defined there has changed. A link that
has read everything waits for entries. Both are done here, by one thread a server (in a cluster: an instance), for all
links that have an end there. Whatever is out of the ordinary the thread only tells to the link, which then asks by
itself: so there is one place that judges, and a failure of one link is no matter of the others.
"""

from __future__ import annotations

import contextlib
import logging
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
    from collections.abc import Iterator, Mapping, Sequence

    from ampsq.protocol.reads.streams import Stream
    from ampsq.protocol.request import Call
    from ampsq.transport.server_wait import ServerWait
    from ampsq.transport.store import Store

__all__ = ["EndFacts", "LinkRounds", "NewsWait", "RoundPart", "ServerRounds"]

_log = logging.getLogger("ampsq.replication")
#: Seconds between two rounds, and rounds of which a link has one on which nothing moves.
_ROUND: Final = 1.0
_IDLE_ROUNDS: Final = 2
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
    """The rounds at one server. The thread and its connection are there while links have an end there.

    Args:
        servers: makes stores.
    """

    def __init__(self, servers: ServerWait) -> None:
        self._servers = servers
        # Guards what follows; the thread waits for it to change.
        self._changed = threading.Condition()
        self._parts: list[RoundPart] = []
        self._waits: list[NewsWait] = []
        # Those of which something is being said.
        self._asked: Sequence[RoundPart] = ()
        self._is_running = False
        self._store: Store | None = None
        # Of the thread.
        self._asking = KeptPipeline()
        # What the server's clock showed, in ms, and when; 0 where it was not asked yet.
        self._clock = 0, 0.0

    @contextlib.contextmanager
    def joined(self, part: RoundPart) -> Iterator[None]:
        """Ask that, too, while the context lasts; after it nothing more is said of it."""
        with self._changed:
            self._parts.append(part)
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="link-rounds", daemon=True).start()
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._parts.remove(part)
                if not self._parts and self._store is not None:
                    # Its thread may wait for entries.
                    self._store.disconnect()
                self._changed.notify_all()
                self._changed.wait_for(lambda: part not in self._asked, _LEAVES_WITHIN)

    def offer(self, wait: NewsWait) -> None:
        """Wait for entries for somebody, too, from the next packet on."""
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

    # -- the thread

    def _run(self) -> None:
        number, next_round = 0, time.monotonic() + _ROUND
        while store := self._current_store():
            now = time.monotonic()
            is_round = now >= next_round
            if is_round:
                passed = int((now - next_round) // _ROUND) + 1
                number, next_round = number + passed, next_round + passed * _ROUND
            with self._changed:
                parts = self._due(number) if is_round else []
                waits = list(self._waits)
                for wait in waits:
                    # Where it begins, no entry is missed between two packets.
                    wait.is_shared = True
                if not (parts or waits):
                    self._changed.wait(max(next_round - now, 0.0))
                    continue
                self._asked = parts
                is_idle = all(part.is_idle for part in self._parts)
            rounds = _IDLE_ROUNDS - number % _IDLE_ROUNDS if is_idle else 1
            self._ask(store, parts, waits, next_round + (rounds - 1) * _ROUND - now)

    def _current_store(self) -> Store | None:
        """A store on an instance of the server that a link has an end at; None: there is none, the thread ends."""
        with self._changed:
            names = [part.store.instance for part in self._parts]
            if self._store is not None and self._store.instance not in names:
                self._store.close()
                self._store = None
            if not names:
                self._is_running = False
                self._asking.close()
            elif self._store is None:
                first = self._parts[0].store
                self._store = self._servers.store(first.url, first.instance, _RETRY_TIMEOUT)
            return self._store

    def _due(self, number: int) -> list[RoundPart]:
        return [part for part in self._parts if number % _IDLE_ROUNDS == 0 or not part.is_idle]

    def _ask(
        self,
        store: Store,
        parts: Sequence[RoundPart],
        waits: Sequence[NewsWait],
        seconds: float,
    ) -> None:
        """Send one packet, and read what is answered."""
        unanswered, began = list(parts), time.monotonic()
        try:
            self._exchange(store, unanswered, waits, seconds)
        except AmpsqError as error:
            _log.debug("what links ask together failed, so that each asks by itself: %s", error)
            # Who asked by itself would wait as long once more.
            is_hung = isinstance(error, Unavailable) and time.monotonic() - began >= store.route.heartbeat
            for part in list(self._parts) if is_hung else unanswered:
                part.fail(error if isinstance(error, Unavailable) and is_hung else None)
            self._wake(waits)
        except Exception:  # noqa: BLE001  (without this thread no link would say that it stands)
            # Closed by the last link that left, while it was read.
            if self._parts:
                _log.exception("what links ask together failed, so that each asks by itself")
            for part in unanswered:
                part.fail(None)
            self._wake(waits)
        finally:
            self._all_said()

    def _exchange(self, store: Store, unanswered: list[RoundPart], waits: Sequence[NewsWait], seconds: float) -> None:
        """Take what is answered off the list of what is not."""
        asked = [(part, part.calls(self._server_now(store))) for part in unanswered]
        # The first one is answered at once: where the connection was lost since the last packet, all is sent again.
        calls: list[Call[object]] = [server_time()]
        names = dict.fromkeys(part.store.instance for part in unanswered)
        for name in names:
            calls += [version_and_origin(name), read_raw_groups(name)]
        calls += [call for _, some in asked for call in some]
        if waits:
            calls.append(_wait_for(waits, max(seconds, 0.001)))
        with contextlib.closing(self._asking.ask(store, calls)) as replies:
            self._clock = cast("int", next(replies)), time.monotonic()
            facts = {name: self._facts(replies) for name in names}
            for part, some in asked:
                part.take_in(facts[part.store.instance], [next(replies) for _ in some])
                unanswered.remove(part)
            self._all_said()
            keys = set(cast("list[str]", next(replies))) if waits else set()
            for wait in waits:
                if not keys.isdisjoint(wait.keys):
                    wait.wake(is_news=True)

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

    @staticmethod
    def _wake(waits: Sequence[NewsWait]) -> None:
        for wait in waits:
            wait.wake()


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
