"""Two queues that judge their messages, driven at random, and what must hold after each step."""

from __future__ import annotations

import itertools
import json

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from queue_machine import QUEUE_NUMBERS, TIMES, QueueMachine
from real import decoded, pairs_of, texts
from sorted_model import BARRIERS, ENTRIES, FILTERS, PRIORITIES, SortedModel, SortedQueue

from ampsq.base.bookmarks import parse_ref
from ampsq.expressions import parse
from ampsq.protocol.limits import KEEP_FILTER

WISHES = {text: (parse(text, "filter").id, parse(text, "filter").json) for text in FILTERS} | {None: ("none", "")}
TREES = {text: parse(text, "query").json for text in (*ENTRIES, *PRIORITIES, *BARRIERS)} | {"": ""}

#: Priority, barrier expression, target depth, ring: none goes with another, but a ring with a depth.
SORTS = st.sampled_from(
    [
        *[("", "", 0, 0)] * 2,
        *[(text, "", 0, 0) for text in PRIORITIES] * 2,
        *[("", text, 0, 0) for text in BARRIERS] * 2,
        *(("", "", depth, 0) for depth in (1, 3, 6)),
        *(("", "", 0, ring) for ring in (1, 3, 6)),
        ("", "", 4, 3),
    ]
)
DEFINITION = {
    **QUEUE_NUMBERS,
    **TIMES,
    "room": st.sampled_from([3, 3, 2]),
    "entry": st.sampled_from(["", "", "", *ENTRIES]),
    "sorts": SORTS,
}
NUMBERS = [None, None, 0, 1, 1, 2, 2.7, -5, "x", "3", 2**53 - 1, 2**53, 2**53 + 1, 2**53 + 5, 2**64 - 1, 2**64, 1e30]
BODIES = st.one_of(
    *[
        st.builds(
            lambda n, p, b: json.dumps({"n": n, "p": p, "b": b}),
            st.integers(0, 4), st.sampled_from(NUMBERS), st.sampled_from([None, 0, 0, 1]),
        )
    ] * 7,
    st.sampled_from(["body", '{"n": 1, "p": 3, "b": 1', "{'n': 1}"]),
)  # fmt: skip
QUEUES = st.sampled_from([["work"], ["mail"], ["work", "mail"], ["mail", "work"]])
WISH = st.sampled_from([None, None, *FILTERS])


def without_prefix(member):
    """The ref of a member of an index, which begins with the low bits of a large priority."""
    return member[4:] if member.startswith("#") else member


def apart(drawn):
    """A drawn definition as the queue's own attributes."""
    rest = {name: value for name, value in drawn.items() if name != "sorts"}
    return rest | dict(zip(("priority", "barrier", "depth", "ring"), drawn["sorts"], strict=True))


#: Numbers of wishes: each is newer than those before.
_wishes = itertools.count(1)


class SortedMachine(QueueMachine):
    """Subclassed with the server's `url`."""

    @initialize(work=st.fixed_dictionaries(DEFINITION), mail=st.fixed_dictionaries(DEFINITION))
    def define(self, work, mail):
        queues = [SortedQueue("work", ("a", "b"), **apart(work)), SortedQueue("mail", ("b",), **apart(mail))]
        self.model = SortedModel(queues)
        self.run("open", "i", "one")
        for queue in queues:
            self.define_sorted(queue)

    def define_sorted(self, queue):
        self.define_queue(
            queue,
            *(TREES[text] for text in (queue.entry, queue.priority, queue.barrier)),
            depth=queue.depth,
            ring=queue.ring or "",
        )

    def run(self, name, *arguments):
        """And note how far each queue's tokens came, for the model to follow."""
        reply = super().run(name, *arguments)
        queues = self.model.queues.values()
        for queue, token in zip(
            queues, self.real.read(*(("HGET", f":q:{q.name}", "token") for q in queues)), strict=True
        ):
            queue.until = int(token or 0)
        return reply

    # what happens

    @rule(
        topic=st.sampled_from("ab"),
        bodies=st.lists(BODIES, min_size=1, max_size=6),
        times=st.sampled_from([1] * 9 + [8]),
        own=st.sampled_from([None] * 6 + [500, 3_000]),
        delay=st.sampled_from([None] * 6 + [0, 600]),
    )
    def publish(self, topic, bodies, times, own, delay):
        # What comes due is given first, or in its place among what is read with it: how much is read, is not foretold.
        unread = any(queue.waiting for queue in self.model.queues.values())
        self.publish_all(topic, bodies * times, own, None if unread else delay)

    @precondition(lambda self: len(self.model.subs) < 12)
    @rule(queues=QUEUES, asked=st.integers(0, 5), wish=WISH)
    def subscribe(self, queues, asked, wish):
        sub = self.register(queues, asked, wish, WISHES[wish])
        for name in queues:
            self.model.dispatch(self.model.queues[name], 0)
        self.take_of(sub, [])

    @precondition(lambda self: self.model.subs)
    @rule(who=st.integers(0, 11), queues=QUEUES, asked=st.integers(0, 5), wish=WISH)
    def replace(self, who, queues, asked, wish):
        (sub,) = self.pick(list(self.model.subs.values()), [who])
        max_, left, *_ = self.run("replace_subscription", "", sub.id, next(_wishes), asked, *WISHES[wish], "", *queues)
        self.model.replace(sub, queues, asked, wish)
        assert max_ == sub.max
        assert left == 0

    @rule(name=st.sampled_from(["work", "mail"]), drawn=st.fixed_dictionaries(DEFINITION))
    def define_again(self, name, drawn):
        queue = self.model.queues[name]
        # What is noted of a message's own life is judged by the model of then.
        kept = {"model": queue.model}
        if any(own for own, _ in map(self.model.times.get, queue.waiting)):
            kept["entry"] = queue.entry
        for attribute, value in (apart(drawn) | kept).items():
            setattr(queue, attribute, value)
        # What waits may be more by another filter than it was by the former.
        queue.unleased = len(self.published)
        # Whether what was delivered before it became a barrier is one when it comes back, is nowhere said.
        if any(self.model.is_barrier(queue, ref) for ref in (*queue.leased, *queue.delayed)):
            queue.barrier = ""
        for sub in self.model.subs.values():
            if name in sub.queues:
                sub.over = self.model.leased_of(sub)
        asked = {sub.id: self.asked_by(sub) for sub in self.model.subs.values()}
        self.define_sorted(queue)
        for sub in self.model.subs.values():
            if name in sub.queues:
                sub.max = self.model.most(sub.queues, asked[sub.id])
        self.model.dispatch(queue)

    def asked_by(self, sub):
        (asked,) = self.real.read(("HGET", f":s:{sub.id}", "asked"))
        return int(asked)

    @rule(milliseconds=st.sampled_from([59_000, 61_000]))
    def pass_a_minute(self, milliseconds):
        self.pass_time(milliseconds)

    # what must hold

    def names_of_filters(self):
        return {text: id_ for text, (id_, _) in WISHES.items()}

    def check_places(self, queue, found):
        at, names = f":q:{queue.name}", found.fields.get("sorted", "").split()
        held, filters, *indexes = self.real.read(
            ("ZRANGE", at + ":held", 0, -1), ("HGETALL", at + ":filters"),
            *(("ZRANGE", f"{at}:sorted:{name}", 0, -1, "WITHSCORES") for name in names or ["none"]),
        )  # fmt: skip
        held, filters, indexes = decoded(held), texts(filters), [pairs_of(decoded(index)) for index in indexes]
        placed = [without_prefix(member) for member, _ in indexes[0]]
        entered = self.model.note_read(queue, found.read)
        self.model.note_ended(queue, found.settled, found.ready if names else [])
        if entered and queue.depth:
            # What has a time of its own comes as it must.
            timed = sum(self.model.times[ref] != (None, None) for ref in (*queue.ready, *queue.delayed, *queue.leased))
            assert self.model.active(queue) <= queue.depth + timed
        ready = [without_prefix(ref) for ref in found.ready] if names else found.ready
        here = [*ready, *placed, *held]
        later = [*queue.delayed, *queue.scheduled]
        places = [*here, *found.waiting, *queue.refused, *later, *found.leases, *(s[0] for s in found.settled)]
        assert sorted(places) == sorted(r for r in self.published if parse_ref(r)[0] in queue.topics)
        assert found.waiting == queue.waiting
        assert set(here) == queue.ready
        assert int(found.fields.get("filtered", 0)) == len(queue.refused)
        self.check_filters(queue, names, filters)
        if "resort" not in filters:
            self.check_order(queue, placed, held)
            self.check_indexes(names, filters, indexes)
        if not names:
            assert not placed and not held and not filters  # noqa: PT018 - plain as if it had never been anything else

    def check_filters(self, queue, names, filters):
        used = [WISHES[sub.filter][0] for sub in self.model.subs.values() if queue.name in sub.queues and sub.filter]
        known = [field.split(" ")[1] for field in filters if field.startswith("filter ")]
        assert set(names) == ({"none", *known} if names else set())
        assert not (queue.entry or queue.priority or queue.barrier or queue.ring or used) or names
        assert {name: int(filters[f"users {name}"]) for name in known} == {name: used.count(name) for name in known}
        assert set(used) <= set(known)
        dues = self.real.read(*(("ZSCORE", ":due", f"filter {queue.name} {name}") for name in known))
        for name, due in zip(known, dues, strict=True):
            assert name in used or (due is not None and float(due) <= self.model.now + KEEP_FILTER)

    def check_order(self, queue, placed, held):
        assert placed == sorted(placed, key=lambda ref: self.model.place(queue, ref))
        assert not [ref for ref in placed if self.model.is_barrier(queue, ref)]
        if held:
            assert self.model.is_barrier(queue, held[0])
            assert not placed or max(placed) < held[0]

    def check_indexes(self, names, filters, indexes):
        texts_of = {id_: text for text, (id_, _) in WISHES.items()}
        for name, index in zip(names[1:], indexes[1:], strict=True):
            if f"place {name}" not in filters:
                text = texts_of[name]
                assert index == [
                    (member, score)
                    for member, score in indexes[0]
                    if self.model.judge(FILTERS, text, without_prefix(member), otherwise=False)
                ]
