"""Deleting records: by key, by data, by filter, and by publishers that are logged on."""

from __future__ import annotations

import pytest

from ampsq.base.errors import MissingKey, NameInUse, SequenceGap


def test_deleting_by_key_removes_what_is_there_and_tells_it(world):
    world.keyed("orders")
    world.publish("orders", '{"id": 1}', '{"id": 2}', '{"id": 3}')
    world.mark()

    assert world.delete("orders", "keys", "1", "9", "1", "3") == 2

    assert world.changes() == {
        ":log:orders": [
            ("1000-3", {"b": "", "q": "~", "o": "deleted", "k": "1"}),
            ("1000-4", {"b": "", "q": "~", "o": "deleted", "k": "3"}),
        ],
        ":clock": "1000-4",
        ":records:orders": {"1": None, "3": None},
        ":sow:orders": {"read_to": "1000-4"},
    }


def test_deleting_by_data_takes_the_key_of_each_message(world):
    world.keyed("orders", "/a", "/b")
    world.publish("orders", '{"a": 1, "b": 1}', '{"a": 1, "b": 2}')

    assert world.delete("orders", "data", '{"b": 2, "a": 1, "rest": []}') == 1
    assert list(world.records("orders")) == ["1|1"]


def test_deleting_by_data_without_a_key_is_refused_and_changes_nothing(world):
    world.keyed("orders")
    world.publish("orders", '{"id": 1}')
    world.mark()

    with pytest.raises(MissingKey):
        world.delete("orders", "data", '{"id": 1}', "{}")

    assert world.changes() == {}


def test_deleting_by_filter_removes_all_that_match(world):
    world.keyed("orders")
    for first in range(0, 1_000, 100):
        world.publish("orders", *(f'{{"id": {i}, "odd": {i % 2}}}' for i in range(first, first + 100)))

    assert world.delete("orders", "filter", "/odd = 1") == 500
    assert set(world.records("orders")) == {str(i) for i in range(0, 1_000, 2)}


def test_deleting_by_key_and_filter_removes_those_of_them_that_match(world):
    world.keyed("orders")
    world.publish("orders", *(f'{{"id": {i}, "odd": {i % 2}}}' for i in range(4)))
    world.mark()

    assert world.delete("orders", "keys", "0", "1", "1", "9", filter="/odd = 1") == 1
    assert world.changes() == {
        ":log:orders": [("1000-4", {"b": "", "q": "~", "o": "deleted", "k": "1"})],
        ":clock": "1000-4",
        ":records:orders": {"1": None},
        ":sow:orders": {"read_to": "1000-4"},
    }


def test_deleting_by_key_and_filter_goes_on_in_steps_until_all_keys_were_looked_at(world):
    world.keyed("orders")
    for first in range(0, 500, 20):
        world.publish(
            "orders", *(f'{{"id": {i}, "odd": {i % 2}, "x": "{"y" * 2000}"}}' for i in range(first, first + 20))
        )
    world.mark()

    keys = [str(i) for i in range(500)]
    assert world.delete("orders", "keys", *keys, filter="/odd = 1", publisher="p", sequence=1) == 250
    assert set(world.records("orders")) == {str(i) for i in range(0, 500, 2)}
    assert world.delete("orders", "keys", *keys, filter="/odd = 0", publisher="p", sequence=1) == 0


def test_a_deletion_of_a_publisher_is_done_once(world):
    world.keyed("orders")
    world.publish("orders", '{"id": 1}', publisher="p", sequence=1)
    assert world.delete("orders", "keys", "1", publisher="p", sequence=2) == 1
    world.publish("orders", '{"id": 1}', publisher="p", sequence=3)
    world.mark()

    assert world.run("sow_delete", world.now, "orders", "p", 2, "", "", "keys", "1") == ["", 0, 1]
    assert world.changes() == {}


def test_a_deletion_that_finds_nothing_counts_as_a_publishers_step(world):
    world.keyed("orders")
    world.publish("orders", '{"id": 1}', publisher="p", sequence=1)
    world.mark()

    assert world.delete("orders", "keys", "9", publisher="p", sequence=2) == 0
    assert world.changes() == {":publishers": {"p": "2 1000-0 orders"}}


def test_a_session_deletes_in_its_place_among_its_messages_and_once(world):
    world.keyed("orders")
    world.run("logon", world.now, "p", "c/1", 1, "", "")
    world.publish("orders", '{"id": 1}', publisher="p", sequence="1 1")
    with pytest.raises(SequenceGap):
        world.delete("orders", "keys", "1", publisher="p", sequence="1 3")
    with pytest.raises(NameInUse):
        world.delete("orders", "keys", "1", publisher="p", sequence="2")

    assert world.delete("orders", "data", '{"id": 1}', publisher="p", sequence="1 2") == 1
    world.publish("orders", '{"id": 1, "v": 2}', publisher="p", sequence="1 3")
    world.mark()

    assert world.run("sow_delete", world.now, "orders", "p", "1 2", "", "", "keys", "1") == ["", 0, 1]
    assert world.changes() == {}


def test_a_session_s_change_is_merged_once(world):
    world.keyed("orders")
    world.publish("orders", '{"id": 1, "v": 1}')
    world.run("logon", world.now, "p", "c/1", 1, "", "")

    world.publish("orders", '{"id": 1, "w": 2}', publisher="p", sequence="1 1", delta=True)
    world.publish("orders", '{"id": 1, "w": 2}', '{"id": 1, "w": 3}', publisher="p", sequence="1 1", delta=True)

    assert world.records("orders") == {"1": ("1000-2", '{"id": 1, "v": 1,"w": 3}')}


def test_a_deletion_of_a_publisher_that_recorded_nothing_is_remembered_from_now_on(world):
    world.keyed("orders")
    world.mark()

    assert world.delete("orders", "keys", "9", publisher="p", sequence=1) == 0
    assert world.changes() == {":publishers": {"p": "1 1000-0 "}}
