"""measure_logs: how much the logs of topics have."""

from __future__ import annotations


def test_a_topic_without_a_log_has_nothing_and_nothing_is_written(world):
    world.topic("orders")
    world.mark()

    assert world.run("measure_logs", "orders", "nowhere") == [[0, 0, 0, "", "", "", ""]] * 2
    assert world.changes() == {}


def test_entries_that_were_trimmed_count_as_added(world):
    # given
    world.topic("orders")
    for at in (1_000, 2_000, 3_000):
        world.now = at
        world.run("publish", world.now, "orders", "", "", "b", "{}")
    world.store.redis.xtrim(world.key(":log:orders"), maxlen=2, approximate=False)
    world.mark()

    # when
    [[length, added, size, first, first_source, last, last_source]] = world.run("measure_logs", "orders")

    # then
    assert (length, added, first, last) == (2, 3, "2000-0", "3000-0")
    assert (first_source, last_source) == ("", "")
    assert size > 0
    assert world.changes() == {}
