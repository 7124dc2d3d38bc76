"""Model of plain queues, in Python: what the scripts must do."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import takewhile

from ampsq.base.bookmarks import parse_ref

STALE, ACKED = "AMPSQ_STALE_LEASE", "AMPSQ_ALREADY_ACKED"
FAIRNESS = {"proportional": (1, 0), "round-robin": (0, 1), "fast": (0, 0)}
BATCH = 500
DEFAULT, QUEUE, LATEST, EARLIEST = range(4)


def arrival(ref):
    """The ms in which it was published."""
    return int(parse_ref(ref)[1].split("-")[0])


@dataclass
class Lease:
    holder: str
    token: int
    delivery: int
    deadline: int
    end: int | None  # of its message's life, as it was when it was delivered


@dataclass
class Sub:
    id: str
    queues: list
    max: int
    filter: str | None = None
    inbox: list = field(default_factory=list)  # (queue, ref, token)
    turns: dict = field(default_factory=dict)
    comes_back: bool = False  # it took as many as it wanted, so that it asks again by itself
    over: int = 0  # what it held above its limit when that was lowered
    barriers: list = field(default_factory=list)  # as the inbox; sent, whether or not picked up


@dataclass
class Queue:
    name: str
    topics: tuple
    lease: int
    backlog: int
    deliveries: int
    cancels: int
    fairness: str
    life: int = 0
    model: int = 0
    redelivery: int = 0
    room: int = 3
    waiting: set = field(default_factory=set)
    ready: set = field(default_factory=set)
    delayed: dict = field(default_factory=dict)
    scheduled: dict = field(default_factory=dict)
    came_due: set = field(default_factory=set)  # in the last sweep
    leased: dict = field(default_factory=dict)
    settled: dict = field(default_factory=dict)  # ref -> how, reason
    attempts: dict = field(default_factory=dict)  # ref -> deliveries, cancels
    token: int = 0
    returned: int = 0


class Model:
    """The behaviour that the scripts must have."""

    def __init__(self, queues):
        self.queues, self.subs, self.now = {queue.name: queue for queue in queues}, {}, 1_000
        self.times = {}  # ref -> its own life or None, when it is due or None
        # Of the sweep that goes on: who let a message lapse, and comes behind all others in what it delivers.
        self.set_back = set()

    def end_of(self, queue, ref):
        """Return when a message's life is over in a queue; None: never."""
        own, due = self.times.get(ref, (None, None))
        life = queue.life or None
        if queue.model == QUEUE or own is None:
            chosen = life
        elif queue.model == DEFAULT or life is None:
            chosen = own
        else:
            chosen = max(own, life) if queue.model == LATEST else min(own, life)
        return None if chosen is None else max(due or 0, arrival(ref)) + chosen

    def lease(self, queue, ref, sub, delivery):
        deadline = self.now + queue.lease if queue.lease else 0
        return Lease(sub.id, queue.token, delivery, deadline, self.end_of(queue, ref))

    def enters(self, queue, ref):  # noqa: ARG002 - a plain queue takes everything
        return True

    def is_later(self, ref):
        return (self.times.get(ref, (None, None))[1] or 0) > self.now

    def is_over(self, queue, ref):
        end = self.end_of(queue, ref)
        return end is not None and end <= self.now

    def expire(self, queue, ref):
        """An unleased message whose life is over."""
        for place in (queue.waiting, queue.ready):
            place.discard(ref)
        for place in (queue.delayed, queue.scheduled, queue.attempts):
            place.pop(ref, None)
        queue.settled[ref] = ("expired", "time_limit")

    def leased_of(self, sub):
        return sum(lease.holder == sub.id for queue in self.queues.values() for lease in queue.leased.values())

    def free(self, queue):
        return [s for s in self.subs.values() if queue.name in s.queues and self.leased_of(s) < s.max]

    def score(self, queue, sub):
        ratio, turn = FAIRNESS[queue.fairness]
        score = ratio * self.leased_of(sub) / sub.max + turn * sub.turns.get(queue.name, 0)
        return (score + (2.0**52 if sub.id in self.set_back else 0), sub.id)

    def places(self, queue):
        return queue.backlog - len(queue.leased) if queue.backlog else BATCH

    def dispatch(self, queue, limit=BATCH, own=None):
        """Give ready messages first, then the log's, each to the best free subscription.

        As many are looked at as may be given; where none of them may, as many again.
        """
        given, before = [], queue.token
        room = sum(sub.max - self.leased_of(sub) for sub in self.free(queue))
        wanted = max(min(limit, room, self.places(queue), BATCH), 0)
        for number, ref in enumerate([*sorted(queue.ready), *sorted(queue.waiting)]):
            if not wanted or (number % wanted == 0 and queue.token > before):
                break
            if self.is_over(queue, ref):
                self.expire(queue, ref)
                continue
            sub = min(self.free(queue), key=lambda s: self.score(queue, s))
            queue.token += 1
            delivery = queue.attempts.get(ref, (0, 0))[0] + 1
            queue.ready.discard(ref)
            queue.waiting.discard(ref)
            queue.leased[ref] = self.lease(queue, ref, sub, delivery)
            sub.turns[queue.name] = queue.token
            (given if sub is own else sub.inbox).append((queue.name, ref, queue.token))
        return given

    def most(self, queues, asked):
        return min([asked, *(self.queues[name].room for name in queues)])

    def somebody_waits(self, queue):
        """For what is there, and does not come again by itself."""
        free = [sub for sub in self.free(queue) if not sub.comes_back]
        return (queue.ready or queue.waiting) and free and self.places(queue) > 0

    def publish(self, topic, refs, bodies, own=None, due=None):  # noqa: ARG002 - a plain queue does not look at them
        self.times |= dict.fromkeys(refs, (own, due))
        for queue in self.queues.values():
            if topic in queue.topics and due is not None and due > self.now:
                queue.scheduled |= dict.fromkeys(refs, due)
            elif topic in queue.topics:
                queue.waiting |= set(refs)
        for queue in self.queues.values():
            if topic in queue.topics:
                self.dispatch(queue, len(refs))

    def is_live(self, queue, ref, token):
        lease = self.queues[queue].leased.get(ref)
        return lease is not None and lease.token == token

    def is_handed_out(self, queue, ref, token):
        return self.is_live(queue, ref, token)

    def shares_places(self, queue):
        return queue.backlog > 0

    def refusal(self, queue, ref, token, verb):
        if ref in queue.leased:
            return STALE if token and queue.leased[ref].token != token else None
        if ref in queue.settled:
            return ACKED
        return STALE if token or verb not in ("acknowledged", "expired") else None

    def settle(self, queue, verb, pairs, period=None):
        """The refusals, in order; everything else is done."""
        refused, done = [], set()
        for ref, token in pairs:
            code = self.refusal(queue, ref, token, verb)
            if ref in done:
                code = ACKED if verb in ("acknowledged", "expired") else STALE
            if code:
                refused.append((ref, code))
            elif verb == "extended":
                queue.leased[ref].deadline = self.now + period
                done.add(ref)
            else:
                done.add(ref)
        for ref in done if verb != "extended" else ():
            self.move(queue, verb, ref, period)
        return refused

    def move(self, queue, verb, ref, period=None):
        """Period: ms, None: as the queue says."""
        if verb in ("acknowledged", "expired"):
            for place in (queue.waiting, queue.ready):
                place.discard(ref)
            for place in (queue.delayed, queue.scheduled, queue.leased, queue.attempts):
                place.pop(ref, None)
            queue.settled[ref] = (verb, "forced_expire" if verb == "expired" else "")
            return
        lease = queue.leased.pop(ref)
        deliveries, cancels = lease.delivery, queue.attempts.get(ref, (0, 0))[1] + (verb == "cancelled")
        queue.returned += 1
        counted = verb != "given_back"
        over = [
            reason
            for reason, limit, count in (
                ("max_cancels", queue.cancels, cancels), ("max_deliveries", queue.deliveries, deliveries),
            )
            if counted and limit and count >= limit
        ]  # fmt: skip
        if self.is_over(queue, ref):
            over.append("time_limit")
        if over:
            queue.settled[ref] = ("expired", ",".join(over))
            queue.attempts.pop(ref, None)
            return
        if counted:
            queue.attempts[ref] = (deliveries, cancels)
        if period is None:
            period = queue.redelivery if counted else 0
        if period:
            queue.delayed[ref] = self.now + period
        else:
            queue.ready.add(ref)

    def take(self, sub, wanted, acks):
        refused = [r for q, pairs in acks.items() for r in self.settle(self.queues[q], "acknowledged", pairs)]
        taken = []
        while sub.inbox and len(taken) < wanted:
            item = sub.inbox.pop(0)
            taken += [item] if self.is_handed_out(*item) else []
        names, sub.queues = sub.queues, [*sub.queues[1:], sub.queues[0]]
        for name in names:
            if len(taken) < wanted:
                taken += self.dispatch(self.queues[name], wanted - len(taken), sub)
            elif self.shares_places(self.queues[name]) and len(refused) < sum(map(len, acks.values())):
                self.dispatch(self.queues[name])
        for name in acks:
            if name not in sub.queues:
                self.dispatch(self.queues[name])
        sub.comes_back = len(taken) >= wanted
        return taken, refused

    def unsubscribe(self, sub, held):
        del self.subs[sub.id]
        for name, ref, token in [*held, *sub.inbox]:
            if self.is_live(name, ref, token):
                self.move(self.queues[name], "given_back", ref)
        for name in sub.queues:
            self.dispatch(self.queues[name])

    def pass_leases(self, queue):
        lapsed = {}
        for ref, lease in sorted(queue.leased.items()):
            if lease.holder not in self.subs:
                self.move(queue, "disconnected", ref)
            elif lease.deadline and lease.deadline <= self.now:
                lapsed.setdefault(lease.holder, []).append((queue.name, ref, lease.token))
        self.set_back |= lapsed.keys()
        for holder, leases in lapsed.items():
            # What never left the inbox was never picked up; what was stale there goes with it.
            unseen = [lease for lease in leases if lease in self.subs[holder].inbox]
            for _, ref, token in leases:
                self.move(queue, "given_back" if (queue.name, ref, token) in unseen else "lapsed", ref)
            self.subs[holder].inbox = [item for item in self.subs[holder].inbox if self.is_handed_out(*item)]
        self.dispatch(queue)

    def pass_expiry(self, look, expired, read, noted):
        """Ends what this look comes to; what others of the same call end, as a dispatch that meets it, is theirs."""
        kind, name = look.split(" ")
        queues = [queue for queue in self.queues.values() if name in (queue.name, *queue.topics)]
        for queue in queues:
            topics, till = ([name], 0) if kind == "expirations" else (queue.topics, self.now - (queue.life or self.now))
            reached = self.reached_by_pass(queue, topics, till)
            for ref in [ref for owner, ref in expired if owner == queue.name]:
                is_found = (look, ref) in noted or ref in reached or arrival(ref) <= till
                if is_found and ref in (*queue.waiting, *queue.ready, *queue.delayed, *queue.scheduled):
                    assert self.is_over(queue, ref), f"{ref} lives in {queue.name} until {self.end_of(queue, ref)}"
                    self.expire(queue, ref)
            entered = [ref for ref in reached & queue.waiting if (queue.name, ref) in read and self.enters(queue, ref)]
            for ref in entered:
                if not self.is_over(queue, ref) and not self.is_later(ref):
                    queue.waiting.discard(ref)
                    queue.ready.add(ref)

    def reached_by_pass(self, queue, topics, till):
        """Of each log what came until then, and behind that as long as all is over."""
        reached = set()
        for topic in topics:
            unread = sorted(ref for ref in queue.waiting if parse_ref(ref)[0] == topic)
            reached |= set(takewhile(lambda ref: arrival(ref) <= till or self.is_over(queue, ref), unread))
        return reached

    def sweep(self, due, expired=(), read=(), noted=()):
        """One call; `due` is what the timetable holds for now, in its order.

        Which messages expired, and which were read, a pass over what is over decides: these are taken from the server,
        (queue, ref) each, and must be ones that may. So are those `noted` to end by now, (look, ref) each.
        """
        work, readied, groups = 0, {}, {}
        self.set_back = set()
        for queue in self.queues.values():
            queue.came_due.clear()
        for kind, name, *ref in (member.split(" ") for member in due):
            if work >= BATCH:
                break
            queue = self.queues.get(name)
            if kind not in ("ready", "scheduled"):
                self.enter_due(groups)
            if kind in ("ready", "scheduled"):
                del (queue.delayed if kind == "ready" else queue.scheduled)[ref[0]]
                groups.setdefault(name, []).append(ref[0])
                readied[name] = queue
                work += 1
            elif kind in ("expiry", "expirations"):
                self.pass_expiry(f"{kind} {name}", expired, read, noted)
                work += BATCH
            elif kind == "leases":
                self.pass_leases(queue)
                work += BATCH
            elif kind == "dispatch":
                self.dispatch(queue)
                work += BATCH
        self.enter_due(groups)
        for queue in readied.values():
            self.dispatch(queue)
        self.set_back = set()

    def enter_due(self, groups):
        for name, refs in groups.items():
            self.queues[name].came_due |= set(refs)
            self.come_due(self.queues[name], refs)
        groups.clear()

    def come_due(self, queue, refs):
        queue.ready |= set(refs)
