"""Triggers of actions: messages, deliveries, records, clients that come and go, times."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from observing import eventually
from scene import pick_up

from ampsq import Action, Do, On, Queue, Topic
from ampsq.protocol.schema import key


def test_an_acknowledged_message_sets_off_on_delete(client, act, published):
    client.apply(
        Queue(name="work"),
        Action(name="done", on={"delete": "work"}, do=Do.publish(topic="log", data="{{AMPS_BOOKMARK}} {{AMPS_DATA}}")),
    )
    bookmarks = [client.publish("work", text) for text in ("acknowledged", "expired")]
    client.ack("work", bookmarks[0])
    client.ack("work", bookmarks[1], "expire")
    act()
    assert published("log") == [f'{bookmarks[0]} "acknowledged"'.encode()]


def test_a_delivery_tells_to_whom(client, act, published):
    client.apply(
        Queue(name="work", underlying_topic="orders"),
        Queue(name="other"),
        Action(
            name="who",
            on=On.deliver(topic="^w"),
            do=Do.publish(topic="log", data="{{AMPS_TOPIC}} {{AMPS_CLIENT_NAME}} {{AMPS_DATA_LENGTH}}"),
        ),
    )
    client.publish_many("orders", ["one", "two"])
    client.publish("other", "three")
    with client.subscribe("work") as messages, client.subscribe("other") as others:
        pick_up(others, 1)
        first = pick_up(messages, 1)[0]
        first.cancel()
        pick_up(messages, 1)[0].ack(wait=True)
        pick_up(messages, 1)
    act()
    who = client._session.client
    assert published("log") == [f"work {who} 5".encode()] * 3


def test_a_queue_records_deliveries_only_where_somebody_reads_them(client, valkey):
    client.apply(Queue(name="plain"), Queue(name="told", record_deliveries=True), Queue(name="watched"))
    client.apply(Action(name="who", on=On.deliver(topic="watched"), do=Do.echo(message="x")))
    for queue in ("plain", "told", "watched"):
        client.publish(queue, 1)
        with client.subscribe(queue) as messages:
            pick_up(messages, 1)
    with valkey.client() as redis:
        lengths = {q: redis.xlen(key(client.instance, "deliveries", q)) for q in ("plain", "told", "watched")}
        assert lengths["plain"] == 0
        assert lengths["told"] >= 1
        assert lengths["watched"] >= 1
        # And not any more when nobody does
        client.apply(Queue(name="told"), Action(name="who", on=On.deliver(topic="plain"), do=Do.echo(message="x")))
        for queue in ("plain", "told", "watched"):
            client.publish(queue, 1)
            with client.subscribe(queue) as messages:
                pick_up(messages, 1)
        after = {q: redis.xlen(key(client.instance, "deliveries", q)) for q in ("plain", "told", "watched")}
    assert after["plain"] > 0
    assert (after["told"], after["watched"]) == (lengths["told"], lengths["watched"])


def test_a_filter_and_a_pattern_choose_what_is_published(client, act, published):
    client.apply(
        Topic(name="orders-a"),
        Action(
            name="large",
            on=On.publish(topic="^orders-", filter="/qty > 1"),
            do=Do.publish(topic="large-{{AMPS_TOPIC}}"),
        ),
    )
    for topic in ("orders-a", "orders-b", "others"):
        client.publish_many(topic, [{"qty": 1}, {"qty": 2}, {"qty": 3}])
    act()
    assert published("large-orders-a") == published("large-orders-b") == [b'{"qty":2}', b'{"qty":3}']
    assert "large-others" not in client.admin.topics()


def test_subscriptions_and_clients_that_come_and_go_are_told(client, connect, act, published):
    client.apply(
        Queue(name="work"),
        Queue(name="other"),
        Action(
            name="visitors",
            on=["connect", "disconnect", {"subscribe": "work"}, {"unsubscribe": "^w"}],
            do=Do.publish(topic="log", data="{{AMPS_CLIENT_NAME}}|{{AMPS_TOPIC}}|{{AMPS_OPTIONS}}|{{AMPS_FILTER}}"),
        ),
    )
    visitor = connect()
    with visitor.subscribe("work", max_backlog=5, filter="/price > 10"), visitor.subscribe("other"):
        pass
    visitor.close()
    act()
    who = visitor._session.client
    told = [body.decode() for body in published("log")]
    assert sorted(told) == sorted(
        [
            f"{who}|||",
            f"{who}|work|max_backlog=5|/price > 10",
            f"{who}|work|max_backlog=5|/price > 10",
            f"{who}|||",
        ]
    )


@pytest.mark.parametrize("subscribes", [True, False])
def test_a_killed_client_is_told_once_however_many_coordinators_look(  # noqa: PLR0917
    valkey, client, instance, start_coordinator, published, subscribes
):
    client.apply(
        Queue(name="work"),
        Action(name="gone", on="disconnect", do=Do.publish(topic="log", data="{{AMPS_CLIENT_NAME}}")),
    )
    start_coordinator()
    start_coordinator()
    code = (
        "import ampsq, sys, time; c = ampsq.Client(sys.argv[1], instance=sys.argv[2]); "
        + ("s = c.subscribe('work'); " if subscribes else "")
        # Until it is killed
        + "print(c._session.client, flush=True); time.sleep(60)"
    )
    arguments = [sys.executable, "-c", code, valkey.url, instance]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env={**os.environ}) as process:
        name = process.stdout.readline().strip()
        process.send_signal(signal.SIGKILL)
    # A server that was just started gives clients twelve seconds to come back.
    eventually(lambda: published("log"), within=25.0)
    assert published("log") == [name.encode()]


def test_an_event_that_one_action_raises_sets_off_another(client, act, published):
    client.apply(
        Queue(name="work"),
        Action(name="first", on={"expire": "work"}, do=Do.event(event="lost", data="lost {{AMPS_DATA}}")),
        Action(name="second", on={"event": "lost"}, do=Do.publish(topic="log", data="{{AMPS_EVENT}}: {{AMPS_DATA}}")),
        Action(name="third", on={"event": "found"}, do=Do.publish(topic="log", data="never")),
    )
    client.ack("work", [client.publish("work", 1)], "expire")
    act()
    assert published("log") == [b"lost: lost 1"]


def test_a_schedule_fires_on_time_and_once_for_what_was_missed(client, act, published):
    client.apply(Action(name="tick", on={"schedule": "100ms"}, do=Do.publish(topic="ticks", data="{{AMPS_TIMESTAMP}}")))
    act(1)
    # Given that no coordinator ran for several periods
    time.sleep(0.55)  # five periods
    act(1)
    assert len(published("ticks")) == 1
    # When it runs again, it is told of the next one
    eventually(lambda: act(1) or len(published("ticks")) == 2)


def test_a_cron_line_fires_once_for_what_was_missed(valkey, client, act, published):
    daily = On.schedule(cron="30 20 * * *", time_zone="Asia/Tokyo")
    client.apply(Action(name="tick", on=daily, do=Do.publish(topic="ticks", data="{{AMPS_TIMESTAMP}}")))
    act(2)
    assert published("ticks") == []
    # Given that it was looked for last more than two days ago
    with valkey.client() as redis:
        place = key(client.instance, "action", "tick")
        cursor = next(field for field in redis.hkeys(place) if field.startswith(b"cursor schedule 30 20"))
        redis.hincrby(place, cursor, -50 * 3_600_000)
    act(2)
    (tick,) = published("ticks")
    assert tick.decode().partition("T")[2].startswith("11:30:00")
