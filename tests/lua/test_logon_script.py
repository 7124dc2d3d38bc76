"""logon, logoff, confirm, and what publish takes from a publisher that is logged on."""

from __future__ import annotations

import pytest

from ampsq.base.errors import NameInUse, SequenceGap


def entry(body, number):
    return {"b": body, "p": "p", "n": str(number)}


def logon(world, client="c/1", first=1, answered="", former=""):
    """Gives the session's number, the last sequence and its place."""
    return world.run("logon", world.now, "p", client, first, answered, former)


@pytest.fixture
def orders(world):
    world.topic("orders")
    return world


def test_logon_opens_a_session_and_tells_that_nothing_is_recorded_yet(orders):
    orders.mark()

    assert logon(orders) == ["1", "0", "", "0"]
    assert orders.changes() == {
        ":instance": {"logons": "1"},
        ":publishers": {"p": "0 1000-0 "},
        ":sessions": {"p": "1 1000 c/1"},
    }


def test_logon_tells_the_last_sequence_and_where_it_is(orders):
    orders.publish("orders", "one", "two", publisher="p", sequence=1)
    orders.mark()

    assert logon(orders, first=2) == ["1", "2", "1000-1 orders", "2"]
    assert orders.changes() == {":instance": {"logons": "1"}, ":sessions": {"p": "1 1000 c/1"}}


def test_a_session_begins_with_the_first_sequence_that_is_held_where_the_server_knows_less(orders):
    orders.publish("orders", "one", publisher="p", sequence=1)
    orders.mark()

    assert logon(orders, first=5) == ["1", "1", "1000-0 orders", "1"]
    assert orders.changes()[":publishers"] == {"p": "4 1000-0 orders"}
    with pytest.raises(SequenceGap):
        orders.publish("orders", "six", publisher="p", sequence="1 6")
    assert orders.publish("orders", "five", publisher="p", sequence="1 5") == ["orders", 0, "1000-1", 1]


def test_a_session_s_messages_are_recorded_under_their_numbers(orders):
    logon(orders)
    orders.mark()

    assert orders.publish("orders", "one", "two", publisher="p", sequence="1 1") == ["orders", 0, "1000-0", 2]
    assert orders.changes() == {
        ":log:orders": [("1000-0", entry("one", 1)), ("1000-1", entry("two", 2))],
        ":clock": "1000-1",
        ":publishers": {"p": "2 1000-1 orders"},
    }


def test_a_number_that_leaves_others_out_is_refused_and_changes_nothing(orders):
    logon(orders)
    orders.publish("orders", "one", publisher="p", sequence="1 1")
    orders.mark()

    with pytest.raises(SequenceGap) as refusal:
        orders.publish("orders", "three", publisher="p", sequence="1 3")

    assert refusal.value.detail == {"publisher": "p", "expected": "2", "got": "3"}
    assert orders.changes() == {}


def test_what_a_session_sends_again_is_recorded_once_and_the_rest_behind_it(orders):
    logon(orders)
    orders.publish("orders", "one", "two", publisher="p", sequence="1 1")
    orders.mark()

    assert orders.publish("orders", "one", "two", publisher="p", sequence="1 1") == ["orders", 2, "", 0, "", ""]
    assert orders.changes() == {}
    assert orders.publish("orders", "two", "three", publisher="p", sequence="1 2") == ["orders", 1, "1000-2", 1, ""]
    assert orders.changes()[":log:orders"] == [("1000-2", entry("three", 3))]


def test_a_reordered_message_is_recorded_when_its_turn_comes(orders):
    logon(orders)
    orders.publish("orders", "one", "two", publisher="p", sequence="1 1")
    with pytest.raises(SequenceGap):
        orders.publish("orders", "four", publisher="p", sequence="1 4")

    orders.publish("orders", "three", publisher="p", sequence="1 3")
    orders.publish("orders", "four", publisher="p", sequence="1 4")

    assert [fields["b"] for _, fields in orders.state()[":log:orders"]] == ["one", "two", "three", "four"]


def test_who_comes_back_after_another_recorded_under_the_name_and_left_is_refused_and_changes_nothing(orders):
    logon(orders)
    orders.publish("orders", "ours", publisher="p", sequence="1 1")
    logon(orders, "c/2", first=2)
    orders.publish("orders", "theirs", publisher="p", sequence="2 2")
    orders.run("logoff", "p", "2")
    orders.mark()

    # What it sent as its second message would look like a duplicate
    with pytest.raises(NameInUse):
        logon(orders, "c/1", answered="1")
    assert orders.changes() == {}
    # Nobody recorded anything that it does not know of
    assert logon(orders, "c/1", first=3, answered="2") == ["3", "2", "1000-1 orders", "2"]


def test_who_comes_back_after_another_took_the_name_is_refused_and_changes_nothing(orders):
    logon(orders)
    logon(orders, "c/1", answered="0")
    logon(orders, "c/2")
    orders.mark()

    with pytest.raises(NameInUse) as refusal:
        logon(orders, "c/1", answered="0")

    assert refusal.value.detail == {"publisher": "p", "by": "c/2"}
    assert orders.changes() == {}


@pytest.mark.parametrize("sequence", ["1 2", "2"])
def test_who_is_not_logged_on_last_is_refused_and_changes_nothing(orders, sequence):
    logon(orders)
    orders.publish("orders", "one", publisher="p", sequence="1 1")
    logon(orders, "c/2", first=2)
    orders.mark()

    with pytest.raises(NameInUse) as refusal:
        orders.publish("orders", "two", publisher="p", sequence=sequence)

    assert refusal.value.detail == {"publisher": "p", "by": "c/2"}
    assert orders.changes() == {}


def test_a_session_that_was_forgotten_is_refused_without_another_s_name(orders):
    with pytest.raises(NameInUse) as refusal:
        orders.publish("orders", "one", publisher="p", sequence="1 1")

    assert refusal.value.detail == {"publisher": "p"}


def test_sequences_of_a_session_keep_every_digit(orders):
    first = 9_007_199_254_740_000
    logon(orders, first=first)

    orders.publish("orders", "one", publisher="p", sequence=f"1 {first}")

    assert orders.state()[":publishers"] == {"p": f"{first} 1000-0 orders"}
    with pytest.raises(SequenceGap) as refusal:
        orders.publish("orders", "three", publisher="p", sequence=f"1 {first + 2}")
    assert refusal.value.detail["expected"] == str(first + 1)


def test_logoff_ends_the_session_so_that_others_may_use_the_name(orders):
    logon(orders)
    orders.mark()

    assert orders.run("logoff", "p", 1) == 1
    assert orders.changes() == {":sessions": None}
    assert orders.run("logoff", "p", 1) == 0
    assert orders.publish("orders", "one", publisher="p", sequence=1) == ["orders", 0, "1000-0", 1]


def test_a_late_logoff_leaves_the_next_session_alone(orders):
    logon(orders)
    logon(orders, "c/2")
    orders.mark()

    assert orders.run("logoff", "p", 1) == 0
    assert orders.changes() == {}


def test_confirm_writes_that_the_session_stands(orders):
    logon(orders)
    orders.publish("orders", "one", publisher="p", sequence="1 1")
    orders.now = 2_000
    orders.mark()

    assert orders.run("confirm_sequence", orders.now, "p", 1, 1) == 1
    assert orders.changes() == {":sessions": {"p": "1 2000 c/1"}}


def test_a_server_that_lacks_something_does_not_confirm_it(orders):
    logon(orders)
    orders.publish("orders", "one", publisher="p", sequence="1 1")
    orders.mark()

    with pytest.raises(SequenceGap) as refusal:
        orders.run("confirm_sequence", orders.now, "p", 1, 2)
    assert refusal.value.detail == {"publisher": "p", "expected": "2", "got": "2"}
    with pytest.raises(NameInUse):
        orders.run("confirm_sequence", orders.now, "p", 7, 1)
    assert orders.changes() == {}


def test_a_forgotten_publisher_s_session_is_forgotten_too(orders):
    logon(orders)
    orders.mark()
    orders.now += 604_800_001

    orders.run("forget_publishers", orders.now, "0")

    assert orders.changes() == {":publishers": None, ":sessions": None}


def test_a_logon_is_above_the_clock_whatever_was_lost(orders):
    orders.now = 1_767_225_600_000 + 5_000
    assert [logon(orders)[0], logon(orders, "c/2")[0]] == ["5000", "5001"]


def test_a_client_whose_logon_was_lost_takes_the_name_back_from_the_one_before_it(orders):
    logon(orders, "c/1")
    orders.publish("orders", "one", publisher="p", sequence="1 1")

    assert logon(orders, "c/2", first=2, answered=1, former="2")[0] == "2"


@pytest.mark.parametrize(
    ("answered", "former"), [(0, "2"), (1, "1"), (1, "")], ids=["recorded more", "the same", "none"]
)
def test_a_client_whose_logon_was_lost_does_not_where_the_other_one_came_later_or_published(orders, answered, former):
    logon(orders, "c/0")
    second = logon(orders, "c/1")[0]
    orders.publish("orders", "one", publisher="p", sequence=f"{second} 1")
    orders.mark()

    with pytest.raises(NameInUse, match="c/1"):
        logon(orders, "c/2", first=2, answered=answered, former=former)
    assert orders.changes() == {}
