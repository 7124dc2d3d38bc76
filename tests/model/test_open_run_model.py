"""Queues whose messages are pushed in open runs, driven at random, against the model of `queue_machine`.

Mostly one subscription waits, messages are published one by one, picked up as a blocked read does it, and acknowledged
by who holds them; all else that may happen to a queue happens between. AMPSQ_EXAMPLES sets the number of histories.
"""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from queue_machine import PICKS, QUEUE_NUMBERS, QueueMachine, examples, run_machine
from queue_model import Model, Queue
from real import decoded, flat, grouped, messages_of, pairs_of
from test_rebuild_model import Rebuilding
from trim_machine import Trimming

from ampsq.protocol.schema import FIELDS

NUMBERS = QUEUE_NUMBERS | {"backlog": st.just(0)}
ONE = st.sampled_from("aaab")


class OpenRunMachine(QueueMachine):
    """Subclassed with the server's `url`.

    Attributes:
        reached: how often a run was open behind a publish of one message, and behind an acknowledgement.
    """

    reached: ClassVar[Counter] = Counter()

    @initialize(work=st.fixed_dictionaries(NUMBERS), mail=st.fixed_dictionaries(NUMBERS))
    def define(self, work, mail):
        queues = [Queue("work", ("a",), room=20, **work), Queue("mail", ("b",), room=20, **mail)]
        self.model = Model(queues)
        self.run("open", "i", "one")
        for queue in queues:
            self.define_queue(queue)
        self.subscribe(["work"], 20)

    def is_open(self, name):
        return self.store.redis.hexists(f"{self.real.tag}:q:{name}", FIELDS["open_run"])

    @rule(topic=ONE)
    def publish_one(self, topic):
        self.publish_all(topic, ["body"])
        self.reached["push"] += self.is_open("work" if topic == "a" else "mail")

    @rule(topic=ONE, count=st.integers(1, 5), number=st.sampled_from([1, 50]), picks=PICKS.filter(bool))
    def push_and_acknowledge(self, topic, count, number, picks):
        """Publish one by one; whoever is pushed them picks some up and acknowledges some."""
        for _ in range(count):
            self.publish_one(topic)
        for sub in [sub for sub in self.model.subs.values() if sub.inbox]:
            self.pick_up(sub, number)
            for item in dict.fromkeys(self.pick(self.live(sub), picks)):
                self.acknowledge_some(sub, [item])

    @rule(count=st.integers(1, 20), number=st.integers(1, 3))
    def drain_one_by_one(self, count, number):
        """Let all consumers be done with what they hold, and then publish, pick up and acknowledge one by one."""
        for sub in list(self.model.subs.values()):
            self.pick_up(sub, 50)
            self.take_of(sub, self.live(sub))
        # The last ones, since a run holds 16 messages.
        self.push_and_acknowledge("a", count, 50, range(-number, 0))

    @rule(topic=st.sampled_from("ab"), count=st.integers(2, 4), delay=st.sampled_from([None, None, 600]))
    def publish(self, topic, count, delay):
        self.publish_all(topic, ["body"] * count, None, delay)

    @precondition(lambda self: len(self.model.subs) < 2)
    @rule(
        queues=st.sampled_from([["work"], ["work"], ["mail"], ["mail"], ["work", "mail"]]),
        asked=st.sampled_from([1, 2, 20, 20, 20]),
    )
    def subscribe(self, queues, asked):
        self.take_of(self.register(queues, asked), [])

    def pick_up(self, sub, number):
        """Pick up what was pushed, as a blocked read does it."""
        texts = decoded(self.store.redis.lpop(f"{self.real.tag}:s:{sub.id}:inbox", 2 * number) or [])
        found, sub.inbox = sub.inbox[:number], sub.inbox[number:]
        assert messages_of(texts) == found
        self.seen += found

    def acknowledge_some(self, sub, items):
        for name, pairs in grouped(items).items():
            refused = self.run("settle", "acknowledged", 0, sub.id, *flat({name: pairs}))
            queue = self.model.queues[name]
            assert pairs_of(refused) == self.model.settle(queue, "acknowledged", pairs)
            self.model.dispatch(queue)
            self.reached["acknowledgement"] += self.is_open(name)

    @precondition(lambda self: any(sub.inbox for sub in self.model.subs.values()))
    @rule(number=st.sampled_from([1, 1, 2, 50]))
    def read_inboxes(self, number):
        for sub in self.model.subs.values():
            self.pick_up(sub, number)

    @precondition(lambda self: self.model.subs)
    @rule(who=st.integers(0, 11), picks=PICKS.filter(bool), late=st.sampled_from([0, 0, 0, 1]))
    def acknowledge(self, who, picks, late):
        """Acknowledge some of what was picked up, of one call in four also what was before, which may be over."""
        (sub,) = self.pick(list(self.model.subs.values()), [who])
        self.acknowledge_some(sub, [*self.pick(self.live(sub), picks), *self.seen[:late]])


class RebuiltOpenRunMachine(Rebuilding, OpenRunMachine):
    """The same while queues lose state and are rebuilt."""

    definitions: ClassVar = {
        "work": '{"name":"work","underlying_topic":"a"}',
        "mail": '{"name":"mail","underlying_topic":"b"}',
    }


class TrimmedOpenRunMachine(Trimming, OpenRunMachine):
    """The same while logs and journals are trimmed."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("machine", [OpenRunMachine, RebuiltOpenRunMachine, TrimmedOpenRunMachine])
@examples(16, 100)
def test_random_histories_of_messages_pushed_in_open_runs_agree_with_the_model(valkey, machine, examples):
    OpenRunMachine.reached.clear()

    run_machine(machine, valkey.url, examples)

    # Without these the histories would say nothing of open runs.
    assert min(OpenRunMachine.reached[what] for what in ("push", "acknowledgement")) >= 5, OpenRunMachine.reached
