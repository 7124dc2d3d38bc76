"""The documents' configurations, applied as they are, do what the text around them says."""

from __future__ import annotations

from pathlib import Path

import pytest
from scene import data_of, pick_up, rest_of, settle_all

from ampsq import Client
from ampsq.base.errors import DefinitionError
from ampsq.files.config import load

EXAMPLES = Path(__file__).resolve().parents[1] / "data" / "documents"


def applied(client, *names):
    for name in names:
        client.apply(*load(EXAMPLES / f"{name}.xml"))


def test_the_simple_queue_gives_each_message_to_one_subscriber_and_the_topic_keeps_them_all(start_server):
    server = start_server("valkey", appendonly=True, options=["--appendfsync", "always"])
    with Client(server.url, instance="i") as client:
        applied(client, "transaction-log", "simple-queue")
        # When three messages are published to the topic, and three subscribers each have room for one
        client.publish_many("Work", [1, 2, 3])
        subscribers = [client.subscribe("WorkToDo") for _ in range(3)]
        got = [data_of(pick_up(messages, 1)) for messages in subscribers]
        # Then each has one, nobody two, and none is left in the queue, without an acknowledgement
        assert sorted(got) == [[1], [2], [3]]
        assert client.admin.queue_stats("WorkToDo").depth == 0
        for messages in subscribers:
            messages.close()
        with client.subscribe("WorkToDo", max_backlog=5) as late:
            assert not rest_of(late)
        # And the topic has them, recorded once
        with client.subscribe_topic("Work", bookmark="[epoch:now]") as replayed:
            assert [message.data for message in replayed] == [1, 2, 3]


@pytest.mark.parametrize("name", ["priority", "priority-5.3.4"])
def test_messages_come_in_the_order_of_price_times_quantity(client, name):
    applied(client, name)
    client.publish_many("Orders", [{"price": 2, "qty": 2}, {"price": 10, "qty": 10}, {"price": 5, "qty": 1}])
    with client.subscribe("OrderPriority") as messages:
        assert [value["price"] * value["qty"] for value in settle_all(messages, 3)] == [100, 5, 4]


@pytest.mark.parametrize("name", ["multiple-topics", "multiple-topics-5.3.4"])
def test_a_publish_comes_to_the_queues_that_the_table_says(client, name):
    applied(client, name)
    table = {
        "ORDERS": ("ORDERS_ANALYTICS", "ORDERS_RISK"),
        "ORDERS_ANALYTICS": ("ORDERS_ANALYTICS",),
        "ORDERS_RISK": ("ORDERS_RISK",),
        "ORDERS_ANALYTICS_DIRECT": ("ORDERS_ANALYTICS",),
        "ORDERS_RISK_DIRECT": ("ORDERS_RISK",),
    }
    for target in table:
        client.publish(target, {"to": target})
    for queue in ("ORDERS_ANALYTICS", "ORDERS_RISK"):
        found = [message.data["to"] for message in client.sow(queue)]
        assert found == [target for target, queues in table.items() if queue in queues]


def test_the_third_cancel_moves_a_job_to_the_failed_ones_with_its_reason(client, coordinator):  # noqa: ARG001
    applied(client, "unprocessed-queues", "unprocessed-action")
    client.publish("Jobs", {"id": 7})
    with client.subscribe("Jobs") as jobs, client.subscribe("FailedJobs") as failed:
        for delivery in (1, 2, 3):
            job = jobs.get(30)
            assert job.delivery == delivery
            job.cancel()
        assert failed.get(30).data == {"message": {"id": 7}, "reason": "max_cancels"}
        assert not rest_of(jobs)


def test_the_ring_of_the_document_keeps_the_newest_three_and_any_queue_of_its_pattern_is_one(client):
    applied(client, "ring-size", "default-ring-size")
    for queue in ("myRing", "ring.made.when.used"):
        client.publish_many(queue, ["A", "B", "C", "D"])
        assert [message.data for message in client.sow(queue)] == ["B", "C", "D"]


def test_limits_of_slow_clients_are_shared_but_where_a_transport_has_its_own(client):
    applied(client, "slow-clients")
    ours, shared, low = client.admin.plan(*load(EXAMPLES / "slow-clients.xml"))
    assert {each.outcome for each in (ours, shared, low)} == {"unchanged"}
    assert ours.definition.message_memory_limit == 10 * 2**30
    assert shared.definition.limits == "- - - -"
    assert low.definition.limits == "- - 10 15000"


@pytest.mark.parametrize("name", ["pass-through", "downgrade", "incoming-access", "outgoing-access"])
def test_what_concerns_other_instances_is_defined_and_a_second_time_nothing_is_to_do(client, name):
    definitions = load(EXAMPLES / f"{name}.xml")
    assert {outcome for _, outcome in client.apply(*definitions)} == {"new"}
    assert {outcome for _, outcome in client.apply(*definitions)} == {"unchanged"}


@pytest.mark.parametrize("number", [1, 2])
def test_each_of_two_instances_takes_its_own_file(start_server, number):
    definitions = load(EXAMPLES / f"replication-amps-{number}.xml")
    server = start_server("valkey")
    with Client(server.url, instance=f"amps-{number}") as client:
        assert {outcome for _, outcome in client.apply(*definitions)} == {"changed", "new"}
        assert {outcome for _, outcome in client.apply(*definitions)} == {"unchanged"}
    other = f"amps-{3 - number}"
    with Client(server.url, instance=other) as client, pytest.raises(DefinitionError, match=f"instance '{other}'"):
        client.apply(*definitions)
