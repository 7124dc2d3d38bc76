"""Guaranteed publishing: what a publish store holds is sent, in order, until the server has persisted it.

A thread sends and a thread confirms, for `Client` and `AsyncClient` alike: an event loop that a handler blocks does not
hold messages back. Whatever fails ends the session; the next one begins with what the server does not have.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ampsq.base.errors import (
    AmpsqError,
    Closed,
    DefinitionError,
    FlushingUnknown,
    FormatMismatch,
    NameInUse,
    NobodyDefines,
    NotPersisted,
    PublishStoreError,
    PublishStoreFull,
    RecordsBehind,
    SequenceGap,
    ServerFull,
    ServerUnsuitable,
    TooMuchToRead,
    Unavailable,
    UnknownTopic,
)
from ampsq.base.limits import limits
from ampsq.base.values import parse_name
from ampsq.catalog.first_use import add_published
from ampsq.protocol.calls import publish as publish_calls
from ampsq.protocol.calls.records import catch_up_records
from ampsq.publishing.guarantee_options import FailedWrite
from ampsq.publishing.persistence_level import PersistedAck
from ampsq.publishing.progress import ANYTHING, ProgressTarget, PublishProgress
from ampsq.publishing.published_runs import PublishedRuns, find_published
from ampsq.publishing.session import Identity, PublishSession, RunRefused, refuse_lacking
from ampsq.publishing.settlements import Settlements
from ampsq.transport.connection_state import ConnectionState
from ampsq.transport.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ampsq.base.bookmarks import Bookmark
    from ampsq.publishing.envelope import Envelope
    from ampsq.publishing.guarantee_options import Guarantee
    from ampsq.publishing.memory_store import StoreEntry
    from ampsq.transport.route import Route

__all__ = ["FailoverGuard", "GuaranteedPublisher"]

_log = logging.getLogger("ampsq")
#: Seconds before a session is opened again, by how often that failed.
_PAUSES: Final = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
#: Seconds before a server, or a store, that is full is asked again.
_FULL_PAUSE: Final = 0.2


class FailoverGuard(NamedTuple):
    """What is to be known of a publisher that may go on at another instance.

    Attributes:
        kept_as: the instance under whose name the store keeps.
        is_careful: refuse an instance that lacks what was told to be persisted.
    """

    kept_as: str
    is_careful: bool


class GuaranteedPublisher:
    """A guaranteed publisher at work.

    Args:
        identity: the publisher's name and the client's.
        route: the way to the server, shared with the client.
        origin: of what is published there.
        guarantee: what is asked for.
        revive: called while the server is away: what can bring it back.
        several: of one that may go on at another instance.

    Raises:
        PublishStoreError: the store is in use, or cannot be read.
        Unavailable: there is no server. ServerUnsuitable: it cannot reach the level.
    """

    def __init__(  # noqa: PLR0917  (who, where, what)
        self,
        identity: Identity,
        route: Route,
        origin: str,
        guarantee: Guarantee,
        revive: Callable[[], None] | None,
        several: FailoverGuard | None = None,
    ) -> None:
        self._identity, self._guarantee, self._revive = identity, guarantee, revive
        self._kept = guarantee.store
        self._store, self._origin = Store(route, route.instance, retry_timeout=0.0), origin
        self._published = PublishedRuns()
        # What the sending thread waits for; set by every publish, so it has to be cheap.
        self._news = threading.Event()
        self._session: PublishSession | None = None
        self._fatal: AmpsqError | None = None
        # Whether somebody was told of that.
        self._is_told = False
        self._trouble = self._store_trouble = ""
        # Up to here messages were kept when the session began; None once they are all recorded.
        self._replayed: int | None = None
        # Nothing more is taken; the threads end.
        self._closing = self._ended = False
        # The last sequence that any session of this client sent; None before the first one.
        self._sent_last: int | None = None
        # Of the session that was opened last.
        self._number = 0
        # Refused for good up to here, and to be sent one by one up to there.
        self._refused = self._single_until = 0
        # Bytes of a call to a topic, where the server reads what is published and had too much of it.
        self._limits: dict[bytes, int] = {}
        # A session at another instance is not one that went on.
        self._is_elsewhere = False
        self._former_stores: list[Store] = []
        self._kept.open(several.kept_as if several is not None else route.instance, identity.publisher)
        try:
            self.settlements = Settlements(self._kept, self._tell, origin if several is not None else "")
            self._progress = PublishProgress(self._kept, self.settlements)
            # Guards all that is not the store's.
            self._changed = self._progress.changed
            if several is not None and several.is_careful:
                refuse_lacking(self._store, identity.publisher, self._kept, self._progress.persisted)
            self._log_on()
        except BaseException:
            self._kept.close()
            self._store.close()
            raise
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), name=f"ampsq-{name}-{identity.publisher}", daemon=True)
            for name, work in (("publish", self._send), ("persist", self._confirm))
        ]
        for thread in self._threads:
            thread.start()

    def check_resume_at(self, route: Route) -> None:
        """Refuse to go on at another instance, to which this is the way, if it lacks what was told to be persisted.

        Raises:
            Unavailable: it does, or there is no server.
        """
        persisted = self._progress.persisted if self._progress.persisted != self._refused else 0
        with contextlib.closing(Store(route, route.instance, retry_timeout=0.0)) as store:
            refuse_lacking(store, self._identity.publisher, self._kept, persisted)

    def resume_at(self, route: Route, origin: str) -> None:
        """Go on at another instance, with what it does not have; `settlements` are those of leases there from now."""
        with self._changed:
            # The threads still read of what they had there; it ends with this client.
            self._former_stores.append(self._store)
            self._store, self._origin = Store(route, route.instance, retry_timeout=0.0), origin
            self.settlements = self._progress.settlements = Settlements(self._kept, self._tell, origin)
            self._session, self._is_elsewhere = None, True
            self._changed.notify_all()
        self._news.set()

    # -- for the application's threads

    @property
    def persisted(self) -> int:
        """The last sequence that is persisted, with all before it; 0 before the first."""
        return self._progress.persisted

    @property
    def may_wait(self) -> bool:
        """Whether `publish` may wait, for room or for a disk: an event loop leaves it to a thread then."""
        return self._kept.waits or not self._kept.has_room()

    def publish(
        self,
        topic: str,
        bodies: Sequence[bytes],
        envelope: Envelope,
        sequence: int | None = None,
        *,
        delta: bool = False,
    ) -> int:
        """Take messages, at most a batch; gives the sequence of the first. They are stored when this returns.

        With `delta` they are changes of records, which the server merges.

        Raises:
            PublishStoreFull: there is no room, and none came in time. PublishStoreError: they cannot be stored.
            NameInUse: another client publishes under this name now. Closed: the client was closed.
            DefinitionError: it is no topic's name, or a sequence was given.
        """
        if sequence is not None:
            raise DefinitionError(f"sequence={sequence!r}: with a store, the publisher numbers its messages itself")
        limits().check_bodies(bodies)
        headers = [envelope.headers] * len(bodies) if envelope.headers else []
        shape, values = publish_calls.pack_messages(bodies, headers, envelope.times, delta=delta)
        return self.take(len(bodies), "publish", [parse_name(topic).encode(), shape.encode(), *values])

    def take(self, count: int, kind: str, arguments: Sequence[bytes]) -> int:
        """Take a call of `count` messages, of a kind that `ampsq.publishing.session` knows; as `publish`."""
        if self._fatal is not None or self._closing or not self._kept.has_room():
            self._wait_for_room()
        sequence = self._kept.keep(count, kind, arguments)
        if not self._news.is_set():
            self._news.set()
        return sequence

    def _wait_for_room(self) -> None:
        with self._changed, self._progress.hurrying(lambda: ANYTHING):
            self._changed.wait_for(
                lambda: self._fatal is not None or self._closing or self._kept.has_room(), self._kept.timeout
            )
            self._raise_if_over()
            if not self._kept.has_room():
                raise PublishStoreFull(
                    f"the publish store holds {self._kept.held:,} of {self._kept.messages:,} messages, "
                    f"{self._kept.held_bytes:,} of {self._kept.size:,} bytes, and none was persisted within "
                    f"{self._kept.timeout:g} s{self._why}; publish slower, or give it more messages=, size= or timeout="
                )

    @property
    def _is_over(self) -> bool:
        """Whether the threads have nothing more to do."""
        return self._fatal is not None or self._ended

    def _raise_if_over(self) -> None:
        self._raise_if_fatal()
        if self._closing:
            raise Closed("this publisher was closed")

    def _raise_if_fatal(self) -> None:
        if self._fatal is not None:
            self._is_told = True
            raise self._fatal

    @property
    def _why(self) -> str:
        lacking = self._session.lacking if self._session is not None else ""
        why = self._fatal or self._trouble or self._store_trouble or lacking
        parts = [str(part) for part in (why, self._store.route.stays) if part]
        return f" ({'; '.join(parts)})" if parts else ""

    def flush(self, timeout: float | None) -> None:
        """Wait until everything that was taken is persisted, and every settlement answered.

        Raises:
            NotPersisted: the time is over, or a sync destination never has it as it is defined; tells what is missing,
                and why. NameInUse: nothing more will be.
        """
        self._wait_until(self._progress.everything(), timeout)
        with self._changed:
            self._raise_if_fatal()

    def _wait_until(self, target: ProgressTarget, timeout: float | None) -> None:
        begun = time.monotonic()

        def is_hopeless() -> bool:
            # What was found before is looked at again: it may have been mended.
            return self._session is not None and self._session.hopeless_at > begun

        self._progress.wait(lambda: target, lambda: self._is_over or is_hopeless(), timeout)
        waited = time.monotonic() - begun
        with self._changed:
            if self._progress.is_reached(target):
                return
            self._raise_if_fatal()
            lost = "lost with this publisher: " if self._ended and not self._kept.survives else ""
            tried = round(waited, 1) if timeout is None or waited < timeout else timeout
            raise self._missing(target, tried, lost=lost)

    def known_bookmark(self, sequence: int) -> Bookmark | None:
        """The bookmark of a message that is persisted and whose answer is kept; else None."""
        return self._published.bookmark(sequence) if sequence <= self._progress.persisted else None

    def wait_for_bookmark(self, topic: str, sequence: int, timeout: float | None) -> Bookmark:
        """Wait until a message is persisted, so that it keeps its bookmark; see `Receipt.bookmark`."""
        self._wait_for(sequence, timeout)
        found = self._published.bookmark(sequence)
        if found is not None:
            return found
        store, name = self._store, self._identity.publisher
        return store.run(find_published(store.instance, self._origin, name, sequence, topic))

    def wait_for_deleted(self, sequences: Sequence[int], timeout: float | None) -> int:
        """Wait until deletions are persisted; see `DeletionReceipt.deleted`."""
        until = None if timeout is None else time.monotonic() + timeout
        for sequence in sequences:
            self._wait_for(sequence, None if until is None else max(until - time.monotonic(), 0.0))
        return sum(map(self._published.deleted, sequences))

    def _wait_for(self, sequence: int, timeout: float | None) -> None:
        """Wait until one number is persisted; raises why the server refused it."""
        self._wait_until(ProgressTarget(sequence, frozenset()), timeout)
        refusal = self._published.refusal(sequence)
        if refusal is not None:
            raise refusal

    def _has_stopped(self) -> bool:
        return self._fatal is not None

    def _missing(self, target: ProgressTarget, timeout: float | None, *, lost: str = "") -> NotPersisted:
        why = self._why
        first, last, number = self._progress.persisted + 1, target.sequence, self._progress.left_of(target)
        parts = []
        if first <= last:
            parts.append(f"{last - first + 1} messages (sequences {first} to {last})")
        if number:
            parts.append(f"{number} acknowledgements")
        fate = "" if lost else "; they are kept and sent again"
        text = (
            f"{lost}{' and '.join(parts)} of publisher {self._identity.publisher!r} are not persisted "
            f"({self._guarantee.level.level}) after {timeout or 0:g} s{why}{fate}"
        )
        if first > last:
            return NotPersisted(text, None, None, number, why[2:-1])
        return NotPersisted(text, first, last, number, why[2:-1])

    def close(self, retry_timeout: float, short: float) -> None:
        """Send what is left, as far as that is possible in time, and end. Safe to call again.

        Args:
            retry_timeout: seconds that what would be lost with this process is tried.
            short: the same for what a file keeps.

        Raises:
            NotPersisted: the time is over, and the store does not survive this process.
        """
        with self._changed:
            if self._closing:
                return
            # From here on nobody is told that a message was taken which nobody would send any more.
            self._closing = True
            self._changed.notify_all()
        # Unread, they are waited for, as if somebody sent them.
        with contextlib.suppress(PublishStoreError):
            self.settlements.take_over()
        # Also what those take that were about to when it was closed.
        self._progress.wait(
            self._progress.everything, self._has_stopped, short if self._kept.survives else retry_timeout
        )
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._news.set()
        for thread in self._threads:
            # A handler that closes the client is called by one of them.
            if thread is not threading.current_thread():
                thread.join()
        self._kept.close()
        left = self._kept.held or self.settlements.number
        if self._session is not None and not left:
            # Without it, others are told that somebody is logged on, and may log on themselves.
            with contextlib.suppress(AmpsqError):
                self._session.log_off()
        for store in (self._store, *self._former_stores):
            store.close()
        if left and not self._kept.survives and not self._is_told:
            tried = retry_timeout if self._fatal is None else 0.0
            raise self._missing(self._progress.everything(), tried, lost="lost with this process: ")

    def _tell(self) -> None:
        """Something is there for the threads."""
        with self._changed:
            self._changed.notify_all()
        self._news.set()

    # -- the threads

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except AmpsqError as error:
            self._give_up(error)
        except Exception as error:  # noqa: BLE001  (publishers are to be told, whatever it is)
            _log.exception("publishing failed")
            self._give_up(AmpsqError(f"publishing stopped, our fault: {error!r}; what is kept is not lost"))

    def _give_up(self, error: AmpsqError) -> None:
        _log.error("publisher %s stopped: %s", self._identity.publisher, error)
        with self._changed:
            self._fatal = self._fatal or error
            self._changed.notify_all()
        self._news.set()

    def _log_on(self) -> PublishSession:
        """Open a session. What was answered and not confirmed is proved, or sent again, by it."""
        again, first = self._sent_last is not None, max(self._kept.lowest(), self._refused + 1)
        with self._changed:
            store, origin = self._store, self._origin
        session = PublishSession(store, origin, self._identity, self._kept, self._guarantee.level, limits=self._limits)
        try:
            is_same = again and not self._is_elsewhere
            found = session.log_on(first, self._progress.answered if is_same else None, self._number if is_same else 0)
            self._refuse_others_numbers(found.last)
        except BaseException:
            session.stop_sending()
            session.stop_confirming()
            raise
        if found.last < self._progress.persisted:
            _log.warning(
                "publisher %s: the server knows %d as its last sequence and had acknowledged %d: some were lost",
                self._identity.publisher,
                found.last,
                self._progress.persisted,
            )
        with self._changed:
            if not again and not self._kept.held:
                # Another process may have used the name: numbers go on behind its.
                self._kept.begin_after(found.last)
                self._progress.persisted = session.sent = session.answered = self._kept.last
            self._session, self._progress.answered, self._trouble = session, session.answered, ""
            self._replayed = self._kept.last
            self._sent_last = max(self._sent_last or 0, session.sent)
            self._number, self._is_elsewhere = session.number, False
            self.settlements.send_again()
            self._changed.notify_all()
        self._tell_replayed()
        return session

    def _tell_replayed(self) -> None:
        """Say so once what was kept when the session began is recorded."""
        if self._replayed is not None and self._progress.answered >= self._replayed:
            self._replayed = None
            route = self._store.route
            route.tell(route.current, ConnectionState.PUBLISH_REPLAYED)

    def _refuse_others_numbers(self, last: int) -> None:
        """What another client recorded under numbers that we hold would make ours look like duplicates."""
        if self._sent_last is None and self._kept.held and last > self._kept.last:
            raise PublishStoreError(
                f"the server has recorded up to {last} of publisher {self._identity.publisher!r}; this store never "
                f"gave more than {self._kept.last} and still holds {self._kept.held}, which would look like "
                "duplicates: somebody else published under this name. Give each publisher a name and a store of its own"
            )
        if self._sent_last is not None and last > self._sent_last:
            raise NameInUse(publisher=self._identity.publisher, recorded=last, sent=self._sent_last)

    def _send(self) -> None:
        session, failures = self._session, 0
        while not self._is_over:
            try:
                if session is None or session is not self._session:
                    if session is not None:
                        session.stop_sending()
                    session = None
                    session = self._log_on()
                answered = session.answered
                self._send_some(session)
                failures = 0 if session.answered > answered else failures
            except (Unavailable, ServerFull, FlushingUnknown, RunRefused) as error:
                pause = self._after(error, failures)
                failures += 1
                with self._changed:
                    self._session, self._trouble = None, str(error)
                    self._changed.notify_all()
                    self._changed.wait_for(lambda: self._is_over, pause)
                if pause and self._revive is not None and not self._is_over:
                    self._revive()
        if session is not None:
            session.stop_sending()

    def _send_some(self, session: PublishSession) -> None:
        """Send what is there, or wait for more; then take in one answer."""
        self._news.clear()
        if self.settlements.has_left:
            for failure, settlement in self.settlements.send(self._store):
                self._fail(FailedWrite(failure, None, "settle", settlement))
        try:
            session.fill(self._single_until)
        finally:
            self._sent_last = max(self._sent_last or 0, session.sent)
        if session.in_flight:
            answer = session.collect()
            self._published.add(answer, session.origin)
            with self._changed:
                self._progress.answered = session.answered
                if session.topics is not None:
                    session.topics.add(answer.topic)
                self._changed.notify_all()
            self._tell_replayed()
        elif not self._is_over and self._session is session:
            self._news.wait()

    def _after(self, error: AmpsqError, failures: int) -> float:
        """Do what a failure asks for; seconds before the next session."""
        reason = error.error if isinstance(error, RunRefused) else error
        if self._is_final(reason):
            raise reason
        if isinstance(reason, ServerFull):
            return _FULL_PAUSE
        # Whether the name is another one's is decided by a logon: it may be the server that has lost ours.
        if isinstance(error, RunRefused) and not isinstance(reason, (NameInUse, SequenceGap)):
            return self._after_refusal(error.entry, reason)
        return _PAUSES[min(failures, len(_PAUSES) - 1)]

    @staticmethod
    def _is_final(error: AmpsqError) -> bool:
        """Whether another session would not do better."""
        if isinstance(error, FlushingUnknown):
            # The server has begun anew, and a coordinator will note how it flushes.
            return False
        return isinstance(error, (FormatMismatch, ServerUnsuitable, PublishStoreError))

    def _after_refusal(self, entry: StoreEntry, reason: AmpsqError) -> float:
        """Make the topic, let its records catch up, send less at once, find out which message it is, or let it go."""
        if isinstance(reason, (UnknownTopic, RecordsBehind)):
            try:
                self._store.run(
                    add_published(entry.arguments[0].decode())
                    if isinstance(reason, UnknownTopic)
                    else catch_up_records(reason.detail["topic"])
                )
            except (Unavailable, NobodyDefines):
                # A coordinator that comes makes the topic.
                return _PAUSES[0]
            except AmpsqError as refusal:
                reason = refusal
            else:
                return 0.0
        if isinstance(reason, TooMuchToRead):
            first = entry.part(entry.sequence, entry.sequence + reason.detail["read"] - 1)
            self._limits[bytes(entry.arguments[0])] = first.size
            return 0.0
        if entry.number > 1:
            self._single_until = entry.last
        else:
            self._refused = entry.sequence
            self._published.refuse(entry.sequence, reason)
            self._fail(FailedWrite(reason, entry.sequence, entry.kind, entry.arguments))
        return 0.0

    def _fail(self, failed: FailedWrite) -> None:
        handler = self._guarantee.on_failed_write
        if handler is None:
            _log.error("failed write to %s, sequence %s: %s", failed.topic, failed.sequence, failed.error)
            return
        self._call(handler, failed)

    @staticmethod
    def _call(handler: Callable[[Any], object], what: Any) -> None:
        try:
            handler(what)
        except Exception:  # noqa: BLE001  (whatever a handler does, publishing goes on)
            _log.exception("the handler of %s failed", type(what).__name__)

    def _confirm(self) -> None:
        former: PublishSession | None = None
        while not self._is_over:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._is_over or (self._session is not None and self._progress.has_answers)
                )
                self._changed.wait_for(lambda: self._is_over or self._progress.is_urgent, self._guarantee.conflation)
                session, sequence, settled = self._session, self._progress.answered, self.settlements.answered_queues()
                topics = session.take_topics() if session is not None else set()
            if former is not None and session is not former:
                former.stop_confirming()
            former = session
            if session is not None and not self._is_over:
                self._confirm_some(session, sequence, settled, topics)
        if former is not None:
            former.stop_confirming()

    def _confirm_some(
        self, session: PublishSession, sequence: int, settled: dict[int, str], topics: set[str] | None
    ) -> None:
        """Wait until answers are persisted, and let go of what they were about."""
        streams = [*(f"log {topic}" for topic in topics or ()), *{f"journal {queue}" for queue in settled.values()}]
        try:
            while not session.is_persisted(sequence, streams if topics is not None else []):
                if self._is_over or self._session is not session:
                    return
                if session.hopeless_at:
                    with self._changed:
                        self._changed.notify_all()
        except AmpsqError as error:
            session.stop_confirming()
            self._end_session(session, error)
            return
        while not self._let_go(sequence, list(settled)):
            if self._is_over:
                return
        with self._changed:
            is_news = sequence > self._progress.persisted
            self._progress.persisted = max(self._progress.persisted, sequence)
            self._changed.notify_all()
        if is_news and self._guarantee.on_persisted is not None:
            self._call(self._guarantee.on_persisted, PersistedAck(sequence, self._guarantee.level.level))

    def _let_go(self, sequence: int, numbers: list[int]) -> bool:
        """Let go of what is persisted; False where the store cannot do so now: then it is tried again."""
        try:
            self._kept.discard(sequence)
            self.settlements.forget(numbers)
        except PublishStoreError as error:
            if not error.may_pass:
                raise
            _log.warning("publisher %s: %s; trying again", self._identity.publisher, error)
            with self._changed:
                self._store_trouble = str(error)
                self._changed.wait_for(lambda: self._is_over, _FULL_PAUSE)
            return False
        self._store_trouble = ""
        return True

    def _end_session(self, session: PublishSession, error: AmpsqError) -> None:
        """Let the sending thread open another one."""
        if not isinstance(error, (Unavailable, NameInUse, SequenceGap, ServerFull)):
            raise error
        with self._changed:
            if self._session is session:
                self._session, self._trouble = None, str(error)
            self._changed.notify_all()
        self._news.set()
