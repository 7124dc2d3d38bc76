"""Directions that one connection serves: a link's own, and the other side's where it has no address for us."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import LinkRefused
from ampsq.catalog.first_use import add_recorded
from ampsq.expressions import parse
from ampsq.protocol.calls import links as link_calls
from ampsq.protocol.reads.clock import server_time
from ampsq.replication.link import Link
from ampsq.replication.link_ends import found_groups, incoming_state, refuse, validate_link, waiting_destinations
from ampsq.replication.link_rounds import NewsWait
from ampsq.replication.selection import EntrySelector, select

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ampsq.base.errors import Unavailable
    from ampsq.definitions.destination import Destination
    from ampsq.protocol.calls.links import LinkState
    from ampsq.protocol.request import Call
    from ampsq.replication.link import NewsWaiter
    from ampsq.replication.link_ends import LinkEnd
    from ampsq.replication.link_rounds import EndFacts, LinkRounds

__all__ = ["LinkDirection", "LinkDirections", "make_link"]

#: Seconds for which a direction waits for something new; then it looks whether it is to stop. Where nothing came, it
#: waits the double the next time, up to the most: what comes ends it.
_WAIT: Final = 0.25
_LONGEST_WAIT: Final = 1.0
#: Seconds that all directions of a link together have to end.
_ENDS_WITHIN: Final = 1.0


class LinkDirection:
    """A link between two ends, and what it says of itself at both."""

    def __init__(
        self, source: LinkEnd, destination: LinkEnd, definition: Destination, state: LinkState, rounds: LinkRounds
    ) -> None:
        self.waiting = NewsWait(source.store, rounds.of(source.store))
        self.link, self.state = make_link(source, destination, definition, self.waiting.wait), state
        self._source, self._destination = source.store, destination.store
        self._counted = time.monotonic(), 0, 0
        self._wait = _WAIT

    @property
    def is_idle(self) -> bool:
        """Return whether nothing has moved lately."""
        return self._wait >= _LONGEST_WAIT

    def step(self) -> None:
        """Step the link, and count what it moved."""
        moved, state = self.link.step(self._wait), self.state
        has_moved = moved.messages or moved.journal_rows or moved.requests or not moved.is_idle
        self._wait = _WAIT if has_moved else min(2 * self._wait, _LONGEST_WAIT)
        state.messages += moved.messages
        state.bytes += moved.bytes
        state.told += moved.journal_rows
        state.requests += moved.requests

    def report(self, run_by: str) -> None:
        """Say that it stands, and how fast it was since this was said last."""
        self.count(self._source.call(server_time()), run_by)
        self._source.call(link_calls.write_link_state(self._source.instance, self.state))
        self._destination.call(link_calls.write_link_state(self._destination.instance, self.state, is_incoming=True))

    def count(self, at: int, run_by: str) -> None:
        """Note that it stands at that moment, ms of the source, and how fast it was since this was noted last."""
        state, now = self.state, time.monotonic()
        since, messages, size = self._counted
        passed = max(now - since, 0.001)
        state.messages_per_second = round((state.messages - messages) / passed)
        state.bytes_per_second = round((state.bytes - size) / passed)
        self._counted = now, state.messages, state.bytes
        state.state, state.reason, state.at, state.run_by = "connected", "", at, run_by
        state.since = state.since or state.at


class _EndRound:
    """The calls of a link's directions at one end, each round.

    Args:
        end: that end, as it was when the link was made.
        hold: holds the link's duty, where it is held at that end.
        outgoing: directions that begin there.
        incoming: directions that end there.
        run_by: who runs the link.
        failed: called where the link has to look by itself; with why, where that shows already that it is lost.
    """

    def __init__(
        self,
        end: LinkEnd,
        hold: Call[bool] | None,
        outgoing: Sequence[LinkDirection],
        incoming: Sequence[LinkDirection],
        *,
        run_by: str,
        failed: Callable[[Unavailable | None], None],
    ) -> None:
        self.store, self._known = end.store, (end.catalog.version, str(end.peer.origin))
        self._hold, self._outgoing, self._incoming, self._run_by = hold, outgoing, incoming, run_by
        self._groups: dict[bytes, bytes] | None = None
        self.fail = failed

    @property
    def is_idle(self) -> bool:
        """Return whether nothing has moved lately, in no direction."""
        return all(direction.is_idle for direction in (*self._outgoing, *self._incoming))

    def calls(self, now: int) -> list[Call[object]]:
        """Return what is asked; `now`: ms of the server."""
        for direction in self._outgoing:
            direction.count(now, self._run_by)
        states: list[Call[object]] = [
            link_calls.write_link_state(self.store.instance, direction.state, is_incoming=direction in self._incoming)
            for direction in (*self._outgoing, *self._incoming)
        ]
        return states if self._hold is None else [self._hold, *states]

    def take_in(self, facts: EndFacts, replies: Sequence[object]) -> None:
        """Let the link look by itself where something has changed, or another one holds its duty."""
        is_held = self._hold is None or bool(replies[0])
        is_known = (facts.version, facts.origin) == self._known and facts.groups == self._groups
        self._groups = facts.groups
        if not (is_held and is_known):
            self.fail(None)


class LinkDirections:
    """The directions that one connection serves: our own, and the other side's where it has no address for us."""

    def __init__(
        self, own: LinkEnd, other: LinkEnd, definition: Destination, state: LinkState, rounds: LinkRounds
    ) -> None:
        self._rounds, self._ends = rounds, (own, other)
        self._own = LinkDirection(own, other, definition, state, rounds)
        waiting = list(_fitting(own, other))
        self._back = [
            LinkDirection(other, own, theirs, incoming_state(theirs, own, other), rounds) for theirs in waiting
        ]
        self._validated = [(own, other, definition), *((other, own, theirs) for theirs in waiting)]
        # One may have been found since both sides were validated, so that the first look validates them again.
        self._groups: list[dict[str, str]] = []
        self._stopping = threading.Event()
        self._failed: list[Exception] = []
        self._threads = [threading.Thread(target=self._pull, args=(back,), daemon=True) for back in self._back]
        for direction in (self._own, *self._back):
            direction.link.open()
        for thread in self._threads:
            thread.start()

    @contextlib.contextmanager
    def asked_each_round(
        self, hold: Call[bool], run_by: str, failed: Callable[[Unavailable | None], None]
    ) -> Iterator[None]:
        """Say at both ends that they stand, and see what changes there, with all other links, while the context lasts.

        Args:
            hold: holds the link's duty at our own end.
            run_by: who runs the link.
            failed: called where the link has to look by itself; with why, where that shows already that it is lost.
        """
        own, other = self._ends
        with (
            self._rounds.of(own.store).joined(
                _EndRound(own, hold, [self._own], self._back, run_by=run_by, failed=failed)
            ),
            self._rounds.of(other.store).joined(
                _EndRound(other, None, self._back, [self._own], run_by=run_by, failed=failed)
            ),
        ):
            yield

    def wake(self) -> None:
        """End our own direction's waiting for entries, where it waits with others."""
        self._own.waiting.wake()

    def step(self) -> None:
        """Step our own direction.

        Raises:
            Exception: this direction failed, or the other one did.
        """
        if self._failed:
            raise self._failed[0]
        self._own.step()

    def validate_again(self) -> None:
        """See that both sides still fit once another link of one of them has found an instance of another group.

        Raises:
            LinkRefused: they do not any more.
        """
        groups = self._found_groups()
        if groups != self._groups:
            self._groups = groups
            for source, destination, definition in self._validated:
                validate_link(source, destination, definition)

    def _found_groups(self) -> list[dict[str, str]]:
        return [found_groups(source.store) for source, _, _ in self._validated]

    def report(self, run_by: str) -> None:
        """Say at both ends that they stand."""
        for direction in (self._own, *self._back):
            direction.report(run_by)

    def _pull(self, back: LinkDirection) -> None:
        try:
            while not self._stopping.is_set():
                back.step()
        except Exception as error:  # noqa: BLE001  (`step` raises it, unless the link has ended)
            self._failed.append(error)
            self.wake()

    def close(self) -> None:
        """End both directions."""
        self._stopping.set()
        for direction in self._back:
            direction.waiting.wake()
        until = time.monotonic() + _ENDS_WITHIN
        for thread in self._threads:
            thread.join(max(until - time.monotonic(), 0.0))
        for direction in (self._own, *self._back):
            direction.waiting.close()
            direction.link.close()


def _fitting(own: LinkEnd, other: LinkEnd) -> Iterator[Destination]:
    """Give those destinations that wait for us to connect.

    Raises:
        LinkRefused: one of them does not fit; that is left at the other side, too.
    """
    for theirs in waiting_destinations(own, other):
        try:
            validate_link(other, own, theirs)
        except LinkRefused as error:
            refuse(theirs, own, other, str(error))
            raise
        yield theirs


def make_link(
    source: LinkEnd, destination: LinkEnd, definition: Destination, wait_for_news: NewsWaiter | None = None
) -> Link:
    """The link as the source defines it."""
    catalog, selection = source.catalog, select(source.catalog, destination.catalog, definition)
    topics = {topic: chosen for topic, chosen in selection.topics.items() if topic in catalog.topics}
    filters = {topic: parse(chosen.filter, "filter") for topic, chosen in topics.items() if chosen.filter is not None}
    for topic in topics:
        if topic not in destination.catalog.topics:
            destination.store.run(add_recorded(topic))
    queues = [queue for queue in selection.queues if queue in destination.catalog.queues]
    carried = EntrySelector(source.peer, destination.peer, definition.passes, filters, catalog.message_type)
    return Link(
        definition.name,
        source.store,
        destination.store,
        carried,
        topics=list(topics),
        queues=queues,
        version=catalog.version,
        wait_for_news=wait_for_news,
    )
