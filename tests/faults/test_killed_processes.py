"""Workers and coordinators that are killed, stopped and told to end, in the middle of their work."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from evidence import check_never_held_twice
from observing import eventually

from ampsq import Action, Do, On, Queue
from ampsq.protocol.schema import key

pytestmark = pytest.mark.slow

CHILD = Path(__file__).parent / "child.py"


def define(client, **elements):
    client.apply(Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=100, **elements))


def read(path):
    """A child's records; a line that a killed one did not finish is left out."""
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def told(path, what):
    return [record for record in read(path) if record["what"] == what]


@pytest.fixture
def start_child(valkey, instance, launch_child, tmp_path):
    """Start a child of a role; gives the process and the file of its records."""
    numbers = iter(range(1000))

    def start(role, *arguments):
        path = tmp_path / f"{role}-{next(numbers)}"
        return launch_child(CHILD, role, valkey.url, instance, path, *arguments), path

    return start


def test_killed_workers_lose_nothing_and_their_leases_are_back_soon(
    valkey, connect, coordinate, evidence_of, start_child
):
    # Given a coordinator, three worker processes and leases that never lapse
    client = connect(valkey.url)
    define(client)
    coordinate(valkey.url)
    workers = [start_child("work") for _ in range(3)]
    eventually(lambda: client.admin.queue_stats("work").subscriptions == 3, within=25.0)
    # When 1,500 messages are handled, and two workers are killed in the middle
    client.publish_many("orders", range(1500))
    ended_at = {}
    for index, acknowledged in ((0, 200), (1, 600)):
        process, path = workers[index]
        eventually(
            lambda acknowledged=acknowledged: client.admin.queue_stats("work").acknowledged > acknowledged, within=25.0
        )
        eventually(lambda path=path: read(path), within=25.0)
        process.kill()
        process.wait()
        ended_at[path] = time.monotonic()
        left = 2 - index
        # Then what they held is back
        eventually(lambda left=left: client.admin.queue_stats("work").subscriptions == left, within=25.0)
    # And the one that is left handles everything
    eventually(lambda: client.admin.queue_stats("work").depth == 0, within=40.0)
    evidence_of(client).check("orders", "work", range(1500))
    # And nothing was in two hands at once: a delivery lasts from its start to its end, or to its worker's death
    holds, deliveries = [], Counter()
    for _, path in workers:
        ends = {(r["bookmark"], r["delivery"]): r["at"] for r in told(path, "end")}
        for record in told(path, "start"):
            end = ends.get((record["bookmark"], record["delivery"]), ended_at.get(path))
            holds.append((record["bookmark"], record["at"], end))
            deliveries[record["bookmark"], record["delivery"]] += 1
    check_never_held_twice(holds)
    assert set(deliveries.values()) == {1}
    # And no more came again than two workers can have held
    assert sum(delivery > 1 for _, delivery in deliveries) <= 2 * 20


def test_a_worker_that_is_told_to_end_ends_well(valkey, connect, evidence_of, start_child):
    # Given a worker process in the middle of its work
    client = connect(valkey.url)
    define(client)
    process, path = start_child("work")
    client.publish_many("orders", range(400))
    eventually(lambda: len(told(path, "end")) > 50, within=25.0)
    # When it gets SIGTERM
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    # Then what it began is acknowledged, and everything else is back as if it had never been away
    handled = {record["bookmark"] for record in told(path, "end")}
    assert told(path, "stopped")[0]["processed"] == len(handled)
    stats = client.admin.queue_stats("work")
    assert (stats.acknowledged, stats.leased, stats.depth) == (len(handled), 0, 400 - len(handled))
    with client.subscribe("work", max_backlog=100) as messages:
        while (message := messages.get(0.2)) is not None:
            assert message.delivery == 1
            message.ack()
    evidence_of(client).check("orders", "work", range(400))


@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_worker_whose_handler_does_not_end_ends_at_its_deadline(valkey, connect, start_child, concurrency):
    client = connect(valkey.url)
    define(client)
    client.publish("orders", 1)
    process, path = start_child("stuck", concurrency)
    eventually(lambda: told(path, "start"), within=25.0)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    assert told(path, "stopped")
    assert client.admin.queue_stats("work").leased == 0


def test_a_consumer_that_slept_past_its_lease_cannot_touch_the_next_one(
    valkey, connect, coordinate, evidence_of, start_child
):
    # Given a process that holds two messages, and is stopped as if its machine slept
    client = connect(valkey.url)
    define(client, lease_period="4s", fairness_model="round-robin")
    coordinate(valkey.url)
    first, second = client.publish_many("orders", range(2))
    process, path = start_child("hold")
    eventually(lambda: told(path, "held"), within=25.0)
    process.send_signal(signal.SIGSTOP)
    # When its leases lapse, another consumer gets both (one after the sleeper, whose turn it was, and who did not pick
    # it up, so that it was no delivery) and settles one
    with client.subscribe("work", max_backlog=2, renew=True) as messages:
        others = {}
        while len(others) < 2:
            message = messages.get(30)
            others[message.bookmark] = message
        assert sorted(message.delivery for message in others.values()) == [2, 2]
        others[first].ack(wait=True)
        # And the process wakes up and acknowledges both
        process.send_signal(signal.SIGCONT)
        assert process.wait(30) == 0
        # Then it is told so, and the new lease stands
        said = {record["bookmark"]: record["what"] for record in read(path) if "bookmark" in record}
        assert said == {first: "AlreadyAcked", second: "StaleLease"}
        assert client.admin.queue_stats("work").leased == 1
        others[second].ack(wait=True)
    evidence_of(client).check("orders", "work", range(2))


def test_killed_coordinators_lose_no_duty_and_double_none(valkey, connect, instance, evidence_of, launch_child):
    # Given messages that expire at their first cancel, delayed ones, and a coordinator process
    client = connect(valkey.url)
    define(client, max_cancels=2)
    client.apply(Queue(name="dead", max_per_subscription_backlog=500), Action.dead_letter("work", "dead"))
    arguments = ("-m", "ampsq.coordinator", "--url", valkey.url, "--instance", instance)
    coordinator = launch_child(*arguments)
    client.publish_many("orders", range(120))
    chance = random.Random(7)  # noqa: S311 - a test's dice
    with client.subscribe("work", max_backlog=20) as messages:
        for number in range(240):
            # When each is cancelled twice, with delays that a coordinator ends, and coordinators are killed meanwhile
            message = messages.get(30)
            message.cancel(delay=0.05 * chance.random())
            if number % 40 == 39:
                coordinator.kill()
                coordinator.wait()
                coordinator = launch_child(*arguments)
        eventually(lambda: client.admin.queue_stats("work").depth == 0, within=25.0)
    # Then there is one dead letter of each
    eventually(lambda: client.admin.topics()["dead"].messages >= 120, within=25.0)
    letters = evidence_of(client).published("dead")
    assert sorted(letter["message"] for letter in letters.values()) == list(range(120))
    assert {letter["reason"] for letter in letters.values()} == {"max_cancels"}
    evidence_of(client).check("orders", "work", range(120))


def test_killed_coordinators_publish_for_each_event_exactly_once(valkey, connect, instance, evidence_of, launch_child):
    # Given an action that counts, looks up and publishes twice, one of whose targets cannot be published to for a while
    client = connect(valkey.url)
    client.apply(
        Queue(name="work", underlying_topic="orders"),
        Action(
            name="route",
            on=[On.expire(topic="work"), On.publish(topic="others")],
            do=[
                Do.increment(key="seen", value="COUNT"),
                Do.extract(value="NUMBER=/n"),
                Do.publish(topic="first", data='{"n": {{NUMBER}}, "count": {{COUNT}}}'),
                Do.publish(topic="second-{{NUMBER}}", data="{{AMPS_DATA}}"),
                Do.publish(topic="third", data="{{NUMBER}}"),
            ],
        ),
    )
    redis = client._store.redis
    planted = [key(instance, "log", f"second-{number}") for number in range(0, 90, 10)]
    for log in planted:
        redis.set(log, "planted")
    arguments = ("-m", "ampsq.coordinator", "--url", valkey.url, "--instance", instance)
    coordinators = [launch_child(*arguments) for _ in range(2)]
    chance = random.Random(11)  # noqa: S311 - a test's dice
    # When events come, two coordinators work at once, and one of them is killed again and again
    for number in range(0, 90, 2):
        client.ack("work", [client.publish("orders", {"n": number})], "expire")
        client.publish("others", {"n": number + 1})
        time.sleep(0.03 * chance.random())  # another moment each time
        if number % 12 == 10:
            killed = coordinators.pop(0)
            killed.kill()
            killed.wait()
            coordinators.append(launch_child(*arguments))
    eventually(lambda: client.admin.actions()["route"].waiting == 0, within=40.0)
    assert client.admin.actions()["route"].failed == 9
    # And what failed may be done after all
    redis.delete(*planted)
    client.admin.retry_action("route")
    eventually(lambda: client.admin.actions()["route"].failed == 0, within=40.0)
    # Then each event was published once to each target, and counted once
    published = [evidence_of(client).published(topic).values() for topic in ("first", "third")]
    assert sorted(letter["n"] for letter in published[0]) == sorted(published[1]) == list(range(90))
    assert sorted(letter["count"] for letter in published[0]) == list(range(1, 91))
    assert all(redis.xlen(key(instance, "log", f"second-{number}")) == 1 for number in range(90))
    assert client.admin.actions()["route"].done == 90


def test_a_stopped_coordinator_that_wakes_up_does_no_harm(  # noqa: PLR0917 - fixtures and parameters
    valkey, connect, coordinate, instance, evidence_of, launch_child
):
    # Given a coordinator process that is stopped while dead letters come, and another one that goes on
    client = connect(valkey.url)
    define(client, max_cancels=1)
    client.apply(Queue(name="dead"), Action.dead_letter("work", "dead"))
    sleeper = launch_child("-m", "ampsq.coordinator", "--url", valkey.url, "--instance", instance)
    client.publish_many("orders", range(60))
    with client.subscribe("work") as messages:
        for number in range(60):
            messages.get(30).cancel()
            if number == 20:
                eventually(lambda: client.admin.topics()["dead"].messages > 0, within=25.0)
                os.kill(sleeper.pid, signal.SIGSTOP)
                coordinate(valkey.url)
            if number == 40:
                os.kill(sleeper.pid, signal.SIGCONT)
    eventually(lambda: client.admin.topics()["dead"].messages >= 60, within=25.0)
    time.sleep(0.3)  # for what the one that woke up might publish again
    letters = evidence_of(client).published("dead")
    assert sorted(letter["message"] for letter in letters.values()) == list(range(60))
