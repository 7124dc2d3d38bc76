"""Queues driven at random while their logs and journals are trimmed: nothing that a queue needs is ever removed."""

from __future__ import annotations

import itertools

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule
from queue_machine import QueueMachine
from real import decoded, grouped
from sorted_machine import SortedMachine

from ampsq.base.bookmarks import parse_ref, ref_of

AGES = st.sampled_from([0, 0, 1, 500, 2_000])
COUNTS = st.sampled_from(["", "", 0, 1, 3])


def id_of(ref):
    """As numbers, which sort."""
    return tuple(map(int, parse_ref(ref)[1].split("-")))


class Trimming:
    """A machine that trims besides, and sees what was removed."""

    def __init__(self):
        super().__init__()
        self.told = {"work": [], "mail": []}

    def added(self, topic, entries):
        info = self.info(topic)
        return info["entries-added"] if info else entries

    def info(self, topic):
        key = f"{self.real.tag}:log:{topic}"
        return self.store.redis.xinfo_stream(key) if self.store.redis.exists(key) else None

    def told_before(self, queue):
        return self.told[queue.name]

    def log(self, topic):
        (entries,) = self.real.read(("XRANGE", f":log:{topic}", "-", "+"))
        return [ref_of(topic, decoded(stream_id)) for stream_id, _ in entries]

    def version(self):
        (version,) = self.real.read(("HGET", ":instance", "catalog"))
        return version

    def feeding(self, topic):
        return [queue for queue in self.model.queues.values() if topic in queue.topics]

    def beyond(self, refs, age, count):
        """Return the messages that a policy gives up."""
        excess = len(refs) - count if count != "" else 0
        until = self.model.now - age if age != "" else -1
        return [ref for i, ref in enumerate(refs) if i < excess or id_of(ref)[0] <= until]

    def unread(self, queue, topic):
        """Return the messages that a queue has yet to read: a trim takes it past what it knows ahead of its cursor."""
        (cursor,) = self.real.read(("HGET", f":q:{queue.name}:cursors", topic))
        place = tuple(map(int, decoded(cursor).split(" ")[0].split("-")))
        known = (queue.settled, queue.scheduled, queue.ready, queue.leased, queue.delayed)
        beyond = (ref for ref in self.log(topic) if id_of(ref) > place)
        return set(itertools.dropwhile(lambda ref: any(ref in refs for refs in known), beyond))

    def needed(self, topic, ref):
        queues = self.feeding(topic)
        for queue in queues:
            (is_sorted,) = self.real.read(("HGET", f":q:{queue.name}", "sorted"))
            if ref in self.unread(queue, topic):
                return True
            if any(ref in place for place in (queue.ready, queue.leased, queue.delayed, queue.scheduled)):
                return True
            sent = [item[1] for sub in self.model.subs.values() for item in sub.barriers if item[0] == queue.name]
            if is_sorted and ref in sent:
                return True
        return False

    # what happens

    @rule(topic=st.sampled_from("ab"), age=AGES, count=COUNTS, remembered=st.booleans())
    def trim(self, topic, age, count, remembered):
        before = self.log(topic)
        removable = [ref for ref in self.beyond(before, age, count) if not self.needed(topic, ref)]
        place = () if remembered else ("0-0",)
        reply = self.run("trim_log", self.version(), topic, age, "", count, *(place or ("",)), 0, 0)
        removed = set(before) - set(self.log(topic))
        assert reply[3] == len(removed)
        assert removed <= set(removable)
        if not remembered:
            assert removed == set(removable)

    @rule(name=st.sampled_from(["work", "mail"]), place=st.sampled_from(["", "0-0"]))
    def trim_journal(self, name, place):
        queue = self.model.queues[name]
        before = self.journal(name)
        self.run("trim_journal", name, place)
        after = set(self.journal(name))
        there = {ref for topic in queue.topics for ref in self.log(topic)}
        for stream_id, (how, reason, refs) in before.items():
            if stream_id not in after:
                assert not there & set(refs)
                self.told[name] += [(ref, how, reason) for ref in refs]

    def journal(self, name):
        (entries,) = self.real.read(("XRANGE", f":q:{name}:journal", "-", "+"))
        return {
            stream_id: (entry[b"how"].decode(), entry[b"reason"].decode(), entry[b"refs"].decode().split(" "))
            for stream_id, entry in entries
        }

    @rule(topic=st.sampled_from("ab"), age=st.sampled_from([1, 500, 2_000]), count=COUNTS)
    def discard(self, topic, age, count):
        beyond = self.beyond(self.log(topic), age, count)
        place, _, lost = self.run("discard_unsettled", self.version(), topic, age, "", count, "0-0", 0)
        assert place == ""
        expected = 0
        for queue in self.feeding(topic):
            for ref in beyond:
                if any(ref in place for place in (queue.waiting, queue.ready, queue.delayed, queue.scheduled)):
                    self.model.move(queue, "expired", ref)
                    queue.settled[ref] = ("missing", "retention")
                    expected += 1
        assert lost == expected

    @precondition(lambda self: self.model.subs)
    @rule(who=st.integers(0, 11), topic=st.sampled_from("ab"))
    def cancel_for_later_and_trim(self, who, topic):
        (sub,) = self.pick(list(self.model.subs.values()), [who])
        for name, pairs in grouped(self.live(sub)).items():
            self.settle_in(name, "cancelled", pairs, 2_500)
        # What was read just now has to be noted before it may be gone.
        self.check()
        self.trim(topic, 0, "", remembered=False)

    # what must hold

    @invariant()
    def what_is_not_settled_is_recorded(self):
        if not hasattr(self, "model"):
            return
        logs = {topic: set(self.log(topic)) for topic in "ab"}
        for queue in self.model.queues.values():
            for ref in (*queue.waiting, *queue.ready, *queue.delayed, *queue.scheduled, *queue.leased):
                assert ref in logs[parse_ref(ref)[0]]


class TrimmedMachine(Trimming, QueueMachine):
    """Subclassed with the server's `url`."""


class SortedTrimmedMachine(Trimming, SortedMachine):
    """Subclassed with the server's `url`."""
