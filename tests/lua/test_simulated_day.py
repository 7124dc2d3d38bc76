"""A day in a few seconds, since the scripts' time is given; the memory stays flat.

24 hours of publishing, delivering, lapsing, expiring and trimming, beside a message that nobody ever settles.

AMPSQ_DAY sets the messages of an hour (600 by default); with ``-s`` each hour is printed.
"""

from __future__ import annotations

import os

import pytest
from trimming import READERS
from world import World

HOURS = 24
MINUTE = 60_000
#: Between two looks of everybody.
STEP = 5 * MINUTE
STEPS = 12
#: A message is kept this long at least.
AGE = 20 * MINUTE
#: Some time of our years, so that IDs have as many digits as they have.
START = 1_763_640_000_000
PER_HOUR = int(os.environ.get("AMPSQ_DAY", "600"))


class Day:
    """One instance: orders for three queues and a slow one, their dead letters, and who consumes all of it."""

    def __init__(self, world: World):
        self.world, self.number = world, 0
        world.now = START
        for topic in ("orders", "letters", "dead"):
            world.topic(topic)
        world.queue("work", "orders", lease=30_000, deliveries=3, room=5_000)
        world.queue("ranked", "orders", priority="/p", room=5_000)
        world.queue("both", "orders", "letters", pattern=True, room=5_000)
        world.queue("slow", "orders")
        world.follow_expired("dead-letter-work", "work")
        self.consumers = {
            name: world.subscribe(name, asked=2_000, retry_timeout=10**12) for name in ("work", "ranked", "both")
        }
        self.holder = world.subscribe("slow", retry_timeout=10**12)
        self.unanswered = []

    def step(self):
        self.world.now += STEP
        self.publish("orders", PER_HOUR // STEPS)
        self.publish("letters", max(PER_HOUR // STEPS // 10, 1))
        self.world.sweep_all()
        for name, subscription in self.consumers.items():
            self.consume(name, subscription)
        self.be_slow()
        self.bury()
        self.trim()

    def publish(self, topic, count):
        for first in range(0, count, 500):
            bodies = [self.body() for _ in range(min(500, count - first))]
            self.world.publish(topic, *bodies, publisher=f"p{topic}", sequence=self.number)

    def body(self):
        self.number += 1
        return f'{{"n": {self.number}, "p": {self.number % 7}, "text": "{"x" * 150}"}}'

    def consume(self, name, subscription):
        """Mostly acknowledge; some expire, some come back, at once or later, and some are never answered."""
        while messages := self.world.take(subscription, 500):
            piles = {"acknowledged": [], "expired": [], "cancelled": [], "": []}
            for message in messages:
                at = int(message.token) % 100
                verb = {0: "expired", 1: "cancelled"}.get(at, "acknowledged")
                piles["" if name == "work" and at == 2 else verb].append(message)
            for verb in ("acknowledged", "expired", "cancelled"):
                if piles[verb]:
                    period = 7 * MINUTE if verb == "cancelled" else 0
                    assert self.world.settle(verb, piles[verb], period=period) == {}

    def be_slow(self):
        """The slow queue's first message stays leased all day; all others are acknowledged by bookmark."""
        held = self.world.holders("slow")
        refs = [ref for ref in self.unread("slow") if ref not in held]
        for first in range(0, len(refs), 500):
            self.world.settle("acknowledged", {"slow": [(ref, "") for ref in refs[first : first + 500]]})
        if not held:
            self.world.take(self.holder)
        # With its only subscription full, somebody else takes it past what is settled.
        other = self.world.subscribe("slow", retry_timeout=10**12)
        while self.world.run("read_stats", "slow")[9] > 0:
            self.world.take(other)
        self.world.unsubscribe(other)

    def unread(self, queue):
        cursor = self.world.state_of(f":q:{queue}:cursors")["orders"].split(" ")[0]
        entries = self.world.store.redis.xrange(self.world.key(":log:orders"), f"({cursor}")
        return [self.world.ref_of(stream_id) for stream_id, _ in entries]

    def bury(self):
        """Do the coordinator's work for the action: publish the dead letters, move on."""
        key = self.world.key(":q:work:journal")
        cursor = self.world.state_of(":action:dead-letter-work")["cursor expire work"]
        entries = self.world.store.redis.xrange(key, f"({cursor}")
        for _, fields in entries:
            if fields[b"how"] == b"expired":
                self.world.publish("dead", *["letter"] * len(fields[b"refs"].split()))
        if entries:
            self.world.run(
                "advance_action", "dead-letter-work", "expire work", cursor, entries[-1][0].decode(), 0, 0, 0
            )

    def trim(self):
        version = self.world.version()
        for topic in ("orders", "letters", "dead"):
            while self.world.run("trim_log", self.world.now, version, topic, AGE, "", "", "", 0, 0, *READERS)[0]:
                pass
        for queue in ("work", "ranked", "both", "slow"):
            readers = READERS if queue == "work" else ()
            while self.world.run("trim_journal", self.world.now, queue, "", *readers)[0]:
                pass

    def memory(self):
        """Bytes of every key."""
        redis = self.world.store.redis
        keys = redis.scan_iter(match=self.world.key(":*"), count=1_000)
        return {key.decode().split("}")[1]: redis.memory_usage(key, samples=0) for key in keys}


@pytest.fixture
def world(valkey_store, snapshot):
    return DayWorld(valkey_store, snapshot)


class DayWorld(World):
    def state_of(self, suffix):
        return {name.decode(): value.decode() for name, value in self.store.redis.hgetall(self.key(suffix)).items()}

    @staticmethod
    def ref_of(stream_id):
        ms, sequence = stream_id.decode().split("-")
        return f"{chr(96 + len(ms))}{ms}{chr(96 + len(sequence))}{sequence}/orders"


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_the_memory_of_a_day_is_that_of_its_first_hours(world):
    day, hours = Day(world), []
    for hour in range(HOURS):
        for _ in range(STEPS):
            day.step()
        memory = day.memory()
        hours.append(sum(memory.values()))
        used = world.store.redis.info("memory")["used_memory"]
        print(f"hour {hour + 1}: {day.number} messages, {hours[-1]:,} bytes of keys, {used:,} of the server")  # noqa: T201
    print(dict(sorted(memory.items(), key=lambda item: -item[1])[:8]))  # noqa: T201
    # Then the last twelve hours used what the first six did, though the first message of the day is still there
    assert max(hours[12:]) <= 1.1 * max(hours[:6])
    first = world.store.redis.xrange(world.key(":log:orders"), count=1)[0][0]
    assert list(world.holders("slow")) == [world.ref_of(first)]
    assert int(first.split(b"-")[0]) == START + STEP
    # And every queue counts what it settled in truth
    figures = {name: world.state_of(f":q:{name}") for name in ("work", "ranked", "both", "slow")}
    for name, fields in figures.items():
        total = day.number if name == "both" else HOURS * STEPS * (PER_HOUR // STEPS)
        settled = sum(int(fields.get(how, 0)) for how in ("acknowledged", "expired", "missing"))
        assert settled + left_of(world, name) == total


def left_of(world, name):
    fields, leased, ready, _, _, placed, held, _, *topics = world.run("read_stats", name)
    pairs = dict(zip(fields[::2], fields[1::2], strict=True))
    return leased + ready + placed + held + int(pairs.get("delayed", 0)) + sum(topics[1::4])
