"""A slot of a cluster that is moved while its instance is used: what is reported is recorded once, and in order."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import threading
import time

import pytest
from cluster_harness import Cluster
from observing import eventually
from scene import take_ahead

from ampsq import AsyncClient, Client, Queue
from ampsq.base.errors import Unavailable
from ampsq.protocol import limits
from ampsq.protocol.calls.publish import publish
from ampsq.protocol.keepalive import keepalive_channel
from ampsq.protocol.schema import key
from ampsq.transport.discovery import slot_of

pytestmark = pytest.mark.slow

KINDS = ["redis", "valkey"]
#: Messages of one publish_many, and of one of its calls.
MANY, BATCH = 2000, 10
MOVES = 6


class Mover:
    """Moves an instance from node to node in a thread, each time when more is recorded; cancels every third move."""

    def __init__(self, cluster, instance):
        self._cluster, self._slot, self._log = cluster, slot_of(instance), key(instance, "log", "orders")
        self.thread = threading.Thread(target=self._run)
        self.failure = None

    def _run(self):
        rng = random.Random(self._slot)  # noqa: S311  (no secret)
        try:
            for number in range(MOVES):
                self._wait_for_more(rng.randrange(100, 900))
                source, target = self._cluster.begin_move(self._slot)
                time.sleep(rng.uniform(0.02, 0.1))  # calls meet the half that is there
                if number % 3 == 2:
                    self._cluster.cancel_move(self._slot, source, target)
                    continue
                while self._cluster.carry(self._slot, source, target, 3):
                    pass
                self._cluster.end_move(self._slot, target)
        except Exception as error:
            self.failure = error
            raise

    def _wait_for_more(self, number):
        source = self._cluster.owner(self._slot)
        wanted = source.ask("XLEN", self._log) + number
        eventually(lambda: source.ask("XLEN", self._log) >= wanted, within=30.0)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.thread.join(60)
        assert not self.thread.is_alive()
        assert self.failure is None


class Count:
    """The messages published, and the answers about them."""

    def __init__(self):
        self.numbers = itertools.count()
        self.reported, self.in_doubt, self.errors = [], set(), []

    def take(self):
        return list(itertools.islice(self.numbers, MANY))

    def failed(self, some, error):
        """Note an error; a program that trusts `may_have_run` publishes again what did not run."""
        self.errors.append(error)
        if error.may_have_run:
            self.in_doubt |= set(some)

    def check(self, recorded):
        assert self.reported
        assert len(recorded) == len(set(recorded)), "recorded twice"
        doubted = [number for number in recorded if number in self.in_doubt]
        assert [number for number in recorded if number not in self.in_doubt] == self.reported
        assert doubted == sorted(doubted)
        for error in self.errors:
            # Only a move that was cancelled lets a later call run before an earlier one.
            assert error.may_have_run
            assert "meanwhile it ran what was sent later" in str(error)
            assert "its slot is being moved to 127.0.0.1:" in str(error)
            assert "waiting helps" in str(error)


def recorded_by(client):
    with client.subscribe_topic("orders", bookmark="epoch") as messages:
        return [message.data for message in iter(lambda: messages.get(2.0), None)]


@pytest.fixture
def cluster(kind, start_node):
    return Cluster(lambda **options: start_node(kind=kind, **options))


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_that_calls_nothing_shows_life_where_its_slot_was_moved_at_once(cluster, instance):
    slot = slot_of(instance)
    # Given a consumer that asks for nothing, and whose next sign of life is 10 s away
    with Client(cluster.owner(slot).url, instance=instance, heartbeat="10s", retry_timeout="20s") as client:
        client.apply(Queue(name="work", underlying_topic="orders"))
        client.subscribe("work")
        channel = keepalive_channel(instance, client._session.client)
        for _ in range(3):
            source = cluster.owner(slot)
            target = next(each for each in cluster.primaries() if each is not source)
            # When its slot is moved
            cluster.move_by_keys(slot, target)
            # Then it is subscribed at the target, plain and sharded, long before that
            eventually(lambda: target.ask("PUBSUB", "SHARDNUMSUB", channel)[1] == 1, within=5.0)  # noqa: B023
            eventually(lambda: target.ask("PUBSUB", "NUMSUB", channel)[1] == 1, within=5.0)  # noqa: B023
            # And no longer at the source
            eventually(lambda: source.ask("PUBSUB", "NUMSUB", channel)[1] == 0, within=5.0)  # noqa: B023


@pytest.mark.parametrize("kind", KINDS)
def test_publish_many_goes_on_while_its_slot_is_moved(cluster, instance):
    slot, count = slot_of(instance), Count()
    with Client(cluster.owner(slot).url, instance=instance, heartbeat="2s", retry_timeout="30s") as client:
        client.publish_many("orders", [])
        with Mover(cluster, instance) as mover:
            while mover.thread.is_alive():
                some = count.take()
                try:
                    assert len(client.publish_many("orders", some, batch=BATCH)) == MANY
                    count.reported += some
                except Unavailable as error:
                    count.failed(some, error)
        count.check(recorded_by(client))


@pytest.mark.parametrize("kind", KINDS)
def test_publish_many_of_asyncio_goes_on_while_its_slot_is_moved(cluster, instance):
    slot, count = slot_of(instance), Count()

    async def main():
        url = cluster.owner(slot).url
        async with AsyncClient(url, instance=instance, heartbeat="2s", retry_timeout="30s") as client:
            with contextlib.ExitStack() as stack:
                mover = Mover(cluster, instance)
                await asyncio.to_thread(stack.enter_context, mover)
                while mover.thread.is_alive():
                    some = count.take()
                    try:
                        assert len(await client.publish_many("orders", some, batch=BATCH)) == MANY
                        count.reported += some
                    except Unavailable as error:
                        count.failed(some, error)

    asyncio.run(main())
    with Client(cluster.nodes[0].url, instance=instance) as client:
        count.check(recorded_by(client))


def test_a_move_that_lasts_too_long_is_told_with_what_helps(start_node, instance):
    cluster = Cluster(start_node)
    slot = slot_of(instance)
    with Client(cluster.owner(slot).url, instance=instance, heartbeat="1s", retry_timeout="500ms") as client:
        client.publish_many("orders", range(5))
        source, target = cluster.begin_move(slot)
        began = time.monotonic()
        with pytest.raises(Unavailable, match=r"its slot is being moved to 127\.0\.0\.1:.*; waiting helps") as raised:
            client.publish_many("orders", range(5, 1000), batch=BATCH)
        assert not raised.value.may_have_run
        assert 0.4 < time.monotonic() - began < 5
        cluster.cancel_move(slot, source, target)
        assert recorded_by(client) == list(range(5))


def test_what_was_recorded_before_the_move_may_have_run(start_node, instance):
    cluster = Cluster(start_node)
    slot = slot_of(instance)
    with Client(cluster.owner(slot).url, instance=instance, heartbeat="1s", retry_timeout="500ms") as client:
        client.publish_many("orders", [])

        def messages():
            for number in range(1000):
                if number == 500:
                    cluster.begin_move(slot)
                yield number

        with pytest.raises(Unavailable, match="waiting helps") as raised:
            client.publish_many("orders", messages(), batch=BATCH)
        assert raised.value.may_have_run


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_that_ran_before_an_earlier_one_is_told(cluster, instance):
    slot = slot_of(instance)
    with Client(cluster.owner(slot).url, instance=instance, retry_timeout="10s") as client:
        client.publish("orders", 0)
        with client._store.pipeline() as pipeline:
            source, target = cluster.begin_move(slot)
            pipeline.post(publish("orders", [b"1"], [], "", 0))
            # Once it is refused, the move is given up, and the next one runs.
            eventually(pipeline._connection.is_readable)
            cluster.cancel_move(slot, source, target)
            pipeline.post(publish("orders", [b"2"], [], "", 0))
            with pytest.raises(Unavailable, match="meanwhile it ran what was sent later") as raised:
                pipeline.collect()
        assert raised.value.may_have_run
        assert recorded_by(client) == [0, 2]


def test_an_ack_of_several_batches_tells_that_some_are_settled(start_node, instance):
    cluster = Cluster(start_node)
    slot = slot_of(instance)
    with Client(cluster.owner(slot).url, instance=instance, heartbeat="1s", retry_timeout="500ms") as client:
        client.apply(Queue(name="work", underlying_topic="orders"))
        bookmarks = list(client.publish_many("orders", range(limits.BATCH + 1)))
        settle, moving = client._store.call, []

        def call(each):
            answer = settle(each)
            if each.script is not None and each.script.name == "settle" and not moving:
                moving.append(cluster.begin_move(slot))
            return answer

        client._store.call = call
        with pytest.raises(Unavailable, match="waiting helps") as raised:
            client.ack("work", bookmarks)
        assert raised.value.may_have_run
        cluster.cancel_move(slot, *moving[0])
        assert client.admin.queue_stats("work").depth == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_queue_is_emptied_while_its_slot_is_moved(cluster, instance):
    slot = slot_of(instance)
    url = cluster.owner(slot).url
    with Client(url, instance=instance, retry_timeout="30s") as client, Client(url, instance=instance) as other:
        client.apply(
            Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=500, lease_period="60s")
        )
        with client.subscribe("work", max_backlog=200) as messages, Mover(cluster, instance) as mover:
            # So many wait that more is asked for ahead.
            take_ahead(messages)
            seen, number = [], MANY
            other.publish_many("orders", range(MANY))
            while mover.thread.is_alive() or len(seen) < number:
                if mover.thread.is_alive():
                    other.publish("orders", number)
                    number += 1
                message = messages.get(20)
                assert message is not None, len(seen)
                seen.append(message.data)
                message.ack()
            messages.flush()
        assert seen == list(range(number))
        stats = client.admin.queue_stats("work")
        assert (stats.depth, stats.acknowledged, stats.delivered) == (0, number, number)
