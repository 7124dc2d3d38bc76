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
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import AmpsqError, LinkRefused, ServerUnsuitable, Unavailable
from ampsq.definitions.destination import Address, Destination
from ampsq.protocol.calls import actions as action_calls
from ampsq.protocol.calls import duties as duty_calls
from ampsq.protocol.calls import links as link_calls
from ampsq.protocol.calls.links import LinkState
from ampsq.protocol.reads.clock import server_time
from ampsq.replication.link_directions import LinkDirections
from ampsq.replication.link_ends import (
    defined_versions,
    note_refusal,
    note_state,
    read_peer,
    refuse,
    refuse_namesake,
    validate_link,
    waiting_destinations,
)
from ampsq.replication.link_rounds import LinkRounds
from ampsq.replication.report import SILENT
from ampsq.transport.errors import describe_failure
from ampsq.transport.server_wait import ServerWait

if TYPE_CHECKING:
    from ampsq.replication.link_ends import LinkEnd
    from ampsq.transport.store import Store

__all__ = ["LinkRunner"]

_log = logging.getLogger("ampsq.replication")
#: Milliseconds for which a link is run by one coordinator without a sign of life.
_PERIOD: Final = 5_000
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


class LinkRunner:
    """Runs the link of one destination until it is told to stop, through failures of either side.

    Args:
        url: of the server of the instance that this coordinator cares for.
        instance: that instance's name.
        destination: the definition, of that instance, of where it replicates to.
        stopping: set when it is to stop.
        servers: what waits for a lost server; default this link alone does.
        rounds: what links ask together; default this link alone.
    """

    def __init__(
        self,
        url: str,
        instance: str,
        destination: Destination,
        stopping: threading.Event,
        servers: ServerWait | None = None,
        *,
        rounds: LinkRounds | None = None,
    ) -> None:
        self._url, self._instance, self._definition, self._stopping = url, instance, destination, stopping
        self._servers = servers or ServerWait(_log)
        self._rounds = rounds or LinkRounds(self._servers)
        # While it stands; and that it has to look by itself, or why it is lost.
        self._directions: LinkDirections | None = None
        self._is_wanted = threading.Event()
        self._failure: Unavailable | None = None
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

    def stop(self) -> None:
        """Tell it to stop, without waiting for that."""
        self._stopping.set()
        directions = self._directions
        if directions is not None:
            directions.wake()

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
            note_state(own_store, state)
            self._directions = directions = LinkDirections(own, other, self._definition, state, self._rounds)
            try:
                self._step(own, other, directions, state)
            finally:
                self._directions = None
                directions.close()
        return True

    def _step(self, own: LinkEnd, other: LinkEnd, directions: LinkDirections, state: LinkState) -> None:
        self._failure = None
        hold = duty_calls.hold_view(f"link {self._definition.name}", self._owner, _PERIOD, own.store.instance)

        def failed(error: Unavailable | None) -> None:
            self._failure = error or self._failure
            self._is_wanted.set()
            directions.wake()

        if not self._look(own, other, directions, state):
            return
        self._is_wanted.clear()
        with directions.asked_each_round(hold, self._owner, failed):
            while not self._stopping.is_set():
                if self._is_wanted.is_set():
                    self._is_wanted.clear()
                    if self._failure is not None:
                        raise self._failure
                    if not self._look(own, other, directions, state):
                        return
                directions.step()

    def _look(self, own: LinkEnd, other: LinkEnd, directions: LinkDirections, state: LinkState) -> bool:
        """See what is defined at both ends, hold the link, and say there that it stands; False: it is to be left."""
        if defined_versions(own, other) != (own.catalog.version, other.catalog.version):
            return False
        if not own.store.call(duty_calls.hold_view(f"link {self._definition.name}", self._owner, _PERIOD)):
            return False
        directions.report(self._owner)
        self._last = ("waiting", "", False)
        self._say(state)
        self._tell(own.store, state)
        directions.validate_again()
        return True

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
            state.reason = state.reason or f"its coordinator asks {shown} which instance is there"
            note_state(own.store, state)
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
                namesakes[shown] = refuse_namesake(own, other, state)
                self._note_namesake(shown, namesakes[shown])
                continue
            # What it does not fit in says so, too: other links go by it.
            state.instance, state.group = other.peer.name, other.peer.group
            self._group = state.group
            try:
                validate_link(own, other, self._definition)
            except LinkRefused as error:
                # Theirs is not made without ours, and there is nobody else who could tell them.
                for theirs in waiting_destinations(own, other):
                    refuse(theirs, own, other, f"{own.peer.name} came, and its own destination is refused: {error}")
                note_refusal(own, other, state, str(error))
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
                    note_state(store, state)
                    self._tell(store, state)
            except AmpsqError as error:
                # The next attempt notes it, before anything else.
                _log.debug("link to %s of %s: %s", state.destination, state.source, error)

    def _note_held(self, store: Store, state: LinkState) -> None:
        """Note that somebody else holds the link, where the holder does not say so."""
        said = store.call(link_calls.read_link_state(store.instance, state.destination))
        longest = SILENT + float(self._definition.reconnect_timeout) / 1000
        if store.call(server_time()) - (said.at if said else 0) > longest * 1000:
            state.state, state.reason = "waiting", _HELD
            note_state(store, state)

    def _tell(self, store: Store, state: LinkState) -> None:
        """Tell the actions that ask for it that the link was made, or lost."""
        is_up = state.state == "connected"
        if is_up != self._is_up:
            what = "connect_replication" if is_up else "disconnect_replication"
            store.call(action_calls.emit_event(what, "", state.destination, state.text().encode()))
            self._is_up = is_up
