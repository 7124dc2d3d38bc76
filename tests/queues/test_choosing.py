"""Filters, priorities, barriers, target depth and several topics, through the client, as the documents tell of them."""

from __future__ import annotations

import asyncio

import pytest
from observing import eventually
from scene import data_of, pick_up, rest_of, settle_all

from ampsq import AsyncClient, Queue, Topic, View
from ampsq.base.errors import DefinitionError, ExpressionError, TooManyFilters, UnknownQueue

ROOM = {"max_per_subscription_backlog": 100}


def orders(count, start=0, **fields):
    return [{"id": number, **fields} for number in range(start, start + count)]


def ids(messages):
    return [message.data["id"] for message in messages]


# -- subscriptions of one queue with several filters


@pytest.mark.parametrize("matched", [[], [78]])
def test_what_nobody_has_room_for_waits_also_where_other_filters_match_little_of_it(either, matched):
    # Given a consumer that is full with one message, and others whose filters match none of them
    client = either
    client.apply(Queue(name="work", underlying_topic="orders", **ROOM))
    with (
        client.subscribe("work", max_backlog=1, filter="/id < 70") as messages,
        client.subscribe("work", max_backlog=9, filter="/id = 77"),
        client.subscribe("work", max_backlog=9, filter="/id = 78") as others,
    ):
        # When more are published at once
        client.publish_many("orders", [*orders(5), *({"id": each} for each in matched), *orders(3, 5)])

        # Then one after the other is given, and what others match is theirs at once
        assert ids(pick_up(others, len(matched))) == matched
        found = []
        while (message := messages.get(5 if len(found) < 8 else 0)) is not None:
            found.append(message.data["id"])
            message.ack()
        assert found == list(range(8))
    assert all(report.clean for report in client.admin.check())


# -- several underlying topics: the seeds' table of ORDERS, row by row


@pytest.fixture
def analytics_and_risk(either):
    for name in ("ANALYTICS", "RISK"):
        either.apply(
            Queue(
                name=f"ORDERS_{name}",
                underlying_topic=f"^ORDERS$|^ORDERS_{name}_DIRECT$",
                default_publish_target=f"ORDERS_{name}_DIRECT",
                **ROOM,
            )
        )
    return either


@pytest.mark.parametrize(
    ("published_to", "recorded_in", "enqueued_in"),
    [
        ("ORDERS", "ORDERS", ["ORDERS_ANALYTICS", "ORDERS_RISK"]),
        ("ORDERS_ANALYTICS", "ORDERS_ANALYTICS_DIRECT", ["ORDERS_ANALYTICS"]),
        ("ORDERS_RISK", "ORDERS_RISK_DIRECT", ["ORDERS_RISK"]),
        ("ORDERS_ANALYTICS_DIRECT", "ORDERS_ANALYTICS_DIRECT", ["ORDERS_ANALYTICS"]),
        ("ORDERS_RISK_DIRECT", "ORDERS_RISK_DIRECT", ["ORDERS_RISK"]),
    ],
)
def test_a_publish_enters_the_queues_of_the_documents_table(analytics_and_risk, published_to, recorded_in, enqueued_in):
    client = analytics_and_risk
    bookmark = client.publish(published_to, {"id": 1})
    assert bookmark.topic == recorded_in
    assert [name for name in ("ORDERS_ANALYTICS", "ORDERS_RISK") if client.admin.queue_stats(name).depth] == enqueued_in
    for name in enqueued_in:
        with client.subscribe(name) as messages:
            assert messages.get(30).bookmark == bookmark


def test_several_topics_are_one_order_for_a_filter_too(analytics_and_risk):
    client = analytics_and_risk
    topics = ("ORDERS", "ORDERS_RISK", "ORDERS_RISK_DIRECT")
    for number in range(9):
        client.publish(topics[number % 3], {"id": number})
    with client.subscribe("ORDERS_RISK", max_backlog=9, filter="TOPIC_NAME() = 'ORDERS' OR /id > 6") as messages:
        assert ids(pick_up(messages, 4)) == [0, 3, 6, 7]


# -- filters


def test_each_subscription_gets_what_its_filter_matches_and_the_others_get_the_rest(either):
    either.apply(Queue(name="work", filter="/id >= 2", **ROOM))
    either.publish_many("work", [*orders(6, symbol="IBM"), *orders(6, 6, symbol="AAPL"), b"no json"])
    with either.subscribe("work", max_backlog=3, filter="/symbol = 'AAPL'") as apples:
        assert ids(pick_up(apples, 3)) == [6, 7, 8]
        with either.subscribe("work", max_backlog=100) as everything:
            assert ids(pick_up(everything, 7)) == [2, 3, 4, 5, 9, 10, 11]
    stats = either.admin.queue_stats("work")
    assert (stats.filtered, stats.depth) == (3, 10)


def test_a_filter_is_refused_where_it_stands(client):
    client.apply(Queue(name="work"))
    with pytest.raises(ExpressionError, match="column 8") as refusal:
        client.subscribe("work", filter="/price ! 10")
    assert refusal.value.column == 8
    with pytest.raises(ExpressionError, match="UNIX_TIMESTAMP"):
        client.subscribe("work", filter="/expires > UNIX_TIMESTAMP()")
    with pytest.raises(DefinitionError, match=r"filter=5: allowed is a text"):
        client.subscribe("work", filter=5)


def test_the_thirty_third_filter_is_refused_and_equal_ones_are_one(client):
    client.apply(Queue(name="work"))
    for number in range(32):
        client.subscribe("work", filter=f"/id = {number}")
    client.subscribe("work", filter="/id  =  (7)")
    with pytest.raises(TooManyFilters, match="allowed 32"):
        client.subscribe("work", filter="/id = 32")


def test_asyncio_clients_filter_and_replace_too(valkey, instance):
    async def scene():
        async with AsyncClient(valkey.url, instance=instance) as client:
            await client.apply(Queue(name="work", **ROOM))
            await client.publish_many("work", orders(10))
            async with client.subscribe("work", max_backlog=2, filter="/id % 2 = 1") as messages:
                first = await messages.get(30)
                await messages.replace(filter="/id > 6")
                await first.ack(wait=True)
                seen = [(await messages.get(30)).data["id"] for _ in range(2)]
            found = [message.data["id"] for message in await client.sow("work", order_by="/id DESC", top_n=2)]
            return first.data["id"], seen, found, await client.ack("work", filter="/id < 5", dry_run=True)

    assert asyncio.run(scene()) == (1, [7, 8], [9, 8], 4)


# -- priorities


def test_the_documents_queue_delivers_by_the_product_of_price_and_quantity(either):
    # Given the document's OrderPriority queue
    either.apply(Queue(name="OrderPriority", underlying_topic="Orders", priority="/price * /qty", **ROOM))
    for number, (price, qty) in enumerate([(10, 1), (5, 10), (1.5, 100), (10, 5), (None, 7), (7, "many")]):
        either.publish("Orders", {"id": number, "price": price, "qty": qty})
    # Then the highest come first, the oldest of equal ones, and last what is no number
    with either.subscribe("OrderPriority", max_backlog=100) as messages:
        got = pick_up(messages, 6)
        assert ids(got) == [2, 1, 3, 0, 4, 5]
        # What is cancelled is at its old place again
        got[1].cancel()
        assert ids([messages.get(30)]) == [1]


# -- barriers


def test_a_barrier_waits_for_all_before_it_and_goes_to_everybody_at_once(either):
    either.apply(Queue(name="work", barrier_expression="/end = 1", **ROOM))
    with (
        either.subscribe("work", max_backlog=2) as busy,
        either.subscribe("work", max_backlog=0) as listener,
        either.subscribe("work", max_backlog=5, filter="/id >= 100") as other,
    ):
        either.publish_many("work", [*orders(2), {"end": 1, "id": 50}, {"end": 1, "id": 101}, *orders(1, 200)])
        first, second = pick_up(busy, 2)
        # Nothing passes the barrier while something before it is not acknowledged
        first.ack(wait=True)
        assert [rest_of(messages) for messages in (busy, listener, other)] == [[], [], []]
        assert either.admin.queue_stats("work").held == 3
        second.ack(wait=True)
        # Then it is sent to all whose filter it matches, without a lease, and what is behind it comes
        assert ids(pick_up(listener, 2)) == [50, 101]
        assert [(m.data["id"], m.is_barrier, m.delivery, m.lease_until) for m in pick_up(other, 1)] == [
            (101, True, 0, None)
        ]
        got = [*rest_of(busy), *rest_of(other)]
        assert sorted(ids(got)) == [50, 101, 200]
        for message in got:
            message.ack(wait=True)
        assert either.admin.queue_stats("work").depth == 0


def test_a_barrier_waits_for_its_first_subscriber(client):
    client.apply(Queue(name="work", barrier_expression="/end = 1", **ROOM))
    client.publish_many("work", [{"end": 1, "id": 0}, *orders(1, 1)])
    assert client.admin.queue_stats("work").depth == 2
    with client.subscribe("work", max_backlog=5) as messages:
        barrier, message = pick_up(messages, 2)
        assert (barrier.is_barrier, barrier.data["id"], message.data["id"]) == (True, 0, 1)
        barrier.ack(wait=True)
        barrier.cancel()


# -- target depth


def test_beyond_the_target_depth_nothing_is_delivered_or_seen(client):
    client.apply(Queue(name="work", target_queue_depth=1_000, **ROOM))
    client.publish_many("work", orders(1_500), batch=500)
    late = client.publish("work", {"id": 9_999})
    with client.subscribe("work", max_backlog=5, filter="/id = 1200") as selective:
        # Nothing in the active part matches: nothing comes, though it is there
        assert selective.get(0.2) is None
        assert len(client.sow("work")) == 1_000
        assert client.ack("work", filter="/id >= 1000", dry_run=True) == 0
        # What is acknowledged before it is active is remembered, and skipped
        assert client.ack("work", [late]) == 1
        with client.subscribe("work", max_backlog=100) as messages:
            assert settle_all(messages, 300) == orders(300)
        assert eventually(lambda: selective.get(0.2)).data == {"id": 1_200}
    with client.subscribe("work", max_backlog=100) as messages:
        assert settle_all(messages) == orders(1_200, 300)
    assert client.admin.queue_stats("work").depth == 0


# -- replacing


def test_the_documents_replacement_leaves_ten_outstanding_of_five(client):
    # Given a consumer that asked for 10 on a queue that allows 10, and has 10
    client.apply(
        Queue(name="wide", max_per_subscription_backlog=10), Queue(name="narrow", max_per_subscription_backlog=5)
    )
    client.publish_many("wide", orders(12))
    client.publish_many("narrow", orders(3, 100))
    with client.subscribe("wide", max_backlog=10) as messages:
        held = pick_up(messages, 10)
        # When it changes to a queue that allows 5
        messages.replace(name="narrow")
        # Then 5 is its backlog, the 10 stay its own, and nothing comes until fewer are left
        assert messages.max_backlog == 5
        assert rest_of(messages) == []
        for message in held[:5]:
            message.ack(wait=True)
        assert rest_of(messages) == []
        held[5].ack(wait=True)
        assert ids(rest_of(messages)) == [100]
        for message in held[6:]:
            message.ack(wait=True)
        assert ids(rest_of(messages)) == [101, 102]
    assert client.admin.queue_stats("wide").acknowledged == 10


def test_after_a_replacement_nothing_else_is_handed_out(client):
    client.apply(Queue(name="work", **ROOM))
    client.publish_many("work", orders(200))
    with client.subscribe("work", max_backlog=80) as messages:
        first = messages.get(30)
        messages.replace(filter="/id % 50 = 49")
        # What had been delivered and was not yet handed out is back, uncounted; the rest matches
        assert ids(rest_of(messages)) == [49, 99, 149, 199]
        first.ack(wait=True)
        messages.replace(filter=None, max_backlog=3)
        assert data_of(rest_of(messages)) == []
    with client.subscribe("work", max_backlog=100) as messages:
        got = pick_up(messages, 100)
        assert [message.delivery for message in got if message.data["id"] not in (49, 99)] == [1] * 98


def test_a_filter_in_the_place_of_queues_is_refused_with_where_it_belongs(client):
    client.apply(Queue(name="work", **ROOM))
    with client.subscribe("work") as messages:
        with pytest.raises(TypeError):
            messages.replace("/a = 1")
        for text in ("/a = 1", "/a > 1", "/a IS NULL", "symbol LIKE '^A'"):
            with pytest.raises(DefinitionError, match=r"looks like a filter: write filter="):
                messages.replace(name=text)
            with pytest.raises(DefinitionError, match=r"looks like a filter: write filter="):
                client.subscribe(text)
        messages.replace(name="^(?!x)w(?=o)")
        assert f"{messages!r}" == f"<Subscription {messages.id} to '^(?!x)w(?=o)', max_backlog 1>"


@pytest.mark.parametrize("name", ["narrow", "row$"])
def test_a_backlog_that_is_cut_is_logged_with_its_cause(client, caplog, name):
    client.apply(Queue(name="narrow", max_per_subscription_backlog=3), Queue(name="wide-row", **ROOM))
    client.subscribe("wide-row", max_backlog=5)
    assert caplog.messages == []
    with client.subscribe(name, max_backlog=5) as messages:
        text = "max_backlog 5 is cut to 3 by max_per_subscription_backlog of queue 'narrow'"
        assert caplog.messages == [text]
        messages.replace(max_backlog=3)
        messages.replace(max_backlog=5)
        assert caplog.messages == [text, text]


def test_an_unknown_name_is_told_what_it_is_or_what_was_meant(either):
    over = {"underlying_topic": "orders"}
    either.apply(Queue(name="work", **over), Queue(name="other", **over), Topic(name="alone"))
    either.apply(
        View(name="totals", projection=["COUNT(*) AS /n"], **over), Queue(name="rows", underlying_topic="totals")
    )
    texts = {
        "orders": "'orders' is a topic; its queues are 'other', 'work'",
        "alone": "'alone' is a topic, and no queue is over it; define one with underlying_topic 'alone'",
        "totals": "'totals' is a view; query it with sow, or define a queue over it; its queues are 'rows'",
        "wrok": "'wrok' is no queue; did you mean 'work'?",
    }
    for name, text in texts.items():
        for call in (either.admin.explain, either.admin.queue_stats, lambda q: either.ack(q, filter="/a = 1")):
            with pytest.raises(UnknownQueue) as refusal:
                call(name)
            assert (str(refusal.value), refusal.value.detail) == (text, {"queue": name})
    with pytest.raises(UnknownQueue, match=r"'wrok' is neither a queue nor a topic; did you mean 'work'\?$"):
        either.subscribe("wrok")
    with pytest.raises(UnknownQueue, match="'total' is neither a queue nor a view; did you mean 'totals'"):
        either.sow("total")
    with pytest.raises(UnknownQueue, match="'order' is neither a queue nor a topic; did you mean 'orders'"):
        either.aggregate("order", ["COUNT(*) AS /n"])


def test_one_bookmark_may_stand_alone(client):
    client.apply(Queue(name="work", **ROOM))
    assert client.ack("work", client.publish("work", {"id": 1})) == 1


def test_a_plan_says_what_applying_would_do_and_does_nothing(client):
    client.apply(Queue(name="work", priority="/p"))
    definitions = [Queue(name="work", lease_period="5s"), Queue(name="new"), Topic(name="work")]
    plan = client.admin.plan(*definitions)
    assert [(each.definition.name, each.outcome, each.changes) for each in plan[1:]] == [
        ("work", "changed", {"lease_period": (None, "5s"), "priority": ("/p", None)}),
        ("new", "new", {}),
    ]
    assert client.admin.plan(*definitions) == plan
    assert [outcome for _, outcome in client.apply(*definitions)] == [each.outcome for each in plan]


def test_a_refused_replacement_leaves_all_as_it_was(client):
    client.apply(Queue(name="work", **ROOM))
    client.publish_many("work", orders(10))
    with client.subscribe("work", max_backlog=2, filter="/id > 4") as messages:
        assert ids(pick_up(messages, 2)) == [5, 6]
        with pytest.raises(UnknownQueue):
            messages.replace(name="nowhere")
        with pytest.raises(ExpressionError):
            messages.replace(filter="/id >")
        assert (messages.max_backlog, rest_of(messages)) == (2, [])
    with client.subscribe("work", max_backlog=100) as messages:
        assert ids(rest_of(messages)) == list(range(10))


@pytest.mark.parametrize("name", ["language", "spent", "none", "functions"])
def test_a_judged_queue_may_have_any_name(client, name):
    client.apply(Queue(name=name, underlying_topic="orders", filter="/id >= 0", **ROOM))
    with client.subscribe(name, max_backlog=9) as messages:
        for number in range(3):
            client.publish("orders", {"id": number})
            assert messages.get(30).data == {"id": number}


def test_a_replacement_of_an_at_most_once_queue_loses_nothing(client):
    client.apply(Queue(name="work", semantics="at-most-once", allow_redelivery_after_crash=True, **ROOM))
    client.publish_many("work", orders(100))
    with client.subscribe("work", max_backlog=50) as messages:
        seen = ids([messages.get(30)])
        messages.replace(max_backlog=49)
        while (message := messages.get(0.2)) is not None:
            seen.append(message.data["id"])
            message.ack()
            messages.flush()
    assert sorted(seen) == list(range(100))


@pytest.mark.parametrize("name", ["", "[", "/a = 1"])
def test_a_replacement_by_what_is_no_name_changes_nothing(client, name):
    client.apply(Queue(name="work", **ROOM))
    with client.subscribe("work", max_backlog=2) as messages:
        with pytest.raises(DefinitionError):
            messages.replace(name=name)
        client.publish("work", {"id": 1})
        assert (ids([messages.get(30)]), messages.max_backlog) == ([1], 2)
        messages.replace(max_backlog=3)
        assert messages.max_backlog == 3
