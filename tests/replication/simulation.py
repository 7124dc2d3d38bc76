"""A seeded, deterministic simulation: the real scripts, driven through real links on two and three real servers.

One thread; a scheduler seeded by `random.Random(seed)` chooses the next step of somebody: one call of a script, or one
step of a link. Servers run scripts one at a time, so the order of calls is the whole of what can differ. Time is the
simulation's own. What must hold (`invariants`) is judged after every step, and in the end.

`simulate.py` runs seeds by command, and one again with its trace.
"""
# Long: one model: its steps are read together.

from __future__ import annotations

import hashlib
import math
import random
from unittest import mock

import losing
from ending import come_to_rest, finish
from invariants import (
    Violation,
    believers,
    claims_of,
    doubled,
    judge_copies,
    judge_deferred,
    judge_epochs,
    judge_log,
    judge_marks,
    judge_received,
    look,
    place_of,
)
from simulated import LEASE, QUEUE, SHAPES, TOPIC, FlushGate, Guaranteed, OpenGate, Taken, body_of

from ampsq.base.errors import AmpsqError, Gap, IncarnationOver, Rejected, Unavailable
from ampsq.base.message_types import JSON
from ampsq.expressions import parse
from ampsq.protocol.reads.origin import name_of
from ampsq.replication import link as links
from ampsq.replication import link_sender as sending
from ampsq.replication.selection import EntrySelector

#: When each run begins, ms.
EPOCH = 1_800_000_000_000
#: What consumers of deep queues may want.
MATCHING = parse("/k = 1", "filter")
#: Steps of a run before everything is healed.
STEPS = 110


class Simulation:
    """One run.

    Args:
        instances: name -> instance; as many as the largest shape has.
        seed: what decides everything.
        steps: before everything is healed.
        trace: called with a text of each step.
        gated: whether links wait until what they read is durable.
        deep: so many messages wait at an instance before anything happens; few of them match the filter of consumers.
    """

    def __init__(self, instances, seed, *, steps=STEPS, trace=None, gated=True, deep=0):
        self.seed, self.random, self.steps, self.now = seed, random.Random(seed), steps, EPOCH  # noqa: S311
        self._trace, self._hash, self._gated, self.number = trace, hashlib.sha256(), gated, 0
        chance = self.random
        self.shape_name = chance.choice(sorted(SHAPES))
        self.shape = SHAPES[self.shape_name]
        self.proxied = chance.random() < 0.15
        # A message that a filter keeps from its initial owner would be nobody's.
        self.owner = chance.choice("***b") if not self.shape.filtered else "*"
        priority = parse("/k", "query").json if chance.random() < 0.25 else ""
        self.instances = {name: instances[name] for name in self.shape.instances}
        self._expression = parse("/k = 1", "replication")
        for each in self.instances.values():
            each.begin(self, always=chance.random() < 0.25, owner=self.owner, priority=priority)
        self.origins = {name: each.origin for name, each in self.instances.items()}
        self.all_origins = [*self.origins.values()]
        self.loss = losing.loss_of(seed, self.instances)
        self._versions = {}
        self.links = {name: self.link(name) for name in self.shape.links}
        self.cut = set()
        self.asked = {}
        self.views = {name: self._look(name) for name in self.instances}
        #: The views that `judge_all` saw last.
        self._judged = {}
        self.subscriptions, self.taken, self.clients = {}, [], 0
        names = "pqr"[: len(self.instances)]
        self.plain = {f"{name}": [at, 0] for name, at in zip(names, self.instances, strict=True)}
        number = chance.choice([0, 1, 1, 2]) if self.shape.fail_over else 0
        self.guaranteed = [Guaranteed(name, at) for name, at in ("ga", "hb")[:number]]
        self._undurable = {name: [] for name in self.instances}
        self.durable_names = {name: set() for name in self.instances}
        self.settled = {name: set() for name in self.instances}
        self.acknowledged, self.persisted, self._doubled = set(), set(), set()
        self.deep = deep
        self.tell("run", self.shape_name, self.owner, "proxied" if self.proxied else "", "sorted" if priority else "",
                  *(name for name, each in self.instances.items() if each.always))  # fmt: skip
        if deep:
            self._fill()

    def _fill(self):
        """Many messages at one instance, everywhere before it begins; a few match, most of them behind all others."""
        at, chance = self.random.choice(sorted(self.instances)), self.random
        matching = {chance.randrange(self.deep) for _ in range(3)} | {self.deep - chance.randrange(1, 9) for _ in "12"}
        kinds = [1 if number in matching else chance.choice([0, 2]) for number in range(self.deep)]
        for first in range(0, self.deep, 500):
            bodies = [body_of("d", first + 1 + i, kind) for i, kind in enumerate(kinds[first : first + 500])]
            self.instances[at].run("publish", self.instances[at].now, TOPIC, "", "", "b", *bodies)
        self._undurable[at] += [("published", f"d{number + 1}") for number in range(self.deep)]
        self.tell("deep", at, *sorted(matching))
        come_to_rest(self)

    def link(self, name):
        """A link as it begins."""
        source, destination = (self.instances[each] for each in name)
        filters = {TOPIC: self._expression} if name in self.shape.filtered else {}
        carried = EntrySelector(source.peer, destination.peer, lambda _: True, filters, lambda _: JSON)
        make_gate = FlushGate if self._gated else OpenGate
        return links.Link(
            destination.name,
            source.lossy,
            destination.lossy,
            carried,
            topics=[TOPIC],
            queues=[QUEUE],
            clock=lambda: destination.now,
            gate=lambda store: make_gate(self.instances[store.instance]),
        )

    # --- the run

    def tell(self, *words):
        text = " ".join(str(word) for word in words if word != "")
        self._hash.update(f"{text}\n".encode())
        if self._trace:
            self._trace(f"{self.number:>4} {text}")

    @property
    def history(self):
        """A digest of all that happened."""
        return self._hash.hexdigest()[:16]

    def run(self):
        """Gives the digest; raises `Violation`."""
        actors = list(_WEIGHTS)
        for number in range(1, self.steps + 1):
            self.number = number
            self._lose()
            (actor,) = self.random.choices(actors, [_WEIGHTS[each] for each in actors])
            for touched in getattr(self, actor)() or ():
                self.judge(touched)
            self.judge_all()
        finish(self)
        return self.history

    def _lose(self):
        if self.loss and self.number == self.loss.saved:
            self.instances[self.loss.at].back_up()
        if self.loss and self.number == self.loss.lost:
            losing.lose(self)

    def _look(self, name, former=None):
        origins = [origin for origin in self.all_origins if origin != self.origins[name]]
        return look(self.instances[name], origins, former)

    def judge(self, name, *, crashed=False):
        former = self.views[name]
        view = self._look(name, None if crashed else former)
        instance = self.instances[name]
        judge_log(instance, view, None if crashed else former, self.passes, is_whole=not losing.has_lost(self))
        if not self.deep:
            # Each of so many copies after each step would be all that a run does.
            judge_copies(instance, view)
        judge_deferred(instance, view)
        self.views[name] = view
        self._doubled |= doubled(self.views, name, None if crashed else former)
        if not crashed:
            judge_epochs(instance, former, view)
            judge_marks(instance, former, view)
            self._judge_leases(instance, former, view)

    def _judge_leases(self, instance, former, view):
        """Check that an acknowledged message, whose acknowledgement is confirmed, is delivered to nobody."""
        if self.proxied:
            return
        known = view.refs
        for ref, lease in view.leases.items():
            if former.leases.get(ref) != lease and known[ref] in self.acknowledged - self._doubled:
                raise Violation(f"{known[ref]} is delivered again at {instance.name}, though it was acknowledged")

    def judge_all(self):
        """Judge what was looked at since the last time, and what it has to do with the others."""
        fresh = {name for name, view in self.views.items() if view is not self._judged.get(name)}
        if not fresh:
            return
        self._judged = dict(self.views)
        for name, instance in self.instances.items():
            for other, source in self.instances.items():
                if other != name and not fresh.isdisjoint((name, other)):
                    judge_received(instance, self.views[name], source, self.views[other], self.passes)
        if not self.proxied:
            for name, found in believers(self.views, self.all_origins, self.owner).items():
                if len(found) > 1 and name not in self._doubled:
                    raise Violation(f"{name} has several owners: {found}")

    def passes(self, origin, destination, kind):
        """Return whether a message of an origin comes to an instance."""
        if not self.shape.filtered or origin == destination.origin:
            return True
        return f"{origin.partition('.')[0]}{destination.name}" not in self.shape.filtered or kind == 1

    # --- publishers

    def publish(self):
        publisher = self.random.choice(sorted(self.plain))
        at, last = self.plain[publisher]
        count = self.random.choice([1, 1, 2, 3])
        bodies = [body_of(publisher, last + 1 + i, self.random.randrange(3)) for i in range(count)]
        self.plain[publisher][1] += count
        instance = self.instances[at]
        instance.run("publish", instance.now, TOPIC, "", "", "b", *bodies)
        self._undurable[at] += [("published", f"{publisher}{last + 1 + i}") for i in range(count)]
        self.tell("publish", at, f"{publisher}{last + 1}", count)
        return at

    def publish_guaranteed(self):
        if not self.guaranteed:
            return ()
        publisher = self.random.choice(self.guaranteed)
        instance = self.instances[publisher.at]
        is_persisted = [n for n in publisher.open if self._is_everywhere(f"{publisher.name}{n}")]
        publisher.open = [n for n in publisher.open if n not in is_persisted]
        if not publisher.session:
            first = publisher.open[0] if publisher.open else publisher.last + 1
            who = (publisher.name, publisher.name)
            session, last, _, reached = instance.run("logon", instance.now, *who, first, "", "")
            publisher.session, publisher.sent = session, max(int(reached), first - 1)
            self._judge_told(publisher)
            self.tell("logon", publisher.name, publisher.at, first, last)
            return publisher.at
        count = self.random.choice([0, 1, 1, 2])
        publisher.open += range(publisher.last + 1, publisher.last + 1 + count)
        publisher.last += count
        numbers = [n for n in publisher.open if n > publisher.sent][:3]
        if not numbers:
            return ()
        bodies = [body_of(publisher.name, n, n % 3) for n in numbers]
        head = (TOPIC, publisher.name, f"{publisher.session} {numbers[0]}", "b")
        try:
            instance.run("publish", instance.now, *head, *bodies)
            outcome = "lost" if self.random.random() < 0.15 else "done"
            if outcome == "done":
                publisher.sent = numbers[-1]
        except Rejected as error:
            publisher.session, outcome = "", error.code
        if self.random.random() < 0.2:
            publisher.session = ""
        self.tell("publish", publisher.at, f"{publisher.name}{numbers[0]}", len(numbers), outcome)
        return publisher.at

    def _judge_told(self, publisher):
        """Check that what a publisher is told is recorded is, somewhere."""
        for name in [f"{publisher.name}{n}" for n in publisher.open if n <= publisher.sent]:
            if all(name not in view.names for view in self.views.values()):
                raise Violation(f"{publisher.name} was told at {publisher.at} that {name} is recorded")

    def _is_everywhere(self, name):
        return all(name in durable for durable in self.durable_names.values())

    def fail_over(self):
        if self.guaranteed:
            publisher = self.random.choice(self.guaranteed)
            publisher.at, publisher.session = self.random.choice(sorted(self.instances)), ""
            self.tell("fail over", publisher.name, publisher.at)

    # --- subscribers

    def subscribe(self, at=None, *, backlog=0, filtered=None):
        at = at or self.random.choice(sorted(self.instances))
        if len([each for each in self.subscriptions.values() if each[0] == at]) < 2:
            self.clients += 1
            instance, backlog = self.instances[at], backlog or self.random.choice([1, 2, 5])
            if filtered is None:
                filtered = self.deep and self.random.random() < 0.5
            chosen = (MATCHING.id, MATCHING.json) if filtered else ("none", "")
            by, *_ = instance.run(
                "subscribe", instance.now, "", f"c/{self.clients}", backlog, *chosen, "", 10**9, QUEUE
            )
            self.subscriptions[self.clients] = (at, by)
            self.tell("subscribe", at, by, backlog, "filtered" if filtered else "")
        return at

    def unsubscribe(self):
        if not self.subscriptions:
            return ()
        at, by = self.subscriptions.pop(self.random.choice(sorted(self.subscriptions)))
        self.instances[at].run("unsubscribe", self.instances[at].now, by)
        self.tell("unsubscribe", at, by)
        return at

    def take(self):
        if not self.subscriptions:
            return ()
        at, by = self.subscriptions[self.random.choice(sorted(self.subscriptions))]
        is_lost = self.random.random() < 0.1
        self.tell("take", at, by, "lost" if is_lost else "", *self.take_of(at, by, is_lost=is_lost))
        return at

    def take_of(self, at, by, *, is_lost=False):
        """The names of what is delivered."""
        instance = self.instances[at]
        heads = instance.run("take", instance.now, by, 3)[0][::2]
        self.judge(at)
        names = self.views[at].refs
        found = []
        for head in heads:
            _, token, _, _, _, ref = head.partition("\n")[0].split(" ")
            found.append(Taken(at, by, ref, token, names[ref]))
        if not is_lost:
            self.taken = [*self.taken, *found][-60:]
        return [each.name for each in found]

    def acknowledge(self):
        recent = self.taken if self.random.random() < 0.3 else self.taken[-4:]
        return self.settle(self.random.choice(recent), "acknowledged") if recent else ()

    def cancel(self):
        return self.settle(self.random.choice(self.taken), "cancelled") if self.taken else ()

    def administer(self):
        """Somebody acknowledges by bookmark, whoever holds it."""
        at = self.random.choice(sorted(self.instances))
        instance, view = self.instances[at], self.views[at]
        if not view.entries:
            return ()
        entry = self.random.choice(view.entries)
        refused = instance.run("settle", instance.now, "acknowledged", 0, "", QUEUE, 1, entry.ref, "")
        place = place_of(view, entry, (at, *self.all_origins_of(at)), self.owner)
        if not refused and place in ("remote", "settled"):
            raise Violation(f"{entry.name} was acknowledged at {at}, where it was {place}")
        if not refused:
            self._undurable[at].append(("acknowledged", entry.name))
        self.tell("administer", at, entry.name, *refused[1:])
        return at

    def settle(self, message, verb):
        """Settle a message; an accepted settlement must be what the lease says."""
        instance = self.instances[message.instance]
        lease = self.views[message.instance].leases.get(message.ref)
        refused = instance.run("settle", instance.now, verb, 0, message.by, QUEUE, 1, message.ref, message.token)
        if not refused and (lease is None or lease[0] != message.token):
            raise Violation(f"{message} was {verb}, whose lease was {lease}")
        if not refused and verb == "acknowledged":
            self._undurable[message.instance].append(("acknowledged", message.name))
        self.tell(verb, message.instance, message.by, message.name, message.token, *refused[1:])
        return message.instance

    # --- links

    def link_step(self):
        name = self.random.choice(self.shape.links)
        if name in self.cut:
            return ()
        faulty = self.random.random() < 0.12
        if faulty:
            store = self.instances[self.random.choice(name)].lossy
            store.lose(self.random.randrange(8), runs=self.random.random() < 0.7)
        self.step(name)
        losing.go_on(self)
        return name

    def step(self, name):
        """One step of a link, in calls of any size; what is lost makes it begin anew."""
        link = self.links[name]
        if self.loss and self._versions.get(name) != (versions := [self.instances[each].version for each in name]):
            # As who runs a link does.
            self._versions[name] = versions
            link.close()
        try:
            # What a destination is to be told again, it is told until it has read on, however slow the machine is.
            with (
                mock.patch.object(sending, "_BATCH", self.random.choice([1, 3, 500])),
                mock.patch.object(links, "_TOLD_AGAIN", math.inf),
            ):
                moved = link.step()
            self.tell("link", name, f"{moved.messages} {moved.journal_rows} {moved.requests}")
        except (Unavailable, Gap, IncarnationOver) as error:
            link.close()
            moved = None
            self.tell("link", name, type(error).__name__)
        except AmpsqError as error:
            raise Violation(f"link {name}: {type(error).__name__}: {error}") from error
        for each in name:
            self.instances[each].lossy.lose_nothing()
            self._note_claims(each)
        return moved

    def _note_claims(self, at):
        instance = self.instances[at]
        self.asked.setdefault(instance.origin, set()).update(claims_of(instance))

    def cut_link(self):
        name = self.random.choice(self.shape.links)
        self.cut.add(name)
        if self.random.random() < 0.5:
            self.links[name].close()
        self.tell("cut", name)

    def heal_link(self):
        if self.cut:
            name = self.random.choice(sorted(self.cut))
            self.cut.discard(name)
            self.tell("heal", name)

    def begin_anew(self):
        """A link that forgets where it was, so that all comes again."""
        name = self.random.choice(self.shape.links)
        self.links[name].close()
        if self.random.random() < 0.5:
            source = self.instances[name[0]]
            source.ask(["DEL", source.key("sent", name[1])])
        self.tell("begin anew", name)

    def repeat(self):
        """A call of a link comes once more, however late."""
        at = self.random.choice(sorted(self.instances))
        store = self.instances[at].lossy
        if not store.past:
            return ()
        call = self.random.choice(store.past)
        try:
            outcome = store.call(call)
        except Rejected as error:
            outcome = error.code
        self._note_claims(at)
        self.tell("repeat", at, call.script.name, outcome)
        return at

    # --- coordinators

    def sweep(self, at=None):
        at = at or self.random.choice(sorted(self.instances))
        instance = self.instances[at]
        self.tell("sweep", at, instance.run("sweep", instance.now)[0])
        return at

    def sweep_all(self, at):
        for _ in range(20 + self.deep // 50):
            if not self.instances[at].run("sweep", self.instances[at].now)[0]:
                return
        raise Violation(f"the sweep of {at} never ends")

    def request(self, at=None):
        at = at or self.random.choice(sorted(self.instances))
        instance = self.instances[at]
        number = instance.run("request_messages", instance.now, QUEUE)
        self.tell("request", at, number)
        return at

    def assume(self):
        if not self.proxied:
            return ()
        at, other = self.random.sample(sorted(self.instances), 2)
        instance = self.instances[at]
        instance.run("set_proxied_transfer", QUEUE, 1)
        done = instance.run("assume_ownership", instance.now, QUEUE, 100, other)
        self.tell("assume", at, other, done)
        return at

    # --- servers and time

    def flush(self, at=None):
        at = at or self.random.choice(sorted(self.instances))
        self.instances[at].flush()
        for what, name in self._undurable[at]:
            (self.acknowledged if what == "acknowledged" else self.persisted).add(name)
        self._undurable[at] = []
        self.durable(at)
        self.tell("flush", at)

    def all_origins_of(self, at):
        return [origin for origin in self.all_origins if name_of(origin) == at]

    def durable(self, at):
        """Note as durable what an instance has: it cannot lose it by a crash any more."""
        view = self.views[at]
        self.durable_names[at] = view.names
        self.settled[at] = {name for name, place in view.places.items() if place == "settled"}

    def crash(self):
        at = self.random.choice(sorted(self.instances))
        instance = self.instances[at]
        instance.crash()
        # A server does not start within the millisecond: else what it gives now would have the names of what it lost.
        self.now += 1
        if not instance.always:
            self._undurable[at] = []
        self.tell("crash", at)
        self.judge(at, crashed=True)
        there = set(instance.ask(["ZRANGE", instance.key("subscriptions"), 0, -1])[0])
        lost = [
            number for number, (where, by) in self.subscriptions.items() if where == at and by.encode() not in there
        ]
        for number in lost:
            del self.subscriptions[number]

    def pass_time(self):
        self.now += self.random.choice([1, 20, 60, 300, LEASE // 2, LEASE])
        self.tell("time", self.now - EPOCH)

    def set_clock(self):
        at = self.random.choice(sorted(self.instances))
        self.instances[at].skew = self.random.choice([-5_000, -700, 0, 0, 700, 5_000])
        self.tell("clock", at, self.instances[at].skew)

    def forget_scripts(self):
        at = self.random.choice(sorted(self.instances))
        self.instances[at].ask(["SCRIPT", "FLUSH"])
        self.tell("script flush", at)


_WEIGHTS = {
    "publish": 9, "publish_guaranteed": 9, "fail_over": 3, "subscribe": 4, "unsubscribe": 1, "take": 14,
    "acknowledge": 11, "administer": 1, "cancel": 3, "link_step": 34, "cut_link": 3, "heal_link": 4, "begin_anew": 2,
    "repeat": 4, "sweep": 6, "request": 8, "assume": 3, "flush": 14, "crash": 2, "pass_time": 8, "set_clock": 1,
    "forget_scripts": 0.3,
}  # fmt: skip
