"""Partitions of an instance on three primaries: spread over them, while the slots of some are moved."""

from __future__ import annotations

import threading

import pytest
from cluster_harness import Cluster
from observing import eventually

from ampsq import Client, Queue
from ampsq.transport.discovery import slot_of

pytestmark = pytest.mark.slow

TOTAL, KEYS, ROUNDS, MANY = 6, 40, 20, 200


@pytest.mark.parametrize("kind", ["valkey", "redis"])
def test_nothing_is_lost_and_keys_stay_in_order_while_partitions_are_moved(kind, start_node, instance):
    cluster = Cluster(lambda **options: start_node(kind=kind, **options))
    url = "cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in cluster.nodes) + f"?partitions={TOTAL}"
    with Client(url, instance=instance, retry_timeout="30s") as client:
        client.apply(Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=50, lease_period="1m"))
        # The partitions are spread evenly over the primaries.
        owners = [cluster.owner(slot_of(name)) for name in client.partitions]
        assert [owners.count(node) for node in cluster.primaries()] == [TOTAL // 3] * 3
        moved, failures = [], []

        def publish():
            try:
                for turn in range(ROUNDS):
                    numbers = range(turn * MANY, (turn + 1) * MANY)
                    messages = [{"key": f"k{number % KEYS}", "number": number} for number in numbers]
                    client.publish_many("orders", messages, key=lambda message: message["key"])
            except Exception as failure:
                failures.append(failure)
                raise

        def move():
            try:
                for name in client.partitions[::2]:
                    slot = slot_of(name)
                    source = cluster.owner(slot)
                    cluster.move_by_keys(slot, next(each for each in cluster.primaries() if each is not source))
                    moved.append(name)
            except Exception as failure:
                failures.append(failure)
                raise

        threads = [threading.Thread(target=publish), threading.Thread(target=move)]
        with client.subscribe("work", max_backlog=20 * TOTAL) as subscription:
            for each in threads:
                each.start()
            by_key, count = {}, 0
            while count < ROUNDS * MANY:
                message = subscription.get("30s")
                assert message is not None, f"{count} of {ROUNDS * MANY} came; {failures}"
                by_key.setdefault(message.data["key"], []).append(message.data["number"])
                message.ack()
                count += 1
            for each in threads:
                each.join(60)
        assert failures == []
        assert moved == list(client.partitions[::2])
        assert by_key == {f"k{key}": list(range(key, ROUNDS * MANY, KEYS)) for key in range(KEYS)}
        eventually(lambda: client.admin.queue_stats("work").acknowledged == ROUNDS * MANY, within=20.0)
        assert all(report.clean for report in client.admin.check("work"))
