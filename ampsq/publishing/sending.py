"""Sending: the thread that sends what a publish store holds, in order; whatever fails ends its session.

The next session begins with what the server does not have.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import (
    AmpsqError,
    FlushingUnknown,
    FormatMismatch,
    NameInUse,
    NobodyDefines,
    PublishStoreError,
    RecordsBehind,
    SequenceGap,
    ServerFull,
    ServerUnsuitable,
    TooMuchToRead,
    Unavailable,
    UnknownTopic,
)
from ampsq.catalog.first_use import add_published
from ampsq.protocol.calls.records import catch_up_records
from ampsq.protocol.replies import number
from ampsq.publishing.guarantee_options import FailedWrite
from ampsq.publishing.session import PublishSession, RunRefused
from ampsq.transport.connection_state import ConnectionState
from ampsq.transport.errors import RetryPauses

if TYPE_CHECKING:
    from collections.abc import Callable

    from ampsq.publishing.memory_store import StoreEntry
    from ampsq.publishing.publisher_work import PublisherWork

__all__ = ["Sender"]

_log = logging.getLogger("ampsq")
#: Seconds before a session is opened again, by how often that failed.
_PAUSES: Final = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
#: Seconds before a server that is full is asked again.
_FULL_PAUSE: Final = 0.2


class Sender:
    """Sends what a guaranteed publisher keeps.

    Args:
        work: the publisher's.
        revive: called while the server is away: what can bring it back.
    """

    def __init__(self, work: PublisherWork, revive: Callable[[], None] | None) -> None:
        self._work, self._revive = work, revive
        # Up to here messages were kept when the session began; None once they are all recorded.
        self._replayed: int | None = None
        # The last sequence that any session of this client sent; None before the first one.
        self._sent_last: int | None = None
        # Of the session that was opened last.
        self._number = 0
        # Refused as a part of a run: up to here they are sent one by one.
        self._single_until = 0
        self._pauses = RetryPauses(lambda failures: _PAUSES[min(failures, len(_PAUSES)) - 1])
        # Bytes of a call to a topic, where the server reads what is published and had too much of it.
        self._limits: dict[bytes, int] = {}

    def log_on(self) -> PublishSession:
        """Open a session. What was answered and not confirmed is proved, or sent again, by it.

        Raises:
            Unavailable: there is no server. ServerUnsuitable: it cannot reach the level. NameInUse, PublishStoreError:
                somebody else publishes, or has published, under this name.
        """
        work, progress, kept = self._work, self._work.progress, self._work.kept
        again, first = self._sent_last is not None, max(kept.lowest(), work.refused + 1)
        with work.changed:
            store, origin = work.store, work.origin
        session = PublishSession(store, origin, work.identity, kept, work.guarantee.level, limits=self._limits)
        try:
            is_same = again and not work.is_elsewhere
            found = session.log_on(first, progress.answered if is_same else None, self._number if is_same else 0)
            self._refuse_others_numbers(found.last)
        except BaseException:
            session.stop_sending()
            session.stop_confirming()
            raise
        if found.last < progress.persisted:
            _log.warning(
                "publisher %s: the server knows %d as its last sequence and had acknowledged %d: some were lost",
                work.identity.publisher,
                found.last,
                progress.persisted,
            )
        with work.changed:
            if not again and not kept.held:
                # Another process may have used the name: numbers go on behind its.
                kept.begin_after(found.last)
                progress.persisted = session.sent = session.answered = kept.last
            work.session, progress.answered, work.trouble = session, session.answered, ""
            self._replayed = kept.last
            self._sent_last = max(self._sent_last or 0, session.sent)
            self._number, work.is_elsewhere = session.number, False
            work.settlements.send_again()
            work.changed.notify_all()
        self._tell_replayed()
        return session

    def _tell_replayed(self) -> None:
        """Say so once what was kept when the session began is recorded."""
        if self._replayed is not None and self._work.progress.answered >= self._replayed:
            self._replayed = None
            route = self._work.store.route
            route.tell(route.current, ConnectionState.PUBLISH_REPLAYED)

    def _refuse_others_numbers(self, last: int) -> None:
        """Refuse to send if another client recorded numbers that we hold: ours would look like duplicates."""
        publisher, kept = self._work.identity.publisher, self._work.kept
        if self._sent_last is None and kept.held and last > kept.last:
            raise PublishStoreError(
                f"the server has recorded up to {last} of publisher {publisher!r}; this store never gave more than "
                f"{kept.last} and still holds {kept.held}, which would look like duplicates: somebody else published "
                "under this name. Give each publisher a name and a store of its own"
            )
        if self._sent_last is not None and last > self._sent_last:
            raise NameInUse(publisher=publisher, recorded=last, sent=self._sent_last)

    def run(self) -> None:
        """Send until the publisher ends; for a thread of its own."""
        work = self._work
        session = work.session
        while not work.is_over:
            try:
                if session is None or session is not work.session:
                    if session is not None:
                        self._leave(session)
                    session = None
                    session = self.log_on()
                answered = session.answered
                self._send(session)
                if session.answered > answered:
                    self._pauses.begin_anew()
            except (Unavailable, ServerFull, FlushingUnknown, RunRefused) as error:
                pause = self._after(error)
                with work.changed:
                    work.session, work.trouble = None, str(error)
                    work.changed.notify_all()
                    work.changed.wait_for(lambda: work.is_over, pause)
                if pause and self._revive is not None and not work.is_over:
                    self._revive()
        if session is not None:
            session.stop_sending()

    def _leave(self, session: PublishSession) -> None:
        """Close the connections of a session that is over, but the one that the confirming thread closes."""
        session.stop_sending()
        with self._work.changed:
            has_confirmer = session.has_confirmer
        if not has_confirmer:
            # Nobody takes it up any more: one that a full server refuses ends before anything was to be confirmed.
            session.stop_confirming()

    def _send(self, session: PublishSession) -> None:
        """Send what is there, or wait for more; then take in one answer."""
        work = self._work
        work.news.clear()
        if work.settlements.has_left:
            for failure, settlement in work.settlements.send(work.store):
                self._fail(FailedWrite(failure, None, "settle", settlement))
        try:
            session.fill(self._single_until)
        finally:
            self._sent_last = max(self._sent_last or 0, session.sent)
        if session.in_flight:
            answer = session.collect()
            work.published.add(answer, session.origin)
            with work.changed:
                work.progress.answered = session.answered
                if session.topics is not None:
                    session.topics.add(answer.topic)
                work.changed.notify_all()
            self._tell_replayed()
        elif not work.is_over and work.session is session:
            work.news.wait()

    def _after(self, error: AmpsqError) -> float:
        """Do what a failure asks for; seconds before the next session."""
        reason = error.error if isinstance(error, RunRefused) else error
        if self._is_final(reason):
            raise reason
        if isinstance(reason, ServerFull):
            return _FULL_PAUSE
        # Whether the name is another one's is decided by a logon: it may be the server that has lost ours.
        if isinstance(error, RunRefused) and not isinstance(reason, (NameInUse, SequenceGap)):
            return self._after_refusal(error.entry, reason)
        return self._pauses.after(reason)

    @staticmethod
    def _is_final(error: AmpsqError) -> bool:
        """Return whether another session would not do better."""
        if isinstance(error, FlushingUnknown):
            # The server has begun anew, and a coordinator will note how it flushes.
            return False
        return isinstance(error, (FormatMismatch, ServerUnsuitable, PublishStoreError))

    def _after_refusal(self, entry: StoreEntry, reason: AmpsqError) -> float:
        """Make the topic, let its records catch up, send less at once, find out which message it is, or let it go."""
        if isinstance(reason, (UnknownTopic, RecordsBehind)):
            try:
                self._work.store.run(
                    add_published(entry.arguments[0].decode())
                    if isinstance(reason, UnknownTopic)
                    else catch_up_records(str(reason.detail["topic"]))
                )
            except (Unavailable, NobodyDefines):
                # A coordinator that comes makes the topic.
                return _PAUSES[0]
            except AmpsqError as refusal:
                reason = refusal
            else:
                return 0.0
        if isinstance(reason, TooMuchToRead):
            first = entry.part(entry.sequence, entry.sequence + number(reason.detail["read"]) - 1)
            self._limits[bytes(entry.arguments[0])] = first.size
            return 0.0
        if entry.number > 1:
            self._single_until = entry.last
        else:
            self._work.refused = entry.sequence
            self._work.published.refuse(entry.sequence, reason)
            self._fail(FailedWrite(reason, entry.sequence, entry.kind, entry.arguments))
        return 0.0

    def _fail(self, failed: FailedWrite) -> None:
        handler = self._work.guarantee.on_failed_write
        if handler is None:
            _log.error("failed write to %s, sequence %s: %s", failed.topic, failed.sequence, failed.error)
            return
        self._work.report(handler, failed)
