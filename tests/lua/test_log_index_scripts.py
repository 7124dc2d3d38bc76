"""index_log, find_point, skip_entries, and what publish and trim keep of a log's index."""

from __future__ import annotations

import itertools

import pytest
from trimming import LATER, publish, trim
from world import decoded

from ampsq.base.log_positions import parse_id
from ampsq.protocol.limits import BYTES, INDEX_STEP
from ampsq.protocol.reads.log_index import complete, cuts, entry_at, rank_of


@pytest.fixture
def orders(world):
    world.topic("orders")
    return world


def points(world, topic="orders"):
    """ID -> rank, in order."""
    found = world.store.redis.zrange(world.key(f":index:{topic}"), 0, -1, withscores=True)
    return {decoded(stream_id): int(rank) for stream_id, rank in found}


def ids(world, topic="orders"):
    return [decoded(stream_id) for stream_id, _ in world.store.redis.xrange(world.key(f":log:{topic}"))]


def add_foreign(world, number, *, topic="orders", start=1, size=1):
    """Add messages that somebody wrote without ampsq: nothing of them is indexed."""
    pipe = world.store.redis.pipeline(transaction=False)
    for i in range(number):
        pipe.xadd(world.key(f":log:{topic}"), {"x": "y" * size}, id=f"{start + i}-0")
    pipe.execute()


def filled(world, topic="orders"):
    """Complete a topic's index, and return how many calls that took."""
    calls = 1
    while world.run("index_log", topic):
        calls += 1
        assert calls < 1_000
    return calls


def test_what_is_published_has_a_point_about_every_thousand_entries(orders):
    for _ in range(10):
        publish(orders, 250)
    log = ids(orders)

    assert points(orders) == {log[999]: 1_000, log[1999]: 2_000}


def test_batches_that_pass_a_thousand_have_a_point_at_their_end(orders):
    for _ in range(10):
        publish(orders, 450)

    ranks = list(points(orders).values())
    log = ids(orders)
    assert [log.index(stream_id) + 1 for stream_id in points(orders)] == ranks
    assert ranks == [1_350, 2_250, 3_150, 4_050]


def test_trimming_removes_the_points_of_what_is_gone_but_the_last_one(orders):
    for _ in range(8):
        publish(orders, 500)
    before = points(orders)
    assert list(before.values()) == [1_000, 2_000, 3_000, 4_000]
    orders.now = LATER

    while trim(orders, age="", count=1_200).removed:
        pass

    # 2,800 are gone: counts begin at the point before
    assert list(points(orders).values()) == [2_000, 3_000, 4_000]


def test_trimming_adds_points_where_the_length_never_passes_a_thousand(orders):
    for _ in range(8):
        publish(orders, 300)
        trim(orders, age="", count=100)

    assert list(points(orders).values())[-1] >= 1_800
    assert len(points(orders)) <= 2


def test_what_others_wrote_is_indexed_in_bounded_steps(orders):
    add_foreign(orders, 5_500)
    assert points(orders) == {}

    assert filled(orders) >= 5
    assert points(orders) == {f"{n}-0": n for n in range(1_000, 5_001, 1_000)}
    # Nothing is looked through twice
    assert filled(orders) == 1


def test_a_hole_between_two_points_is_filled(orders):
    publish(orders, 1_000)
    last = parse_id(ids(orders)[-1])[0]
    add_foreign(orders, 3_600, start=last + 1)
    orders.now = last + 10_000
    publish(orders, 500)
    assert list(points(orders).values()) == [1_000, 5_100]

    filled(orders)

    assert list(points(orders).values()) == [1_000, 2_000, 3_000, 4_000, 5_100]
    assert [ids(orders).index(stream_id) + 1 for stream_id in points(orders)] == list(points(orders).values())


def test_large_entries_have_a_point_at_about_every_megabyte(orders):
    add_foreign(orders, 1_500, size=BYTES // 100)

    filled(orders)

    # As far as a thousand were lacking
    assert 4 <= len(points(orders)) <= 6


def test_an_index_of_a_former_log_is_forgotten(orders):
    for _ in range(6):
        publish(orders, 500)
    orders.store.redis.delete(orders.key(":log:orders"))
    add_foreign(orders, 1_500, start=5_000_000_000_000)

    filled(orders)

    assert points(orders) == {"5000000000999-0": 1_000}


def test_a_point_is_found_at_an_id_or_before_it(orders):
    add_foreign(orders, 3_000)
    filled(orders)

    assert orders.run("find_index_point", "orders", "999-9") == ["0-0", 0]
    assert orders.run("find_index_point", "orders", "1000-0") == ["1000-0", 1_000]
    assert orders.run("find_index_point", "orders", "2999-0") == ["2000-0", 2_000]
    assert orders.run("find_index_point", "orders", "9999999999999-0") == ["3000-0", 3_000]
    assert orders.run("find_index_point", "nothing", "5-0") == ["0-0", 0]


def test_entries_are_gone_over_up_to_a_number_or_an_end(orders):
    add_foreign(orders, 2_000)

    assert orders.run("skip_entries", "orders", "0-0", "+", 150) == ["150-0", 150, 0]
    assert orders.run("skip_entries", "orders", "150-0", "160-0", 150) == ["160-0", 10, 1]
    assert orders.run("skip_entries", "orders", "2000-0", "+", 1) == ["2000-0", 0, 1]
    assert orders.run("skip_entries", "orders", "0-0", "+", 5_000) == ["1000-0", 1_000, 0]


def test_large_entries_are_gone_over_a_megabyte_at_a_time_by_whoever_goes_over_them(orders):
    add_foreign(orders, 40, size=100_000)

    assert orders.run("skip_entries", "orders", "0-0", "+", 500) == ["16-0", 16, 0]
    assert orders.run("skip_entries", "orders", "16-0", "+", 500) == ["32-0", 16, 0]
    assert orders.run("skip_entries", "orders", "32-0", "+", 500) == ["40-0", 8, 1]
    assert orders.run("count_entries", "orders", "16-0", "+") == ["32-0", 16]
    assert orders.run("count_entries", "orders", "32-0", "+") == ["", 8]


@pytest.mark.parametrize("number", [0, 1, 7, 999, 1_000, 2_345])
def test_ranks_and_entries_answer_each_other(orders, number):
    add_foreign(orders, 4_000)
    store, name = orders.store, orders.store.instance
    store.run(complete("orders"))

    assert store.run(rank_of("orders", (number, 0))) == number
    assert store.run(entry_at(name, "orders", number)) == (number, 0)


def test_ranks_of_a_trimmed_log_begin_where_it_begins(orders):
    add_foreign(orders, 4_000)
    store, name = orders.store, orders.store.instance
    store.redis.xtrim(orders.key(":log:orders"), maxlen=1_500, approximate=False)
    store.run(complete("orders"))

    first = store.run(rank_of("orders", (2_500, 0)))
    assert store.run(rank_of("orders", (4_000, 0))) - first == 1_500
    assert store.run(entry_at(name, "orders", first + 100)) == (2_600, 0)


@pytest.mark.parametrize(("number", "parts"), [(10, 3), (4_000, 7), (30_000, 2), (3, 5)])
def test_a_log_is_cut_into_parts_of_about_the_same_number(orders, number, parts):
    add_foreign(orders, number)
    store = orders.store
    store.run(complete("orders"))

    found = store.run(cuts(store.instance, "orders", (0, 0), (number, 0), parts))

    ends = [0, *(ms for ms, _ in found), number]
    sizes = [end - start for start, end in itertools.pairwise(ends)]
    assert len(sizes) == min(parts, number)
    assert max(sizes) - min(sizes) <= max(1, number // parts // 10)


def test_deleted_entries_count_as_there_and_cuts_stay_between_the_ends(orders):
    add_foreign(orders, 6_000)
    store, log = orders.store, orders.key(":log:orders")
    store.run(complete("orders"))
    store.redis.xdel(log, *(f"{n}-0" for n in range(1_500, 4_500)))

    assert store.run(rank_of("orders", (6_000, 0))) == 6_000
    assert INDEX_STEP * 5 <= store.run(rank_of("orders", (5_999, 0))) <= 5_999
    found = store.run(cuts(store.instance, "orders", (1_000, 0), (6_000, 0), 8))
    assert found == sorted(set(found))
    assert all((1_000, 0) < each < (6_000, 0) for each in found)
