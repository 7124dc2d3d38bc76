"""Running a link: finding who is at the other end, checking it, stepping, and saying how it goes.

What a link says of itself stands in `links`, at both ends: ``out <destination>`` at the source, ``in <instance>`` at
the destination, as JSON; see `ampsq.protocol.calls.links.LinkState`.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import AmpsqError, LinkRefused, ServerUnsuitable, Unavailable
from ampsq.catalog.first_use import add_recorded
from ampsq.definitions.destination import Address, Destination
from ampsq.expressions import parse
from ampsq.protocol.calls import actions as action_calls
from ampsq.protocol.calls import catalog as catalog_calls
from ampsq.protocol.calls import duties as duty_calls
from ampsq.protocol.calls import links as link_calls
from ampsq.protocol.calls.links import LinkState
from ampsq.protocol.reads.clock import server_time
from ampsq.protocol.reads.instance import catalog_version
from ampsq.protocol.reads.origin import read_origin
from ampsq.replication.link import Link
from ampsq.replication.report import SILENT
from ampsq.replication.selection import EntrySelector, Peer, select
from ampsq.replication.validation import validate
from ampsq.transport.errors import describe_failure
from ampsq.transport.server_wait import ServerWait

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampsq.protocol.calls.catalog import Catalog
    from ampsq.transport.store import Store

__all__ = ["LinkEnd", "LinkRunner", "read_peer"]

_log = logging.getLogger("ampsq.replication")
#: Milliseconds for which a link is run by one coordinator without a sign of life, and seconds between two of them.
_PERIOD: Final = 5_000
_RENEW: Final = 1.0
#: Seconds for which a link waits for something new; then it looks whether it is to stop.
_WAIT: Final = 0.25
#: Seconds until all addresses are tried again, the first time; it doubles up to the destination's `reconnect_timeout`.
_FIRST_PAUSE: Final = 0.1
#: Seconds for which a call to the other side is repeated.
_RETRY_TIMEOUT: Final = 1.0
#: Seconds until somebody who runs the link, or refuses it, is asked again.
_LOOK_AGAIN: Final = 1.0
_HELD: Final = (
    "another coordinator holds this link and has not said how it goes: if that one is gone, this one takes the link "
    "over within 5 s; if not, its log says more"
)
#: Seconds that all directions of a link together have to end.
_ENDS_WITHIN: Final = 1.0


@dataclass(frozen=True, slots=True)
class LinkEnd:
    """One end of a link: a store on the instance, who it is, what is defined there.

    Attributes:
        store: a store on it.
        peer: its name, origin and group.
        catalog: its definitions.
    """

    store: Store
    peer: Peer
    catalog: Catalog = field(repr=False)


def read_peer(store: Store) -> LinkEnd:
    """Ask an instance who it is.

    Raises:
        Unavailable: it cannot be reached. FormatMismatch: there is none of that name, or another version's.
    """
    catalog = store.call(catalog_calls.catalog())
    origin = store.call(read_origin(store.instance))
    return LinkEnd(store, Peer(catalog.instance, origin, catalog.group, origin.former), catalog)


class LinkRunner:
    """Runs the link of one destination until it is told to stop, through failures of either side.

    Args:
        url: of the server of the instance that this coordinator cares for.
        instance: that instance's name.
        destination: the definition, of that instance, of where it replicates to.
        stopping: set when it is to stop.
        servers: what waits for a lost server; default this link alone does.
    """

    def __init__(
        self,
        url: str,
        instance: str,
        destination: Destination,
        stopping: threading.Event,
        servers: ServerWait | None = None,
    ) -> None:
        self._url, self._instance, self._definition, self._stopping = url, instance, destination, stopping
        self._servers = servers or ServerWait(_log)
        self._owner = secrets.token_hex(8)
        self._reported = ""
        # What it said last while it was not connected: its state, why, and whether that is final.
        self._last = ("waiting", "", False)
        self._is_up = False
        # Of the instance that was found last.
        self._group = ""
        self._losses = self._lost_at = 0
        # Addresses that were found to lead to an instance of our own name.
        self._namesakes: set[str] = set()

    def run(self) -> None:
        """Connect, step, and after a failure again; returns when it is told to stop."""
        pause = _FIRST_PAUSE
        while not self._stopping.is_set():
            state = LinkState(self._definition.name, self._instance, sync_type=self._definition.sync_type)
            state.losses, state.lost_at, state.group = self._losses, self._lost_at, self._group
            state.state, state.reason, state.is_final = self._last
            own = self._servers.store(self._url, self._instance, _RETRY_TIMEOUT)
            try:
                with closing(own):
                    if self._go(own, state):
                        pause = _FIRST_PAUSE
                wait = _LOOK_AGAIN
            except AmpsqError as error:
                if state.state == "connected":
                    self._losses, self._lost_at = self._losses + 1, round(time.time() * 1000)
                    state.losses, state.lost_at = self._losses, self._lost_at
                # Whoever waits for the own server has no place to say so, and others say it already.
                is_own = isinstance(error, Unavailable) and own.route.current is None
                if is_own and self._servers.wait(own, self._stopping):
                    continue
                state.state = "refused" if isinstance(error, (LinkRefused, ServerUnsuitable)) else "waiting"
                state.reason, state.is_final = str(error), isinstance(error, LinkRefused) and error.is_final
                self._say(state)
                wait = pause
                longest = max(float(self._definition.reconnect_timeout) / 1000, _FIRST_PAUSE)
                pause = min(pause * 2, longest)
            except Exception as error:  # noqa: BLE001  (one link's bug must not end it for ever)
                _log.exception("link to %s of %s failed; trying again", self._definition.name, self._instance)
                state.state = "waiting"
                state.reason = f"its coordinator failed, and tries again; its log has all of {error!r}"
                self._say(state)
                wait = _LOOK_AGAIN
            self._stopping.wait(wait)

    def _go(self, own_store: Store, state: LinkState) -> bool:
        """Run the link as long as it stands; False while another coordinator runs it."""
        with ExitStack() as stack:
            own = read_peer(own_store)
            # Connected anew, it is this incarnation, or the link begins anew.
            own_store.route.logged_on(own.peer.origin)
            # Once it is removed, nothing is kept for it any more.
            if self._definition.name not in own.catalog.destinations:
                return False
            if not own_store.call(duty_calls.hold_view(f"link {self._definition.name}", self._owner, _PERIOD)):
                self._note_held(own_store, state)
                return False
            other = self._reach(own, state, stack)
            state.state, state.reason = "waiting", f"{other.peer.name} answers, and is asked what it has"
            _note(own_store, state)
            directions = _Directions(own, other, self._definition, state)
            try:
                self._step(own, other, directions, state)
            finally:
                directions.close()
        return True

    def _step(self, own: LinkEnd, other: LinkEnd, directions: _Directions, state: LinkState) -> None:
        renew_at = 0.0
        versions = own.catalog.version, other.catalog.version
        while not self._stopping.is_set():
            if time.monotonic() >= renew_at:
                renew_at = time.monotonic() + _RENEW
                if _versions(own, other) != versions:
                    return
                if not own.store.call(duty_calls.hold_view(f"link {self._definition.name}", self._owner, _PERIOD)):
                    return
                directions.report(self._owner)
                self._last = ("waiting", "", False)
                self._say(state)
                self._tell(own.store, state)
                directions.validate_again()
            directions.step(_WAIT)

    def _reach(self, own: LinkEnd, state: LinkState, stack: ExitStack) -> LinkEnd:
        """The first instance of the list that answers; one that has a link to us comes before all others.

        An address that leads to an instance of our own name is passed over. Where all do, the refusal is final.
        """
        failures: list[str] = []
        namesakes: dict[str, LinkRefused] = {}
        for url, instance in self._in_order(own):
            shown = str(Address(url, instance))
            state.address, state.instance = shown, instance
            # Each address may take its time: that somebody is at it, is said again and again.
            state.reason = state.reason or f"its coordinator asks {shown} who is there"
            _note(own.store, state)
            store = self._servers.store(url, instance, _RETRY_TIMEOUT)
            try:
                other = read_peer(store)
            except (Unavailable, AmpsqError) as error:
                store.close()
                failures.append(describe_failure(shown, url, error))
                continue
            stack.callback(store.close)
            store.route.logged_on(other.peer.origin)
            if own.peer.name == other.peer.name:
                namesakes[shown] = _refused_namesake(own, other, state)
                self._note_namesake(shown, namesakes[shown])
                continue
            # What it does not fit in says so, too: other links go by it.
            state.instance, state.group = other.peer.name, other.peer.group
            self._group = state.group
            try:
                _validate(own, other, self._definition)
            except LinkRefused as error:
                # Theirs is not made without ours, and there is nobody else who could tell them.
                for theirs in _without_address(own, other):
                    _refuse(theirs, own, other, f"{own.peer.name} came, and its own destination is refused: {error}")
                raise
            return other
        if namesakes and not failures:
            # So that it is seen whether another one was added since.
            state.address = ", ".join(namesakes)
            raise next(iter(namesakes.values()))
        found = [*failures, *map(str, namesakes.values())]
        raise Unavailable("; ".join(found) or "the destination has no address: a link is made by its own side")

    def _note_namesake(self, shown: str, refusal: LinkRefused) -> None:
        """Log once that an address leads to an instance of our own name: another one may serve the destination."""
        if shown not in self._namesakes:
            self._namesakes.add(shown)
            _log.warning("link to %s of %s: %s", self._definition.name, self._instance, refusal)

    def _in_order(self, own: LinkEnd) -> list[tuple[str, str]]:
        peers = list(self._definition.peers)
        known = own.store.call(link_calls.incoming_instances(own.store.instance))
        return sorted(peers, key=lambda peer: peer[1] not in known)

    def _say(self, state: LinkState) -> None:
        """Log what has changed, and leave it for others to see where there is no link that says it itself."""
        text = f"{state.state} {state.instance} {state.reason}"
        if text != self._reported:
            self._reported = text
            level = logging.INFO if state.state == "connected" else logging.WARNING
            _log.log(level, "link to %s of %s: %s", state.destination, state.source, text)
        if state.state != "connected":
            self._last = state.state, state.reason, state.is_final
            try:
                with closing(self._servers.store(self._url, self._instance, _RETRY_TIMEOUT)) as store:
                    _note(store, state)
                    self._tell(store, state)
            except AmpsqError as error:
                # The next attempt notes it, before anything else.
                _log.debug("link to %s of %s: %s", state.destination, state.source, error)

    def _note_held(self, store: Store, state: LinkState) -> None:
        """Where whoever holds the link says nothing of it, say that."""
        said = store.call(link_calls.read_link_state(store.instance, state.destination))
        longest = SILENT + float(self._definition.reconnect_timeout) / 1000
        if store.call(server_time()) - (said.at if said else 0) > longest * 1000:
            state.state, state.reason = "waiting", _HELD
            _note(store, state)

    def _tell(self, store: Store, state: LinkState) -> None:
        """Tell the actions that ask for it that the link was made, or lost."""
        is_up = state.state == "connected"
        if is_up != self._is_up:
            what = "connect_replication" if is_up else "disconnect_replication"
            store.call(action_calls.emit_event(what, "", state.destination, state.text().encode()))
            self._is_up = is_up


class _Direction:
    """A link between two ends, and what it says of itself at both."""

    def __init__(self, source: LinkEnd, destination: LinkEnd, definition: Destination, state: LinkState) -> None:
        self.link, self.state = _link(source, destination, definition), state
        self._source, self._destination = source.store, destination.store
        self._counted = time.monotonic(), 0, 0

    def step(self, wait: float) -> None:
        """Step the link, and count what it moved."""
        moved, state = self.link.step(wait), self.state
        state.messages += moved.messages
        state.bytes += moved.bytes
        state.told += moved.journal_rows
        state.requests += moved.requests

    def report(self, run_by: str) -> None:
        """Say that it stands, and how fast it was since this was said last."""
        state, now = self.state, time.monotonic()
        at, messages, size = self._counted
        passed = max(now - at, 0.001)
        state.messages_per_second = round((state.messages - messages) / passed)
        state.bytes_per_second = round((state.bytes - size) / passed)
        self._counted = now, state.messages, state.bytes
        state.state, state.reason, state.at, state.run_by = "connected", "", self._source.call(server_time()), run_by
        state.since = state.since or state.at
        self._source.call(link_calls.write_link_state(self._source.instance, state))
        self._destination.call(link_calls.write_link_state(self._destination.instance, state, is_incoming=True))


class _Directions:
    """What one connection serves: our own direction, and that of the other side where it has no address for us."""

    def __init__(self, own: LinkEnd, other: LinkEnd, definition: Destination, state: LinkState) -> None:
        self._own = _Direction(own, other, definition, state)
        waiting = list(_fitting(own, other))
        self._back = [_Direction(other, own, theirs, _pulled(theirs, own, other)) for theirs in waiting]
        self._validated = [(own, other, definition), *((other, own, theirs) for theirs in waiting)]
        self._groups = self._found_groups()
        self._stopping = threading.Event()
        self._failed: list[AmpsqError] = []
        self._threads = [threading.Thread(target=self._pull, args=(back,), daemon=True) for back in self._back]
        for direction in (self._own, *self._back):
            direction.link.open()
        for thread in self._threads:
            thread.start()

    def step(self, wait: float) -> None:
        """Step our own direction.

        Raises:
            AmpsqError: this direction failed, or the other one did.
        """
        if self._failed:
            raise self._failed[0]
        self._own.step(wait)

    def validate_again(self) -> None:
        """See that both sides still fit once another link of one of them has found an instance of another group.

        Raises:
            LinkRefused: they do not any more.
        """
        groups = self._found_groups()
        if groups != self._groups:
            self._groups = groups
            for source, destination, definition in self._validated:
                _validate(source, destination, definition)

    def _found_groups(self) -> list[dict[str, str]]:
        return [_found_groups(source.store) for source, _, _ in self._validated]

    def report(self, run_by: str) -> None:
        """Say at both ends that they stand."""
        for direction in (self._own, *self._back):
            direction.report(run_by)

    def _pull(self, back: _Direction) -> None:
        try:
            while not self._stopping.is_set():
                back.step(_WAIT)
        except AmpsqError as error:
            self._failed.append(error)

    def close(self) -> None:
        """End both directions."""
        self._stopping.set()
        until = time.monotonic() + _ENDS_WITHIN
        for thread in self._threads:
            thread.join(max(until - time.monotonic(), 0.0))
        for direction in (self._own, *self._back):
            direction.link.close()


def _pulled(theirs: Destination, own: LinkEnd, other: LinkEnd) -> LinkState:
    return LinkState(
        theirs.name, other.peer.name, instance=own.peer.name, group=own.peer.group, sync_type=theirs.sync_type
    )


def _fitting(own: LinkEnd, other: LinkEnd) -> Iterator[Destination]:
    """Give those destinations that wait for us to connect.

    Raises:
        LinkRefused: one of them does not fit; that is left at the other side, too.
    """
    for theirs in _without_address(own, other):
        try:
            _validate(other, own, theirs)
        except LinkRefused as error:
            _refuse(theirs, own, other, str(error))
            raise
        yield theirs


def _without_address(own: LinkEnd, other: LinkEnd) -> Iterator[Destination]:
    """The other side's destinations that wait for us to connect."""
    for text in other.catalog.destinations.values():
        theirs = Destination.from_json(text)
        if theirs.addresses or not theirs.leads_to(own.peer.name, own.peer.group):
            continue
        yield theirs


def _refuse(theirs: Destination, own: LinkEnd, other: LinkEnd, reason: str, *, is_final: bool = False) -> None:
    """Leave at the other side why its destination without address is not served."""
    state = _pulled(theirs, own, other)
    state.state, state.reason, state.is_final = "refused", reason, is_final
    _note(other.store, state)


def _refused_namesake(own: LinkEnd, other: LinkEnd, state: LinkState) -> LinkRefused:
    """Why two instances of one name have no link; at one that waits for it this is said, too."""
    name, is_itself = own.peer.name, own.peer.origin == other.peer.origin
    found = f"{name!r} itself, or to a copy of it" if is_itself else f"another instance that is called {name!r}, too"
    error = LinkRefused(
        f"{state.destination} leads to {found} ({state.address}); whose a message is, its instance's name says. Let it "
        "lead to an instance of another name"
    )
    error.is_final = True
    for theirs in () if is_itself else _without_address(own, other):
        _refuse(theirs, own, other, str(error), is_final=True)
    return error


def _validate(source: LinkEnd, destination: LinkEnd, definition: Destination) -> None:
    """See that both sides fit.

    Raises:
        LinkRefused: they do not; a line for each difference.
    """
    groups = _found_groups(source.store)
    found = validate(source.catalog, destination.catalog, definition, groups)
    refusals = [str(difference) for difference in found if difference.refuses]
    if refusals:
        raise LinkRefused("\n".join(refusals))
    for difference in found:
        _log.warning("link from %s to %s: %s", source.peer.name, destination.peer.name, difference)


def _link(source: LinkEnd, destination: LinkEnd, definition: Destination) -> Link:
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
    )


def _found_groups(store: Store) -> dict[str, str]:
    """Of each destination of an instance the group of the instance that its link found last."""
    return store.call(link_calls.read_link_reports(store.instance)).groups


def _versions(own: LinkEnd, other: LinkEnd) -> tuple[int | None, int | None]:
    """Read the versions of what is defined at both ends."""
    return own.store.call(catalog_version(own.store.instance)), other.store.call(catalog_version(other.store.instance))


def _note(store: Store, state: LinkState) -> None:
    """Leave it at the source, for others to see."""
    state.at = store.call(server_time())
    store.call(link_calls.write_link_state(store.instance, state))
