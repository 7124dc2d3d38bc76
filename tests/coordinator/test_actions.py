"""Actions as the documents tell of them: what sets them off, on what condition, and what they do."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from observing import eventually
from scene import pick_up

from ampsq import Action, Do, If, On, Queue, Topic, View
from ampsq.base.errors import DefinitionError, UnknownQueue
from ampsq.coordinator.actions import Actions, OutsidePermissions
from ampsq.files.config import load
from ampsq.protocol.schema import key


@pytest.fixture
def published(valkey, client):
    """What was published to a topic: bodies, in order."""

    def read(topic):
        with valkey.client() as redis:
            return [fields[b"b"] for _, fields in redis.xrange(key(client.instance, "log", topic))]

    return read


@pytest.fixture
def act(client):
    """Rounds of the duty, until nothing more is to be done."""
    duty = Actions()

    def rounds(number=3, duty=duty):
        for _ in range(number):
            while not duty.run_once(client._store):
                pass

    return rounds


def define(client, text):
    client.apply(*load(textwrap.dedent(text)))


# -- the documents' recipes


def test_the_documents_dead_letter_queue_works_word_for_word(client, act):
    # Given the queues of "Handling Unprocessed Messages" and its action
    define(
        client,
        """
        queues:
          - {name: Jobs, max_cancels: 3, max_deliveries: 10}
          - {name: FailedJobs}
        actions:
          - name: failed-jobs
            on:
              - expire: {topic: Jobs}
            do:
              - publish:
                  topic: FailedJobs
                  data: '{ "message": {{AMPS_DATA}}, "reason": "{{AMPS_REASON}}" }'
        """,
    )
    # When a job is cancelled for the third time, and another one is expired by its consumer
    client.publish("Jobs", b'{"job" : 1.50}')
    with client.subscribe("Jobs") as jobs:
        for _ in range(3):
            pick_up(jobs, 1)[0].cancel()
        client.publish("Jobs", {"job": 2})
        pick_up(jobs, 1)[0].expire()
    act()
    # Then the other queue has both, the original byte by byte
    with client.subscribe("FailedJobs") as failed:
        first = pick_up(failed, 1)[0]
        assert first.raw == b'{ "message": {"job" : 1.50}, "reason": "max_cancels" }'
        first.ack(wait=True)
        assert pick_up(failed, 1)[0].data == {"message": {"job": 2}, "reason": "forced_expire"}


def test_two_queues_share_one_dead_letter_topic(client, act, published):
    define(
        client,
        """
        queues: [{name: one}, {name: two}]
        actions:
          - name: graveyard
            on:
              - expire: one
              - expire: two
            do:
              - publish: {topic: dead, data: '{"queue": "{{AMPS_TOPIC}}", "message": {{AMPS_DATA}}}'}
        """,
    )
    for queue in ("one", "two", "one"):
        client.ack(queue, [client.publish(queue, queue)], "expire")
    act()
    assert sorted(json.loads(body)["message"] for body in published("dead")) == ["one", "one", "two"]
    assert all(letter["queue"] == letter["message"] for letter in map(json.loads, published("dead")))


def test_what_is_pending_for_too_long_is_copied_once_by_key(client, act, published):
    # Given the recipe "copy Orders PENDING over 5 s to Orders_Stale", with a shorter time, over a topic with a key
    define(
        client,
        """
        topics: [{name: Orders}]
        actions:
          - name: stale-orders
            on:
              - timeout: {topic: Orders, duration: 300ms, filter: /status = 'PENDING', key: /id}
            do:
              - publish: {topic: Orders_Stale, data: "{{AMPS_DATA}}"}
        """,
    )
    # When one order stays pending, although it changes, one is filled in time, and one is pending again
    client.publish("Orders", {"id": 1, "status": "PENDING", "qty": 1})
    client.publish("Orders", {"id": 2, "status": "PENDING"})
    client.publish("Orders", {"id": 3, "status": "NEW"})
    client.publish("Orders", {"id": 2, "status": "FILLED"})
    client.publish("Orders", {"id": 1, "status": "PENDING", "qty": 2})
    act()
    assert published("Orders_Stale") == []
    eventually(lambda: act() or published("Orders_Stale"))
    # Then the last state of the one is copied, once
    act()
    assert [json.loads(body) for body in published("Orders_Stale")] == [{"id": 1, "status": "PENDING", "qty": 2}]
    # And only when it was something else meanwhile, again
    client.publish("Orders", {"id": 1, "status": "PENDING", "qty": 3})
    client.publish("Orders", {"id": 2, "status": "PENDING"})
    eventually(lambda: act() or len(published("Orders_Stale")) == 2)
    assert json.loads(published("Orders_Stale")[1]) == {"id": 2, "status": "PENDING"}


def test_the_end_of_a_record_ends_its_condition(client, act, published):
    # Given a topic that keeps records, and a condition of the same key, its parts in another order
    client.apply(
        Topic(name="orders", key=["/symbol", "/id"]),
        Action(
            name="stale",
            on=On.timeout(topic="orders", duration="200ms", filter="/status = 'PENDING'", key=["/id", "/symbol"]),
            do=Do.publish(topic="alarms", data="{{AMPS_SOW_KEY}}"),
        ),
    )
    # When records that match are deleted in time, one whose parts have to be escaped, and of another only its like
    for symbol, number in (("A", 1), ("B|C\\", 2), ("D", 3.5), ("E", "4"), ("F", 5)):
        client.publish("orders", {"symbol": symbol, "id": number, "status": "PENDING"})
    assert client.sow_delete("orders", keys=[("A", 1), ("B|C\\", 2), ("D", 3.5), ("F", 6)]) == 3
    assert client.sow_delete("orders", filter="/symbol = 'E'") == 1
    act()
    eventually(lambda: act() or published("alarms"))
    act()
    # Then only the one that is left is told
    assert published("alarms") == [b'[5,"F"]']
    # And what comes again begins anew
    client.publish("orders", {"symbol": "A", "id": 1, "status": "PENDING"})
    eventually(lambda: act() or len(published("alarms")) == 2)
    assert published("alarms")[1] == b'[1,"A"]'


def test_the_end_of_a_record_of_another_key_ends_no_condition(client, act, published):
    client.apply(
        Topic(name="orders", key="/id"),
        Action(
            name="stale",
            on=On.timeout(topic="orders", duration="200ms", filter="/status = 'PENDING'", key="/symbol"),
            do=Do.publish(topic="alarms", data="{{AMPS_SOW_KEY}}"),
        ),
    )
    client.publish("orders", {"symbol": "7", "id": 7, "status": "PENDING"})
    client.sow_delete("orders", keys=[7])
    eventually(lambda: act() or published("alarms"))
    assert published("alarms") == [b'["7"]']


def test_what_exceeds_a_time_in_a_view_is_told(client, published, start_coordinator):
    client.apply(
        Topic(name="orders"),
        View(
            name="open",
            underlying_topic="orders",
            projection=["/symbol", "SUM(/qty) AS /total"],
            grouping=["/symbol"],
        ),
        Action(
            name="large",
            on=On.timeout(topic="open", duration="200ms", filter="/total > 10"),
            do=Do.publish(topic="alarms", data="{{AMPS_SOW_KEY}} {{AMPS_DATA}}"),
        ),
    )
    start_coordinator()
    client.publish_many("orders", [{"symbol": "A", "qty": 6}, {"symbol": "B", "qty": 11}, {"symbol": "A", "qty": 4}])
    eventually(lambda: published("alarms"))
    assert published("alarms") == [b'["B"] {"symbol":"B","total":11}']


def test_each_message_is_counted_and_told(client, act, caplog):
    # Given the recipe of increment and echo
    define(
        client,
        """
        topics: [{name: orders}]
        actions:
          - name: counting
            on: {publish: orders}
            do:
              - increment: {key: "seen {{AMPS_TOPIC}}", value: COUNT}
              - echo: "{{COUNT}} on {{AMPS_TOPIC}}: {{AMPS_DATA}}{{NOTHING}}"
        """,
    )
    client.publish_many("orders", ["a", "b", "c"])
    with caplog.at_level(logging.INFO, logger="ampsq.actions"):
        act()
    assert [record.getMessage() for record in caplog.records if record.name == "ampsq.actions"] == [
        'counting: 1 on orders: "a"',
        'counting: 2 on orders: "b"',
        'counting: 3 on orders: "c"',
    ]


def test_a_topic_is_copied_in_order_byte_by_byte(client, act, published):
    define(
        client,
        """
        topics: [{name: orders}]
        actions:
          - name: copy
            on: {publish: {topic: orders}}
            do: {publish: {topic: orders-copy, data: "{{AMPS_DATA}}"}}
        """,
    )
    bodies = [b'{"a" : 1.0}', b"\x00\xff{{AMPS_DATA}}", b"", b"{{NOTHING}}"] + [b"%d" % n for n in range(700)]
    client.publish_many("orders", bodies)
    act()
    assert published("orders-copy") == bodies


# -- On


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
        + "print(c._session.client, flush=True); time.sleep(60)"
    )
    arguments = [sys.executable, "-c", code, valkey.url, instance]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env={**os.environ}) as process:
        name = process.stdout.readline().strip()
        process.send_signal(signal.SIGKILL)
    # A server that was just started gives clients ten seconds to come back.
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
    time.sleep(0.55)
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


# -- If


def test_a_condition_that_is_false_ends_an_action_quietly(client, act, published):
    client.apply(
        Queue(name="work"),
        Action(
            name="large",
            on={"expire": "work"},
            if_=[{"condition": "/qty > 10 AND '{{AMPS_REASON}}' = 'forced_expire'"}],
            do=Do.publish(topic="dead", data="{{AMPS_DATA}}"),
        ),
        Action(
            name="full",
            on={"expire": "work"},
            if_=If.file_system_usage(path="/", greater_than="100%"),
            do=Do.publish(topic="dead", data="never"),
        ),
    )
    client.ack("work", client.publish_many("work", [{"qty": 5}, {"qty": 50}]), "expire")
    act()
    assert published("dead") == [b'{"qty":50}']
    assert {name: (state.done, state.failed) for name, state in client.admin.actions().items()} == {
        "large": (2, 0),
        "full": (2, 0),
    }


# -- Do


def test_values_are_extracted_translated_and_looked_up(client, act, published):
    client.apply(
        Queue(name="work"),
        Queue(name="limits", priority="/limit"),
        Action(
            name="enrich",
            on={"expire": "work"},
            do=[
                Do.extract(value=["SYMBOL=/symbol", "VALUE=/price * /qty", "NONE=/nothing"]),
                Do.translate(data="{{AMPS_REASON}}", value="WHY", case=["forced_expire=rejected", "max_cancels=tired"]),
                Do.translate(data="{{SYMBOL}}", value="KIND", case="MSFT=software", default="other"),
                Do.query(
                    topic="limits",
                    filter="/symbol = '{{SYMBOL}}'",
                    capture_data="LIMIT",
                    default_data="null",
                    order_by="/limit DESC",
                ),
                Do.publish(
                    topic="log", data='{"s":"{{SYMBOL}}","v":{{VALUE}},"w":"{{WHY}}","k":"{{KIND}}","l":{{LIMIT}}}'
                ),
            ],
        ),
    )
    client.publish_many("limits", [{"symbol": "IBM", "limit": 1}, {"symbol": "IBM", "limit": 9}])
    bodies = [{"symbol": "IBM", "price": 2.5, "qty": 4}, {"symbol": "MSFT", "price": 1, "qty": 2}]
    client.ack("work", client.publish_many("work", bodies), "expire")
    act()
    assert [json.loads(body) for body in published("log")] == [
        {"s": "IBM", "v": 10.0, "w": "rejected", "k": "other", "l": {"symbol": "IBM", "limit": 9}},
        {"s": "MSFT", "v": 2, "w": "rejected", "k": "software", "l": None},
    ]


def test_messages_are_acknowledged_by_filter(client, act):
    client.apply(
        Queue(name="work"),
        Topic(name="cancellations"),
        Action(
            name="cancel",
            on={"publish": "cancellations"},
            do=[Do.extract(value="ID=/id"), Do.delete(topic="work", filter="/id = {{ID}}")],
        ),
    )
    client.publish_many("work", [{"id": 1}, {"id": 2}])
    client.publish("cancellations", {"id": 1})
    act()
    assert [message.data for message in client.sow("work")] == [{"id": 2}]


def test_records_are_deleted_by_filter_and_without_one_all(client, act):
    client.apply(
        Topic(name="orders", key="/id"),
        Topic(name="quotes", key="/id"),
        Queue(name="quoted", underlying_topic="quotes"),
        Topic(name="evenings"),
        Action(
            name="evening",
            on={"publish": "evenings"},
            do=[
                Do.delete(topic="orders", filter="/status = 'filled' AND LAST_UPDATED() <= {{AMPS_UNIX_TIMESTAMP}}"),
                Do.delete(topic="^quo"),
            ],
        ),
    )
    client.publish_many("orders", [{"id": 1, "status": "filled"}, {"id": 2, "status": "open"}])
    client.publish_many("quotes", [{"id": number} for number in range(1200)])
    assert len(client.sow("quoted")) == 1200
    client.publish("evenings", 1)
    act()
    assert [record.data["id"] for record in client.sow("orders")] == [2]
    assert client.sow("quotes") == client.sow("quoted") == []
    client.publish("quotes", {"id": 7})
    act()
    assert [record.data for record in client.sow("quotes")] == [{"id": 7}]


def test_a_record_is_looked_up(client, act, published):
    client.apply(
        Topic(name="limits", key="/symbol"),
        Topic(name="orders"),
        Action(
            name="limit",
            on={"publish": "orders"},
            do=[
                Do.extract(value="SYMBOL=/symbol"),
                Do.query(topic="limits", filter="/symbol = '{{SYMBOL}}'", capture_data="LIMIT", default_data="none"),
                Do.query(topic="^lim", order_by="/limit DESC", capture_data="MOST"),
                Do.publish(topic="log", data="{{LIMIT}} {{MOST}}"),
            ],
        ),
    )
    client.publish_many("limits", [{"symbol": "IBM", "limit": 5}, {"symbol": "IBM", "limit": 6}])
    client.publish("limits", {"symbol": "MSFT", "limit": 7})
    client.publish_many("orders", [{"symbol": "IBM"}, {"symbol": "AAPL"}])
    act()
    most = b' {"symbol":"MSFT","limit":7}'
    assert published("log") == [b'{"symbol":"IBM","limit":6}' + most, b"none" + most]


def test_a_queue_of_bodies_that_no_expression_reads_is_emptied_without_a_filter(client, act):
    client.apply(
        Queue(name="pictures", message_type="binary"),
        Topic(name="evenings"),
        Action(name="evening", on={"publish": "evenings"}, do=Do.delete(topic="pictures")),
    )
    client.publish_many("pictures", [b"\x00", b"\xff"])
    client.publish("evenings", 1)
    act()
    assert client.sow("pictures") == []


def test_what_has_neither_messages_nor_records_to_delete_is_refused(client):
    client.apply(Topic(name="orders"), Queue(name="work"))
    with pytest.raises(DefinitionError, match=r"'orders' is a topic without a key.*allowed: a queue, or a topic with"):
        client.apply(Action(name="a", on={"schedule": "1h"}, do=Do.delete(topic="orders")))
    with pytest.raises(UnknownQueue, match="'wrk' is no queue; did you mean 'work'"):
        client.apply(Action(name="a", on={"schedule": "1h"}, do=Do.delete(topic="wrk")))


def test_a_byte_can_be_written_by_its_number(client, act, published):
    client.apply(
        Topic(name="orders"),
        Action(
            name="bytes",
            on={"publish": "orders"},
            do=Do.publish(topic="log", data="{{AMPS_INSTANCE_NAME}}{{AMPS_BYTE_0a}}{{AMPS_BYTE_01}}{{AMPS_BYTE_XY}}"),
        ),
    )
    client.publish("orders", 1)
    act()
    assert published("log") == [f"{client.instance}\n\x01".encode()]


def test_programs_and_webhooks_run_only_where_that_is_allowed(client, act, tmp_path, published):
    # Given an action that runs a program, whose argument a message chooses
    target = tmp_path / "out"
    client.apply(
        Topic(name="orders"),
        Action(
            name="run",
            on={"publish": "orders"},
            do=[
                Do.execute(command=f'sh -c \'cat > "$0"; printf " %s" "$1" >> "$0"\' {target} \'{{{{AMPS_DATA}}}}\''),
                Do.publish(topic="log", data="ran"),
            ],
        ),
    )
    client.publish("orders", b"x; $(rm -rf /) ' \" y")
    # When there is only a coordinator that may not, the step fails visibly and nothing behind it is done
    unable = Actions()
    act(duty=unable)
    assert client.admin.actions()["run"].failed == 0
    unable._left_at["run"] -= 60
    unable._retry_at.clear()
    act(duty=unable)
    assert published("log") == []
    (event,) = client.admin.failed_events("run")
    assert (event.what, event.step, event.tries) == ("execute", 0, 1)
    assert "--allow-commands" in event.error
    # And where one may that comes later, the program gets the message as its input and as one argument
    allowed = Actions(OutsidePermissions(commands=True))
    client.admin.retry_action("run")
    eventually(lambda: act(duty=allowed) or published("log"))
    assert published("log") == [b"ran"]
    assert target.read_bytes() == b"x; $(rm -rf /) ' \" y x; $(rm -rf /) ' \" y"
    assert client.admin.failed_events("run") == []


# -- what is refused


@pytest.mark.parametrize(
    ("action", "match"),
    [
        (Action(name="a", on={"publish": "work"}, do={"publish": "x"}), "is a queue over 'orders'.*would lease them"),
        (
            Action(name="a", on={"timeout": {"topic": "work", "duration": "5s"}}, do={"publish": "x"}),
            "is a queue, whose messages are leased",
        ),
        (
            Action(name="a", on={"timeout": {"topic": "orders", "duration": "5s"}}, do={"publish": "x"}),
            "keeps a state only by a key",
        ),
        (Action(name="a", on={"publish": "orders"}, do={"publish": "orders"}), "would make another one"),
        (Action(name="a", on={"publish": "orders"}, do={"publish": "work"}), "would make another one"),
        (Action(name="a", on={"deliver": "work"}, do={"publish": "orders"}), "would come back"),
        (
            Action(name="a", on={"publish": "orders"}, do={"query": "orders"}),
            "is a topic without a key, which keeps no records",
        ),
    ],
)
def test_what_an_action_cannot_follow_or_do_is_refused_with_the_reason(client, action, match):
    client.apply(Queue(name="work", underlying_topic="orders"))
    with pytest.raises(DefinitionError, match=match):
        client.apply(action)
    assert client.admin.actions() == {}


@pytest.mark.parametrize("on", ["expire", "delete", "deliver"])
def test_an_action_about_an_unknown_queue_is_refused(client, on):
    with pytest.raises(UnknownQueue, match="nothing"):
        client.apply(Action(name="a", on={on: "nothing"}, do=Do.echo(message="x")))
