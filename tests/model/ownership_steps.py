"""Possible steps of a world, and their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ownership_model import GONE, JOURNAL, LEASED, LOG, READY, Bookmark, Note
from ownership_world import Acts, World

if TYPE_CHECKING:
    from collections.abc import Iterator

Step = tuple[object, ...]
Next = tuple[Step, World | None]
_NAMES = "ABC"


class Steps(Acts):
    """All that may happen next; `of` gives each step with the world behind it, or None where it does nothing."""

    def of(self, world: World) -> Iterator[Next]:
        """Each step from here."""
        for publisher in range(len(self.scenario.publishers)):
            yield ("publish", world.sessions[publisher][0], publisher), self.publish(world, publisher)
        for number in self.numbers:
            for message in self.messages:
                yield from self.of_consumers(world, number, message)
                yield from self.of_owners(world, number, message)
        for number, message, lease in world.held:
            yield ("ack", number, message, lease.token), self.ack(world, number, message, lease)
        yield from self.of_links(world)
        if world.under_way or world.budget.late:
            yield from self.of_late_calls(world)
        if self.scenario.replays:
            yield from self.of_replays(world)
        for number in self.numbers:
            if world.instances[number].now.recovering:
                yield from self.of_recovery(world, number)
        yield from self.of_faults(world)
        if world.budget.failovers:
            yield from self.of_publishers(world)

    def of_consumers(self, world: World, number: int, message: int) -> Iterator[Next]:
        """Yield what subscriptions, `sweep` and `trim` do to a message of an instance."""
        server = world.instances[number].now
        where = server.items[message] and server.items[message].where
        few = self.scenario.deliveries
        if where == READY and number in self.subscribers and (world.budget.deliveries or not few):
            yield ("take", number, message), self.take(world, number, message)
        if where == READY and message in self.scenario.barriers:
            sent = self.protocol.send_barrier(server, message)
            yield ("barrier", number, message), sent and self.put(world, number, sent)
        if where == LEASED:
            if not few:
                yield ("ack", number, message), self.ack(world, number, message, server.items[message].lease)
            lapsed = self.protocol.lapse(server, number, message)
            yield ("lapse", number, message), self.put(world, number, lapsed)
        if where == GONE and self.scenario.trims:
            yield ("trim", number, message), self.trim(world, number, message)

    def of_owners(self, world: World, number: int, message: int) -> Iterator[Next]:
        """Yield how a message of an instance is asked for and handed over."""
        if world.instances[number].now.items[message] is None or message in self.scenario.barriers:
            return
        if world.budget.proxied:
            yield ("grant proxied", number, message), self.grant_proxied(world, number, message, number)
        if world.budget.grants:
            if number in self.subscribers:
                yield ("request", number, message), self.request(world, number, message)
            for to in self.numbers:
                if to != number and self.may_go_to(world, message, to):
                    yield ("grant", number, message, to), self.grant(world, number, message, to)

    def may_go_to(self, world: World, message: int, to: int) -> bool:
        """Return whether an instance ever asked for a message."""
        return (message, to) in world.requests

    def of_links(self, world: World) -> Iterator[Next]:
        """Yield what a link brings next, of each stream of each origin; or reads, and then is held up with it."""
        for kind, source, target, batch in self.link_reads(world):
            yield (f"apply {kind}", target, source, batch.entries), self.apply(world, target, batch)
            if world.budget.late and (target, batch) not in world.under_way:
                held_up = world._replace(under_way=world.under_way | {(target, batch)})
                yield ("hold up", target, source, batch.entries), self.spend(held_up, "late")

    def of_late_calls(self, world: World) -> Iterator[Next]:
        """Calls that were held up, and arrive at any time, as often as they like."""
        for target, batch in world.under_way:
            yield ("apply late", target, batch.entries), self.apply(world, target, batch)

    def of_replays(self, world: World) -> Iterator[Next]:
        """A link that reads again from any earlier place."""
        for source, target in self.scenario.links:
            for origin in range(self.scenario.origins):
                for kind in (LOG, JOURNAL):
                    for start in range(self.mark(world.instances[target].now, kind, origin)):
                        batch = self.read(world, (source, target), kind, origin, start)
                        if batch:
                            yield ("apply again", target, source, batch.entries), self.apply(world, target, batch)

    def of_recovery(self, world: World, number: int) -> Iterator[Next]:
        """Yield what a new incarnation does of itself."""
        for peer in self.numbers:
            if (number, peer) in self.scenario.links or (peer, number) in self.scenario.links:
                yield ("apply close", peer, number), self.close(world, number, peer)
        yield ("apply resume", number), self.resume(world, number)

    def of_faults(self, world: World) -> Iterator[Next]:
        """Yield what happens to servers."""
        left = world.budget
        for number in self.scenario.mortal:
            if left.crashes:
                yield ("fsync", number), self.fsync(world, number)
                yield ("crash", number), self.crash(world, number)
            if left.backups:
                yield ("back up", number), self.back_up(world, number)
            if left.restores:
                yield ("restore", number), self.restore(world, number)

    def of_publishers(self, world: World) -> Iterator[Next]:
        """A publisher with a name goes to any instance, and begins at any message that it need not send again."""
        for at, publisher in enumerate(self.scenario.publishers):
            if publisher.named:
                for to in self.numbers:
                    for place in range(len(publisher.messages)):
                        yield ("fail over", to, at, place), self.fail_over(world, at, to, place)

    def describe(self, step: Step) -> str:
        """A step as a line of a trace: what, where, of what."""
        verb, number, *rest = step
        words = [f"{verb} at {_NAMES[number]}"]
        if rest and isinstance(rest[-1], tuple):
            words += [f"from {_NAMES[source]}" for source in rest[:-1]]
            words.append(", ".join(self.describe_entry(entry) for entry in rest[-1]) or "nothing")
        elif verb == "apply close":
            words.append(f"the last incarnation of {_NAMES[rest[0]]}")
        elif verb == "fail over":
            words.append(f"from message {rest[1]}")
        elif rest and verb != "publish":
            words.append(f"message {rest[0]}")
        if verb == "grant":
            words.append(f"to {_NAMES[rest[-1]]}")
        return " ".join(words)

    def describe_entry(self, entry: Bookmark | Note) -> str:
        """A bookmark or a note as they would be written."""
        if isinstance(entry, Bookmark):
            number = entry.origin // self.scenario.instances
            incarnation, topic = number % (1 + self.scenario.restores), number // (1 + self.scenario.restores)
            name = _NAMES[self.protocol.name_of(entry.origin)]
            return f"{name}{'/2' * incarnation}~{entry.id}{' of the other topic' * topic}"
        told = f"{entry.how} {self.describe_entry(entry.bookmark)}"
        return told if entry.owner < 0 else f"{told} to {_NAMES[entry.owner]} epoch {entry.epoch.number}"
