"""Bounds of a call, and what stays whole however much there is: bytes, inboxes, passes, things settled ahead."""

from __future__ import annotations

import pytest
from world import ref

from ampsq.base.errors import UnknownSubscription
from ampsq.protocol.limits import BATCH, BYTES, PASS_AGAIN, RETURNED

LARGE = "x" * 100_000
#: A hundred thousand bytes at a time, a megabyte is full with the eleventh at the latest.
FULL = 11


def publish_many(world, topic, number):
    """Publish in batches; gives all refs."""
    refs = []
    for first in range(0, number, BATCH):
        ms, sequence = world.publish(topic, *map(str, range(first, min(first + BATCH, number))))[2].split("-")
        refs += [ref(f"{ms}-{int(sequence) + k}", topic) for k in range(min(BATCH, number - first))]
    return refs


def calls_of(world, name):
    """Return how often the server ran a command, in scripts too."""
    return world.store.redis.info("commandstats").get(f"cmdstat_{name}", {}).get("calls", 0)


def due(world):
    return world.state().get(":due", {})


# -- what was settled before the queue came to it


def test_a_take_passes_over_a_thousand_settled_messages_and_the_next_goes_on(world):
    # Given 5,000 messages that were acknowledged by bookmark, and one behind them
    world.queue("work", "orders")
    refs = publish_many(world, "orders", 5_000)
    for first in range(0, 5_000, BATCH):
        assert world.settle("acknowledged", {"work": [(place, "") for place in refs[first : first + BATCH]]}) == {}
    world.publish("orders", "behind")
    subscription = world.subscribe("work")
    # When it is taken
    left, found = [5_000], []
    while not found:
        assert len(left) < 10
        found = world.take(subscription)
        left.append(world.store.redis.hlen(world.key(":q:work:ahead")))
        if not found:
            # Then what is left over is the timetable's, should nobody take again
            assert due(world) == {"dispatch work": 1_000.0}
    # Each call passed over a share, and the message came
    assert left == [5_000, 4_000, 3_000, 2_000, 1_000, 0, 0]
    assert [(message.body, message.delivery) for message in found] == [("behind", 1)]


# -- inboxes


def test_an_inbox_that_nobody_picks_up_stays_bounded_and_its_messages_are_delivered_once(world):
    # Given a consumer that does not come, and 100 messages whose leases lapse fifty times
    world.queue("work", "orders", lease=1_000)
    subscription = world.subscribe("work", asked=100)
    world.publish("orders", *map(str, range(100)))
    sizes = []
    for _ in range(50):
        world.now += 1_001
        world.sweep_all()
        sizes.append(len(world.inbox(subscription)))
    # Then its inbox holds each once, and the consumer gets them as their first delivery when it comes
    assert max(sizes) == 100
    messages = world.take(subscription, 100)
    assert sorted(int(message.body) for message in messages) == list(range(100))
    assert {message.delivery for message in messages} == {1}
    assert ":q:work:attempts" not in world.state()


def test_what_lapses_unseen_beside_a_held_message_never_expires(world):
    # Given a consumer that holds one message for long, while the next lapses in its inbox ten times
    world.queue("work", "orders", lease=1_000, deliveries=3)
    subscription = world.subscribe("work", asked=2)
    world.publish("orders", "long")
    held = world.take(subscription, 2)
    world.publish("orders", "innocent")
    for _ in range(40):
        world.now += 300
        world.settle("extended", held, period=1_000)
        world.sweep_all()
    # Then that one is still there, undelivered
    assert [(message.body, message.delivery) for message in world.inbox(subscription)] == [("innocent", 1)]
    assert [(message.body, message.delivery) for message in world.take(subscription, 2)] == [("innocent", 1)]
    assert ":q:work:journal" not in world.state()


def test_whether_a_message_was_picked_up_is_told_without_a_search_of_a_long_inbox(world):
    # Given a message that is held, and 1,200 that were pushed later and lie in the inbox
    world.queue("work", "orders", lease=5_000, room=2_000)
    subscription = world.subscribe("work", asked=1_300)
    world.publish("orders", "held")
    (held,) = world.take(subscription, 1)
    world.now = 3_000
    publish_many(world, "orders", 1_200)
    world.sweep_all()
    before = calls_of(world, "lrange")
    # When the lease of the one that is held lapses
    world.now = 6_000
    world.sweep_all()
    # Then that was a delivery, nothing was searched, and all others stand where they stood
    assert calls_of(world, "lrange") == before
    *others, again = world.inbox(subscription)
    assert (again.ref, again.delivery) == (held.ref, 2)
    assert [message.body for message in others] == [*map(str, range(1_200))]


def test_beside_what_is_pushed_again_only_what_was_picked_up_counts(world):
    # Given five messages that were taken, of which two are held and three were lost, and three more in the inbox
    world.runs = False
    world.queue("work", "orders", lease=5_000, room=200)
    subscription = world.subscribe("work", asked=200)
    world.publish("orders", *"abcde")
    tokens = {message.body: message.token for message in world.take(subscription, 5)}
    world.publish("orders", *"fgh")
    # When those that were lost are pushed again, and all leases lapse
    assert world.run("push_again", world.now, subscription, "work", "0", tokens["b"], tokens["d"]) == "0"
    world.now = 6_000
    world.sweep_all()
    # Then those that are held were delivered, and nothing else
    found = {message.body: message.delivery for message in world.take(subscription, 10)}
    assert found == {body: 2 if body in "bd" else 1 for body in "abcdefgh"}


def test_what_is_pushed_again_is_looked_for_until_all_before_it_left_the_inbox(world):
    # Given a message that is held for longer, and one that was lost and lies, pushed again, behind 200 others
    world.runs = False
    world.queue("work", "orders", lease=5_000, room=400)
    subscription = world.subscribe("work", asked=400)
    world.publish("orders", "lost", "held")
    lost, held = world.take(subscription, 2)
    world.now = 2_000
    world.publish("orders", *map(str, range(200)))
    world.run("push_again", world.now, subscription, "work", "0", held.token)
    assert world.inbox(subscription)[-1].ref == lost.ref
    # When both lapse, and not the others
    world.now = 6_000
    world.sweep_all()
    # Then the one that was pushed again was no delivery, the other was one
    *_, first, second = messages = world.take(subscription, 202)
    assert [(first.body, first.delivery), (second.body, second.delivery)] == [("lost", 1), ("held", 2)]
    assert len(messages) == 202
    # And once all has left the inbox, the first message there tells again
    field = "again work"
    assert field in world.state()[f":s:{subscription}"]
    world.publish("orders", *map(str, range(100)))
    world.now = 11_500
    world.sweep_all()
    assert field not in world.state()[f":s:{subscription}"]


def test_messages_that_came_back_are_read_together_and_one_that_left_the_log_is_passed_over(world):
    # Given ten messages that came back, three of which somebody removed from the log, and one that is new
    world.runs = False
    world.queue("work", "orders", lease=5_000)
    subscription = world.subscribe("work", asked=11)
    world.publish("orders", *map(str, range(10)))
    world.settle("cancelled", {"work": [(message.ref, message.token) for message in world.take(subscription, 10)]})
    assert world.unsubscribe(subscription) == 0
    world.publish("orders", "new")
    for number in (0, 4, 9):
        world.store.redis.xdel(world.key(":log:orders"), f"1000-{number}")
    before, other = calls_of(world, "xrange"), world.subscribe("work", asked=11)
    # When they are taken, then all that are there come in their order, those that are neighbours in one look
    messages = world.take(other, 11)
    assert [message.body for message in messages] == [*"123", *"5678", "new"]
    assert [message.delivery for message in messages] == [2] * 7 + [1]
    assert calls_of(world, "xrange") - before <= 6
    # And when all are acknowledged at once, nothing is known of them any more
    assert world.settle("acknowledged", {"work": [(message.ref, message.token) for message in messages]}) == {}
    assert ":q:work:attempts" not in world.state()


def test_unsubscribe_ends_a_subscription_at_its_first_call_and_later_ones_empty_its_inbox(world):
    # Given a subscription with three calls' worth of messages in its inbox
    world.queue("work", "orders", room=2_000)
    subscription = world.subscribe("work", asked=3 * RETURNED)
    publish_many(world, "orders", 3 * RETURNED)
    # When the first call was made, nothing of the subscription is left but its inbox
    assert world.unsubscribe(subscription) == 1
    state = world.state()
    for suffix in (f":s:{subscription}", ":subscriptions", ":q:work:subscriptions", ":q:work:free:none"):
        assert suffix not in state
    assert len(world.inbox(subscription)) == 2 * RETURNED
    assert world.run("heartbeat", world.now, 1_000, "", subscription)[::2] == [str(world.now), ""]
    for verb in (world.take, lambda name: world.run("push_again", world.now, name, "work", "0")):
        with pytest.raises(UnknownSubscription):
            verb(subscription)
    world.publish("orders", "later")
    assert len(world.inbox(subscription)) == 2 * RETURNED
    # And the rest goes back by the same call again, uncounted, to whoever is there
    assert [world.unsubscribe(subscription), world.unsubscribe(subscription)] == [1, 0]
    world.sweep_all()
    other = world.subscribe("work", asked=2_000)
    bodies, deliveries = [], set()
    while messages := world.take(other, BATCH):
        bodies += [message.body for message in messages]
        deliveries |= {message.delivery for message in messages}
    assert bodies == [*map(str, range(3 * RETURNED)), "later"]
    assert deliveries == {1}


def test_a_subscription_whose_hash_somebody_removed_stops_nobody(world):
    # Given a free subscription, and one that holds a message, both removed by another hand
    world.queue("work", "orders")
    holder, free = world.subscribe("work"), world.subscribe("work")
    world.publish("orders", "held")
    assert list(world.holders("work").values()) == [holder]
    for name in (holder, free):
        world.store.redis.delete(world.key(f":s:{name}"))
    # When others publish and subscribe
    world.publish("orders", "one")
    world.publish("orders", "two")
    other = world.subscribe("work", asked=3)
    # Then everything is recorded and delivered
    assert [message.body for message in world.take(other, 3)] == ["one", "two"]
    assert set(world.state()[":q:work:free:none"]) == {other}


# -- bytes


@pytest.mark.parametrize("fields", [("a", "1", "p", LARGE), ("b", "1", "h", LARGE), ("p", LARGE)])
def test_every_field_of_an_entry_counts_among_a_call_s_bytes(world, fields):
    # Given thirty entries that are large in another field than their first
    world.queue("work", "orders")
    for number in range(30):
        world.xadd("orders", f"{number + 1}-0", *fields)
    subscription = world.subscribe("work", asked=100)
    # When they are taken, then in calls of about a megabyte
    sizes = []
    while messages := world.take(subscription, 100):
        sizes.append(len(messages))
    assert sum(sizes) == 30
    assert max(sizes) <= FULL


@pytest.mark.parametrize("fields", [("a", "1", "p", LARGE), ("b", "1", "h", LARGE)])
def test_what_is_large_in_any_field_stays_in_the_log_when_it_is_pushed(world, fields):
    world.queue("work", "orders")
    subscription = world.subscribe("work", asked=100)
    for number in range(30):
        world.xadd("orders", f"{number + 1}-0", *fields)
    for _ in range(10):
        world.run("scan_foreign_entries", world.now, "orders", "")
        world.sweep_all()
    assert {message.kind for message in world.inbox(subscription)} == {"r"}
    assert world.store.redis.memory_usage(world.key(f":s:{subscription}:inbox"), samples=0) < 30 * 1_000
    sizes = []
    while messages := world.take(subscription, 100):
        sizes.append(len(messages))
    assert sum(sizes) == 30
    assert max(sizes) <= FULL


def test_duplicates_of_large_bodies_are_found_with_few_bytes_read(world):
    # Given a publisher's messages among a hundred large ones
    world.topic("orders")
    world.publish("orders", "first", publisher="p", sequence=1)
    for _ in range(100):
        world.publish("orders", LARGE)
    recorded = [world.publish("orders", body, publisher="p", sequence=n)[2] for n, body in ((2, LARGE), (3, LARGE))]
    world.mark()
    # When the last ones are published again, then one look finds them
    before = calls_of(world, "xrevrange")
    assert world.publish("orders", "again", publisher="p", sequence=3) == [
        "orders",
        1,
        "",
        0,
        f"orders~i.one~{recorded[1]}",
    ]
    assert calls_of(world, "xrevrange") == before + 1
    answer = world.publish("orders", "again", "again", publisher="p", sequence=2)
    assert answer == ["orders", 2, "", 0, *(f"orders~i.one~{place}" for place in recorded)]
    assert calls_of(world, "xrevrange") == before + 2
    # And when the first one is, it is known to be one, and looked for in a call's share of bytes, two entries at a time
    before = calls_of(world, "xrevrange")
    assert world.publish("orders", "again", publisher="p", sequence=1) == ["orders", 1, "", 0, ""]
    assert calls_of(world, "xrevrange") - before <= BYTES // (2 * len(LARGE)) + 1
    assert world.changes() == {}


# -- several queues


def test_a_take_that_wants_more_serves_the_queues_in_turn(world):
    # Given a subscription to two queues, one with more than it ever takes, one with three older messages
    world.queue("a", "letters")
    world.queue("b", "orders")
    world.publish("orders", "b0", "b1", "b2")
    publish_many(world, "letters", 1_000)
    subscription = world.subscribe("a", "b", asked=100)
    # When it takes fifty at a time
    taken = [world.take(subscription, 50)]
    for _ in range(3):
        taken.append(world.take(subscription, 50, taken[-1]))
    # Then the other queue's turn comes with the second at the latest
    queues = [[message.queue for message in messages] for messages in taken]
    assert [len(messages) for messages in taken] == [50, 50, 50, 50]
    assert queues[0].count("b") + queues[1].count("b") == 3
    assert queues[2] == queues[3] == ["a"] * 50


def test_two_full_queues_get_the_same(world):
    world.queue("a", "letters")
    world.queue("b", "orders")
    publish_many(world, "letters", 500)
    publish_many(world, "orders", 500)
    subscription = world.subscribe("a", "b", asked=100)
    held, counts = [], {"a": 0, "b": 0}
    for _ in range(10):
        held = world.take(subscription, 50, held)
        for message in held:
            counts[message.queue] += 1
    assert counts == {"a": 250, "b": 250}


# -- lease passes


def test_while_leases_that_never_lapse_are_left_a_pass_comes_again(world):
    # Given a queue without a lease period and two holders, one of which ends
    world.queue("work", "orders")
    ending, staying = world.subscribe("work"), world.subscribe("work")
    world.publish("orders", "one", "two")
    held = {name: world.take(name)[0] for name in (ending, staying)}
    world.unsubscribe(ending)
    # When a pass was made, then another one follows within a minute
    assert world.sweep_all() == PASS_AGAIN
    assert due(world) == {"leases work": world.now + PASS_AGAIN, f"departed {ending}": world.now + 3_600_000}
    # So that it is found when a holder goes whom no pass was told of
    world.store.redis.delete(world.key(f":s:{staying}"))
    world.now += PASS_AGAIN
    world.sweep_all()
    assert world.holders("work") == {}
    assert held[staying].ref in world.state()[":q:work:ready"]
    # And with no leases left, no pass is due any more
    assert "leases work" not in due(world)


@pytest.mark.parametrize("attempt", range(3))
def test_a_lease_made_during_a_pass_lapses_though_the_lease_period_changes_meanwhile(world, attempt):
    # Given a pass of several steps, under way
    world.queue("work", "orders", lease=10_000, room=5_000)
    gone = world.subscribe("work", asked=2_000)
    publish_many(world, "orders", 2_000)
    while world.take(gone, BATCH):
        pass
    world.now += 10_001 + attempt
    world.unsubscribe(gone)
    world.sweep()
    assert "pass" in world.state()[":q:work"]
    # When a lease is made, and then the queue's leases are told never to lapse
    late = world.subscribe("work")
    message = world.take(late)[0]
    world.queue("work", "orders", lease=0, room=5_000)
    assert "pass" not in world.state()[":q:work"]
    world.sweep_all()
    world.mark()
    # Then that lease ends when it would
    world.now = message.deadline - 1
    world.sweep_all()
    assert world.state()[":q:work:leases"][message.ref].split(" ")[0] == message.token
    world.now = message.deadline + 100
    world.sweep_all()
    lease = world.state().get(":q:work:leases", {}).get(message.ref, "")
    assert lease.split(" ")[0] != message.token
