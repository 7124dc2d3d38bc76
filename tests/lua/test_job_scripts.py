"""The scripts that jobs write with: rows recorded in sequence, or put aside, committed, and recorded from there."""

from __future__ import annotations

import pytest

from ampsq.base.errors import (
    EpochPast,
    MissingKey,
    NameInUse,
    OtherProtocol,
    RowsDiffer,
    SequenceGap,
    StageLost,
    TooMuchToRead,
    UnknownTopic,
)

FIRST, SECOND, THIRD = "1000-0", "1000-1", "1000-2"


def write(world, *bodies, partition=0, epoch=1, rows=0, before=0, after=7, topic="orders", shape="b"):
    head = (world.now, topic, "job", partition, epoch, rows, before, after, shape)
    reply, checksum = world.run("write_rows", *head, *bodies)
    return reply, int(checksum or 0)


def entry(stream_id, sequence, body, **more):
    return (stream_id, {"b": body, **more, "p": "job/0", "n": str(sequence)})


def bodies(world, topic="orders"):
    return [fields["b"] for _, fields in world.state().get(f":log:{topic}", [])]


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


def stage(world, *bodies, attempt="a", lane="i/0", length=0, shape="b", topic="orders"):
    lane = lane.replace("i/", f"{world.key('')[1:-1]}/")
    head = (world.now, topic, "job", lane, attempt, length, 60_000, shape)
    return world.run("stage_rows", *head, *bodies)


def lane(world, number=0):
    return f"{world.key('')[1:-1]}/{number}"


def commit(world, *lanes, epoch=1):
    return world.run("commit_job", world.now, "job", epoch, *lanes)


def record(world, *, number=0, epoch=1, most=""):
    return world.run("record_stage", world.now, "job", epoch, lane(world, number), most)


@pytest.mark.parametrize("put", ["write", "stage"])
def test_rows_that_are_too_much_to_read_are_refused_and_nothing_is_changed(world, put):
    world.keyed("orders")
    rows = [f'{{"id": {i}, "l": [{"[1]," * 1_000}1]}}' for i in range(40)]
    world.mark()
    with pytest.raises(TooMuchToRead) as refusal:
        {"write": write, "stage": stage}[put](world, *rows)
    assert world.changes() == {}
    assert {"write": write, "stage": stage}[put](world, *rows[: refusal.value.detail["read"]])


def test_rows_put_aside_before_their_topic_had_a_key_are_recorded_in_parts_of_a_call(world):
    world.topic("orders")
    rows = [f'{{"id": {i}, "l": [{"[1]," * 1_000}1]}}' for i in range(40)]
    stage(world, *rows)
    stage(world, '{"id": 40}', length=41)
    commit(world, lane(world), "a", 41)
    world.keyed("orders")
    world.sweep_all()
    world.mark()
    with pytest.raises(TooMuchToRead) as refusal:
        record(world)
    assert world.changes() == {}
    read, left = refusal.value.detail["read"], 41
    while left > 1:
        left = record(world, most=read)
    assert (left, record(world), record(world)) == (1, 0, 0)
    assert bodies(world) == [*rows, '{"id": 40}']
    assert finish(world, 0) == 0


def finish(world, *numbers, epoch=1):
    return world.run("finish_job", world.now, "job", epoch, *[lane(world, number) for number in numbers])


def test_rows_put_aside_are_in_no_log_and_end_by_themselves(world):
    world.topic("orders")
    world.mark()

    assert stage(world, "one", "two") == 3

    key = f":stage:job:{lane(world)}:a"
    assert world.changes() == {key: ["2 b orders", "one", "two"]}
    assert 0 < world.store.redis.pttl(world.key(key)) <= 60_000


def test_putting_rows_aside_twice_is_as_once(world):
    world.topic("orders")
    stage(world, "one", "two")
    stage(world, "three", length=3)
    world.mark()
    assert stage(world, "one", "two") == 3
    assert stage(world, "three", length=3) == 5
    with pytest.raises(SequenceGap):
        stage(world, "five", length=7)
    assert world.changes() == {}


def test_what_could_not_be_recorded_is_not_put_aside(world):
    world.keyed("keyed", queues=())
    world.mark()
    with pytest.raises(UnknownTopic):
        stage(world, "one", topic="nowhere")
    with pytest.raises(MissingKey):
        stage(world, "{}", topic="keyed")
    assert world.changes() == {}


def test_a_commit_decides_once_which_attempt_counts(world):
    world.topic("orders")
    stage(world, "one", attempt="a")
    stage(world, "one", attempt="b")
    world.mark()

    assert commit(world, lane(world), "a", 1) == ["1", lane(world), "a", "1", "0"]
    assert commit(world, lane(world), "b", 1) == ["1", lane(world), "a", "1", "0"]

    assert world.changes() == {":manifest:job": {lane(world): "a 1 0"}, ":jobs": {"job": "1 open 1000"}}
    assert world.store.redis.pttl(world.key(f":stage:job:{lane(world)}:a")) == -1


def test_committed_rows_are_recorded_call_by_call_and_once(world):
    world.topic("orders")
    stage(world, "one", "two")
    stage(world, "three", length=3)
    commit(world, lane(world), "a", 3)

    assert record(world) == 1
    assert bodies(world) == ["one", "two"]
    assert record(world) == 0
    assert record(world) == 0
    assert world.state()[":log:orders"] == [
        entry(FIRST, 1, "one"),
        entry(SECOND, 2, "two"),
        entry(THIRD, 3, "three"),
    ]

    assert finish(world, 0) == 0
    state = world.state()
    assert state[":jobs"] == {"job": "1 done 1000"}
    assert not [suffix for suffix in state if suffix.startswith((":manifest", ":stage"))]
    assert commit(world, lane(world), "b", 3) == []
    assert finish(world, 0) == 0


def test_a_lane_that_is_not_recorded_stays_open(world):
    world.topic("orders")
    stage(world, "one")
    commit(world, lane(world), "a", 1, "elsewhere/1", "x", 5)
    assert finish(world, 0) == 2
    assert world.run("finish_job", world.now, "job", 1, "elsewhere/1") == 1
    record(world)
    assert finish(world, 0) == 0
    assert world.state()[":jobs"] == {"job": "1 done 1000"}


def test_rows_put_aside_are_kept_for_a_commit_if_they_are_all_there(world):
    world.topic("orders")
    stage(world, "one", "two")
    stage(world, "three", length=3)
    world.mark()
    with pytest.raises(StageLost) as refused:
        world.run("keep_stages", "job", 900_000, lane(world), "a", 7)
    assert refused.value.detail == {"job": "job", "lane": lane(world), "expected": 7, "got": 5}
    with pytest.raises(StageLost):
        world.run("keep_stages", "job", 900_000, lane(world), "a", 5, lane(world, 1), "a", 2)
    key = world.key(f":stage:job:{lane(world)}:a")
    assert world.store.redis.pttl(key) <= 60_000

    assert world.run("keep_stages", "job", 900_000, lane(world), "a", 5) == 1

    assert 60_000 < world.store.redis.pttl(key) <= 900_000
    assert world.changes() == {}


def test_an_epoch_that_broke_off_comes_before_the_next(world):
    world.topic("orders")
    stage(world, "one")
    commit(world, lane(world), "a", 1)
    stage(world, "two", attempt="b")
    assert commit(world, lane(world), "b", 1, epoch=2) == ["1", lane(world), "a", "1", "0"]
    record(world)
    finish(world, 0)
    assert commit(world, lane(world), "b", 1, epoch=2)[0] == "2"
    assert commit(world, lane(world), "b", 1, epoch=1)[0] == "2"
    record(world, epoch=2)
    finish(world, 0, epoch=2)
    assert bodies(world) == ["one", "two"]
    world.mark()
    with pytest.raises(EpochPast) as refused:
        commit(world, lane(world), "a", 1, epoch=1)
    assert refused.value.detail == {"job": "job", "epoch": 1, "last": 2}
    assert world.changes() == {}


def test_an_epoch_without_rows_is_done_at_once(world):
    assert commit(world) == []
    assert world.state()[":jobs"] == {"job": "1 done 1000"}


def test_rows_that_are_gone_before_the_commit_refuse_it(world):
    world.topic("orders")
    stage(world, "one", lane="i/0")
    world.mark()
    with pytest.raises(StageLost):
        commit(world, lane(world), "a", 1, lane(world, 1), "a", 1)
    assert world.changes() == {}


def test_rows_that_are_gone_after_it_are_told(world):
    world.topic("orders")
    stage(world, "one")
    commit(world, lane(world), "a", 1)
    world.store.redis.delete(world.key(f":stage:job:{lane(world)}:a"))
    world.mark()
    with pytest.raises(StageLost) as refused:
        record(world)
    assert refused.value.detail["rows"] == 1
    assert world.changes() == {}


def test_attempts_that_do_not_count_are_let_go_and_those_that_do_stay(world):
    world.topic("orders")
    stage(world, "one", attempt="a")
    stage(world, "one", attempt="b")
    commit(world, lane(world), "a", 1)
    world.mark()
    assert world.run("drop_stages", "job", lane(world), "a", lane(world), "b", lane(world, 7), "c") == 1
    assert world.changes() == {f":stage:job:{lane(world)}:b": None}


def test_a_job_is_forgotten_with_its_publishers_unless_it_is_open(world):
    week = 604_800_000
    world.topic("orders")
    write(world, "one")
    world.now += week + 1
    world.run("forget_publishers", world.now, "0")
    assert not {":jobs", ":partitions", ":publishers"} & world.state().keys()

    stage(world, "two", "three")
    stage(world, "four", length=3)
    commit(world, lane(world), "a", 3)
    record(world)
    world.now += week + 1
    world.run("forget_publishers", world.now, "0")
    assert world.state()[":jobs"]["job"].startswith("1 open ")
    assert record(world) == 0


def test_a_job_that_was_heard_of_since_keeps_all_its_partitions_and_is_forgotten_with_the_last(world):
    week = 604_800_000
    world.topic("orders")
    stage(world, "one")
    commit(world, lane(world), "a", 1)
    record(world)
    world.now += 5
    finish(world, 0)
    recorded = world.now - 5

    world.now = recorded + week + 1
    world.run("forget_publishers", world.now, "0")
    assert world.state()[":publishers"] == {"job/0": f"1 {FIRST} orders"}

    world.now += 5
    world.run("forget_publishers", world.now, "0")
    assert not {":jobs", ":publishers"} & world.state().keys()


def test_an_epoch_is_finished_under_the_protocol_that_it_was_begun_under(world):
    world.topic("orders")
    write(world, "one")
    stage(world, "two")
    world.mark()
    with pytest.raises(OtherProtocol):
        commit(world, lane(world), "a", 1)
    assert world.changes() == {}

    commit(world, lane(world), "a", 1, epoch=2)
    world.mark()
    for epoch in (2, 3):
        with pytest.raises(OtherProtocol):
            write(world, "three", epoch=epoch)
    assert world.changes() == {}

    record(world, epoch=2)
    finish(world, 0, epoch=2)
    with pytest.raises(OtherProtocol):
        write(world, "three", epoch=2)
    assert write(world, "three", epoch=3) == (1, 7)
