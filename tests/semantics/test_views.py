"""Views and aggregated subscriptions: their rows are those of the messages that are available, and are told of once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import threading
import time
from collections import Counter

import pytest
from observing import eventually
from scene import data_of, pick_up

from ampsq import AsyncClient, Client, Queue, View, view_sources, views
from ampsq.browse import Scene
from ampsq.coordinator import views as keeping
from ampsq.errors import DefinitionError, Rejected, Unavailable, UnknownQueue
from ampsq.expressions import Document
from ampsq.models import Topic
from ampsq.schema import key
from ampsq.store import Store

_TOTALS = {"projection": ["/s", "COUNT(*) AS /n", "SUM(/v) AS /sum"], "grouping": ["/s"]}


def define(client, **elements):
    client.apply(Queue(name="work", **{"max_per_subscription_backlog": 1_000, **elements}))


def define_view(client, **elements):
    client.apply(View(name="totals", **{"underlying_topic": "work", **_TOTALS, **elements}))


def totals(client, name="totals"):
    """The rows of a view by their `s`, without it."""
    return {message.data["s"]: (message.data["n"], message.data["sum"]) for message in client.sow(name)}


def counted(client, queue="work"):
    """The same, from the messages that are available."""
    rows: dict = {}
    for message in client.sow(queue):
        n, total = rows.get(message.data["s"], (0, 0))
        rows[message.data["s"]] = n + 1, total + message.data["v"]
    return rows


@pytest.fixture
def is_kept(redis, instance):
    """Whether somebody keeps a view and has all of its rows."""
    return lambda name="totals": redis.hexists(key(instance, "view", name), views.STATE)


@pytest.fixture
def published(redis, instance):
    """Every version of every row that was published, in order."""

    def read(name="totals"):
        return [json.loads(fields[b"b"]) for _, fields in redis.xrange(key(instance, "log", name))]

    return read


# --- the rows --------------------------------------------------------------------------------------------


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
    client.apply(View(name="totals", underlying_topic="^from-", **_TOTALS))
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
    eventually(lambda: redis.hget(key(client.instance, "view", "totals"), views.STATE) == mark)
    assert totals(client) == {"b": (1, 2)}


def test_a_view_of_a_view_is_refused(client):
    define(client)
    define_view(client)
    catalog = client._store.call(views.calls.catalog())
    with pytest.raises(DefinitionError, match="'totals' is a view"):
        views.check_view(catalog, View(name="more", underlying_topic="totals", **_TOTALS))


# --- what is published -----------------------------------------------------------------------------------


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
    versions = [row["n"] for row in published()]
    assert versions == sorted(set(versions))
    assert versions[-1] == 10


@pytest.fixture
def duty(valkey, instance, redis):
    """A duty of one coordinator, on a store of its own; whoever kept views before keeps them no more."""
    with contextlib.ExitStack() as stack:

        def begin():
            redis.delete(key(instance, "keepers"))
            store = stack.enter_context(contextlib.closing(Store(valkey.url, instance, patience=0.5)))
            views_duty = keeping.Views()
            return store, lambda: views_duty.run_once(store)

        yield begin


def test_many_changes_of_a_row_are_one_message(client, duty, published):
    define(client)
    define_view(client)
    _, run = duty()
    # When a row changes before every round
    until, count = time.monotonic() + 0.45, 0
    while time.monotonic() < until:
        client.publish("work", {"s": "a", "v": 1})
        count += 1
        run()
    # Then it is told of ten times a second at most, and the last time as it is now
    eventually(lambda: run() is not None and published()[-1:] == [{"s": "a", "n": count, "sum": count}])
    assert 2 <= len(published()) <= 7 < count


def test_rows_of_a_former_keeper_are_not_shown_while_the_next_one_reads(client, duty, published, monkeypatch):
    define(client)
    define_view(client)
    client.publish("work", {"s": "a", "v": 1})
    _, run = duty()
    eventually(lambda: run() is not None and len(published()) == 1)
    client.publish("work", {"s": "a", "v": 2})
    monkeypatch.setattr(keeping, "_BUDGET", -1.0)
    _, run = duty()
    run()
    assert totals(client) == {"a": (2, 3)}


def test_whoever_takes_a_view_over_publishes_what_changed_meanwhile_and_nothing_else(client, duty, published):
    define(client)
    define_view(client)
    client.publish_many("work", [{"s": "a", "v": 1}, {"s": "b", "v": 2}, {"s": "c", "v": 3}])
    _, run = duty()
    eventually(lambda: run() is not None and len(published()) == 3)
    # While nobody keeps the view, one row changes and one goes
    client.publish("work", {"s": "a", "v": 5})
    client.ack("work", filter="/s = 'c'")
    _, run = duty()
    eventually(lambda: run() is not None and totals(client) == {"a": (2, 6), "b": (1, 2)})
    eventually(lambda: run() is not None and len(published()) == 5)
    assert published()[3:] == [{"s": "a", "n": 2, "sum": 6}, {"s": "c", "n": 0, "sum": None}]


def test_the_end_of_a_group_that_another_definition_made_is_not_published(client, duty, published, is_kept):
    define(client)
    define_view(client)
    client.publish_many("work", [{"s": "a", "v": 1}, {"s": "b", "v": 2}])
    _, run = duty()
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
def test_a_crash_while_a_group_ends_publishes_its_end_once(client, duty, published, fails_at):
    define(client)
    define_view(client)
    client.publish_many("work", [{"s": "a", "v": 1}, {"s": "b", "v": 1}])
    store, run = duty()
    eventually(lambda: run() is not None and len(published()) == 2)
    client.ack("work", filter="/s = 'b'")
    die_while_publishing(store, fails_at)
    with pytest.raises(Unavailable):
        eventually(lambda: run() is None)
    _, run = duty()
    eventually(lambda: run() is not None and totals(client) == {"a": (1, 1)})
    eventually(lambda: run() is not None and len(published()) == 3)
    assert published()[2:] == [{"s": "b", "n": 0, "sum": None}]


@pytest.mark.parametrize("fails_at", range(1, 5))
def test_a_crash_between_publishing_and_writing_down_publishes_nothing_twice(client, duty, published, fails_at):
    # Given a coordinator that has a view's rows
    define(client)
    define_view(client)
    client.publish("work", {"s": "a", "v": 1})
    store, run = duty()
    eventually(lambda: run() is not None and len(published()) == 1)
    # When it dies at some call of the next publication: what it is about to publish, the publication, the rows
    client.publish_many("work", [{"s": "a", "v": 2}, {"s": "b", "v": 3}])
    die_while_publishing(store, fails_at)
    with pytest.raises(Unavailable):
        eventually(lambda: run() is None)
    # Then whoever takes over publishes each version once
    _, run = duty()
    eventually(lambda: run() is not None and totals(client) == {"a": (2, 3), "b": (1, 3)})
    assert Counter(map(str, published())) == Counter(
        map(str, [{"s": "a", "n": 1, "sum": 1}, {"s": "a", "n": 2, "sum": 3}, {"s": "b", "n": 1, "sum": 3}])
    )


def test_rows_are_computed_where_their_keeper_is_gone(client, duty, redis, instance, published):
    define(client)
    define_view(client)
    client.publish("work", {"s": "a", "v": 1})
    _, run = duty()
    eventually(lambda: run() is not None and len(published()) == 1)
    redis.delete(key(instance, "keepers"))
    client.publish("work", {"s": "a", "v": 2})
    assert totals(client) == {"a": (2, 3)}


# --- following -------------------------------------------------------------------------------------------


@pytest.fixture
def follow(client):
    """Follow a view of the test's own; `settle` reads all that there is to read, and gives the rows."""

    def begin(view):
        follower = client._store.run(views.follow(Scene(client.instance, client.origin), view))

        def settle():
            while client._store.run(follower.step()):
                pass
            assert follower.complete
            return {row["s"]: (row["n"], row["sum"]) for row in map(follower._rows.row, follower._rows.groups())}

        return follower, settle

    return begin


def the_view(**elements):
    return View(name="totals", **{"underlying_topic": "work", **_TOTALS, **elements})


def random_step(client, chance, held, messages):
    act = chance.randrange(8)
    if act < 3:
        topic = chance.choice(["work", "work-1", "work-2"])
        client.publish_many(topic, [{"s": chance.choice("abc"), "v": chance.randrange(9)} for _ in range(5)])
    elif act == 3 and (message := messages.get(0)) is not None:
        held.append(message)
    elif act == 4 and held:
        held.pop(chance.randrange(len(held))).cancel(chance.choice([None, "5ms", "1h"]))
    elif act == 5 and held:
        held.pop(chance.randrange(len(held))).ack(wait=True)
    elif act == 6:
        client.ack("work", filter=f"/v = {chance.randrange(9)}", option=chance.choice(["ack", "expire"]))


def follow_or_break(client, chance, follower):
    """One step of a follower, which may be interrupted at any of its calls."""
    flow = follower.step()
    with contextlib.suppress(StopIteration, Unavailable):
        call = next(flow)
        while True:
            if chance.random() < 0.1:
                flow.throw(Unavailable("interrupted"))
            call = flow.send(client._store.call(call))


_KINDS = [{}, {"priority": "/v"}, {"filter": "/v > 2"}, {"barrier_expression": "/v = 1000"}]


@pytest.mark.parametrize("elements", _KINDS)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.usefixtures("coordinator")
def test_whatever_happens_to_the_messages_the_rows_follow(client, follow, monkeypatch, seed, elements):
    # Given a follower that does one step now and then, while messages come, go and come back
    chance = random.Random(seed)  # noqa: S311 - a scenario, not a secret
    monkeypatch.setattr(views, "_CHECK", 0.0)
    define(client, underlying_topic="^work", default_publish_target="work", **elements)
    for topic in ("work", "work-1"):
        client.publish_many(topic, [{"s": chance.choice("abc"), "v": chance.randrange(9)} for _ in range(700)])
    follower, settle = follow(the_view())
    held: list = []
    with client.subscribe("work", max_backlog=20) as messages:
        for _ in range(150):
            with contextlib.suppress(Rejected):
                # (what another step settled cannot be settled again)
                random_step(client, chance, held, messages)
            for _ in range(chance.randrange(4)):
                follow_or_break(client, chance, follower)
    # When all is quiet, its rows are those of what is available
    assert eventually(lambda: settle() == counted(client))


def test_whoever_missed_events_looks_at_everything_anew(client, follow, redis, instance, monkeypatch):
    define(client)
    client.publish_many("work", [{"s": "a", "v": n} for n in range(10)])
    _, settle = follow(the_view())
    assert settle() == {"a": (10, 45)}
    # When more happened than the events keep
    for n in range(5):
        client.ack("work", filter=f"/v = {n}")
    monkeypatch.setattr(view_sources, "EVENTS", 1)
    redis.xtrim(key(instance, "events", "work"), maxlen=1, approximate=False)
    assert settle() == {"a": (5, 35)}


@pytest.mark.parametrize("name", ["work", "orders"])
def test_a_server_that_started_anew_is_read_anew(start_server, instance, monkeypatch, name):
    server = start_server("valkey", appendonly=True)
    with Client(server.url, instance=instance) as client:
        define(client)
        client.publish(name, {"s": "a", "v": 1})
        view = the_view(underlying_topic=name)
        follower = client._store.run(views.follow(Scene(client.instance, client.origin), view))
        assert client._store.run(views.next_rows(follower, 5.0)) == [{"s": "a", "n": 1, "sum": 1}]
        # Given a row that the server had told of, and lost with its end
        follower._rows.add(b"lost", Document(b'{"s":"lost"}'), for_good=name == "orders")
        server.end()
        start_server("valkey", appendonly=True, data_dir=server.directory)
        # Then what it says after its start counts
        monkeypatch.setattr(views, "_CHECK", 0.0)
        eventually(lambda: client._store.run(views.next_rows(follower, 0.0)) is not None and follower.complete)
        assert [follower._rows.row(group) for group in follower._rows.groups()] == [{"s": "a", "n": 1, "sum": 1}]


# --- aggregated subscriptions ----------------------------------------------------------------------------


def test_an_aggregated_subscription_gives_all_rows_and_then_those_that_change(either):
    define(either)
    either.publish_many("work", [{"s": "a", "v": 1}, {"s": "b", "v": 2}])
    with either.aggregate("work", **_TOTALS) as rows:
        first = [rows.get("5s"), rows.get("5s")]
        assert sorted(row["s"] for row in first) == ["a", "b"]
        either.publish("work", {"s": "b", "v": 5})
        assert rows.get("5s") == {"s": "b", "n": 2, "sum": 7}
        either.ack("work", filter="/v = 2")
        assert rows.get("5s") == {"s": "b", "n": 1, "sum": 5}
        # A group that goes is told of as it is without messages, and one that came and went is not
        either.ack("work", filter="/s = 'b'")
        assert rows.get("5s") == {"s": "b", "n": 0, "sum": None}
        either.publish("work", {"s": "c", "v": 3})
        either.ack("work", filter="/s = 'c'")
        assert rows.get("50ms") is None
        either.publish("work", {"s": "a", "v": 3})
        assert rows.get("5s") == {"s": "a", "n": 2, "sum": 4}
        assert rows.get("10ms") is None


def test_an_aggregated_subscription_may_be_iterated(client):
    client.publish_many("orders", [{"s": "a", "v": 1}] * 3)
    with client.aggregate("orders", ["COUNT(*) AS /n"], filter="/v = 1") as rows:
        for row in rows:
            if row == {"n": 4}:
                break
            assert row == {"n": 3}
            client.publish_many("orders", [{"v": 2}, {"v": 1}])


def test_an_aggregated_subscription_to_topics_takes_new_ones_in(client, monkeypatch):
    monkeypatch.setattr(views, "_CHECK", 0.0)
    with client.aggregate("^from-", ["COUNT(*) AS /n"]) as rows:
        assert rows.get("5s") == {"n": 0}
        client.publish("from-a", {})
        assert rows.get("5s") == {"n": 1}


def test_an_aggregate_that_is_not_worked_out_in_time_goes_on_later(either, monkeypatch):
    steps, step = [], views.Follower.step

    def counted(*arguments):
        steps.append(arguments)
        return step(*arguments)

    monkeypatch.setattr(views.Follower, "step", counted)
    define(either)
    either.publish_many("work", [{"s": "a", "v": n, "text": "x" * 500} for n in range(3_000)], batch=500)
    with either.aggregate("work", **_TOTALS) as rows:
        # Each takes one step when it is given no time
        asked = 1
        while (row := rows.get(0)) is None:
            assert len(steps) == asked
            asked += 1
        assert row == {"s": "a", "n": 3_000, "sum": sum(range(3_000))}
        assert asked > 5


def test_threads_share_an_aggregated_subscription(client):
    define(client)
    client.publish_many("work", [{"s": f"s{n}", "v": n} for n in range(200)])
    found = []

    def read():
        while (row := rows.get("0.5s")) is not None:
            found.append(row["s"])

    with client.aggregate("work", **_TOTALS) as rows:
        threads = [threading.Thread(target=read) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert not any(thread.is_alive() for thread in threads)
    assert Counter(found) == dict.fromkeys((f"s{n}" for n in range(200)), 1)


async def _shared(url, instance):
    async with AsyncClient(url, instance=instance) as client, client.aggregate("work", **_TOTALS) as rows:

        async def read():
            found = []
            while (row := await rows.get("0.5s")) is not None:
                found.append(row["s"])
            return found

        lists = await asyncio.gather(*(read() for _ in range(8)))
        assert await rows.get(0) is None
        return [name for names in lists for name in names]


def test_tasks_share_an_aggregated_subscription(client, valkey):
    define(client)
    client.publish_many("work", [{"s": f"s{n}", "v": n} for n in range(200)])
    found = asyncio.run(_shared(valkey.url, client.instance))
    assert Counter(found) == dict.fromkeys((f"s{n}" for n in range(200)), 1)


@pytest.mark.usefixtures("coordinator")
def test_a_queue_is_watched_while_somebody_follows_and_no_longer(client, redis, instance, monkeypatch):
    monkeypatch.setattr(view_sources, "_PERIOD", 2_500)
    monkeypatch.setattr(view_sources, "_RENEW", 0.2)
    monkeypatch.setattr(views, "_CHECK", 0.1)
    define(client)
    queue, events = key(instance, "queue", "work"), key(instance, "events", "work")
    client.publish("work", {"s": "a", "v": 1})
    client.publish("work", {"s": "a", "v": 2})
    with client.aggregate("work", **_TOTALS) as rows:
        assert rows.get("5s") == {"s": "a", "n": 2, "sum": 3}
        began = redis.hget(queue, "watched").split()[1]
        assert rows.get("3.5s") is None
        assert redis.hget(queue, "watched").split()[1] == began
        client.ack("work", filter="/v = 1")
        assert rows.get("5s") == {"s": "a", "n": 1, "sum": 2}
        # When nobody asks for a while, the queue writes nothing down any more
        eventually(lambda: not redis.hexists(queue, "watched"))
        assert not redis.exists(events)
        client.ack("work", filter="/v = 2")
        assert not redis.exists(events)
        # And whoever asks again still gets what is true
        assert rows.get("5s") == {"s": "a", "n": 0, "sum": None}
    eventually(lambda: not redis.hexists(queue, "watched"))


def test_a_view_is_computed_while_it_is_read_for_the_first_time(client, duty, monkeypatch):
    define(client)
    define_view(client)
    client.publish_many("work", [{"s": "a", "v": n} for n in range(1_500)], batch=500)
    monkeypatch.setattr(keeping, "_BUDGET", -1.0)
    _, run = duty()
    run()
    assert totals(client) == {"a": (1_500, 1_124_250)}


def test_an_aggregate_over_every_topic_may_be_and_faults_name_no_view_of_ours(client):
    client.publish("orders", {"s": "a", "v": 1})
    define(client)
    define_view(client)
    with client.aggregate(".*", ["COUNT(*) AS /n"], filter="/s = 'a'") as rows:
        assert rows.get("5s") == {"n": 1}
    with client.aggregate("^agg", ["COUNT(*) AS /n"]) as rows:
        assert rows.get("5s") == {"n": 0}
    for arguments in [
        ("work", ["/price"]),
        ("work", "x"),
        ("work", ["/x"], ["/y", "/y"], 5),
        ("totals", ["COUNT(*) AS /n"]),
    ]:
        with pytest.raises(DefinitionError, match=r"^aggregate of '(work|totals)': ") as refusal:
            client.aggregate(*arguments)
        assert "View" not in str(refusal.value)
        assert "'aggregate'" not in str(refusal.value)


def test_an_aggregated_subscription_that_cannot_be_is_refused_at_once(client):
    define(client)
    with pytest.raises(DefinitionError, match="grouping"):
        client.aggregate("work", ["/price"])
    with pytest.raises(DefinitionError, match="regular expression"):
        client.aggregate("(", ["COUNT(*) AS /n"])
    with pytest.raises(UnknownQueue, match="missing"):
        client.aggregate("missing", ["COUNT(*) AS /n"])
