"""Actions as the documents make them for what people want: dead letters, copies, counts, words of what is late."""

from __future__ import annotations

import json
import logging
import textwrap

from observing import eventually
from scene import pick_up

from ampsq import Action, Do, On, Topic, View
from ampsq.files.config import load


def define(client, text):
    client.apply(*load(textwrap.dedent(text)))


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
