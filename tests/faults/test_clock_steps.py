"""A server whose clock is set back, and then loses its power: what was told to be on its disk is there."""

from __future__ import annotations

import shutil

import pytest
from observing import eventually
from shim import MISSING, Shim, compiled

from ampsq import MemoryPublishStore, Queue, Topic
from ampsq.base.errors import NotPersisted, Rejected
from ampsq.protocol.schema import key
from ampsq.publishing.server_clock import clock_of

pytestmark = pytest.mark.slow
LIMIT = "20s"
OPTIONS = ("--appendfsync", "everysec", "--auto-aof-rewrite-percentage", "0")


@pytest.mark.parametrize("connection", ["the same", "a new one", "a new program's"])
@pytest.mark.parametrize("kind", ["valkey", "redis"])
def test_a_server_whose_clock_is_set_back_does_not_flush_and_nobody_is_told_that_it_did(  # noqa: PLR0917
    kind, connection, start_server, connect, coordinate, tmp_path
):
    library = compiled(tmp_path)
    if library is None:
        pytest.skip(MISSING)
    # Given a publisher that was told of its first message, and a server whose clock is then set back by half a minute
    shim = Shim(library, tmp_path / "shim")
    server = start_server(kind, appendonly=True, options=OPTIONS, env=shim.environment)
    shim.note_start(server.directory)
    client = connect(server.url)
    instance = client.instance
    client.apply(Topic(name="orders"))
    coordinate(server.url)
    till = client.publisher("till", store=MemoryPublishStore(), persisted="fsync")
    till.publish("orders", 0)
    till.flush("60s")
    shim.step_clock(-30)
    # When it publishes more, be it by a connection that was not there before
    if connection != "the same":
        client.close()
        if connection == "a new program's":
            # It knows what the coordinator noted, no more, and no more does the coordinator from here on.
            with server.client() as redis:
                eventually(lambda: not redis.get(key(instance, "lasting")).endswith(b" 0"))
            clock_of.cache_clear()
        till = connect(server.url).publisher("other", store=MemoryPublishStore(), persisted="fsync")
    till.publish("orders", 1)
    try:
        till.flush("5s")
        told = 2
    except NotPersisted:
        told = 1
    # Then, however it is, what it was told survives the loss of power
    server.process.kill()
    server.process.wait()
    shim.lose_power(server.directory, kept=0.0)
    again = start_server(kind, appendonly=True, options=OPTIONS, data_dir=server.directory)
    with again.client() as redis:
        assert redis.xlen(key(instance, "log", "orders")) >= told
    # And what it was not told, it sends again
    till.flush("60s")
    with again.client() as redis:
        assert redis.xlen(key(instance, "log", "orders")) == 2
    shim.close()


def order_of(bookmark):
    """Return what orders the bookmarks of an instance."""
    return tuple(map(int, str(bookmark).rpartition("~")[2].split("-")))


def last_session(client):
    return int(client._store.redis.hget(key(client.instance, "instance"), "logons"))


@pytest.mark.parametrize("kind", ["valkey", "redis"])
def test_what_a_server_gave_before_it_lost_its_last_changes_it_never_gives_to_anything_else(
    kind, start_server, connect, tmp_path
):
    library = compiled(tmp_path)
    if library is None:
        pytest.skip(MISSING)
    # Given a server whose clock was set back by half a minute, and its files of that moment
    shim = Shim(library, tmp_path / "shim")
    server = start_server(kind, appendonly=True, options=OPTIONS, env=shim.environment)
    client = connect(server.url, heartbeat="1s")
    client.apply(Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=20))
    work = client.subscribe("work", max_backlog=10)
    client.publish_many("orders", range(10))
    for _ in range(10):
        work.get(LIMIT).ack(wait=True)
    shim.step_clock(-30)
    kept = tmp_path / "kept"
    shutil.copytree(server.directory / "appendonlydir", kept)
    # When it loses messages, leases and sessions that it gave from then on, and once more those that it gave after that
    lost, leased, sessions = [], [], []
    for turn in range(2):
        lost += client.publish_many("orders", range(10, 20))
        leased += [work.get(LIMIT) for _ in range(10)]
        session = client.publisher(f"till-{turn}", store=MemoryPublishStore())
        session.publish("orders", 20)
        session.flush("10s")
        session.close()
        sessions.append(last_session(client))
        server.process.kill()
        server.process.wait()
        shutil.rmtree(server.directory / "appendonlydir")
        shutil.copytree(kept, server.directory / "appendonlydir")
        server = start_server(kind, appendonly=True, options=OPTIONS, data_dir=server.directory, env=shim.environment)
    # Then others have bookmarks of their own
    published = [*map(str, client.publish_many("orders", range(30, 40)))]
    assert len({*map(str, lost), *published}) == 30
    assert min(map(order_of, published)) > max(map(order_of, lost))
    # And whoever holds a lost one settles none of them
    for message in leased:
        with pytest.raises(Rejected):
            message.ack(wait=True)
    found = connect(server.url).subscribe("work", max_backlog=20)
    work.close()
    assert sorted(found.get(LIMIT).data for _ in range(10)) == [*range(30, 40)]
    other = connect(server.url).publisher("other", store=MemoryPublishStore())
    other.publish("orders", 41)
    other.flush("10s")
    assert last_session(client) > sessions[1] > sessions[0]
    shim.close()
