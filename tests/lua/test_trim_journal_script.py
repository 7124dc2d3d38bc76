"""Trimming a journal: what no log has any more need not be told, and nothing else goes."""

from __future__ import annotations

import pytest
from trimming import AGE, LATER, READERS, publish, read_all, trim, walk
from world import decoded, ref

from ampsq.base.errors import UnknownQueue
from ampsq.protocol.limits import BATCH


def trim_journal(world, queue="work", after="", readers=()):
    return tuple(world.run("trim_journal", world.now, queue, after, *readers))


def journal(world, queue="work"):
    return [
        decoded(fields[b"refs"]).split() for _, fields in world.store.redis.xrange(world.key(f":q:{queue}:journal"))
    ]


def settle_each(world, messages):
    for message in messages:
        assert world.settle("acknowledged", [message]) == {}


def test_entries_are_removed_when_the_log_has_none_of_their_messages(world):
    # Given four settled messages, an entry each, of which the log has lost two
    world.queue("work", "orders")
    ids = publish(world, 2)
    world.now += 500
    ids += publish(world, 2)
    settle_each(world, read_all(world))
    world.now = 1_000 + AGE
    assert trim(world).removed == 2
    world.mark()
    # When the journal is trimmed
    assert trim_journal(world) == ("", 2)
    # Then it tells of the other two, and the counters stay
    assert journal(world) == [[ref(ids[2])], [ref(ids[3])]]
    changes = world.changes()
    assert set(changes) == {":q:work:journal", ":retention"}
    assert world.state()[":q:work"]["acknowledged"] == "4"
    world.now = LATER
    assert trim(world).removed == 2
    assert trim_journal(world) == ("", 2)
    assert journal(world) == []


def test_an_entry_stays_as_long_as_one_of_its_messages(world):
    world.queue("work", "orders")
    world.queue("mail", "orders")
    ids = publish(world, 3)
    world.settle("acknowledged", read_all(world))
    world.settle("acknowledged", [m for m in read_all(world, "mail") if m.ref != ref(ids[1])])
    world.now = LATER
    assert trim(world).removed == 2
    assert trim_journal(world) == ("", 0)
    assert journal(world) == [[ref(each) for each in ids]]
    assert trim_journal(world, "mail") == ("", 1)


def test_entries_behind_one_that_stays_are_removed_too(world):
    # Given a message that another queue never settles, and a thousand after it
    world.queue("work", "orders", room=10_000)
    world.queue("slow", "orders")
    ids = [each for _ in range(4) for each in publish(world, 250)]
    subscription = world.subscribe("work", asked=10_000)
    world.take(world.subscribe("slow"), 1)
    world.settle("acknowledged", {"slow": [(ref(each), "") for each in ids[1:]]})
    world.take(world.subscribe("slow", asked=1), 1)
    taken = [*world.take(subscription, BATCH), *world.take(subscription, BATCH)]
    for first in range(0, 1_000, 100):
        world.settle("acknowledged", taken[first : first + 100])
    world.now = LATER
    while trim(world).next:
        pass
    # Then only the entry that tells of that one is left
    assert sum(iter_steps(world)) == 9
    assert journal(world) == [[ref(each) for each in ids[:100]]]
    assert walk(world, "journal work").split(" ")[1] == "1"


def iter_steps(world, queue="work"):
    place, removed = trim_journal(world, queue)
    yield removed
    while place:
        place, removed = trim_journal(world, queue)
        yield removed


def test_a_walk_ends_where_no_walk_over_the_log_has_come_yet(world):
    # Given a log of which nothing is old, and one walk over it
    world.queue("work", "orders")
    publish(world, 50)
    settle_each(world, read_all(world))
    assert trim(world).given_up == 0
    # Then one step over the journal looks at one entry
    assert trim_journal(world) == ("", 0)
    assert walk(world, "journal work") == "0-0 0 1000 0-0"


def test_what_an_action_has_not_handled_stays(world):
    world.queue("work", "orders")
    world.follow_expired("dead-letter-work", "work")
    publish(world, 3)
    settle_each(world, read_all(world))
    world.now = LATER
    assert trim(world, readers=READERS).removed == 3
    assert trim_journal(world, readers=READERS) == ("", 0)
    second = decoded(world.store.redis.xrange(world.key(":q:work:journal"))[1][0])
    world.run("advance_action", "dead-letter-work", "expire work", "0-0", second, 0, 0, 0)
    half = (*READERS[:3], "half", READERS[4])
    world.store.redis.hset(world.key(":action:dead-letter-work"), "half", f"{second}+1")
    assert trim_journal(world, readers=half) == ("", 1)
    assert trim_journal(world, readers=READERS) == ("", 1)
    assert len(journal(world)) == 1


def test_what_a_destination_does_not_have_stays(world):
    world.queue("work", "orders")
    publish(world, 3)
    settle_each(world, read_all(world))
    world.now = LATER
    assert trim(world).removed == 3
    readers = ("journal", "work", "destination nyc-2", "journal work", "")
    assert trim_journal(world, readers=readers) == ("", 0)
    second = decoded(world.store.redis.xrange(world.key(":q:work:journal"))[1][0])
    world.run("report_sent", "nyc-2", "journal work", second)
    assert trim_journal(world, readers=readers) == ("", 2)
    assert len(journal(world)) == 1
    assert trim_journal(world) == ("", 1)


def test_a_queue_over_a_topic_that_keeps_all_keeps_what_tells_of_it(world):
    world.queue("work", "orders", "audit", pattern=True)
    publish(world, 2)
    publish(world, 2, "audit")
    settle_each(world, read_all(world))
    world.now = LATER
    assert trim(world).removed == 2
    assert trim_journal(world) == ("", 2)
    assert {place.split("/")[1] for (place,) in journal(world)} == {"audit"}


def test_an_entry_that_tells_of_no_message_stays(world):
    world.queue("work", "orders")
    world.store.redis.xadd(world.key(":q:work:journal"), {"how": "defined", "reason": ""})
    publish(world, 1)
    settle_each(world, read_all(world))
    world.now = LATER
    assert trim(world).removed == 1
    assert trim_journal(world) == ("", 1)
    assert world.store.redis.xlen(world.key(":q:work:journal")) == 1


def test_a_step_is_bounded_and_the_next_goes_on(world):
    world.queue("work", "orders", room=10_000)
    for _ in range(10):
        publish(world, BATCH)
    subscription = world.subscribe("work", asked=10_000)
    while messages := world.take(subscription, BATCH):
        world.settle("acknowledged", messages)
    world.now = LATER
    while trim(world).next:
        pass
    place, removed = trim_journal(world)
    assert (bool(place), removed) == (True, 6)
    assert trim_journal(world) == ("", 4)


def test_an_unknown_queue_is_refused(world):
    with pytest.raises(UnknownQueue):
        trim_journal(world, "nobody")
