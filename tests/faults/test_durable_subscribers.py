"""Durable subscribers that are killed, whose server is killed, whose connections break, while logs are trimmed."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from pathlib import Path

import pytest
import redis
from observing import eventually

from ampsq import Client, SqliteBookmarkStore, Topic

pytestmark = pytest.mark.slow

CHILD = Path(__file__).parent / "child.py"
NUMBER = 900


def read(path):
    """A child's records; a line that a killed one did not finish is left out."""
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def told(path, what):
    return [record["data"] for record in read(path) if record["what"] == what]


@pytest.mark.parametrize("where", ["file", "redis"])
def test_a_subscriber_that_is_killed_again_and_again_misses_nothing_and_repeats_only_what_was_not_noted(
    valkey, instance, launch_child, tmp_path, where
):
    with Client(valkey.url, instance=instance) as client:
        place = "redis" if where == "redis" else tmp_path / "places"

        def start(path):
            return launch_child(CHILD, "read_durably", valkey.url, instance, path, place)

        paths = _lives(client, start, tmp_path)
    # Then every message was handled
    handled = [number for path in paths for number in told(path, "handled")]
    assert set(handled) == set(range(NUMBER))
    # And what came again had not been noted before
    noted = set()
    for path in paths:
        assert not noted.intersection(told(path, "received"))
        noted.update(told(path, "noted"))


def _lives(client, start, folder):
    """Four lives of a subscriber, three of them killed; gives the files of their records."""
    # Given a topic that keeps nothing that nobody needs
    client.apply(Topic(name="orders", retention_age="0s"))
    paths = []
    client.publish_many("orders", range(100))
    for life in range(4):
        path = folder / f"records-{life}"
        paths.append(path)
        child = start(path)
        # When messages are published and logs trimmed, and the subscriber is killed in the middle
        eventually(lambda path=path: read(path), within=30.0)
        first = 100 + life * 200
        for number in range(first, first + 200, 10):
            client.publish_many("orders", range(number, number + 10))
            client.admin.trim("orders")
        if life < 3:
            # At another moment each time
            time.sleep(0.03 * life)
            child.kill()
            child.wait()
            client.admin.trim("orders")
        else:
            # One that was noted as it was killed may not have said so
            eventually(
                lambda: len({number for path in paths for number in told(path, "handled")}) == NUMBER, within=30.0
            )
    return paths


def test_a_server_that_is_killed_is_waited_for_and_nothing_is_missed_or_doubled(start_server, instance, tmp_path):
    # Given a server that loses nothing, a publisher and a durable subscription
    server = start_server("valkey", appendonly=True, options=["--appendfsync", "always"])
    stop, published = threading.Event(), []

    def publish():
        with Client(server.url, instance=instance, retry_timeout="30s") as client, client.publisher("till") as till:
            number = 0
            while not stop.is_set():
                till.publish("ab"[number % 2], number)
                published.append(number)
                number += 1

    with Client(server.url, instance=instance, retry_timeout="30s") as client:
        client.apply(Topic(name="a"), Topic(name="b"))
        store = SqliteBookmarkStore(tmp_path / "places")
        publisher = threading.Thread(target=publish)
        publisher.start()
        seen = []
        with client.subscribe_topic("^[ab]$", bookmark="epoch", sub_id="audit", bookmark_store=store) as messages:
            for _ in range(3):
                until = time.monotonic() + 0.4
                while time.monotonic() < until:
                    if (message := messages.get(0.1)) is not None:
                        seen.append(message.data)
                # When the server is killed, and comes back
                server.process.kill()
                server.process.wait()
                server = start_server(
                    "valkey", appendonly=True, data_dir=server.directory, options=["--appendfsync", "always"]
                )
            stop.set()
            publisher.join()
            # Until all came, and for a moment more
            while (message := messages.get(30 if len(seen) < len(published) else 1)) is not None:
                seen.append(message.data)
        store.close()
    # Then each message came once, in order
    assert seen == published


def test_connections_that_break_lose_and_double_nothing(valkey, connect):
    # Given a subscription to much
    client = connect(valkey.url)
    client.apply(Topic(name="a"), Topic(name="b"))
    for number in range(0, 6000, 100):
        client.publish_many("ab"[number // 100 % 2], range(number, number + 100))
    seen = []
    with (
        contextlib.closing(redis.Redis.from_url(valkey.url)) as killer,
        client.subscribe_topic("^[ab]$", bookmark="[epoch:now]") as messages,
    ):
        for message in messages:
            seen.append(message.data)
            # When all its connections are closed, again and again
            if len(seen) % 500 == 0:
                killer.client_kill_filter(_type="normal", skipme=True)
    # Then each message comes once, in order
    assert seen == list(range(6000))
