"""Trimming a log: what is removed, and what a walk does; one call each, every key compared."""

from __future__ import annotations

import pytest
from trimming import AGE, LATER, log, publish, read_all, settled, trim, walk
from world import decoded

from ampsq.base.errors import CatalogChanged
from ampsq.protocol.limits import BATCH

# -- what is removed


def test_what_every_queue_has_settled_and_is_old_is_removed_from_the_head(world):
    # Given two queues that both settled the first three of four messages
    world.queue("work", "orders")
    world.queue("mail", "orders")
    ids = publish(world, 4)
    for queue in ("work", "mail"):
        messages = read_all(world, queue)
        assert world.settle("acknowledged", messages[:3]) == {}
    world.now = LATER
    # When the log is trimmed
    world.mark()
    step = trim(world)
    # Then those are gone, the leased one is told, and nothing else has changed but the walk's place
    assert step == ("", 1, 4, 3, ids[3], "queue work leased")
    assert log(world) == ids[3:]
    assert world.changes() == {
        ":log:orders": [(ids[3], {"b": "3"})],
        ":retention": {
            "log orders": f"{ids[3]} 1 10000 {ids[3]}",
            "pin orders": f"{ids[3]} queue work leased",
            "removed orders": ids[2],
        },
    }


def test_an_emptied_log_keeps_its_key_so_that_ids_go_on(world):
    world.queue("work", "orders")
    ids = publish(world, 2)
    settled(world, *ids)
    read_all(world)
    world.now = LATER
    assert trim(world) == ("", 0, 2, 2, "", "")
    assert log(world) == []
    info = world.store.redis.xinfo_stream(world.key(":log:orders"))
    assert (decoded(info["last-generated-id"]), info["entries-added"]) == (ids[-1], 2)
    world.now = 500
    assert publish(world, 1) == [f"{ids[-1].split('-')[0]}-2"]


def test_a_topic_that_feeds_no_queue_is_trimmed_by_its_policy_alone(world):
    world.topic("orders")
    publish(world, 3)
    world.now = LATER
    publish(world, 1)
    assert trim(world) == ("", 0, 3, 3, "", "")
    assert len(log(world)) == 1


def test_nothing_younger_than_the_age_is_removed(world):
    world.topic("orders")
    old = publish(world, 2)
    world.now += 1
    young = publish(world, 2)
    world.now = 1_000 + AGE
    assert trim(world, dry=1, after="0-0").removed == 2
    assert trim(world) == ("", 0, 2, 2, "", "")
    assert log(world) == young
    assert old[0] not in young


def test_a_count_keeps_the_newest(world):
    world.topic("orders")
    ids = publish(world, 10)
    assert trim(world, age="", count=4).removed == 6
    assert log(world) == ids[6:]
    assert trim(world, age="", count=4) == ("", 0, 0, 0, "", "")


def test_a_count_is_of_all_messages_whether_needed_or_not(world):
    # Given ten messages, of which the second is leased
    world.queue("work", "orders")
    ids = publish(world, 10)
    messages = read_all(world)
    world.settle("acknowledged", [messages[i] for i in range(10) if i != 1])
    # Then the newest four stay, and the needed one
    assert trim(world, age="", count=4).removed == 5
    assert log(world) == [ids[1], *ids[6:]]
    assert trim(world, age="", count=4, after=ids[1], passed=1).removed == 0
    assert log(world) == [ids[1], *ids[6:]]


def test_a_size_keeps_about_as_much_memory(world):
    world.topic("orders")
    for _ in range(8):
        world.publish("orders", *["x" * 1_000] * 250)
    used = world.store.redis.memory_usage(world.key(":log:orders"))
    while trim(world, age="", size=500_000).next:
        pass
    after = world.store.redis.memory_usage(world.key(":log:orders"))
    assert used > 2_000_000
    assert 400_000 < after <= 520_000


def test_whichever_limit_is_passed_first_counts(world):
    world.topic("orders")
    publish(world, 4)
    world.now = LATER
    young = publish(world, 6)
    assert trim(world, count=5).removed == 5
    assert log(world) == young[1:]


# -- stuck messages


def test_settled_ranges_behind_a_stuck_message_are_deleted_and_their_memory_comes_back(world):
    # Given 5,000 messages, all settled but the first and one in the middle
    world.queue("work", "orders", room=10_000)
    ids = [each for _ in range(10) for each in publish(world, BATCH)]
    subscription = world.subscribe("work", asked=10_000)
    messages = []
    while more := world.take(subscription, BATCH):
        messages += more
    stuck = {0, 2_500}
    rest = [message for i, message in enumerate(messages) if i not in stuck]
    for first in range(0, len(rest), BATCH):
        world.settle("acknowledged", rest[first : first + BATCH])
    world.now = LATER
    before = world.store.redis.memory_usage(world.key(":log:orders"), samples=0)
    # When it is trimmed to the end
    steps = [trim(world)]
    while steps[-1].next:
        steps.append(trim(world))
    # Then those two are left, and the memory of two nodes
    assert log(world) == [ids[0], ids[2_500]]
    assert sum(step.removed for step in steps) == 4_998
    after = world.store.redis.memory_usage(world.key(":log:orders"), samples=0)
    assert after < 6_000 < before / 10
    # And no count of the queue has changed
    assert world.run("read_stats", "work")[8:10] == ["orders", 0]


def test_a_walk_goes_on_where_the_last_step_ended_and_comes_back_for_what_it_left(world):
    world.queue("work", "orders", room=10_000)
    ids = [each for _ in range(3) for each in publish(world, BATCH)]
    subscription = world.subscribe("work", asked=10_000)
    messages = [*world.take(subscription, BATCH), *world.take(subscription, BATCH), *world.take(subscription, BATCH)]
    world.settle("acknowledged", messages[2:])
    world.now = LATER
    assert trim(world) == (ids[499], 2, 500, 498, ids[0], "queue work leased")
    assert walk(world) == f"{ids[499]} 2 0 {ids[499]}"
    assert trim(world) == (ids[999], 2, 500, 500, ids[0], "queue work leased")
    # At the end it rests
    assert trim(world)[:4] == (ids[1499], 2, 500, 500)
    assert trim(world)[:4] == ("", 2, 0, 0)
    assert walk(world) == f"{ids[1499]} 2 10000 {ids[1499]}"
    world.settle("acknowledged", messages[:1])
    world.now += 999
    assert trim(world)[:4] == ("", 2, 0, 0)
    # And after a second it begins anew
    world.now += 1
    assert trim(world) == ("", 1, 2, 1, ids[1], "queue work leased")
    assert log(world) == ids[1:2]


@pytest.mark.parametrize("lost", ["", "999999999-0 7 0 999999999-0", "1000-3 5 1 1000-3", "nonsense"])
def test_a_walk_whose_place_is_lost_or_of_another_log_does_no_harm(world, lost):
    world.queue("work", "orders")
    ids = publish(world, 6)
    messages = read_all(world)
    world.settle("acknowledged", [*messages[:2], *messages[4:]])
    world.now = LATER
    key = world.key(":retention")
    if lost:
        world.store.redis.hset(key, "log orders", lost)
    for _ in range(4):
        trim(world)
        assert set(ids[2:4]) <= set(log(world))
        world.now += 2_000
    assert log(world) == ids[2:4]


def test_two_walks_at_once_remove_each_message_once(world):
    world.queue("work", "orders", room=10_000)
    for _ in range(4):
        settled(world, *publish(world, BATCH))
    read_all(world)
    while world.take(world.subscribe("work", asked=10), 10):
        pass
    world.now = LATER
    steps = [trim(world), trim(world, after="0-0"), trim(world), trim(world, after="0-0"), trim(world)]
    assert [step.removed for step in steps] == [500, 500, 500, 500, 0]
    assert log(world) == []


# -- refusals, dry runs, definitions


def test_a_dry_run_counts_and_changes_nothing(world):
    world.queue("work", "orders")
    ids = publish(world, 5)
    messages = read_all(world)
    world.settle("acknowledged", messages[2:])
    world.now = LATER
    world.mark()
    assert trim(world, after="0-0", dry=1) == ("", 2, 5, 3, ids[0], "queue work leased")
    assert trim(world, age="", count=3, after="0-0", dry=1) == ("", 2, 2, 0, ids[0], "queue work leased")
    assert world.changes() == {}


def test_another_catalog_than_the_callers_is_refused(world):
    world.topic("orders")
    publish(world, 1)
    world.now, version = LATER, world.version()
    world.topic("orders")
    world.mark()
    for name, rest in (("trim_log", ("", 0, 0)), ("discard_unsettled", ("0-0", 0))):
        with pytest.raises(CatalogChanged):
            world.run(name, world.now, version, "orders", AGE, "", "", *rest)
    assert world.changes() == {}


def test_defining_a_topic_anew_forgets_the_walk(world):
    world.queue("work", "orders")
    publish(world, 1)
    world.now = LATER
    trim(world)
    assert set(world.state()[":retention"]) == {"log orders", "pin orders"}
    world.topic("orders")
    assert ":retention" not in world.state()


# -- publishers


def test_publishers_that_were_not_heard_of_for_a_week_are_forgotten(world):
    world.topic("orders")
    world.now = 1_000
    for name in ("old", "action:x@i.one:publish orders:t", "action:x@o.1:publish orders:t", "view:y"):
        world.publish("orders", "1", publisher=name, sequence=1)
    world.now += 604_800_000
    world.publish("orders", "1", publisher="new", sequence=1)
    assert world.run("forget_publishers", world.now, "0") == "0"
    assert len(world.state()[":publishers"]) == 5
    world.now += 1
    world.mark()
    assert world.run("forget_publishers", world.now, "0") == "0"
    # Of actions those of this instance stay
    assert world.changes() == {":publishers": {"old": None, "action:x@o.1:publish orders:t": None}}


# -- queues that nobody reads


def test_a_queue_that_nobody_reads_is_moved_past_what_it_has_settled(world):
    # Given messages that were settled by bookmark, and one for another queue, and nobody ever subscribed
    world.queue("work", "orders")
    ids = publish(world, 4)
    addressed = world.xadd("orders", f"{world.now}-9", "b", "x", "q", "mail")
    settled(world, *ids[:3])
    assert set(world.state()[":q:work:ahead"].values()) == {"acknowledged"}
    world.now = LATER
    # When the log is trimmed, then they go, and the queue keeps no note of them
    assert trim(world).removed == 3
    assert log(world) == [ids[3], addressed]
    assert ":q:work:ahead" not in world.state()
    assert world.state()[":q:work:cursors"]["orders"] == f"{ids[2]} 3"
    # And the rest when it is settled, too
    settled(world, ids[3])
    trim(world, after="0-0")
    assert log(world) == []
    assert world.state()[":q:work:cursors"]["orders"] == f"{addressed} 5"


def test_a_dry_run_moves_no_queue(world):
    world.queue("work", "orders")
    settled(world, *publish(world, 2))
    world.now = LATER
    world.mark()
    assert trim(world, dry=1, after="0-0").removed == 0
    assert world.changes() == {}
