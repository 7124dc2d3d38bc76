"""Rows on their way to an instance, without Spark around: repeated, at once, in another order, over broken lines."""

from __future__ import annotations

import contextlib

import pytest

from ampsq import Client, Topic
from ampsq.base.errors import EpochPast, RowsDiffer, SequenceGap, ServerFull, StageLost, Unavailable
from ampsq.protocol.calls.jobs import commit_job
from ampsq.protocol.schema import key
from ampsq.spark.commit import commit, discard
from ampsq.spark.instance_writers import Job, SequencedWriter, StagedWriter, drain
from ampsq.transport.store import Store

pytestmark = pytest.mark.slow


@pytest.fixture
def store(client, valkey, instance):
    """A store of the instance."""
    client.apply(Topic(name="orders"))
    store = Store(valkey.url, instance, retry_timeout=2.0)
    yield store
    store.close()


def job(epoch=0, chunk=3, topic="orders", shape="b"):
    return Job("job", epoch, topic, shape, chunk, 4, 60_000)


def rows(*numbers):
    return [b"%d" % number for number in numbers]


def recorded(store, topic="orders"):
    log = key(store.instance, "log", topic)
    return [fields[b"b"] for _, fields in store.redis.xrange(log)]


def in_sequence(store, values, **more):
    lane = SequencedWriter(store, job(**more), 0)
    lane.write(values)
    lane.finish()


# -- in sequence


def test_a_new_topic_is_made_and_rows_come_in_order(store):
    in_sequence(store, rows(*range(20)), topic="fresh")
    assert recorded(store, "fresh") == rows(*range(20))


def test_a_repeated_task_records_what_is_missing(store):
    lane = SequencedWriter(store, job(), 0)
    lane.write(rows(*range(7)))
    # It dies here: what was not full was not sent.
    drain(lane._calls)
    assert recorded(store) == rows(*range(6))

    in_sequence(store, rows(*range(20)))
    in_sequence(store, rows(*range(20)))

    assert recorded(store) == rows(*range(20))


@pytest.mark.parametrize("chunk", [1, 2, 5, 500])
def test_a_repeated_task_may_cut_its_rows_in_another_way(store, chunk):
    lane = SequencedWriter(store, job(), 0)
    lane.write(rows(*range(7)))
    drain(lane._calls)
    in_sequence(store, rows(*range(20)), chunk=chunk)
    assert recorded(store) == rows(*range(20))


def test_two_attempts_at_once_record_each_row_once(store):
    first, second = SequencedWriter(store, job(), 0), SequencedWriter(store, job(chunk=4), 0)
    for start in range(0, 60, 5):
        lanes = (first, second) if start % 2 else (second, first)
        for lane in lanes:
            lane.write(rows(*range(start, start + 5)))
    second.finish()
    first.finish()
    assert recorded(store) == rows(*range(60))


def test_rows_in_another_order_are_refused_and_nothing_is_lost_or_doubled(store):
    lane = SequencedWriter(store, job(), 0)
    lane.write(rows(*range(9)))
    drain(lane._calls)
    with pytest.raises(RowsDiffer, match="staged"):
        in_sequence(store, rows(0, 2, 1, *range(3, 20)))
    with pytest.raises(RowsDiffer):
        in_sequence(store, rows(*range(5)))
    assert recorded(store) == rows(*range(9))


def test_rows_that_differ_by_where_they_are_cut_alone_are_told_apart(store):
    lane = SequencedWriter(store, job(), 0)
    lane.write([b"a", b"bc", b"d"])
    drain(lane._calls)
    with pytest.raises(RowsDiffer):
        in_sequence(store, [b"ab", b"c", b"d", b"e"])


def test_an_epoch_that_is_past_records_nothing(store):
    in_sequence(store, rows(1, 2), epoch=1)
    in_sequence(store, rows(3, 4), epoch=2)
    in_sequence(store, rows(1, 2, 9), epoch=1)
    assert recorded(store) == rows(1, 2, 3, 4)


def test_scripts_that_the_server_forgot_lose_and_double_nothing(store):
    lane = SequencedWriter(store, job(), 0)
    for start in range(0, 60, 6):
        lane.write(rows(*range(start, start + 6)))
        store.redis.script_flush()
    lane.finish()
    assert recorded(store) == rows(*range(60))


def test_one_large_row_makes_the_calls_around_it_small_and_no_others(store):
    done = staged(store, [b"x" * 5_000_000, *rows(1, 2)], chunk=100)
    assert done.length == 3 + 3

    lane = StagedWriter(store, job(chunk=100), 0)
    lane.write([b"x" * 5_000_000, *rows(1, 2)])
    lane.write(rows(*range(200)))
    done = lane.finish()

    assert (done.rows, done.length) == (203, 203 + 3 + 2)


def test_connections_that_break_lose_and_double_nothing(store):
    lane = SequencedWriter(store, job(), 0)
    for start in range(0, 60, 6):
        lane.write(rows(*range(start, start + 6)))
        store.redis.client_kill_filter(_type="normal", skipme=True)
    lane.finish()
    assert recorded(store) == rows(*range(60))


def test_a_server_that_lost_rows_is_noticed(store):
    lane = SequencedWriter(store, job(), 0)
    lane.write(rows(*range(9)))
    drain(lane._calls)
    lane._sent.clear()
    store.redis.hdel(key(store.instance, "partitions"), "job/0")
    lane.write(rows(*range(9, 12)))
    with pytest.raises(SequenceGap):
        lane.finish()


def test_a_full_server_fails_the_task_and_a_repeat_is_harmless(store):
    before = store.redis.config_get("maxmemory")["maxmemory"]
    in_sequence(store, rows(*range(3)))
    store.redis.config_set("maxmemory", "1mb")
    try:
        for kind in (SequencedWriter, StagedWriter):
            lane = kind(store, job(), 0)
            lane.write(rows(0, 1))
            with pytest.raises(ServerFull):
                lane.finish()
    finally:
        store.redis.config_set("maxmemory", before)
    in_sequence(store, rows(*range(9)))
    assert recorded(store) == rows(*range(9))


@pytest.mark.parametrize("kind", [SequencedWriter, StagedWriter])
def test_a_server_that_dies_fails_the_task_and_the_repeat_records_each_row_once(start_server, kind):
    safe = {"appendonly": True, "options": ["--appendfsync", "always"]}
    server = start_server(**safe)
    with Client(server.url, instance="job") as client:
        client.apply(Topic(name="orders"))
    with contextlib.closing(Store(server.url, "job", retry_timeout=0.2)) as store:
        lane = kind(store, job(), 0)
        lane.write(rows(*range(9)))
        server.process.kill()
        server.process.wait(30)
        with pytest.raises(Unavailable):
            lane.write(rows(*range(9, 30)))

    server = start_server(data_dir=server.directory, **safe)
    with contextlib.closing(Store(server.url, "job", retry_timeout=2.0)) as store:
        again = kind(store, job(), 0)
        again.write(rows(*range(20)))
        if (done := again.finish()) is not None:
            assert recorded(store) == []
            commit([store], "job", 0, [done])
        assert recorded(store) == rows(*range(20))


# -- staged


def staged(store, values, partition=0, **more):
    lane = StagedWriter(store, job(**more), partition)
    lane.write(values)
    return lane.finish()


def test_rows_put_aside_are_recorded_at_the_commit_in_the_order_of_partitions(store):
    done = [staged(store, rows(*range(10 * p, 10 * p + 10)), p) for p in (2, 0, 1)]
    assert recorded(store) == []
    commit([store], "job", 0, done)
    assert recorded(store) == rows(*range(30))
    assert not store.redis.keys(key(store.instance, "stage", "*", "*", "*"))


def test_a_repeated_commit_records_nothing_twice_whatever_the_attempts_hold(store):
    first, second = staged(store, rows(1, 2, 3)), staged(store, rows(3, 2, 1))
    commit([store], "job", 0, [first])
    commit([store], "job", 0, [second])
    discard([store], "job", [second])
    assert recorded(store) == rows(1, 2, 3)
    assert not store.redis.keys(key(store.instance, "stage", "*", "*", "*"))


def test_an_epoch_that_comes_behind_a_later_one_is_refused_and_one_that_comes_again_is_told(store, caplog):
    commit([store], "job", 3, [staged(store, rows(1, 2), epoch=3)])
    assert "was recorded before" not in caplog.text
    commit([store], "job", 3, [staged(store, rows(8), epoch=3)])
    assert "epoch 3 of 'job' was recorded before, and nothing was now" in caplog.text
    with pytest.raises(EpochPast, match="another job its own publisher"):
        commit([store], "job", 2, [staged(store, rows(9), epoch=2)])
    assert recorded(store) == rows(1, 2)


def test_a_commit_that_breaks_off_is_finished_by_the_next(store, valkey):
    first = staged(store, rows(*range(30)))
    breaking = Store(valkey.url, store.instance, retry_timeout=2.0)

    class Broken(Exception):
        pass

    def call(made, run=breaking.call):
        if made.script is not None and made.script.name == "finish_job":
            raise Broken
        return run(made)

    breaking.call = call
    with pytest.raises(Broken):
        commit([breaking], "job", 0, [first])
    breaking.close()
    later = staged(store, rows(40, 41), epoch=1)
    commit([store], "job", 1, [later])
    assert recorded(store) == rows(*range(30), 40, 41)


def test_rows_that_are_gone_before_the_commit_are_told(store):
    done = staged(store, rows(1, 2))
    store.redis.delete(*store.redis.keys(key(store.instance, "stage", "*", "*", "*")))
    with pytest.raises(StageLost):
        commit([store], "job", 0, [done])


def test_rows_of_which_an_instance_lost_some_are_told_before_any_is_recorded(valkey, store, instance):
    other = Store(valkey.url, f"{instance}-b", retry_timeout=2.0)
    with Client(valkey.url, instance=other.instance) as client:
        client.apply(Topic(name="orders"))
        for losing in (store, other):
            lanes = [staged(each, rows(*range(9))) for each in (store, other)]
            (kept,) = losing.redis.keys(key(losing.instance, "stage", "*", "*", "*"))
            # The last call is what a server that is killed takes back.
            losing.redis.ltrim(kept, 0, -5)
            with pytest.raises(StageLost):
                commit([store, other], "job", 0, lanes)
            discard([store, other], "job", lanes)
        assert recorded(store) == recorded(other) == []
        commit([store, other], "job", 0, [staged(each, rows(*range(9))) for each in (store, other)])
        assert recorded(store) == recorded(other) == rows(*range(9))
    other.close()


def test_lines_and_scripts_that_go_while_rows_are_put_aside_and_recorded_lose_nothing(store):
    lane = StagedWriter(store, job(), 0)
    for start in range(0, 60, 6):
        lane.write(rows(*range(start, start + 6)))
        store.redis.script_flush()
        store.redis.client_kill_filter(_type="normal", skipme=True)
    done = lane.finish()
    store.redis.script_flush()
    commit([store], "job", 0, [done])
    assert recorded(store) == rows(*range(60))


def test_several_instances_share_one_decision(valkey, store, instance):
    other = Store(valkey.url, f"{instance}-b", retry_timeout=2.0)
    with Client(valkey.url, instance=other.instance):
        first = [staged(each, rows(*range(n, n + 4))) for n, each in ((0, store), (10, other))]
        second = [staged(each, rows(*range(n, n + 4))) for n, each in ((50, store), (60, other))]
        # The first attempt's commit breaks off when it is decided.
        store.call(commit_job("job", 0, first))
        commit([store, other], "job", 0, second)
        assert recorded(store) == rows(*range(4))
        assert recorded(other) == rows(*range(10, 14))
        commit([store, other], "job", 0, second)
        assert len(recorded(store)) + len(recorded(other)) == 8
    other.close()


def test_what_was_decided_stays_where_another_instance_does_not_know_it_yet(valkey, store, instance):
    other = Store(valkey.url, f"{instance}-b", retry_timeout=2.0)
    with Client(valkey.url, instance=other.instance) as client:
        client.apply(Topic(name="orders"))
        first = [staged(each, rows(*range(n, n + 4))) for n, each in ((0, store), (10, other))]
        # The other instance is full when it should follow; Spark aborts what it could not commit.
        store.call(commit_job("job", 0, first))
        discard([store, other], "job", first)
        commit([store, other], "job", 0, [staged(store, rows(50)), staged(other, rows(60))])
        assert recorded(store) == rows(*range(4))
        assert recorded(other) == rows(*range(10, 14))
        for each in (store, other):
            assert not each.redis.keys(key(each.instance, "stage", "*", "*", "*"))
    other.close()


# -- topics with a key, whose rows the server reads


def heavy(number):
    return [f'{{"id": {i}, "l": [{"[1]," * 1_000}1]}}'.encode() for i in range(number)]


def test_rows_that_are_too_many_to_read_in_one_call_are_written_in_several_in_their_order(client, store):
    client.apply(Topic(name="prices", key="/id"))
    in_sequence(store, heavy(300), topic="prices", chunk=50)
    in_sequence(store, heavy(300), topic="prices", chunk=50)
    assert recorded(store, "prices") == heavy(300)


def test_rows_that_are_too_many_to_read_in_one_call_are_put_aside_in_several_and_recorded(client, store):
    client.apply(Topic(name="prices", key="/id"))
    done = staged(store, heavy(300), topic="prices", chunk=50)
    assert done.rows == 300
    commit([store], "job", 0, [done])
    assert recorded(store, "prices") == heavy(300)


def test_rows_whose_topic_has_a_key_since_they_were_put_aside_are_recorded(client, store):
    done = staged(store, heavy(300), chunk=50)
    assert done.length == 306
    client.apply(Topic(name="orders", key="/id"))
    commit([store], "job", 0, [done])
    assert recorded(store) == heavy(300)
