"""Latencies: clients measure one message in a hundred and tell it with a sign of life; read as percentiles."""

from __future__ import annotations

import asyncio
import time

import pytest
from observing import eventually

from ampsq import AsyncClient, Client, Queue
from ampsq.base.bookmarks import ref_of
from ampsq.base.errors import DefinitionError, UnknownQueue
from ampsq.base.histogram import BOUNDS
from ampsq.queues.clock_comparison import ClockComparison
from ampsq.queues.latency_samples import LatencySamples
from ampsq.testing import Instance

WORK = Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=200)


def parts(token, *, queue=b"work", delivery=b"1", at=1_000_000, others=None):
    """Return the head of a delivered message, recorded at a time in ms."""
    head = [queue, b"%d" % token, delivery, b"0", b"b", ref_of("orders", f"{at}-0").encode()]
    return head if others is None else [*head, others]


@pytest.fixture
def clock():
    """A server's clock that is known: the machine's monotonic one, on top of 1,000 s."""
    found = ClockComparison()
    now = time.monotonic()
    found.learn(now, now, round(now * 1000) + 1_000_000)
    return found


def taken(samples):
    found = {}
    samples.take(found)
    return found


# -- what is chosen


def chosen(samples, number, batch):
    """Give how often each place in a batch was chosen of so many messages, picked up in such batches."""
    places = [0] * batch
    for first in range(0, number, batch):
        while samples.until < batch:
            places[samples.until] += 1
            samples.until += samples.gap()
        samples.until -= batch
        assert first % batch == 0
    return places


def test_one_message_in_a_hundred_is_chosen_and_no_place_in_a_batch_is_preferred(clock):
    places = chosen(LatencySamples(clock), 2_000_000, 100)
    assert 18_500 < sum(places) < 21_500
    # 200 each on average, with a spread of about 12
    assert 120 < min(places) <= max(places) < 280


def test_the_first_message_of_a_quiet_queue_is_chosen_and_again_behind_each_sign_of_life(clock):
    samples = LatencySamples(clock, gap=lambda: 10**9)
    for number in range(6):
        head = parts(number, queue=b"work" if number % 2 else b"mail")
        samples.choose_first(head)
        samples.handed_out(head)
    assert {name: each.delivery.count for name, each in taken(samples).items()} == {"work": 1, "mail": 1}
    assert taken(samples) == {}
    again = parts(9)
    samples.choose_first(again)
    samples.handed_out(again)
    assert list(taken(samples)) == ["work"]


def measure(samples, head, *, handed=True, ends=LatencySamples.acknowledged):
    samples.choose(head)
    if handed:
        samples.handed_out(head)
    ends(samples, head)
    found = taken(samples).get("work")
    return (0, 0) if found is None else (found.delivery.count, found.handling.count)


def test_delivery_is_of_the_first_one_and_handling_of_each_that_is_acknowledged(clock):
    samples = LatencySamples(clock)
    assert measure(samples, parts(1)) == (1, 1)
    assert measure(samples, parts(2, delivery=b"2")) == (0, 1)
    assert measure(samples, parts(3, delivery=b"0")) == (0, 0)
    assert measure(samples, parts(4), handed=False) == (0, 0)
    assert measure(samples, parts(5), ends=lambda samples, head: samples.forget([head])) == (1, 0)
    assert samples.measured == {}


def test_a_message_is_handed_out_once_whatever_is_made_of_it(clock):
    samples, head = LatencySamples(clock), parts(1)
    samples.choose(head)
    samples.handed_out(head)
    samples.handed_out(head)
    assert taken(samples)["work"].delivery.count == 1


def test_tokens_of_two_queues_are_not_taken_for_each_other(clock):
    samples = LatencySamples(clock)
    samples.choose(parts(1, queue=b"mail"))
    samples.handed_out(parts(1))
    samples.acknowledged(parts(1))
    assert taken(samples) == {}


def test_what_an_application_never_settles_does_not_pile_up(clock):
    samples = LatencySamples(clock)
    for number in range(10_000):
        samples.choose(parts(number))
    assert len(samples.measured) <= 1_000


@pytest.mark.parametrize(
    ("others", "seconds"),
    [(None, 60.0), (b"1:d7:1940000", 0.0), (b"1:d7:1000001", 60.0), (b"1:h2:{}1:d7:1930000", 10.0)],
)
def test_a_message_counts_from_when_it_was_recorded_or_is_due(others, seconds):
    # given: by the server's clock it is 1,940,000 ms
    clock, now = ClockComparison(), time.monotonic()
    clock.learn(now, now, 1_940_000)
    samples = LatencySamples(clock)
    head = parts(1, at=1_880_000, others=others)
    # when
    samples.choose(head)
    samples.handed_out(head)
    # then
    assert taken(samples)["work"].delivery.sum == pytest.approx(seconds, abs=0.5)


# -- the server's clock


def test_a_clock_is_known_as_well_as_the_quickest_answer_and_corrected_by_what_contradicts_it():
    clock = ClockComparison()
    assert clock.milliseconds(0.0) is None
    # an answer that took two seconds, then one of 2 ms
    clock.learn(10.0, 12.0, 61_000)
    assert clock.milliseconds(11.0) == pytest.approx(61_000, abs=1)
    clock.learn(20.0, 20.002, 69_500)
    assert clock.milliseconds(20.001) == pytest.approx(69_500, abs=2)
    # a slow one says nothing against it
    clock.learn(30.0, 33.0, 80_000)
    assert clock.milliseconds(33.0) == pytest.approx(82_500, abs=2)
    # the server's clock was set back an hour
    clock.learn(40.0, 40.002, 89_500 - 3_600_000)
    assert clock.milliseconds(40.001) == pytest.approx(89_500 - 3_600_000, abs=2)


@pytest.mark.parametrize("server", ["memory", "embedded"])
def test_a_server_whose_clock_differs_from_the_machine_s_is_measured_by_its_own(server):
    with Instance(server) as held:
        client = held.client
        client.apply(WORK)
        # given: its clock is a week ahead, and a message waits for an hour by it
        held.advance("7d")
        with client.subscribe("work") as work:
            client.publish("orders", {"id": 1})
            held.advance("1h")
            client.publish("orders", {"id": 2})
            for _ in range(2):
                work.get("30s").ack()
            held.advance("10s")
        # then: that one waited for an hour
        found = client.admin.queue_latencies("work")
        assert 1 <= found.delivery.samples <= 2
        assert found.delivery.p99 > 1_800
        assert found.handling.samples == found.delivery.samples
        assert found.handling.p99 < 60


def test_what_is_published_by_a_clock_that_is_ahead_took_no_time(clock):
    samples, head = LatencySamples(clock), parts(1, at=9_000_000_000_000)
    samples.choose(head)
    samples.handed_out(head)
    assert taken(samples)["work"].delivery.sum == 0.0


# -- from the client to who looks


def end_of_interval(seconds):
    """The end of the histogram's interval that a time is in: 0.25 s of what takes a fifth of a second."""
    return next(bound for bound in BOUNDS if bound >= seconds)


def test_percentiles_are_those_of_what_really_took_so_long(either):
    # given: a message waits for half a second, and its handler takes a fifth of one
    either.apply(WORK)
    either.publish("orders", {"id": 1})
    time.sleep(0.5)  # that long it waits
    with either.subscribe("work") as work:
        message, began = work.get("30s"), time.monotonic()
        time.sleep(0.2)  # that long it is handled
        message.ack()
        handled = time.monotonic() - began
        assert either.admin.queue_latencies("work").delivery.samples == 0
    # then: what was measured was told when the subscription ended
    for over in ("15m", "6h", "7d"):
        found = either.admin.queue_latencies("work", over)
        assert (found.delivery.samples, found.handling.samples) == (1, 1)
        assert found.delivery.p50 == pytest.approx(0.75, abs=0.25)
        assert 0.1 <= found.handling.p50 <= end_of_interval(handled)
    assert found.as_dict()["delivery"]["samples"] == 1


def test_asyncio_measures_as_threads_do_also_what_is_acknowledged_at_once(client, valkey):
    client.apply(WORK)
    client.publish("orders", {"id": 1})

    async def consume():
        async with (
            AsyncClient(valkey.url, instance=client.instance) as other,
            await other.subscribe("work") as work,
        ):
            message, began = await work.get("30s"), time.monotonic()
            await asyncio.sleep(0.2)  # that long it is handled
            await message.ack(wait=True)
            return time.monotonic() - began

    handled = asyncio.run(consume())
    found = client.admin.queue_latencies("work")
    assert (found.delivery.samples, found.handling.samples) == (1, 1)
    assert 0.1 <= found.handling.p50 <= end_of_interval(handled)

    async def ask():
        async with AsyncClient(valkey.url, instance=client.instance) as other:
            return await other.admin.queue_latencies("work")

    asked = asyncio.run(ask())
    assert (asked.delivery, asked.handling) == (found.delivery, found.handling)


def test_what_is_cancelled_or_expired_was_delivered_and_not_handled(client):
    client.apply(WORK)
    client.publish("orders", {"id": 1})
    with client.subscribe("work") as work:
        work.get("30s").expire()
    found = client.admin.queue_latencies("work")
    assert (found.delivery.samples, found.handling.samples) == (1, 0)
    assert (found.handling.p50, found.handling.p95, found.handling.p99) == (None, None, None)


def test_it_is_told_with_the_next_sign_of_life(connect):
    client = connect(heartbeat="200ms")
    client.apply(WORK)
    client.publish("orders", {"id": 1})
    with client.subscribe("work") as work:
        work.get("30s").ack()
        found = eventually(lambda: client.admin.queue_latencies("work").handling.samples, within=30)
        assert found == 1


def test_of_many_messages_about_one_in_a_hundred_is_measured(client):
    client.apply(WORK)
    client.publish_many("orders", range(6_000))
    with client.subscribe("work", max_backlog=200) as work:
        for number, message in enumerate(work, 1):
            message.ack()
            if number == 6_000:
                break
    found = client.admin.queue_latencies("work")
    assert 25 <= found.delivery.samples <= 100
    assert abs(found.handling.samples - found.delivery.samples) <= 2


def test_a_queue_that_there_is_not_and_another_range_are_refused(client):
    client.apply(WORK)
    assert client.admin.queue_latencies("work").delivery.p99 is None
    with pytest.raises(UnknownQueue, match="did you mean 'work'"):
        client.admin.queue_latencies("wrok")
    with pytest.raises(DefinitionError, match="allowed is '15m', '6h', '7d'"):
        client.admin.queue_latencies("work", "1h")


# -- what it costs


def calls_of(redis):
    """Command -> number of calls, but those of this question."""
    found = redis.info("commandstats")
    return {name.removeprefix("cmdstat_"): each["calls"] for name, each in found.items() if "info" not in name}


def consume(client, redis, number):
    """Consume messages one by one, acknowledging each; gives the calls that this took, without opening and closing."""
    client.publish_many("orders", range(number))
    with client.subscribe("work", max_backlog=50) as work:
        before = calls_of(redis)
        for _ in range(number):
            work.get("30s").ack()
        work.flush()
        after = calls_of(redis)
    return {name: each - before.get(name, 0) for name, each in after.items() if name in ("evalsha", "fcall", "blmpop")}


def fewest_calls(client):
    """Count calls of scripts for 500 messages: a sign of life, or a call that got little, may have come between."""
    rounds = [consume(client, client._store.redis, 500) for _ in range(4)]
    return min(rounds, key=lambda calls: sum(calls.values()))


def test_measuring_costs_no_call_on_the_way_of_a_message(start_server, instance, monkeypatch):
    node = start_server("valkey")
    with Client(node.url, instance=instance, heartbeat="10s") as client:
        client.apply(WORK)
        consume(client, client._store.redis, 500)
        with_all = fewest_calls(client)
        monkeypatch.setattr(LatencySamples, "choose", lambda *_: None)
        without = fewest_calls(client)
    assert with_all == without
    assert with_all["evalsha"] > 0 or with_all["fcall"] > 0


def test_a_client_that_gets_nothing_tells_nothing(start_server, instance):
    node = start_server("valkey")
    with Client(node.url, instance=instance, heartbeat="200ms") as client:
        client.apply(WORK)
        client.publish("orders", {"id": 1})
        with client.subscribe("work") as work:
            work.get("30s").ack()
            work.flush()
            eventually(lambda: client.admin.queue_latencies("work").handling.samples == 1, within=30)
            before = calls_of(client._store.redis)
            signs = before["zadd"]
            eventually(lambda: calls_of(client._store.redis)["zadd"] >= signs + 5, within=30)
            after = calls_of(client._store.redis)
    assert after["hset"] == before["hset"]
    # A sign of life reads what each subscription holds, and no more.
    assert after["hmget"] - before["hmget"] == after["zadd"] - signs
