"""verify, repair and the scripts that look through a queue's structures: what each says, and what it changes."""

from __future__ import annotations

import pytest
from world import ref

from ampsq.base.errors import Rebuilding, UnknownQueue

#: Five messages: the first is acknowledged, the second leased, the third ready, the fourth delayed, the fifth waits.
ACKED, LEASED, READY, DELAYED, WAITING = (ref(f"1000-{number}") for number in range(5))


@pytest.fixture
def queue(world):
    # Leased one by one, so that a test can set down a lease beside them
    world.runs = False
    world.queue("work", "orders", lease=60_000)
    world.publish("orders", *"abcde")
    subscription = world.subscribe("work", asked=4)
    acked, _, ready, delayed = world.take(subscription, 4)
    world.run("resize_backlog", world.now, subscription, 1)
    world.settle("cancelled", [delayed], period=5_000)
    world.settle("cancelled", [ready])
    world.settle("acknowledged", [acked])
    world.subscription = subscription
    world.mark()
    return world


def verdicts(world, script="verify", settled=()):
    """A word for each of the five, as the journal is read to its end, or as `settled` says."""
    claims = [text for place in (ACKED, LEASED, READY, DELAYED, WAITING) for text in (place, int(place in settled))]
    looked, _, *words = world.run(script, world.now, "work", "0-0", *claims)
    assert looked == 5
    return words


def test_verify_reads_the_journal_s_tail_itself_and_finds_nothing_wrong(queue):
    assert verdicts(queue) == [""] * 5
    assert verdicts(queue, "repair") == [""] * 5
    assert queue.changes() == {}


def test_what_the_caller_read_of_the_journal_counts_as_the_tail_does(queue):
    last = queue.store.redis.xrevrange(queue.key(":q:work:journal"), count=1)[0][0].decode()
    assert queue.run("verify", queue.now, "work", last, ACKED, 1) == [1, last, ""]
    assert queue.run("verify", queue.now, "work", last, ACKED, 0) == [1, last, "lost"]


@pytest.mark.parametrize(
    ("damage", "words", "changes"),
    [
        (
            ("zrem", ":q:work:ready", READY), {2: "lost"},
            {":q:work:ready": {READY: 0.0}},
        ),
        (
            ("zadd", ":q:work:ready", {ACKED: 0}), {0: "settled_but_live"},
            {":q:work:ready": {ACKED: None}},
        ),
        (
            ("hset", ":q:work:ahead", WAITING, "acknowledged"), {4: "ahead_unsettled"},
            {":q:work:ahead": None},
        ),
        (
            ("zadd", ":q:work:ready", {WAITING: 0}), {4: "unread_but_live"},
            {":q:work:ahead": {WAITING: "delivered"}},
        ),
        (
            ("zadd", ":q:work:ready", {LEASED: 0}), {1: "in_two_places"},
            {":q:work:ready": {LEASED: None}},
        ),
        (
            ("hset", ":q:work:ahead", ACKED, "acknowledged"), {0: "ahead_left"},
            {":q:work:ahead": None},
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)  # fmt: skip
def test_each_word_and_what_repair_changes(queue, damage, words, changes):
    command, suffix, *arguments = damage
    call = getattr(queue.store.redis, command)
    call(queue.key(suffix), *arguments)
    expected = [words.get(number, "") for number in range(5)]
    queue.mark()
    assert verdicts(queue) == expected
    assert queue.changes() == {}
    assert verdicts(queue, "repair") == expected
    found = queue.changes()
    assert found.pop(":due") == {"dispatch work": 1_000.0}
    assert found == changes
    assert verdicts(queue) == [""] * 5


def test_a_settled_message_that_is_still_leased_frees_its_room(queue):
    assert verdicts(queue, "repair", settled=(LEASED,))[1] == "settled_but_live"
    changes = queue.changes()
    assert changes[":q:work:leases"] is None
    assert changes[f":s:{queue.subscription}"] == {"leased": "0"}
    assert changes[":q:work:free:none"] == {queue.subscription: 0.0}


def test_what_the_log_does_not_have_is_settled_as_missing(queue):
    queue.store.redis.xdel(queue.key(":log:orders"), "1000-3")
    queue.mark()
    assert verdicts(queue, "repair")[3] == "unrecorded"
    changes = queue.changes()
    assert changes[":q:work:journal"][0]["refs"] == DELAYED
    assert changes[":q:work:journal"][0]["how"] == "missing"
    assert changes[":due"] == {f"ready work {DELAYED}": None, "dispatch work": 1_000.0}
    assert changes[":q:work"]["delayed"] == "0"
    assert verdicts(queue) == [""] * 5


def test_a_lost_message_that_was_published_for_later_is_scheduled_again(world):
    world.queue("work", "orders")
    world.xadd("orders", "900-0", "b", "later", "d", "9000")
    world.store.redis.hset(world.key(":q:work:cursors"), "orders", "900-0 1")
    world.mark()
    place = ref("900-0")
    assert world.run("repair", world.now, "work", "0-0", place, 0) == [1, "0-0", "lost"]
    changes = world.changes()
    assert changes[":due"][f"scheduled work {place}"] == 9_000.0
    assert changes[":q:work"] == {"scheduled": "1"}
    assert world.run("verify", world.now, "work", "0-0", place, 0) == [1, "0-0", ""]


def test_a_message_for_another_queue_is_not_lost(world):
    world.queue("work", "orders")
    world.xadd("orders", "900-0", "b", "redriven", "q", "other")
    world.store.redis.hset(world.key(":q:work:cursors"), "orders", "900-0 1")
    assert world.run("verify", world.now, "work", "0-0", ref("900-0"), 0)[2] == ""


@pytest.mark.parametrize("script", ["verify", "repair"])
def test_where_the_journal_went_far_on_it_is_to_be_read_first(queue, script):
    for number in range(70):
        queue.store.redis.xadd(queue.key(":q:work:journal"), {"how": "acknowledged", "refs": ref(f"5-{number}")})
    queue.mark()
    assert queue.run(script, queue.now, "work", "0-0", READY, 0) == [-1, "0-0"]
    assert queue.changes() == {}


# -- looking through


def test_check_log_gives_a_letter_for_each_place(queue):
    queue.settle("acknowledged", {"work": [(WAITING, "")]})
    queue.publish("orders", "f")
    following, refs, letters = queue.run("check_log", "work", "orders", "0-0", "+")
    assert (following, letters) == ("", "xloo" + "aw")
    assert refs.split(" ")[:5] == [ACKED, LEASED, READY, DELAYED, WAITING]
    assert queue.run("check_log", "work", "orders", "1000-1", "1000-3")[2] == "oo"
    queue.store.redis.zadd(queue.key(":q:work:ready"), {LEASED: 0})
    assert queue.run("check_log", "work", "orders", "0-0", "1000-1")[2] == "x!"


def test_check_log_goes_on_where_a_page_ended(world):
    world.queue("work", "orders")
    for _ in range(3):
        world.publish("orders", *map(str, range(200)))
    after, letters, pages = "0-0", "", 0
    while after:
        after, _, found = world.run("check_log", "work", "orders", after, "+")
        letters, pages = letters + found, pages + 1
    assert letters == "w" * 600
    assert pages == 3
    # Large bodies make smaller pages
    world.publish("orders", *["x" * 100_000] * 20)
    assert len(world.run("check_log", "work", "orders", "1000-599", "+")[2]) < 20


def test_check_live_finds_leases_of_nobody_unless_a_pass_is_due_and_makes_one_due(queue):
    queue.store.redis.hset(queue.key(":q:work:leases"), WAITING, "9 s00009999 1 61000 60000")
    cursor, unheld, refs, gone, holders, _ = queue.run("check_structure", queue.now, "work", "leases", "0", 50, 0)
    assert (cursor, unheld, refs, gone) == ("0", 1, WAITING, 0)
    assert sorted(holders.split(" ")) == [queue.subscription, "s00009999"]
    queue.mark()
    queue.run("check_structure", queue.now, "work", "leases", "0", 50, 1)
    assert queue.changes() == {":due": {"leases work": 1_000.0}}
    assert queue.run("check_structure", queue.now, "work", "leases", "0", 50, 1)[1] == 0


def test_locate_and_count_entries_find_a_place_and_what_lies_behind(world):
    world.queue("work", "orders")
    for _ in range(3):
        world.publish("orders", *map(str, range(400)))
    assert world.run("locate_in_log", "orders", "1000-299") == ["1000-299", "1000-1199", 1200, 1200]
    assert world.run("locate_in_log", "orders", "-")[:2] == ["0-0", "1000-1199"]
    assert world.run("locate_in_log", "nothing", "+") == ["0-0", "0-0", 0, 0]
    total, after = 0, "1000-299"
    while after:
        after, number = world.run("count_entries", "orders", after, "1000-1199")
        total += number
        assert number <= 500
    assert total == 900


def test_a_new_queue_begins_where_its_topics_are_said_to_begin(world):
    world.topic("orders")
    world.publish("orders", *"abc")
    world.mark()
    compiled = world.compiled() + " orders"
    head = (world.now, world.version(), "work", "{}", "orders", compiled, "", "", "", "", "", 0, "", "", "", "", "", 1)
    world.run("define_queue", *head, "orders now")
    changes = world.changes()
    assert changes[":q:work:cursors"] == {"orders": "1000-2 3"}
    ((_, fields),) = changes[":q:work:definitions"]
    assert fields == {"how": "start", "cursors": "orders 1000-2"}


# -- rebuilding


def test_a_rebuild_step_by_step(queue):
    # Given a queue whose cursors and ready messages are lost
    queue.store.redis.delete(queue.key(":q:work:cursors"), queue.key(":q:work:ready"))
    queue.mark()
    # When it is paused
    assert queue.run("begin_rebuild", queue.now, "work", "me", 5_000, 0, "orders 0-0 0") == [0, "1000-4", 5]
    compiled = queue.compiled(lease=60_000)
    assert queue.changes() == {
        ":q:work": {"compiled": f"{compiled} ~", "paused": "orders", "rebuild": "me 6000"},
        ":q:work:cursors": {"orders": "0-0 0"},
        ":rebuilding": {"work": 6_000.0},
    }
    # Then it gives nothing, and nobody else can rebuild it until its time is over
    other = queue.subscribe("work", asked=5)
    assert queue.take(other, 5) == []
    with pytest.raises(Rebuilding):
        queue.run("begin_rebuild", queue.now, "work", "you", 5_000, 0, "orders 0-0 0")
    with pytest.raises(Rebuilding):
        queue.run("rebuild", queue.now, "work", "you", 5_000, "0-0", "", WAITING, 0)
    # When what waits up to the boundary is collected, and what is live behind it noted
    queue.mark()
    refs = [text for place in (ACKED, LEASED, READY, DELAYED, WAITING) for text in (place, 0)]
    done, _, kept_out = queue.run("rebuild", queue.now, "work", "me", 5_000, "0-0", READY, *refs)
    assert (done, kept_out) == (5, 0)
    assert queue.changes() == {
        ":q:work:rebuilt": {READY: 0.0},
        ":q:work:ahead": {DELAYED: "delivered"},
    }
    # Then the end is one step
    queue.mark()
    assert queue.run("end_rebuild", queue.now, "work", "me", "0-0", READY, "", "orders 1000-2 3")[0] == 0
    changes = queue.changes()
    assert changes == {
        ":q:work": {"compiled": f"{compiled} orders", "paused": None, "rebuild": None},
        ":q:work:cursors": {"orders": "1000-2 3"},
        ":q:work:rebuilt": None,
        ":q:work:ready": {READY: 0.0},
        ":due": {"dispatch work": 1_000.0},
        ":rebuilding": None,
    }
    assert verdicts(queue) == [""] * 5
    assert [message.ref for message in queue.take(other, 5)] == [READY, WAITING]


def test_what_nobody_holds_cannot_be_settled_while_a_queue_is_rebuilt(queue):
    queue.run("begin_rebuild", queue.now, "work", "me", 5_000, 0, "orders 0-0 0")
    queue.store.redis.delete(queue.key(":q:work:ready"))
    queue.run("rebuild", queue.now, "work", "me", 5_000, "0-0", WAITING, READY, 0, WAITING, 0)
    assert queue.settle("acknowledged", {"work": [(READY, "")]}) == {READY: "AMPSQ_REBUILDING"}
    assert queue.run("end_rebuild", queue.now, "work", "me", "0-0", WAITING, "", "orders 1000-4 5")[0] == 0
    assert queue.state()[":q:work:ready"] == {READY: 0.0, WAITING: 0.0}


def test_leave_takes_out_what_lies_before_the_recovery_point_but_no_leases(queue):
    queue.run("begin_rebuild", queue.now, "work", "me", 5_000, 1, "orders 1000-3 4")
    queue.mark()
    assert queue.run("drop_before_start", "work", LEASED, READY, DELAYED, WAITING) == 2
    changes = queue.changes()
    assert changes[":q:work:ready"] is None
    assert changes[":due"] == {f"ready work {DELAYED}": None}
    assert ":q:work:leases" not in changes


@pytest.mark.parametrize("script", ["verify", "repair", "drop_before_start", "check_log", "check_delayed_counts"])
def test_an_unknown_queue_is_refused_and_nothing_changed(world, script):
    arguments = {
        "verify": (world.now, "nobody", "0-0"), "repair": (world.now, "nobody", "0-0"),
        "drop_before_start": ("nobody",),
        "check_log": ("nobody", "orders", "0-0", "+"), "check_delayed_counts": ("nobody", 1),
    }  # fmt: skip
    world.mark()
    with pytest.raises(UnknownQueue):
        world.run(script, *arguments[script])
    assert world.changes() == {}
