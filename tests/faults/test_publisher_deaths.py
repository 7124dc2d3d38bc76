"""Publishers, servers and connections that die at any point: what was taken is recorded once, in order.

AMPSQ_ROUNDS says how many deaths there are; a few by default.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import tempfile
import threading
import time
from pathlib import Path

import pytest
from observing import eventually
from proxy import Proxy

from ampsq import Client, FilePublishStore, MemoryPublishStore, Queue
from ampsq.protocol.schema import key
from ampsq.queues.message import head_of

pytestmark = pytest.mark.slow

CHILD = Path(__file__).parent / "child.py"
ROUNDS = int(os.environ.get("AMPSQ_ROUNDS", "6"))


@pytest.fixture
def log_of(instance):
    """(sequence, data) of everything in the topic's log, past ampsq."""

    def read(server):
        with contextlib.closing(server.client()) as redis:
            entries = redis.xrange(key(instance, "log", "orders"))
        return [(int(fields[b"n"]), json.loads(fields[b"b"])) for _, fields in entries]

    return read


@pytest.fixture
def length_of(instance):
    def count(server):
        with contextlib.closing(server.client()) as redis:
            return redis.xlen(key(instance, "log", "orders"))

    return count


def rewrite_file(server):
    """Leave no half of a transaction in the append-only file.

    Redis 7.0 (not Valkey) keeps one at the end of a file that was cut within it, and the next start would run it
    together with what was written behind it. A rewrite of the file ends that.
    """
    with contextlib.closing(server.client()) as redis:
        redis.bgrewriteaof()

        def is_done():
            facts = redis.info("persistence")
            return not facts["aof_rewrite_in_progress"] and not facts["aof_rewrite_scheduled"]

        eventually(is_done, within=40.0)


def told(path, what):
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [r for r in (json.loads(line) for line in lines if line.endswith("\n")) if r["what"] == what]


def check_runs(found, runs):
    """Each number once, in order; of each run what it was told is taken, and nothing left out."""
    assert [number for number, _ in found] == list(range(1, len(found) + 1))
    bodies = [body for _, body in found]
    assert bodies == [
        f"{run} {number}" for run in range(len(runs)) for number in range(sum(b.startswith(f"{run} ") for b in bodies))
    ]
    for run, records in enumerate(runs):
        taken = max((record["number"] for record in told(records, "taken")), default=0)
        assert sum(body.startswith(f"{run} ") for body in bodies) >= taken


def test_a_killed_publisher_s_messages_are_sent_by_the_next_process(valkey, instance, launch_child, tmp_path, log_of):
    # Given processes that publish from one file, one after the other, each killed at some point
    chance, store, runs = random.Random(11), tmp_path / "till.db", []  # noqa: S311 - not a secret
    for run in range(ROUNDS):
        runs.append(tmp_path / f"records-{run}")
        child = launch_child(CHILD, "publish", valkey.url, instance, runs[-1], store, run)
        eventually(lambda path=runs[-1]: told(path, "taken"), within=40.0)
        time.sleep(chance.uniform(0, 0.15))  # it dies at another moment each time
        child.kill()
        child.wait()
    # When the last one's store is opened again
    with Client(valkey.url, instance=instance) as client, client.publisher("till-1", store=store) as till:
        till.flush("20s")
        # Then everything that was taken is recorded once, in order
        found = log_of(valkey)
        check_runs(found, runs)
        # And the numbers go on
        assert till.publish("orders", "end").sequence == len(found) + 1


class Publisher:
    """Publishes numbers from a thread until it is told to stop; how many were taken is `taken`."""

    def __init__(self, till):
        self._till, self._stopping = till, threading.Event()
        self.taken, self.failures = 0, []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        try:
            while not self._stopping.is_set():
                if self.taken % 10 == 5:
                    self._till.publish_many("orders", range(self.taken, self.taken + 10), batch=4)
                    self.taken += 10
                else:
                    self._till.publish("orders", self.taken)
                    self.taken += 1
                if self.taken % 25 == 0:
                    # Some thousands a second: what a scene is about are its deaths, and everything is read in the end.
                    self._stopping.wait(0.005)
        except BaseException as error:  # noqa: BLE001 - told by the test
            self.failures.append(error)

    def stop(self):
        self._stopping.set()
        self._thread.join()
        assert self.failures == []
        return self.taken


@contextlib.contextmanager
def publishing(till):
    publisher = Publisher(till)
    try:
        yield publisher
    finally:
        publisher.stop()


def store_of(kind, path):
    return MemoryPublishStore(timeout="60s") if kind == "memory" else FilePublishStore(path / "till.db")


@pytest.mark.default_user(reason="no coordinator notes how the server flushes")
@pytest.mark.parametrize("store", ["memory", "file"])
@pytest.mark.parametrize("kind", ["valkey", "redis"])
def test_a_server_that_is_killed_has_what_it_persisted_and_gets_the_rest(  # noqa: PLR0917 - fixtures, parameters
    start_server, instance, tmp_path, log_of, length_of, kind, store
):
    # Given a server that flushes before it answers
    options = ["--appendfsync", "always"]
    server, chance = start_server(kind, appendonly=True, options=options), random.Random(5)  # noqa: S311
    kept = store_of(store, tmp_path)
    with (
        Client(server.url, instance=instance) as client,
        client.publisher("till-1", store=kept, persisted="fsync") as till,
        publishing(till) as publisher,
    ):
        for _ in range(ROUNDS):
            # When it is killed while messages are published
            before = till.last_persisted
            eventually(lambda before=before: till.last_persisted > before, within=40.0)
            time.sleep(chance.uniform(0, 0.2))  # it dies at another moment each time
            server.process.kill()
            server.process.wait()
            persisted = till.last_persisted
            server = start_server(kind, appendonly=True, data_dir=server.directory, options=options)
            rewrite_file(server)
            # Then all that was told to be persisted is there
            assert length_of(server) >= persisted
        number = publisher.stop()
        till.flush("30s")
        # And in the end all that was taken, once, in order
        assert log_of(server) == [(n + 1, n) for n in range(number)]


@pytest.mark.default_user(reason="no coordinator notes how the server flushes")
@pytest.mark.parametrize("name", ["publish", "logon", "confirm_sequence", "INFO", "SCRIPT"])
@pytest.mark.parametrize("late", [None, 0.15], ids=["lost", "late"])
@pytest.mark.parametrize("nth", [1, 3])
def test_a_publisher_s_lost_calls_take_effect_once(  # noqa: PLR0917 - fixtures and parameters
    start_server, instance, log_of, name, late, nth
):
    # Given a publisher behind a connection that breaks
    flushed = "everysec" if name in {"confirm_sequence", "INFO"} else "always"
    server = start_server(appendonly=True, options=["--appendfsync", flushed])
    kept = MemoryPublishStore()
    with tempfile.TemporaryDirectory(prefix="aq-", dir="/tmp") as folder:
        proxy = Proxy(Path(folder, "p"), server.socket)
        with (
            contextlib.closing(proxy),
            Client(proxy.url, instance=instance) as client,
            client.publisher("till-1", store=kept, persisted="fsync") as till,
        ):
            till.publish("orders", 0)
            till.flush("30s")
            proxy.lose(name, 1 if name in {"logon", "SCRIPT"} else nth, late=late)
            if name in {"logon", "SCRIPT"}:
                # These are sent when a session begins
                with contextlib.closing(server.client()) as redis:
                    redis.client_kill_filter(_type="normal", skipme=True)
            # When it publishes, and a reply is lost or a request comes late
            for number in range(1, 400):
                till.publish("orders", number)
                if number % 150 == 0:
                    till.flush("20s")
            till.flush("20s")
            assert proxy.lost == [name]
            # Then everything is recorded once and in order
            assert log_of(server) == [(n + 1, n) for n in range(400)]
            assert client.admin.publishers()[0].client == client._session.client
            # And a late one that arrives now changes nothing
            time.sleep(late or 0)  # when the late one arrives
            assert len(log_of(server)) == 400


def test_a_lost_logoff_leaves_the_name_to_the_next(valkey, proxy, instance, log_of):
    for number in range(2):
        client = Client(proxy.url, instance=instance)
        till = client.publisher("till-1", store=MemoryPublishStore())
        till.publish("orders", number)
        proxy.lose("logoff")
        client.close()
    assert proxy.lost == ["logoff", "logoff"]
    assert log_of(valkey) == [(1, 0), (2, 1)]


@pytest.mark.parametrize("store", ["memory", "file"])
def test_connections_that_break_all_the_time_lose_nothing(valkey, instance, tmp_path, log_of, store):
    kept = store_of(store, tmp_path)
    with (
        Client(valkey.url, instance=instance) as client,
        client.publisher("till-1", store=kept) as till,
        publishing(till) as publisher,
        contextlib.closing(valkey.client()) as redis,
    ):
        until = time.monotonic() + ROUNDS / 6
        while time.monotonic() < until:
            # When connections are cut and scripts forgotten, again and again
            redis.client_kill_filter(_type="normal", skipme=True)
            time.sleep(0.02)  # they begin again
            redis.script_flush()
            time.sleep(0.02)  # they begin again
        number = publisher.stop()
        till.flush("30s")
        assert log_of(valkey) == [(n + 1, n) for n in range(number)]


def test_a_full_server_gets_everything_when_it_has_room_again(start_server, instance, log_of):
    server = start_server()
    with (
        Client(server.url, instance=instance) as client,
        client.publisher("till-1", store=MemoryPublishStore()) as till,
        contextlib.closing(server.client()) as redis,
    ):
        till.publish("orders", 0)
        till.flush("30s")
        redis.config_set("maxmemory", 1)
        for number in range(1, 300):
            till.publish("orders", number)
        with pytest.raises(Exception, match="out of memory"):
            till.flush("500ms")
        redis.config_set("maxmemory", 0)
        till.flush("30s")
    assert log_of(server) == [(n + 1, n) for n in range(300)]


def test_a_publisher_that_a_full_server_refuses_again_and_again_keeps_no_connection_of_each_time(
    start_server, instance
):
    server = start_server(appendonly=True, options=["--appendfsync", "everysec"])
    with (
        Client(server.url, instance=instance) as client,
        client.publisher("till-1", store=MemoryPublishStore(), persisted="fsync") as till,
        contextlib.closing(server.client()) as redis,
    ):
        till.publish("orders", 0)
        till.flush("30s")
        before = redis.info("clients")["connected_clients"]
        redis.config_set("maxmemory", 1)
        refused = redis.info("stats")["total_error_replies"]
        till.publish("orders", 1)
        # It asks five times a second; each time it has a connection to send and one to confirm.
        eventually(lambda: redis.info("stats")["total_error_replies"] >= refused + 8)
        while_full = redis.info("clients")["connected_clients"]
        redis.config_set("maxmemory", 0)
        till.flush("30s")
        assert while_full <= before + 2


def free_port():
    with contextlib.closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])


@pytest.mark.parametrize("kind", ["valkey", "redis"])
def test_a_fail_over_to_a_replica_keeps_what_replicas_persisted_and_gets_the_rest(
    start_server, instance, log_of, length_of, kind
):
    # Given a primary with a replica, and a publisher that wants its messages there
    ports, quick = (free_port(), free_port()), ["--repl-diskless-sync-delay", "0"]
    server = start_server(kind, options=["--port", ports[0], *quick])
    replica = start_server(kind, options=["--port", ports[1], "--replicaof", f"127.0.0.1 {ports[0]}", *quick])
    kept = MemoryPublishStore(timeout="60s")
    with tempfile.TemporaryDirectory(prefix="aq-", dir="/tmp") as folder:
        proxy = Proxy(Path(folder, "p"), server.socket)
        with (
            contextlib.closing(proxy),
            Client(proxy.url, instance=instance) as client,
            client.publisher("till-1", store=kept, persisted="replicas=1") as till,
            publishing(till) as publisher,
        ):
            eventually(lambda: till.last_persisted > 500, within=40.0)
            # When the primary dies and the replica takes over
            server.process.kill()
            server.process.wait()
            persisted = till.last_persisted
            with contextlib.closing(replica.client()) as redis:
                redis.replicaof("NO", "ONE")
            # Then it has all that was told to be persisted
            assert length_of(replica) >= persisted
            proxy.move(replica.socket)
            number = publisher.stop()
            # And in the end, with a replica of its own, all that was taken, once, in order
            start_server(kind, options=["--replicaof", f"127.0.0.1 {ports[1]}"])
            till.flush("30s")
            assert log_of(replica) == [(n + 1, n) for n in range(number)]


def test_a_consumer_s_acknowledgements_survive_its_process(valkey, instance, tmp_path, connect):
    # Given a consumer that died between keeping acknowledgements and sending them: the store has them, the leases stand
    client = connect(valkey.url)
    client.apply(Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=100))
    client.publish_many("orders", range(20))
    with client.subscribe("work", max_backlog=20) as messages:
        held = [messages.get("30s") for _ in range(20)]
        store = FilePublishStore(tmp_path / "till.db")
        store.open(instance, "till-1")
        store.keep_settlements([[b"acknowledged", b"", b"s1", b"work", head_of(m)[5], head_of(m)[1]] for m in held])
        store.close()
        # When the next process begins
        with (
            Client(valkey.url, instance=instance) as again,
            again.publisher("till-1", store=tmp_path / "till.db") as till,
        ):
            till.flush("30s")
    # Then they are done
    assert client.admin.queue_stats("work").acknowledged == 20
