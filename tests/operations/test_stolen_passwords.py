"""Abilities of a thief with a stolen password of a role, and their limits: by plain commands, not by ours.

docs/threat-model.md has a line for each.
"""

from __future__ import annotations

import contextlib

import pytest
import redis

from ampsq import Action, Client, Destination, Queue, Topic
from ampsq.base.errors import NotPermitted
from ampsq.protocol.schema import key

pytestmark = pytest.mark.default_user(reason="makes its users itself, and has them do what their role may not")

#: What there is to be stolen: bodies and the credentials of a destination.
BODY, CREDENTIAL = b'{"id":1}', "of-the-other-end"
DEFINITIONS = [
    Topic(name="orders"),
    Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=10),
    Destination(
        name="lon", addresses=[f"redis://replicator:{CREDENTIAL}@127.0.0.1:1"], topics=["orders"], sync_type="async"
    ),
]


@pytest.fixture
def admin(login, instance):
    with Client(login("admin"), instance=instance) as client:
        client.apply(*DEFINITIONS)
        client.publish("orders", BODY)
        yield client


@pytest.fixture
def thief(login, admin):  # noqa: ARG001 - the instance is there
    """Log in with redis-py under a role."""
    with contextlib.ExitStack() as stack:

        def logged_in(role, **rights):
            return stack.enter_context(contextlib.closing(redis.Redis.from_url(login(role, **rights))))

        yield logged_in


@pytest.mark.parametrize("role", ["publisher", "worker", "gateway", "coordinator", "replicator", "admin"])
def test_any_role_reads_the_messages_and_the_credentials_of_destinations(thief, role, instance):
    user = thief(role)

    assert BODY in user.xrange(key(instance, "log", "orders"))[0][1].values()
    assert CREDENTIAL.encode() in user.hget(key(instance, "destinations"), "lon")


@pytest.mark.parametrize("role", ["publisher", "worker", "gateway"])
def test_it_takes_a_message_from_who_holds_it_and_a_rebuild_brings_it_back(thief, login, admin, role, instance):
    with Client(login("worker"), instance=instance) as worker:
        held = worker.subscribe("work").get("5s")
        assert held is not None
        user = thief(role)
        for name in ("leases", "attempts", "ready"):
            user.delete(key(instance, name, "work"))

        (found,) = admin.admin.check("work")
        assert found.differences
        admin.admin.rebuild("work")

        (found,) = admin.admin.check("work")
        assert (found.messages, found.differences) == (1, ())
        assert admin.admin.queue_stats("work").depth == 1


@pytest.mark.parametrize("role", ["publisher", "gateway", "worker"])
def test_it_runs_nothing_on_a_coordinator_and_sends_messages_nowhere_else(thief, login, role, instance, plain):
    user = thief(role)
    before = {name: plain.hgetall(key(instance, name)) for name in ("actions", "destinations", "topics", "queues")}

    for name in before:
        with pytest.raises(redis.exceptions.NoPermissionError):
            user.hset(key(instance, name), "x", "{}")
    with Client(login(role), instance=instance) as client, pytest.raises(NotPermitted):
        client.apply(Action.dead_letter("work", "failed"))

    assert {name: plain.hgetall(key(instance, name)) for name in before} == before


def test_a_publisher_can_delete_a_log_that_it_may_write_and_no_other(thief, instance, admin):
    admin.publish("others", BODY)
    user = thief("publisher", topics=["orders"])

    with pytest.raises(redis.exceptions.NoPermissionError):
        user.delete(key(instance, "log", "others"))
    assert user.delete(key(instance, "log", "orders")) == 1


def test_a_worker_can_delete_no_log(thief, instance):
    with pytest.raises(redis.exceptions.NoPermissionError):
        thief("worker").delete(key(instance, "log", "orders"))


@pytest.mark.parametrize("role", ["coordinator", "replicator"])
def test_a_coordinator_and_a_replicator_can_define(thief, role, instance, plain):
    user = thief(role)

    user.hset(key(instance, "topics"), "made-by-a-thief", "{}")

    assert plain.hexists(key(instance, "topics"), "made-by-a-thief")
