"""Lease runs that a client is given: handled in any order, by any verb, by many, after faults."""

from __future__ import annotations

import random

import pytest
from cases import seeds
from observing import eventually

from ampsq import Client, Queue
from ampsq.protocol.schema import key

NUMBER = 300


#: Elements of queues of which a batch may be one lease, by what they do.
POLICIES = {
    "plain": {},
    "filter": {"filter": "/n >= 0"},
    "priority": {"priority": "1000 - /n"},
    "barrier": {"barrier_expression": "/n < 0"},
}


@pytest.fixture(
    params=[
        *(("valkey", policy) for policy in POLICIES),
        *(("redis", policy) for policy in POLICIES),
        # In `make test` plain ones alone: fakeredis interprets scripts in Python.
        *(
            pytest.param(("memory", policy), marks=[] if policy == "plain" else [pytest.mark.slow])
            for policy in POLICIES
        ),
    ],
    ids="-".join,
)
def client(request):
    """A client of a server with a queue, and 300 messages in it."""
    instance = request.getfixturevalue("instance")
    kind, policy = request.param
    is_memory = kind == "memory"
    url = f"memory://{instance}" if is_memory else request.getfixturevalue("_session_servers")(kind).url
    with Client(url, instance=instance) as client:
        client.apply(
            Queue(
                name="work",
                underlying_topic="orders",
                lease_period="60s",
                max_per_subscription_backlog=100,
                **POLICIES[policy],
            )
        )
        client.publish_many("orders", [{"n": n} for n in range(NUMBER)])
        yield client
        assert [found.queue for found in client.admin.check() if not found.clean] == []


def numbers(client):
    """Return how many are acknowledged, leased, and wait."""
    stats = client.admin.queue_stats("work")
    return stats.acknowledged, stats.leased, stats.depth


def held_in_a_run(messages, number):
    """Pick up so many messages whose leases are in a run.

    What a coordinator pushes to a subscription before its first look is leased one by one, and acknowledged here.
    """
    runs, held = messages._managed.core.leases.in_runs, []
    while len(held) < number:
        message = messages.get(30)
        if message._parts[1] in runs:
            held.append(message)
        else:
            message.ack()
    return held


def test_all_messages_come_once_in_order_and_are_acknowledged(client):
    with client.subscribe("work", max_backlog=100) as messages:
        seen, runs, come_in_runs = [], messages._managed.core.leases.in_runs, False
        for _ in range(NUMBER):
            message = messages.get(30)
            # What a coordinator pushes before the first look is leased one by one, and comes before all else.
            come_in_runs = come_in_runs or message._parts[1] in runs
            assert len(runs) > 0 or not come_in_runs
            seen.append((message.data["n"], message.delivery))
            message.ack()
        assert come_in_runs
        messages.flush()
        assert numbers(client) == (NUMBER, 0, 0)
        assert messages.late == []
    assert seen == [(n, 1) for n in range(NUMBER)]


@seeds(4, soon=1)
def test_every_message_is_settled_once_whatever_happens_to_others_of_its_run(client, seed):
    dice = random.Random(seed)  # noqa: S311  (a test's dice)
    deliveries, done = {}, set()
    with client.subscribe("work", max_backlog=60) as messages:
        at_work = []
        while len(done) < NUMBER:
            if len(at_work) < 8 and len(done) + len(at_work) < NUMBER:
                message = messages.get(30)
                assert message is not None
                n = message.data["n"]
                assert message.delivery == deliveries.get(n, 0) + 1
                deliveries[n] = message.delivery
                at_work.append(message)
                continue
            message = at_work.pop(dice.randrange(len(at_work)))
            chance = dice.random()
            if chance < 0.1 and message.delivery < 4:
                message.cancel()
                continue
            if chance < 0.2:
                message.extend("5m")
            if chance < 0.3:
                message.expire()
            else:
                message.ack(wait=chance < 0.4)
            done.add(message.data["n"])
        messages.flush()
        assert messages.late == []
    stats = client.admin.queue_stats("work")
    assert (stats.acknowledged + stats.expired, stats.leased, stats.depth) == (NUMBER, 0, 0)


def test_what_is_handed_out_and_not_settled_goes_back_when_the_subscription_is_closed(client):
    with client.subscribe("work", max_backlog=100) as messages:
        held = [messages.get(30) for _ in range(20)]
        for message in held[::2]:
            message.ack()
    eventually(lambda: numbers(client) == (10, 0, NUMBER - 10))
    with client.subscribe("work", max_backlog=100) as messages:
        first = messages.get(30)
        assert (first.data["n"], first.delivery) == (1, 2)
        first.ack()


def test_an_acknowledgement_of_a_run_that_is_over_is_late_one_by_one(client):
    with client.subscribe("work", max_backlog=100) as messages:
        held = [messages.get(30) for _ in range(3)]
        # When somebody else settles two of them
        assert client.ack("work", [message.bookmark for message in held[:2]]) == 2
        for message in held:
            message.ack()
        messages.flush()
        # Then these are told of, and the third is done
        assert len(messages.late) == 2
        assert numbers(client)[0] == 3


def test_leased_messages_are_browsed_explained_and_settled_by_filter(client):
    with client.subscribe("work", max_backlog=100) as messages:
        held = [messages.get(30) for _ in range(5)]
        assert client.admin.explain("work", str(held[3].bookmark)).state == "leased"
        assert client.admin.queue_stats("work").leased >= 5
        assert client.ack("work", filter="/n = 3") == 1
        assert client.admin.explain("work", str(held[3].bookmark)).state == "settled"


@pytest.mark.parametrize("damage", ["count", "refs", "undefined"])
def test_what_is_wrong_with_runs_is_found_and_mended(client, damage):
    redis = client._store.redis
    names = {name: key(client.instance, name, "work") for name in ("queue", "run_refs")}
    with client.subscribe("work", max_backlog=20) as messages:
        held = held_in_a_run(messages, 4)
        # When a number, the refs of runs or the queue's own hash are lost
        if damage == "count":
            redis.hincrby(names["queue"], "in_runs", 7)
        else:
            redis.delete(names["queue" if damage == "undefined" else "run_refs"])
        found = {one.name for one in client.admin.check("work")[0].differences}
        assert ("undefined" if damage == "undefined" else "run_wrong") in found
        # Then it is mended, and what lost its lease waits again
        eventually(lambda: client.admin.check("work", repair=True)[0].clean)
        for message in held:
            message.ack()
        messages.flush()
        assert len(messages.late) == (4 if damage == "refs" else 0)
    assert client.admin.check("work")[0].clean


def test_a_rebuild_leaves_leases_in_runs_where_they_are(client):
    redis = client._store.redis
    with client.subscribe("work", max_backlog=100) as messages:
        held = [messages.get(30) for _ in range(10)]
        for message in held[::2]:
            message.ack()
        messages.flush()
        leased = numbers(client)[1]
        redis.delete(key(client.instance, "cursors", "work"))
        client.admin.check("work", repair=True)
        assert numbers(client)[1] == leased
        seen = [message.data["n"] for message in held]
        while len(seen) < NUMBER:
            message = messages.get(30)
            seen.append(message.data["n"])
            message.ack()
        for message in held[1::2]:
            message.ack()
        messages.flush()
        assert messages.late == []
    assert sorted(seen) == list(range(NUMBER))
    assert numbers(client) == (NUMBER, 0, 0)


def test_what_is_leased_in_runs_is_settled_on_a_server_whose_memory_is_full(start_server):
    server = start_server("valkey")
    with Client(server.url, instance="full") as client, server.client() as plain:
        client.apply(Queue(name="work", underlying_topic="orders", lease_period="60s", max_per_subscription_backlog=20))
        client.publish_many("orders", [{"n": n} for n in range(40)])
        with client.subscribe("work", max_backlog=20) as messages:
            held = [messages.get(30) for _ in range(10)]
            plain.config_set("maxmemory", 1)
            for message in held[1::2]:
                message.ack()
            messages.flush()
            held[0].extend("5m")
            held[2].cancel()
            held[4].expire()
            # What comes back is taken again, and so is what still waits
            for message in (held[0], held[6], held[8]):
                message.ack(wait=True)
            for _ in range(31):
                messages.get(30).ack(wait=True)
            assert messages.late == []
        plain.config_set("maxmemory", 0)
        assert numbers(client) == (39, 0, 0)
        assert client.admin.check("work")[0].clean
