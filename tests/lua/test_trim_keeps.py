"""Trimming a log: what is kept, for whom, and how that is told."""

from __future__ import annotations

import pytest
from trimming import LATER, READERS, log, publish, read_all, settled, trim
from world import decoded, ref

from ampsq.protocol.limits import BATCH


def seed_waiting(world):
    publish(world, 2)


def seed_leased(world):
    publish(world, 2)
    read_all(world)


def seed_delayed(world):
    publish(world, 2)
    world.settle("cancelled", read_all(world), period=1_000_000)
    assert world.state()[":q:work"]["delayed"] == "2"


# -- what is kept


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
    world.run("hold_log", world.now, "orders", "replay r1", ids[2], 0)
    assert world.state()[":holds:orders"] == {"replay r1": f"{ids[2]} 0"}
    assert trim(world) == ("", 0, 2, 2, ids[2], "replay r1")
    world.run("hold_log", world.now, "orders", "replay r1", ids[3], 0)
    assert trim(world) == ("", 0, 1, 1, ids[3], "replay r1")
    world.run("hold_log", world.now, "orders", "replay r1", "", 0)
    assert trim(world) == ("", 0, 1, 1, "", "")
    assert ":holds:orders" not in world.state()


def test_the_least_of_several_holds_counts_and_one_whose_time_is_over_is_dropped(world):
    world.topic("orders")
    ids = publish(world, 3)
    world.run("hold_log", world.now, "orders", "replay gone", ids[0], 5_000)
    world.run("hold_log", world.now, "orders", "destination nyc-2", ids[1], 0)
    world.now = 6_000
    assert trim(world) == ("", 0, 0, 0, ids[0], "replay gone")
    world.now = 6_001
    assert trim(world) == ("", 0, 1, 1, ids[1], "destination nyc-2")
    assert world.state()[":holds:orders"] == {"destination nyc-2": f"{ids[1]} 0"}


def test_pins_keep_single_messages(world):
    world.topic("orders")
    ids = publish(world, 5)
    world.now = LATER
    world.run("pin_messages", "orders", "action a1", 1, ids[1], ids[3])
    world.run("pin_messages", "orders", "action a2", 1, ids[3])
    assert trim(world) == ("", 2, 5, 3, ids[1], "action a1")
    assert log(world) == [ids[1], ids[3]]
    world.run("pin_messages", "orders", "action a1", 0, ids[1], ids[3])
    world.now += 1_000
    assert trim(world) == ("", 1, 2, 1, ids[3], "action a2")
    world.run("pin_messages", "orders", "action a2", 0, ids[3])
    world.now += 1_000
    assert trim(world).removed == 1
    assert ":pins:orders" not in world.state()


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
    assert world.run("advance_action", "dead-letter-work", "expire work", "0-0", last, 0, 0, 1) == 1
    assert trim(world, after="0-0", readers=READERS).removed == 1


def test_an_action_keeps_what_it_has_not_read_of_the_log_itself(world):
    world.topic("orders")
    ids = publish(world, 5)
    world.now = LATER
    world.store.redis.hset(world.key(":action:copy"), "cursor log orders", ids[1])
    readers = ("log", "orders", "action copy", "cursor log orders", "")
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


LOG, JOURNAL = (("log", "orders"), ("journal", "work"))


def to_destination(stream, name="nyc-2"):
    return (*stream, f"destination {name}", " ".join(stream), "")


def test_a_destination_keeps_what_it_does_not_have_and_all_before_it_was_ever_linked(world):
    world.topic("orders")
    ids = publish(world, 5)
    world.now = LATER
    readers = to_destination(LOG)
    assert trim(world, readers=readers) == ("", 0, 0, 0, ids[0], "destination nyc-2")
    world.run("report_sent", "nyc-2", "log orders", ids[2])
    assert trim(world, readers=readers) == ("", 0, 3, 3, ids[3], "destination nyc-2")
    world.run("report_sent", "nyc-2", "log orders", ids[4])
    assert trim(world, readers=readers) == ("", 0, 2, 2, "", "")


def test_of_several_destinations_the_one_that_is_furthest_behind_counts(world):
    world.topic("orders")
    ids = publish(world, 3)
    world.now = LATER
    world.run("report_sent", "nyc-2", "log orders", ids[2])
    world.run("report_sent", "ldn-1", "log orders", ids[0])
    readers = to_destination(LOG) + to_destination(LOG, "ldn-1")
    assert trim(world, readers=readers) == ("", 0, 1, 1, ids[1], "destination ldn-1")


def test_a_message_stays_until_a_destination_has_what_its_queue_journaled_of_it(world):
    world.queue("work", "orders")
    ids = publish(world, 3)
    messages = read_all(world)
    for message in messages:
        world.settle("acknowledged", [message])
    world.now = LATER
    first, _, third = (decoded(each) for each, _ in world.store.redis.xrange(world.key(":q:work:journal")))
    readers = to_destination(LOG) + to_destination(JOURNAL)
    world.run("report_sent", "nyc-2", "log orders", ids[2], "journal work", first)
    assert trim(world, readers=readers) == ("", 2, 3, 1, ids[1], "destination nyc-2")
    world.run("report_sent", "nyc-2", "journal work", third)
    assert trim(world, after="0-0", readers=readers).removed == 2


def test_a_destination_that_is_far_behind_keeps_everything_of_its_queue(world):
    world.queue("work", "orders", room=10_000)
    ids = [each for _ in range(10) for each in publish(world, BATCH)]
    subscription = world.subscribe("work", asked=10_000)
    while messages := world.take(subscription, BATCH):
        world.settle("acknowledged", messages)
    world.now = LATER
    world.run("report_sent", "nyc-2", "log orders", ids[-1], "journal work", "0-0")
    readers = to_destination(LOG) + to_destination(JOURNAL)
    assert trim(world, readers=readers) == ("", 0, 0, 0, ids[0], "destination nyc-2")


def test_what_a_link_does_not_carry_by_the_catalog_of_now_is_not_kept_for_its_destination(world):
    # Given a link that carries the log alone: the other side has no such queue
    world.queue("work", "orders")
    ids = publish(world, 2)
    world.settle("acknowledged", read_all(world))
    world.now = LATER
    readers = to_destination(LOG) + to_destination(JOURNAL)
    world.run("report_sent", "nyc-2", "catalog", "0", "log orders", ids[1])
    # Then what it said of an older catalog counts for nothing
    assert trim(world, readers=readers) == ("", 2, 2, 0, ids[0], "destination nyc-2")
    world.run("report_sent", "nyc-2", "catalog", world.version())
    assert trim(world, after="0-0", readers=readers).removed == 2


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
    figures = world.run("read_stats", "late")
    assert figures[8:] == ["orders", 2, "0-0", ids[-1]]
    assert trim(world, after="0-0").by == "queue late waiting"
    assert [message.ref for message in read_all(world, "late")] == [ref(stream_id) for stream_id in ids[3:]]
    assert world.run("read_stats", "late")[8:] == ["orders", 0, ids[-1], ids[-1]]


def test_a_queue_whose_keys_are_lost_stops_trimming(world):
    world.queue("work", "orders")
    ids = publish(world, 2)
    settled(world, *ids)
    read_all(world)
    world.now = LATER
    world.store.redis.delete(world.key(":q:work"))
    assert trim(world).removed == 0
    assert log(world) == ids
