"""Search over everything: each kind of thing is found by a part of its name, a message by its bookmark and its ID."""

from __future__ import annotations

import json
import time
from urllib.parse import quote

import pytest
from observing import eventually

from ampsq import Action, Client, Destination, LocalQueue, Topic, View
from ampsq.protocol.schema import key

HOSTILE = "<script>window.hacked = 1</script>"


@pytest.fixture
def search(asked, client):
    """Find a text in the instance, or in all: ``search(text)``; each hit leads to a page that is there."""

    def find(text, *, everywhere=False):
        path = "/search" if everywhere else f"/i/{client.instance}/search"
        answer = asked.page(f"{path}?q={quote(text, safe='')}", accept="application/json")
        assert answer.status == 200, answer.text
        found = json.loads(answer.text)
        for hit in found["hits"]:
            page = asked.page(hit["page"].partition("#")[0])
            assert page.status == 200, hit
            anchor = hit["page"].partition("#")[2]
            assert not anchor or f'id="{anchor}"' in page.text, hit
        return found

    return find


def named(found):
    return [(hit["kind"], hit["name"]) for hit in found["hits"]]


@pytest.fixture
def shop(client):
    client.apply(
        Topic(name="shop/orders", key=["/id"]),
        Topic(name="failed"),
        LocalQueue(name="shop-work", underlying_topic="shop/orders"),
        LocalQueue(name="a shop".replace(" ", "/"), underlying_topic="shop/orders"),
        View(name="shop-totals", underlying_topic="shop/orders", projection=["/id AS /id"], grouping=["/id"]),
        Action.dead_letter("shop-work", "failed", name="shop-letters"),
        Destination(name="shop-ldn", addresses=["redis://localhost:1"], sync_type="async", topics=["shop/orders"]),
    )


@pytest.mark.usefixtures("shop")
def test_each_kind_is_found_by_a_part_of_its_name_in_any_case(client, search):
    with client.publisher("shop-till") as publisher, client.subscribe("shop-work", max_backlog=2):
        publisher.publish("shop/orders", {"id": 1})
        publisher.flush(timeout="30s")
        found = search("SHOP")
        owner = client._session.client.partition("/")[0]
        by_client = search(owner)

    assert named(found) == [
        ("queue", "shop-work"), ("queue", "a/shop"), ("topic", "shop/orders"), ("view", "shop-totals"),
        ("action", "shop-letters"), ("link", "shop-ldn"), ("publisher", "shop-till"),
    ]  # fmt: skip
    assert (found["more"], found["unread"], found["partly"]) == ({}, [], [])
    (held,) = [hit for hit in by_client["hits"] if hit["kind"] == "subscription"]
    assert held["detail"].endswith("to shop-work")
    assert held["page"] == f"/i/{client.instance}/queues/shop-work#subscriptions"


@pytest.mark.usefixtures("shop")
def test_a_message_is_found_by_its_bookmark_and_by_its_id(client, search):
    first, second = client.publish("shop/orders", {"id": 1}), client.publish("failed", {"id": 2})
    assert named(search(str(first))) == [("message", str(first))]
    assert named(search(first.id)) == [("message", str(first))]
    assert named(search(second.id)) == [("message", str(second))]
    assert named(search(f"failed~{first.origin}~{first.id}")) == [("message", f"failed~{first.origin}~{first.id}")]
    assert named(search(f"nothing~elsewhere.t6w1xk~{first.id}")) == []
    assert named(search("1-1")) == []


@pytest.mark.usefixtures("shop")
def test_a_message_that_the_log_has_lost_is_found_and_said_to_be_gone(client, search):
    bookmark = client.publish("failed", {"id": 2})
    client._store.redis.delete(key(client.instance, "log", "failed"))
    (hit,) = search(str(bookmark))["hits"]
    assert hit["detail"] == "the log does not have it any more"


def test_all_instances_are_searched_and_each_is_found_by_its_own_name(client, valkey, serve):
    with Client(valkey.url, instance=f"{client.instance}-2") as other:
        client.apply(LocalQueue(name="mine", underlying_topic="orders"))
        other.apply(LocalQueue(name="mine", underlying_topic="orders"))
        asked = serve(valkey.url, [client.instance, other.instance, "nobody"])

        def find(path):
            return json.loads(asked.page(path, accept="application/json").text)

        found = find("/search?q=mine")
        assert [(hit["kind"], hit["instance"]) for hit in found["hits"]] == [
            ("queue", client.instance), ("queue", other.instance),
        ]  # fmt: skip
        assert found["unread"] == ["nobody"]
        assert "Not looked at: nobody" in asked.page("/search?q=mine").text
        names = find(f"/i/{client.instance}/search?q={client.instance}")
        assert [hit["name"] for hit in names["hits"] if hit["kind"] == "instance"] == [client.instance, other.instance]


def test_of_a_thousand_queues_ten_are_shown_quickly_and_the_rest_is_counted(client, search, define_many, asked):
    define_many(client, 1_000)
    began = time.process_time()
    found = search("q")
    spent = time.process_time() - began
    # Ten pages of queues were asked for, too.
    assert named(found)[:3] == [("queue", "q0"), ("queue", "q1"), ("queue", "q10")]
    assert (len(found["hits"]), found["more"]) == (10, {"queue": 990})
    assert named(search("q999")) == [("queue", "q999")]
    assert "990 more: a longer part of the name finds them." in asked.page(f"/i/{client.instance}/search?q=q").text
    assert spent < 20


def test_very_many_subscriptions_are_looked_at_in_part_which_is_said(client, search, asked):
    client.apply(LocalQueue(name="work", underlying_topic="orders"))
    with client.subscribe("work", max_backlog=1):
        name = key(client.instance, "subscriptions")
        client._store.redis.zadd(name, {f"gone-{number}": 1 for number in range(1_500)})
        found = search("gone")
        page = asked.page(f"/i/{client.instance}/search?q=gone").text
    assert found["partly"] == [f"1,000 of 1,501 subscriptions of {client.instance}"]
    assert f"Looked at 1,000 of 1,501 subscriptions of {client.instance}." in page


def test_nothing_is_looked_for_where_nothing_is_asked_and_nothing_is_run_of_what_is(client, search, asked):
    assert named(search("  ")) == []
    page = asked.page(f"/i/{client.instance}/search?q={quote(HOSTILE)}")
    assert page.status == 200
    assert "<script>window" not in page.text
    assert "&lt;script&gt;" in page.text
    assert asked.page("/search?q=%00%FF%5B").status == 200


def test_a_search_changes_nothing(client, search, snapshot):
    client.apply(LocalQueue(name="work", underlying_topic="orders"))
    bookmark = client.publish("orders", {"id": 1})
    search("work")
    before = snapshot(client._store)
    search("work")
    search(str(bookmark))
    search(bookmark.id)
    assert eventually(lambda: snapshot(client._store) == before)
