"""Trimming a log: what is removed, what is kept and for whom; one call each, every key compared."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from world import decoded, ref

from ampsq.errors import CatalogChanged
from ampsq.schema import BATCH

AGE = 1_000
#: By when everything that the tests publish is old.
LATER = 10_000


class Step(NamedTuple):
    next: str
    kept: int
    given_up: int
    removed: int
    pinned: str
    by: str


def trim(world, topic="orders", *, age=AGE, size="", count="", after="", passed=0, dry=0, readers=()):
    arguments = (world.version(), topic, age, size, count, after, passed, dry, *readers)
    return Step(*world.run("trim", world.now, *arguments))


def log(world, topic="orders"):
    return [decoded(stream_id) for stream_id, _ in world.store.redis.xrange(world.key(f":log:{topic}"))]


def walk(world, name="log orders"):
    return decoded(world.store.redis.hget(world.key(":retention"), name))


def publish(world, number, topic="orders"):
    """IDs of as many messages."""
    ms, sequence = world.publish(topic, *map(str, range(number)))[2].split("-")
    return [f"{ms}-{int(sequence) + i}" for i in range(number)]


def settled(world, *ids, queue="work", topic="orders"):
    assert world.settle("acknowledged", {queue: [(ref(stream_id, topic), "") for stream_id in ids]}) == {}


def read_all(world, queue="work", number=BATCH):
    """Let a queue read its log; gives the messages, which stay leased."""
    return world.take(world.subscribe(queue, asked=number), number)


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
        ":retention": {"log orders": f"{ids[3]} 1 10000 {ids[3]}", "pin orders": f"{ids[3]} queue work leased"},
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


# -- what is kept


def seed_waiting(world):
    publish(world, 2)


def seed_leased(world):
    publish(world, 2)
    read_all(world)


def seed_ready(world):
    publish(world, 2)
    world.settle("cancelled", read_all(world))


def seed_delayed(world):
    publish(world, 2)
    world.settle("cancelled", read_all(world), period=1_000_000)
    assert world.state()[":q:work"]["delayed"] == "2"


@pytest.mark.parametrize(
    ("seed", "state"),
    [(seed_waiting, "waiting"), (seed_leased, "leased"), (seed_delayed, "delayed")],
)
def test_what_a_queue_has_not_settled_is_kept(world, seed, state):
    world.queue("work", "orders", room=10)
    world.topic("orders")
    seed(world)
    world.now = LATER
    ids = log(world)
    step = trim(world)
    assert (step.removed, step.pinned, step.by) == (0, ids[0], f"queue work {state}")
    assert log(world) == ids


def test_what_is_scheduled_is_kept_and_ends_with_it(world):
    # Given a message that is due later, and one with a life of its own that is settled already
    world.queue("work", "orders")
    later = world.publish("orders", "later", due=50_000)[2]
    living = world.publish("orders", "living", expiration=1_000_000)[2]
    (message,) = read_all(world)
    world.settle("acknowledged", [message])
    assert world.state()[":expirations:orders"] == {living: 1_001_000.0}
    world.now = LATER
    # Then the first is kept, and of the other nothing is left
    assert trim(world) == ("", 1, 2, 1, later, "queue work scheduled")
    assert ":expirations:orders" not in world.state()
    world.now = 50_000
    world.sweep_all()
    assert trim(world, after="0-0").by == "queue work leased"


def test_what_is_delayed_is_kept_beside_many_others_in_the_timetable(world):
    # Given a message that comes back later, and a timetable with more than a call reads
    world.queue("work", "orders")
    ids = publish(world, 3)
    messages = read_all(world)
    world.settle("acknowledged", [messages[0], messages[2]])
    world.settle("cancelled", messages[1:2], period=1_000_000)
    world.store.redis.zadd(world.key(":due"), {f"leases q{i}": 10**9 for i in range(BATCH)})
    world.now = LATER
    assert trim(world) == ("", 1, 3, 2, ids[1], "queue work delayed")


def test_what_came_back_is_kept(world):
    world.queue("work", "orders")
    ids = publish(world, 1)
    subscription = world.subscribe("work")
    messages = world.take(subscription)
    world.unsubscribe(subscription, messages)
    assert list(world.state()[":q:work:ready"]) == [ref(ids[0])]
    world.now = LATER
    assert trim(world) == ("", 1, 1, 0, ids[0], "queue work ready")


def test_what_is_sorted_or_held_is_kept_with_priorities_of_any_size(world):
    world.queue("work", "orders", priority="/p", room=10)
    world.queue("gate", "orders", barrier="/b = 1", room=10)
    first = world.publish("orders", '{"p": 18446744073709551615, "b": 0}', '{"p": 1, "b": 0}')[2]
    barrier = world.publish("orders", '{"p": 2, "b": 1}', '{"p": 0, "b": 0}')[2]
    holders = [world.subscribe("work"), world.subscribe("gate", asked=3)]
    taken = world.take(holders[0])
    assert [message.ref for message in taken] == [ref(first)]
    gate = world.take(holders[1], 3)
    world.run("sweep", world.now)
    assert len(world.state()[":q:work:sorted:none"]) == 3
    assert len(world.state()[":q:gate:held"]) == 1
    world.now = LATER
    ids = log(world)
    assert trim(world) == ("", 3, 3, 0, ids[0], "queue work leased")
    # When both queues have settled all, but the one what is sorted, and the other the barrier that waits
    world.settle("acknowledged", gate[:1])
    world.settle("acknowledged", taken)
    assert trim(world, after="0-0") == ("", 2, 3, 1, ids[1], "queue work ready")
    world.settle("acknowledged", {"work": [(ref(stream_id), "") for stream_id in ids[1:]]})
    assert trim(world, after="0-0") == ("", 2, 2, 0, ids[1], "queue gate leased")
    assert trim(world, after=ids[1], passed=1) == ("", 2, 1, 0, ids[2], "queue gate held")
    assert log(world) == [ids[1], barrier, ids[3]]


def test_a_barrier_that_was_sent_is_kept_while_it_may_be_pushed_again(world):
    world.queue("work", "orders", barrier="/b = 1", room=10)
    subscription = world.subscribe("work", asked=5)
    ids = [world.publish("orders", '{"b": 1, "x": "' + "x" * 20_000 + '"}')[2]]
    assert [message.kind for message in world.inbox(subscription)] == ["r"]
    world.now = LATER
    assert trim(world) == ("", 1, 1, 0, ids[0], "queue work barrier")
    (message,) = world.take(subscription)
    assert len(message.body) > 20_000
    world.unsubscribe(subscription)
    assert trim(world, after="0-0").removed == 1


def test_a_hold_keeps_what_begins_with_its_id_until_it_is_dropped(world):
    world.topic("orders")
    ids = publish(world, 4)
    world.now = LATER
    world.run("hold", world.now, "orders", "replay r1", ids[2], 0)
    assert world.state()[":holds:orders"] == {"replay r1": f"{ids[2]} 0"}
    assert trim(world) == ("", 0, 2, 2, ids[2], "replay r1")
    world.run("hold", world.now, "orders", "replay r1", ids[3], 0)
    assert trim(world) == ("", 0, 1, 1, ids[3], "replay r1")
    world.run("hold", world.now, "orders", "replay r1", "", 0)
    assert trim(world) == ("", 0, 1, 1, "", "")
    assert ":holds:orders" not in world.state()


def test_the_least_of_several_holds_counts_and_one_whose_time_is_over_is_dropped(world):
    world.topic("orders")
    ids = publish(world, 3)
    world.run("hold", world.now, "orders", "replay gone", ids[0], 5_000)
    world.run("hold", world.now, "orders", "destination nyc-2", ids[1], 0)
    world.now = 6_000
    assert trim(world) == ("", 0, 0, 0, ids[0], "replay gone")
    world.now = 6_001
    assert trim(world) == ("", 0, 1, 1, ids[1], "destination nyc-2")
    assert world.state()[":holds:orders"] == {"destination nyc-2": f"{ids[1]} 0"}


def test_pins_keep_single_messages(world):
    world.topic("orders")
    ids = publish(world, 5)
    world.now = LATER
    world.run("pin", "orders", "action a1", 1, ids[1], ids[3])
    world.run("pin", "orders", "action a2", 1, ids[3])
    assert trim(world) == ("", 2, 5, 3, ids[1], "action a1")
    assert log(world) == [ids[1], ids[3]]
    world.run("pin", "orders", "action a1", 0, ids[1], ids[3])
    world.now += 1_000
    assert trim(world) == ("", 1, 2, 1, ids[3], "action a2")
    world.run("pin", "orders", "action a2", 0, ids[3])
    world.now += 1_000
    assert trim(world).removed == 1
    assert ":pins:orders" not in world.state()


READERS = ("journal", "work", "dead-letter-work", "cursor expire work", "expired")


def test_what_an_action_has_not_handled_is_kept(world):
    world.queue("work", "orders")
    world.follow_expired("dead-letter-work", "work")
    ids = publish(world, 3)
    messages = read_all(world)
    world.settle("acknowledged", messages[:1])
    world.settle("expired", messages[1:2])
    world.settle("acknowledged", messages[2:])
    world.now = LATER
    # Then the expired one stays until the action's place is behind its entry
    assert trim(world, readers=READERS) == ("", 1, 3, 2, ids[1], "action dead-letter-work")
    last = decoded(world.store.redis.xrange(world.key(":q:work:journal"))[1][0])
    assert world.run("advance", "dead-letter-work", "expire work", "0-0", last, 0, 0, 1) == 1
    assert trim(world, after="0-0", readers=READERS).removed == 1


def test_an_action_keeps_what_it_has_not_read_of_the_log_itself(world):
    world.topic("orders")
    ids = publish(world, 5)
    world.now = LATER
    world.store.redis.hset(world.key(":action:copy"), "cursor log orders", ids[1])
    readers = ("log", "orders", "copy", "cursor log orders", "")
    assert trim(world, readers=readers) == ("", 0, 2, 2, ids[2], "action copy")
    # Of an entry of which it has done a part, it needs the rest
    world.store.redis.hset(world.key(":action:copy"), "cursor log orders", f"{ids[3]}+1")
    assert trim(world, readers=readers) == ("", 0, 1, 1, ids[3], "action copy")


def test_an_action_that_is_far_behind_keeps_everything_of_its_queue(world):
    world.queue("work", "orders", room=10_000)
    world.follow_expired("dead-letter-work", "work")
    ids = [each for _ in range(10) for each in publish(world, BATCH)]
    subscription = world.subscribe("work", asked=10_000)
    while messages := world.take(subscription, BATCH):
        world.settle("expired", messages)
    world.now = LATER
    assert trim(world, readers=READERS) == ("", 0, 0, 0, ids[0], "action dead-letter-work")


def test_a_queue_that_appears_later_needs_what_the_log_still_has(world):
    # Given a log whose head was trimmed
    world.queue("work", "orders")
    ids = publish(world, 5)
    settled(world, *ids[:3])
    read_all(world)
    world.now = LATER
    assert trim(world).removed == 3
    # When another queue is defined over it
    world.queue("late", "orders")
    # Then it counts two unread, needs both, and reads both
    figures = world.run("stats", "late")
    assert figures[7:] == ["orders", 2, "0-0", ids[-1]]
    assert trim(world, after="0-0").by == "queue late waiting"
    assert [message.ref for message in read_all(world, "late")] == [ref(stream_id) for stream_id in ids[3:]]
    assert world.run("stats", "late")[7:] == ["orders", 0, ids[-1], ids[-1]]


def test_a_queue_whose_keys_are_lost_stops_trimming(world):
    world.queue("work", "orders")
    ids = publish(world, 2)
    settled(world, *ids)
    read_all(world)
    world.now = LATER
    world.store.redis.delete(world.key(":q:work"))
    assert trim(world).removed == 0
    assert log(world) == ids


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
    assert world.run("stats", "work")[7:9] == ["orders", 0]


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
    for name, rest in (("trim", ("", 0, 0)), ("discard", ("0-0", 0))):
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
    for name in ("old", "action:x", "view:y"):
        world.publish("orders", "1", publisher=name, sequence=1)
    world.now += 604_800_000
    world.publish("orders", "1", publisher="new", sequence=1)
    assert world.run("forget_publishers", world.now, "0") == "0"
    assert set(world.state()[":publishers"]) == {"old", "action:x", "view:y", "new"}
    world.now += 1
    world.mark()
    assert world.run("forget_publishers", world.now, "0") == "0"
    assert world.changes() == {":publishers": {"old": None}}


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
