"""Acknowledgements of queue messages in a publish store: kept until they are answered, sent again after a failure.

Who settles a message sends its call itself; what it gave up, and what a former process left, is sent from here. Tokens
make that harmless: one that comes late is answered, and touches nobody's lease.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Final, Protocol, cast

from ampsq.base.errors import NotPermitted, Rejected, rejection
from ampsq.protocol.calls import queues as calls
from ampsq.protocol.limits import BATCH
from ampsq.protocol.reads.settlements import settled_by_others

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ampsq.base.errors import AmpsqError
    from ampsq.protocol.calls.queues import Parts, Verb
    from ampsq.publishing.memory_store import PublishStore
    from ampsq.transport.store import Store

__all__ = ["SettlementKeeper", "Settlements"]

_QUEUE, _TOKEN, _REF = 0, 1, 5
#: Where a row that is kept says at which instance it is to be settled, if its client may work at several.
_ORIGIN: Final = 6
#: What a settlement that is sent again is told when its message is settled: by its first run, or by somebody else.
_DONE: Final = "AMPSQ_ALREADY_ACKED"


class Settlements:
    """The settlements of one client.

    Args:
        kept: where they are kept.
        tell: called when there is something to send or to confirm.
        origin: of the instance, where the client may work at several; those of the others stay kept.
    """

    def __init__(self, kept: PublishStore, tell: Callable[[], None], origin: str = "") -> None:
        self._kept, self._tell = kept, tell
        self._place = [origin.encode()] if origin else []
        self._lock = threading.Lock()
        # (queue, ref, token) -> number, of those that somebody is settling now
        self._open: dict[tuple[bytes, bytes, bytes], int] = {}
        # number -> queue
        self._answered: dict[int, str] = {}
        self._left = self._rows()

    def _rows(self) -> dict[int, list[bytes]]:
        """Return the rows that are kept of this instance."""
        return {n: row for n, row in self._kept.settlements().items() if row[_ORIGIN:] in ([], self._place)}

    @property
    def number(self) -> int:
        """Number of settlements that are not persisted."""
        with self._lock:
            return len(self._open) + len(self._answered) + len(self._left)

    def outstanding(self) -> frozenset[int]:
        """The numbers of those that are not persisted."""
        with self._lock:
            return frozenset((*self._open.values(), *self._answered, *self._left))

    def unanswered(self) -> frozenset[int]:
        """The numbers of those that the server has not answered."""
        with self._lock:
            return frozenset((*self._open.values(), *self._left))

    @property
    def has_answers(self) -> bool:
        """Return whether some were answered and are still kept."""
        return bool(self._answered)

    @property
    def has_left(self) -> bool:
        """Return whether there are some that nobody else sends."""
        return bool(self._left)

    # -- for those that settle

    def keep(self, verb: Verb, messages: Sequence[Parts], period: int | None, by: str, reason: str = "") -> None:
        """Keep before sending; what is kept already stays as it is.

        The reason, if there is one, stands behind the verb, so that rows are as they always were without.

        Raises:
            PublishStoreError: it cannot be kept.
        """
        with self._lock:
            new = [parts for parts in messages if _key(parts) not in self._open]
            head = [f"{verb} {reason}".rstrip().encode(), b"" if period is None else b"%d" % period, by.encode()]
            rows = [[*head, parts[_QUEUE], parts[_REF], parts[_TOKEN], *self._place] for parts in new]
            self._open.update(zip(map(_key, new), self._kept.keep_settlements(rows), strict=True))

    @contextlib.contextmanager
    def keeping(
        self, verb: Verb, messages: Sequence[Parts], period: int | None, by: str, reason: str = ""
    ) -> Iterator[None]:
        """Keep what one call settles, within which that is made; left without an answer, these are sent from here.

        Raises:
            PublishStoreError: it cannot be kept.
        """
        self.keep(verb, messages, period, by, reason)
        try:
            yield
        except Rejected:
            self.answered(messages)
            raise
        except BaseException:
            # Also of a task that is cancelled.
            self.abandon(messages)
            raise
        self.answered(messages)

    def answered(self, messages: Sequence[Parts]) -> None:
        """The server answered these, whatever it said."""
        with self._lock:
            numbers = [(self._open.pop(_key(parts), None), parts[_QUEUE].decode()) for parts in messages]
            found = {number: queue for number, queue in numbers if number is not None}
            self._answered |= found
        if found:
            self._tell()

    def abandon(self, messages: Sequence[Parts]) -> None:
        """Take over messages whose holder does not send them again."""
        with self._lock:
            numbers = {self._open.pop(_key(parts), None) for parts in messages}
            if numbers - {None}:
                self._left.update({n: row for n, row in self._kept.settlements().items() if n in numbers})
        self._tell()

    def take_over(self) -> None:
        """Send from here what somebody acknowledges: the client is closed, and who had these may be gone.

        Raises:
            PublishStoreError: the store cannot be read.
        """
        with self._lock:
            rows = self._kept.settlements()
            # Acknowledged twice harms nobody; a cancel that comes again would be told as one that came too late.
            theirs = {each: n for each, n in self._open.items() if n in rows and rows[n][0] == b"acknowledged"}
            for each, number in theirs.items():
                del self._open[each]
                self._left[number] = rows[number]
        self._tell()

    # -- for those that send and confirm

    def send_again(self) -> None:
        """A server that answered these may have lost them."""
        with self._lock:
            numbers, self._answered = set(self._answered), {}
            if numbers:
                self._left.update({n: row for n, row in self._kept.settlements().items() if n in numbers})

    def send(self, store: Store) -> Iterator[tuple[AmpsqError, list[bytes]]]:
        """Send what nobody else sends; gives what was refused, and why."""
        while True:
            with self._lock:
                group = _first_group(self._left)
            if not group:
                return
            verb, period, by, queue = next(iter(group.values()))[:4]
            word, _, reason = verb.decode().partition(" ")
            call = calls.settle(
                cast("Verb", word),
                queue,
                [row[4] for row in group.values()],
                [row[5] for row in group.values()],
                period=int(period) if period else None,
                by=by.decode(),
                reason=reason,
            )
            try:
                found: list[tuple[bytes, str]] = store.call(call)
                refused = dict(found)
            except Rejected as error:
                yield from ((error, row) for row in group.values())
                refused = {}
            others = self._settled_by_others(store, word, queue.decode(), by.decode(), refused)
            for row in group.values():
                code = refused.get(row[4], _DONE)
                if code != _DONE or row[4] in others:
                    yield rejection(code) or Rejected(code=code), row
            with self._lock:
                for number, row in group.items():
                    del self._left[number]
                    self._answered[number] = row[3].decode()
            self._tell()

    @staticmethod
    def _settled_by_others(store: Store, verb: str, queue: str, by: str, refused: dict[bytes, str]) -> set[bytes]:
        """Return those that are settled already, and not by the subscription that is now repeated.

        Of what was settled by bookmark nobody knows who did it, nor of a cancel, whose message goes on to others.
        """
        done = {ref for ref, code in refused.items() if code == _DONE}
        if not done or not by or verb == "cancelled":
            return set()
        try:
            return store.run(settled_by_others(store.instance, queue, by, done))
        except NotPermitted:
            # Who may not read the journal does not learn it.
            return set()

    def answered_queues(self) -> dict[int, str]:
        """The numbers that were answered up to now, and the queue of each."""
        with self._lock:
            return dict(self._answered)

    def forget(self, numbers: list[int]) -> None:
        """Forget settlements that are persisted."""
        if numbers:
            self._kept.forget_settlements(numbers)
            with self._lock:
                for number in numbers:
                    self._answered.pop(number, None)


def _key(parts: Parts) -> tuple[bytes, bytes, bytes]:
    return parts[_QUEUE], parts[_REF], parts[_TOKEN]


def _first_group(left: dict[int, list[bytes]]) -> dict[int, list[bytes]]:
    """The first ones that one call can settle."""
    group: dict[int, list[bytes]] = {}
    head: list[bytes] | None = None
    for number, row in left.items():
        head = head or row[:4]
        if row[:4] == head:
            group[number] = row
        if len(group) == BATCH:
            break
    return group


class SettlementKeeper(Protocol):
    """A publisher that keeps acknowledgements.

    Attributes:
        settlements: those of the instance where it publishes now.
    """

    settlements: Settlements
