"""heartbeat: what clients measured of messages, in buckets of time: added, replaced when its time is over, bounded."""

from __future__ import annotations

import pytest

from ampsq.base.histogram import BOUNDS, Histogram
from ampsq.protocol.calls.queue_latencies import Latencies, latency_lines, parse_latencies, read_latencies
from ampsq.protocol.limits import HISTORY_BUCKETS, HISTORY_RANGES
from ampsq.protocol.schema import key

KEPT = ":q:work:latencies"
DAY = 86_400_000


@pytest.fixture
def defined(world):
    world.queue("work", "orders")
    world.now = 400 * DAY
    world.mark()
    return world


def measured(*, delivery=(), handling=()):
    """Histograms of seconds."""
    found = Latencies()
    for seconds in delivery:
        found.delivery.add(seconds)
    for seconds in handling:
        found.handling.add(seconds)
    return found


def tell(world, **queues):
    world.run("heartbeat", world.now, 10_000, latency_lines(queues))


def over(world, range_="15m"):
    """Return what is kept of a range, as (delivery, handling) of each bucket."""
    call = read_latencies(world.store.instance, "work", range_, world.now)
    return [(each.latencies.delivery.counts, each.latencies.handling.counts) for each in world.store.call(call)]


def counts(*seconds):
    return measured(delivery=seconds).delivery.counts


def test_what_clients_tell_is_added_to_the_bucket_of_each_range_and_to_the_total(defined):
    # when
    tell(defined, work=measured(delivery=[0.003, 0.2], handling=[1.5]))
    tell(defined, work=measured(delivery=[0.004]))
    # then
    fields = defined.store.redis.hgetall(defined.key(KEPT))
    assert len(fields) == 1 + len(HISTORY_RANGES)
    number, total = parse_latencies(fields[b"total"].decode())
    assert number == 0
    assert total.delivery.sum == pytest.approx(0.207)
    assert total.handling.sum == pytest.approx(1.5)
    for range_ in HISTORY_RANGES:
        assert over(defined, range_) == [(counts(0.003, 0.004, 0.2), counts(1.5))]


def test_a_bucket_whose_turn_of_the_ring_is_over_begins_anew_and_the_total_goes_on(defined):
    # given
    tell(defined, work=measured(delivery=[0.003]))
    # when: the same place in the ring, a turn later
    defined.now += HISTORY_RANGES["15m"] * HISTORY_BUCKETS
    assert over(defined) == []
    tell(defined, work=measured(delivery=[20.0]))
    # then
    assert over(defined) == [(counts(20.0), counts())]
    assert over(defined, "7d") == [(counts(0.003, 20.0), counts())]
    total = parse_latencies(defined.store.redis.hget(defined.key(KEPT), "total").decode())[1]
    assert total.delivery.counts == counts(0.003, 20.0)


def test_buckets_come_in_the_order_of_time_and_only_those_of_the_range(defined):
    length = HISTORY_RANGES["15m"]
    for seconds in (0.003, 0.2, 20.0):
        tell(defined, work=measured(delivery=[seconds]))
        defined.now += length
    assert [each[0] for each in over(defined)] == [counts(0.003), counts(0.2), counts(20.0)]
    defined.now += length * (HISTORY_BUCKETS - 3)
    assert [each[0] for each in over(defined)] == [counts(0.2), counts(20.0)]


def test_what_is_kept_is_bounded_however_long_it_goes_on(defined):
    # given: a week and more, with something in every interval
    everything = [bound * 0.99 for bound in BOUNDS for _ in range(50)] + [9_999.0]
    for _ in range(9 * 24 * 4):
        tell(defined, work=measured(delivery=everything, handling=everything))
        defined.now += DAY // 96
    # then
    name = defined.key(KEPT)
    assert defined.store.redis.hlen(name) <= 1 + HISTORY_BUCKETS * len(HISTORY_RANGES)
    assert defined.store.redis.memory_usage(name, samples=0) < 120_000


def test_of_a_queue_that_is_gone_nothing_is_kept(defined):
    # given
    tell(defined, work=measured(delivery=[0.003]), gone=measured(delivery=[0.003]))
    assert not defined.store.redis.exists(key(defined.store.instance, "latencies", "gone"))
    # when
    version = defined.version()
    defined.run("remove_queue", version, "work")
    tell(defined, work=measured(delivery=[0.003]))
    # then
    assert not defined.store.redis.exists(defined.key(KEPT))


@pytest.mark.parametrize("lines", ["nonsense", "work|x|y", "work|1 2|", "work|-5 1 1|0", "work||\n|1|2"])
def test_nonsense_adds_nothing(defined, lines):
    tell(defined, work=measured(delivery=[0.003]))
    before = over(defined)
    defined.run("heartbeat", defined.now, 10_000, lines)
    assert over(defined) == before


def test_an_interval_that_there_is_not_counts_as_the_last_one(defined):
    defined.run("heartbeat", defined.now, 10_000, "work|5000000 99 3|0")
    assert over(defined) == [([0] * len(BOUNDS) + [3], counts())]


def test_a_sign_of_life_without_figures_changes_none(defined):
    defined.run("heartbeat", defined.now, 10_000, "")
    assert defined.changes() == {}


def test_a_histogram_is_read_as_it_was_written():
    found = Histogram()
    for seconds in (0.0, 0.001, 0.0011, 5.0, 99_999.0):
        found.add(seconds)
    assert Histogram.parse(found.text()) == found
    assert (found.counts[0], found.counts[1], found.counts[-1]) == (2, 1, 1)
