"""Two plain queues, driven at random, that lose their state again and again and are rebuilt from log and journal alone.

What is settled and what is in the queue is what the model says, before and after; how much of it is ready and how much
unread is the rebuild's choice, which the model takes over. Leases, delays and attempts that were not lost stay.
"""

from __future__ import annotations

from typing import ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule
from queue_machine import QueueMachine, examples, run_machine

from ampsq.operations.check.queue import check, rebuild_queue
from ampsq.protocol.context import InstanceContext
from ampsq.protocol.scripts import compose


class Rebuilding:
    """A machine whose queues lose state besides."""

    definitions: ClassVar = {
        "work": '{"name":"work","underlying_topic":"^[ab]$","default_publish_target":"a"}',
        "mail": '{"name":"mail","underlying_topic":"b"}',
    }

    @rule(
        name=st.sampled_from(["work", "mail"]), lost=st.sampled_from([(), ("cursors",), ("cursors", "ahead", "ready")])
    )
    def rebuild(self, name, lost):
        queue, before = self.model.queues[name], self.look(self.model.queues[name])
        if lost:
            self.store.redis.delete(*[f"{self.real.tag}:q:{name}:{key}" for key in lost])
        self.run_flow(name)
        found = self.look(queue)
        assert found.settled == before.settled
        assert found.leases == before.leases
        assert found.attempts == before.attempts
        assert sorted([*found.waiting, *found.ready]) == sorted([*before.waiting, *before.ready])
        queue.waiting, queue.ready = found.waiting, set(found.ready)

    def run_flow(self, name):
        self.store.redis.hset(self.real.tag + ":queues", name, self.definitions[name])
        place = InstanceContext(self.store.instance, "i.one")
        self.drive(rebuild_queue(place, name))
        (found,) = self.drive(check(place, [name]))
        assert found.clean, found

    def drive(self, flow):
        """Run a flow at the model's time."""
        answer = None
        while True:
            try:
                step = flow.send(answer)
            except StopIteration as end:
                return end.value
            if step.script is not None and compose(step.script.name).arguments[:1] == ("now",):
                step.arguments = [self.model.now, *step.arguments[1:]]
            answer = self.store.call(step)


class RebuildMachine(Rebuilding, QueueMachine):
    """Subclassed with the server's `url`."""


@pytest.mark.timeout(600)
@examples(4, 40)
def test_random_histories_go_on_after_any_rebuild(valkey, examples):
    run_machine(RebuildMachine, valkey.url, examples)
