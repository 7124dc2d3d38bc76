"""Ownership of a message that several instances share: the protocol of decision 13 as a model of pure functions.

What a script does in one call is one function from a `Server` to a `Server` here; `Protocol` has a method for each,
and one for each guard, so that a broken variant is a subclass that takes one guard away. What moves between instances,
what breaks and what an observer knows is in `ownership_world.py`.

States are tuples. Instances are numbered from 0 (A), origins are instance + instances x incarnation, messages are
numbered from 0. IDs of all instances begin with 1, so that they tie: of equal ones that of the lower origin is lower.
"""
# Long: one model: its steps are read together.

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

READY, LEASED, REMOTE, GONE, TRIMMED = "ready", "leased", "remote", "gone", "trimmed"
SETTLED, TRANSFERRED = "settled", "transferred"
LOG, JOURNAL = "log", "journal"
# Above every ID: what `received` says of an incarnation that is over.
END = 1_000


class Bookmark(NamedTuple):
    """A message's name everywhere. `after`: origin and ID of its publisher's last message elsewhere."""

    id: int
    origin: int
    message: int
    after: tuple[int, int] | tuple[()] = ()


class Epoch(NamedTuple):
    """The number of a message's hand-overs, and the origin whose journal says so, which decides between equals."""

    number: int = 0
    by: int = -1


class Lease(NamedTuple):
    """A lease's conditions. `token` rises with each of a server, and falls back when that loses its tail."""

    bookmark: Bookmark
    epoch: Epoch
    token: int = 0
    holder: int = 0


class Item(NamedTuple):
    """A message in the queue of one instance. Of its bookmarks the lowest counts, and comes first."""

    where: str
    bookmarks: tuple[Bookmark, ...]
    recorded_as: Bookmark
    owner: int
    epoch: Epoch = Epoch()
    lease: Lease | None = None

    @property
    def bookmark(self) -> Bookmark:
        """The one that counts."""
        return self.bookmarks[0]

    def settled(self) -> Item:
        """The same, over: nobody owns it any more."""
        return self._replace(where=GONE, owner=-1, epoch=Epoch(), lease=None)


class Note(NamedTuple):
    """An entry of a queue's journal."""

    how: str
    bookmark: Bookmark
    owner: int = -1
    epoch: Epoch = Epoch()


class Batch(NamedTuple):
    """A link's reading of one stream of one origin: all of it behind `start`, up to `upto`, that passes the filter."""

    kind: str
    source: int
    origin: int
    start: int
    upto: int
    entries: tuple[Bookmark | Note, ...]
    kept_out: frozenset[int] = frozenset()


class Server(NamedTuple):
    """Everything that one Redis holds of one instance, and loses together."""

    incarnation: int
    log: tuple[int, ...]
    items: tuple[Item | None, ...]
    received: tuple[int, ...]
    kept_out: tuple[frozenset[int] | None, ...]
    journals: tuple[tuple[Note, ...], ...]
    deferred: frozenset[Note] = frozenset()
    closed: frozenset[int] = frozenset()
    recovering: bool = False
    token: int = 0

    def put(self, message: int, item: Item | None) -> Server:
        """The same with another state of one message."""
        return self._replace(items=(*self.items[:message], item, *self.items[message + 1 :]))

    def find(self, bookmark: Bookmark) -> Item | None:
        """The message of a bookmark, if it is here under it."""
        item = self.items[bookmark.message]
        return item if item and bookmark in item.bookmarks else None


@dataclass(frozen=True)
class Publisher:
    """A publisher that sends messages, in order, to one instance, until it fails over; without a name never again."""

    home: int
    messages: tuple[int, ...]
    named: bool = False


@dataclass(frozen=True)
class Scenario:
    """The size of a world, its links, and how often what may happen in it.

    `links`: (from, to) -> whether it passes on what others published. `filters`: link -> messages that it keeps out.
    `topics`: of each message, where there are two.
    """

    instances: int
    publishers: tuple[Publisher, ...]
    links: dict[tuple[int, int], bool]
    filters: dict[tuple[int, int], frozenset[int]] = field(default_factory=dict)
    initial_owner: int | None = None
    barriers: frozenset[int] = frozenset()
    topics: tuple[int, ...] = ()
    subscribers: frozenset[int] | None = None
    mortal: frozenset[int] = frozenset()
    crashes: int = 0
    grants: int = 0
    failovers: int = 0
    proxied: int = 0
    restores: int = 0
    late: int = 0
    deliveries: int = 0
    sync: bool = False
    replays: bool = False
    trims: bool = False
    backup: bool = False

    @property
    def messages(self) -> int:
        """Number of messages."""
        return sum(len(publisher.messages) for publisher in self.publishers)

    @property
    def origins(self) -> int:
        """Instances, each with as many incarnations as there may be; those of a second topic's log behind."""
        return self.instances * (1 + self.restores) * (1 + max(self.topics, default=0))


class Protocol:
    """The scripts, and the guards in them."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.publisher_of = {m: p for p in scenario.publishers for m in p.messages}

    # The guards. Each broken variant overrides one of them.

    def is_newer(self, item: Item, note: Note) -> bool:
        """A transfer counts with a higher epoch only; of equal ones that of the higher journal."""
        return note.epoch > item.epoch

    def is_passed(self, mark: int, number: int) -> bool:
        """Return whether an entry is at or below `received`, and was applied before."""
        return number <= mark

    def follows(self, mark: int, start: int) -> bool:
        """A batch begins at or below `received`: else it would leave a hole."""
        return start <= mark

    def is_same_filter(self, known: frozenset[int] | None, told: frozenset[int]) -> bool:
        """One stream comes under one filter."""
        return known is None or known == told

    def is_closed(self, server: Server, batch: Batch) -> bool:
        """Return whether a batch was read from an incarnation that is over, and comes too late."""
        return batch.source in server.closed

    def is_deferred(self, server: Server, note: Note) -> bool:
        """Return whether a report is on a message that can still come, so that it waits; else it is dropped."""
        return note.bookmark.id > server.received[note.bookmark.origin]

    def must_wait(self, server: Server, bookmark: Bookmark) -> bool:
        """A publisher's first message at another origin waits for the one before it."""
        return bool(bookmark.after) and server.received[bookmark.after[0]] < bookmark.after[1]

    def is_recorded(self, server: Server, message: int) -> bool:
        """(publisher, sequence), compared exactly, also with what was trimmed since."""
        return server.items[message] is not None

    def may_publish(self, server: Server, before: int | None) -> bool:
        """A publisher that sends again continues behind what is here, and nowhere else."""
        return before is None or server.items[before] is not None

    def is_double(self, server: Server, bookmark: Bookmark) -> Item | None:
        """Return the item that a publisher recorded under another bookmark before, or None."""
        return server.items[bookmark.message] if self.publisher_of[bookmark.message].named else None

    def place(self, item: Item, instance: int) -> Item:
        """Return the item at its place: an unleased one belongs to its owner, a given lease stays until it ends."""
        if item.where not in (READY, REMOTE):
            return item
        return item._replace(where=READY if self.owns(item, instance) else REMOTE)

    def place_returned(self, item: Item, instance: int) -> Item:
        """A message that comes back belongs to whom owns it now."""
        return self.place(item._replace(where=REMOTE, lease=None), instance)

    def map_double(self, item: Item, bookmark: Bookmark) -> Item:
        """One message, one more bookmark. A lower one brings its own owner: transfers under higher ones are void."""
        mapped = item._replace(bookmarks=tuple(sorted((*item.bookmarks, bookmark))))
        if mapped.bookmark == bookmark and item.where != TRIMMED:
            return mapped._replace(owner=self.default_owner(bookmark), epoch=Epoch())
        return mapped

    def concerns(self, item: Item, note: Note) -> bool:
        """A transfer counts under the bookmark that counts, and is passed over under any other."""
        return note.bookmark == item.bookmark

    def may_grant(self, item: Item) -> bool:
        """Return whether nobody holds it."""
        return item.where == READY

    def delivers(self, server: Server) -> bool:
        """A new incarnation delivers and grants nothing until it knows what the last one did."""
        return not server.recovering

    def may_send_barrier(self, before: Iterator[Item]) -> bool:
        """Once everything before it is settled, wherever it is owned."""
        return all(item.where in (GONE, TRIMMED) for item in before)

    def is_held_by(self, lease: Lease | None, held: Lease) -> bool:
        """Token and holder decide whose acknowledgement it is."""
        return lease is not None and (lease.token, lease.holder) == (held.token, held.holder)

    # What the scripts ask.

    def name_of(self, origin: int) -> int:
        return origin % self.scenario.instances

    def origin_of(self, server: Server, instance: int, message: int | None = None) -> int:
        topic = self.scenario.topics[message] if message is not None and self.scenario.topics else 0
        number = server.incarnation + topic * (1 + self.scenario.restores)
        return instance + number * self.scenario.instances

    def before(self, message: int, *, topic: bool = False) -> int | None:
        """Return the message that its publisher sends before one, of the same topic if so asked."""
        sent = self.publisher_of[message].messages
        earlier = [m for m in sent[: sent.index(message)] if not topic or self.is_same_topic(m, message)]
        return earlier[-1] if earlier else None

    def is_same_topic(self, one: int, other: int) -> bool:
        return not self.scenario.topics or self.scenario.topics[one] == self.scenario.topics[other]

    def default_owner(self, bookmark: Bookmark) -> int:
        """Names own, not incarnations: a new one takes over what the last one had."""
        initial = self.scenario.initial_owner
        return self.name_of(bookmark.origin) if initial is None else initial

    def owns(self, item: Item, instance: int) -> bool:
        return item.owner == instance or item.bookmark.message in self.scenario.barriers

    # The scripts.

    def publish(self, server: Server, instance: int, message: int, number: int) -> Server | None:
        """`publish`: record a message of this origin; None is a refusal, the same server a duplicate."""
        origin, after = self.origin_of(server, instance, message), ()
        if self.publisher_of[message].named:
            if self.is_recorded(server, message):
                return server
            if not self.may_publish(server, self.before(message)):
                return None
            after = self.name_before(server, self.before(message, topic=True), origin)
        bookmark = Bookmark(number, origin, message, after)
        received = (*server.received[:origin], number, *server.received[origin + 1 :])
        return self.record(server._replace(received=received), instance, bookmark)

    def name_before(self, server: Server, before: int | None, origin: int) -> tuple[int, int] | tuple[()]:
        """Return the name of the message before a publisher's, if that is of another origin."""
        item = server.items[before] if before is not None else None
        if item is None or any(bookmark.origin == origin for bookmark in item.bookmarks):
            return ()
        return item.recorded_as.origin, item.recorded_as.id

    def record(self, server: Server, instance: int, bookmark: Bookmark) -> Server:
        """Part of `publish` and `apply`: a new entry, or one more bookmark of one; then what was told of it before."""
        known = self.is_double(server, bookmark)
        if known:
            item = self.map_double(known, bookmark)
        else:
            server = server._replace(log=(*server.log, bookmark.message))
            item = Item(REMOTE, (bookmark,), bookmark, self.default_owner(bookmark))
        server = server.put(bookmark.message, self.place(item, instance))
        waited = sorted(note for note in server.deferred if note.bookmark == bookmark)
        server = server._replace(deferred=server.deferred.difference(waited))
        for note in waited:
            server = self.tell(server, instance, note)
        return server

    def tell(self, server: Server, instance: int, note: Note) -> Server:
        """Part of `apply`: what another instance journaled of a message."""
        item = server.find(note.bookmark)
        if item is None:
            return server._replace(deferred=server.deferred | {note}) if self.is_deferred(server, note) else server
        message = note.bookmark.message
        if item.where in (GONE, TRIMMED):
            return server
        if note.how == SETTLED:
            return server.put(message, item.settled())
        if not self.concerns(item, note) or not self.is_newer(item, note):
            return server
        return server.put(message, self.place(item._replace(owner=note.owner, epoch=note.epoch), instance))

    def apply(self, server: Server, instance: int, batch: Batch) -> Server:
        """`apply`: what a link brings; the same server where nothing is new or the batch is refused."""
        if self.is_closed(server, batch):
            return server
        return (self.apply_log if batch.kind == LOG else self.apply_journal)(server, instance, batch)

    def apply_log(self, server: Server, instance: int, batch: Batch) -> Server:
        origin, mark = batch.origin, server.received[batch.origin]
        known = server.kept_out[origin]
        if not self.follows(mark, batch.start) or not self.is_same_filter(known, batch.kept_out):
            return server
        before = server
        for entry in batch.entries:
            if self.is_passed(mark, entry.id):
                continue
            if self.must_wait(server, entry):
                return before
            # `received` first: what is told of this entry is told of one that is here.
            server = server._replace(
                received=(*server.received[:origin], max(mark, entry.id), *server.received[origin + 1 :])
            )
            server = self.record(server, instance, entry)
        mark = max(mark, batch.upto)
        if mark == before.received[origin] and server is before:
            return before
        kept_out = (*server.kept_out[:origin], batch.kept_out, *server.kept_out[origin + 1 :])
        return self.pass_over(server._replace(kept_out=kept_out), origin, mark)

    def pass_over(self, server: Server, origin: int, mark: int) -> Server:
        """Part of `apply`: up to there an origin's messages are here, or never will be."""
        server = server._replace(received=(*server.received[:origin], mark, *server.received[origin + 1 :]))
        passed = [n for n in server.deferred if n.bookmark.origin == origin and not self.is_deferred(server, n)]
        return server._replace(deferred=server.deferred.difference(passed)) if passed else server

    def apply_journal(self, server: Server, instance: int, batch: Batch) -> Server:
        origin, mark = batch.origin, len(server.journals[batch.origin])
        if not self.follows(mark, batch.start):
            return server
        for number, note in enumerate(batch.entries, batch.start + 1):
            if self.is_passed(mark, number):
                continue
            server = self.tell(self.journal(server, origin, note), instance, note)
        return server

    def journal(self, server: Server, origin: int, note: Note) -> Server:
        written = (*server.journals[origin], note)
        return server._replace(journals=(*server.journals[:origin], written, *server.journals[origin + 1 :]))

    def take(self, server: Server, message: int, holder: int) -> Server | None:
        """`take`, or a push: lease a message that is ready, and behind no barrier."""
        item = server.items[message]
        if item is None or item.where != READY or not self.delivers(server) or message in self.scenario.barriers:
            return None
        for earlier in server.log[: server.log.index(message)]:
            if earlier in self.scenario.barriers and server.items[earlier].where != GONE:
                return None
        token = server.token + 1 if holder else 0
        leased = item._replace(where=LEASED, lease=Lease(item.bookmark, item.epoch, token, holder))
        return server.put(message, leased)._replace(token=token)

    def send_barrier(self, server: Server, message: int) -> Server | None:
        """Part of every script that settles: a barrier goes out, and no other instance is told."""
        item = server.items[message]
        if item is None or item.where == GONE or not self.delivers(server):
            return None
        before = (server.items[m] for m in server.log[: server.log.index(message)])
        return server.put(message, item._replace(where=GONE)) if self.may_send_barrier(before) else None

    def ack(self, server: Server, instance: int, message: int, held: Lease) -> Server | None:
        """`settle`: the holder of the lease ends the message, whoever owns it by now."""
        item = server.items[message]
        if item is None or item.where in (GONE, TRIMMED) or not self.is_held_by(item.lease, held):
            return None
        return self.journal(
            server.put(message, item.settled()), self.origin_of(server, instance), Note(SETTLED, item.bookmark)
        )

    def lapse(self, server: Server, instance: int, message: int) -> Server | None:
        """`sweep`, `settle` with cancel: a leased message comes back."""
        item = server.items[message]
        if item is None or item.where != LEASED:
            return None
        return server.put(message, self.place_returned(item, instance))

    def grant(self, server: Server, instance: int, message: int, to: int) -> Server | None:
        """`grant`: the owner hands a message over that nobody here wants."""
        item = server.items[message]
        if item is None or not self.may_grant(item) or item.owner != instance or not self.delivers(server):
            return None
        return self.hand_over(server, instance, item, to)

    def grant_proxied(self, server: Server, instance: int, message: int, to: int) -> Server | None:
        """The operator's word: hand over in the name of an owner that nobody hears of."""
        item = server.items[message]
        if item is None or item.where != REMOTE or not self.delivers(server):
            return None
        return self.hand_over(server, instance, item, to)

    def hand_over(self, server: Server, instance: int, item: Item, to: int) -> Server:
        origin = self.origin_of(server, instance)
        epoch = Epoch(item.epoch.number + 1, origin)
        moved = self.place(item._replace(owner=to, epoch=epoch), instance)
        note = Note(TRANSFERRED, item.bookmark, to, epoch)
        return self.journal(server.put(item.bookmark.message, moved), origin, note)

    def trim(self, server: Server, message: int) -> Server | None:
        """`trim`: forget the body of a message that is settled here; that its publisher sent it stays known."""
        item = server.items[message]
        if item is None or item.where != GONE:
            return None
        trimmed = server.put(message, item._replace(where=TRIMMED))
        return trimmed._replace(log=tuple(m for m in server.log if m != message))

    def begin_incarnation(self, server: Server, instance: int) -> Server:
        """A server that was restored or emptied: leases are void, and nothing is delivered until it knows more."""
        items = tuple(self.place_returned(i, instance) if i and i.where == LEASED else i for i in server.items)
        return server._replace(incarnation=server.incarnation + 1, items=items, recovering=True)

    def close(self, server: Server, origin: int) -> Server:
        """`close`: from now on nothing is taken that was read from an incarnation that is over."""
        return server._replace(closed=server.closed | {origin})

    def resume(self, server: Server, origin: int) -> Server:
        """`resume`: a new incarnation has all that is left of the last one, which ends here, for all."""
        return self.pass_over(server._replace(recovering=False), origin, END)
