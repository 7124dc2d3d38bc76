"""Actions as the documents tell of them: on what condition they do something, and what."""

from __future__ import annotations

import json

import pytest
from observing import eventually

from ampsq import Action, Do, If, Queue, Topic
from ampsq.base.errors import DefinitionError, UnknownQueue
from ampsq.coordinator.actions import Actions, OutsidePermissions

# -- the documents' recipes


# -- On


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


def test_a_message_without_the_key_of_its_topic_stays_failed_however_often_it_is_tried_again(client, act):
    # Given dead letters that go into a topic with a key
    client.apply(
        Topic(name="dead", key="/id"),
        Queue(name="work"),
        Action(name="route", on={"expire": "work"}, do=Do.publish(topic="dead", data="{{AMPS_DATA}}")),
    )
    # When one has the key and one has it not
    client.ack("work", client.publish_many("work", [{"x": 1}, {"id": 7}]), "expire")
    act()
    client.admin.retry_action("route")
    act()
    # Then the first is kept as failed, and what is recorded has its record
    (event,) = client.admin.failed_events("route")
    assert "does not have exactly one value" in event.error
    assert event.tries > 1
    assert client.admin.topics()["dead"].messages == 1
    assert [message.data for message in client.sow("dead")] == [{"id": 7}]


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
