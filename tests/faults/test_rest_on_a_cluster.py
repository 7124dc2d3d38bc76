"""Partitions of a cluster where nothing happens: their coordinator rests, and what happens is noticed as elsewhere."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time

import pytest
import redis
from cluster_harness import Cluster
from observing import eventually

from ampsq import Client, Queue, Topic
from ampsq.coordinator import Coordinator, server_watch
from ampsq.operations.roles import rules
from ampsq.protocol.reads.streams import log_of
from ampsq.protocol.schema import key
from ampsq.transport.discovery import slot_of

pytestmark = pytest.mark.slow

PARTITIONS = 12
WAITING = """
import sys
from ampsq import Client
with Client(sys.argv[1], instance=sys.argv[2]) as client, client.subscribe("work") as messages:
    print("waits", flush=True)
    messages.get(60)
"""


@pytest.fixture(params=["redis", "valkey"])
def kind(request):
    return request.param


@pytest.fixture
def make(kind, start_node):
    return lambda **options: Cluster(lambda **given: start_node(kind=kind, **given), **options)


@pytest.fixture
def rest(instance, monkeypatch):
    """Let a coordinator care for idle partitions: ``rest(cluster)`` gives it with their names, once all rest long.

    The turn of none of them ever comes: what is noticed, somebody has told.
    """
    monkeypatch.setattr(server_watch, "_QUIET_AFTER", 0.5)
    monkeypatch.setattr(server_watch, "_TURNS", 10**9)
    monkeypatch.setattr(server_watch.InstanceInLoop, "turn", property(lambda _: -1, lambda *_: None), raising=False)
    with contextlib.ExitStack() as stack:

        def begin(cluster):
            with Client(url_of(cluster), instance=instance, partitions=PARTITIONS) as client:
                client.apply(Topic(name="orders"), Queue(name="work", underlying_topic="orders", lease_period="3s"))
                names = list(client.partitions)
            coordinator = Coordinator(url_of(cluster))
            thread = threading.Thread(target=coordinator.run)
            thread.start()
            stack.callback(thread.join)
            stack.callback(coordinator.stop)
            eventually(lambda: all_rest(cluster, names), within=60.0)
            return coordinator, names

        yield begin


def url_of(cluster):
    return "cluster://" + ",".join(node.address for node in cluster.nodes)


def all_rest(cluster, names):
    return all(rests(cluster, name) for name in names)


def rests(cluster, name):
    with contextlib.suppress(redis.RedisError, OSError):
        return cluster.owner(slot_of(name)).ask("HGET", key(name, "instance"), "resting") in ("3", "4")
    return False


def add_foreign_entry(cluster, name):
    """Write an entry as any program may, with a plain XADD."""
    cluster.owner(slot_of(name)).ask("XADD", log_of("orders").key(name), "*", "b", "{}")


def check_all_is_noticed(cluster, name):
    """Wait at a partition that rests, and see that a foreign entry, a lease that lapses and a delay are noticed."""
    with (
        Client(url_of(cluster), instance=name, heartbeat="1s", retry_timeout="20s") as client,
        client.subscribe("work", max_backlog=1) as messages,
    ):
        got = []
        reading = threading.Thread(target=lambda: got.append(messages.get(30)))
        reading.start()
        time.sleep(0.5)  # subscribing wakes the coordinator, which is over by then
        eventually(lambda: rests(cluster, name), within=30.0)
        began = time.monotonic()
        add_foreign_entry(cluster, name)
        reading.join()
        assert got[0] is not None
        assert time.monotonic() - began < 3.0
        # It was leased for 3 s, and comes again.
        again = messages.get(20)
        assert again is not None
        assert time.time() - got[0].lease_until.timestamp() < 2.0
        again.ack(wait=True)
        # A delay that ends at rest
        client.publish("orders", {}, delay="2s")
        due = time.monotonic() + 2.0
        later = messages.get(20)
        assert later is not None
        assert time.monotonic() - due < 2.0
        later.ack(wait=True)


def test_a_coordinator_has_a_loop_for_each_primary_and_asks_it_once_a_look(make, rest):
    # Given partitions at rest, on three primaries
    cluster = make()
    coordinator, names = rest(cluster)
    # Then each primary has a loop, which has its partitions
    watches = coordinator._all_watches()
    assert len(watches) == 3
    assert sorted(name for watch in watches for name in watch.names) == sorted(names)
    for watch in watches:
        (port,) = {cluster.owner(slot_of(name)).port for name in watch.names}
        assert f":{port}" in watch.store.url
    # And it runs no script, but now and then; in the first seconds absent clients are looked for
    eventually(lambda: scripts_in(cluster, 4.0) < 5, within=60.0)
    # And it holds few connections
    assert all(int(field(node, "clients", "connected_clients")) < 30 for node in cluster.nodes)


def scripts_in(cluster, seconds):
    """Return how many scripts all nodes run in some seconds."""
    before = sum(calls(node, "evalsha") for node in cluster.nodes)
    time.sleep(seconds)  # what is counted
    return sum(calls(node, "evalsha") for node in cluster.nodes) - before


def field(node, section, name):
    return dict(line.split(":", 1) for line in node.ask("INFO", section).splitlines() if ":" in line)[name]


def calls(node, name):
    stats = node.ask("INFO", "commandstats")
    line = next((line for line in stats.splitlines() if line.startswith(f"cmdstat_{name}:")), "calls=0,")
    return int(line.partition("calls=")[2].partition(",")[0])


def test_what_happens_at_rest_is_noticed(make, rest):
    cluster = make()
    _, names = rest(cluster)
    for name in names[::5]:
        check_all_is_noticed(cluster, name)


def test_a_killed_client_is_noticed_at_rest(make, rest):
    cluster = make()
    _, names = rest(cluster)
    name = names[4]
    node = cluster.owner(slot_of(name))
    # Given a subscription of another process
    command = [sys.executable, "-c", WAITING, url_of(cluster), name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "waits\n"
        time.sleep(2.0)  # a look has seen the new client by then
        eventually(lambda: rests(cluster, name), within=30.0)
        # When it is killed
        process.kill()
        began = time.monotonic()
        # Then its subscription ends
        eventually(lambda: not node.ask("ZCARD", key(name, "subscriptions")), within=15.0)
        assert time.monotonic() - began < 2.5


@pytest.mark.parametrize("way", ["keys", "at once"])
def test_a_partition_whose_slot_is_moved_at_rest_is_cared_for_where_it_is(make, rest, kind, way):
    cluster = make()
    coordinator, names = rest(cluster)
    name = names[5]
    slot = slot_of(name)
    source = cluster.owner(slot)
    target = next(each for each in cluster.primaries() if each is not source)
    # When it is moved while nothing happens
    if kind == "valkey" and way == "at once":
        cluster.move_at_once(slot, target)
    else:
        # Redis 7 has no move at once: instead, one that lasts.
        cluster.move_by_keys(slot, target, lasts=2.0 if way == "at once" else 0.0)
    # Then the watch of its new node has it, and it rests there again, and so do all others
    eventually(lambda: f":{target.port}" in coordinator._watches[name].store.url, within=10.0)
    eventually(lambda: all_rest(cluster, names), within=30.0)
    check_all_is_noticed(cluster, name)
    # And one that stayed is noticed as before
    check_all_is_noticed(cluster, next(each for each in names if cluster.owner(slot_of(each)) is source))


def test_partitions_whose_primary_is_killed_at_rest_are_cared_for_by_its_replica(make, rest):
    cluster = make(replicas=True)
    coordinator, names = rest(cluster)
    name = names[0]
    # When the primary is killed
    lost = cluster.lose_primary(slot_of(name))
    now = cluster.owner(slot_of(name))
    # Then the coordinator goes on where they are, and no loop is left for the lost one
    eventually(lambda: f":{now.port}" in coordinator._watches[name].store.url, within=15.0)
    eventually(lambda: not any(f":{lost.port}" in each.store.url for each in coordinator._all_watches()), within=15.0)
    eventually(lambda: all_rest(cluster, names), within=60.0)
    check_all_is_noticed(cluster, name)


def test_partitions_whose_primary_hands_over_at_rest_are_cared_for_by_the_new_one(make, rest):
    cluster = make(replicas=True)
    coordinator, names = rest(cluster)
    name = names[0]
    before = cluster.owner(slot_of(name))
    replica = cluster.replica_of(before)
    # When the replica takes over by plan
    replica.ask("CLUSTER", "FAILOVER")
    eventually(lambda: cluster.owner(slot_of(name)) is replica, within=30.0)
    eventually(lambda: f":{replica.port}" in coordinator._watches[name].store.url, within=15.0)
    eventually(lambda: all_rest(cluster, names), within=60.0)
    check_all_is_noticed(cluster, name)


def test_partitions_of_other_primaries_are_cared_for_while_one_is_away(make, rest):
    cluster = make(options=("--appendonly", "yes", "--cluster-require-full-coverage", "no"))
    _, names = rest(cluster)
    away = cluster.owner(slot_of(names[0]))
    living = next(name for name in names if cluster.owner(slot_of(name)) is not away)
    url = cluster.owner(slot_of(living)).url
    # When a primary without a replica is killed
    away.kill()
    time.sleep(3.0)  # the others take it to be dead by then, and all that the coordinator asks of it has failed
    # Then the others' partitions do not wait for it
    check_due_is_done(url, living)
    # And when it is back, its own are cared for
    away.start()
    eventually(lambda: all("cluster_state:ok" in node.ask("CLUSTER", "INFO") for node in cluster.nodes), within=40.0)
    eventually(lambda: all_rest(cluster, names), within=60.0)
    check_all_is_noticed(cluster, names[0])


def check_due_is_done(url, name):
    """See that a lease lapses in time."""
    with (
        Client(url, instance=name, heartbeat="1s", retry_timeout="20s") as client,
        client.subscribe("work", max_backlog=1) as messages,
    ):
        client.publish("orders", {})
        first = messages.get(20)
        again = messages.get(20)
        assert again is not None
        assert time.time() - first.lease_until.timestamp() < 2.0
        again.ack(wait=True)


def test_where_a_user_may_not_track_keys_all_is_looked_at_each_time(make, instance, monkeypatch):
    monkeypatch.setattr(server_watch, "_QUIET_AFTER", 0.5)
    cluster = make()
    for node in cluster.nodes:
        node.ask("ACL", "SETUSER", "care", "on", "nopass", "~*", "&*", "+@all", "-client|tracking")
    url = "cluster://care:x@" + ",".join(node.address for node in cluster.nodes)
    with Client(url_of(cluster), instance=instance) as client:
        client.apply(Topic(name="orders"), Queue(name="work", underlying_topic="orders"))
    coordinator = Coordinator(url, [instance])
    thread = threading.Thread(target=coordinator.run)
    thread.start()
    try:
        (watch,) = eventually(coordinator._all_watches)
        eventually(lambda: watch._entries._keys is not None and watch._entries._keys.is_refused, within=30.0)
        assert not watch._entries.covered
        # An entry of others is found all the same.
        add_foreign_entry(cluster, instance)
        duties = watch._instances[instance].duties
        eventually(lambda: duties.seen_logs[log_of("orders").key(instance)] != "0-0", within=5.0)
    finally:
        coordinator.stop()
        thread.join()


def test_coordinators_of_a_cluster_share_its_partitions_and_what_one_leaves_the_other_takes(make, rest):
    cluster = make()
    one, names = rest(cluster)
    # When another one comes
    other = Coordinator(url_of(cluster))
    thread = threading.Thread(target=other.run)
    thread.start()
    try:
        # Then each partition is one coordinator's, and each has some
        began = time.monotonic()
        eventually(lambda: cared_for(one) and cared_for(other) and cared_for(one).isdisjoint(cared_for(other)))
        eventually(lambda: cared_for(one) | cared_for(other) == set(names))
        assert time.monotonic() - began < 6.0
    finally:
        other.stop()
        thread.join()
    # And what it leaves, the first one takes
    eventually(lambda: cared_for(one) == set(names), within=6.0)
    eventually(lambda: all_rest(cluster, names), within=60.0)
    check_all_is_noticed(cluster, names[3])


def cared_for(coordinator):
    return {name for name, _ in coordinator.rounds}


def test_a_partition_that_is_made_while_all_rest_is_cared_for(make, rest, instance):
    cluster = make()
    coordinator, _ = rest(cluster)
    with Client(url_of(cluster), instance=f"{instance}-late"):
        eventually(lambda: f"{instance}-late" in coordinator._watches, within=6.0)


def test_a_coordinator_with_the_rights_of_its_role_rests_and_nothing_is_refused(make, instance, monkeypatch):
    monkeypatch.setattr(server_watch, "_QUIET_AFTER", 0.5)
    cluster = make()
    user = rules("coordinator", instance, user="care", password="secret")  # noqa: S106  (of a test's server)
    for node in cluster.nodes:
        node.ask("ACL", "SETUSER", "care", *user.words())
    with Client(url_of(cluster), instance=instance) as client:
        client.apply(Topic(name="orders"), Queue(name="work", underlying_topic="orders"))
    # When one with the rules of its role cares for the instance
    coordinator = Coordinator(url_of(cluster).replace("://", "://care:secret@"), [instance])
    thread = threading.Thread(target=coordinator.run)
    thread.start()
    try:
        # Then it rests long there, and has asked for nothing that it may not
        eventually(lambda: rests(cluster, instance), within=60.0)
        assert [node.ask("ACL", "LOG") for node in cluster.nodes] == [[], [], []]
    finally:
        coordinator.stop()
        thread.join()
