"""The scripts that jobs write with: rows recorded in sequence, or put aside, committed, and recorded from there."""

from __future__ import annotations

import pytest
from job_rows import FIRST, SECOND, THIRD, bodies, entry, write

from ampsq.base.errors import (
    NameInUse,
    RowsDiffer,
    SequenceGap,
    UnknownTopic,
)

# -- in sequence


def test_rows_are_recorded_with_their_publisher_and_its_sequence(world):
    world.topic("orders")
    world.mark()

    assert write(world, "one", "two") == (2, 7)

    assert world.changes() == {
        ":log:orders": [entry(FIRST, 1, "one"), entry(SECOND, 2, "two")],
        ":clock": SECOND,
        ":partitions": {"job/0": "1 2 7 1000"},
        ":jobs": {"job": "1 0 1000"},
        ":publishers": {"job/0": f"2 {SECOND} orders"},
    }


def test_a_call_that_comes_twice_or_late_changes_nothing(world):
    world.topic("orders")
    write(world, "one", "two")
    write(world, "three", rows=2, before=7, after=8)
    world.mark()

    assert write(world, "one", "two") == (3, 8)
    assert write(world, "three", rows=2, before=7, after=8) == (3, 8)

    assert world.changes() == {}


def test_without_rows_it_only_asks(world):
    world.topic("orders")
    assert write(world) == (0, 0)
    write(world, "one", after=9)
    world.mark()
    assert write(world) == (1, 9)
    assert write(world, epoch=2) == (0, 0)
    assert write(world, epoch=0) == (-1, 0)
    assert world.changes() == {}


def test_rows_that_follow_others_than_those_recorded_are_refused(world):
    world.topic("orders")
    write(world, "one", "two")
    world.mark()

    with pytest.raises(RowsDiffer) as refused:
        write(world, "three", rows=2, before=6, after=8)

    assert refused.value.detail == {"publisher": "job/0", "epoch": 1, "rows": 2}
    assert world.changes() == {}


def test_rows_that_would_leave_others_out_are_refused(world):
    world.topic("orders")
    write(world, "one")
    world.mark()
    with pytest.raises(SequenceGap):
        write(world, "three", rows=2, before=7, after=8)
    with pytest.raises(SequenceGap):
        write(world, "three", rows=1, epoch=2, before=7, after=8)
    assert world.changes() == {}


def test_the_sequence_goes_on_over_the_epochs(world):
    world.topic("orders")
    write(world, "one", "two")
    world.mark()

    write(world, "three", epoch=5, after=3)

    assert world.changes() == {
        ":log:orders": [entry(THIRD, 3, "three")],
        ":clock": THIRD,
        ":partitions": {"job/0": "5 1 3 1000"},
        ":jobs": {"job": "5 0 1000"},
        ":publishers": {"job/0": f"3 {THIRD} orders"},
    }
    # What is late from an epoch before counts for nothing.
    assert write(world, "four", rows=2, before=7, epoch=1) == (-1, 0)
    assert bodies(world) == ["one", "two", "three"]


def test_a_partition_that_a_later_epoch_did_not_have_records_nothing_of_one_before(world):
    world.topic("orders")
    write(world, "one", epoch=5)
    world.mark()
    assert write(world, "two", partition=1, epoch=4) == (-1, 0)
    assert write(world, partition=1, epoch=4) == (-1, 0)
    assert world.changes() == {}


def test_the_highest_partition_of_an_epoch_is_remembered(world):
    world.topic("orders")
    write(world, "one", partition=3)
    write(world, "two", partition=1)
    assert world.state()[":jobs"] == {"job": "1 3 1000"}
    write(world, "three", partition=1, epoch=2)
    assert world.state()[":jobs"] == {"job": "2 1 1000"}


def test_rows_may_say_their_topics_and_more(world):
    world.topic("orders")
    world.topic("trades")
    rows = ["one", '{"a": "1"}', "k1", "orders", "two", "", "", "trades", "three", "", "k3", "orders"]

    write(world, *rows, topic="", shape="bhkt")

    state = world.state()
    assert state[":log:orders"] == [entry(FIRST, 1, "one", h='{"a": "1"}', r="k1"), entry(SECOND, 2, "three", r="k3")]
    assert state[":log:trades"] == [entry(THIRD, 3, "two")]
    assert state[":publishers"] == {"job/0": f"3 {THIRD} trades"}
    assert state[":partitions"] == {"job/0": "1 3 7 1000"}


def test_rows_that_name_a_queue_and_rows_that_name_its_topic_stay_in_order(world):
    world.queue("work", "orders")
    write(world, "one", "orders", "two", "work", "three", "orders", topic="", shape="bt")
    assert bodies(world) == ["one", "two", "three"]


def test_what_expires_and_what_is_due_later_is_noted(world):
    world.queue("work", "orders")
    write(world, "one", "500", "", "two", "", "+600", shape="bed")
    state = world.state()
    assert state[":expirations:orders"] == {FIRST: 1_500.0}
    assert state[":q:work:ahead"]
    assert state[":log:orders"][1][1]["d"] == "1600"


def test_rows_are_pushed_to_whom_is_free(world):
    world.queue("work", "orders")
    subscription = world.subscribe("work", asked=5)
    write(world, "one", "two", topic="work")
    assert [message.body for message in world.take(subscription, 5)] == ["one", "two"]


@pytest.mark.parametrize("shape", ["b", "bt"])
def test_an_unknown_topic_is_refused_before_anything_is_recorded(world, shape):
    world.topic("orders")
    world.mark()
    rows = ["one", "orders", "two", "nowhere"] if shape == "bt" else ["one"]
    with pytest.raises(UnknownTopic) as refused:
        write(world, *rows, topic="" if shape == "bt" else "nowhere", shape=shape)
    assert refused.value.detail["name"] == "nowhere"
    assert world.changes() == {}


def test_a_name_that_a_publisher_is_logged_on_with_is_refused(world):
    world.topic("orders")
    world.run("logon", world.now, "job/0", "c", 1, "", "")
    world.mark()
    with pytest.raises(NameInUse):
        write(world, "one")
    assert world.changes() == {}


# -- put aside
