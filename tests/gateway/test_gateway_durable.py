"""Durable subscriptions over WebSockets: what was handled is kept at the server, by user and name."""

from __future__ import annotations

import pytest
from gateway_scene import Asking
from websockets.exceptions import ConnectionClosed

#: Seconds that everything has on a crowded machine.
WITHIN = 30
SECOND = """
  - {user: till, name: orders, rights: read}
"""


def opened(asking, **options):
    return asking.open("/v1/subscribe", topic="orders", sub_id="audit", **options)


def taken(socket, number):
    return [socket.get(WITHIN) for _ in range(number)]


def test_what_was_handled_does_not_come_again_and_what_was_not_does(audit):
    audit.publish("orders", *range(5))
    with opened(audit) as socket:
        assert socket.get(WITHIN)["type"] == "subscribed"
        messages = taken(socket, 5)
        assert [each["data"] for each in messages] == [0, 1, 2, 3, 4]
        assert socket.ask(do="ack", id=messages[1]["id"], up_to=True) == {"type": "settled", "do": "ack", "id": 2}
        assert socket.ask(do="ack", id=messages[3]["id"])["type"] == "settled"
        assert "held by nobody here" in socket.ask(do="ack", id=messages[0]["id"])["text"]

    with opened(audit) as socket:
        assert [each.get("data") for each in taken(socket, 3)] == [None, 2, 4]
    with opened(audit, bookmark="epoch") as socket:
        assert [each.get("data") for each in taken(socket, 6)] == [None, 0, 1, 2, 3, 4]


def test_another_gateway_goes_on_where_one_was(serving, client):
    first, second = (Asking(serving(), "audit") for _ in range(2))
    first.publish("orders", 1, 2)
    with opened(first) as socket:
        taken(socket, 3)
        socket.ask(do="ack", id=1)
        first.gateway.stop()

    with opened(second) as socket:
        assert [each.get("data") for each in taken(socket, 2)] == [None, 2]
    assert client.admin.topics()["orders"].messages == 2


def test_no_more_is_pushed_than_may_be_unhandled(audit):
    audit.publish("orders", *range(5))
    with opened(audit, max_backlog=2) as socket:
        taken(socket, 3)
        with pytest.raises(TimeoutError):
            socket.get(2.5)
        socket.say(do="ack", id=2, up_to=True)
        said = taken(socket, 3)
        assert sorted(each.get("data", -1) for each in said) == [-1, 2, 3]


def test_a_later_one_of_the_name_takes_over(audit):
    with opened(audit) as former:
        former.get(WITHIN)
        with opened(audit) as later:
            later.get(WITHIN)
            assert former.get(WITHIN)["error"] == "NameInUse"
            with pytest.raises(ConnectionClosed):
                former.get(WITHIN)
            audit.publish("orders", 1)
            assert later.get(WITHIN)["data"] == 1


def test_names_are_their_users_own(serving, client):
    gateway = serving("entitlements:\n" + SECOND)
    audit, till = Asking(gateway, "audit"), Asking(gateway, "till")
    audit.publish("orders", 1)
    for asking in (audit, till):
        with opened(asking) as socket:
            assert [each.get("data") for each in taken(socket, 2)] == [None, 1]
            socket.ask(do="ack", id=1)
    assert client.admin.queue_stats("work").depth == 1


def test_a_range_ends_when_all_of_it_is_handled(audit):
    audit.publish("orders", 1, 2)
    with opened(audit, bookmark="[epoch:now)") as socket:
        taken(socket, 3)
        socket.say(do="ack", id=2, up_to=True)
        assert {each["type"] for each in taken(socket, 2)} == {"settled", "completed"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sub_id": "a b"}, "sub_id='a b'"),
        ({"sub_id": "x" * 250}, "240 characters"),
        ({"max_backlog": "2"}, "max_backlog goes with"),
        ({"sub_id": "a", "max_backlog": "0"}, "max_backlog='0'"),
        ({"bookmark": "most_recent"}, "sub_id"),
    ],
)
def test_what_is_wrong_is_told(audit, options, said):
    with audit.open("/v1/subscribe", topic="orders", **options) as socket:
        assert said in socket.get(WITHIN)["text"]


@pytest.mark.parametrize("order", [{"do": "cancel", "id": 1}, {"do": "ack"}, {"do": "ack", "id": 1, "up_to": 1}])
def test_what_is_no_acknowledgement_is_answered(audit, order):
    audit.publish("orders", 1)
    with opened(audit) as socket:
        taken(socket, 2)
        assert socket.ask(**order)["error"] == "DefinitionError"
        assert socket.ask(do="ack", id=1)["type"] == "settled"
