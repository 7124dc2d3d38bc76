"""Views: their rows are those of the messages that are available, whatever happens to view and queue."""

from __future__ import annotations

import pytest
from observing import eventually
from scene import data_of, pick_up
from totals import TOTALS, define, define_view, the_view, totals

from ampsq import Queue, View
from ampsq.base.errors import DefinitionError
from ampsq.definitions.queue import Topic
from ampsq.protocol.reads import views as view_reads
from ampsq.protocol.schema import key
from ampsq.views import upkeep as views


@pytest.mark.parametrize("kept", [True, False])
def test_a_view_has_the_messages_that_are_available(client, request, is_kept, kept):
    # Given a view over a queue, kept by a coordinator or computed when it is asked for
    define(client)
    define_view(client)
    if kept:
        request.getfixturevalue("coordinator")
        eventually(is_kept)

    def shows(**rows):
        return eventually(lambda: totals(client) == rows)

    client.publish_many("work", [{"s": "ab"[n % 2], "v": n} for n in range(6)])
    assert shows(a=(3, 6), b=(3, 9))
    # When messages are leased, they are in it no more
    with client.subscribe("work", max_backlog=3) as messages:
        first, second, third = pick_up(messages, 3)
        assert shows(a=(1, 4), b=(2, 8))
        # What is delayed is not available either
        third.cancel("1h")
        assert shows(a=(1, 4), b=(1, 5))
        client.ack("work", filter="/v = 5")
        first.ack(wait=True)
        second.cancel()
        assert first.data == {"s": "a", "v": 0}
    # When they come back, they are in it again; a group without messages is not
    assert shows(a=(1, 4), b=(2, 4))
    client.ack("work", filter="/s = 'a'")
    assert shows(b=(2, 4))


@pytest.mark.usefixtures("coordinator")
def test_a_view_of_topics_has_every_message_of_them(client, is_kept):
    client.apply(
        Topic(name="orders"),
        View(
            name="totals",
            underlying_topic=["orders", "returns"],
            projection=["/s", "COUNT(*) AS /n", "SUM(IF(TOPIC_NAME() = 'orders', /v, 0 - /v)) AS /sum"],
            grouping=["/s"],
            filter="/v > 0",
        ),
    )
    client.publish_many("orders", [{"s": "a", "v": n} for n in range(1_100)])
    eventually(is_kept)
    client.publish_many("returns", [{"s": "a", "v": 5}, {"s": "b", "v": 1}])
    assert eventually(lambda: totals(client) == {"a": (1_100, 604_445), "b": (1, -1)})


@pytest.mark.usefixtures("coordinator")
def test_a_view_of_a_pattern_takes_new_topics_in(client, is_kept):
    client.apply(View(name="totals", underlying_topic="^from-", **TOTALS))
    eventually(is_kept)
    client.publish("from-a", {"s": "a", "v": 1})
    client.publish("from-b", {"s": "b", "v": 2})
    assert eventually(lambda: totals(client) == {"a": (1, 1), "b": (1, 2)})


@pytest.mark.usefixtures("coordinator")
def test_a_view_of_a_queue_over_a_pattern_takes_new_topics_in(client, is_kept):
    client.apply(Queue(name="work", underlying_topic="^from-", default_publish_target="from-0"))
    define_view(client)
    eventually(is_kept)
    client.publish("from-a", {"s": "a", "v": 1})
    assert eventually(lambda: totals(client) == {"a": (1, 1)})


@pytest.mark.usefixtures("coordinator")
def test_without_grouping_a_view_has_one_row_even_of_nothing(client, is_kept):
    define(client)
    define_view(client, projection=["COUNT(*) AS /n", "MAX(/v) AS /most"], grouping=())
    eventually(is_kept)
    assert data_of(client.sow("totals")) == [{"n": 0, "most": None}]
    client.publish("work", b"no json")
    client.publish("work", {"v": 3})
    assert eventually(lambda: data_of(client.sow("totals")) == [{"n": 2, "most": 3}])
    client.ack("work", filter="/v = 3")
    assert eventually(lambda: data_of(client.sow("totals")) == [{"n": 1, "most": None}])


def test_the_rows_of_a_view_are_queried_like_messages(client):
    define(client)
    define_view(client)
    client.publish_many("work", [{"s": f"s{n % 20}", "v": n} for n in range(200)])
    found = client.sow("totals", "/sum > 900", order_by="/sum DESC", top_n=2, skip_n=1)
    assert data_of(found) == [{"s": "s18", "n": 10, "sum": 1_080}, {"s": "s17", "n": 10, "sum": 1_070}]
    assert (found[0].topic, found[0].bookmark, found[0].headers) == ("totals", None, {})


@pytest.mark.usefixtures("coordinator")
def test_a_view_of_a_queue_with_a_target_depth_has_its_active_part(client, is_kept):
    define(client, target_queue_depth=1_000)
    define_view(client)
    eventually(is_kept)
    client.publish_many("work", [{"s": "a", "v": n} for n in range(1_500)], batch=500)
    assert eventually(lambda: totals(client) == {"a": (1_000, 499_500)})
    client.ack("work", filter="/v < 10")
    assert eventually(lambda: totals(client) == {"a": (1_000, sum(range(10, 1_010)))})


@pytest.mark.usefixtures("coordinator")
def test_a_view_follows_when_its_queue_is_defined_otherwise(client, is_kept):
    define(client)
    define_view(client)
    client.publish_many("work", [{"s": "a", "v": n} for n in range(1_500)], batch=500)
    eventually(is_kept)
    assert eventually(lambda: totals(client) == {"a": (1_500, 1_124_250)})
    define(client, target_queue_depth=1_000)
    assert eventually(lambda: totals(client) == {"a": (1_000, 499_500)})


@pytest.mark.usefixtures("coordinator")
def test_a_view_that_is_changed_has_other_rows(client, is_kept, redis):
    define(client)
    define_view(client)
    client.publish_many("work", [{"s": "a", "v": 1}, {"s": "b", "v": 2}])
    eventually(is_kept)
    define_view(client, projection=["/v", "COUNT(*) AS /n"], grouping=["/v"])
    assert data_of(client.sow("totals")) == [{"v": 1, "n": 1}, {"v": 2, "n": 1}]
    define_view(client, filter="/v > 1")
    assert totals(client) == {"b": (1, 2)}
    # And its keeper follows
    mark = views.fingerprint(the_view(filter="/v > 1")).encode()
    eventually(lambda: redis.hget(key(client.instance, "view", "totals"), view_reads.STATE) == mark)
    assert totals(client) == {"b": (1, 2)}


def test_a_view_of_a_view_is_refused(client):
    define(client)
    define_view(client)
    catalog = client._store.call(views.catalog_calls.catalog())
    with pytest.raises(DefinitionError, match="'totals' is a view"):
        views.check_view(catalog, View(name="more", underlying_topic="totals", **TOTALS))
