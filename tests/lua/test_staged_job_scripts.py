"""The scripts of jobs whose rows are put aside, committed, and recorded from there."""

from __future__ import annotations

import pytest
from job_rows import FIRST, SECOND, THIRD, bodies, entry, write

from ampsq.base.errors import (
    EpochPast,
    MissingKey,
    OtherProtocol,
    SequenceGap,
    StageLost,
    TooMuchToRead,
    UnknownTopic,
)


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
