"""One session of a guaranteed publisher: two connections, from a logon to the first failure.

On the first, calls are sent ahead in their order; a gap is refused by the server, so whatever fails, all behind it
fails too and is sent again by the next session. The second one waits for what is persisted, so that publishing does
not: it writes, once the calls are answered, and the server holds its answer back until that write is where it must be.
Where the instance has sync destinations, it waits for these, too.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from ampsq.base.errors import AmpsqError, Unavailable
from ampsq.protocol.calls import publish as publish_calls
from ampsq.protocol.calls import records as record_calls
from ampsq.protocol.calls import replication as replication_calls
from ampsq.protocol.calls.replication import read_received
from ampsq.protocol.limits import BATCH, BYTES
from ampsq.protocol.reads.publishers import read_last_sequence, read_publish_targets
from ampsq.protocol.reads.server import examine_flushing, ping, wait_for_replicas
from ampsq.publishing.persistence_level import WAIT_MS
from ampsq.publishing.sync_acknowledgement import SCRIPTS, SyncAcknowledgement
from ampsq.publishing.sync_state import sync_states

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from redis.typing import EncodableT

    from ampsq.protocol.calls.publish import Published
    from ampsq.protocol.calls.records import Deleted
    from ampsq.protocol.request import Call
    from ampsq.publishing.flush_watch import FlushWatch
    from ampsq.publishing.memory_store import PublishStore, StoreEntry
    from ampsq.publishing.persistence_level import PersistenceLevel
    from ampsq.transport.store import Store

__all__ = ["Identity", "PublishSession", "RunRefused", "StoreAnswer", "StoreRun", "refuse_lacking"]

#: Calls that are sent before the first one's reply is read.
_AHEAD: Final = 4
#: Pages of a store that are looked at to learn which topics an earlier session published to.
_PAGES: Final = 20
#: What a kind of entry becomes: publisher, session, sequence and arguments to a call.
_CALLS: Final[Mapping[str, Callable[[str, int, int, Sequence[EncodableT]], Call[Published] | Call[Deleted]]]] = {
    "publish": publish_calls.publish_logged_on,
    "sow_delete": record_calls.sow_delete_logged_on,
}


class Identity(NamedTuple):
    """The names of a publisher and of its client."""

    publisher: str
    client: str


class StoreRun(NamedTuple):
    """Entries that follow each other and travel in one call.

    Attributes:
        entry: all of them as one.
        call: what is sent.
    """

    entry: StoreEntry
    call: Call[Published] | Call[Deleted]


class StoreAnswer(NamedTuple):
    """The server's answer to a run.

    Attributes:
        entry: all entries of the run as one.
        reply: of a publish what became of the messages, of a deletion of records how many there were.
    """

    entry: StoreEntry
    reply: Published | Deleted

    @property
    def topic(self) -> str:
        """The topic, or the queue, that it was for."""
        return _topic_of(self.entry)


class RunRefused(AmpsqError):
    """The server refused a run; `error` says why, and nothing behind it was done."""

    def __init__(self, entry: StoreEntry, error: AmpsqError) -> None:
        super().__init__(str(error))
        self.entry, self.error = entry, error


class PublishSession:
    """Opened by `log_on`, used by one thread that sends and one that confirms; each has its own connection.

    Args:
        store: opens the connections.
        origin: of what is recorded there.
        identity: who publishes.
        kept: what is to be sent.
        level: what persisted means.
        limits: bytes that one call may have, by topic as it was published to, where the server has more than that to
            read; of others it has as many as ever.

    Attributes:
        origin: as it was given.
        number: given by the server; a later logon ends this one.
        sent: the last sequence that was sent.
        answered: the last one that the server recorded.
        hopeless_at: by the monotonic clock, when a sync destination was last found that never has anything as it is
            defined; 0.0 where there is none.
        topics: those that something was recorded in since they were last asked for, or queues published to; None: any.
        has_confirmer: whether the thread that confirms has taken it up, and closes its connection.
    """

    def __init__(
        self,
        store: Store,
        origin: str,
        identity: Identity,
        kept: PublishStore,
        level: PersistenceLevel,
        *,
        limits: Mapping[bytes, int],
    ) -> None:
        self._store, self.origin, self._identity, self._kept, self._level = store, origin, identity, kept, level
        self._limits = limits
        self._sending, self._confirming = store.pinned(), store.pinned()
        self._in_flight: deque[StoreRun] = deque()
        self._flushed: FlushWatch | None = None
        # When all that is being confirmed was answered; None: not yet.
        self._confirmed: float | None = None
        self._acknowledged = SyncAcknowledgement(store.instance)
        # Set behind what is being confirmed; None: not yet.
        self._mark: str | None = None
        self._is_loaded = False
        self.number = self.sent = self.answered = 0
        self._lacking = ""
        self.hopeless_at = 0.0
        self.topics: set[str] | None = set()
        self.has_confirmer = False

    def log_on(self, first: int, answered: int | None, former: int) -> publish_calls.LoggedOn:
        """Begin: learn what the server can prove and has recorded.

        Args:
            first: the least sequence that is going to be sent.
            answered: the last sequence that a former session of this client was told is recorded; None without one.
            former: the number of that session; 0 without one.

        Raises:
            ServerUnsuitable: this server cannot reach the level. NameInUse: another client took the name meanwhile.
            Unavailable: there is no server.
        """
        # A server that still loads its data answers INFO, and wrongly: PING is refused.
        self._sending.ask(ping())
        self._flushed = self._level.watch(self._store.run(examine_flushing(self._store.instance)))
        self._sending.load("logon", *_CALLS)
        if self._is_proved_later:
            self._confirming.load("confirm_sequence")
        # On the connection that sends: what it writes here is behind everything that an earlier session recorded.
        found = self._sending.ask(publish_calls.logon(*self._identity, first, answered, former))
        self.number = found.session
        self.sent = self.answered = max(first - 1, min(found.reached, self._kept.last))
        self.topics = self._topics_kept()
        return found

    def _topics_kept(self) -> set[str] | None:
        """Of what earlier sessions recorded and nobody confirmed."""
        topics: set[str] = set()
        after = self._kept.lowest() - 1
        for _ in range(_PAGES):
            entries = self._kept.read(after, BATCH) if after < self.answered else []
            if not entries:
                return topics
            topics |= {_topic_of(entry) for entry in entries}
            after = entries[-1].last
        return None

    @property
    def in_flight(self) -> int:
        """Calls that are sent and not answered."""
        return len(self._in_flight)

    def fill(self, single_until: int) -> None:
        """Send what is there, as far as calls may be in flight; up to `single_until` one message a call."""
        while len(self._in_flight) < _AHEAD and self._kept.last > self.sent:
            run = self._next_run(single_until)
            if run is None:
                return
            self._sending.post(run.call)
            self._in_flight.append(run)
            self.sent = run.entry.last

    def collect(self) -> StoreAnswer:
        """Read the reply of the earliest call; gives that and what it was for.

        Raises:
            Refused: the server refused it. Unavailable: nobody knows what became of it.
        """
        run = self._in_flight.popleft()
        try:
            reply: Published | Deleted = self._sending.collect()  # type: ignore[assignment]  # as the run's call has it
        except ConnectionError:
            raise
        except AmpsqError as error:
            raise RunRefused(run.entry, error) from error
        self.answered = run.entry.last
        return StoreAnswer(run.entry, reply)

    def take_topics(self) -> set[str] | None:
        """`topics`, which begin anew."""
        topics, self.topics = self.topics, set()
        return topics

    def _next_run(self, single_until: int) -> StoreRun | None:
        entries = self._kept.read(self.sent, BATCH)
        if not entries:
            return None
        first = entries[0].part(self.sent + 1, entries[0].last)
        if first.sequence <= single_until:
            return self._run(first.part(first.sequence, first.sequence))
        most = self._limits.get(bytes(first.arguments[0]), BYTES)
        if most < BYTES and first.size > most:
            return self._run(first.first(most))
        arguments, last, size = list(first.arguments), first.last, first.size
        for entry in entries[1:]:
            size += entry.size
            if (
                first.kind != "publish"
                or (entry.kind, entry.arguments[:2]) != (first.kind, first.arguments[:2])
                or entry.last - first.sequence >= BATCH
                or size > most
            ):
                break
            arguments += entry.arguments[2:]
            last = entry.last
        return self._run(first._replace(number=last - first.sequence + 1, arguments=arguments))

    def _run(self, entry: StoreEntry) -> StoreRun:
        call = _CALLS[entry.kind](self._identity.publisher, self.number, entry.sequence, entry.arguments)
        return StoreRun(entry, call)

    def is_persisted(self, sequence: int, streams: Iterable[str]) -> bool:
        """Wait about a second until all up to an answered sequence is persisted; whether it is.

        Once it is false, it is asked for the same again, until it is true.

        Args:
            sequence: the last one.
            streams: ``log <topic>`` and ``journal <queue>`` of what was recorded since it was last true; none: any.

        Raises:
            Rejected: the server does not have it any more, or another client logged on. Unavailable: no answer.
        """
        if self._mark is None:
            # Links carry it on while this server flushes.
            self._mark = self._set_mark()
        if self._is_proved_later and not self._is_kept_here(sequence):
            return False
        if self._mark and not self._is_acknowledged(self._mark, dict.fromkeys(streams, "")):
            return False
        self._mark, self._confirmed, self._lacking, self.hopeless_at = None, None, "", 0.0
        return True

    @property
    def lacking(self) -> str:
        """Reason why the present wait for persistence is not over, as far as anything was answered; "" of none."""
        if self._lacking:
            return self._lacking
        # A first wait may take a second; who does not have it is known from its beginning.
        return "; ".join(f"sync destination {name!r} has not acknowledged it" for name in self._acknowledged.lacking)

    @property
    def _is_proved_later(self) -> bool:
        """Return whether an answer alone does not prove that the level is reached."""
        return self._level.replicas > 0 or self._flushed is not None

    def _set_mark(self) -> str:
        """Set a mark behind what was answered; "" where there is no sync destination."""
        if not self._store.run(self._acknowledged.is_needed(self._confirming)):
            return ""
        if not self._is_loaded:
            self._confirming.load(*SCRIPTS)
            self._is_loaded = True
        return self._confirming.ask(replication_calls.set_mark())

    def _is_kept_here(self, sequence: int) -> bool:
        self._confirming.ask(publish_calls.confirm(self._identity.publisher, self.number, sequence))
        # Also a wait that is given up before this one is over says what it waited for.
        if self._flushed is None:
            self._lacking = self._lacking or f"fewer than {self._level.replicas} replicas have said that they have it"
            count = self._confirming.ask(wait_for_replicas(self._level.replicas, WAIT_MS))
            is_kept, lacking = count >= self._level.replicas, f"{count} of {self._level.replicas} replicas have it"
        else:
            lacking = self._lacking = "the server has not flushed its append-only file"
            now = time.monotonic()
            self._confirmed = now if self._confirmed is None else self._confirmed
            is_kept = self._store.run(self._flushed.wait(self._confirming, self._confirmed, now + WAIT_MS / 1000))
        self._lacking = "" if is_kept else lacking
        return is_kept

    def _is_acknowledged(self, mark: str, wanted: dict[str, str]) -> bool:
        until = time.monotonic() + WAIT_MS / 1000
        if self._store.run(self._acknowledged.wait(self._confirming, mark, wanted, until)):
            return True
        looked_at, states = time.monotonic(), self._store.run(sync_states(self._store.instance))
        lacking = [states[name] for name in self._acknowledged.lacking if name in states]
        self._lacking = "; ".join(map(str, lacking))
        self.hopeless_at = looked_at if any(state.is_final for state in lacking) else 0.0
        return False

    def log_off(self) -> None:
        """End the session in order, so that anybody may use the name."""
        self._store.call(publish_calls.logoff(self._identity.publisher, self.number))

    def stop_sending(self) -> None:
        """Close the connection that sends; by its thread."""
        self._sending.close()

    def stop_confirming(self) -> None:
        """Close the connection that confirms; by its thread."""
        self._confirming.close()


def refuse_lacking(store: Store, publisher: str, kept: PublishStore, persisted: int) -> None:
    """Refuse an instance at which a publisher must not go on.

    Args:
        store: on it.
        publisher: the publisher.
        kept: what it has not been told to be persisted.
        persisted: the last sequence that it was told is.

    Raises:
        Unavailable: that was told to be persisted and is not there, or what was sent before would be passed over there
            though the instance does not have it.
    """
    last = store.call(read_last_sequence(store.instance, publisher))
    about = f"{store.instance!r} has messages of publisher {publisher!r} up to {last}"
    if last < persisted:
        _refuse(f"{about}, and up to {persisted} it was told that they are persisted")
    topics = sorted({_topic_of(entry) for entry in kept.read(0, BATCH) if entry.sequence <= last})
    if topics:
        here = {name.removeprefix("log ").partition("@")[0] for name in store.call(read_received(store.instance))}
        for name in store.call(read_publish_targets(store.instance, topics)):
            if name not in here:
                _refuse(
                    f"{about}, and is not sent topic {name!r}, to which some of them went: replicate all topics that "
                    "it publishes to"
                )


def _refuse(text: str) -> NoReturn:
    error = Unavailable(text)
    error.may_have_run = False
    raise error


def _topic_of(entry: StoreEntry) -> str:
    return bytes(entry.arguments[0]).decode()
