"""Random histories of letters that are taken, settled, put back, and put back again by calls that come late."""

from __future__ import annotations

import random
from collections import Counter

from cases import seeds
from world import ref

LETTERS = 30
KINDS = [{}, {"priority": "/p"}, {"cancels": 2}, {"lease": 500}]


class History:
    """One random history: letters in `dead`, messages for `work`, and `other` over the same topic."""

    def __init__(self, world, seed):
        self.world, self.dice = world, random.Random(seed)  # noqa: S311 - a history
        world.queue("work", "orders", **self.dice.choice(KINDS))
        world.queue("other", "orders", **self.dice.choice(KINDS))
        world.queue("dead", "letters", **self.dice.choice(KINDS))
        world.publish("letters", *(f'{{"p":{self.dice.randrange(3)}}}' for _ in range(LETTERS)))
        self.refs = [ref(f"1000-{number}", "letters") for number in range(LETTERS)]
        self.subscriptions = {
            name: world.subscribe(name, asked=self.dice.randrange(1, 5)) for name in ("dead", "work", "other")
        }
        self.held = {name: [] for name in self.subscriptions}
        self.calls, self.put_back, self.handled = [], set(), Counter()

    def step(self):
        self.dice.choice([self.redrive, self.redrive, self.late, self.take, self.take, self.settle, self.wait])()
        self.check()

    def redrive(self):
        chosen = self.dice.choices(self.refs, k=self.dice.randrange(1, 8))
        self.call(("work", f"c/{len(self.calls)}", chosen))

    def late(self):
        """A call of before, once more."""
        if self.calls:
            self.call(self.dice.choice(self.calls))

    def call(self, call):
        target, by, refs = call
        self.calls.append(call)
        texts = [text for place in refs for text in (place, f'{{"id":"{place}","p":1}}', "", "")]
        number, *refused = self.world.run("redrive", self.world.now, "dead", "orders", target, by, *texts)
        done = Counter(refs) - Counter(refused[::2])
        assert number == done.total()
        assert set(done.values()) <= {1}
        assert not self.put_back & done.keys()
        self.put_back |= done.keys()

    def take(self):
        name = self.dice.choice(list(self.subscriptions))
        for message in self.world.take(self.subscriptions[name], 5):
            self.held[name].append(message)
            if name != "dead":
                self.handled[name, message.body] += message.delivery == 1

    def settle(self):
        name = self.dice.choice(list(self.subscriptions))
        if self.held[name]:
            message = self.held[name].pop(self.dice.randrange(len(self.held[name])))
            verb = self.dice.choice(["acknowledged", "cancelled", "expired", "given_back"])
            self.world.settle(verb, [message], by=self.subscriptions[name])

    def wait(self):
        self.world.now += self.dice.choice([1, 100, 600])
        self.world.sweep_all()

    def check(self):
        """Check that each message put back is recorded once, for one queue, and the ones settled otherwise are not."""
        state = self.world.state()
        entries = [fields for _, fields in state.get(":log:orders", [])]
        assert Counter(fields["b"] for fields in entries) == Counter(f'{{"id":"{r}","p":1}}' for r in self.put_back)
        assert all(fields["q"] == "work" for fields in entries)
        journal = state.get(":q:dead:journal", [])
        settled = Counter(r for entry in journal for r in entry["refs"].split() if entry["how"] != "missing")
        redriven = {r for entry in journal if entry["reason"] == "redriven" for r in entry["refs"].split()}
        assert redriven == self.put_back
        assert set(settled.values()) <= {1}
        assert not [queue for queue, _ in self.handled if queue == "other"]

    def end(self):
        """Put back all that is left, except what was settled otherwise, and hand it to the waiting consumer."""
        for name, messages in self.held.items():
            self.world.unsubscribe(self.subscriptions[name])
            messages.clear()
        self.wait()
        self.call(("work", "last", self.refs))
        self.check()
        subscription = self.world.subscribe("work", asked=1_000)
        self.wait()
        while messages := self.world.take(subscription, 500):
            for message in messages:
                self.handled["work", message.body] += message.delivery == 1
            self.world.settle("acknowledged", messages, by=subscription)
        assert all(number >= 1 for number in self.handled.values())
        assert self.handled.total() >= len(self.put_back) - self.given_up()
        assert self.world.take(self.world.subscribe("other", asked=1_000), 500) == []

    def given_up(self):
        journal = self.world.state().get(":q:work:journal", [])
        return sum(len(entry["refs"].split()) for entry in journal if entry["how"] == "expired")


@seeds(25, soon=6)
def test_every_letter_is_put_back_once_or_settled_otherwise(world, seed):
    history = History(world, seed)
    for _ in range(60):
        history.step()
    history.end()
