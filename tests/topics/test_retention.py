"""Retention of a topic through the client: definitions, trimming by hand, and queues that lose nothing."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest
from observing import eventually

from ampsq import AsyncClient, Queue, Topic, View
from ampsq.base.errors import DefinitionError
from ampsq.protocol.calls import catalog as catalog_calls
from ampsq.protocol.calls.retention import LOG_START, RetentionLimits, discard_unsettled
from ampsq.protocol.schema import key
from ampsq.topics.retention import Trimmed


def acknowledge(client, queue, number):
    with client.subscribe(queue, max_backlog=500) as messages:
        for _ in range(number):
            messages.get(30).ack()
        messages.flush()


def test_trimming_by_hand_removes_what_nobody_needs_and_says_who_needs_the_rest(either):
    either.apply(Topic(name="orders", retention_age="0s"), Queue(name="work", underlying_topic="orders"))
    either.apply(Queue(name="mail", underlying_topic="orders"))
    bookmarks = either.publish_many("orders", range(1_200))
    acknowledge(either, "work", 1_200)
    acknowledge(either, "mail", 900)
    # A dry run counts, and changes nothing
    dry = either.admin.trim("orders", dry_run=True)
    assert (dry.removed, dry.kept, dry.pinned_by, dry.pinned, dry.state) == (
        900, 1, "queue mail", bookmarks[900], "ready",
    )  # fmt: skip
    # Whatever is true is one
    assert either.admin.trim("orders", dry_run=2).removed == 900
    assert either.admin.topics()["orders"].messages == 1_200
    done = either.admin.trim("orders")
    assert (done.removed, done.kept, done.pinned) == (900, 1, bookmarks[900])
    assert 0.5 * dry.bytes <= done.bytes <= dry.bytes
    acknowledge(either, "mail", 300)
    done = either.admin.trim("orders")
    assert done == Trimmed("orders", 300, 0, done.bytes)
    facts = either.admin.topics()["orders"]
    assert (facts.messages, facts.first, facts.last) == (0, None, None)
    assert either.admin.queue_stats("work").acknowledged == 1_200
    # And the topic goes on
    bookmark = either.publish("orders", "next")
    with either.subscribe("work") as messages:
        assert messages.get(30).bookmark == bookmark


def test_an_age_by_hand_stands_for_the_topics_own(client):
    client.apply(Topic(name="orders"))
    client.publish_many("orders", range(3))
    with pytest.raises(
        DefinitionError, match=r"topic 'orders' has no retention, so that all of it is kept; allowed: an a"
    ):
        client.admin.trim("orders")
    assert client.admin.trim("orders", age="1h").removed == 0
    assert client.admin.trim("orders", age="0s", dry_run=True).removed == 3
    assert client.admin.trim("orders", age=0).removed == 3


def test_who_names_no_topic_is_taught(client):
    client.apply(Topic(name="orders"), Queue(name="work", underlying_topic="orders"))
    with pytest.raises(DefinitionError, match="'work' is a queue; allowed: a topic, as 'orders', which feeds it"):
        client.admin.trim("work")
    with pytest.raises(DefinitionError, match=r"'order': no such topic; did you mean 'orders'\?"):
        client.admin.trim("order", age="1d")


def test_asyncio_has_the_same(client, valkey):
    client.apply(Topic(name="orders", retention_count=2))
    client.publish_many("orders", range(5))

    async def trim():
        async with AsyncClient(valkey.url, instance=client.instance) as other:
            done = await other.admin.trim("orders", dry_run=True)
            return done, await other.admin.trim("orders"), (await other.admin.topics())["orders"]

    dry, done, facts = asyncio.run(trim())
    assert (dry.removed, done.removed, facts.messages) == (3, 3, 2)


def test_topics_tell_their_retention_and_what_they_hold(client):
    client.apply(
        Topic(name="orders", retention_age="90m", retention_size="1GB", retention_unsettled="discard"),
        Queue(name="work", underlying_topic="orders"),
    )
    first, last = client.publish("orders", 1), client.publish("orders", 2)
    facts = client.admin.topics()["orders"].as_dict()
    assert facts.pop("bytes") > 500
    assert facts == {
        "messages": 2, "first": first, "last": last, "queues": ["work"], "kept": 0, "pinned_by": None, "pinned": None,
        "state": "", "key": [], "records": 0, "recorded": 2,
        "retention": {"retention_age": "90m", "retention_size": 2**30, "retention_unsettled": "discard"},
    }  # fmt: skip


def test_a_changed_retention_is_planned_and_applied(client):
    client.apply(Topic(name="orders", retention_age="1d"))
    (planned,) = client.admin.plan(Topic(name="orders", retention_age="1h", retention_count=5))
    assert planned.outcome == "changed"
    assert planned.changes == {"retention_age": ("1d", "1h"), "retention_count": (None, 5)}
    assert client.apply(Topic(name="orders", retention_age="1h"))[0][1] == "changed"
    assert client.apply(Topic(name="orders", retention_age="60m"))[0][1] == "unchanged"
    client.publish("used", 1)
    (planned,) = client.admin.plan(Topic(name="used", retention_age="0s"))
    assert planned.changes == {"retention_age": (None, "0ms")}


def test_a_message_that_the_retention_took_is_explained(client):
    client.apply(
        Topic(name="orders", retention_count=2, retention_unsettled="discard"),
        Queue(name="work", underlying_topic="orders"),
    )
    bookmarks = client.publish_many("orders", range(5))
    catalog = client._store.call(catalog_calls.catalog())
    assert client._store.call(discard_unsettled(catalog.version, "orders", RetentionLimits(count=2), LOG_START, 0)) == (
        None,
        3,
        3,
    )
    explanation = client.admin.explain("work", bookmarks[0])
    assert explanation.reason == "missing"
    assert explanation.sentence.startswith("The queue lost the message at ")
    assert explanation.sentence.endswith(": it was beyond the retention of topic 'orders'.")
    assert (client.admin.queue_stats("work").missing, client.admin.queue_stats("work").depth) == (3, 2)
    # When nothing of it is left anywhere, only that can be said
    assert client.admin.trim("orders").removed == 3
    assert client.admin.explain("work", bookmarks[0]).reason == "no_message"


def test_a_view_over_topics_and_a_retention_refuse_each_other(client):
    view = View(name="totals", underlying_topic="orders", projection=["COUNT(*) AS /n"])
    client.apply(Topic(name="orders", retention_age="1d"))
    with pytest.raises(DefinitionError, match="'totals' is made of all messages of the topic 'orders', and retention"):
        client.apply(view)
    client.apply(Topic(name="orders"), view)
    with pytest.raises(DefinitionError, match="Topic 'orders': the view 'totals' is made of all messages of the topic"):
        client.apply(Topic(name="orders", retention_count=5))
    # A view over a queue holds what it is made of, since that is not settled
    client.apply(Queue(name="work", underlying_topic="trades"))
    over_queue = View(name="open", underlying_topic="work", projection=["COUNT(*) AS /n"])
    client.apply(Topic(name="trades", retention_age="0s"), over_queue)


def test_a_running_coordinator_trims_while_messages_are_published_and_handled(client, coordinator):  # noqa: ARG001
    client.apply(
        Topic(name="orders", retention_age="0s"),
        Queue(name="work", underlying_topic="orders", lease_period="5s", max_per_subscription_backlog=100),
    )
    seen = []
    with client.subscribe("work", max_backlog=100) as messages:
        for batch in range(20):
            client.publish_many("orders", range(batch * 50, batch * 50 + 50))
            for _ in range(50):
                message = messages.get(30)
                seen.append(message.data)
                message.ack()
        messages.flush()
    assert sorted(seen) == list(range(1_000))
    eventually(lambda: client.admin.topics()["orders"].messages == 0, within=25.0)
    assert client.admin.queue_stats("work").depth == 0


def test_a_log_is_trimmed_beside_a_reader_that_began_at_a_time(client):
    # Given a reader from a whole millisecond on: the last ID before that has the highest of all sequences
    client.apply(Topic(name="orders"))
    first = client.publish("orders", 1)
    log, later = key(client.instance, "log", "orders"), int(first.id.partition("-")[0]) + 10
    client._store.redis.xadd(log, {"b": "2"}, id=f"{later}-0")
    with client.subscribe_topic("orders", bookmark=datetime.fromtimestamp(later / 1000, UTC)) as messages:
        assert messages.get(30).data == 2
        # Then what is before that can go
        assert client.admin.trim("orders", age="0s").removed == 1
