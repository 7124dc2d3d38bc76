"""Two queues over two topics, driven at random, and what must hold after each step."""

from __future__ import annotations

import itertools
import os
from types import SimpleNamespace

from cases import short_and_whole
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
from lease_runs import expanded, in_runs, pushed, runs_of, spelled_out
from queue_model import FAIRNESS, Model, Queue, Sub
from real import Real, decoded, flat, grouped, messages_of, pairs_of, texts

from ampsq.base.bookmarks import parse_ref, ref_of
from ampsq.protocol.schema import LEASES_ANCHOR
from ampsq.transport.store import Store

_instances = itertools.count(1)


def examples(short, whole):
    """Run a test with so many histories, and with the whole number in `make test-slow`."""
    return short_and_whole("examples", short, whole)


def run_machine(machine, url, examples):
    """As many new random histories as AMPSQ_EXAMPLES says, else `examples`, the same ones in every run."""
    run_state_machine_as_test(
        type("MachineOnServer", (machine,), {"url": url}),
        settings=settings(
            max_examples=int(os.environ.get("AMPSQ_EXAMPLES", examples)),
            stateful_step_count=40,
            derandomize="AMPSQ_EXAMPLES" not in os.environ,
            suppress_health_check=list(HealthCheck),
        ),
    )


def length_of(found, ref):
    """Of a lease; which one it was given, the deadline shows."""
    return (found.leases.get(ref, "") + " " * 5).split(" ")[4]


QUEUE_NUMBERS = {
    "lease": st.sampled_from([0, 1_000]),
    "backlog": st.sampled_from([0, 0, 3]),
    "deliveries": st.sampled_from([0, 0, 1, 2, 3]),
    "cancels": st.sampled_from([0, 0, 1, 2]),
    "fairness": st.sampled_from(sorted(FAIRNESS)),
}
TIMES = {
    "life": st.sampled_from([0, 0, 0, 700, 2_500]),
    "model": st.sampled_from([0, 0, 1, 2, 3]),
    "redelivery": st.sampled_from([0, 0, 300]),
}
PICKS = st.lists(st.integers(0, 1_000), max_size=4)


class QueueMachine(RuleBasedStateMachine):
    """Subclassed with the server's `url`."""

    url = ""

    def __init__(self):
        super().__init__()
        self.store = Store(self.url, f"model-{os.getpid()}-{next(_instances)}")
        self.real, self.published, self.seen, self.past = Real(self.store), [], [], {}
        self.takes = 0

    def teardown(self):
        keys = list(self.store.redis.scan_iter(match=self.real.tag + ":*", count=1000))
        if keys:
            self.store.redis.delete(*keys)
        self.store.close()

    @initialize(work=st.fixed_dictionaries(QUEUE_NUMBERS | TIMES), mail=st.fixed_dictionaries(QUEUE_NUMBERS | TIMES))
    def define(self, work, mail):
        queues = [Queue("work", ("a", "b"), **work), Queue("mail", ("b",), **mail)]
        self.model = Model(queues)
        self.run("open", "i", "one")
        for queue in queues:
            self.define_queue(queue)

    def run(self, name, *arguments):
        return self.real.run(name, self.model.now, *arguments)

    def define_queue(self, queue, *trees, depth=0, ring=""):
        limits = (queue.lease, queue.backlog, queue.deliveries, queue.cancels)
        compiled = " ".join(map(str, (*limits, *FAIRNESS[queue.fairness], 0, 0, queue.room, depth)))
        if len(queue.topics) == 1:
            compiled += " " + queue.topics[0]
        (version,) = self.real.read(("HGET", ":instance", "catalog"))
        policy = f"{queue.life} {queue.model} {queue.redelivery} 1000 {queue.redelivery} 0"
        plain = not (queue.life or queue.model or queue.redelivery)
        head = (version, queue.name, "{}", queue.topics[0], compiled, "" if plain else policy)
        trees = (*(trees or ("", "", "")), ring, 0, "", "", "", "", "")
        self.run("define_queue", *head, *trees, len(queue.topics), *queue.topics)

    def pick(self, items, picks):
        return [items[pick % len(items)] for pick in picks] if items else []

    def live(self, sub):
        """Return the messages that a subscription took and still holds, as its worker knows it."""
        return [
            (name, ref, lease.token)
            for name, queue in self.model.queues.items()
            for ref, lease in queue.leased.items()
            if lease.holder == sub.id and (name, ref, lease.token) not in sub.inbox
        ]

    # what happens

    @rule(
        topic=st.sampled_from("ab"),
        count=st.integers(1, 4),
        own=st.sampled_from([None, None, None, 500, 3_000]),
        delay=st.sampled_from([None, None, None, 0, 600]),
    )
    def publish(self, topic, count, own, delay):
        self.publish_all(topic, ["body"] * count, own, delay)

    def publish_all(self, topic, bodies, own=None, delay=None):
        shape, values = "b", [[body] for body in bodies]
        if own is not None:
            shape, values = shape + "e", [[*row, own] for row in values]
        if delay is not None:
            shape, values = shape + "d", [[*row, f"+{delay}"] for row in values]
        reply = self.run("publish", topic, "", "", shape, *itertools.chain(*values))
        milliseconds, sequence = map(int, reply[2].split("-"))
        refs = [ref_of(topic, f"{milliseconds}-{sequence + i}") for i in range(len(bodies))]
        assert not self.published or refs[0] > max(self.published)
        self.published += refs
        due = None if delay is None else self.model.now + delay
        self.model.publish(topic, refs, bodies, **({} if own is due is None else {"own": own, "due": due}))

    @precondition(lambda self: len(self.model.subs) < 12)
    @rule(
        queues=st.sampled_from([["work"], ["mail"], ["work", "mail"], ["mail", "work"]]),
        asked=st.integers(0, 5),
    )
    def subscribe(self, queues, asked):
        self.take_of(self.register(queues, asked), [])

    def register(self, queues, asked, filter_=None, wish=("none", "")):
        id_, max_, _ = self.run("subscribe", "", f"c/{next(_instances)}", asked, *wish, "", 10_000, *queues)
        sub = Sub(id_, queues, self.model.most(queues, asked), filter_)
        assert max_ == sub.max
        self.model.subs[id_] = sub
        return sub

    def take_of(self, sub, acks, wanted=50):
        groups = grouped(acks)
        self.takes += 1
        # One take in three asks for no runs, and names what it acknowledges one by one, as another release's.
        asked, sent = (wanted, flat(groups)) if self.takes % 3 == 0 else (f"{wanted} run", self.in_runs(groups, sub))
        elements, refused, _ = self.run("take", sub.id, asked, *sent)
        elements = expanded(elements)
        taken, expected = self.model.take(sub, wanted, groups)
        assert messages_of(elements) == taken
        self.check_heads(elements)
        assert sorted(pairs_of(refused)) == sorted(expected)
        self.seen += taken

    def in_runs(self, groups, sub):
        found = {}
        for name in groups:
            members, refs = self.real.read(("ZRANGE", f":q:{name}:runs", 0, -1), ("HGETALL", f":q:{name}:run_refs"))
            found[name] = runs_of(decoded(members), texts(refs))
        return in_runs(groups, sub.id, found)

    def check_heads(self, elements):
        """Check that a worker is told the same of each message as its lease has; a barrier has none."""
        for head in elements[::2]:
            name, token, delivery, deadline, _, ref = head.split("\n")[0].split(" ")
            lease = self.model.queues[name].leased.get(ref)
            if self.model.is_live(name, ref, int(token)):
                assert int(delivery) == lease.delivery
                # An inbox has the deadline as it was before an extension.
                assert bool(int(deadline)) == bool(lease.deadline) or lease.deadline > int(deadline)
            else:
                assert (delivery, deadline) == ("0", "0")

    @precondition(lambda self: self.model.subs)
    @rule(who=st.integers(0, 11), picks=PICKS, late=PICKS, wanted=st.sampled_from([0, 1, 2, 50, 50]))
    def take(self, who, picks, late, wanted):
        (sub,) = self.pick(list(self.model.subs.values()), [who])
        self.take_of(sub, [*self.pick(self.live(sub), picks), *self.pick(self.seen, late)], wanted)

    @precondition(lambda self: self.seen)
    @rule(
        verb=st.sampled_from(["acknowledged", "cancelled", "cancelled", "expired", "extended", "given_back"]),
        picks=PICKS.filter(bool),
        period=st.sampled_from([None, 0, 150, 700, 2_500]),
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
        refused = self.run("settle", verb, -1 if period is None else period, "", *flat({name: pairs}))
        queue = self.model.queues[name]
        assert pairs_of(refused) == self.model.settle(queue, verb, pairs, period)
        self.model.dispatch(queue)

    @rule(milliseconds=st.sampled_from([0, 1, 150, 500, 1_000, 1_000, 4_000]))
    def pass_time(self, milliseconds):
        self.model.now += milliseconds
        for _ in range(50):
            (due,) = self.real.read(("ZRANGE", ":due", "-inf", self.model.now, "BYSCORE"))
            before, noted = self.ended_and_read(), self.noted_to_end()
            more, wait = self.run("sweep")
            expired, read = self.ended_and_read()
            self.model.sweep(decoded(due), expired - before[0], read, noted)
            self.check()
            if not more:
                assert wait != 0
                return
        raise AssertionError("the sweep never ends")

    def ended_and_read(self):
        """Return what the journals say ended for its age, and what the queues have read: (queue, ref) each."""
        ended, read = set(), set()
        for name in self.model.queues:
            journal, cursors = self.real.read(
                ("XRANGE", f":q:{name}:journal", "-", "+"), ("HGETALL", f":q:{name}:cursors")
            )
            for _, entry in journal:
                if entry[b"reason"] == b"time_limit":
                    ended |= {(name, ref) for ref in entry[b"refs"].decode().split(" ")}
            ends = {topic: ref_of(topic, cursor.split(" ")[0]) for topic, cursor in texts(cursors).items()}
            read |= {(name, ref) for ref in self.published if ref <= ends.get(parse_ref(ref)[0], "")}
        return ended, read

    def noted_to_end(self):
        """Return what both kinds of indexes say ends by now: (entry of the timetable, ref) each."""
        topics = {topic for queue in self.model.queues.values() for topic in queue.topics}
        looks = [(f"expiry {name}", f":q:{name}:lives", "") for name in self.model.queues]
        looks += [(f"expirations {topic}", f":expirations:{topic}", topic) for topic in topics]
        found = self.real.read(*(("ZRANGE", key, "-inf", self.model.now, "BYSCORE") for _, key, _ in looks))
        return {
            (look, ref_of(topic, member) if topic else member)
            for (look, _, topic), members in zip(looks, found, strict=True)
            for member in decoded(members)
        }

    @precondition(lambda self: self.model.subs)
    @rule(who=st.integers(0, 11), picks=PICKS)
    def unsubscribe(self, who, picks):
        (sub,) = self.pick(list(self.model.subs.values()), [who])
        held = self.pick(self.live(sub), picks)
        assert self.run("unsubscribe", sub.id, *flat(grouped(held))) == 0
        assert self.run("unsubscribe", sub.id, *flat(grouped(held))) == 0
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
        found = self.look(queue)
        self.check_places(queue, found)
        assert found.leases == {
            ref: f"{held.token} {held.holder} {held.delivery} {held.deadline} {length_of(found, ref)}"
            + (f" {held.end}" if held.end else "")
            for ref, held in queue.leased.items()
        }  # fmt: skip
        assert {ref: (how, reason) for ref, how, reason in found.settled} == queue.settled
        counts = {ref: tuple(map(int, value.split(" ")[:2])) for ref, value in found.attempts.items()}
        assert counts == queue.attempts
        self.check_counters(queue, found)

    def look(self, queue):
        """Return the server's state of a queue; refs in the order of its structures."""
        at = f":q:{queue.name}"
        fields, leases, runs, run_refs, ready, attempts, cursors, ahead, journal, *logs = self.real.read(
            ("HGETALL", at), ("HGETALL", at + ":leases"), ("ZRANGE", at + ":runs", 0, -1),
            ("HGETALL", at + ":run_refs"), ("ZRANGE", at + ":ready", 0, -1),
            ("HGETALL", at + ":attempts"), ("HGETALL", at + ":cursors"), ("HKEYS", at + ":ahead"),
            ("XRANGE", at + ":journal", "-", "+"), *(("XRANGE", f":log:{t}", "-", "+") for t in queue.topics),
        )  # fmt: skip
        leases, cursors = texts(leases), texts(cursors)
        assert leases.pop(LEASES_ANCHOR) == ""
        single = len(leases)
        leases = spelled_out(leases, decoded(runs), texts(run_refs))
        assert int(texts(fields).get("in_runs", 0)) == len(leases) - single
        leases |= pushed(texts(fields))
        read, unread = set(), set()
        for topic, log in zip(queue.topics, logs, strict=True):
            entries = [ref_of(topic, entry.decode()) for entry, _ in log]
            last, number = cursors[topic].split(" ")
            beyond = {ref for ref in entries if ref > ref_of(topic, last)}
            assert int(number) == self.added(topic, len(entries)) - len(beyond)
            unread |= beyond
            read |= set(entries) - beyond
        settled = [
            (ref, entry[b"how"].decode(), entry[b"reason"].decode())
            for _, entry in journal for ref in entry[b"refs"].decode().split(" ")
        ]  # fmt: skip
        settled += self.told_before(queue)
        return SimpleNamespace(
            fields=texts(fields), leases=leases, ready=decoded(ready), attempts=texts(attempts), settled=settled,
            waiting=unread - set(decoded(ahead)), read=read,
        )  # fmt: skip

    def added(self, topic, entries):  # noqa: ARG002
        """Return how many a log ever had: what it has, unless somebody trims it."""
        return entries

    def told_before(self, queue):  # noqa: ARG002
        """Return the entries that a journal had and has no more."""
        return []

    def check_places(self, queue, found):
        """Every message is in exactly one place."""
        later = [*queue.delayed, *queue.scheduled]
        places = [*found.waiting, *found.ready, *later, *found.leases, *(ref for ref, _, _ in found.settled)]
        assert sorted(places) == sorted(r for r in self.published if parse_ref(r)[0] in queue.topics)
        assert found.waiting == queue.waiting
        assert set(found.ready) == queue.ready
        if queue.backlog:
            assert len(found.leases) <= queue.backlog

    def check_counters(self, queue, found):
        hows, fields = [how for _, how, _ in found.settled], found.fields
        for how in ("acknowledged", "expired", "barrier"):
            assert int(fields.get(how, 0)) == hows.count(how)
        assert int(fields.get("returned", 0)) == queue.returned
        assert int(fields.get("delayed", 0)) == len(queue.delayed)
        assert int(fields.get("scheduled", 0)) == len(queue.scheduled)
        assert int(fields.get("token", 0)) == queue.token >= self.past.get(queue.name, 0)
        self.past[queue.name] = queue.token

    def check_subscriptions(self):
        subs, filters = list(self.model.subs.values()), list(self.names_of_filters().items())
        queues = list(self.model.queues.values())
        (known, *rest) = self.real.read(
            ("ZRANGE", ":subscriptions", 0, -1),
            *(("HMGET", f":s:{s.id}", "leased", "max") for s in subs),
            *(("LRANGE", f":s:{s.id}:inbox", 0, -1) for s in subs),
            *(("LRANGE", f":s:{s.id}:barriers", 0, -1) for s in subs),
            *(("SMEMBERS", f":q:{queue.name}:subscriptions") for queue in queues),
            *(("ZRANGE", f":q:{queue.name}:free:{id_}", 0, -1) for queue in queues for _, id_ in filters),
        )
        assert set(decoded(known)) == set(self.model.subs)
        replies = iter(rest)
        for sub in subs:
            leased = self.model.leased_of(sub)
            assert [int(number) for number in next(replies)] == [leased, sub.max]
            sub.over = sub.over if leased > sub.max else 0
            assert leased <= max(sub.max, sub.over)
        for sub in subs:
            assert messages_of(decoded(next(replies))) == sub.inbox
        for sub in subs:
            assert decoded(next(replies)) == [f"{name} {token} {ref}" for name, ref, token in sub.barriers][-64:]
        for queue in queues:
            assert {name.decode() for name in next(replies)} == {s.id for s in subs if queue.name in s.queues}
        for queue in queues:
            free = sorted(self.model.free(queue), key=lambda s: self.model.score(queue, s))
            for filter_, _ in filters:
                assert decoded(next(replies)) == [s.id for s in free if s.filter == filter_]

    def names_of_filters(self):
        return {None: "none"}

    def check_timetable(self):
        (found,) = self.real.read(("ZRANGE", ":due", 0, -1, "WITHSCORES"))
        due = {member.decode(): float(score) for member, score in pairs_of(found)}
        for queue in self.model.queues.values():
            # given: nobody who is free waits for what is there, unless a dispatch is due
            if self.model.somebody_waits(queue):
                assert due.get(f"dispatch {queue.name}", 1e18) <= self.model.now
            # each delay has its entry; each lease is looked at in time
            delays = {m.split(" ")[2]: at for m, at in due.items() if m.startswith(f"ready {queue.name} ")}
            assert delays == queue.delayed
            schedules = {m.split(" ")[2]: at for m, at in due.items() if m.startswith(f"scheduled {queue.name} ")}
            assert schedules == queue.scheduled
            # each life that ends is looked at in time, a tenth of a second later at most
            for ref in (*queue.waiting, *queue.ready, *queue.delayed, *queue.scheduled):
                end = self.model.end_of(queue, ref) if self.model.enters(queue, ref) else None
                looks = (f"expiry {queue.name}", f"expirations {parse_ref(ref)[0]}")
                # what is later was perhaps put off by another definition: it is looked at when its time comes
                later = queue.delayed.get(ref) or queue.scheduled.get(ref) or 0
                latest = max(end or 0, self.model.now + 100)
                assert end is None or later or min(due.get(look, 1e18) for look in looks) <= latest
            ends = [
                self.model.now if lease.holder not in self.model.subs else lease.deadline
                for lease in queue.leased.values()
            ]
            if any(ends):
                assert due.get(f"leases {queue.name}", 1e18) <= max(min(filter(None, ends)), self.model.now + 100)
