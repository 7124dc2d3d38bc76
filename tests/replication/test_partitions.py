"""Instances on hosts of their own, in network namespaces, and the network between them cut and healed."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from observing import eventually

from ampsq import Client, Destination, Queue, Topic
from ampsq.protocol.schema import key

pytestmark = pytest.mark.slow

_NUMBERS = itertools.count(1)
_IP = shutil.which("ip") or "ip"


def ip(*words):
    subprocess.run([_IP, *words], check=True, capture_output=True)


def may_make_namespaces():
    """Return whether this machine lets us; if so nothing of the try is left."""
    name = f"aq{os.getpid()}"
    try:
        ip("netns", "add", name)
    except (OSError, subprocess.CalledProcessError):
        return False
    ip("netns", "del", name)
    return True


class Host:
    """A namespace with one address, a server that listens there and on a socket for us, and a coordinator."""

    def __init__(self, stack, program, folder, number):
        self.name = f"aq{os.getpid() % 10_000}h{next(_NUMBERS)}"
        self.address, self.url, self._folder = f"10.213.7.{number}", f"unix://{folder}/s", folder
        ip("netns", "add", self.name)
        stack.callback(ip, "netns", "del", self.name)
        folder.mkdir()
        options = ["--bind", "127.0.0.1", self.address, "--port", "6379", "--protected-mode", "no", "--save", ""]
        self._server = [
            *(program, *options, "--unixsocket", str(folder / "s"), "--dir", str(folder)),
            *("--appendonly", "yes", "--appendfsync", "always"),
        ]
        self._stack = stack

    def run(self, *command):
        process = subprocess.Popen(
            [_IP, "netns", "exec", self.name, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._stack.enter_context((self._folder / "log").open("ab")),
        )
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        return process

    def start(self):
        self.run(*self._server)
        eventually((self._folder / "s").exists, 30)

    def coordinate(self, instance):
        program = ["-m", "ampsq.cli", "coordinator", "--url", "redis://127.0.0.1:6379", "--instance", instance]
        self.run(sys.executable, *program)

    def cut(self):
        ip("-n", self.name, "link", "set", "eth0", "down")

    def heal(self):
        ip("-n", self.name, "link", "set", "eth0", "up")


@pytest.fixture
def hosts(server_program):
    """Two hosts with a network between them."""
    if not may_make_namespaces():
        pytest.skip("this machine does not let us make network namespaces (ip netns add)")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="aq-", dir="/tmp")))
        one, two = (Host(stack, server_program("redis"), folder / str(number), number) for number in (1, 2))
        ip("link", "add", "eth0", "netns", one.name, "type", "veth", "peer", "name", "eth0", "netns", two.name)
        for host in (one, two):
            ip("-n", host.name, "addr", "add", f"{host.address}/24", "dev", "eth0")
            ip("-n", host.name, "link", "set", "eth0", "up")
            ip("-n", host.name, "link", "set", "lo", "up")
            host.start()
        yield one, two


class Consumer(threading.Thread):
    """Takes and acknowledges until it is told to stop."""

    def __init__(self, client):
        super().__init__()
        self._client, self.got, self._stopping = client, Counter(), threading.Event()

    def run(self):
        with self._client.subscribe("work", max_backlog=20) as messages:
            while not self._stopping.is_set():
                message = messages.get(0.1)
                if message is not None:
                    self.got[message.data] += 1
                    message.ack()

    def stop(self):
        self._stopping.set()
        self.join(20)


@pytest.mark.slow
def test_a_partition_loses_nothing_doubles_nothing_and_heals(hosts):
    # Given two instances with a queue that both publish to and consume
    with contextlib.ExitStack() as stack:
        clients = []
        for number, host in enumerate(hosts):
            other = hosts[1 - number]
            client = stack.enter_context(Client(host.url, instance=f"site-{number}"))
            client.apply(
                Topic(name="orders"),
                Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=20, lease_period="1m"),
                Destination(
                    name=f"site-{1 - number}",
                    sync_type="async",
                    topics=["orders", "work"],
                    addresses=[f"redis://{other.address}:6379"],
                    pass_through=[".*"],
                ),
            )
            clients.append(client)
            host.coordinate(client.instance)
        consumers = [Consumer(client) for client in clients]
        for consumer in consumers:
            consumer.start()
        published = Counter()

        def publish(seconds, who):
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                for number in who:
                    body = f"{number} {published.total()}"
                    clients[number].publish("orders", body)
                    published[body] += 1
                time.sleep(0.005)  # a load, not a flood

        publish(1.0, (0, 1))
        # When the network is cut, one consumer ends, and both sides go on
        hosts[0].cut()
        consumers[0].stop()
        publish(2.0, (0, 1))
        assert consumers[1].got.total() > 0
        waiting = published.total() - sum(consumer.got.total() for consumer in consumers)
        assert waiting > 0  # what the side without a consumer owns
        hosts[0].heal()
        publish(0.5, (0, 1))
        # Then the other side consumes all of it, each message once, and both agree
        eventually(lambda: sum((each.got for each in consumers), Counter()) == published, 60)
        consumers[1].stop()
        for client in clients:
            eventually(lambda client=client: client.admin.queue_stats("work").acknowledged == published.total(), 30)
            for name in ("ready", "remote", "owners", "asked"):
                assert not client._store.redis.exists(key(client.instance, name, "work")), name
