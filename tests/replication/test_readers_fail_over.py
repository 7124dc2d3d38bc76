"""Subscriptions to topics of clients with several instances: each message once, whichever server is killed."""

from __future__ import annotations

import random
import time

import pytest
from homes import at
from observing import eventually

from ampsq import Client, MemoryBookmarkStore, RedisBookmarkStore, SqliteBookmarkStore

pytestmark = pytest.mark.slow


def take(messages, number, seconds=10.0):
    """The data of so many messages, and of those that come at once behind them."""
    found, until = [], time.monotonic() + seconds
    while len(found) < number and time.monotonic() < until:
        message = messages.get(0.2)
        if message is not None:
            found.append(message.data)
    while (message := messages.get(0)) is not None:
        found.append(message.data)
    return found


def publish_at_both(homes, bodies):
    """Publish in turn, so that the instances have them in different orders."""
    number = max(len(homes.bodies(each)) for each in "ab")
    for at_a, at_b in zip(bodies[::2], bodies[1::2], strict=True):
        homes.admins["a"].publish("orders", at_a)
        homes.admins["b"].publish("orders", at_b)
    eventually(lambda: len(homes.bodies("a")) == len(homes.bodies("b")) == number + len(bodies), 30)


def test_readers_go_on_at_the_other_instance_and_back(homes):
    publish_at_both(homes, [1, 2, 3, 4])
    client = homes.client()
    store = MemoryBookmarkStore()
    live = client.subscribe_topic("orders", bookmark="now")
    behind = client.subscribe_topic("orders", bookmark="epoch")
    ranged = client.subscribe_topic("orders", bookmark="[epoch:now]")
    durable = client.subscribe_topic(
        "orders", bookmark="most_recent", sub_id="audit", bookmark_store=store, auto_ack=False
    )
    conflated = client.subscribe_topic("orders", bookmark="epoch", conflation="10ms", conflation_key="/none")
    publish_at_both(homes, [5, 6, 7, 8])
    seen = {"behind": [behind.get(30).data for _ in range(3)], "ranged": [ranged.get(30).data]}
    open_messages = [durable.get(30) for _ in range(3)]
    open_messages[0].ack(wait=True)
    homes.kill("a")
    at(homes, client, "b")
    homes.admins["b"].publish_many("orders", [9, 10])

    assert sorted(take(live, 6)) == [5, 6, 7, 8, 9, 10]
    assert sorted(seen["behind"] + take(behind, 7)) == list(range(1, 11))
    assert sorted(seen["ranged"] + take(ranged, 3)) == [1, 2, 3, 4]
    assert ranged.get(5) is None
    assert ranged.completed
    assert sorted(take(conflated, 10)) == list(range(1, 11))
    for message in open_messages[1:]:
        message.ack()
    assert sorted([each.data for each in open_messages] + take(durable, 7)) == list(range(1, 11))

    # And back: what they had at either is passed over.
    homes.restart("a")
    homes.connected("b", "a")
    homes.connected("a", "b")
    publish_at_both(homes, [11, 12])
    assert sorted(take(live, 2)) == [11, 12]
    homes.kill("b")
    at(homes, client, "a")
    homes.admins["a"].publish("orders", 13)
    assert take(live, 1) == [13]
    assert sorted(take(behind, 3)) == [11, 12, 13]
    assert sorted(take(conflated, 3)) == [11, 12, 13]
    assert sorted(take(durable, 3)) == [11, 12, 13]


@pytest.mark.parametrize("kind", ["file", "server"])
def test_what_a_durable_subscription_handled_stays_handled_at_the_other_instance(homes, kind, tmp_path):
    store = SqliteBookmarkStore(tmp_path / "places.db") if kind == "file" else RedisBookmarkStore()
    wish = {"bookmark": "most_recent", "sub_id": "audit", "bookmark_store": store, "auto_ack": False}
    publish_at_both(homes, [1, 2, 3, 4, 5, 6])
    client = homes.client()
    with client.subscribe_topic("orders", **wish) as messages:
        taken = [messages.get(30) for _ in range(5)]
        # The third one and the last stay open, what is behind the one is beyond the place.
        for each in (0, 1, 3):
            taken[each].ack()
        messages.flush()
        homes.kill("a")
        at(homes, client, "b")
        homes.admins["b"].publish("orders", 7)
        assert sorted(take(messages, 2)) == sorted({*range(1, 8)} - {each.data for each in taken})
    client.close()

    # Another process, which begins at the other instance.
    client = homes.client()
    with client.subscribe_topic("orders", **wish) as messages:
        assert sorted(take(messages, 4)) == sorted({*range(1, 8)} - {taken[each].data for each in (0, 1, 3)})
    # One that begins anew forgets what is kept, of both instances.
    with client.subscribe_topic("orders", **wish | {"bookmark": "epoch"}):
        pass
    with client.subscribe_topic("orders", **wish) as messages:
        assert sorted(take(messages, 7)) == [*range(1, 8)]


def told(changes, number):
    """Of so many changes: the command, the key, and what the record is."""
    found = [changes.get(30) for _ in range(number)]
    assert changes.get(0.1) is None
    return [(change.command, change.key, change.data and change.data["qty"]) for change in found]


def test_subscriptions_to_records_and_aggregates_go_on_at_the_other_instance(homes):
    a, b = homes.admins["a"], homes.admins["b"]
    for number in (1, 2, 3):
        a.publish("positions", {"id": number, "qty": number})
    client = homes.client()
    changes = client.sow_and_subscribe("positions", "/qty < 100", oof=True)
    rows = client.aggregate("positions", ["SUM(/qty) AS /sum"])
    assert told(changes, 3) == [("sow", "1", 1), ("sow", "2", 2), ("sow", "3", 3)]
    assert rows.get(30) == {"sum": 6}
    a.publish("positions", {"id": 1, "qty": 10})
    eventually(lambda: len(homes.bodies("b", "positions")) == 4, 30)
    homes.kill("a")
    at(homes, client, "b")
    b.publish("positions", {"id": 2, "qty": 20})
    b.publish("positions", {"id": 3, "qty": 300})
    b.sow_delete("positions", keys=[1])

    # What was read is told once, and what came is told as everywhere.
    expected = [("publish", "1", 10), ("publish", "2", 20), ("oof", "3", 300), ("oof", "1", None)]
    assert told(changes, 4) == expected
    eventually(lambda: rows.get(1) == {"sum": 336}, 30)
    assert [record.key for record in client.sow("positions")] == ["2", "3"]
    assert client.admin.history(client.publish("orders", 1)).bookmark.origin == b.origin


def test_a_subscription_to_records_looks_anew_where_the_log_was_trimmed_meanwhile(homes):
    a, b = homes.admins["a"], homes.admins["b"]
    for number in (1, 2):
        a.publish("positions", {"id": number, "qty": number})
    client = homes.client()
    changes = client.sow_and_subscribe("positions", oof=True)
    assert told(changes, 2) == [("sow", "1", 1), ("sow", "2", 2)]
    a.publish_many("positions", [{"id": 1, "qty": 3}, {"id": 1, "qty": 4}, {"id": 3, "qty": 5}])
    eventually(lambda: len(homes.bodies("b", "positions")) == 5, 30)
    removed = []
    eventually(lambda: removed.append(b.admin.trim("positions", age="0s").removed) or sum(removed) == 5, 30)
    client._connection.fail_over(client._connection.instances[1], is_careful=False)

    assert told(changes, 2) == [("publish", "1", 4), ("publish", "3", 5)]


class History:
    """Three instances, what is published and what links do by chance, and a reader that goes from one to the next."""

    def __init__(self, fabric, seed):
        self._fabric, self._chance, self.topic = fabric, random.Random(seed), f"orders{seed}"  # noqa: S311
        self._sites = [fabric.site(f"{each}{seed}") for each in "abc"]
        for site in self._sites:
            site.topic(self.topic)
        fabric.links.clear()
        fabric.join(*self._sites, topics=(self.topic,), queues=())
        self.urls = [f"{site.store.url}#{site.store.instance}" for site in self._sites]
        self.published, self.got = [], []

    def happen(self):
        for _ in range(self._chance.randrange(6)):
            bodies = [b"1"] * self._chance.randrange(1, 4)
            self.published += self._chance.choice(self._sites).publish(self.topic, *bodies)
        for _ in range(self._chance.randrange(4)):
            self._chance.choice(list(self._fabric.links.values())).step()

    def place(self):
        """Return the place where the reader begins, and what it is not to get."""
        if self._chance.random() < 0.5:
            return "epoch", set()
        self._fabric.run()
        return "now", set(self.published)

    def read(self, number, wait=0.0):
        for _ in range(number):
            message = self.messages.get(wait)
            if message is None:
                return
            self.got.append(str(message.bookmark))

    def wander(self, client, messages):
        self.messages = messages
        for _ in range(8):
            self.happen()
            self.read(self._chance.randrange(8))
            elsewhere = [home for home in client._connection.instances if home.instance != client.instance]
            client._connection.fail_over(self._chance.choice(elsewhere), is_careful=False)
        self._fabric.run()
        self.read(1_000, 0.05)


@pytest.mark.default_user(
    reason="moves to instances that were opened by scripts alone, which only an administrator registers"
)
@pytest.mark.parametrize("seed", range(6))
def test_wherever_a_reader_goes_on_it_gets_each_message_once(fabric, seed):
    history = History(fabric, seed)
    history.happen()
    place, before = history.place()
    with Client(history.urls, heartbeat="10s") as client:
        client._connection._failover.stop()
        with client.subscribe_topic(history.topic, bookmark=place) as messages:
            history.wander(client, messages)

    assert len(history.got) == len(set(history.got))
    assert set(history.got) == set(history.published) - before
