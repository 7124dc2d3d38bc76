"""Every world that can be reached, breadth first, and what must hold in each of them.

The first world that breaks a rule is reached by as few steps as any; `Found.trace` names them.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ownership_model import GONE, READY, TRIMMED, Epoch, Item, Protocol

if TYPE_CHECKING:
    from ownership_steps import Step, Steps
    from ownership_world import World


@dataclass(frozen=True)
class Found:
    """The result of a search. `broken`: the rule broken in the world behind `trace`, '' where all hold."""

    states: int
    transitions: int
    quiet: int
    seconds: float
    broken: str = ""
    trace: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.broken:
            return f"holds: {self.states:,} states, {self.transitions:,} transitions, {self.seconds:.1f} s"
        steps = "\n".join(f"  {number}. {step}" for number, step in enumerate(self.trace, 1))
        return f"{self.broken}, after {len(self.trace)} steps:\n{steps}"


class TooManyStates(Exception):
    """A scenario is larger than its search may be: nothing is known about it."""


def search(steps: Steps, most: int = 3_000_000) -> Found:
    """Look at every world that steps lead to; ends with the first broken rule.

    Raises:
        TooManyStates: more than `most` worlds.

    """
    began, rules = time.perf_counter(), Rules(steps)
    beginning = steps.beginning()
    came_from: dict[World, tuple[World, Step] | None] = {beginning: None}
    edge, transitions, quiet = [beginning], 0, 0
    while edge:
        following = []
        for world in edge:
            reading = False
            for step, target in steps.of(world):
                if target is None or target == world:
                    continue
                transitions += 1
                reading = reading or step[0].startswith("apply")
                if target in came_from:
                    continue
                came_from[target] = (world, step)
                broken = target.wrong or rules.broken_by(world, target, step)
                if broken:
                    trace = _trace(steps, came_from, target)
                    return Found(len(came_from), transitions, quiet, time.perf_counter() - began, broken, trace)
                following.append(target)
            if not reading and all(instance.now == instance.durable for instance in world.instances):
                quiet += 1
                broken = rules.broken_when_quiet(world)
                if broken:
                    trace = _trace(steps, came_from, world)
                    return Found(len(came_from), transitions, quiet, time.perf_counter() - began, broken, trace)
        if len(came_from) > most:
            raise TooManyStates(f"{len(came_from):,} worlds, and more to come: make the scenario smaller")
        edge = following
    return Found(len(came_from), transitions, quiet, time.perf_counter() - began)


def _trace(steps: Steps, came_from: dict[World, tuple[World, Step] | None], world: World) -> tuple[str, ...]:
    told = []
    while origin := came_from[world]:
        world, step = origin
        told.append(steps.describe(step))
    return tuple(reversed(told))


class Rules:
    """Rules that must hold: in every world, at every step, and where everything is read."""

    def __init__(self, steps: Steps) -> None:
        self.protocol: Protocol = steps.protocol
        self.scenario = steps.scenario
        self.steps = steps

    def broken_by(self, before: World, after: World, step: Step) -> str:
        """The first rule that a step broke, or ''."""
        for number, (was, now) in enumerate(zip(before.instances, after.instances, strict=True)):
            if was is not now:
                found = self.broken_in_one(after, number) or (
                    "" if step[0] in ("crash", "restore") else self.broken_by_change(before, after, number)
                )
                if found:
                    return found
        for message in range(self.scenario.messages):
            found = self.broken_between(after, message)
            if found:
                return found
        return ""

    def broken_in_one(self, world: World, number: int) -> str:
        server = world.instances[number].now
        if len(set(server.log)) != len(server.log):
            return "a message was recorded twice"
        for publisher in self.scenario.publishers:
            if publisher.named:
                order = [m for m in server.log if m in publisher.messages]
                if any(a > b and self.protocol.is_same_topic(a, b) for a, b in itertools.pairwise(order)):
                    return "a publisher's messages are out of order"
        for place, barrier in enumerate(server.log):
            if barrier in self.scenario.barriers and server.items[barrier].where == GONE:
                before = [server.items[m].where for m in server.log[:place]]
                if not set(before) <= {GONE, TRIMMED}:
                    return "a barrier was sent before all earlier messages were settled"
        return self.incomplete(world, number)

    def incomplete(self, world: World, number: int) -> str:
        """`received` must be true: all below it that passes the filter, and is durable anywhere, is here."""
        server = world.instances[number].now
        for instance in world.instances:
            for item in instance.durable.items:
                for bookmark in item.bookmarks if item and item.where != TRIMMED else ():
                    kept_out = server.kept_out[bookmark.origin] or ()
                    if server.received[bookmark.origin] < bookmark.id or bookmark.message in kept_out:
                        continue
                    if server.items[bookmark.message] is None:
                        return "a message is missing below `received`"
        return ""

    def broken_by_change(self, before: World, after: World, number: int) -> str:
        """Epochs never fall, of the bookmark that counts; and that changes for a lower one only."""
        pairs = zip(before.instances[number].now.items, after.instances[number].now.items, strict=True)
        for was, now in pairs:
            if was and now and was is not now and now.where not in (GONE, TRIMMED):
                higher = now.bookmark > was.bookmark
                if higher or (now.bookmark == was.bookmark and now.epoch < was.epoch):
                    return "an epoch fell"
        return ""

    def broken_between(self, world: World, message: int) -> str:
        """One owner, one lease; gone means that somebody's acknowledgement was accepted."""
        if message in self.scenario.barriers:
            return ""
        owners: set[object] = set()
        leases: set[object] = set()
        for number, instance in enumerate(world.instances):
            item = instance.now.items[message]
            if item is None:
                continue
            if item.where == GONE and not any(a.message == message for a in world.pending | world.confirmed):
                return "a message is settled, and no acknowledgement was accepted"
            # The operator's word allows one owner an epoch instead of one in all.
            by_epoch = message in world.proxied
            if self.is_owner(world, number, item):
                claim = (item.bookmark, item.epoch if by_epoch else Epoch())
                if claim in owners:
                    return "two owners"
                owners.add(claim)
            if item.lease:
                claim = (item.lease.bookmark, item.lease.epoch if by_epoch else Epoch())
                if claim in leases:
                    return "two leases"
                leases.add(claim)
        return ""

    def is_owner(self, world: World, number: int, item: Item) -> bool:
        recovering = world.instances[number].now.recovering
        return item.where not in (GONE, TRIMMED) and item.owner == number and not recovering

    def broken_when_quiet(self, world: World) -> str:
        """With everything read and durable: nothing waits, and all know the same of every message."""
        if any(instance.now.recovering for instance in world.instances):
            return "" if world.budget.restores else "a new incarnation waits for ever"
        for source, target in self.scenario.links:
            for origin in range(self.scenario.origins):
                if self.is_behind(world, source, target, origin):
                    return "a link is stuck"
        if any(instance.now.deferred for instance in world.instances):
            return "a report on a message waits for ever"
        for message in range(self.scenario.messages):
            found = "" if message in self.scenario.barriers else self.disagreement(world, message)
            if found:
                return found
        return ""

    def is_behind(self, world: World, source: int, target: int, origin: int) -> bool:
        here, there = world.instances[target].now, world.instances[source].now
        if origin in here.closed and there.incarnation == 0:
            return False
        behind = here.received[origin] < there.received[origin] or len(here.journals[origin]) < len(
            there.journals[origin]
        )
        return behind and self.steps.carries(source, target, origin)

    def disagreement(self, world: World, message: int) -> str:
        known = [(n, i.now.items[message]) for n, i in enumerate(world.instances) if i.now.items[message]]
        ended = [item.where in (GONE, TRIMMED) for _, item in known]
        restored = any(instance.now.incarnation for instance in world.instances)
        if not restored and any(item.where == TRIMMED for _, item in known) and self.is_missing(world, message):
            return "a message was trimmed before everybody had it"
        if any(ended):
            return "" if all(ended) else "settled at one instance, and not at another"
        if known and len({(item.bookmark, item.owner, item.epoch) for _, item in known}) > 1:
            return "two instances name different owners"
        owners = [number for number, item in known if self.is_owner(world, number, item)]
        if known and len(owners) != 1:
            return "no owner" if not owners else "two owners"
        return (
            ""
            if all((item.where == READY) <= (item.owner == n) for n, item in known)
            else "a message is ready at an instance that does not own it"
        )

    def is_missing(self, world: World, message: int) -> bool:
        """Return whether an instance lacks it, though no filter keeps it out of there."""
        servers = [instance.now for instance in world.instances]
        return any(s.items[message] is None and not any(message in (out or ()) for out in s.kept_out) for s in servers)
