"""Queues with groups, through clients: order, concurrency, what failures do, and what is refused."""

from __future__ import annotations

import asyncio

import pytest

from ampsq import AsyncClient, Destination, LocalQueue, Queue
from ampsq.base.errors import DefinitionError, GroupedQueue, QueueNotEmpty


def defined(client, **elements):
    client.apply(
        Queue(
            name="work",
            underlying_topic="orders",
            **({"group_by": "/customer", "max_per_subscription_backlog": 100} | elements),
        )
    )


def order(customer, number):
    return {"customer": customer, "n": number}


def numbers(messages):
    return [message.data["n"] for message in messages]


def taken(subscription, timeout=0.2):
    """All that is given now."""
    found = []
    while message := subscription.get(timeout):
        found.append(message)
    return found


def test_messages_of_one_group_come_one_after_the_other_and_others_beside_them(either):
    client = either
    defined(client)
    client.publish_many("orders", [order("a", 1), order("a", 2), order("b", 3), order(None, 4), order(None, 5)])
    with client.subscribe("work", max_backlog=10) as subscription:
        first = taken(subscription)
        assert [(message.group, message.data["n"]) for message in first] == [("a", 1), ("b", 3), (None, 4), (None, 5)]
        first[0].ack()
        subscription.flush()
        assert [(message.group, message.data["n"]) for message in taken(subscription)] == [("a", 2)]


def test_what_a_publisher_says_counts_instead_of_the_expression(either):
    client = either
    defined(client)
    client.publish("orders", order("a", 1), group="x")
    client.publish("orders", order("b", 2), group="x", headers={"h": "1"})
    client.publish_many("orders", [order("c", 3), order("d", 4)], group="y")
    with client.publisher("till") as publisher:
        publisher.publish("orders", order("a", 5), group="z").bookmark  # noqa: B018
    with client.subscribe("work", max_backlog=10) as subscription:
        found = taken(subscription)
        assert [(message.group, message.data["n"]) for message in found] == [("x", 1), ("y", 3), ("z", 5)]
        assert found[0].headers == {}
        found[0].ack()
        subscription.flush()
        (second,) = taken(subscription)
        assert (second.group, second.headers) == ("x", {"h": "1"})


def test_bodies_that_no_expression_reads_have_the_groups_of_their_publisher(client):
    client.apply(
        LocalQueue(
            name="work",
            underlying_topic="orders",
            message_type="binary",
            group_concurrency=1,
            max_per_subscription_backlog=9,
        )
    )
    client.publish("orders", b"\x00\x01", group="a")
    client.publish("orders", b"\x00\x02", group="a")
    client.publish("orders", b"\x00\x03")
    with client.subscribe("work", max_backlog=10) as subscription:
        found = taken(subscription)
        assert [(message.group, message.data) for message in found] == [("a", b"\x00\x01"), (None, b"\x00\x03")]


async def work_with_asyncio(url, instance):
    async with AsyncClient(url, instance=instance) as client:
        elements = {"group_by": "/customer", "group_concurrency": 2, "max_per_subscription_backlog": 10}
        await client.apply(Queue(name="work", underlying_topic="orders", **elements))
        await client.publish("orders", order("a", 1), group="x")
        await client.publish_many("orders", [order("a", 2), order("a", 3), order("a", 4)])
        async with await client.subscribe("work", max_backlog=10) as subscription:
            found = [await subscription.get(1.0) for _ in range(3)]
            assert [(message.group, message.data["n"]) for message in found] == [("x", 1), ("a", 2), ("a", 3)]
            assert await subscription.get(0.1) is None
            await found[1].ack()
            await subscription.flush()
            assert (await subscription.get(1.0)).data["n"] == 4


def test_the_same_with_asyncio(valkey, instance):
    asyncio.run(work_with_asyncio(valkey.url, instance))


@pytest.mark.parametrize("change", [{"group_concurrency": 3, "on_group_failure": "hold"}, {"on_group_failure": "pass"}])
def test_a_change_of_definition_counts_at_once_without_a_coordinator(client, change):
    defined(client)
    client.publish_many("orders", [order("a", number) for number in range(4)])
    with client.subscribe("work", max_backlog=10) as subscription:
        (first,) = taken(subscription)
        if "group_concurrency" not in change:
            first.cancel("1h")
        defined(client, **change)
        assert client.admin.check("work")[0].differences == ()
        assert numbers(taken(subscription)) == ([1, 2] if "group_concurrency" in change else [1])


@pytest.mark.parametrize("group", ["\ud800", "a\udc80", "a\0b"])
def test_a_group_that_would_not_come_back_as_it_was_said_is_refused(client, group):
    defined(client)
    for publish in (client.publish, lambda topic, body, group: client.publish_many(topic, [body], group=group)):
        with pytest.raises(DefinitionError, match="UTF-8 without NUL"):
            publish("orders", order("a", 1), group=group)
    with client.publisher("till") as publisher, pytest.raises(DefinitionError, match="UTF-8 without NUL"):
        publisher.publish("orders", order("a", 1), group=group)
    assert client.admin.topics()["orders"].messages == 0


@pytest.mark.parametrize("group", ["\ud800", "", 1])
def test_what_can_be_no_group_is_refused_by_who_manages_one(client, group):
    defined(client)
    admin = client.admin
    for manage in (admin.pause_group, admin.resume_group, admin.release_group, admin.drop_group):
        with pytest.raises(DefinitionError, match="group="):
            manage("work", group)


def test_a_queue_without_groups_is_refused_by_who_manages_one(client):
    client.apply(Queue(name="plain"))
    admin = client.admin
    for manage in (admin.pause_group, admin.resume_group, admin.release_group, admin.drop_group):
        with pytest.raises(DefinitionError, match="'plain': it has no groups; allowed is a queue with group_by"):
            manage("plain", "a")


def test_a_large_body_that_is_pushed_says_its_group(client):
    defined(client)
    with client.subscribe("work", max_backlog=2) as subscription:
        assert subscription.get(0.05) is None
        client.publish("orders", order("a", 1) | {"text": "x" * 30_000})
        message = subscription.get(5.0)
        assert (message.group, message.data["n"]) == ("a", 1)


def test_somebody_elses_entry_has_its_group_and_shows_only_its_fields(client):
    defined(client)
    client.publish("orders", order("a", 1))
    client._store.redis.xadd(f"{{{client.instance}}}:log:orders", {"customer": "a", "n": "2"})
    with client.subscribe("work", max_backlog=2) as subscription:
        (first,) = taken(subscription)
        first.ack()
        subscription.flush()
        (second,) = taken(subscription)
        assert second.group == "a"
        assert second.data == {"customer": "a", "n": "2"}


@pytest.mark.parametrize(
    ("elements", "refused"),
    [
        ({"priority": "/price"}, "priority: does not go with group_by"),
        ({"barrier_expression": "/end = 1"}, "barrier_expression: does not go with group_by"),
        ({"ring_size": 5}, "ring_size: does not go with group_by"),
        ({"target_queue_depth": 1_000}, "target_queue_depth: does not go with group_by"),
        ({"semantics": "at-most-once"}, "semantics: 'at-most-once' does not go with group_by"),
        ({"group_concurrency": 0}, "group_concurrency"),
        ({"group_by": "1"}, "no field is in it"),
        ({"on_group_failure": "wait"}, "on_group_failure"),
        ({"message_type": "binary"}, "group_by"),
    ],
)
def test_what_does_not_go_with_groups_is_refused(elements, refused):
    with pytest.raises(DefinitionError) as refusal:
        Queue(**({"name": "work", "group_by": "/customer"} | elements))
    assert refused in str(refusal.value)


def test_a_failure_policy_without_groups_is_refused():
    given = {"on_group_failure": "hold", "group_choice": "fair", "group_weight": "/w", "group_batch": 5}
    given["group_affinity"] = "1s"
    for element, value in given.items():
        with pytest.raises(DefinitionError, match=f"{element}: the queue has no groups"):
            Queue(name="work", **{element: value})


@pytest.mark.parametrize("choice", [{}, {"group_choice": "first"}, {"group_choice": "round_robin"}])
def test_a_weight_without_fair_shares_is_refused(choice):
    with pytest.raises(DefinitionError, match="group_weight: counts for nothing with group_choice"):
        Queue(name="work", group_by="/g", group_weight="/w", **choice)


@pytest.mark.parametrize(
    ("elements", "sentence"),
    [
        ({"group_concurrency": 2}, "group_batch: does not go with a group_concurrency of 2: a batch is handled in its"),
        ({"on_group_failure": "pass"}, "group_batch: does not go with on_group_failure 'pass', by which the messages"),
        ({"group_batch": 501}, "group_batch: 501 is no size of a batch; allowed: a whole number from 1 to 500"),
        ({"group_batch": 0}, "group_batch: 0 is no size of a batch"),
        ({"group_batch": True}, "group_batch: True is no size of a batch"),
    ],
)
def test_what_does_not_go_with_batches_is_refused_with_the_reason(elements, sentence):
    with pytest.raises(DefinitionError) as refusal:
        Queue(**({"name": "work", "group_by": "/g", "group_batch": 5} | elements))
    assert sentence in str(refusal.value)


def test_a_batch_of_one_goes_with_everything():
    assert Queue(name="w", group_by="/g", group_batch=1, group_concurrency=3).on_group_failure == "pass"
    assert Queue(name="w", group_by="/g").group_batch == 1


def test_a_batch_comes_in_its_order_and_behind_what_is_cancelled_nothing_is_handed_out(either):
    client = either
    defined(client, group_batch=4)
    client.publish_many("orders", [order("a", n) for n in range(6)] + [order("b", 10)])
    with client.subscribe("work", max_backlog=10) as subscription:
        first = subscription.get(1)
        assert (first.data["n"], first.group, first.headers) == (0, "a", {})
        first.ack()
        second = subscription.get(1)
        second.cancel(reason="not now")
        found = taken(subscription)
        # What failed comes alone, and holds the rest.
        assert [(message.group, message.data["n"], message.delivery) for message in found] == [
            ("b", 10, 1), ("a", 1, 2),
        ]  # fmt: skip
        found[1].ack(wait=True)
        assert [(message.data["n"], message.delivery) for message in taken(subscription)] == [
            (2, 1), (3, 1), (4, 1), (5, 1),
        ]  # fmt: skip


def test_a_rejected_message_is_a_dead_letter_and_those_behind_it_come_again(either):
    client = either
    defined(client, group_batch=3)
    client.publish_many("orders", [order("a", n) for n in range(3)])
    with client.subscribe("work", max_backlog=10) as subscription:
        subscription.get(1).expire()
        assert [(message.data["n"], message.delivery) for message in taken(subscription)] == [(1, 1), (2, 1)]


def test_large_bodies_of_a_batch_that_were_pushed_by_reference_say_their_batch(either):
    client = either
    defined(client, group_batch=3)
    with client.subscribe("work", max_backlog=10) as subscription:
        assert subscription.get(0.05) is None
        client.publish_many("orders", [order("a", n) | {"x": "y" * 40_000} for n in range(3)])
        subscription.get(1).cancel()
        (again,) = taken(subscription)
        assert (again.data["n"], again.delivery) == (0, 2)


def test_a_group_stays_with_the_consumer_that_had_it_and_says_where_it_begins(either):
    client = either
    defined(client, group_affinity="10m")
    with client.subscribe("work", max_backlog=1) as first, client.subscribe("work", max_backlog=1) as second:
        assert (first.get(0.05), second.get(0.05)) == (None, None)
        client.publish_many("orders", [order("a", 1), order("b", 2), order(None, 3)])
        holders = {}
        for subscription in (first, second):
            message = subscription.get(5)
            assert message.group_begins
            holders[message.group] = subscription
            message.ack(wait=True)
        assert {*holders} == {"a", "b"}
        (alone,) = [message for each in holders.values() if (message := each.get(0.5))]
        assert (alone.group, alone.group_begins, alone.headers) == (None, False, {})
        alone.ack(wait=True)
        client.publish_many("orders", [order("b", 4), order("a", 5)])
        for group in "ab":
            again = holders[group].get(5)
            assert (again.group, again.group_begins, again.headers) == (group, False, {})
            again.ack(wait=True)


def test_a_large_body_that_was_pushed_by_reference_says_that_its_group_begins(either):
    client = either
    defined(client, group_affinity="10m", group_batch=2)
    with client.subscribe("work", max_backlog=10) as subscription:
        assert subscription.get(0.05) is None
        client.publish_many("orders", [order("a", n) | {"x": "y" * 40_000} for n in range(3)])
        found = [subscription.get(5), subscription.get(5)]
        assert [(message.data["n"], message.group_begins) for message in found] == [(0, True), (1, False)]
        for message in found:
            message.ack()
        assert not subscription.get(5).group_begins


def test_groups_are_shown_with_their_bindings_until_they_are_released(client):
    defined(client, group_affinity="10m")
    with client.subscribe("work", max_backlog=1) as subscription:
        client.publish("orders", order("a", 1))
        subscription.get(5).ack(wait=True)
        (state,) = client.admin.groups("work").groups
        assert (state.leased, state.waiting, state.bound_to.split(" ")[0]) == (0, 0, subscription.id)
        assert state.bound_to.split(" ")[1] == "of"
        assert state.as_dict()["bound_until"] is not None
        assert client.admin.release_group("work", "a")
        assert not client.admin.release_group("work", "a")
        assert client.admin.groups("work").groups == []


def test_a_message_of_the_test_kit_says_that_its_group_begins():
    from ampsq.testing import message  # noqa: PLC0415

    begun = message({"n": 1}, group="alice", group_begins=True)
    assert (begun.group, begun.group_begins, begun.headers) == ("alice", True, {})
    assert not message({"n": 1}, group="alice").group_begins
    assert not message({"n": 1}).group_begins
    with pytest.raises(DefinitionError, match="group_begins=True: the message is in no group"):
        message({"n": 1}, group_begins=True)


@pytest.mark.parametrize("given", ["0s", "soon", -1])
def test_an_affinity_is_an_interval(given):
    with pytest.raises(DefinitionError, match="group_affinity") as refusal:
        Queue(name="work", group_by="/g", group_affinity=given)
    assert "expiration" not in str(refusal.value)
    assert Queue(name="work", group_by="/g", group_affinity="30s").group_affinity == 30_000


def test_groups_take_turns_by_weight_through_clients(either):
    client = either
    defined(client, group_choice="fair", group_weight="/weight", group_concurrency=50)
    client.publish_many("orders", [order("a", n) | {"weight": 1} for n in range(8)])
    client.publish_many("orders", [order("b", n) | {"weight": 3} for n in range(10, 18)])
    with client.subscribe("work", max_backlog=8) as subscription:
        found = [message.group for message in taken(subscription)]
        assert (found.count("a"), found.count("b")) == (2, 6)
        assert {group.group: group.weight for group in client.admin.groups("work").groups} == {"a": 1, "b": 3}


def test_defaults_follow_from_the_concurrency():
    assert Queue(name="w", group_by="/g").on_group_failure == "hold"
    assert Queue(name="w", group_by="/g").group_concurrency == 1
    assert Queue(name="w", group_by="/g", group_concurrency=2).on_group_failure == "pass"
    assert Queue(name="w", group_concurrency=1).is_grouped
    assert not Queue(name="w").is_grouped
    for given in ({"group_by": "/g"}, {"group_concurrency": 1}, {"group_concurrency": 3, "on_group_failure": "stop"}):
        queue = Queue(name="w", **given)
        assert queue.elements() == {"name": "w", **given}
        assert Queue.from_json(queue.to_json()) == queue


def test_a_filter_of_a_subscription_is_refused(client):
    defined(client)
    with pytest.raises(GroupedQueue, match="leave it out"):
        client.subscribe("work", filter="/n > 1")
    with client.subscribe("work") as subscription, pytest.raises(GroupedQueue):
        subscription.replace(filter="/n > 1")


def test_groups_begin_and_end_only_while_the_queue_is_empty(client):
    defined(client)
    client.publish("orders", order("a", 1))
    for group_by in (None, "/n"):
        with pytest.raises(QueueNotEmpty, match="groups"):
            defined(client, group_by=group_by)
    defined(client, group_concurrency=3)
    with client.subscribe("work") as subscription:
        subscription.get(1.0).ack()
    defined(client, group_by=None)
    client.publish_many("orders", [order("a", 1), order("a", 2)])
    with client.subscribe("work", max_backlog=5) as subscription:
        assert numbers(taken(subscription)) == [1, 2]


def sent(*names):
    topics = [{"name": name} for name in names]
    return Destination(name="ldn", sync_type="async", addresses=["redis://localhost:1#ldn-1"], topics=topics)


def test_a_queue_with_groups_that_a_destination_is_sent_is_refused(client):
    defined(client)
    with pytest.raises(DefinitionError, match="has groups, and Destination 'ldn' is sent it"):
        client.apply(sent("work", "orders"))
    client.apply(sent("orders"))
    client.apply(Queue(name="mail", underlying_topic="letters"), sent("orders", "mail"))
    with pytest.raises(DefinitionError, match="has groups"):
        client.apply(Queue(name="mail", underlying_topic="letters", group_by="/c"))


def test_a_worker_that_is_gone_blocks_its_group_no_longer_than_its_lease(client, connect, start_coordinator):
    defined(client, lease_period="500ms")
    start_coordinator()
    client.publish_many("orders", [order("a", 1), order("a", 2)])
    gone = client.subscribe("work", max_backlog=5)
    assert gone.get(5.0).data["n"] == 1
    gone.replace(max_backlog=0)
    with connect().subscribe("work", max_backlog=5) as other:
        first = other.get(20.0)
        assert (first.data["n"], first.delivery) == (1, 2)
        assert other.get(0.1) is None
        first.ack(wait=True)
        assert other.get(20.0).data["n"] == 2


@pytest.mark.parametrize("dry_run", [True, 2, "no"])
def test_a_group_whose_messages_are_only_counted_keeps_them(client, dry_run):
    client.apply(Queue(name="work", group_by="/group"))
    client.publish_many("work", [{"group": "alice"}] * 3)

    assert client.admin.drop_group("work", "alice", dry_run=dry_run) == 3
    assert client.admin.queue_stats("work").depth == 3
