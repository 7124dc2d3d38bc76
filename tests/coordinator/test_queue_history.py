"""Duty: what the figures of queues were; bounded, once in 15 seconds at most, and nothing while nothing happens."""

from __future__ import annotations

import math

import pytest
from observing import eventually

from ampsq import LocalQueue
from ampsq.console.history_charts import draw_history
from ampsq.coordinator.duty import Definitions
from ampsq.coordinator.queue_history import QueueHistory
from ampsq.protocol.calls.queue_history import BUCKETS, RANGES, HistorySample, read_history, write_sample
from ampsq.protocol.reads.clock import server_time
from ampsq.protocol.schema import key

MINUTE = 60_000


@pytest.fixture
def duty(client):
    client.apply(LocalQueue(name="work", underlying_topic="orders"), LocalQueue(name="idle", underlying_topic="none"))
    return QueueHistory(Definitions())


def again(duty):
    """Let the time of the next sample come."""
    duty._wanted_at = float("-inf")
    return duty


def history(client, queue="work", range_="15m"):
    now = client._store.call(server_time())
    return client._store.call(read_history(client.instance, queue, range_, now))


def commands(client):
    """Number of calls of each command, but those of this question."""
    found = client._store.redis.info("commandstats")
    return {name: each["calls"] for name, each in found.items() if name not in {"cmdstat_info", "cmdstat_ping"}}


def test_a_sample_says_how_the_queue_is(client, duty):
    # given
    client.publish_many("orders", [{"id": number} for number in range(5)])
    client.ack("work", filter="/id < 2")
    # when
    pause = duty.run_once(client._store)
    # then
    (sample,) = history(client)
    assert (sample.entered, sample.settled, sample.depth) == (5, 2, 3)
    assert 0 <= sample.oldest < 60_000
    assert 10 < pause <= 15
    assert history(client, range_="6h") == history(client, range_="7d") == [sample]
    # and a queue in which nothing ever was has none
    assert not client._store.redis.exists(key(client.instance, "history", "idle"))


def test_while_nothing_happens_nothing_is_read_and_nothing_written(client, duty):
    # given
    assert duty.run_once(client._store) == math.inf
    client.publish("orders", {"id": 1})
    again(duty).run_once(client._store)
    assert again(duty).run_once(client._store) == math.inf
    before = history(client)
    # when: it is woken, and it is not yet time
    seen = commands(client)
    pause = duty.run_once(client._store)
    # then
    assert 0 < pause <= 15
    assert commands(client) == seen
    # and where it is time, it looks, and writes nothing
    assert again(duty).run_once(client._store) == math.inf
    assert history(client) == before


def test_what_is_written_is_bounded_however_long_it_goes_on(client):
    # given: a week and more of samples
    now = client._store.call(server_time())
    for minutes in range(0, 9 * 1440, 20):
        sample = HistorySample(now - minutes * MINUTE, 10_000_000 - minutes, 0, 7, 1)
        client._store.call(write_sample(client.instance, "work", sample))
    # then
    name = key(client.instance, "history", "work")
    assert client._store.redis.hlen(name) <= BUCKETS * len(RANGES)
    assert client._store.redis.memory_usage(name) < 30_000
    # what an earlier turn of the ring left is not taken for one of now
    for range_, length in RANGES.items():
        begin = now - BUCKETS * length
        assert all(begin <= each.at <= now for each in history(client, range_=range_))


def test_a_bucket_has_the_last_word_and_is_written_again_without_harm(client):
    now = client._store.call(server_time()) // RANGES["7d"] * RANGES["7d"]
    for at, depth in ((now, 1), (now + 1, 2), (now + 1, 2)):
        client._store.call(write_sample(client.instance, "work", HistorySample(at, 5, 3, depth, 0)))
    assert [each.depth for each in history(client, range_="7d")] == [2]


def test_the_history_of_a_queue_goes_with_it(client, duty):
    # given
    client.publish("orders", {"id": 1})
    duty.run_once(client._store)
    name = key(client.instance, "history", "work")
    assert client._store.redis.exists(name)
    # when
    client.admin.remove(client.admin.queues()["work"])
    # then: also a sample that was on its way
    assert not client._store.redis.exists(name)
    client._store.call(write_sample(client.instance, "work", HistorySample(1, 1, 1, 1, 1)))
    again(duty).run_once(client._store)
    assert not client._store.redis.exists(name)


def test_a_coordinator_writes_it_once_messages_come(client, coordinate, valkey):
    client.apply(LocalQueue(name="work", underlying_topic="orders"))
    coordinate(valkey.url)
    client.publish("orders", {"id": 1})
    found = eventually(lambda: history(client), within=60)
    assert found[-1].entered == 1


def test_charts_show_rates_depth_and_age_and_rest_where_nothing_was_written():
    # given: ten messages a second for a minute, then nothing for five, then some leave, then nothing
    now, length = 10 * MINUTE, RANGES["15m"]
    busy = [HistorySample(number * length, number * 150, 0, number * 150, number * length) for number in range(1, 5)]
    late = HistorySample(6 * MINUTE, 600, 300, 300, 5 * MINUTE)
    # when
    entered, settled, depth, oldest = draw_history([*busy, late], "15m", HistorySample(now, 600, 300, 300, 9 * MINUTE))
    # then
    assert (entered.last, entered.most) == ("0.0", "10.0")
    assert (settled.last, settled.most) == ("0.0", "20.0")
    assert (depth.last, depth.most) == ("300", "600")
    assert oldest.last == "9m"
    assert entered.label == "In a second over the last 15 minutes: 0.0 now, at most 10.0"
    xs = [float(point.split(",")[0]) for point in entered.points.split(" ")]
    assert xs == sorted(xs)
    assert 0 <= xs[0] <= xs[-1] <= 300


def test_charts_end_with_how_the_queue_is_now_and_take_no_rate_over_a_moment():
    begin = HistorySample(MINUTE - 15_000, 0, 0, 0, 0)
    samples = [begin, HistorySample(MINUTE, 0, 0, 0, 0), HistorySample(MINUTE + 15_000, 150, 0, 150, 1)]
    # A second after the last sample, and six
    for later, rate in ((1_000, "10.0"), (6_000, "50.0")):
        live = HistorySample(MINUTE + 15_000 + later, 450, 0, 450, 7_000)
        entered, _, depth, oldest = draw_history(samples, "15m", live)
        assert (entered.last, depth.last, oldest.last) == (rate, "450", "7s")


def test_a_chart_of_a_queue_defined_anew_does_not_fall_below_nothing():
    length = RANGES["15m"]
    counts = [(900, 800), (3, 0), (18, 15)]
    samples = [
        HistorySample(number * length, entered, settled, entered - settled, 0)
        for number, (entered, settled) in enumerate(counts, 1)
    ]
    entered, settled, *_ = draw_history(samples[:-1], "15m", samples[-1])
    assert (entered.most, settled.most) == ("1.0", "1.0")


@pytest.mark.parametrize("range_", RANGES)
def test_without_samples_a_chart_says_that_nothing_is_known(range_):
    assert {
        chart.label.partition(": ")[2] for chart in draw_history([], range_, HistorySample(MINUTE, 5, 2, 3, 9))
    } == {"not known yet"}
