"""Events of instances that share queues: what users and links do, and what breaks.

A `World` is the servers, what is on its way between them, and what an observer knows. One step is one script call at
one server, since a server runs scripts one at a time, or one fault. Which are possible is in `ownership_steps.py`.

What keeps it small, and leaves nothing out: a link brings one entry a call (a larger batch is several calls with
nothing between); requests are never used up, since they may come twice and late, and need not be answered; where no
crash is left to come everything is durable at once, since what is not yet seen may as well be not yet read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ownership_model import (
    GONE,
    JOURNAL,
    LOG,
    REMOTE,
    TRIMMED,
    Batch,
    Bookmark,
    Item,
    Lease,
    Protocol,
    Scenario,
    Server,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


class Instance(NamedTuple):
    """A server as it is, as its disk has it, and as a backup has it."""

    now: Server
    durable: Server
    backup: Server | None = None


class Budget(NamedTuple):
    """Numbers of events that may still happen, by kind."""

    crashes: int
    grants: int
    failovers: int
    proxied: int
    restores: int
    late: int
    deliveries: int
    backups: int


class Ack(NamedTuple):
    """An acknowledgement that was accepted, under what the lease was given, and where, or -1: may be forgotten."""

    message: int
    bookmark: Bookmark
    instance: int


class World(NamedTuple):
    """Servers, what is under way, and what an observer knows of all of them."""

    instances: tuple[Instance, ...]
    budget: Budget
    clocks: tuple[int, ...]
    sessions: tuple[tuple[int, int], ...]
    requests: frozenset[tuple[int, int]] = frozenset()
    under_way: frozenset[tuple[int, Batch]] = frozenset()
    held: frozenset[tuple[int, int, Lease]] = frozenset()
    pending: frozenset[Ack] = frozenset()
    confirmed: frozenset[Ack] = frozenset()
    proxied: frozenset[int] = frozenset()
    wrong: str = ""


class Acts:
    """One step of each kind is a method; it gives the world behind it, or None where nothing happens."""

    def __init__(self, protocol: Protocol) -> None:
        self.protocol = protocol
        self.scenario: Scenario = protocol.scenario
        self.numbers = range(self.scenario.instances)
        self.messages = range(self.scenario.messages)
        self.subscribers = self.numbers if self.scenario.subscribers is None else self.scenario.subscribers

    def beginning(self) -> World:
        """Nothing published, nothing lost."""
        s = self.scenario
        instance = Instance(self.empty(0), self.empty(0), self.empty(0) if s.restores else None)
        limits = (s.crashes, s.grants, s.failovers, s.proxied, s.restores, s.late, s.deliveries, int(s.backup))
        sessions = tuple((publisher.home, 0) for publisher in s.publishers)
        return World((instance,) * s.instances, Budget(*limits), (0,) * s.origins, sessions)

    def empty(self, incarnation: int) -> Server:
        s = self.scenario
        return Server(incarnation, (), (None,) * s.messages, (0,) * s.origins, (None,) * s.origins, ((),) * s.origins)

    # Parts of steps.

    def put(self, world: World, number: int, server: Server) -> World:
        """The world with another state of one server, durable at once where that server will not crash."""
        instance = world.instances[number]
        volatile = world.budget.crashes and number in self.scenario.mortal
        changed = Instance(server, instance.durable if volatile else server, instance.backup)
        world = world._replace(instances=(*world.instances[:number], changed, *world.instances[number + 1 :]))
        return world if volatile else self.confirm(world)

    def confirm(self, world: World) -> World:
        """Confirm what an observer may hold for confirmed: durable where it was settled, with sync links everywhere."""
        if not world.pending:
            return world
        sure = frozenset(ack for ack in world.pending if self.is_sure(world, ack))
        return world._replace(pending=world.pending - sure, confirmed=world.confirmed | sure) if sure else world

    def is_sure(self, world: World, ack: Ack) -> bool:
        where = self.numbers if self.scenario.sync else (ack.instance,)
        items = (world.instances[number].durable.items[ack.message] for number in where)
        return all(item and item.where in (GONE, TRIMMED) for item in items)

    def spend(self, world: World, what: str) -> World:
        return world._replace(budget=world.budget._replace(**{what: getattr(world.budget, what) - 1}))

    # Publishers and consumers.

    def publish(self, world: World, publisher: int) -> World | None:
        at, place = world.sessions[publisher]
        messages = self.scenario.publishers[publisher].messages
        if place == len(messages):
            return None
        message, server = messages[place], world.instances[at].now
        origin = self.protocol.origin_of(server, at, message)
        published = self.protocol.publish(server, at, message, world.clocks[origin] + 1)
        if published is None:
            return None
        world = world._replace(sessions=_with(world.sessions, publisher, (at, place + 1)))
        if published is server:
            missing = server.items[message] is None
            return world._replace(wrong="a publisher was told that a lost message is recorded") if missing else world
        world = world._replace(clocks=_with(world.clocks, origin, world.clocks[origin] + 1))
        return self.put(world, at, published)

    def fail_over(self, world: World, publisher: int, to: int, place: int) -> World | None:
        """A publisher goes to another instance, or to its own again, and sends again what it was not told is safe."""
        messages = self.scenario.publishers[publisher].messages
        if place > world.sessions[publisher][1] or world.sessions[publisher] == (to, place):
            return None
        if not all(self.is_persisted(world, message) for message in messages[:place]):
            return None
        return self.spend(world._replace(sessions=_with(world.sessions, publisher, (to, place))), "failovers")

    def is_persisted(self, world: World, message: int) -> bool:
        kept = [instance.durable.items[message] is not None for instance in world.instances]
        return all(kept) if self.scenario.sync else any(kept)

    def take(self, world: World, number: int, message: int) -> World | None:
        # Each delivery has a holder of its own where there are few; else those of all are the same.
        taken = self.protocol.take(world.instances[number].now, message, world.budget.deliveries)
        if taken is None:
            return None
        lease = taken.items[message].lease
        if message not in world.proxied and any(a[:2] == (message, lease.bookmark) for a in world.confirmed):
            return world._replace(wrong="a delivery after a confirmed acknowledgement")
        if self.scenario.deliveries:
            world = self.spend(world._replace(held=world.held | {(number, message, lease)}), "deliveries")
        return self.put(world, number, taken)

    def ack(self, world: World, number: int, message: int, held: Lease) -> World | None:
        before = world.instances[number].now
        after = self.protocol.ack(before, number, message, held)
        if after is None:
            return None
        item = before.items[message]
        ack = Ack(message, held.bookmark, number)
        twice = any(other[:2] == ack[:2] and other.instance >= 0 for other in world.pending | world.confirmed)
        if twice and message not in world.proxied:
            return world._replace(wrong="two acknowledgements of one message were accepted")
        if item.lease != held:
            return world._replace(wrong="an acknowledgement without its lease was accepted")
        return self.put(world._replace(pending=world.pending | {ack}), number, after)

    # Hand-over.

    def request(self, world: World, number: int, message: int) -> World | None:
        item = world.instances[number].now.items[message]
        asked = (message, number)
        if asked in world.requests or item is None or item.where != REMOTE or item.lease:
            return None
        return world._replace(requests=world.requests | {asked})

    def grant(self, world: World, number: int, message: int, to: int) -> World | None:
        granted = self.protocol.grant(world.instances[number].now, number, message, to)
        return None if granted is None else self.spend(self.put(world, number, granted), "grants")

    def grant_proxied(self, world: World, number: int, message: int, to: int) -> World | None:
        granted = self.protocol.grant_proxied(world.instances[number].now, number, message, to)
        if granted is None:
            return None
        world = world._replace(proxied=world.proxied | {message})
        return self.spend(self.put(world, number, granted), "proxied")

    # Links.

    def carries(self, source: int, target: int, origin: int) -> bool:
        """Own origins; by pass-through all; and to an instance what it had before it was restored or emptied."""
        return self.scenario.links[source, target] or self.protocol.name_of(origin) in (source, target)

    def origins_of(self, item: Item) -> tuple[Bookmark, ...]:
        """Under which bookmarks an instance passes a message on: all that it knows of."""
        return item.bookmarks

    def readable(self, instance: Instance) -> Server:
        """Return what peers may see: what is durable."""
        return instance.durable

    def read(self, world: World, link: tuple[int, int], kind: str, origin: int, start: int) -> Batch | None:
        """The next entry of one origin behind `start`, as one call of a link reads it; nothing new: None."""
        source, target = link
        server = self.readable(world.instances[source])
        if not self.carries(source, target, origin):
            return None
        own = self.protocol.origin_of(server, source)
        if kind == JOURNAL:
            notes = server.journals[origin][start : start + 1]
            return Batch(JOURNAL, own, origin, start, start + 1, notes) if notes else None
        if server.received[origin] <= start:
            return None
        link_filter = self.scenario.filters.get((source, target), frozenset())
        kept_out = (server.kept_out[origin] or frozenset()) | link_filter
        waiting = [
            bookmark
            for item in server.items
            if item and item.where != TRIMMED
            for bookmark in self.origins_of(item)
            if bookmark.origin == origin and bookmark.id > start
        ]
        if not waiting:
            return Batch(LOG, own, origin, start, server.received[origin], (), kept_out)
        bookmark = min(waiting)
        entries = () if bookmark.message in link_filter else (bookmark,)
        return Batch(LOG, own, origin, start, bookmark.id, entries, kept_out)

    def mark(self, server: Server, kind: str, origin: int) -> int:
        return server.received[origin] if kind == LOG else len(server.journals[origin])

    def link_reads(self, world: World) -> Iterator[tuple[str, int, int, Batch]]:
        for source, target in self.scenario.links:
            server = world.instances[target].now
            for origin in range(self.scenario.origins):
                for kind in (LOG, JOURNAL):
                    start = self.mark(server, kind, origin)
                    batch = self.read(world, (source, target), kind, origin, start)
                    if batch:
                        yield kind, source, target, batch

    def apply(self, world: World, target: int, batch: Batch) -> World | None:
        server = world.instances[target].now
        applied = self.protocol.apply(server, target, batch)
        return None if applied is server or applied == server else self.put(world, target, applied)

    # What breaks.

    def fsync(self, world: World, number: int) -> World | None:
        instance = world.instances[number]
        if instance.now == instance.durable:
            return None
        saved = instance._replace(durable=instance.now)
        return self.confirm(world._replace(instances=_with(world.instances, number, saved)))

    def crash(self, world: World, number: int) -> World | None:
        """Killed and started again, as the same incarnation: what was not durable is gone, and nobody has seen it."""
        instance = world.instances[number]
        if instance.now == instance.durable:
            return None
        lost = frozenset(
            ack for ack in world.pending if ack.instance == number and not self.is_settled(ack, instance.durable)
        )
        world = self.spend(world._replace(pending=world.pending - lost), "crashes")
        world = world._replace(instances=_with(world.instances, number, instance._replace(now=instance.durable)))
        if world.budget.crashes:
            return world
        instances = tuple(other._replace(durable=other.now) for other in world.instances)
        return self.confirm(world._replace(instances=instances))

    def is_settled(self, ack: Ack, server: Server) -> bool:
        item = server.items[ack.message]
        return bool(item) and item.where in (GONE, TRIMMED)

    def back_up(self, world: World, number: int) -> World | None:
        instance = world.instances[number]
        if instance.backup == instance.durable:
            return None
        saved = instance._replace(backup=instance.durable)
        return self.spend(world._replace(instances=_with(world.instances, number, saved)), "backups")

    def restore(self, world: World, number: int) -> World | None:
        """An older state, or none at all, under a new incarnation."""
        instance = world.instances[number]
        if instance.now == instance.backup:
            return None
        server = self.protocol.begin_incarnation(instance.backup, number)
        # What it had not told everybody may be forgotten, or still be on its way: either is right.
        pending = frozenset(ack._replace(instance=-1) if ack.instance == number else ack for ack in world.pending)
        world = self.spend(world._replace(pending=pending), "restores")
        return world._replace(instances=_with(world.instances, number, Instance(server, server, None)))

    def close(self, world: World, number: int, peer: int) -> World | None:
        """A new incarnation tells a peer that the last one is over, before it asks what the peer has of it."""
        server = world.instances[number].now
        last = self.protocol.origin_of(server, number) - self.scenario.instances
        if not server.recovering or last in world.instances[peer].now.closed:
            return None
        return self.put(world, peer, self.protocol.close(world.instances[peer].now, last))

    def resume(self, world: World, number: int) -> World | None:
        """A new incarnation delivers again once every peer has closed the last one, and all that they have is here."""
        server = world.instances[number].now
        if not server.recovering:
            return None
        last = self.protocol.origin_of(server, number) - self.scenario.instances
        for source, target in self.scenario.links:
            if target == number and not self.is_fetched(world, source, number, last):
                return None
        return self.put(world, number, self.protocol.resume(server, last))

    def is_fetched(self, world: World, source: int, number: int, last: int) -> bool:
        peer, server = world.instances[source].durable, world.instances[number].now
        if last not in peer.closed:
            return False
        kinds = ((kind, origin) for kind in (LOG, JOURNAL) for origin in range(self.scenario.origins))
        return all(
            self.mark(server, kind, origin) >= self.mark(peer, kind, origin)
            for kind, origin in kinds
            if self.carries(source, number, origin)
        )

    def trim(self, world: World, number: int, message: int) -> World | None:
        item = world.instances[number].now.items[message]
        if item is None or item.where != GONE or not self.is_everywhere(world, number, item):
            return None
        return self.put(world, number, self.protocol.trim(world.instances[number].now, message))

    def is_everywhere(self, world: World, number: int, item: Item) -> bool:
        """Return whether every destination has it for good."""
        targets = [world.instances[target].durable for source, target in self.scenario.links if source == number]
        return all(target.received[b.origin] >= b.id for target in targets for b in item.bookmarks)


def _with(values: tuple, place: int, value: object) -> tuple:
    return (*values[:place], value, *values[place + 1 :])
