"""Expiration that a message has of its own, beside that of its queue."""

from __future__ import annotations

from expiring import FIRST, MODELS, SECOND, expired


def test_a_message_s_own_life_is_noted_when_it_is_published(world):
    world.queue("work", "orders")
    world.mark()
    world.publish("orders", "one", expiration=700)
    assert world.changes() == {
        ":log:orders": [("1000-0", {"b": "one", "e": "700"})],
        ":clock": "1000-0",
        ":expirations:orders": {"1000-0": 1_700.0},
        ":due": {"expirations orders": 1_700.0},
    }


def test_it_expires_wherever_it_waits_and_the_queue_reads_past_it(world):
    world.queue("work", "orders")
    world.publish("orders", "one", expiration=700)
    world.publish("orders", "two")
    world.mark()
    world.now = 1_700

    world.sweep_all()

    assert world.changes() == {
        ":expirations:orders": None,
        ":due": None,
        ":q:work:journal": [expired(FIRST)],
        ":q:work": {"expired": "1"},
        ":q:work:cursors": {"orders": "1000-0 1"},
    }


def test_behind_others_that_wait_it_is_settled_ahead_of_the_cursor(world):
    world.queue("work", "orders")
    world.publish("orders", "one")
    world.publish("orders", "two", expiration=700)
    world.now = 1_700
    world.sweep_all()
    assert world.state()[":q:work:ahead"] == {SECOND: "expired"}
    subscription = world.subscribe("work", asked=5)
    assert [m.body for m in world.take(subscription, 5)] == ["one"]
    assert ":q:work:ahead" not in world.state()


def test_the_queues_of_a_topic_judge_it_each_for_itself(world):
    for name, model in MODELS.items():
        world.queue(name, "orders", policy={"life": 5_000, "model": model})
    world.queue("plain", "orders")
    world.publish("orders", "one", expiration=1_000)
    ends = {}
    for world.now in (1_999, 2_000, 5_999, 6_000):
        world.sweep_all()
        for name in (*MODELS, "plain"):
            if f":q:{name}:journal" in world.state():
                ends.setdefault(name, world.now)
    assert ends == {"default": 2_000, "queue": 6_000, "latest": 6_000, "earliest": 2_000, "plain": 2_000}


def test_a_longer_life_of_its_own_outlives_the_queue_s(world):
    for name, model in MODELS.items():
        world.queue(name, "orders", policy={"life": 1_000, "model": model})
    world.publish("orders", "one", expiration=5_000)
    ends = {}
    for world.now in (1_900, 2_000, 5_900, 6_000):
        world.sweep_all()
        for name in MODELS:
            if f":q:{name}:journal" in world.state():
                ends.setdefault(name, world.now)
    assert ends == {"default": 6_000, "queue": 2_000, "latest": 6_000, "earliest": 2_000}


def test_one_of_the_two_counts_where_the_other_is_not_given(world):
    for name, model in MODELS.items():
        world.queue(f"{name}-own", "orders", policy={"model": model})
        world.queue(f"{name}-queue", "trades", policy={"life": 1_000, "model": model})
    world.publish("orders", "one", expiration=1_000)
    world.publish("trades", "one")
    world.now = 2_000
    world.sweep_all()
    journaled = {key for key in world.state() if key.endswith(":journal")}
    assert journaled == {
        *(f":q:{name}-queue:journal" for name in MODELS),
        *(f":q:{name}-own:journal" for name in MODELS if name != "queue"),
    }


def test_a_leased_message_is_judged_by_its_own_life_when_it_comes_back(world):
    world.queue("work", "orders")
    subscription = world.subscribe("work", asked=1)
    world.publish("orders", "one", expiration=700)
    (message,) = world.take(subscription)
    world.now = 5_000
    world.sweep_all()
    assert ":q:work:journal" not in world.state()
    world.settle("cancelled", [message])
    assert world.state()[":q:work:journal"][0]["reason"] == "time_limit"


def test_a_million_others_are_not_looked_at(world):
    """By commands: ten that end behind ten thousand that do not cost a few reads each, however many the others are."""

    def reads(others):
        world.store.redis.flushdb()
        world.__init__(world.store, world._snapshot)
        world.queue("work", "orders")
        for _ in range(others // 500):
            world.publish("orders", *["x"] * 500)
        for _ in range(10):
            world.publish("orders", "y", expiration=700)
        world.now = 1_700
        world.store.redis.config_resetstat()
        world.sweep_all()
        assert world.state()[":q:work"]["expired"] == "10"
        return world.store.redis.info("commandstats")["cmdstat_xrange"]["calls"]

    assert reads(10_000) == reads(20_000) < 30
