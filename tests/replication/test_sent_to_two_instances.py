"""Messages that a named publisher sent to two instances, since it failed over: handed out once, and none lost."""

from __future__ import annotations

import asyncio
import random

import pytest
from scene import data_of, pick_up

from ampsq import AsyncClient, Client, MemoryBookmarkStore, RedisBookmarkStore, SqliteBookmarkStore

pytestmark = pytest.mark.default_user(
    reason="moves to instances that were opened by scripts alone, which only an administrator registers"
)


def rest_of(messages):
    """Everything that is there; a page of what was had elsewhere has nothing in it."""
    found = []
    while (message := messages.get(0.3)) is not None:
        found.append(message)
    return found


class Two:
    """Instances `a` and `b` whose links a test steps, and clients of both that it moves."""

    def __init__(self, fabric, names="ab", pattern=""):
        self.fabric = fabric
        self.sites = {each: fabric.site(each) for each in names}
        for site in self.sites.values():
            site.topic("orders")
            if pattern:
                site.topic("other")
        fabric.join(*self.sites.values(), topics=("orders", "other") if pattern else ("orders",), queues=())

    def addresses(self, names="ab"):
        return [f"{self.sites[each].store.url}#{self.sites[each].store.instance}" for each in names]

    def client(self, names="ab"):
        client = Client(self.addresses(names), heartbeat="10s")
        client._connection._failover.stop()
        return client

    def send(self, short, *numbers, topic="orders", publisher="till"):
        for number in numbers:
            self.sites[short].publish(topic, str(number), publisher=publisher, sequence=str(number))

    def link(self, source, destination):
        link = self.fabric.links[source, destination]
        while link.step().messages:
            pass


def move(client, short):
    (there,) = [each for each in client._connection.instances if each.instance.endswith(f"-{short}")]
    client._connection.fail_over(there, is_careful=False)


@pytest.fixture
def two(fabric):
    return Two(fabric)


def test_what_was_handed_out_does_not_come_again_under_another_origin(two):
    two.send("a", 1, 2, 3, 4, 5)
    with two.client() as client, client.subscribe_topic("orders", bookmark="epoch") as messages:
        assert data_of(pick_up(messages, 5)) == [1, 2, 3, 4, 5]
        # Given a publisher that failed over and does not know of the last two, nor do links
        two.send("b", 4, 5, 6)
        # When the subscription goes on there, then it gets what it has not had
        move(client, "b")
        assert data_of(rest_of(messages)) == [6]
        # And whatever links bring, and wherever it goes
        two.fabric.run()
        assert not rest_of(messages)
        move(client, "a")
        two.send("a", 7)
        assert data_of(rest_of(messages)) == [7]


def test_a_four_behind_a_five_is_handed_out(two):
    two.send("a", 1, 2, 3)
    two.fabric.run()
    with two.client("ba") as client, client.subscribe_topic("orders", bookmark="epoch") as messages:
        assert data_of(pick_up(messages, 3)) == [1, 2, 3]
        # Given a 4 that is recorded at the first instance, and a 5 that its publisher sent to the second
        two.send("a", 4)
        two.send("b", 5)
        assert data_of(pick_up(messages, 1)) == [5]
        # When a link brings the 4, then it comes, once
        two.fabric.run()
        assert data_of(rest_of(messages)) == [4]
        move(client, "a")
        two.fabric.run()
        assert not rest_of(messages)


def test_what_waits_to_be_handed_out_is_not_doubled_either(two):
    two.send("a", 1, 2, 3, 4, 5)
    with two.client() as client, client.subscribe_topic("orders", bookmark="epoch") as messages:
        # Given messages that were read and not handed out
        assert data_of(pick_up(messages, 2)) == [1, 2]
        two.send("b", 3, 4, 5, 6)
        move(client, "b")
        assert data_of(rest_of(messages)) == [3, 4, 5, 6]


def test_a_publishers_number_is_found_among_copies(two):
    two.send("a", 1, 2, 3)
    two.fabric.run()
    two.send("b", 4)
    # Wherever the message was published, a subscription begins behind it
    with Client(two.addresses("b")) as client:
        for bookmark, expected in (("till|2", [3, 4]), ("till|4,till|3", [4])):
            with client.subscribe_topic("orders", bookmark=bookmark) as messages:
                assert data_of(rest_of(messages)) == expected


def test_a_filter_chooses_before(two):
    def send(short, *numbers):
        for number in numbers:
            body = f'{{"n": {number}}}'
            two.sites[short].publish("orders", body, publisher="till", sequence=str(number))

    send("a", 1, 2, 3, 4, 5)
    with two.client() as client, client.subscribe_topic("orders", filter="/n != 4", bookmark="epoch") as messages:
        assert data_of(pick_up(messages, 4)) == [{"n": number} for number in (1, 2, 3, 5)]
        send("b", 2, 3, 4, 5, 6)
        move(client, "b")
        assert data_of(rest_of(messages)) == [{"n": 6}]


def test_publishers_of_other_names_and_none_are_not_mixed_up(two):
    two.send("a", 1, 2)
    two.send("a", 1, 2, publisher="desk")
    two.sites["a"].publish("orders", "1")
    with two.client() as client, client.subscribe_topic("orders", bookmark="epoch") as messages:
        assert data_of(pick_up(messages, 5)) == [1, 2, 1, 2, 1]
        two.send("b", 2, publisher="other")
        two.sites["b"].publish("orders", "1")
        # Each instance's view numbers for itself
        two.send("b", 1, publisher="view:totals")
        move(client, "b")
        assert data_of(rest_of(messages)) == [2, 1, 1]


def test_a_conflated_subscription_passes_over_it_too(two):
    two.send("a", 1, 2, 3)
    wish = {"bookmark": "epoch", "conflation": "10ms", "conflation_key": "/none"}
    with two.client() as client, client.subscribe_topic("orders", **wish) as messages:
        assert data_of(pick_up(messages, 3)) == [1, 2, 3]
        two.send("b", 2, 3, 4)
        move(client, "b")
        assert data_of(pick_up(messages, 1)) == [4]
        assert messages.get(0.3) is None


def test_so_does_an_asyncio_client(two):
    two.send("a", 1, 2, 3)

    async def main():
        async with AsyncClient(two.addresses(), heartbeat="10s") as client:
            messages = await client.subscribe_topic("orders", bookmark="epoch")
            async with messages:
                found = [(await messages.get(5)).data for _ in range(3)]
                two.send("b", 2, 3, 4)
                two.sites["b"].publish("orders", "9")
                await client._connection.fail_over(client._connection.instances[1], is_careful=False)
                async for message in messages:
                    found.append(message.data)
                    if message.data == 9:
                        break
                return found

    assert asyncio.run(main()) == [1, 2, 3, 4, 9]


#: Histories of each kind.
SEEDS = 4
KINDS = ["memory", "file", "server"]


def store_of(kind, tmp_path):
    made = {
        "memory": MemoryBookmarkStore,
        "file": lambda: SqliteBookmarkStore(tmp_path / "p"),
        "server": RedisBookmarkStore,
    }
    return made[kind]()


def wish_of(store):
    return {"bookmark": "most_recent", "sub_id": "audit", "bookmark_store": store, "auto_ack": False}


@pytest.mark.parametrize("kind", KINDS)
def test_a_durable_one_remembers_it_in_the_next_process(two, kind, tmp_path):
    store = store_of(kind, tmp_path)
    two.send("a", 1, 2, 3, 4, 5)
    with two.client() as client, client.subscribe_topic("orders", **wish_of(store)) as messages:
        taken = pick_up(messages, 5)
        # The fourth and the second are not handled
        for each in (0, 2, 4):
            taken[each].ack()
        messages.flush()
        move(client, "b")
        assert not rest_of(messages)
    two.send("b", 3, 4, 5, 6)
    # Then the next process, at the other instance, gets what is not handled and is there, and what is new
    with two.client("ba") as client, client.subscribe_topic("orders", **wish_of(store)) as messages:
        again = rest_of(messages)
        assert data_of(again) == [4, 6]
        again[0].ack(wait=True)
    # What links bring of it is known, too
    two.fabric.run()
    with two.client("ba") as client, client.subscribe_topic("orders", **wish_of(store)) as messages:
        assert sorted(data_of(rest_of(messages))) == [2, 6]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_open_at_one_instance_is_open_under_the_other_origin(two, kind, tmp_path):
    store = store_of(kind, tmp_path)
    two.send("a", 1, 2, 3)
    with two.client() as client, client.subscribe_topic("orders", **wish_of(store)) as messages:
        taken = pick_up(messages, 3)
        taken[0].ack()
        two.send("b", 1, 2, 3, 4)
        move(client, "b")
        (last,) = rest_of(messages)
        assert last.data == 4
        last.ack(wait=True)
    # Given that 2 and 3 were handed out and not handled, then they come again, once
    with two.client("ba") as client, client.subscribe_topic("orders", **wish_of(store)) as messages:
        again = rest_of(messages)
        assert data_of(again) == [2, 3]
        for each in again:
            each.ack()
    with two.client("ba") as client, client.subscribe_topic("orders", **wish_of(store)) as messages:
        assert not rest_of(messages)


@pytest.mark.parametrize("kind", KINDS)
def test_the_place_goes_past_what_was_handled_under_the_other_origin(two, kind, tmp_path):
    store = store_of(kind, tmp_path)
    two.send("a", 1, 2, 3)
    with two.client() as client, client.subscribe_topic("orders", **wish_of(store)) as messages:
        taken = pick_up(messages, 3)
        two.send("b", 1, 2, 3, 4)
        move(client, "b")
        taken += rest_of(messages)
        assert data_of(taken) == [1, 2, 3, 4]
        for each in taken:
            each.ack()
        messages.flush()
        assert messages._managed.core._handling.open_messages == 0
    with two.client("ba") as client, client.subscribe_topic("orders", **wish_of(store)) as messages:
        assert not rest_of(messages)
        two.send("b", 5)
        assert data_of(rest_of(messages)) == [5]


def test_another_bookmark_begins_anew(two, tmp_path):
    store = store_of("file", tmp_path)
    two.send("a", 1, 2, 3)
    with two.client() as client, client.subscribe_topic("orders", **wish_of(store)) as messages:
        for each in pick_up(messages, 3):
            each.ack()
    two.send("b", 1, 2, 3)
    wish = wish_of(store) | {"bookmark": "epoch"}
    with two.client("ba") as client, client.subscribe_topic("orders", **wish) as messages:
        assert data_of(rest_of(messages)) == [1, 2, 3]


class Till:
    """A publisher that fails over by chance, and sends again what it does not know to be recorded everywhere."""

    def __init__(self, two, chance, names):
        self._two, self._chance, self._names = two, chance, names
        self._site, self.number = names[0], 0

    def publish(self):
        for _ in range(self._chance.randrange(4)):
            self.number += 1
            self._two.send(self._site, self.number)

    def fail_over(self):
        self._site = self._chance.choice(self._names)
        known = self._two.sites[self._site].store.redis.hget(self._two.sites[self._site].key("publishers"), "till")
        last = int(known.split(b" ")[0]) if known else 0
        for number in range(max(self.number - self._chance.randrange(4), last, 0) + 1, self.number + 1):
            self._two.send(self._site, number)


class Audit:
    """A subscription, durable or not, that goes from instance to instance, or is made again."""

    def __init__(self, client, chance, names, wish):
        self._client, self._chance, self._names, self._wish = client, chance, names, wish
        self.found = []
        self._open()

    def _open(self):
        self.messages = self._client.subscribe_topic("orders", **self._wish)

    def read(self, number, wait=0.0):
        for _ in range(number):
            if (message := self.messages.get(wait)) is not None:
                self.found.append(message.data)
                message.ack()

    def wander(self):
        if self._chance.random() < 0.5:
            here = self._client.instance[-1]
            move(self._client, self._chance.choice([each for each in self._names if each != here]))
        if "sub_id" in self._wish and self._chance.random() < 0.3:
            self.messages.close()
            self._open()

    def finish(self):
        self.found += data_of(rest_of(self.messages))
        self.messages.close()


@pytest.mark.parametrize("kind", ["live", "memory", "file"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_by_chance_each_number_comes_once_wherever_both_go(fabric, seed, kind, tmp_path):
    chance, names = random.Random(seed), "abc"  # noqa: S311
    two = Two(fabric, names)
    till = Till(two, chance, names)
    wish = {"bookmark": "epoch"} if kind == "live" else wish_of(store_of(kind, tmp_path))
    with two.client(names) as client:
        audit = Audit(client, chance, names, wish)
        for _ in range(10):
            till.publish()
            for _ in range(chance.randrange(4)):
                chance.choice(list(fabric.links.values())).step()
            audit.read(chance.randrange(5))
            if chance.random() < 0.5:
                till.fail_over()
            audit.wander()
        fabric.run()
        audit.finish()
    assert sorted(audit.found) == [*range(1, till.number + 1)]


@pytest.mark.parametrize("kind", KINDS[:2])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_by_chance_what_is_not_handled_comes_again_and_nothing_else(fabric, seed, kind, tmp_path):
    chance, names = random.Random(seed), "abc"  # noqa: S311
    two = Two(fabric, names)
    till, handled = Till(two, chance, names), []
    with two.client(names) as client:
        audit = Audit(client, chance, names, wish_of(store_of(kind, tmp_path)))
        for _ in range(10):
            till.publish()
            for _ in range(chance.randrange(4)):
                chance.choice(list(fabric.links.values())).step()
            for _ in range(chance.randrange(5)):
                if (message := audit.messages.get(0)) is not None:
                    assert message.data not in handled
                    if chance.random() < 0.6:
                        message.ack()
                        handled.append(message.data)
            if chance.random() < 0.5:
                till.fail_over()
            audit.wander()
        fabric.run()
        audit.finish()
        audit = Audit(client, chance, names, audit._wish)
        audit.finish()
    assert sorted(handled + audit.found) == [*range(1, till.number + 1)]
