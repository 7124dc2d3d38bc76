"""Two queues over two topics, driven at random, against a model that says what must be where after each step.

The model predicts each delivery (who, which message, which token), each refusal and each count. It takes two
things from the server: the IDs of what was published, and what the timetable holds; that nothing is missing
there is an invariant of its own. AMPSQ_EXAMPLES sets the number of runs (300).
"""

from __future__ import annotations

import itertools
import os
import re
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from ampsq.flow import script_call
from ampsq.schema import LEASES_ANCHOR
from ampsq.store import Store
from ampsq.values import parse_ref, ref_of

STALE, ACKED = "AMPSQ_STALE_LEASE", "AMPSQ_ALREADY_ACKED"
FAIRNESS = {"proportional": (1, 0), "round-robin": (0, 1), "fast": (0, 0)}
BATCH = 500
_instances = itertools.count(1)


@dataclass
class Lease:
    holder: str
    token: int
    delivery: int
    deadline: int


@dataclass
class Sub:
    id: str
    queues: list
    max: int
    inbox: list = field(default_factory=list)  # (queue, ref, token)
    turns: dict = field(default_factory=dict)
    comes_back: bool = False  # it took as many as it wanted, so that it asks again by itself


@dataclass
class Queue:
    name: str
    topics: tuple
    lease: int
    backlog: int
    deliveries: int
    cancels: int
    fairness: str
    waiting: set = field(default_factory=set)
    ready: set = field(default_factory=set)
    delayed: dict = field(default_factory=dict)
    leased: dict = field(default_factory=dict)
    settled: dict = field(default_factory=dict)  # ref -> how, reason
    attempts: dict = field(default_factory=dict)  # ref -> deliveries, cancels
    token: int = 0
    returned: int = 0


class Model:
    """What the scripts must do."""

    def __init__(self, queues):
        self.queues, self.subs, self.now = {queue.name: queue for queue in queues}, {}, 1_000

    def leased_of(self, sub):
        return sum(lease.holder == sub.id for queue in self.queues.values() for lease in queue.leased.values())

    def free(self, queue):
        return [s for s in self.subs.values() if queue.name in s.queues and self.leased_of(s) < s.max]

    def score(self, queue, sub):
        ratio, turn = FAIRNESS[queue.fairness]
        return (ratio * self.leased_of(sub) / sub.max + turn * sub.turns.get(queue.name, 0), sub.id)

    def places(self, queue):
        return queue.backlog - len(queue.leased) if queue.backlog else BATCH

    def dispatch(self, queue, limit=BATCH, own=None):
        """Give ready messages first, then the log's, each to the best free subscription."""
        given = []
        room = sum(sub.max - self.leased_of(sub) for sub in self.free(queue))
        wanted = max(min(limit, room, self.places(queue), BATCH), 0)
        for ref in [*sorted(queue.ready), *sorted(queue.waiting)][:wanted]:
            sub = min(self.free(queue), key=lambda s: self.score(queue, s))
            queue.token += 1
            delivery = queue.attempts.get(ref, (0, 0))[0] + 1
            queue.ready.discard(ref)
            queue.waiting.discard(ref)
            queue.leased[ref] = Lease(sub.id, queue.token, delivery, self.now + queue.lease if queue.lease else 0)
            sub.turns[queue.name] = queue.token
            (given if sub is own else sub.inbox).append((queue.name, ref, queue.token))
        return given

    def publish(self, topic, refs):
        for queue in self.queues.values():
            if topic in queue.topics:
                queue.waiting |= set(refs)
                self.dispatch(queue, len(refs))

    def is_live(self, queue, ref, token):
        lease = self.queues[queue].leased.get(ref)
        return lease is not None and lease.token == token

    def refusal(self, queue, ref, token, verb):
        if ref in queue.leased:
            return STALE if token and queue.leased[ref].token != token else None
        if ref in queue.settled:
            return ACKED
        return STALE if token or verb not in ("acknowledged", "expired") else None

    def settle(self, queue, verb, pairs, period=0):
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

    def move(self, queue, verb, ref, period=0):
        if verb in ("acknowledged", "expired"):
            for place in (queue.waiting, queue.ready):
                place.discard(ref)
            for place in (queue.delayed, queue.leased, queue.attempts):
                place.pop(ref, None)
            queue.settled[ref] = (verb, "forced_expire" if verb == "expired" else "")
            return
        lease = queue.leased.pop(ref)
        deliveries, cancels = lease.delivery, queue.attempts.get(ref, (0, 0))[1] + (verb == "cancelled")
        queue.returned += 1
        if verb != "given_back":
            over = [
                reason
                for reason, limit, count in (
                    ("max_cancels", queue.cancels, cancels), ("max_deliveries", queue.deliveries, deliveries),
                )
                if limit and count >= limit
            ]  # fmt: skip
            if over:
                queue.settled[ref] = ("expired", ",".join(over))
                queue.attempts.pop(ref, None)
                return
            queue.attempts[ref] = (deliveries, cancels)
        if period:
            queue.delayed[ref] = self.now + period
        else:
            queue.ready.add(ref)

    def take(self, sub, wanted, acks):
        refused = [r for q, pairs in acks.items() for r in self.settle(self.queues[q], "acknowledged", pairs)]
        taken = []
        while sub.inbox and len(taken) < wanted:
            item = sub.inbox.pop(0)
            taken += [item] if self.is_live(*item) else []
        names, sub.queues = sub.queues, [*sub.queues[1:], sub.queues[0]]
        for name in names:
            if len(taken) < wanted:
                taken += self.dispatch(self.queues[name], wanted - len(taken), sub)
            elif self.queues[name].backlog and len(refused) < sum(map(len, acks.values())):
                self.dispatch(self.queues[name])
        sub.comes_back = len(taken) == wanted
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
        for holder, leases in lapsed.items():
            # What never left the inbox was never picked up; what was stale there goes with it.
            unseen = [lease for lease in leases if lease in self.subs[holder].inbox]
            for _, ref, token in leases:
                self.move(queue, "given_back" if (queue.name, ref, token) in unseen else "lapsed", ref)
            self.subs[holder].inbox = [item for item in self.subs[holder].inbox if self.is_live(*item)]
        self.dispatch(queue)

    def sweep(self, due):
        """One call; `due` is what the timetable holds for now, in its order."""
        work, readied = 0, {}
        for kind, name, *ref in (member.split(" ") for member in due):
            if work >= BATCH:
                break
            queue = self.queues[name]
            if kind == "ready":
                del queue.delayed[ref[0]]
                queue.ready.add(ref[0])
                readied[name] = queue
                work += 1
            elif kind == "leases":
                self.pass_leases(queue)
                work += BATCH
            else:
                self.dispatch(queue)
                work += BATCH
        for queue in readied.values():
            self.dispatch(queue)


class Real:
    """The scripts on a server."""

    def __init__(self, store):
        self.store, self.tag = store, "{" + store.instance + "}"

    def run(self, name, *arguments):
        return self.store.call(script_call(name, list(arguments), decoded))

    def read(self, *commands):
        """Many reads in one go; keys without the tag."""
        pipe = self.store.redis.pipeline(transaction=False)
        for command, suffix, *arguments in commands:
            pipe.execute_command(command, self.tag + suffix, *arguments)
        return pipe.execute()


def decoded(reply):
    if isinstance(reply, bytes):
        return reply.decode()
    return [decoded(part) for part in reply] if isinstance(reply, list) else reply


def texts(mapping):
    return {key.decode(): value.decode() for key, value in mapping.items()}


def grouped(items):
    groups = {}
    for name, ref, token in items:
        groups.setdefault(name, []).append((ref, token))
    return groups


def flat(groups):
    out = []
    for name, pairs in groups.items():
        out += [name, len(pairs), *(ref for ref, _ in pairs), *(token or "" for _, token in pairs)]
    return out


def pairs_of(reply):
    return list(zip(reply[::2], reply[1::2], strict=True))


def messages_of(elements):
    heads = [head.split("\n")[0].split(" ") for head in elements[::2]]
    return [(name, ref, int(token)) for name, token, _, _, _, ref in heads]


QUEUE_NUMBERS = {
    "lease": st.sampled_from([0, 1_000]),
    "backlog": st.sampled_from([0, 0, 3]),
    "deliveries": st.sampled_from([0, 0, 1, 2, 3]),
    "cancels": st.sampled_from([0, 0, 1, 2]),
    "fairness": st.sampled_from(sorted(FAIRNESS)),
}
PICKS = st.lists(st.integers(0, 1_000), max_size=4)


class QueueMachine(RuleBasedStateMachine):
    """Subclassed with the server's `url`."""

    url = ""

    def __init__(self):
        super().__init__()
        self.store = Store(self.url, f"model-{os.getpid()}-{next(_instances)}")
        self.real, self.published, self.seen, self.past = Real(self.store), [], [], {}

    def teardown(self):
        keys = list(self.store.redis.scan_iter(match=self.real.tag + ":*", count=1000))
        if keys:
            self.store.redis.delete(*keys)
        self.store.close()

    @initialize(work=st.fixed_dictionaries(QUEUE_NUMBERS), mail=st.fixed_dictionaries(QUEUE_NUMBERS))
    def define(self, work, mail):
        queues = [Queue("work", ("a", "b"), **work), Queue("mail", ("b",), **mail)]
        self.model = Model(queues)
        self.real.run("open", 1_000, "i", "one")
        for version, queue in enumerate(queues):
            limits = (queue.lease, queue.backlog, queue.deliveries, queue.cancels)
            compiled = " ".join(map(str, (*limits, *FAIRNESS[queue.fairness], 0, 0, 3, 0)))
            if len(queue.topics) == 1:
                compiled += " " + queue.topics[0]
            topics = (queue.topics[0], "", "", "", len(queue.topics), *queue.topics)
            self.real.run("define_queue", 1_000, version, queue.name, "{}", compiled, *topics)

    def pick(self, items, picks):
        return [items[pick % len(items)] for pick in picks] if items else []

    def live(self, sub):
        """What a subscription took and still holds, as its worker knows it."""
        return [
            (name, ref, lease.token)
            for name, queue in self.model.queues.items()
            for ref, lease in queue.leased.items()
            if lease.holder == sub.id and (name, ref, lease.token) not in sub.inbox
        ]

    # what happens

    @rule(topic=st.sampled_from("ab"), count=st.integers(1, 4))
    def publish(self, topic, count):
        reply = self.real.run("publish", self.model.now, topic, "", "", "b", *["body"] * count)
        milliseconds, sequence = map(int, reply[2].split("-"))
        refs = [ref_of(topic, f"{milliseconds}-{sequence + i}") for i in range(count)]
        assert not self.published or refs[0] > max(self.published)
        self.published += refs
        self.model.publish(topic, refs)

    @precondition(lambda self: len(self.model.subs) < 12)
    @rule(
        queues=st.sampled_from([["work"], ["mail"], ["work", "mail"], ["mail", "work"]]),
        asked=st.integers(0, 5),
    )
    def subscribe(self, queues, asked):
        wish = (asked, "none", "", "")
        id_, max_ = self.real.run("subscribe", self.model.now, "", f"c/{next(_instances)}", *wish, 10_000, *queues)
        assert max_ == min(asked, 3)
        self.model.subs[id_] = Sub(id_, queues, max_)
        self.take_of(self.model.subs[id_], [])

    def take_of(self, sub, acks, wanted=50):
        groups = grouped(acks)
        elements, refused = self.real.run("take", self.model.now, sub.id, wanted, *flat(groups))
        taken, expected = self.model.take(sub, wanted, groups)
        assert messages_of(elements) == taken
        assert pairs_of(refused) == expected
        self.seen += taken

    @precondition(lambda self: self.model.subs)
    @rule(who=st.integers(0, 11), picks=PICKS, late=PICKS, wanted=st.sampled_from([0, 1, 2, 50, 50]))
    def take(self, who, picks, late, wanted):
        (sub,) = self.pick(list(self.model.subs.values()), [who])
        self.take_of(sub, [*self.pick(self.live(sub), picks), *self.pick(self.seen, late)], wanted)

    @precondition(lambda self: self.seen)
    @rule(
        verb=st.sampled_from(["acknowledged", "cancelled", "cancelled", "expired", "extended", "given_back"]),
        picks=PICKS.filter(bool),
        period=st.sampled_from([0, 150, 700, 2_500]),
    )
    def settle(self, verb, picks, period):
        period = period or 100 if verb == "extended" else period
        for name, pairs in grouped(self.pick(self.seen, picks)).items():
            self.settle_in(name, verb, pairs, period if verb in ("cancelled", "extended") else 0)

    @precondition(lambda self: self.published)
    @rule(
        verb=st.sampled_from(["acknowledged", "expired", "cancelled"]),
        picks=PICKS.filter(bool),
        name=st.sampled_from(["work", "mail"]),
    )
    def administer(self, verb, picks, name):
        topics = self.model.queues[name].topics
        refs = [ref for ref in self.pick(self.published, picks) if parse_ref(ref)[0] in topics]
        self.settle_in(name, verb, [(ref, None) for ref in refs], 0)

    def settle_in(self, name, verb, pairs, period):
        refused = self.real.run("settle", self.model.now, verb, period, "", *flat({name: pairs}))
        queue = self.model.queues[name]
        assert pairs_of(refused) == self.model.settle(queue, verb, pairs, period)
        self.model.dispatch(queue)

    @rule(milliseconds=st.sampled_from([0, 1, 150, 500, 1_000, 1_000, 4_000]))
    def pass_time(self, milliseconds):
        self.model.now += milliseconds
        for _ in range(50):
            (due,) = self.real.read(("ZRANGE", ":due", "-inf", self.model.now, "BYSCORE"))
            more, wait = self.real.run("sweep", self.model.now)
            self.model.sweep(decoded(due))
            self.check()
            if not more:
                assert wait != 0
                return
        raise AssertionError("the sweep never ends")

    @precondition(lambda self: self.model.subs)
    @rule(who=st.integers(0, 11), picks=PICKS)
    def unsubscribe(self, who, picks):
        (sub,) = self.pick(list(self.model.subs.values()), [who])
        held = self.pick(self.live(sub), picks)
        assert self.real.run("unsubscribe", self.model.now, sub.id, *flat(grouped(held))) == 0
        assert self.real.run("unsubscribe", self.model.now, sub.id, *flat(grouped(held))) == 0
        self.model.unsubscribe(sub, held)

    # what must hold

    @invariant()
    def check(self):
        if not hasattr(self, "model"):
            return
        for queue in self.model.queues.values():
            self.check_queue(queue)
        self.check_subscriptions()
        self.check_timetable()

    def check_queue(self, queue):
        at = f":q:{queue.name}"
        fields, leases, ready, attempts, cursors, ahead, journal, *logs = self.real.read(
            ("HGETALL", at), ("HGETALL", at + ":leases"), ("ZRANGE", at + ":ready", 0, -1),
            ("HGETALL", at + ":attempts"), ("HGETALL", at + ":cursors"), ("HKEYS", at + ":ahead"),
            ("XRANGE", at + ":journal", "-", "+"), *(("XRANGE", f":log:{t}", "-", "+") for t in queue.topics),
        )  # fmt: skip
        fields, leases, cursors, ahead = texts(fields), texts(leases), texts(cursors), set(decoded(ahead))
        assert leases.pop(LEASES_ANCHOR) == ""
        # every message is in exactly one place
        waiting, behind = set(), 0
        for topic, log in zip(queue.topics, logs, strict=True):
            entries = [ref_of(topic, entry.decode()) for entry, _ in log]
            last, read = cursors[topic].split(" ")
            beyond = [ref for ref in entries if ref > ref_of(topic, last)]
            assert int(read) == len(entries) - len(beyond)
            waiting |= set(beyond) - ahead
            behind += len(beyond)
        settled = [
            (ref, entry[b"how"].decode(), entry[b"reason"].decode())
            for _, entry in journal for ref in entry[b"refs"].decode().split(" ")
        ]  # fmt: skip
        places = [*waiting, *decoded(ready), *queue.delayed, *leases, *(ref for ref, _, _ in settled)]
        assert sorted(places) == sorted(r for r in self.published if parse_ref(r)[0] in queue.topics)
        assert waiting == queue.waiting
        assert set(decoded(ready)) == queue.ready
        assert leases == {
            ref: re.sub(r"\d+$", leases.get(ref, "").rpartition(" ")[2],
                        f"{held.token} {held.holder} {held.delivery} {held.deadline} 0")
            for ref, held in queue.leased.items()
        }  # fmt: skip
        assert {ref: (how, reason) for ref, how, reason in settled} == queue.settled
        counts = {ref: tuple(map(int, value.split(" ")[:2])) for ref, value in texts(attempts).items()}
        assert counts == queue.attempts
        # counters and tokens
        hows = [how for _, how, _ in settled]
        assert int(fields.get("acknowledged", 0)) == hows.count("acknowledged")
        assert int(fields.get("expired", 0)) == hows.count("expired")
        assert int(fields.get("returned", 0)) == queue.returned
        assert int(fields.get("delayed", 0)) == len(queue.delayed)
        assert int(fields.get("token", 0)) == queue.token >= self.past.get(queue.name, 0)
        self.past[queue.name] = queue.token
        if queue.backlog:
            assert len(leases) <= queue.backlog

    def check_subscriptions(self):
        subs = list(self.model.subs.values())
        known, *rest = self.real.read(
            ("ZRANGE", ":subscriptions", 0, -1),
            *(("HMGET", f":s:{s.id}", "leased", "max") for s in subs),
            *(("LRANGE", f":s:{s.id}:inbox", 0, -1) for s in subs),
            *(("ZRANGE", f":q:{name}:free:none", 0, -1) for name in self.model.queues),
            *(("SMEMBERS", f":q:{name}:subscriptions") for name in self.model.queues),
        )
        assert set(decoded(known)) == set(self.model.subs)
        for sub, numbers, inbox in zip(subs, rest, rest[len(subs) :], strict=False):
            assert [int(number) for number in numbers] == [self.model.leased_of(sub), sub.max]
            assert self.model.leased_of(sub) <= sub.max
            assert messages_of(decoded(inbox)) == sub.inbox
        frees, members = rest[2 * len(subs) : 2 * len(subs) + 2], rest[2 * len(subs) + 2 :]
        for queue, free, names in zip(self.model.queues.values(), frees, members, strict=True):
            assert decoded(free) == [
                s.id for s in sorted(self.model.free(queue), key=lambda s: self.model.score(queue, s))
            ]
            assert {name.decode() for name in names} == {s.id for s in subs if queue.name in s.queues}

    def check_timetable(self):
        (found,) = self.real.read(("ZRANGE", ":due", 0, -1, "WITHSCORES"))
        due = {member.decode(): float(score) for member, score in pairs_of(found)}
        for queue in self.model.queues.values():
            # given: nobody who is free waits for what is there, unless a dispatch is due
            free = [sub for sub in self.model.free(queue) if not sub.comes_back]
            if (queue.ready or queue.waiting) and free and self.model.places(queue) > 0:
                assert due.get(f"dispatch {queue.name}", 1e18) <= self.model.now
            # each delay has its entry; each lease is looked at in time
            delays = {m.split(" ")[2]: at for m, at in due.items() if m.startswith(f"ready {queue.name} ")}
            assert delays == queue.delayed
            ends = [
                self.model.now if lease.holder not in self.model.subs else lease.deadline
                for lease in queue.leased.values()
            ]
            if any(ends):
                assert due.get(f"leases {queue.name}", 1e18) <= max(min(filter(None, ends)), self.model.now + 100)


@pytest.mark.timeout(600)
def test_random_histories_of_two_queues_agree_with_the_model(valkey):
    machine = type("QueueMachineOnValkey", (QueueMachine,), {"url": valkey.url})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=int(os.environ.get("AMPSQ_EXAMPLES", "300")),
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
