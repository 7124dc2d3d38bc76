"""Model of queues that judge messages: filters, priorities, barriers, a target depth.

A message here is `waiting` while it is unread and `ready` while it was read and waits, wherever the scripts keep it.
How much is read is taken from the server, as is how far a call came: `until`, the queue's last token afterwards.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from queue_model import BATCH, FAIRNESS, Model, Queue

LEAST, MOST = -1, 2**64 - 1


def level_of(value):
    """A priority: an unsigned number, or the lowest."""
    if value is None or (isinstance(value, str) and not value.isdigit()):
        return LEAST
    return min(max(int(value), 0), MOST)


FILTERS = {
    "/n < 3": lambda body: body["n"] < 3,
    "/n % 2 = 0": lambda body: body["n"] % 2 == 0,
    "/b = 1 OR /n = 0": lambda body: body["b"] == 1 or body["n"] == 0,
    "TRUE_VALUE()": lambda _: True,
    "/n = 99": lambda _: False,
}
ENTRIES = {
    "/n < 4": lambda body: body["n"] < 4,
    "NOT /n = 1": lambda body: body["n"] != 1,
    "/n > 1 OR /p IS NULL": lambda body: body["n"] > 1 or body["p"] is None,
}
PRIORITIES = {
    "/p": lambda body: level_of(body["p"]),
    "/n - 2": lambda body: level_of(body["n"] - 2),
}
BARRIERS = {
    "/b = 1": lambda body: body["b"] == 1,
    "/n = 4": lambda body: body["n"] == 4,
}


@dataclass
class SortedQueue(Queue):
    entry: str = ""
    priority: str = ""
    barrier: str = ""
    depth: int = 0
    ring: int = 0
    read: set = field(default_factory=set)
    refused: set = field(default_factory=set)  # of those read: not let in
    barriers: set = field(default_factory=set)  # tokens
    unleased: int = 0  # how many there were before the last step
    until: int = 0


class SortedModel(Model):
    """As the plain one, with bodies."""

    def __init__(self, queues):
        super().__init__(queues)
        self.bodies, self.cache = {}, {}

    # what the expressions say

    def judge(self, expressions, text, ref, otherwise):
        """Of a body that is not JSON, `otherwise`."""
        key = text, ref
        if key not in self.cache:
            body = self.bodies[ref]
            self.cache[key] = otherwise if body is None else expressions[text](body)
        return self.cache[key]

    def enters(self, queue, ref):
        return not queue.entry or self.judge(ENTRIES, queue.entry, ref, otherwise=False)

    def is_barrier(self, queue, ref):
        return queue.barrier != "" and self.judge(BARRIERS, queue.barrier, ref, otherwise=False)

    def matches(self, sub, ref):
        return sub.filter is None or self.judge(FILTERS, sub.filter, ref, otherwise=False)

    def place(self, queue, ref):
        """Return the place of a message; the least one is delivered first."""
        return (-self.judge(PRIORITIES, queue.priority, ref, LEAST) if queue.priority else 0, ref)

    # order

    def in_queue(self, queue):
        """Return the messages neither leased nor later: read ones in order of arrival, then those still to be read.

        What was scheduled comes before what is unread, even where that arrived before it.
        """
        unread = (ref for ref in queue.waiting if self.enters(queue, ref) and not self.is_later(ref))
        return [ref for refs in (queue.ready, unread) for ref in sorted(refs) if not self.is_over(queue, ref)]

    def before_barrier(self, queue):
        """Return the messages that may be delivered, in order of delivery."""
        refs = self.in_queue(queue)
        if queue.barrier:
            ends = [i for i, ref in enumerate(refs) if self.is_barrier(queue, ref)]
            refs = refs[: ends[0]] if ends else refs
        return sorted(refs, key=lambda ref: self.place(queue, ref)) if queue.priority else refs

    def come_due(self, queue, refs):
        """A full ring has no room for them."""
        room = max(queue.ring - len(queue.ready), 0) if queue.ring else len(refs)
        for ref in sorted(refs)[: max(len(refs) - room, 0)]:
            self.expire(queue, ref)
            queue.settled[ref] = ("evicted", "ring")
            refs.remove(ref)
        super().come_due(queue, refs)

    def active(self, queue):
        return len(queue.ready) + len(queue.leased) + len(queue.delayed)

    def barrier_in_turn(self, queue):
        if not queue.barrier or queue.leased or queue.delayed:
            return None
        refs = self.in_queue(queue)
        if not refs or not self.is_barrier(queue, refs[0]):
            return None
        return refs[0] if any(queue.name in sub.queues for sub in self.subs.values()) else None

    # what happens

    def dispatch(self, queue, limit=BATCH, own=None):
        given = []
        while queue.token < queue.until and (ref := self.barrier_in_turn(queue)):
            self.send_barrier(queue, ref, own, given)
        wanted, free = min(limit, self.places(queue), BATCH), self.free(queue)
        for ref in self.before_barrier(queue) if queue.token < queue.until else ():
            fitting = [sub for sub in free if self.matches(sub, ref)]
            if wanted <= 0 or queue.token == queue.until:
                break
            if fitting:
                self.deliver(queue, ref, min(fitting, key=lambda s: self.score(queue, s)), own, given)
                wanted, free = wanted - 1, self.free(queue)
        return given

    def deliver(self, queue, ref, sub, own, given):
        queue.token += 1
        delivery = queue.attempts.get(ref, (0, 0))[0] + 1
        queue.ready.discard(ref)
        queue.waiting.discard(ref)
        queue.leased[ref] = self.lease(queue, ref, sub, delivery)
        if FAIRNESS[queue.fairness][1]:
            sub.turns[queue.name] = queue.token
        (given if sub is own else sub.inbox).append((queue.name, ref, queue.token))

    def send_barrier(self, queue, ref, own, given):
        queue.token += 1
        queue.barriers.add(queue.token)
        queue.ready.discard(ref)
        queue.waiting.discard(ref)
        queue.attempts.pop(ref, None)
        queue.settled[ref] = ("barrier", "")
        for sub in self.subs.values():
            if queue.name in sub.queues and self.matches(sub, ref):
                item = (queue.name, ref, queue.token)
                (given if sub is own else sub.inbox).append(item)
                sub.barriers.append(item)

    def publish(self, topic, refs, bodies, own=None, due=None):
        for ref, text in zip(refs, bodies, strict=True):
            try:
                self.bodies[ref] = json.loads(text)
            except ValueError:
                self.bodies[ref] = None
        super().publish(topic, refs, bodies, own, due)
        for queue in self.queues.values():
            # What the filter refuses is left to be read.
            refused = {ref for ref in queue.scheduled if ref in refs and not self.enters(queue, ref)}
            queue.waiting |= refused
            for ref in refused:
                del queue.scheduled[ref]

    def refusal(self, queue, ref, token, verb):
        if ref in queue.refused:
            return "AMPSQ_ALREADY_ACKED"
        return super().refusal(queue, ref, token, verb)

    def is_handed_out(self, queue, ref, token):
        return token in self.queues[queue].barriers or self.is_live(queue, ref, token)

    def shares_places(self, queue):  # noqa: ARG002 - those that have nothing to share do nothing, which `until` tells
        return True

    def replace(self, sub, queues, asked, filter_):
        former, inbox = sub.queues, sub.inbox
        sub.over = self.leased_of(sub)
        sub.queues, sub.filter, sub.max, sub.inbox, sub.comes_back = list(queues), filter_, None, [], False
        for name, ref, token in inbox:
            if token in self.queues[name].barriers:
                if name in queues and self.matches(sub, ref):
                    sub.inbox.append((name, ref, token))
            elif self.is_live(name, ref, token):
                self.move(self.queues[name], "given_back", ref)
        # Of the barriers that were sent, those that are still wanted are pushed again after a doubt.
        sub.barriers = [item for item in sub.barriers if item[0] in queues and self.matches(sub, item[1])]
        sub.max = self.most(queues, asked)
        for name in dict.fromkeys([*former, *queues]):
            self.dispatch(self.queues[name])

    # what must hold

    def note_ended(self, queue, settled, unplaced):
        """Note what expired for its age or was evicted, as the journal says: only what may; of a ring the oldest."""
        ended = [
            (ref, how) for ref, how, reason in settled if reason in ("time_limit", "ring") and ref not in queue.settled
        ]
        for ref, how in ended:
            assert ref not in queue.leased
            assert how == "evicted" or self.is_over(queue, ref)
            gave_way = ref in queue.came_due
            self.expire(queue, ref)
            queue.settled[ref] = (how, "ring" if how == "evicted" else "time_limit")
            if how == "evicted" and not gave_way:
                assert all(ref < other for other in queue.ready)
        here = len(queue.ready) + sum(self.enters(queue, ref) for ref in queue.waiting)
        # What came back and has no place yet enters at the next dispatch.
        if queue.ring and not queue.depth and not unplaced:
            assert here <= max(queue.ring, queue.unleased)
        queue.unleased = here

    def note_read(self, queue, read):
        """Note what the server read since the last time. True if something came into the queue."""
        new, queue.read = read - queue.read, read
        left = queue.waiting & new
        refused = {ref for ref in left if not self.enters(queue, ref)}
        queue.waiting -= left
        later = {ref for ref in left - refused if self.is_later(ref)}
        queue.scheduled |= {ref: self.times[ref][1] for ref in later}
        queue.ready |= left - refused - later
        queue.refused |= refused
        return any(ref in place for ref in new for place in (queue.ready, queue.leased, queue.delayed))

    def somebody_waits(self, queue):
        # What is over and not yet gone may stand before all else.
        if any(self.is_over(queue, ref) for ref in (*queue.ready, *queue.waiting)):
            return False
        if self.barrier_in_turn(queue):
            return True
        free = [sub for sub in self.free(queue) if not sub.comes_back]
        if not free or self.places(queue) <= 0:
            return False
        refs = self.before_barrier(queue)
        if queue.depth:
            unread = sorted(set(refs) & queue.waiting)
            beyond = set(unread[max(queue.depth - self.active(queue), 0) :])
            refs = [ref for ref in refs if ref not in beyond]
        return any(self.matches(sub, ref) for ref in refs for sub in free)
