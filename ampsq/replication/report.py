"""State of replication: each link with its lag, each replicated queue with the owners of its messages."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final, TypedDict, Unpack

from ampsq.base.formatting import span_text
from ampsq.base.log_positions import FIRST, parse_id
from ampsq.catalog.sent_streams import sent_queue, sent_topic
from ampsq.definitions.stored import read_stored_queue
from ampsq.definitions.stored_destination import read_stored_destination
from ampsq.protocol.calls import catalog as catalog_calls
from ampsq.protocol.calls import links as link_calls
from ampsq.protocol.calls import ownership as ownership_calls
from ampsq.protocol.calls import replication as replication_calls
from ampsq.protocol.calls.links import LinkState
from ampsq.protocol.reads.clock import server_time
from ampsq.protocol.reads.definitions import read_definitions
from ampsq.protocol.reads.destinations import read_sync
from ampsq.protocol.reads.log_index import complete, rank_of
from ampsq.protocol.reads.streams import Stream, entries_behind, last_id
from ampsq.replication.recovery import read_recovery

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ampsq.definitions.stored import StoredQueue
    from ampsq.definitions.stored_destination import StoredDestination
    from ampsq.protocol.calls.catalog import Catalog
    from ampsq.protocol.calls.links import LinkReports, SentPlaces
    from ampsq.replication.recovery import Recovery

__all__ = [
    "SILENT", "LinkStatus", "QueueOwnership", "ReplicationReport", "carried_to", "linked_instances",
    "read_destinations",
    "read_links", "read_replication",
]  # fmt: skip

#: Seconds after which a link that says nothing of itself is not running.
SILENT: Final = 5.0
#: Milliseconds after which an incoming link that was refused, and is not tried again, is none.
_FORGOTTEN: Final = 120_000
#: Of so many messages owned elsewhere their owners are counted.
_COUNTED: Final = 500
#: Entries of a journal are counted up to this many; they have no index.
_LOOKED: Final = 1_000


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """One direction, as the coordinator that runs it said last.

    Attributes:
        destination: its name; of an incoming link the name that the other side gives us.
        direction: ``out`` or ``in``.
        instance: the one at the other end; None while there is none.
        group: of that one.
        address: where it is, without passwords; None of an incoming link.
        state: ``connected``; ``waiting`` for somebody to answer; ``refused``; ``silent``: no coordinator runs it.
        acknowledgement: ``sync``, ``async``, or ``downgraded``: configured as sync, and not waited for.
        pass_through: patterns of the groups whose messages are passed on; none of an incoming link.
        connected_for: seconds; None while it is not.
        behind: messages and journal entries that the destination does not have yet, at most: what a filter keeps out
            and what does not go there is counted until the link has passed it; of each journal 1,000 at most. None of
            an incoming link.
        seconds_behind: how long the oldest of them has been here; 0 where there is none; None of an incoming link.
        messages: copies recorded at the destination since it was connected.
        bytes: of what was sent since then.
        messages_per_second: over the last second.
        bytes_per_second: over the last second.
        disconnects: how often the connection was lost since the coordinator began to run the link.
        disconnected_ago: seconds since it was lost last; None where it never was.
        reason: why it is not connected, and what to do; None where it is.
    """

    destination: str
    direction: str
    instance: str | None
    group: str | None
    address: str | None
    state: str
    acknowledgement: str
    pass_through: tuple[str, ...]
    connected_for: float | None
    behind: int | None
    seconds_behind: float | None
    messages: int
    bytes: int
    messages_per_second: int
    bytes_per_second: int
    disconnects: int
    disconnected_ago: float | None
    reason: str | None

    def as_dict(self) -> dict[str, object]:
        """The same as plain values, for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class QueueOwnership:
    """A queue that several instances have.

    Attributes:
        queue: its name.
        initial_owner: ``origin`` of a distributed queue, an instance's name of a group local one.
        owned: messages that were read, and wait to be delivered here.
        elsewhere: messages that were read, and that another instance owns.
        owners: of the oldest 500 of these who owns how many.
        oldest: seconds for which the oldest of these has been here; None where there is none.
        usual: seconds from a message's arrival until its owner has settled it, on average.
        transferred_in: how often a message became this instance's.
        transferred_out: how often one was given to another.
        deferred: reports on messages that have not arrived yet.
        proxied: whether this instance may act for owners out of reach.
        carried_to: the destinations that are sent what is settled and transferred of it.
    """

    queue: str
    initial_owner: str
    owned: int
    elsewhere: int
    owners: dict[str, int]
    oldest: float | None
    usual: float
    transferred_in: int
    transferred_out: int
    deferred: int
    proxied: bool
    carried_to: tuple[str, ...]

    def as_dict(self) -> dict[str, object]:
        """The same as plain values, for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ReplicationReport:
    """All of it.

    Attributes:
        instance: its name.
        group: its group.
        links: those to its destinations, then those that come in.
        queues: the queues that are not this instance's alone: a destination is sent them, or another instance owns
            messages of them.
        recovery: of a new incarnation that does not know yet what the last one did: which queues are held, and for
            which destinations that waits; else None.
    """

    instance: str
    group: str
    links: tuple[LinkStatus, ...]
    queues: tuple[QueueOwnership, ...]
    recovery: Recovery | None = None

    def as_dict(self) -> dict[str, object]:
        """The same as plain values, for JSON."""
        return asdict(self)


async def read_replication(instance: str) -> ReplicationReport:
    """Read how it stands; what it costs is a few looks a link and a topic."""
    catalog: Catalog = await catalog_calls.catalog()
    now = await server_time()
    found = await _links(instance, catalog, now)
    queues = []
    for queue, destinations in _carried(catalog) if found else ():
        ownership = await _ownership(queue, destinations, now)
        if destinations or ownership.elsewhere or ownership.proxied:
            queues.append(ownership)
    recovery = await read_recovery(instance)
    return ReplicationReport(catalog.instance, catalog.group, tuple(found), tuple(queues), recovery)


def _carried(catalog: Catalog) -> list[tuple[StoredQueue, tuple[str, ...]]]:
    """The queues that may be shared, each with the destinations that are sent it."""
    destinations = [read_stored_destination(text) for _, text in sorted(catalog.destinations.items())]
    queues = [read_stored_queue(text) for _, text in sorted(catalog.queues.items())]
    return [(queue, carried_to(destinations, queue)) for queue in queues if queue.owner]


def carried_to(destinations: Iterable[StoredDestination], queue: StoredQueue) -> tuple[str, ...]:
    """Return the destinations, by name, that are sent what is settled and transferred of a queue."""
    return tuple(each.name for each in destinations if sent_queue(each, queue) is not None)


async def read_destinations(instance: str) -> list[StoredDestination]:
    """The destinations that are defined, without all else that is."""
    texts = await read_definitions(instance, "destinations")
    return [read_stored_destination(text) for _, text in sorted(texts.items())]


async def read_links(instance: str, catalog: Catalog) -> tuple[LinkStatus, ...]:
    """Read the links alone: those to its destinations, then those that come in."""
    now = await server_time()
    return tuple(await _links(instance, catalog, now))


async def _links(instance: str, catalog: Catalog, now: int) -> list[LinkStatus]:
    said: LinkReports = await link_calls.read_link_reports(instance)
    sync = await read_sync(instance)
    found = []
    for name, text in sorted(catalog.destinations.items()):
        definition = read_stored_destination(text)
        lag = await _lag(instance, catalog, definition)
        known = said.outgoing.get(name)
        found.append(_outgoing(instance, definition, known, now, lag, downgraded=sync.get(name) is not None))
    incoming = said.incoming.values()
    return found + [
        _incoming(known, now) for known in incoming if known.state != "refused" or now - known.at < _FORGOTTEN
    ]


async def linked_instances(instance: str) -> set[str]:
    """The names of the instances that a link comes from, and this one's."""
    now = await server_time()
    said: LinkReports = await link_calls.read_link_reports(instance)
    incoming = [_incoming(known, now) for known in said.incoming.values()]
    return {instance, *(link.instance for link in incoming if link.state == "connected" and link.instance)}


async def _lag(instance: str, catalog: Catalog, definition: StoredDestination) -> tuple[int, float]:
    """Return the lag of a destination: its size, and for how many seconds the oldest missing part has been here."""
    sent: SentPlaces = await link_calls.read_sent_places(instance, definition.name)
    topics = [f"log {topic}" for topic in sorted(catalog.topics) if sent_topic(definition, catalog, topic)]
    journals = [stream for stream in sent.places if stream.startswith("journal ") and "@" not in stream]
    number = 0
    for stream in (*topics, *journals):
        kind, _, name = stream.partition(" ")
        place = sent.places.get(stream, "0-0")
        if await entries_behind(instance, Stream(kind, name), place, 1):
            number += await _number_behind(instance, Stream(kind, name), place)
    waiting = await replication_calls.behind_since(definition.name, topics)
    return number, 0.0 if waiting.oldest is None else max(waiting.now - waiting.oldest, 0) / 1000


async def _number_behind(instance: str, stream: Stream, place: str) -> int:
    if stream.kind == "journal":
        return len(await entries_behind(instance, stream, place, _LOOKED))
    await complete(stream.of)
    last = await last_id(instance, stream)
    return (await rank_of(stream.of, last)) - (await rank_of(stream.of, max(parse_id(place), FIRST)))


class _LinkFacts(TypedDict):
    """The facts of a link beside its coordinator's report; see `LinkStatus`."""

    destination: str
    direction: str
    instance: str | None
    group: str | None
    address: str | None
    acknowledgement: str
    pass_through: tuple[str, ...]
    behind: int | None
    seconds_behind: float | None


def _outgoing(
    own: str,
    definition: StoredDestination,
    known: LinkState | None,
    now: int,
    lag: tuple[int, float],
    *,
    downgraded: bool,
) -> LinkStatus:
    return _status(
        known,
        now,
        lambda last: _why_silent(own, definition, known, last),
        # One that waits says so when it tries again.
        silent_after=SILENT + float(definition.reconnect_timeout) / 1000,
        destination=definition.name,
        direction="out",
        instance=(known.instance or None) if known else None,
        group=(known.group or None) if known else None,
        address=(known.address or None) if known else None,
        acknowledgement="downgraded" if downgraded else definition.sync_type,
        pass_through=definition.pass_through,
        behind=lag[0],
        seconds_behind=lag[1],
    )


def _why_silent(own: str, definition: StoredDestination, known: LinkState | None, last: str) -> str:
    """Say why nobody reports on a link to a destination, and what to do."""
    if definition.peers and not known:
        return (
            f"no coordinator runs this link, nor has one since it was defined: start one for {own} (ampsq coordinator, "
            "or ampsq up); where one runs, its log says what keeps it"
        )
    if definition.peers:
        return f"no coordinator runs this link: start one for {own} (ampsq coordinator, or ampsq up); {last}"
    makes = f"the destination has no address, so that the other side makes this link with its destination to {own}"
    if not known:
        return (
            f"{makes}, and it has not come yet: there that one is needed, with an address of {own}, and a coordinator"
        )
    return f"{makes}, and it does not come any more: see there ampsq replication, and its coordinator; {last}"


def _incoming(known: LinkState, now: int) -> LinkStatus:
    return _status(
        known,
        now,
        lambda last: (
            f"the coordinator of {known.source} runs this link, and has ended or does not reach this server: see "
            f"there ampsq replication, and its log; {last}"
        ),
        # One that is refused says so when it tries again.
        silent_after=_FORGOTTEN / 1000 if known.state == "refused" else SILENT,
        destination=known.destination,
        direction="in",
        instance=known.source,
        group=None,
        address=None,
        acknowledgement=known.sync_type,
        pass_through=(),
        behind=None,
        seconds_behind=None,
    )


def _status(
    known: LinkState | None,
    now: int,
    why_silent: Callable[[str], str],
    *,
    silent_after: float,
    **facts: Unpack[_LinkFacts],
) -> LinkStatus:
    known = known or LinkState("", "", state="silent")
    said, ago = known.state, now - known.at
    is_silent = ago > (SILENT if said == "connected" else silent_after) * 1000
    state = "silent" if is_silent else said
    if is_silent:
        because = f" ({known.reason})" if known.reason else ""
        reason = why_silent(f"the last word, {span_text(ago)} ago, was {said}{because}")
    else:
        reason = known.reason or "its coordinator says no more than that; its log may"
    is_connected = state == "connected"
    return LinkStatus(
        **facts,
        state=state,
        connected_for=max(now - known.since, 0) / 1000 if is_connected else None,
        messages=known.messages,
        bytes=known.bytes,
        messages_per_second=known.messages_per_second if is_connected else 0,
        bytes_per_second=known.bytes_per_second if is_connected else 0,
        disconnects=known.losses,
        disconnected_ago=max(now - known.lost_at, 0) / 1000 if known.lost_at else None,
        reason=None if is_connected else reason,
    )


async def _ownership(queue: StoredQueue, destinations: tuple[str, ...], now: int) -> QueueOwnership:
    counted: ownership_calls.OwnerCounts = await ownership_calls.count_owners(queue.name, _COUNTED)
    return QueueOwnership(
        queue=queue.name,
        initial_owner="origin" if queue.owner == "*" else queue.owner,
        owned=counted.owned,
        elsewhere=counted.elsewhere,
        owners=counted.owners,
        oldest=None if counted.oldest is None else max(now - counted.oldest, 0) / 1000,
        usual=counted.usual / 1000,
        transferred_in=counted.transferred_in,
        transferred_out=counted.transferred_out,
        deferred=counted.deferred,
        proxied=counted.proxied,
        carried_to=destinations,
    )
