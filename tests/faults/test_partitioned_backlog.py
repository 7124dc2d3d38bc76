"""One backlog over all partitions, at every moment: while replies are lost, calls come late and clients are killed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
import redis
from cases import first_ones
from observing import eventually

from ampsq import AsyncClient, Client, Queue
from ampsq.coordinator import Coordinator
from ampsq.protocol.schema import key

TOTAL, KEYS = 8, 40
CHILD = Path(__file__).with_name("child.py")
WORK = Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=50, lease_period="20s")
#: Of each subscription of some instances its client, how much it has leased and how much room, at one moment.
LOOK = """
local found = {}
for _, prefix in ipairs(ARGV) do
  for _, id in ipairs(redis.call('ZRANGE', prefix .. ':subscriptions', 0, -1)) do
    local row = redis.call('HMGET', prefix .. ':s:' .. id, 'client', 'leased', 'max', 'bell')
    found[#found + 1] = prefix
    for i = 1, 4 do found[#found + 1] = row[i] or '' end
  end
end
return found
"""


class Watch:
    """Looks again and again how much each client has leased in all partitions together."""

    def __init__(self, server, partitions, backlog):
        self._redis, self._partitions, self._backlog = redis.Redis.from_url(server.url), partitions, backlog
        self.most, self.looks, self.wrong = 0, 0, []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self):
        look = self._redis.register_script(LOOK)
        prefixes = [key(name, "subscriptions").removesuffix(":subscriptions") for name in self._partitions]
        owners = dict(zip((each.encode() for each in prefixes), range(len(prefixes)), strict=True))
        while not self._stopped.is_set():
            try:
                flat, leased, held = look(args=prefixes), Counter(), []
            except redis.ConnectionError:
                # It was killed, and comes back.
                time.sleep(0.01)
                continue
            for prefix, client, number, room, bell in zip(*(flat[i::5] for i in range(5)), strict=True):
                # Clients of one process differ in what follows the last hyphen.
                leased[client.rsplit(b"-", 1)[0]] += int(number)
                if number != b"0":
                    held.append((owners[prefix], client, int(number), room))
                if room != b"0" or bell not in {b"0", b"1"}:
                    self.wrong.append((owners[prefix], client, room, bell))
            self.looks += 1
            self.most = max(self.most, *leased.values(), 0)
            if self.most > self._backlog:
                self.wrong.append(held)
                return

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stopped.set()
        self._thread.join()


@pytest.fixture
def partitions_of_work(valkey, instance):
    """A client of all partitions that publishes and looks, and a coordinator of them."""
    with Client(valkey.url, instance=instance, partitions=TOTAL) as client:
        client.apply(WORK)
        coordinator = Coordinator(client.url, list(client.partitions))
        thread = threading.Thread(target=coordinator.run)
        thread.start()
        try:
            yield client
        finally:
            coordinator.stop()
            thread.join()


def messages(start, count):
    return [{"key": f"k{number % KEYS}", "number": number} for number in range(start, start + count)]


def publish_bit_by_bit(client, chance, number, failures):
    """Publish in bursts, some of which are one message, with pauses in which bells wait."""
    try:
        done = 0
        while done < number:
            count = min(chance.choice([1, 1, 3, 40, 120]), number - done)
            client.publish_many("orders", messages(done, count), key=lambda message: message["key"])
            done += count
            time.sleep(chance.choice([0.0, 0.0, 0.01, 0.08]))  # bells wait meanwhile
    except Exception as failure:
        failures.append(failure)
        raise


FAULTS = [("take", None), ("take", 0.15), ("settle", None), ("BLMPOP", None), ("push_again", None), ("HMGET", None)]


def break_things(proxy, chance, stopped):
    # However soon all is done, one is lost.
    proxy.lose("take")
    while not stopped.wait(chance.uniform(0.02, 0.12)):
        name, late = chance.choice(FAULTS)
        proxy.lose(name, chance.randint(1, 3), late=late)


@contextlib.contextmanager
def breaking(proxy, chance):
    stopped = threading.Event()
    thread = threading.Thread(target=break_things, args=(proxy, chance, stopped))
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


@first_ones(
    "seed, backlog",
    [(1, 5), *((seed, backlog) for seed in range(1, 5) for backlog in (1, 5, 60) if (seed, backlog) != (1, 5))],
    1,
)
def test_lost_and_late_calls_never_lease_more_and_lose_nothing(  # noqa: PLR0917 - fixtures and parameters
    valkey, proxy, instance, partitions_of_work, seed, backlog
):
    chance, client, failures = random.Random(100 * seed + backlog), partitions_of_work, []  # noqa: S311  (a test's dice)
    number = 250 if backlog == 1 else 1_200
    publisher = threading.Thread(target=publish_bit_by_bit, args=(client, random.Random(seed), number, failures))  # noqa: S311
    seen, held = Counter(), []
    with (
        Client(proxy.url, instance=instance, partitions=TOTAL, ack_timeout="50ms") as consumer,
        Watch(valkey, client.partitions, backlog) as watch,
        consumer.subscribe("work", max_backlog=backlog) as subscription,
    ):
        publisher.start()
        with breaking(proxy, chance):
            while len(seen) < number:
                message = subscription.get("20s")
                assert message is not None, f"{len(seen)} of {number} came; {failures}; lost {proxy.lost}"
                held.append(message)
                assert len(held) <= backlog
                if len(held) == backlog or chance.random() < 0.5:
                    done = held.pop(chance.randrange(len(held)))
                    seen[done.data["number"]] += 1
                    done.ack(wait=chance.random() < 0.3)
                if len(held) == backlog:
                    done = held.pop()
                    seen[done.data["number"]] += 1
                    done.ack()
                # Nothing else is there, perhaps.
                while len(seen) + len(held) == number and held:
                    seen[held[-1].data["number"]] += 1
                    held.pop().ack()
        publisher.join()
        subscription.flush()
        assert subscription.get(0) is None
    assert failures == []
    assert watch.wrong == []
    assert watch.looks > 20
    assert set(seen) == set(range(number))
    assert max(seen.values()) == 1
    assert proxy.lost
    figures = client.admin.queue_stats("work")
    assert (figures.depth, figures.leased, figures.acknowledged, figures.subscriptions) == (0, 0, number, 0)
    assert all(report.clean for report in client.admin.check("work"))


@first_ones("seed", [1, 2], 1)
def test_lost_calls_of_an_asyncio_client_never_lease_more_and_lose_nothing(
    valkey, proxy, instance, partitions_of_work, seed
):
    chance, client, failures = random.Random(seed), partitions_of_work, []  # noqa: S311  (a test's dice)
    number, backlog = 600, 7
    publisher = threading.Thread(target=publish_bit_by_bit, args=(client, random.Random(seed), number, failures))  # noqa: S311

    async def consume():
        seen = Counter()
        async with (
            AsyncClient(proxy.url, instance=instance, partitions=TOTAL, ack_timeout="50ms") as consumer,
            consumer.subscribe("work", max_backlog=backlog) as subscription,
        ):
            while len(seen) < number:
                if chance.random() < 0.05:
                    # A cancelled get loses nothing, either.
                    with contextlib.suppress(TimeoutError):
                        message = await asyncio.wait_for(subscription.get(), chance.uniform(0.0, 0.01))
                        seen[message.data["number"]] += 1
                        await message.ack()
                    continue
                message = await subscription.get("20s")
                assert message is not None, f"{len(seen)} of {number} came; {failures}; lost {proxy.lost}"
                seen[message.data["number"]] += 1
                await message.ack(wait=chance.random() < 0.3)
            await subscription.flush()
        return seen

    with Watch(valkey, client.partitions, backlog) as watch, breaking(proxy, chance):
        publisher.start()
        seen = asyncio.run(consume())
        publisher.join()
    assert failures == []
    assert watch.wrong == []
    assert set(seen) == set(range(number))
    assert max(seen.values()) == 1
    assert proxy.lost
    assert all(report.clean for report in client.admin.check("work"))


@first_ones("seed", [1, 2, 3], 1)
def test_killed_clients_leave_no_credits_behind_and_what_they_had_comes_to_others(  # noqa: PLR0917 - as above
    valkey, instance, partitions_of_work, launch_child, tmp_path, seed
):
    chance, client, failures = random.Random(seed), partitions_of_work, []  # noqa: S311  (a test's dice)
    number, backlog, records = 500, 4, tmp_path / "records"
    arguments = (CHILD, "partitions", valkey.url, instance, records, TOTAL, backlog)

    def acked():
        lines = records.read_text().splitlines() if records.exists() else []
        return Counter(each["number"] for each in map(json.loads, lines) if each["what"] == "acked")

    publisher = threading.Thread(target=publish_bit_by_bit, args=(client, random.Random(seed), number, failures))  # noqa: S311
    with Watch(valkey, client.partitions, backlog) as watch:
        children = [launch_child(*arguments) for _ in range(2)]
        eventually(
            lambda: [each.admin.queue_stats("work").subscriptions for each in client.clients] == [2] * TOTAL,
            within=30.0,
        )
        publisher.start()
        for kill in range(1, 4):
            eventually(lambda done=number * kill // 5: len(acked()) >= done, within=60.0)
            victim = children.pop(chance.randrange(len(children)))
            victim.kill()
            victim.wait()
            children.append(launch_child(*arguments))
        eventually(lambda: client.admin.queue_stats("work").depth == 0, within=90.0)
        publisher.join()
    assert failures == []
    assert watch.wrong == []
    assert watch.most == backlog
    # A client that was killed may have had an acknowledgement done and not noted it.
    done = acked()
    assert max(done.values()) == 1
    assert len(done) >= number - 3
    assert client.admin.queue_stats("work").acknowledged == number
    assert all(report.clean for report in client.admin.check("work"))


def kill_and_start(node):
    time.sleep(0.002)  # a call is under way
    node.kill()
    time.sleep(0.3)  # it is looked for meanwhile
    node.start()


@first_ones("backlog", [6, 1], 1)
def test_a_server_that_is_killed_and_comes_back_has_leased_no_more_and_lost_nothing(start_node, instance, backlog):
    # Given a server that has on its disk what it has answered, and a consumer
    node = start_node(options=["--appendonly", "yes", "--appendfsync", "always"])
    number, seen = 240, Counter()
    with (
        Client(node.url, instance=instance, partitions=TOTAL, retry_timeout="30s") as client,
        Client(node.url, instance=instance, partitions=TOTAL, retry_timeout="30s") as consumer,
    ):
        client.apply(WORK)
        client.publish_many("orders", messages(0, number), key=lambda message: message["key"])
        with Watch(node, client.partitions, backlog) as watch, consumer.subscribe("work", max_backlog=backlog) as found:
            # When it is killed three times while messages are taken
            for turn in range(number):
                if turn in {40, 120, 200}:
                    killed = threading.Thread(target=kill_and_start, args=(node,))
                    killed.start()
                message = found.get("30s")
                assert message is not None, f"{len(seen)} of {number} came"
                seen[message.data["number"]] += 1
                if turn in {40, 120, 200}:
                    killed.join()
                message.ack()
            found.flush()
            assert found.get("200ms") is None
        # Then all came, each once
        assert watch.wrong == []
        assert seen == Counter(range(number))
        figures = client.admin.queue_stats("work")
        assert (figures.depth, figures.leased, figures.acknowledged) == (0, 0, number)
        assert all(report.clean for report in client.admin.check("work"))
