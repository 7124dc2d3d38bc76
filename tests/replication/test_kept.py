"""Messages kept for destinations: none is trimmed before they have it, and none stays for them longer."""

from __future__ import annotations

import contextlib

import pytest

from ampsq import Client, Destination, Queue, Topic, View
from ampsq.protocol.calls.replication import report_sent


@pytest.fixture
def client(server, instance):
    """An instance with a queue and a topic beside it, and nobody at work on it."""
    with contextlib.closing(Client(server.url, instance=instance)) as one:
        one.apply(
            Topic(name="orders", retention_age="0s"),
            Topic(name="prices", retention_age="0s"),
            Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=10),
        )
        yield one


def to(name, *topics, **elements):
    return Destination(name=name, sync_type="async", topics=topics or ["orders", "work"], **elements)


def handle(client, number):
    with client.subscribe("work", max_backlog=number) as messages:
        for _ in range(number):
            messages.get(30).ack()


def told(client, name, **places):
    """Report what a link has carried, ``log_orders`` up to an ID."""
    client._store.call(report_sent(name, {field.replace("_", " "): place for field, place in places.items()}))


def place_of(bookmark):
    return str(bookmark).rpartition("~")[2]


def end_of_journal(client):
    rows = client._store.redis.xrevrange("{" + client.instance + "}:q:work:journal", "+", "-", 1)
    return rows[0][0].decode()


def test_a_destination_that_was_never_linked_keeps_everything_that_it_is_to_be_sent(client):
    client.apply(to("nyc-2", "orders"))
    for number in range(3):
        client.publish("orders", {"id": number})
        client.publish("prices", {"id": number})
    handle(client, 3)

    kept, free = client.admin.trim("orders"), client.admin.trim("prices")

    assert (kept.removed, kept.pinned_by, kept.state) == (0, "destination nyc-2", "")
    assert free.removed == 3
    assert [client.admin.topics()[name].messages for name in ("orders", "prices")] == [3, 0]


def test_topics_that_match_its_pattern_and_appear_later_are_kept_too(client):
    client.apply(to("nyc-2", "^prices\\."))
    client.publish("prices.eur", {"x": 1})
    client.publish("prices", {"x": 2})

    assert client.admin.trim("prices.eur", age="0s").pinned_by == "destination nyc-2"
    assert client.admin.trim("prices").removed == 1


def test_what_a_destination_has_is_removed_and_the_rest_stays_with_the_name_of_who_needs_it(client):
    client.apply(to("nyc-2"), to("ldn-1"))
    bookmarks = [client.publish("orders", {"id": number}) for number in range(4)]
    handle(client, 4)
    journaled = end_of_journal(client)
    told(client, "nyc-2", log_orders=place_of(bookmarks[3]), journal_work=journaled)
    told(client, "ldn-1", log_orders=place_of(bookmarks[1]), journal_work=journaled)

    trimmed = client.admin.trim("orders")

    assert (trimmed.removed, trimmed.pinned_by, trimmed.pinned) == (2, "destination ldn-1", bookmarks[2])


def test_a_message_stays_while_a_destination_lacks_what_became_of_it_in_a_queue(client):
    client.apply(to("nyc-2"))
    bookmark = client.publish("orders", {"id": 1})
    handle(client, 1)
    told(client, "nyc-2", log_orders=place_of(bookmark), journal_work="0-0")
    assert client.admin.trim("orders").pinned_by == "destination nyc-2"

    told(client, "nyc-2", journal_work=end_of_journal(client))

    assert client.admin.trim("orders").removed == 1
    assert client._store.redis.xlen("{" + client.instance + "}:q:work:journal") == 0


def test_a_destination_that_is_removed_lets_go(client):
    client.apply(to("nyc-2"))
    client.publish("orders", {"id": 1})
    handle(client, 1)
    assert client.admin.trim("orders").removed == 0

    client.admin.remove_destination("nyc-2")

    assert client.admin.trim("orders").removed == 1


def test_one_that_is_sent_less_from_now_on_lets_go_of_the_rest(client):
    client.apply(to("nyc-2", "orders", "prices"))
    client.publish("prices", {"x": 1})
    assert client.admin.trim("prices").pinned_by == "destination nyc-2"

    client.apply(to("nyc-2", "orders"))

    assert client.admin.trim("prices").removed == 1


def test_what_a_view_keeps_is_not_kept_for_anybody(client):
    client.apply(
        View(name="totals", underlying_topic="work", projection=["SUM(/x) AS /x", "/id"], grouping=["/id"]),
        to("nyc-2", "^tot"),
    )
    client.publish("totals-by-hand", {"x": 1})
    client.publish("totals", {"x": 1})

    assert client.admin.trim("totals-by-hand", age="0s").pinned_by == "destination nyc-2"
    assert client.admin.trim("totals", age="0s").removed == 1
