# ruff: noqa: ARG002 - what a guard does not look at any more is what makes a variant
"""The protocol with one guard less each time, and a small scenario in which that shows."""
# Long: one table: each mistake that the protocol could have, and what finds it.

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ownership_model import (
    GONE,
    LEASED,
    READY,
    REMOTE,
    TRIMMED,
    Batch,
    Bookmark,
    Epoch,
    Item,
    Lease,
    Note,
    Protocol,
    Server,
)
from ownership_scenarios import SMALL
from ownership_steps import Next, Steps

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ownership_world import Instance, World


class GrantByCall(Steps):
    """The new owner is told by a call, and the old one gives up when it hears that it arrived."""

    def grant(self, world: World, number: int, message: int, to: int) -> World | None:
        if self.protocol.grant(world.instances[number].now, number, message, to) is None:
            return None
        server = world.instances[to].now
        item = server.items[message]
        told = item._replace(where=READY, owner=to, epoch=Epoch(item.epoch.number + 1, number))
        return self.spend(self.put(world, to, server.put(message, told)), "grants")


class SeizeByTimeout(Steps):
    """A variant in which an instance that has not heard of the owner for a while owns the message."""

    def of_owners(self, world: World, number: int, message: int) -> Iterator[Next]:
        yield from super().of_owners(world, number, message)
        server = world.instances[number].now
        item = server.items[message]
        if item and item.where == REMOTE:
            seized = server.put(message, item._replace(where=READY, owner=number))
            yield ("seize", number, message), self.put(world, number, seized)


class GrantUnasked(Steps):
    """The owner hands over to whom it likes."""

    def may_go_to(self, world: World, message: int, to: int) -> bool:
        return True


class ForgetDeferred(Steps):
    """A variant in which a report on a message that is not here yet is forgotten after a while."""

    def of_faults(self, world: World) -> Iterator[Next]:
        yield from super().of_faults(world)
        for number in self.numbers:
            forgetful = world.instances[number].now._replace(deferred=frozenset())
            yield ("forget deferred", number), self.put(world, number, forgetful)


class ReadVolatile(Steps):
    """Peers read what may still be lost."""

    def readable(self, instance: Instance) -> Server:
        return instance.now


class ForwardEntriesOnly(Steps):
    """A bookmark that was mapped to an entry is not passed on."""

    def origins_of(self, item: Item) -> tuple[Bookmark, ...]:
        return (item.recorded_as,)


class NeverBack(Steps):
    """Nothing goes to an instance that it passed, also not after that lost it."""

    def carries(self, source: int, target: int, origin: int) -> bool:
        return self.protocol.name_of(origin) != target and super().carries(source, target, origin)


class TrimByVolatileMark(Steps):
    """A destination's mark counts before it is durable there."""

    def is_everywhere(self, world: World, number: int, item: Item) -> bool:
        targets = [world.instances[target].now for source, target in self.scenario.links if source == number]
        return all(target.received[b.origin] >= b.id for target in targets for b in item.bookmarks)


class NoEpoch(Protocol):
    def is_newer(self, item: Item, note: Note) -> bool:
        return True


class NoOrderOfEqualEpochs(Protocol):
    def is_newer(self, item: Item, note: Note) -> bool:
        return note.epoch.number > item.epoch.number


class NoReceived(Protocol):
    def is_passed(self, mark: int, number: int) -> bool:
        return False


class NoStart(Protocol):
    def follows(self, mark: int, start: int) -> bool:
        return True


class AnyFilter(Protocol):
    def is_same_filter(self, known: frozenset[int] | None, told: frozenset[int]) -> bool:
        return True


class NothingDeferred(Protocol):
    def is_deferred(self, server: Server, note: Note) -> bool:
        return False


class AllDeferred(Protocol):
    def is_deferred(self, server: Server, note: Note) -> bool:
        return True


class NoToken(Protocol):
    def is_held_by(self, lease: Lease | None, held: Lease) -> bool:
        return lease is not None


class TokenAlone(Protocol):
    def is_held_by(self, lease: Lease | None, held: Lease) -> bool:
        return lease is not None and lease.token == held.token


class HighestSequence(Protocol):
    def is_recorded(self, server: Server, message: int) -> bool:
        sent = self.publisher_of[message].messages
        return any(server.items[later] is not None for later in sent[sent.index(message) :])


class GrantLeased(Protocol):
    def may_grant(self, item: Item) -> bool:
        return item.where in (READY, LEASED)


class ReturnToReady(Protocol):
    def place_returned(self, item: Item, instance: int) -> Item:
        return item._replace(where=READY, lease=None)


class ReadyStaysReady(Protocol):
    def place(self, item: Item, instance: int) -> Item:
        return item if item.where == READY else super().place(item, instance)

    def hand_over(self, server: Server, instance: int, item: Item, to: int) -> Server:
        remote = item._replace(where=REMOTE)
        return super().hand_over(server.put(item.bookmark.message, remote), instance, remote, to)


class DoublesApart(Protocol):
    def is_double(self, server: Server, bookmark: Bookmark) -> Item | None:
        return None


class FirstHereCounts(Protocol):
    def map_double(self, item: Item, bookmark: Bookmark) -> Item:
        return item._replace(bookmarks=(*item.bookmarks, bookmark))


class TransfersOutliveTheirBookmark(Protocol):
    def map_double(self, item: Item, bookmark: Bookmark) -> Item:
        return super().map_double(item, bookmark)._replace(owner=item.owner, epoch=item.epoch)


class TransfersOfAnyBookmark(Protocol):
    def concerns(self, item: Item, note: Note) -> bool:
        return True


class TrimmingForgetsSequences(Protocol):
    def map_double(self, item: Item, bookmark: Bookmark) -> Item:
        mapped = super().map_double(item, bookmark)
        return mapped if item.where != TRIMMED else mapped._replace(where=REMOTE, owner=self.default_owner(bookmark))


class NoWaiting(Protocol):
    def must_wait(self, server: Server, bookmark: Bookmark) -> bool:
        return False


class PublishAhead(Protocol):
    def may_publish(self, server: Server, before: int | None) -> bool:
        return True


class DeliverAtOnce(Protocol):
    def delivers(self, server: Server) -> bool:
        return True


class NothingClosed(Protocol):
    def is_closed(self, server: Server, batch: Batch) -> bool:
        return False


class SameIncarnation(Protocol):
    def begin_incarnation(self, server: Server, instance: int) -> Server:
        return server


class LeasesOutliveTheirIncarnation(Protocol):
    def begin_incarnation(self, server: Server, instance: int) -> Server:
        return server._replace(incarnation=server.incarnation + 1, recovering=True)


class NoEnd(Protocol):
    def resume(self, server: Server, origin: int) -> Server:
        return server._replace(recovering=False)


class RemoteBarrier(Protocol):
    def may_send_barrier(self, before: Iterator[Item]) -> bool:
        return all(item.where in (GONE, REMOTE) for item in before)


@dataclass(frozen=True)
class Variant:
    """A guard that is missing, a scenario where that shows, and after how many steps which rule is broken."""

    guard: str
    without: type[Protocol | Steps]
    scenario: str
    steps: int
    broken: str

    def begin(self) -> Steps:
        """Return its steps, from the beginning."""
        scenario = SMALL[self.scenario]
        if issubclass(self.without, Protocol):
            return Steps(self.without(scenario))
        return self.without(Protocol(scenario))


VARIANTS = (
    Variant(
        "an owner grants by an entry of its journal, not by a call", GrantByCall, "two, one message", 4, "two owners"
    ),
    Variant(
        "no instance takes over a message because a time has passed",
        SeizeByTimeout,
        "two, one message",
        3,
        "two owners",
    ),
    Variant("a transfer counts only if its epoch is higher", NoEpoch, "three, two routes to each", 10, "an epoch fell"),
    Variant(
        "of two transfers with one epoch, that of the higher journal entry counts",
        NoOrderOfEqualEpochs,
        "the operator's word, twice",
        9,
        "two instances name different owners",
    ),
    Variant("a leased message is not granted", GrantLeased, "two, one message", 7, "two leases"),
    Variant(
        "a message is granted only to an instance that has it and asked for it",
        GrantUnasked,
        "three, a filter on one link",
        9,
        "no owner",
    ),
    Variant(
        "peers read only what is durable",
        ReadVolatile,
        "two, each may crash",
        6,
        "a message is settled, and no acknowledgement was accepted",
    ),
    Variant(
        "a report on a message that has not arrived waits for it",
        NothingDeferred,
        "three, two routes to each",
        7,
        "settled at one instance, and not at another",
    ),
    Variant(
        "such a report waits until `received` passes the message, without a time-out",
        ForgetDeferred,
        "three, two routes to each",
        8,
        "settled at one instance, and not at another",
    ),
    Variant(
        "a report on a message that was filtered out is dropped",
        AllDeferred,
        "three, a filter on one link",
        10,
        "a report on a message waits for ever",
    ),
    Variant(
        "an entry at or below `received` is passed over",
        NoReceived,
        "two, everything read again at any time",
        3,
        "a message was recorded twice",
    ),
    Variant(
        "a batch that begins above `received` is refused",
        NoStart,
        "two, a late call, one crash",
        6,
        "a message is missing below `received`",
    ),
    Variant(
        "all of one stream comes under one filter",
        AnyFilter,
        "three, another filter on another route",
        5,
        "a message is missing below `received`",
    ),
    Variant(
        "an acknowledgement needs the token of the lease",
        NoToken,
        "late acknowledgements, tokens that a crash gives again",
        5,
        "an acknowledgement without its lease was accepted",
    ),
    Variant(
        "an acknowledgement needs the holder of the lease, too",
        TokenAlone,
        "late acknowledgements, tokens that a crash gives again",
        6,
        "an acknowledgement without its lease was accepted",
    ),
    Variant(
        "a returned message goes to `remote` if another instance owns it",
        ReturnToReady,
        "the operator's word",
        6,
        "a message is ready at an instance that does not own it",
    ),
    Variant(
        "a transfer takes a message out of `ready`",
        ReadyStaysReady,
        "the operator's word",
        4,
        "a message is ready at an instance that does not own it",
    ),
    Variant(
        "a barrier waits for `remote` messages, too",
        RemoteBarrier,
        "a barrier",
        5,
        "a barrier was sent before all earlier messages were settled",
    ),
    Variant(
        "the log is trimmed by marks that are durable at the destination",
        TrimByVolatileMark,
        "trimming, one crash",
        8,
        "a message was trimmed before everybody had it",
    ),
    Variant(
        "sequences are compared exactly",
        HighestSequence,
        "two topics of one publisher",
        5,
        "a publisher was told that a lost message is recorded",
    ),
    Variant(
        "a doubled message is recorded once",
        DoublesApart,
        "doubled, the first copy lower",
        4,
        "a message was recorded twice",
    ),
    Variant(
        "of several bookmarks of a message the lowest counts",
        FirstHereCounts,
        "doubled, the first copy lower",
        5,
        "two instances name different owners",
    ),
    Variant(
        "a lower bookmark makes transfers under a higher one void",
        TransfersOutliveTheirBookmark,
        "doubled, the second copy lower",
        4,
        "two owners",
    ),
    Variant(
        "a transfer under a bookmark that does not count is passed over",
        TransfersOfAnyBookmark,
        "doubled, three instances",
        8,
        "two owners",
    ),
    Variant(
        "every bookmark of an entry is passed on",
        ForwardEntriesOnly,
        "doubled, in a chain",
        5,
        "a message is missing below `received`",
    ),
    Variant(
        "a publisher's sequences are remembered beyond trimming",
        TrimmingForgetsSequences,
        "doubled, trimming",
        9,
        "settled at one instance, and not at another",
    ),
    Variant(
        "a publisher's first message at another origin waits for the one before it",
        NoWaiting,
        "order, sync",
        7,
        "a publisher's messages are out of order",
    ),
    Variant(
        "a publisher's message is refused until the one before it is here",
        PublishAhead,
        "order, async",
        4,
        "a publisher's messages are out of order",
    ),
    Variant(
        "a server that was restored or emptied is a new incarnation",
        SameIncarnation,
        "emptied",
        6,
        "a report on a message waits for ever",
    ),
    Variant(
        "a new incarnation delivers nothing before it has fetched back what peers have",
        DeliverAtOnce,
        "emptied",
        8,
        "a delivery after a confirmed acknowledgement",
    ),
    Variant("before that, its peers stop reading its last incarnation", NothingClosed, "emptied", 7, "no owner"),
    Variant(
        "after that, it says where its last incarnation ended",
        NoEnd,
        "emptied",
        8,
        "a report on a message waits for ever",
    ),
    Variant(
        "the leases of the last incarnation are void",
        LeasesOutliveTheirIncarnation,
        "restored",
        8,
        "two acknowledgements of one message were accepted",
    ),
    Variant(
        "a message is sent again to an instance that it passed, if that has lost it",
        NeverBack,
        "emptied",
        5,
        "a message is missing below `received`",
    ),
)
