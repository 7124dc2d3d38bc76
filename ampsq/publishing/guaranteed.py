"""Guaranteed publishing: what a publish store holds is sent, in order, until the server has persisted it.

A thread sends and a thread confirms, for `Client` and `AsyncClient` alike: an event loop that a handler blocks does not
hold messages back. Whatever fails ends the session; the next one begins with what the server does not have.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from ampsq.base.errors import AmpsqError, Closed, DefinitionError, NotPersisted, PublishStoreError, PublishStoreFull
from ampsq.base.limits import limits
from ampsq.base.values import parse_name
from ampsq.protocol.calls import publish as publish_calls
from ampsq.publishing.confirming import Confirmer
from ampsq.publishing.progress import ANYTHING, ProgressTarget
from ampsq.publishing.published_runs import find_published
from ampsq.publishing.publisher_work import PublisherWork
from ampsq.publishing.sending import Sender
from ampsq.publishing.session import Identity, refuse_lacking
from ampsq.transport.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ampsq.base.bookmarks import Bookmark
    from ampsq.publishing.envelope import Envelope
    from ampsq.publishing.guarantee_options import Guarantee
    from ampsq.transport.route import Route

__all__ = ["FailoverGuard", "GuaranteedPublisher"]


class FailoverGuard(NamedTuple):
    """The conditions for a publisher that may go on at another instance.

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

    Attributes:
        settlements: the acknowledgements that it keeps, of leases at the instance where it is.

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
        kept, store = guarantee.store, Store(route, route.instance, retry_timeout=0.0)
        # Whether somebody was told of what ended it.
        self._is_told = False
        kept.open(several.kept_as if several is not None else route.instance, identity.publisher)
        try:
            self._work = PublisherWork(identity, guarantee, store, origin, is_movable=several is not None)
            self.settlements = self._work.settlements
            self._kept, self._progress, self._changed = kept, self._work.progress, self._work.changed
            if several is not None and several.is_careful:
                refuse_lacking(store, identity.publisher, kept, self._progress.persisted)
            sender = Sender(self._work, revive)
            sender.log_on()
        except BaseException:
            kept.close()
            store.close()
            raise
        works = {"publish": sender.run, "persist": Confirmer(self._work).run}
        self._threads = [
            threading.Thread(
                target=self._work.guarded, args=(run,), name=f"ampsq-{name}-{identity.publisher}", daemon=True
            )
            for name, run in works.items()
        ]
        for thread in self._threads:
            thread.start()

    def check_resume_at(self, route: Route) -> None:
        """Refuse to go on at another instance, to which this is the way, if it lacks what was told to be persisted.

        Raises:
            Unavailable: it does, or there is no server.
        """
        persisted = self._progress.persisted if self._progress.persisted != self._work.refused else 0
        with contextlib.closing(Store(route, route.instance, retry_timeout=0.0)) as store:
            refuse_lacking(store, self._work.identity.publisher, self._kept, persisted)

    def resume_at(self, route: Route, origin: str) -> None:
        """Go on at another instance, with what it does not have; `settlements` are those of leases there from now."""
        self._work.move_to(Store(route, route.instance, retry_timeout=0.0), origin)
        self.settlements = self._work.settlements

    # -- for the application's threads

    @property
    def persisted(self) -> int:
        """The last sequence that is persisted, with all before it; 0 before the first."""
        return self._progress.persisted

    @property
    def may_wait(self) -> bool:
        """Return whether `publish` may wait, for room or for a disk: an event loop leaves it to a thread then."""
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
        shape, values = publish_calls.pack_messages(bodies, headers, envelope.options, delta=delta)
        return self.take(len(bodies), "publish", [parse_name(topic).encode(), shape.encode(), *values])

    def take(self, count: int, kind: str, arguments: Sequence[bytes]) -> int:
        """Take a call of `count` messages, of a kind that `ampsq.publishing.session` knows; as `publish`."""
        if self._work.fatal is not None or self._work.is_closing or not self._kept.has_room():
            self._wait_for_room()
        sequence = self._kept.keep(count, kind, arguments)
        if not self._work.news.is_set():
            self._work.news.set()
        return sequence

    def _wait_for_room(self) -> None:
        with self._changed, self._progress.hurrying(lambda: ANYTHING):
            self._changed.wait_for(
                lambda: self._work.fatal is not None or self._work.is_closing or self._kept.has_room(),
                self._kept.timeout,
            )
            self._raise_if_over()
            if not self._kept.has_room():
                raise PublishStoreFull(
                    f"the publish store holds {self._kept.held:,} of {self._kept.messages:,} messages, "
                    f"{self._kept.held_bytes:,} of {self._kept.size:,} bytes, and none was persisted within "
                    f"{self._kept.timeout:g} s{self._why}; publish slower, or give it more messages=, size= or timeout="
                )

    def _raise_if_over(self) -> None:
        self._raise_if_fatal()
        if self._work.is_closing:
            raise Closed("this publisher was closed")

    def _raise_if_fatal(self) -> None:
        if self._work.fatal is not None:
            self._is_told = True
            raise self._work.fatal

    @property
    def _why(self) -> str:
        lacking = self._work.session.lacking if self._work.session is not None else ""
        why = self._work.fatal or self._work.trouble or self._work.store_trouble or lacking
        parts = [str(part) for part in (why, self._work.store.route.stays) if part]
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
            return self._work.session is not None and self._work.session.hopeless_at > begun

        self._progress.wait(lambda: target, lambda: self._work.is_over or is_hopeless(), timeout)
        waited = time.monotonic() - begun
        with self._changed:
            if self._progress.is_reached(target):
                return
            self._raise_if_fatal()
            lost = "lost with this publisher: " if self._work.has_ended and not self._kept.survives else ""
            tried = round(waited, 1) if timeout is None or waited < timeout else timeout
            raise self._missing(target, tried, lost=lost)

    def known_bookmark(self, sequence: int) -> Bookmark | None:
        """The bookmark of a message that is persisted and whose answer is kept; else None."""
        return self._work.published.bookmark(sequence) if sequence <= self._progress.persisted else None

    def wait_for_bookmark(self, topic: str, sequence: int, timeout: float | None) -> Bookmark:
        """Wait until a message is persisted, so that it keeps its bookmark; see `Receipt.bookmark`."""
        self._wait_for(sequence, timeout)
        found = self._work.published.bookmark(sequence)
        if found is not None:
            return found
        store, name = self._work.store, self._work.identity.publisher
        return store.run(find_published(store.instance, self._work.origin, name, sequence, topic))

    def wait_for_deleted(self, sequences: Sequence[int], timeout: float | None) -> int:
        """Wait until deletions are persisted; see `DeletionReceipt.deleted`."""
        until = None if timeout is None else time.monotonic() + timeout
        for sequence in sequences:
            self._wait_for(sequence, None if until is None else max(until - time.monotonic(), 0.0))
        return sum(map(self._work.published.deleted, sequences))

    def _wait_for(self, sequence: int, timeout: float | None) -> None:
        """Wait until one number is persisted; raises why the server refused it."""
        self._wait_until(ProgressTarget(sequence, frozenset()), timeout)
        refusal = self._work.published.refusal(sequence)
        if refusal is not None:
            raise refusal

    def _has_stopped(self) -> bool:
        return self._work.fatal is not None

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
            f"{lost}{' and '.join(parts)} of publisher {self._work.identity.publisher!r} are not persisted "
            f"({self._work.guarantee.level.level}) after {timeout or 0:g} s{why}{fate}"
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
            if self._work.is_closing:
                return
            # From here on nobody is told that a message was taken which nobody would send any more.
            self._work.is_closing = True
            self._changed.notify_all()
        # Unread, they are waited for, as if somebody sent them.
        with contextlib.suppress(PublishStoreError):
            self.settlements.take_over()
        # Also what those take that were about to when it was closed.
        self._progress.wait(
            self._progress.everything, self._has_stopped, short if self._kept.survives else retry_timeout
        )
        with self._changed:
            self._work.has_ended = True
            self._changed.notify_all()
        self._work.news.set()
        for thread in self._threads:
            # A handler that closes the client is called by one of them.
            if thread is not threading.current_thread():
                thread.join()
        self._kept.close()
        left = self._kept.held or self.settlements.number
        if self._work.session is not None and not left:
            # Without it, others are told that somebody is logged on, and may log on themselves.
            with contextlib.suppress(AmpsqError):
                self._work.session.log_off()
        self._work.close_stores()
        if left and not self._kept.survives and not self._is_told:
            tried = retry_timeout if self._work.fatal is None else 0.0
            raise self._missing(self._progress.everything(), tried, lost="lost with this process: ")
