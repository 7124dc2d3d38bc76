"""The two ends of a link: who they are, whether they fit, and what is left at the other side where they do not."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ampsq.base.errors import LinkRefused
from ampsq.definitions.destination import Destination
from ampsq.protocol.calls import catalog as catalog_calls
from ampsq.protocol.calls import links as link_calls
from ampsq.protocol.calls.links import LinkState
from ampsq.protocol.reads.clock import server_time
from ampsq.protocol.reads.instance import catalog_version
from ampsq.protocol.reads.origin import read_origin
from ampsq.replication.selection import Peer
from ampsq.replication.validation import validate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampsq.protocol.calls.catalog import Catalog
    from ampsq.transport.store import Store

__all__ = [
    "LinkEnd",
    "defined_versions",
    "found_groups",
    "incoming_state",
    "note_refusal",
    "note_state",
    "read_peer",
    "refuse",
    "refuse_namesake",
    "validate_link",
    "waiting_destinations",
]

_log = logging.getLogger("ampsq.replication")


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


def incoming_state(theirs: Destination, own: LinkEnd, other: LinkEnd) -> LinkState:
    """Give what is said of a link that the other side waits for, before it says anything."""
    return LinkState(
        theirs.name, other.peer.name, instance=own.peer.name, group=own.peer.group, sync_type=theirs.sync_type
    )


def waiting_destinations(own: LinkEnd, other: LinkEnd) -> Iterator[Destination]:
    """Give the other side's destinations that wait for us to connect."""
    for text in other.catalog.destinations.values():
        theirs = Destination.from_json(text)
        if theirs.addresses or not theirs.leads_to(own.peer.name, own.peer.group):
            continue
        yield theirs


def refuse(theirs: Destination, own: LinkEnd, other: LinkEnd, reason: str, *, is_final: bool = False) -> None:
    """Leave at the other side why its destination without address is not served."""
    state = incoming_state(theirs, own, other)
    state.state, state.reason, state.is_final = "refused", reason, is_final
    note_state(other.store, state)


def note_refusal(own: LinkEnd, other: LinkEnd, state: LinkState, reason: str) -> None:
    """Leave at the other side that our link to it is refused, and why: whoever looks there looks for it there.

    A link of another destination of ours that leads there keeps its word.
    """
    instance = other.store.instance
    known = other.store.call(link_calls.read_link_reports(instance)).incoming.get(own.peer.name)
    if known is None or known.destination == state.destination:
        refused = replace(state, state="refused", reason=reason, is_final=False, at=other.store.call(server_time()))
        other.store.call(link_calls.write_link_state(instance, refused, is_incoming=True))


def refuse_namesake(own: LinkEnd, other: LinkEnd, state: LinkState) -> LinkRefused:
    """Say why two instances of one name have no link; at one that waits for it this is said, too."""
    name, is_itself = own.peer.name, own.peer.origin == other.peer.origin
    found = f"{name!r} itself, or to a copy of it" if is_itself else f"another instance that is called {name!r}, too"
    error = LinkRefused(
        f"{state.destination} leads to {found} ({state.address}); whose a message is, its instance's name says. Let it "
        "lead to an instance of another name"
    )
    error.is_final = True
    for theirs in () if is_itself else waiting_destinations(own, other):
        refuse(theirs, own, other, str(error), is_final=True)
    return error


def validate_link(source: LinkEnd, destination: LinkEnd, definition: Destination) -> None:
    """See that both sides fit.

    Raises:
        LinkRefused: they do not; a line for each difference.
    """
    groups = found_groups(source.store)
    found = validate(source.catalog, destination.catalog, definition, groups)
    refusals = [str(difference) for difference in found if difference.refuses]
    if refusals:
        raise LinkRefused("\n".join(refusals))
    for difference in found:
        _log.warning("link from %s to %s: %s", source.peer.name, destination.peer.name, difference)


def found_groups(store: Store) -> dict[str, str]:
    """Read of each destination of an instance the group of the instance that its link found last."""
    return store.call(link_calls.read_link_reports(store.instance)).groups


def defined_versions(own: LinkEnd, other: LinkEnd) -> tuple[int | None, int | None]:
    """Read the versions of what is defined at both ends."""
    return own.store.call(catalog_version(own.store.instance)), other.store.call(catalog_version(other.store.instance))


def note_state(store: Store, state: LinkState) -> None:
    """Leave it at the source, for others to see."""
    state.at = store.call(server_time())
    store.call(link_calls.write_link_state(store.instance, state))
