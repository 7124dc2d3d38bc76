"""Publishing of a view: each version of each row once, whoever keeps it and whoever dies."""

from __future__ import annotations

import json
import time
from collections import Counter

import pytest
from observing import eventually
from scene import data_of, pick_up
from totals import define, define_view, totals

from ampsq import Queue
from ampsq.base.errors import Unavailable
from ampsq.coordinator import views as keeping
from ampsq.protocol.schema import key


@pytest.fixture
def published(redis, instance):
    """Every version of every row that was published, in order."""

    def read(name="totals"):
        return [json.loads(fields[b"b"]) for _, fields in redis.xrange(key(instance, "log", name))]

    return read


@pytest.mark.usefixtures("coordinator")
def test_a_queue_of_a_view_delivers_each_row_that_changes(client, is_kept):
    define(client)
    define_view(client)
    client.apply(Queue(name="changes", underlying_topic="totals", max_per_subscription_backlog=10))
    eventually(is_kept)
    with client.subscribe("changes", max_backlog=10) as changes:
        client.publish("work", {"s": "a", "v": 1})
        assert data_of(pick_up(changes, 1)) == [{"s": "a", "n": 1, "sum": 1}]
        client.publish("work", {"s": "b", "v": 2})
        assert data_of(pick_up(changes, 1)) == [{"s": "b", "n": 1, "sum": 2}]
        client.publish("work", {"s": "a", "v": 5})
        assert data_of(pick_up(changes, 1)) == [{"s": "a", "n": 2, "sum": 6}]


def test_two_coordinators_publish_every_version_once(client, start_coordinator, is_kept, published):
    define(client)
    define_view(client)
    start_coordinator()
    start_coordinator()
    eventually(is_kept)
    for n in range(1, 11):
        client.publish("work", {"s": "a", "v": 1})
        eventually(lambda n=n: totals(client) == {"a": (n, n)})
    # The coordinator publishes a changed row later, at most ten times a second.
    eventually(lambda: published()[-1]["n"] == 10)
    versions = [row["n"] for row in published()]
    assert versions == sorted(set(versions))


def test_many_changes_of_a_row_are_one_message(client, view_duty, published):
    define(client)
    define_view(client)
    _, run = view_duty()
    # When a row changes before every round
    until, count = time.monotonic() + 0.45, 0
    while time.monotonic() < until:
        client.publish("work", {"s": "a", "v": 1})
        count += 1
        run()
    # Then it is told of ten times a second at most, and the last time as it is now
    eventually(lambda: run() is not None and published()[-1:] == [{"s": "a", "n": count, "sum": count}])
    assert 2 <= len(published()) <= 7 < count


def test_rows_of_a_former_keeper_are_not_shown_while_the_next_one_reads(client, view_duty, published, monkeypatch):
    define(client)
    define_view(client)
    client.publish("work", {"s": "a", "v": 1})
    _, run = view_duty()
    eventually(lambda: run() is not None and len(published()) == 1)
    client.publish("work", {"s": "a", "v": 2})
    monkeypatch.setattr(keeping, "_BUDGET", -1.0)
    _, run = view_duty()
    run()
    assert totals(client) == {"a": (2, 3)}


def test_whoever_takes_a_view_over_publishes_what_changed_meanwhile_and_nothing_else(client, view_duty, published):
    define(client)
    define_view(client)
    client.publish_many("work", [{"s": "a", "v": 1}, {"s": "b", "v": 2}, {"s": "c", "v": 3}])
    _, run = view_duty()
    eventually(lambda: run() is not None and len(published()) == 3)
    # While nobody keeps the view, one row changes and one goes
    client.publish("work", {"s": "a", "v": 5})
    client.ack("work", filter="/s = 'c'")
    _, run = view_duty()
    eventually(lambda: run() is not None and totals(client) == {"a": (2, 6), "b": (1, 2)})
    eventually(lambda: run() is not None and len(published()) == 5)
    assert published()[3:] == [{"s": "a", "n": 2, "sum": 6}, {"s": "c", "n": 0, "sum": None}]


def test_the_end_of_a_group_that_another_definition_made_is_not_published(client, view_duty, published, is_kept):
    define(client)
    define_view(client)
    client.publish_many("work", [{"s": "a", "v": 1}, {"s": "b", "v": 2}])
    _, run = view_duty()
    eventually(lambda: run() is not None and is_kept())
    define_view(client, projection=["/v", "COUNT(*) AS /n"], grouping=["/v"])
    eventually(lambda: run() is not None and len(published()) == 4)
    eventually(lambda: run() is not None and is_kept())
    assert published()[2:] == [{"v": 1, "n": 1}, {"v": 2, "n": 1}]
    # From then on, ends are
    client.ack("work", filter="/v = 2")
    eventually(lambda: run() is not None and len(published()) == 5)
    assert published()[4:] == [{"v": 2, "n": 0}]
    assert data_of(client.sow("totals")) == [{"v": 1, "n": 1}]


def die_while_publishing(store, fails_at):
    """Let a store fail at one of the calls from where a publication is written down: it, the publication, the rows."""
    sent, call = [], store.call

    def dying(request):
        words = (request.script.name if request.script else request.arguments[0], *request.arguments[1:2])
        if sent or (words[0] == "HSET" and "view" in str(words[1])):
            sent.append(words)
        if len(sent) == fails_at:
            raise Unavailable("died")
        return call(request)

    store.call = dying


@pytest.mark.parametrize("fails_at", range(1, 5))
def test_a_crash_while_a_group_ends_publishes_its_end_once(client, view_duty, published, fails_at):
    define(client)
    define_view(client)
    client.publish_many("work", [{"s": "a", "v": 1}, {"s": "b", "v": 1}])
    store, run = view_duty()
    eventually(lambda: run() is not None and len(published()) == 2)
    client.ack("work", filter="/s = 'b'")
    die_while_publishing(store, fails_at)
    with pytest.raises(Unavailable):
        eventually(lambda: run() is None)
    _, run = view_duty()
    eventually(lambda: run() is not None and totals(client) == {"a": (1, 1)})
    eventually(lambda: run() is not None and len(published()) == 3)
    assert published()[2:] == [{"s": "b", "n": 0, "sum": None}]


@pytest.mark.parametrize("fails_at", range(1, 5))
def test_a_crash_between_publishing_and_writing_down_publishes_nothing_twice(client, view_duty, published, fails_at):
    # Given a coordinator that has a view's rows
    define(client)
    define_view(client)
    client.publish("work", {"s": "a", "v": 1})
    store, run = view_duty()
    eventually(lambda: run() is not None and len(published()) == 1)
    # When it dies at some call of the next publication: what it is about to publish, the publication, the rows
    client.publish_many("work", [{"s": "a", "v": 2}, {"s": "b", "v": 3}])
    die_while_publishing(store, fails_at)
    with pytest.raises(Unavailable):
        eventually(lambda: run() is None)
    # Then whoever takes over publishes each version once
    _, run = view_duty()
    eventually(lambda: run() is not None and totals(client) == {"a": (2, 3), "b": (1, 3)})
    assert Counter(map(str, published())) == Counter(
        map(str, [{"s": "a", "n": 1, "sum": 1}, {"s": "a", "n": 2, "sum": 3}, {"s": "b", "n": 1, "sum": 3}])
    )


def test_rows_are_computed_where_their_keeper_is_gone(client, view_duty, redis, instance, published):
    define(client)
    define_view(client)
    client.publish("work", {"s": "a", "v": 1})
    _, run = view_duty()
    eventually(lambda: run() is not None and len(published()) == 1)
    redis.delete(key(instance, "keepers"))
    client.publish("work", {"s": "a", "v": 2})
    assert totals(client) == {"a": (2, 3)}
