"""Random histories of a queue, each told twice: with open runs, and with each ended behind the call that opened it."""

from __future__ import annotations

from random import Random

from cases import short_and_whole
from test_open_run import end_run, is_open, outcome

#: Half of what happens is one message that is published by itself, and acknowledgements.
STEPS = ("publish",) * 8 + ("pick", "acknowledge") * 5 + (
    "publish several", "take", "take", "cancel", "extend", "expire", "stale", "wait", "lapse", "come", "leave",
    "record", "remove", "room", "stats", "administer", "trim",
)  # fmt: skip


class History:
    """One queue, and what its consumers hold."""

    def __init__(self, world, seed, *, ends_runs):
        self.world, self.random, self.ends_runs = world, Random(seed), ends_runs  # noqa: S311
        self.held, self.over, self.opened, self.pushed = {}, [], 0, 0
        world.queue("work", "orders", lease=0 if seed % 3 == 2 else 5_000, room=20)
        self.come()

    def come(self):
        if len(self.held) < 3:
            self.held[self.world.subscribe("work", asked=self.random.choice([2, 5, 20]))] = []
        return [*self.held]

    def leave(self):
        if len(self.held) == 1:
            return None
        return self.world.unsubscribe(self.any_one(), self.held.pop(self.any_one()))

    def any_one(self):
        return [*self.held][-1]

    def chosen(self):
        """A consumer, and some of what it holds, mostly the oldest."""
        by = self.random.choice([*self.held])
        held = self.held[by]
        if self.random.random() < 0.2:
            self.random.shuffle(held)
        number = self.random.choice([1, 1, 1, 3, len(held)])
        return by, held[:number]

    def settle(self, verb, period=0):
        by, items = self.chosen()
        if not items:
            return None
        if verb != "extended":
            self.over += items
            self.held[by] = [message for message in self.held[by] if message not in items]
        return self.world.settle(verb, items, period=period, by=by)

    def step(self, what):
        world, random = self.world, self.random
        if what.startswith("publish"):
            return world.publish("orders", *(str(random.random()) for _ in range(2 if "several" in what else 1)))
        if what == "pick":
            by = random.choice([*self.held])
            found = world.inbox(by)[: random.choice([1, 2, 50])]
            world.store.redis.lpop(world.key(f":s:{by}:inbox"), 2 * len(found) or 1)
            self.held[by] += found
            return found
        if what == "take":
            by, items = self.chosen()
            self.held[by] = [message for message in self.held[by] if message not in items]
            messages, refused = world.take_whole(by, random.choice([1, 5, 50]), items)
            self.held[by] += messages
            return messages, refused
        simple = {
            "acknowledge": lambda: self.settle("acknowledged"),
            "cancel": lambda: self.settle("returned"),
            "extend": lambda: self.settle("extended", 9_000),
            "expire": lambda: self.settle("expired"),
            "stale": lambda: (
                world.settle("acknowledged", self.over[-2:], by=next(iter(self.held))) if self.over else None
            ),
            "administer": lambda: world.settle("acknowledged", {"work": [(m.ref, "") for m in self.chosen()[1]]}),
            "come": self.come,
            "leave": self.leave,
            "record": lambda: world.store.redis.xadd(world.key(":log:orders"), {"b": "x"}, id=f"{world.now}-*"),
            "remove": lambda: world.store.redis.xdel(world.key(":log:orders"), f"{world.now}-0"),
            "room": lambda: world.run("resize_backlog", world.now, next(iter(self.held)), random.choice([1, 3, 20])),
            "stats": lambda: world.run("read_stats", "work")[1:],
            "trim": lambda: world.run("trim_log", world.now, world.version(), "orders", "", "", "3", "", "", "0"),
        }
        return simple[what]()

    def run(self, steps):
        """Yield of each step what it was, its reply, and the state behind it but for the scores of who is free."""
        for _ in range(steps):
            what = self.random.choice(STEPS)
            if what in ("wait", "lapse"):
                self.world.now += 6_000 if what == "lapse" else self.random.choice([1, 1_000])
                what, reply = f"{what} {self.world.now}", self.world.sweep_all()
            else:
                reply = outcome(lambda _, what=what: self.step(what), self.world)
            if is_open(self.world):
                self.opened += 1
                text = self.world.store.redis.hget(self.world.key(":q:work"), "open_run")
                self.pushed += text.count(b"/orders") > 1
                if self.ends_runs:
                    end_run(self.world)
            state = self.world.state()
            state[":q:work:free:none"] = sorted(state.get(":q:work:free:none", ()))
            yield what, reply, state


def told(world, seed, *, ends_runs):
    world.__init__(world.store, world._snapshot)
    history = History(world, seed, ends_runs=ends_runs)
    steps = list(history.run(80))
    if is_open(world):
        end_run(world)
    found = steps, world.state(), history
    world.store.redis.delete(*world.store.redis.scan_iter(match=world.key(":*"), count=1000))
    return found


@short_and_whole("seeds", range(5), range(100))
def test_a_history_is_the_same_with_open_runs_as_without(world, seeds):
    opened = pushed = 0
    for seed in seeds:
        steps, end, history = told(world, seed, ends_runs=False)
        others, other_end, _ = told(world, seed, ends_runs=True)
        for number, (one, other) in enumerate(zip(steps, others, strict=True)):
            assert (seed, number, one) == (seed, number, other)
        assert end == other_end
        opened, pushed = opened + history.opened, pushed + history.pushed

    # Without these the history would say nothing.
    assert opened >= 5 * len(seeds)
    assert pushed >= len(seeds)
