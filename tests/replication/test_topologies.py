"""The topologies of the examples, as they are: every message reaches every instance exactly once, by whatever ways."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from pathlib import Path

import pytest
from observing import eventually

from ampsq import Client
from ampsq.coordinator import Coordinator
from ampsq.files.config import load
from ampsq.protocol.schema import key

pytestmark = pytest.mark.slow

TOPOLOGIES = Path(__file__).parents[2] / "examples" / "topologies"
EACH = 10


@pytest.fixture
def topology(valkey, instance, tmp_path):
    """Apply a folder of files to instances of one server, and run their links: name -> client."""
    with contextlib.ExitStack() as stack:

        def start(folder):
            files = sorted((TOPOLOGIES / folder).glob("*.yaml"))
            clients = {}
            for file in files:
                # The instances of this test have names of their own on the server of the session
                text = file.read_text().replace("redis://localhost:6379#", f"{valkey.url}#{instance}-")
                for other in files:
                    text = text.replace(f"name: {other.stem}\n", f"name: {instance}-{other.stem}\n")
                copy = tmp_path / file.name
                copy.write_text(text)
                name = f"{instance}-{file.stem}"
                clients[file.stem] = stack.enter_context(Client(valkey.url, instance=name))
                clients[file.stem].apply(*load(copy))
            coordinator = Coordinator(valkey.url, [client.instance for client in clients.values()])
            thread = threading.Thread(target=coordinator.run)
            thread.start()
            stack.callback(thread.join)
            stack.callback(coordinator.stop)
            return clients

        yield start


def bodies_at(client):
    return Counter(fields[b"b"] for _, fields in client._store.redis.xrange(key(client.instance, "log", "orders")))


def publish_everywhere(clients):
    published = Counter()
    for name, client in clients.items():
        bodies = [f'"{name} {number}"'.encode() for number in range(EACH)]
        client.publish_many("orders", bodies)
        published.update(bodies)
    return published


@pytest.mark.parametrize("folder", ["hot-hot", "three-regions", "three-regions-with-pairs"])
def test_every_message_reaches_every_instance_exactly_once(topology, folder):
    clients = topology(folder)

    published = publish_everywhere(clients)

    for client in clients.values():
        eventually(lambda client=client: sum(bodies_at(client).values()) >= published.total(), 30)
        assert bodies_at(client) == published


@pytest.mark.parametrize("folder", ["hot-hot", "three-regions", "three-regions-with-pairs"])
def test_one_consumer_anywhere_gets_every_message_once(topology, folder):
    clients = topology(folder)
    published = publish_everywhere(clients)
    last = list(clients.values())[-1]
    got = Counter()

    with last.subscribe("work", max_backlog=100) as messages:
        while got.total() < published.total():
            message = messages.get(30)
            assert message is not None, f"only {got.total()} of {published.total()} came"
            got[message.raw] += 1
            message.ack()

    assert got == published
    for client in clients.values():
        eventually(lambda client=client: client.admin.queue_stats("work").acknowledged == published.total(), 30)


def test_a_hub_sends_to_all_spokes_whose_queues_are_their_own(topology):
    clients = topology("hub-and-spoke")
    clients["hub"].publish_many("orders", [b"1", b"2"])

    for name in ("spoke-1", "spoke-2"):
        with clients[name].subscribe("work", max_backlog=10) as messages:
            found = []
            for _ in range(2):
                message = messages.get(20)
                found.append(message.raw)
                message.ack()
            assert found == [b"1", b"2"]
