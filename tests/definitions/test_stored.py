"""Stored definitions read without their models say the same as the models do."""

from __future__ import annotations

import pytest

from ampsq import Destination, GroupLocalQueue, LocalQueue, Queue, ReplicatedTopic, Topic, View
from ampsq.base.message_types import MessageType
from ampsq.definitions.stored import read_stored_queue, read_stored_topic, read_stored_view
from ampsq.definitions.stored_destination import read_stored_destination

QUEUES = [
    Queue(name="work"),
    Queue(name="work", underlying_topic="orders", filter="/id > 1", semantics="at-most-once", paused=True),
    Queue(name="work", underlying_topic="^orders-", default_publish_target="orders-1", priority="/id"),
    Queue(name="work", barrier_expression="/end = 1", lease_period="90s", max_deliveries=3, max_cancels=2),
    Queue(name="work", max_backlog=100, max_per_subscription_backlog=10, target_queue_depth=5000, rate="10/s"),
    Queue(name="work", rate="600/min", rate_burst=7),
    Queue(name="work", message_type="nvfix", field_separator="|"),
    LocalQueue(name="work", group_by="/g"),
    LocalQueue(name="work", group_by="/g", group_batch=50, group_rate="5/s", group_choice="fair", group_weight="/w"),
    LocalQueue(name="work", group_concurrency=4, on_group_failure="hold"),
    GroupLocalQueue(name="work", initial_owner="nyc-1", group_local_queue_domain="shared"),
]  # fmt: skip
TOPICS = [
    Topic(name="orders"),
    Topic(name="orders", key="/id", message_type="msgpack", expiration="1h"),
    Topic(name="orders", key=["/a", "/b"], message_type="nvfix", field_separator="|"),
    Topic(name="orders", retention_age="7d", retention_size="10MB", retention_count=5),
    Topic(name="orders", retention_age="7d", retention_unsettled="discard"),
]
OF_QUEUES = (
    "name", "underlying_topic", "filter", "semantics", "priority", "barrier_expression", "max_per_subscription_backlog",
    "max_backlog", "max_deliveries", "max_cancels", "target_queue_depth", "paused", "is_pattern", "is_grouped",
    "group_concurrency", "group_batch", "group_choice", "lease_period", "rate", "group_rate", "default_publish_target",
    "owner", "type",
)  # fmt: skip


@pytest.mark.parametrize("queue", QUEUES)
def test_a_stored_queue_says_what_its_model_says(queue):
    stored = read_stored_queue(queue.to_json())
    assert {name: getattr(stored, name) for name in OF_QUEUES} == {name: getattr(queue, name) for name in OF_QUEUES}
    for topic in ("work", "orders", "orders-2", "other"):
        assert stored.feeds_from(topic) == queue.feeds_from(topic)


def test_every_attribute_of_a_stored_queue_is_compared_and_one_queue_differs_in_it_from_another():
    stored = [read_stored_queue(queue.to_json()) for queue in QUEUES]
    public = {name for name in dir(stored[0]) if not name.startswith("_")} - {"feeds_from"}
    assert public == set(OF_QUEUES)
    same = {name for name in OF_QUEUES if len({repr(getattr(each, name)) for each in stored}) == 1}
    assert same == {"name"}


@pytest.mark.parametrize("topic", TOPICS)
def test_a_stored_topic_says_what_its_model_says(topic):
    stored = read_stored_topic("orders", topic.to_json())
    retention = {name: value for name, value in topic.elements().items() if name.startswith("retention")}
    assert (stored.name, stored.type, stored.key) == ("orders", topic.type, tuple(topic.key))
    assert (stored.retention, list(stored.retention)) == (retention, list(retention))
    assert (stored.has_retention, stored.expiration) == (topic.has_retention, topic.expiration)
    limits = ("retention_age", "retention_size", "retention_count")
    assert [getattr(stored, name) for name in limits] == [getattr(topic, name) for name in limits]


def test_a_topic_that_was_only_used_has_nothing_but_its_name():
    stored = read_stored_topic("orders", "{}")
    assert (stored.name, stored.key, stored.retention, stored.has_retention) == ("orders", (), {}, False)


VIEWS = [
    View(name="totals", underlying_topic="orders", projection=["COUNT(/id) AS /n"]),
    View(
        name="totals",
        underlying_topic=["trades", "orders"],
        filter="/qty > 0",
        projection=["/symbol", "SUM(/qty) AS /n"],
        grouping=["/symbol"],
    ),
]


@pytest.mark.parametrize("view", VIEWS)
def test_a_stored_view_says_what_its_model_says(view):
    stored = read_stored_view(view.to_json())
    assert stored._asdict() == view.model_dump()


DESTINATIONS = [
    Destination(name="nyc-2", sync_type="async", topics="orders"),
    Destination(name="nyc-2", sync_type="sync", topics=["^orders", "work"], group="NYC", pass_through=["^LON", ".*"]),
    Destination(
        name="nyc-2",
        sync_type="sync",
        topics=[
            ReplicatedTopic(name="orders", message_type="msgpack", filter="/id > 1"),
            {"name": "^o", "exclude_validation": "sow,keys"},
        ],
        addresses=["redis://me:secret@nyc-2:6379#twin", "rediss://nyc-3"],
        reconnect_timeout="90s",
    ),
]


@pytest.mark.parametrize("destination", DESTINATIONS)
def test_a_stored_destination_says_what_its_model_says(destination):
    stored = read_stored_destination(destination.to_json())
    same = ("name", "group", "sync_type", "peers", "reconnect_timeout", "pass_through")
    assert [getattr(stored, name) for name in same] == [getattr(destination, name) for name in same]
    for name in ("orders", "orders-2", "work", "other"):
        for kind in ("json", "msgpack"):
            ours, model = (each.topic_for(name, MessageType(kind)) for each in (stored, destination))
            assert (ours and ours.name) == (model and model.name)
    for instance in ("nyc-2", "nyc-3", "twin"):
        for group in ("NYC", "LON", "nyc-2"):
            assert stored.leads_to(instance, group) == destination.leads_to(instance, group)
