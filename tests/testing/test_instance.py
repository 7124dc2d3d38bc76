"""The test kit: `memory://`, an instance whose time is the test's, and messages for handlers, on each server."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta

import pytest
import redis

from ampsq import Action, App, AsyncClient, Client, Destination, Do, On, Queue, Topic, View
from ampsq.base.errors import AlreadyAcked, DefinitionError, StaleLease, UnknownQueue
from ampsq.testing import Instance, message


@pytest.fixture(params=["memory", "valkey", "redis"])
def held(request, _session_servers):
    """An instance on each server."""
    server = "memory" if request.param == "memory" else _session_servers(request.param).url
    with Instance(server) as instance:
        yield instance


def test_what_is_settled_and_given_up_is_told_of_one_group(held):
    client = held.client
    client.apply(
        Queue(name="orders", group_by="/customer", max_deliveries=1, max_per_subscription_backlog=9),
        Queue(name="dead"),
        Action.dead_letter("orders", "dead"),
    )
    for customer, number in ((7, 1), ("b", 2), (7, 3), (None, 4), ("b", 5)):
        client.publish("orders", {"customer": customer, "n": number})
    client.publish("orders", {"customer": "b", "n": 6}, group="7")
    with client.subscribe("orders", max_backlog=9) as orders:
        for _ in range(6):
            order = orders.get("20s")
            if order.data["n"] == 5:
                order.expire()
            else:
                order.ack()
            orders.flush()

    def numbers(found):
        return [(how, data["n"]) for how, data in found]

    assert numbers(held.settled("orders", group="7")) == [("acknowledged", n) for n in (1, 3, 6)]
    assert numbers(held.settled("orders", group="b")) == [("acknowledged", 2), ("expired", 5)]
    assert held.settled("orders", group="nobody") == []
    assert len(held.settled("orders")) == 6
    assert numbers(held.dead_letters("dead", group="b")) == [("forced_expire", 5)]
    assert held.dead_letters("dead", group="7") == []


#: A script as they are composed: its flags, the name for calls, and a fault in the fifth line.
FAULTY = "#!lua\nlocal call = redis.call\nlocal function main()\n  local key = KEYS[1]\n  {}\nend\nreturn main()\n"


def test_a_fault_of_a_script_names_the_line_as_it_was_written(held):
    with redis.Redis(unix_socket_path=held._relay.url.removeprefix("unix://")) as plain:
        with pytest.raises(redis.ResponseError, match=r"user_script:5: attempt to index"):
            plain.eval(FAULTY.format("return key.none.more"), 1, "k")
        plain.set("k", "text")
        with pytest.raises(redis.ResponseError, match="WRONGTYPE") as failed:
            plain.eval(FAULTY.format("local found = call('HGETALL', key) return found"), 1, "k")
    # fakeredis does not say where a command failed.
    assert ("user_script:5" in str(failed.value)) == held._relay._backend.knows_shebang


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("?partitions=4", "has no partitions; allowed: the address without partitions="),
        ("?nothing=4", "unknown option"),
    ],
)
def test_an_address_that_an_instance_cannot_have_is_refused(options, told):
    with pytest.raises(DefinitionError, match=told):
        Instance(f"redis://localhost:1{options}")


def test_threads_and_tasks_share_the_server_of_a_name():
    url = "memory://shared-by-all"
    got = []

    def consume():
        with Client(url) as client, client.subscribe("work") as work:
            got.append(work.get("20s").data)

    async def publish():
        async with AsyncClient(url) as client:
            await client.publish("work", {"n": 1})

    with Client(url) as client:
        client.apply(Queue(name="work"))
    thread = threading.Thread(target=consume)
    thread.start()
    asyncio.run(publish())
    thread.join()

    assert got == [{"n": 1}]


def test_another_name_is_another_server():
    with Client("memory://one") as one, Client("memory://two") as two:
        one.apply(Queue(name="work"))

        assert "work" in one.admin.queues()
        assert two.admin.queues() == {}


def test_a_coordinator_does_its_duties_in_memory():
    with Client("memory://duties") as client:
        client.apply(Queue(name="work", lease_period="300ms"))
        client.publish("work", {"n": 1})
        with client.subscribe("work") as work:
            assert work.get("10s").delivery == 1

            assert work.get("20s").delivery == 2


@pytest.mark.parametrize("url", ["memory://user@name", "memory://name/1", "memory://a,memory://b", "memory://a?x=1"])
def test_an_address_in_memory_is_a_name_alone(url):
    with pytest.raises(DefinitionError, match="memory://NAME"):
        Client(url)


def test_time_stands_until_the_test_moves_it(held):
    before = held.now

    held.advance("90m")

    assert held.now - before == timedelta(minutes=90)


def test_leases_lapse_when_the_test_says_so(held):
    client = held.client
    client.apply(Queue(name="work", lease_period="30s"))
    client.publish("work", {"n": 1})
    with client.subscribe("work") as work:
        slow = work.get("10s")
        held.advance("29s")
        assert work.get(0) is None

        held.advance("2s")

        with pytest.raises(StaleLease):
            slow.ack(wait=True)
        assert work.get("10s").delivery == 2


def test_messages_expire_in_the_order_of_their_times(held):
    client = held.client
    client.apply(Queue(name="long", expiration="2h"))
    client.publish("long", {"n": 1})
    held.advance("30m")
    client.publish("long", {"n": 2})

    held.advance("95m")
    assert held.settled("long") == [("expired", {"n": 1})]

    held.advance("30m")
    assert held.settled("long") == [("expired", {"n": 1}), ("expired", {"n": 2})]


def test_a_message_that_is_handed_back_with_a_delay_comes_then(held):
    client = held.client
    client.apply(Queue(name="work"))
    client.publish("work", {"n": 1})
    with client.subscribe("work") as work:
        work.get("10s").cancel("10m")
        held.advance("9m")
        assert work.get(0) is None

        held.advance("61s")

        assert work.get("10s").delivery == 2


def test_actions_run_at_each_of_their_times(held):
    client = held.client
    client.apply(
        Topic(name="ticks"), Action(name="tick", on=On.schedule(every="10m"), do=Do.publish(topic="ticks", data="{}"))
    )
    held.advance(0)

    held.advance("35m")

    assert client.admin.topics()["ticks"].messages == 3


def test_a_topic_keeps_no_more_than_its_retention_after_a_long_rest_either(held):
    client = held.client
    client.apply(Topic(name="orders", retention_age="1m"))
    for _ in range(20):
        held.advance("1m")
    client.publish_many("orders", range(3))

    held.advance("2h")

    assert client.admin.topics()["orders"].messages == 0


def test_views_are_kept(held):
    client = held.client
    client.apply(
        Topic(name="orders"),
        View(name="totals", underlying_topic="orders", projection=["SUM(/n) AS /total"], grouping=["/kind"]),
    )
    client.publish("orders", {"kind": "a", "n": 2})
    client.publish("orders", {"kind": "a", "n": 3})

    held.advance("1s")

    assert [row.data["total"] for row in client.sow("totals")] == [5]


def test_a_view_of_a_queue_goes_on_over_any_time(held):
    client = held.client
    client.apply(
        Queue(name="work"),
        View(name="waiting", underlying_topic="work", projection=["COUNT(*) AS /n"], grouping=["/k"]),
    )
    client.publish_many("work", [{"k": 1}] * 3)
    held.advance("1s")
    counts = [[row.data["n"] for row in client.sow("waiting")]]
    with client.subscribe("work") as work:
        for period in ("1m", "1h"):
            held.advance(period)
            work.get("10s").ack(wait=True)
            held.advance("1s")
            counts.append([row.data["n"] for row in client.sow("waiting")])

    # The next one is leased at once, and so available no more
    assert counts == [[3], [1], []]


def test_a_view_of_a_pattern_finds_a_topic_that_comes_later(held):
    client = held.client
    client.apply(View(name="totals", underlying_topic="^orders-", projection=["SUM(/n) AS /total"], grouping=["/kind"]))
    held.advance("1s")
    client.publish("orders-new", {"kind": "a", "n": 2})

    held.advance("2s")

    assert [row.data["total"] for row in client.sow("totals")] == [2]


def test_a_client_that_is_there_keeps_its_subscription_over_any_time(held):
    client = held.client
    client.apply(Queue(name="work"))
    with client.subscribe("work") as work:
        assert work.get(0) is None

        held.advance("3h")
        client.publish("work", {"n": 1})

        assert work.get("10s").data == {"n": 1}


def test_no_script_asks_the_server_for_its_time(start_server):
    server = start_server("valkey")
    with Instance(server.url) as held:
        client = held.client
        client.apply(Queue(name="work", lease_period="30s", expiration="1h"), Queue(name="dead"))
        client.publish("work", {"n": 1})
        with client.subscribe("work") as work:
            work.get("10s").ack(wait=True)
        client.publish("work", {"n": 2})
        held.advance("2h")
        with server.client() as plain:
            calls = plain.info("commandstats")

    assert "cmdstat_evalsha" in calls
    assert "cmdstat_time" not in calls


def test_an_instance_on_a_server_leaves_nothing_behind(valkey):
    with valkey.client() as plain:
        with Instance(valkey.url) as held:
            held.client.apply(Queue(name="work"))
            assert list(plain.scan_iter(match="{" + held.name + "}:*"))
        assert not list(plain.scan_iter(match="{" + held.name + "}:*"))
        assert not plain.sismember("ampsq:instances", held.name)


def test_what_is_no_queue_has_settled_nothing(held):
    with pytest.raises(UnknownQueue):
        held.settled("nothing")
    with pytest.raises(UnknownQueue):
        held.dead_letters("nothing")


def test_a_server_that_is_none_is_refused():
    with pytest.raises(DefinitionError, match="allowed are memory"):
        Instance("sqlite")


def test_a_message_notes_what_became_of_it():
    acknowledged, cancelled, expired = message({"n": 1}, headers={"a": "b"}), message(b"{}"), message([1], delivery=3)

    acknowledged.extend("5s")
    acknowledged.ack()
    cancelled.cancel("2s", reason="later")
    expired.expire(reason="never")

    assert (acknowledged.outcome, acknowledged.extended, acknowledged.headers) == ("acknowledged", [5000], {"a": "b"})
    assert (cancelled.outcome, cancelled.delay, cancelled.reason) == ("cancelled", 2000, "later")
    assert (expired.outcome, expired.reason, expired.delivery) == ("expired", "never", 3)
    assert (acknowledged.data, acknowledged.queue, acknowledged.topic) == ({"n": 1}, "work", "work")
    assert "work" in repr(acknowledged)


def test_a_message_is_settled_once():
    order = message({"n": 1})
    order.ack()

    with pytest.raises(AlreadyAcked):
        order.cancel()


def test_what_a_holder_reports_is_shown_until_its_lease_lapses(held):
    with Client(held.url) as client:
        client.apply(Queue(name="work", lease_period="30s"))
        bookmark = client.publish("work", 1)
        with client.subscribe("work") as work:
            message = work.get("5s")
            held.advance("20s")
            message.report(0.4, "page 40 of 100")
            held.advance("20s")
            report = client.admin.explain("work", bookmark).facts["lease"]["progress"]
            assert (report["done"], report["text"]) == (0.4, "page 40 of 100")

            held.advance("11s")

            with pytest.raises(StaleLease):
                message.report(0.9)
            assert "progress" not in client.admin.explain("work", bookmark).facts.get("lease", {})


# -- an app's handlers


def test_handle_runs_an_app_until_nothing_may_be_delivered_and_retries_come_with_the_time(held):
    # Given an app, one of whose messages fails, and one fails at first
    app = App()

    @app.handler("orders", retries=2, backoff="10s", dead_letters="dead", concurrency=2)
    def handle(message):
        if message.data == "bad" or (message.data == "late" and message.delivery == 1):
            raise ValueError(message.data)

    held.client.apply(*app.definitions)
    held.client.publish_many("orders", ["good", "bad", "late"])

    # When it runs, and again once the delay is over
    held.handle(app)
    first = held.settled("orders")
    held.handle(app)
    again = held.settled("orders")
    held.advance("10s")
    held.handle(app)
    second = held.settled("orders")
    held.advance("10s")
    held.handle(app)

    # Then each was handled when it was due, and the bad one is a dead letter
    assert first == again == [("acknowledged", "good")]
    assert second == [("acknowledged", "good"), ("acknowledged", "late")]
    assert held.dead_letters("dead") == [("max_deliveries", "bad")]


def test_handle_says_which_queue_has_messages_left_and_raises_what_a_worker_does(held):
    app, go_on = App(), threading.Event()
    app.handler("orders", retries=2)(lambda _: go_on.wait(60))
    held.client.apply(*app.definitions)
    held.client.publish("orders", 1)

    try:
        with pytest.raises(TimeoutError, match="after '300ms' messages are still in orders; does"):
            held.handle(app, timeout="300ms")
    finally:
        go_on.set()
    with pytest.raises(DefinitionError, match="the app has no handler"):
        held.handle(App())
    unknown = App()
    unknown.handler("nowhere")(print)
    with pytest.raises(UnknownQueue, match="nowhere"):
        held.handle(unknown)


# -- what it can and cannot


def test_messages_of_msgpack_are_filtered_and_handled(held):
    held.client.apply(
        Topic(name="orders", message_type="msgpack"),
        Queue(name="large", underlying_topic="orders", message_type="msgpack", filter="/qty > 10"),
    )
    held.client.publish_many("orders", [{"qty": 1}, {"qty": 11, "body": b"\x00\xff"}])

    with held.client.subscribe("large") as large:
        message = large.get("30s")
        message.ack(wait=True)

    assert message.data == {"qty": 11, "body": b"\x00\xff"}
    assert held.settled("large") == [("acknowledged", {"qty": 11, "body": b"\x00\xff"})]


def test_a_server_inside_the_process_is_no_destination():
    with pytest.raises(DefinitionError, match=r"'memory://two': a server inside a process has no links"):
        Destination(name="two", sync_type="async", topics=["orders"], addresses=["memory://two"])
