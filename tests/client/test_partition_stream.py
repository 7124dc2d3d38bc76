"""Batches for several partitions on their way: how many at once, and which wait for others."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace

import pytest

from ampsq.base.errors import ServerFull
from ampsq.client import partition_stream
from ampsq.client.partition_stream import PartitionStream
from ampsq.protocol.calls.publish import Published
from ampsq.publishing.partitioned_batches import PartitionChoice, PartitionedBatch, PartitionedBatches


class Pipelines:
    """Takes calls and answers them, and knows how many were on their way at most, of each partition and in all."""

    def __init__(self, servers):
        self.servers, self.sent, self.most, self.of_one = servers, deque(), 0, 0

    def post(self, _, call):
        self.sent.append(call)
        self.most = max(self.most, len(self.sent))
        self.of_one = max(self.of_one, [each.partition for each in self.sent].count(call.partition))
        return True

    def collect(self):
        return Published("orders", [], "1-0", len(self.sent.popleft().bodies))

    def close(self):
        assert not self.sent


def clients_of_partitions():
    clients = []
    for number in range(8):
        plain = SimpleNamespace(
            batch=lambda _, bodies, __, ___, number=number: SimpleNamespace(partition=number, bodies=bodies),
            note_published=lambda _: None,
            client=SimpleNamespace(types=SimpleNamespace(has_large=False)),
        )
        clients.append(SimpleNamespace(_session=SimpleNamespace(plain=plain), _store=None, origin="here"))
    return clients


@pytest.fixture
def send(monkeypatch):
    """Send batches to partitions on so many servers; gives what was on its way."""

    def sending(servers, batches):
        pipelines = Pipelines(servers)
        monkeypatch.setattr(partition_stream, "SharedPipelines", lambda: pipelines)
        noted = PartitionedBatches(PartitionChoice(8), 1)
        with PartitionStream(clients_of_partitions(), noted, "orders", None) as stream:
            for batch in batches:
                stream.send(batch)
            stream.settle()
        assert len(noted.recorded) == sum(len(each.bodies) for each in batches)
        return pipelines

    return sending


def in_turn(size, number=64):
    """Batches of one message of a size, eight in a row for a partition."""
    return [
        PartitionedBatch(at // 8, places=range(at, at + 1), bodies=[b"x" * size], size=size, is_ordered=False)
        for at in range(number)
    ]


@pytest.mark.parametrize(
    ("servers", "size", "at_once"),
    [
        # Two and the one that is sent, as of one instance.
        (1, 28_000, 3),
        # Several servers are at work though eight in a row go to one.
        (2, 28_000, 10),
        (8, 28_000, 29),
        # Small ones: so many that nobody waits for an answer, and no more.
        (8, 100, 33),
        # One server that is slow has no more to do before it answers than it had before.
        (1, 100, 3),
        # Large ones never take more memory than those of one instance.
        (8, 2_000_000, 3),
    ],
)
def test_so_many_are_on_their_way_that_several_servers_work_and_memory_is_bounded(send, servers, size, at_once):
    assert send(servers, in_turn(size)).most == at_once


def test_of_messages_with_keys_one_batch_of_a_partition_is_on_its_way_and_of_others_several(send):
    keyed = in_turn(100)
    for each in keyed:
        each.is_ordered = True

    assert send(8, keyed).of_one == 1
    assert send(8, in_turn(100)).of_one == 8


def test_what_was_recorded_behind_a_refused_batch_of_the_same_partition_is_told(monkeypatch):
    class Refusing(Pipelines):
        def collect(self):
            if len(self.sent[0].bodies[0]) == 7:
                self.sent.popleft()
                raise ServerFull("full")
            return super().collect()

    pipelines = Refusing(8)
    monkeypatch.setattr(partition_stream, "SharedPipelines", lambda: pipelines)
    batches = in_turn(5, 6)
    batches[2].bodies = [b"x" * 7]
    noted = PartitionedBatches(PartitionChoice(8), 1)
    list(noted.cut([1] * 6))

    def publish():
        with noted.telling(), PartitionStream(clients_of_partitions(), noted, "orders", None) as stream:
            for batch in batches:
                stream.send(batch)
            stream.settle()

    with pytest.raises(ServerFull, match="5 messages of this publish_many are recorded") as raised:
        publish()

    assert [each is not None for each in raised.value.published] == [True, True, False, True, True, True]
