"""Topics with a key: what they keep, how it is queried, merged, deleted and ends, and what their queues see of that."""

from __future__ import annotations

import contextlib
import random
import time
from datetime import UTC, datetime

import pytest
from observing import eventually
from scene import data_of, pick_up, rest_of

from ampsq import AsyncClient, Queue, Topic, View
from ampsq.base.errors import BookmarkNotFound, DefinitionError, MissingKey, NoRecords, UnknownQueue
from ampsq.protocol.schema import key


@pytest.fixture
def orders(client):
    """A client whose topic `orders` keeps records by id, with a queue over it."""
    client.apply(
        Topic(name="orders", key="/id"),
        Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=100),
    )
    return client


def keys(found):
    return [message.key for message in found]


# --- queries ---------------------------------------------------------------------------------------------


def test_a_topic_with_a_key_keeps_the_last_message_of_each(either):
    either.apply(Topic(name="orders", key="/id"))
    either.publish("orders", {"id": 1, "v": 1}, headers={"from": "a"})
    second = either.publish("orders", {"id": 2, "v": 1})
    last = either.publish("orders", {"id": 1, "v": 2}, headers={"from": "b"})

    found = either.sow("orders")

    assert [(each.key, each.data, each.bookmark, each.headers) for each in found] == [
        ("2", {"id": 2, "v": 1}, second, {}),
        ("1", {"id": 1, "v": 2}, last, {"from": "b"}),
    ]
    assert {each.topic for each in found} == {"orders"}


def test_a_query_of_records_has_filter_order_and_pages(orders):
    orders.publish_many("orders", [{"id": n, "price": n % 7} for n in range(1_500)], batch=500)

    found = orders.sow("orders", "/price > 4", order_by=["/price DESC", "/id"], top_n=3, skip_n=1)

    assert data_of(found) == [{"id": 13, "price": 6}, {"id": 20, "price": 6}, {"id": 27, "price": 6}]
    assert len(orders.sow("orders")) == 1_500
    assert keys(orders.sow("orders", top_n=3)) == ["0", "1", "2"]


def test_a_filter_of_records_sees_what_a_filter_of_messages_does(connect):
    client = connect()
    till = client.publisher("till-4")
    client.apply(Topic(name="orders", key="/id"))
    till.publish("orders", {"id": 1}, headers={"correlation_id": "c-1"})
    till.publish("orders", {"id": 2})

    assert keys(client.sow("orders", "CORRELATION_ID() = 'c-1' AND CLIENT_NAME() = 'till-4'")) == ["1"]


def test_records_are_found_by_their_keys(orders):
    orders.publish_many("orders", [{"id": n} for n in range(1_000)], batch=500)

    assert keys(orders.sow("orders", sow_keys=[7, "9", "none", 7])) == ["7", "9"]
    with pytest.raises(DefinitionError, match="has 1: /id; allowed: one value, that of /id"):
        orders.sow("orders", sow_keys=[(7, 9)])
    assert keys(orders.sow("orders", "/id > 8", sow_keys=["7", "9"])) == ["9"]
    assert len(orders.sow("orders", sow_keys=list(range(2_000)))) == 1_000


def test_a_key_of_several_parts_is_named_by_a_tuple(client):
    client.apply(Topic(name="quotes", key=["/symbol", "/venue"]))
    client.publish_many("quotes", [{"symbol": "I|M", "venue": 1}, {"symbol": "I", "venue": "M|1"}])

    assert data_of(client.sow("quotes", sow_keys=[("I|M", 1)])) == [{"symbol": "I|M", "venue": 1}]
    # Keys of other parts are told, and the text of a whole key is one
    for wrong in ("I", ("I",), ("I", "M", 1), "a\\|b", 7):
        with pytest.raises(
            DefinitionError, match=r"parts of the key of 'quotes', which has 2: /symbol, /venue.*tuples"
        ):
            client.sow("quotes", sow_keys=[("I|M", 1), wrong])
        with pytest.raises(DefinitionError, match="parts of the key"):
            client.sow_delete("quotes", keys=[wrong])
    assert [each.data["symbol"] for each in client.sow("quotes", sow_keys=[client.sow("quotes")[0].key])] == [
        client.sow("quotes")[0].data["symbol"]
    ]
    assert client.sow_delete("quotes", keys=[("I", "M|1")]) == 1


def test_a_message_without_its_key_is_refused_with_all_of_its_call(orders):
    with pytest.raises(MissingKey, match="/id"):
        orders.publish_many("orders", [{"id": 1}, {"no": 1}])

    assert orders.sow("orders") == []
    assert orders.admin.topics()["orders"].messages == 0


def test_a_time_without_a_zone_is_refused_where_records_are_asked_for_as_they_were(client):
    client.apply(Topic(name="orders", key="/id"))

    with pytest.raises(DefinitionError, match="2026-05-01T09:00:00 has no time zone"):
        client.sow("orders", bookmark=datetime(2026, 5, 1, 9))  # noqa: DTZ001


def test_other_topics_cannot_be_queried_and_say_how_they_could(client):
    client.publish("plain", {"id": 1})

    with pytest.raises(UnknownQueue, match="give it a key"):
        client.sow("plain")
    with pytest.raises(NoRecords, match="it has no key"):
        client.sow_delete("plain", keys=["1"])
    with pytest.raises(NoRecords, match="'plane' is no topic; did you mean 'plain'"):
        client.sow_delete("plane", filter="/id = 1")
    with pytest.raises(DefinitionError, match="topic with a key"):
        client.sow("plain", sow_keys=["1"])


def test_a_queue_over_the_topic_of_its_own_name_says_what_settles_its_messages(client):
    # A topic with a key shares its name with no queue, so that giving it one is no advice.
    client.apply(Queue(name="jobs"))

    for call in (lambda: client.sow_delete("jobs", filter="/id = 1"), lambda: client.sow_and_subscribe("jobs")):
        with pytest.raises(NoRecords, match=r"'jobs' is a queue, which keeps no records: sow\('jobs'\) looks .* ack\("):
            call()


def test_a_name_stands_for_one_thing_that_can_be_queried(client):
    client.apply(Queue(name="work"))

    with pytest.raises(DefinitionError, match="a queue has the same name"):
        client.apply(Topic(name="work", key="/id"))
    client.apply(Topic(name="orders", key="/id"))
    with pytest.raises(DefinitionError, match="a queue has the same name"):
        client.apply(Queue(name="orders"))
    with pytest.raises(DefinitionError, match="a view has the same name"):
        client.apply(View(name="orders", underlying_topic="work", projection=["COUNT(/id) AS /n"]))


def test_expiration_of_a_topic_needs_a_key():
    with pytest.raises(DefinitionError, match="keeps no records"):
        Topic(name="orders", expiration="1h")


def test_what_somebody_else_wrote_is_in_the_next_query(orders, valkey):
    orders.publish("orders", {"id": 1})
    with contextlib.closing(valkey.client()) as redis:
        redis.xadd(key(orders.instance, "log", "orders"), {"id": "2", "v": "x"})
        redis.xadd(key(orders.instance, "log", "orders"), {"b": b'{"id": 1, "v": "y"}'})

    found = orders.sow("orders")

    assert [(each.key, each.data) for each in found] == [("2", {"id": "2", "v": "x"}), ("1", {"id": 1, "v": "y"})]


def test_a_key_given_later_makes_records_of_the_log(client):
    client.publish_many("orders", [{"id": n % 300, "v": n} for n in range(2_000)], batch=500)
    client.publish("orders", {"without": "a key"})

    client.apply(Topic(name="orders", key="/id"))

    assert sorted(each.data["v"] for each in client.sow("orders")) == list(range(1_700, 2_000))
    client.apply(Topic(name="orders", key="/v"))
    assert len(client.sow("orders")) == 2_000
    client.apply(Topic(name="orders"))
    client.publish("orders", {"without": "a key"})


def test_records_outlive_their_messages(orders):
    orders.apply(Topic(name="orders", key="/id", retention_count=1))
    orders.publish_many("orders", [{"id": n} for n in range(10)])
    orders.ack("work", filter="/id >= 0")

    assert orders.admin.trim("orders", age="0s").removed == 10

    assert len(orders.sow("orders")) == 10
    assert orders.admin.topics()["orders"].records == 10


# --- changes ---------------------------------------------------------------------------------------------


def test_a_delta_changes_what_it_says_and_leaves_the_rest_to_the_byte(orders):
    orders.publish("orders", b'{"id": 1, "exact": 0.10000000000000000001, "deep": {"a": [1, 2], "b": 1e400}}')

    orders.delta_publish("orders", {"id": 1, "deep": {"a": None, "c": "x"}, "new": [3]})

    merged = b'{"id": 1, "exact": 0.10000000000000000001, "deep": {"a": null, "b": 1e400,"c":"x"},"new":[3]}'
    assert orders.sow("orders")[0].raw == merged


def test_a_delta_right_behind_what_somebody_else_wrote_builds_on_that(orders, valkey):
    with contextlib.closing(valkey.client()) as redis:
        redis.xadd(key(orders.instance, "log", "orders"), {"b": b'{"id": 1, "v": 1}'})

    orders.delta_publish("orders", {"id": 1, "w": 2})

    assert data_of(orders.sow("orders")) == [{"id": 1, "v": 1, "w": 2}]


def test_a_delta_of_a_publisher_is_merged_once(connect):
    client = connect()
    till = client.publisher("p")
    client.apply(Topic(name="orders", key="/id"))
    first = till.delta_publish("orders", {"id": 1, "v": 1}, sequence=1).bookmark()
    till.delta_publish("orders", {"id": 1, "v": 2}, sequence=2)

    assert till.delta_publish("orders", {"id": 1, "v": 1}, sequence=1).bookmark() == first
    assert data_of(client.sow("orders")) == [{"id": 1, "v": 2}]


def test_records_are_deleted_by_keys_filter_or_data_and_by_one_of_them(orders):
    orders.publish_many("orders", [{"id": n, "odd": n % 2} for n in range(1_000)], batch=500)

    assert orders.sow_delete("orders", keys=[0, "2", 2, "none"]) == 2
    assert orders.sow_delete("orders", data={"id": 4, "and": "more"}) == 1
    assert orders.sow_delete("orders", filter="/odd = 1") == 500
    assert len(orders.sow("orders")) == 497
    with pytest.raises(DefinitionError, match="one of keys, filter and data"):
        orders.sow_delete("orders")
    with pytest.raises(DefinitionError, match="got keys and data"):
        orders.sow_delete("orders", keys=[1], data={"id": 1})


def test_a_deletion_of_a_publisher_takes_a_number_among_its_messages(connect):
    client = connect()
    till = client.publisher("p")
    client.apply(Topic(name="orders", key="/id"))
    till.publish("orders", {"id": 1})

    assert till.sow_delete("orders", keys=[1]).deleted() == 1

    till.publish("orders", {"id": 1})
    assert connect().publisher("p").delta_publish("orders", {"id": 1, "v": 2}).bookmark()
    assert data_of(client.sow("orders")) == [{"id": 1, "v": 2}]


@pytest.mark.usefixtures("coordinator")
def test_a_record_ends_with_the_life_of_its_message(orders):
    orders.publish("orders", {"id": 1}, expiration="200ms")
    orders.publish("orders", {"id": 2})

    eventually(lambda: keys(orders.sow("orders")) == ["2"])
    eventually(lambda: orders.admin.topics()["orders"].records == 1)


async def _delta_and_delete(server, instance):
    async with AsyncClient(server.url, instance=instance) as client:
        await client.apply(Topic(name="orders", key="/id"))
        await client.publish("orders", {"id": 1, "v": 1})
        await client.delta_publish("orders", {"id": 1, "w": 1})
        found = await client.sow("orders", sow_keys=[1])
        return data_of(found), await client.sow_delete("orders", keys=[1])


def test_the_asyncio_client_does_the_same(valkey, instance):
    import asyncio  # noqa: PLC0415

    assert asyncio.run(_delta_and_delete(valkey, instance)) == ([{"id": 1, "v": 1, "w": 1}], 1)


# --- as the underlying topic of a queue ------------------------------------------------------------------


def test_each_publish_is_a_new_message_of_the_queue(orders):
    for version in range(3):
        orders.publish("orders", {"id": 1, "v": version})

    with orders.subscribe("work", max_backlog=10) as messages:
        assert data_of(pick_up(messages, 3)) == [{"id": 1, "v": 0}, {"id": 1, "v": 1}, {"id": 1, "v": 2}]
    assert data_of(orders.sow("orders")) == [{"id": 1, "v": 2}]


def test_deleting_a_record_leaves_the_queue_as_it_is_and_tells_it_nothing(orders):
    orders.publish_many("orders", [{"id": 1, "v": 1}, {"id": 1, "v": 2}])

    assert orders.sow_delete("orders", keys=[1]) == 1

    assert data_of(orders.sow("work")) == [{"id": 1, "v": 1}, {"id": 1, "v": 2}]
    with orders.subscribe("work", max_backlog=10) as messages:
        assert data_of(pick_up(messages, 2)) == [{"id": 1, "v": 1}, {"id": 1, "v": 2}]
        assert rest_of(messages) == []


@pytest.mark.usefixtures("coordinator")
def test_a_record_that_expires_leaves_the_queue_what_its_own_policy_keeps(orders):
    # Given a queue in which messages live longer than the topic says
    orders.apply(
        Topic(name="orders", key="/id", expiration="200ms"),
        Queue(name="long", underlying_topic="orders", expiration="1h", expiration_model="queue"),
    )
    orders.publish("orders", {"id": 1})
    # When the record is over
    eventually(lambda: orders.admin.topics()["orders"].records == 0)
    # Then the queue still has the message, and was told nothing else
    assert data_of(orders.sow("long")) == [{"id": 1}]
    assert [each.data for each in orders.sow("long", "1 = 1")] == [{"id": 1}]


@pytest.mark.usefixtures("coordinator")
def test_a_message_has_the_expiration_of_its_topic_in_the_queue_too(orders):
    orders.apply(Topic(name="orders", key="/id", expiration="200ms"))
    orders.publish("orders", {"id": 1})
    orders.publish("orders", {"id": 2}, expiration="1h")

    eventually(lambda: data_of(orders.sow("work")) == [{"id": 2}])
    eventually(lambda: orders.admin.queue_stats("work").expired == 1)
    assert data_of(orders.sow("orders")) == [{"id": 2}]


def test_a_delta_enters_the_queue_as_the_full_merged_message(orders):
    orders.publish("orders", {"id": 1, "v": 1})
    orders.delta_publish("orders", {"id": 1, "w": 2})

    with orders.subscribe("work", max_backlog=10) as messages:
        assert data_of(pick_up(messages, 2)) == [{"id": 1, "v": 1}, {"id": 1, "v": 1, "w": 2}]


def test_acknowledging_a_message_of_the_queue_leaves_the_record(orders):
    orders.publish("orders", {"id": 1})

    assert orders.ack("work", filter="/id = 1") == 1

    assert keys(orders.sow("orders")) == ["1"]


def test_a_view_over_the_topic_does_not_count_ends_of_records(orders):
    orders.apply(View(name="sum", underlying_topic="orders", projection=["COUNT(1) AS /n"]))
    orders.publish("orders", {"id": 1})
    orders.sow_delete("orders", keys=[1])

    assert data_of(orders.sow("sum")) == [{"n": 1}]


# --- as it was -------------------------------------------------------------------------------------------


def test_records_are_queried_as_they_were_at_a_message(orders):
    orders.publish("orders", {"id": 1, "v": 1})
    elsewhere = orders.publish("others", {"n": 1})
    orders.publish("orders", {"id": 2, "v": 1})
    second = orders.publish("orders", {"id": 1, "v": 2})
    orders.sow_delete("orders", keys=[2])
    last = orders.publish("orders", {"id": 3, "v": 1})

    assert data_of(orders.sow("orders", bookmark=elsewhere)) == [{"id": 1, "v": 1}]
    assert data_of(orders.sow("orders", bookmark=second)) == [{"id": 2, "v": 1}, {"id": 1, "v": 2}]
    assert data_of(orders.sow("orders", "/v = 1", bookmark=str(second))) == [{"id": 2, "v": 1}]
    assert data_of(orders.sow("orders", bookmark=second, sow_keys=[1])) == [{"id": 1, "v": 2}]
    assert data_of(orders.sow("orders", bookmark=last)) == [{"id": 1, "v": 2}, {"id": 3, "v": 1}]


def test_records_are_queried_as_they_were_at_a_time(orders):
    orders.publish("orders", {"id": 1}, expiration="1h")
    time.sleep(0.01)  # so that the moment is a later millisecond
    now = datetime.now(UTC)
    time.sleep(0.01)  # so that the deletion is a later one still
    orders.sow_delete("orders", keys=[1])

    assert keys(orders.sow("orders", bookmark=now)) == ["1"]
    assert keys(orders.sow("orders", bookmark=now.isoformat())) == ["1"]
    assert orders.sow("orders", bookmark="2020-01-01T00:00:00Z") == []
    with pytest.raises(DefinitionError, match="a time as in"):
        orders.sow("orders", bookmark="yesterday")


def test_a_trimmed_log_tells_as_much_of_the_past_as_it_has(orders):
    orders.publish_many("orders", [{"id": n, "v": 1} for n in range(5)])
    orders.ack("work", filter="/v = 1")
    orders.admin.trim("orders", age="0s")
    second = orders.publish("orders", {"id": 1, "v": 2})

    assert [each.data["v"] for each in orders.sow("orders", bookmark=second)] == [1, 1, 1, 1, 2]
    orders.publish("orders", {"id": 1, "v": 3})
    assert [each.data["v"] for each in orders.sow("orders", bookmark=second)] == [1, 1, 1, 1, 2]
    orders.publish("orders", {"id": 2, "v": 3})
    with pytest.raises(BookmarkNotFound, match="key '2' changed since"):
        orders.sow("orders", bookmark=second)
    with pytest.raises(BookmarkNotFound, match="trimmed"):
        orders.sow("orders", bookmark="2020-01-01T00:00:00Z")


def test_the_past_is_told_as_it_was_or_not_at_all(client):
    # Given random changes, and what was there after each
    client.apply(Topic(name="orders", key="/id"))
    dice, state, moments = random.Random(3), {}, []  # noqa: S311
    for number in range(120):
        name = str(dice.randrange(12))
        if name in state and dice.random() < 0.3:
            client.sow_delete("orders", keys=[name])
            del state[name]
            bookmark = client.publish("others", number)
        else:
            content = {"id": name, "v": number}
            bookmark, state[name] = client.publish("orders", content), content
        moments.append((bookmark, dict(state)))
    # When the log has everything, the past is known
    for bookmark, then in moments:
        assert {record.key: record.data for record in client.sow("orders", bookmark=bookmark)} == then
    # And when half of it was trimmed, what is told is true, and of the last moments all is told
    client.apply(Topic(name="orders", key="/id", retention_count=40))
    length = client.admin.topics()["orders"].messages
    assert client.admin.trim("orders").removed == length - 40
    told = 0
    for bookmark, then in moments:
        with contextlib.suppress(BookmarkNotFound):
            found = {record.key: record.data for record in client.sow("orders", bookmark=bookmark)}
            assert found == then
            told += 1
    assert 1 <= told < len(moments)
    assert {record.key: record.data for record in client.sow("orders", bookmark=moments[-1][0])} == state
