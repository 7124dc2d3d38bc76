"""Queues whose messages are leased in runs, driven at random, against the model of `queue_machine`.

Each queue has one topic and publishes come in batches, so that most of what is taken is taken in runs: acknowledged
whole, in parts, twice, by others; cancelled, expired, extended and given back one by one; lapsing; trimmed. What is
left of a run is compared with the model after each step. AMPSQ_EXAMPLES sets the number of histories.
"""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from queue_machine import QUEUE_NUMBERS, QueueMachine, examples, run_machine
from queue_model import Model, Queue
from trim_machine import Trimming

MANY = st.lists(st.integers(0, 1_000), max_size=8)


class RunMachine(QueueMachine):
    """Subclassed with the server's `url`."""

    @initialize(work=st.fixed_dictionaries(QUEUE_NUMBERS), mail=st.fixed_dictionaries(QUEUE_NUMBERS))
    def define(self, work, mail):
        queues = [Queue("work", ("a",), **work), Queue("mail", ("b",), **mail)]
        self.model = Model(queues)
        self.run("open", "i", "one")
        for queue in queues:
            self.define_queue(queue)

    @rule(topic=st.sampled_from("ab"), count=st.integers(1, 8))
    def publish(self, topic, count):
        self.publish_all(topic, ["body"] * count)

    @precondition(lambda self: len(self.model.subs) < 12)
    @rule(
        queues=st.sampled_from([["work"], ["work"], ["mail"], ["work", "mail"], ["mail", "work"]]),
        asked=st.integers(0, 8),
    )
    def subscribe(self, queues, asked):
        self.take_of(self.register(queues, asked), [])

    @precondition(lambda self: self.model.subs)
    @rule(who=st.integers(0, 11), picks=MANY, late=MANY, wanted=st.sampled_from([0, 2, 7, 50, 50]))
    def take(self, who, picks, late, wanted):
        super().take(who, picks, late, wanted)

    @precondition(lambda self: self.model.subs)
    @rule(who=st.integers(0, 11), wanted=st.sampled_from([0, 3, 50]))
    def acknowledge_all(self, who, wanted):
        (sub,) = self.pick(list(self.model.subs.values()), [who])
        self.take_of(sub, self.live(sub), wanted)

    @precondition(lambda self: self.seen)
    @rule(
        verb=st.sampled_from(["acknowledged", "cancelled", "cancelled", "expired", "extended", "given_back"]),
        picks=MANY.filter(bool),
        period=st.sampled_from([None, 0, 150, 700, 2_500]),
    )
    def settle(self, verb, picks, period):
        super().settle(verb, picks, period)


class TrimmedRunMachine(Trimming, RunMachine):
    """The same while logs and journals are trimmed."""


@pytest.mark.timeout(600)
@examples(8, 100)
def test_random_histories_of_messages_leased_in_runs_agree_with_the_model(valkey, examples):
    run_machine(RunMachine, valkey.url, examples)


@pytest.mark.timeout(600)
@examples(6, 60)
def test_they_do_while_logs_and_journals_are_trimmed(valkey, examples):
    run_machine(TrimmedRunMachine, valkey.url, examples)
