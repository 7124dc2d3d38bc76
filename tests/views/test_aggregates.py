"""Following messages, and aggregated subscriptions: rows as they change, told once to whoever follows."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections import Counter

import pytest
from cases import seeds
from observing import eventually
from totals import TOTALS, define, define_view, the_view, totals

from ampsq import AsyncClient, Client, Queue
from ampsq.base.errors import DefinitionError, Rejected, Unavailable, UnknownQueue
from ampsq.coordinator import views as keeping
from ampsq.expressions import Document
from ampsq.protocol.context import InstanceContext
from ampsq.protocol.reads import queues as queue_reads
from ampsq.protocol.schema import key
from ampsq.views import sources as view_sources
from ampsq.views import upkeep as views


def counted(client, queue="work"):
    """The same, from the messages that are available."""
    rows: dict = {}
    for message in client.sow(queue):
        n, total = rows.get(message.data["s"], (0, 0))
        rows[message.data["s"]] = n + 1, total + message.data["v"]
    return rows


@pytest.fixture
def follow(client):
    """Follow a view of the test's own; `settle` reads all that there is to read, and gives the rows."""

    def begin(view):
        follower = client._store.run(views.follow(InstanceContext(client.instance, client.origin), view))

        def settle():
            while client._store.run(follower.step()):
                pass
            assert follower.complete
            return {row["s"]: (row["n"], row["sum"]) for row in map(follower._rows.row, follower._rows.groups())}

        return follower, settle

    return begin


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
        call = flow.send(None)
        while True:
            if chance.random() < 0.1:
                flow.throw(Unavailable("interrupted"))
            call = flow.send(client._store.call(call))


_KINDS = [{}, {"priority": "/v"}, {"filter": "/v > 2"}, {"barrier_expression": "/v = 1000"}]

# --- following -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("elements", _KINDS)
@seeds(3, soon=1)
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
    monkeypatch.setattr(queue_reads, "EVENTS", 1)
    redis.xtrim(key(instance, "events", "work"), maxlen=1, approximate=False)
    assert settle() == {"a": (5, 35)}


@pytest.mark.parametrize("name", ["work", "orders"])
def test_a_server_that_started_anew_is_read_anew(start_server, instance, monkeypatch, name):
    server = start_server("valkey", appendonly=True, options=["--appendfsync", "always"])
    with Client(server.url, instance=instance) as client:
        define(client)
        client.publish(name, {"s": "a", "v": 1})
        view = the_view(underlying_topic=name)
        follower = client._store.run(views.follow(InstanceContext(client.instance, client.origin), view))
        assert client._store.run(views.next_rows(follower, 5.0)) == [{"s": "a", "n": 1, "sum": 1}]
        # Given a row that the server had told of, and lost with its end
        follower._rows.add(b"lost", Document(b'{"s":"lost"}'), for_good=name == "orders")
        server.end()
        start_server("valkey", appendonly=True, options=["--appendfsync", "always"], data_dir=server.directory)
        # Then what it says after its start counts
        monkeypatch.setattr(views, "_CHECK", 0.0)
        eventually(lambda: client._store.run(views.next_rows(follower, 0.0)) is not None and follower.complete)
        assert [follower._rows.row(group) for group in follower._rows.groups()] == [{"s": "a", "n": 1, "sum": 1}]


# --- aggregated subscriptions ----------------------------------------------------------------------------


def test_an_aggregated_subscription_gives_all_rows_and_then_those_that_change(either):
    define(either)
    either.publish_many("work", [{"s": "a", "v": 1}, {"s": "b", "v": 2}])
    with either.aggregate("work", **TOTALS) as rows:
        first = [rows.get("30s"), rows.get("30s")]
        assert sorted(row["s"] for row in first) == ["a", "b"]
        either.publish("work", {"s": "b", "v": 5})
        assert rows.get("30s") == {"s": "b", "n": 2, "sum": 7}
        either.ack("work", filter="/v = 2")
        assert rows.get("30s") == {"s": "b", "n": 1, "sum": 5}
        # A group that goes is told of as it is without messages, and one that came and went is not
        either.ack("work", filter="/s = 'b'")
        assert rows.get("30s") == {"s": "b", "n": 0, "sum": None}
        either.publish("work", {"s": "c", "v": 3})
        either.ack("work", filter="/s = 'c'")
        assert rows.get("50ms") is None
        either.publish("work", {"s": "a", "v": 3})
        assert rows.get("30s") == {"s": "a", "n": 2, "sum": 4}
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
        assert rows.get("30s") == {"n": 0}
        client.publish("from-a", {})
        assert rows.get("30s") == {"n": 1}


def test_an_aggregate_that_is_not_worked_out_in_time_goes_on_later(either, monkeypatch):
    steps, step = [], views.Follower.step

    def counted(*arguments):
        steps.append(arguments)
        return step(*arguments)

    monkeypatch.setattr(views.Follower, "step", counted)
    define(either)
    either.publish_many("work", [{"s": "a", "v": n, "text": "x" * 500} for n in range(3_000)], batch=500)
    with either.aggregate("work", **TOTALS) as rows:
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

    with client.aggregate("work", **TOTALS) as rows:
        threads = [threading.Thread(target=read) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert not any(thread.is_alive() for thread in threads)
    assert Counter(found) == dict.fromkeys((f"s{n}" for n in range(200)), 1)


async def _shared(url, instance):
    async with AsyncClient(url, instance=instance) as client, client.aggregate("work", **TOTALS) as rows:

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
    monkeypatch.setattr(view_sources, "_PERIOD", 1_200)
    monkeypatch.setattr(view_sources, "_RENEW", 0.2)
    monkeypatch.setattr(views, "_CHECK", 0.1)
    define(client)
    queue, events = key(instance, "queue", "work"), key(instance, "events", "work")
    client.publish("work", {"s": "a", "v": 1})
    client.publish("work", {"s": "a", "v": 2})
    with client.aggregate("work", **TOTALS) as rows:
        assert rows.get("30s") == {"s": "a", "n": 2, "sum": 3}
        began = redis.hget(queue, "watched").split()[1]
        assert rows.get("1.8s") is None
        assert redis.hget(queue, "watched").split()[1] == began
        client.ack("work", filter="/v = 1")
        assert rows.get("30s") == {"s": "a", "n": 1, "sum": 2}
        # When nobody asks for a while, the queue writes nothing down any more
        eventually(lambda: not redis.hexists(queue, "watched"))
        assert not redis.exists(events)
        client.ack("work", filter="/v = 2")
        assert not redis.exists(events)
        # And whoever asks again still gets what is true
        assert rows.get("30s") == {"s": "a", "n": 0, "sum": None}
    eventually(lambda: not redis.hexists(queue, "watched"))


def test_a_view_is_computed_while_it_is_read_for_the_first_time(client, view_duty, monkeypatch):
    define(client)
    define_view(client)
    client.publish_many("work", [{"s": "a", "v": n} for n in range(1_500)], batch=500)
    monkeypatch.setattr(keeping, "_BUDGET", -1.0)
    _, run = view_duty()
    run()
    assert totals(client) == {"a": (1_500, 1_124_250)}


def test_an_aggregate_over_every_topic_may_be_and_faults_name_no_view_of_ours(client):
    client.publish("orders", {"s": "a", "v": 1})
    define(client)
    define_view(client)
    with client.aggregate(".*", ["COUNT(*) AS /n"], filter="/s = 'a'") as rows:
        assert rows.get("30s") == {"n": 1}
    with client.aggregate("^agg", ["COUNT(*) AS /n"]) as rows:
        assert rows.get("30s") == {"n": 0}
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


def test_who_iterates_over_rows_is_done_when_the_subscription_is_closed(client):
    define(client)
    rows, seen, failed = client.aggregate("work", ["COUNT(*) AS /n"]), [], []

    def read():
        try:
            seen.extend(rows)
        except Exception as error:  # noqa: BLE001  (whatever it is, it is too much)
            failed.append(error)

    reader = threading.Thread(target=read)
    # When it is closed between the look whether it is and the wait for a row
    get = rows._managed.get

    def closing(timeout):
        rows.close()
        return get(timeout)

    rows._managed.get = closing
    reader.start()
    reader.join(30)

    assert not reader.is_alive()
    assert failed == []


def test_the_same_awaited_is_done_when_it_is_closed(valkey, instance):
    async def scenario():
        async with AsyncClient(valkey.url, instance=instance) as client:
            await client.apply(Queue(name="work"))
            async with client.aggregate("work", ["COUNT(*) AS /n"]) as rows:
                get = rows._managed.get

                async def closing(timeout):  # noqa: ASYNC109
                    await rows.close()
                    return await get(timeout)

                rows._managed.get = closing
                return [row async for row in rows]

    assert asyncio.run(scenario()) == []
