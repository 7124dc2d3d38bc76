"""Scenes of messages that wait: for a barrier, for somebody, for a sweep."""

# Long: one scene for each reason why a message waits, in the order in which reasons hide each other.
from __future__ import annotations

import re

from explaining import NOBODY_AT_WORK, barriers, scene
from observing import eventually
from scene import pick_up

from ampsq import Destination, Queue, Topic
from ampsq.protocol.calls.subscriptions import SubscribeRequest, subscribe

# -- barriers


@scene("barrier", "held")
def a_barrier_before_which_much_is_unsettled(stage):
    barriers(stage)
    subscription = stage.client.subscribe("work", max_backlog=9)
    stage.publish(1, 2, 3)
    pick_up(subscription, 3)[0].cancel("60s")
    bookmark, _ = stage.client.publish_many("orders", [{"end": 1}, 4])
    found = stage.explain(bookmark)
    assert found.facts["holders"] == {f"{subscription.id} of {stage.me}": 2}
    return found, (
        "The message is a barrier and waits until all before it is settled: 2 leased (to "
        f"{subscription.id} of {stage.me} (2)), 1 delayed."
    )


@scene("behind_barrier", "waiting")
def unread_behind_an_unread_barrier(stage):
    barriers(stage)
    holder = stage.client.subscribe("work", max_backlog=1)
    *_, barrier, _, bookmark = stage.publish(1, 2, {"end": 1}, {"end": 1}, 4)
    stage.client.ack("work", [stage.publish({"end": 1})[0]])
    found = stage.explain(bookmark)
    assert (found.facts["before"], found.facts["barrier"]) == (3, barrier)
    return found, (
        f"The message waits behind the barrier {barrier}, which waits until all before it is settled: 1 leased (to "
        f"{holder.id} of {stage.me} (1)), 1 waiting."
    )


@scene("barrier", "waiting")
def an_unread_barrier(stage):
    barriers(stage)
    *_, bookmark = stage.publish(1, 2, {"end": 1})
    stage.client.subscribe("work")
    return stage.explain(bookmark), ("The message is a barrier and waits until all before it is settled: 2 waiting.")


@scene("behind_barrier", "held")
def behind_a_barrier(stage):
    barriers(stage)
    subscription = stage.client.subscribe("work", max_backlog=9)
    stage.publish(1)
    barrier, bookmark = stage.client.publish_many("orders", [{"end": 1}, 3])
    pick_up(subscription, 1)
    found = stage.explain(bookmark)
    assert found.facts["barrier"] == barrier
    return found, (
        f"The message waits behind the barrier {barrier}, which waits until all before it is settled: 1 leased (to "
        f"{subscription.id} of {stage.me} (1))."
    )


@scene("behind_barrier", "waiting")
def unread_behind_a_barrier_that_nobody_can_get(stage):
    barriers(stage)
    (barrier,) = stage.publish({"end": 1})
    (bookmark,) = stage.publish(3)
    return stage.explain(bookmark), (
        f"The message waits behind the barrier {barrier}, which waits for a first subscription."
    )


@scene("barrier_unsubscribed", "held")
def a_barrier_without_a_subscription(stage):
    barriers(stage)
    stage.publish({"end": 1})
    return stage.explain(), (
        "The next message is a barrier with nothing unsettled before it, and waits for a first subscription."
    )


@scene("barrier_next", "waiting")
def a_barrier_that_the_queue_was_not_told_of(stage):
    barriers(stage)
    stage.client.subscribe("work")
    bookmark = stage.xadd(b='{"end": 1}')
    return stage.explain(bookmark), (
        "The message is a barrier with nothing unsettled before it, and is sent to the one subscription at the next "
        f"dispatch; a dispatch is due{NOBODY_AT_WORK}."
    )


# -- waiting for somebody


@scene("no_subscription", "waiting")
def nobody_is_subscribed(stage):
    stage.queue()
    *_, bookmark = stage.publish(1, 2, 3)
    found = stage.explain(bookmark)
    assert (found.facts["before"], found.facts["before_is_exact"], found.facts["unread"]) == (2, True, 3)
    return found, "The message waits because nobody is subscribed to the queue; 2 messages come before it."


@scene("no_subscription", "waiting")
def nobody_knows_what_comes_before_one_whose_priorities_are_unread(stage):
    stage.queue(priority="/p")
    *_, bookmark = stage.publish({"p": 1}, {"p": 9})
    found = stage.explain(bookmark)
    assert not found.facts["before_is_exact"]
    return found, (
        "The message, of priority 9, waits because nobody is subscribed to the queue; what comes before it is known "
        "when everything is read: 2 messages are still to be read."
    )


@scene("no_subscription", "waiting")
def the_oldest_unread_message_is_not_said_to_be_the_next(stage):
    stage.queue(group_by="/g", group_choice="fair")
    stage.publish({"g": "a"})
    return stage.explain(), (
        "The oldest unread message, of group 'a', waits because nobody is subscribed to the queue; what comes before "
        "it is known when everything is read: 1 message is still to be read."
    )


@scene("no_subscription", "ready")
def it_came_back_and_everybody_left(stage):
    stage.queue()
    stage.publish(1)
    with stage.client.subscribe("work") as subscription:
        pick_up(subscription, 1)
    eventually(lambda: stage.client.admin.queue_stats("work").ready == 1)
    return stage.explain(), (
        "The next message waits because nobody is subscribed to the queue; nothing comes before it; it came back "
        "before, delivered once, last because its subscription ended."
    )


@scene("backlogs_full", "waiting")
def all_are_full(stage):
    stage.queue(max_per_subscription_backlog=2)
    one, other = stage.client.subscribe("work", max_backlog=2), stage.client.subscribe("work")
    *_, bookmark = stage.publish(1, 2, 3, 4, 5)
    stage.redis.zadd(stage.key("subscriptions"), {other.id: 1})
    return stage.explain(bookmark), (
        "The message waits because the backlogs of all subscriptions are full: "
        f"{one.id} of {stage.me} (2 of 2) and {other.id} of {stage.me} (1 of 1, no sign of life for long); 1 "
        "message comes before it."
    )


@scene("backlogs_full", "waiting")
def full_with_another_queue_s_messages(stage):
    stage.queue()
    stage.client.apply(Queue(name="work-2", underlying_topic="returns"))
    subscription = stage.client.subscribe("^work")
    stage.publish(1, topic="returns")
    stage.publish(2)
    return stage.explain(), (
        "The next message waits because the backlogs of all subscriptions are full: "
        f"{subscription.id} of {stage.me} (1 of 1 over 2 queues); nothing comes before it."
    )


@scene("bell_rang", "waiting")
def a_consumer_of_several_partitions_was_told(stage):
    stage.queue(max_per_subscription_backlog=9)
    request = SubscribeRequest(7, None, "", ["work"], None)
    told = stage.client._store.call(subscribe("c-1/1", request, 10_000, has_bell=True)).name
    _, bookmark = stage.publish(1, 2)
    found = stage.explain(bookmark)
    assert found.facts["subscriptions"][0]["max"] == 7
    return found, (
        f"The message waits until it is fetched by {told} of c-1 (0 of 7 here), whose backlog is one over all "
        "partitions of an instance, and who was told that messages wait here; 1 message comes before it."
    )


@scene("matching_full", "ready")
def those_that_match_are_full(stage):
    stage.queue()
    full = stage.client.subscribe("work", filter="/n < 10")
    stage.client.subscribe("work", filter="/n > 10")
    _, bookmark = stage.publish({"n": 1}, {"n": 2})
    none = stage.client.subscribe("work", filter="/n = 2", max_backlog=0)
    found = stage.explain(bookmark)
    assert [row["filter"] for row in found.facts["subscriptions"] if row["matches"]] == ["/n < 10", "/n = 2"]
    return found, (
        "The message waits because, of the 3 subscriptions, only those with a full backlog have a filter that it "
        f"matches: {full.id} of {stage.me} (1 of 1) and {none.id} of {stage.me} (asks for none); nothing "
        "comes before it."
    )


@scene("no_filter_matches", "ready")
def no_filter_matches_it(stage):
    stage.queue()
    stage.client.subscribe("work", filter="/n<1 or /name like 'x'")
    stage.client.subscribe("work", filter="/n>10")
    stage.publish({"n": 5})
    return stage.explain(), (
        "The next message waits because it matches none of the filters of the 2 subscriptions: "
        "/n < 1 OR /name LIKE 'x' and /n > 10."
    )


@scene("no_filter_matches", "ready")
def no_filter_matches_what_is_not_json(stage):
    stage.queue()
    stage.client.subscribe("work", filter="/n < 1")
    stage.publish(b"plain text")
    return stage.explain(), (
        "The next message waits because it does not match the filter of the one subscription, since its body is not "
        "JSON: /n < 1."
    )


@scene("no_filter_matches", "ready")
def no_filter_matches_what_is_not_read(stage):
    stage.queue()
    stage.client.apply(Topic(name="orders", expression_limit="64KB"))
    stage.client.subscribe("work", filter="/n < 1")
    stage.publish(b'{"n":0,"s":"' + b"x" * 65_536 + b'"}')
    found = stage.explain()
    assert found.facts["body"] == {"beyond": "limit", "bytes": 65_550}
    return found, (
        "The next message waits because it does not match the filter of the one subscription, since its body of "
        "65,550 bytes is larger than the topic's expression_limit of 65,536: /n < 1."
    )


@scene("no_filter_matches", "ready")
def no_filter_matches_what_takes_too_many_steps_to_read(stage):
    stage.queue()
    stage.client.subscribe("work", filter="/n < 1")
    stage.publish(b'{"n":0,"l":[' + b"1," * 40_000 + b"1]}")
    return stage.explain(), (
        "The next message waits because it does not match the filter of the one subscription, since its body of "
        "80,015 bytes takes more steps to read than an expression may take: /n < 1."
    )


@scene("queue_full", "waiting")
def the_queue_s_own_backlog_is_reached(stage):
    stage.queue(max_backlog=2, max_per_subscription_backlog=5)
    subscription = stage.client.subscribe("work", max_backlog=5)
    *_, bookmark = stage.publish(1, 2, 3)
    return stage.explain(bookmark), (
        "The message waits because the queue's max_backlog of 2 is reached: 2 messages are leased, held by "
        f"{subscription.id} of {stage.me} (2); nothing comes before it."
    )


@scene("recovering", "waiting")
def the_instance_is_a_new_incarnation(stage):
    stage.queue()
    way = {"topics": ["orders", "work"], "addresses": ["redis://127.0.0.1:1"]}
    stage.client.apply(Destination(name="elsewhere", sync_type="async", **way))
    stage.client.subscribe("work").close()
    stage.publish(1)
    stage.client.admin.begin_incarnation()
    return stage.explain(), (
        "The next message waits because this instance is a new incarnation and holds the queue until it has what "
        "others have of the last one: ampsq replication says for whom it waits."
    )


@scene("queue_paused", "waiting")
def the_queue_is_paused(stage):
    stage.queue(paused=True)
    stage.client.subscribe("work")
    stage.publish(1)
    return stage.explain(), (
        "The next message waits because the queue is paused: it delivers nothing until it is resumed."
    )


@scene("beyond_depth", "waiting")
def beyond_the_target_depth(stage):
    stage.queue(target_queue_depth=1000, max_per_subscription_backlog=2000)
    stage.client.publish_many("orders", range(1001))
    *_, bookmark = stage.publish("one more", "and another")
    subscription = stage.client.subscribe("work", max_backlog=2000)
    pick_up(subscription, 1000)
    found = stage.explain(bookmark)
    assert found.facts["active"] == 1000
    return found, (
        "The message stays unread because the queue keeps 1,000 messages active at most (target_queue_depth): 1,000 "
        "are active, and 2 messages come before it."
    )


@scene("next", "waiting")
def there_is_room_for_it(stage):
    stage.queue(max_per_subscription_backlog=2)
    _, bookmark = stage.publish(1, 2)
    subscription = stage.client.subscribe("work", max_backlog=2)
    return stage.explain(bookmark), (
        "The message is about to be delivered: 1 message comes before it, and "
        f"{subscription.id} of {stage.me} has room."
    )


@scene("next", "ready")
def the_most_urgent(stage):
    stage.queue(priority="/p")
    full = stage.client.subscribe("work")
    stage.publish({"p": 1}, {"p": 2**64 - 2}, {"p": 7})
    stage.sweep()
    free = stage.client.subscribe("work")
    assert full.id < free.id
    return stage.explain(), (
        "The next message, of priority 18446744073709551614, is about to be delivered: nothing comes before it, and "
        f"{free.id} of {stage.me} has room."
    )


@scene("in_line", "ready")
def in_line_by_priority(stage):
    stage.queue(priority="/p")
    stage.client.subscribe("work")
    *_, bookmark = stage.publish({"p": 1}, {"p": 9}, {"p": 7}, {})
    stage.sweep()
    stage.client.subscribe("work")
    found = stage.explain(bookmark)
    assert found.facts["priority"] is None
    return found, (
        "The message, of the lowest priority, waits in line: 2 messages come before it, and there is room for 1."
    )


@scene("in_line", "ready")
def in_line_among_those_that_match(stage):
    stage.queue()
    full, other = (stage.client.subscribe("work", filter=f"/n = {n}") for n in (1, 5))
    *_, bookmark = stage.publish({"n": 1}, {"n": 1}, {"n": 2}, {"n": 1}, {"n": 1})
    pick_up(full, 1)
    free = stage.client.subscribe("work", filter="/n = 1")
    found = stage.explain(bookmark)
    assert (found.facts["before"], found.facts["ready"]) == (2, 4)
    assert full.id < other.id < free.id
    return found, ("The message waits in line: 2 messages come before it, and there is room for 1.")


@scene("sorting", "waiting")
def priorities_are_still_read(stage):
    stage.queue(priority="/p")
    *_, bookmark = stage.publish({"p": 1}, {"p": 2}, {"p": 3})
    stage.client.subscribe("work")
    stage.redis.delete(stage.key("due"))
    return stage.explain(bookmark), (
        "The message, of priority 3, waits because the queue has priorities and delivers nothing before it has read "
        "everything: 3 messages are still to be read."
    )


@scene("sorting", "waiting")
def what_is_still_to_be_read_waits_for_a_sweep(stage):
    stage.queue(priority="/p")
    *_, bookmark = stage.publish({"p": 1}, {"p": 2}, {"p": 3})
    stage.client.subscribe("work")
    stage.redis.zadd(stage.key("due"), {"dispatch work": 1})
    return stage.explain(bookmark), (
        "The message, of priority 3, waits because the queue has priorities and delivers nothing before it has read "
        f"everything: 3 messages are still to be read; a dispatch is due{NOBODY_AT_WORK}."
    )


@scene("resorting", "ready")
def everything_is_judged_anew(stage):
    stage.queue(priority="/p")
    stage.client.subscribe("work")
    *_, bookmark = stage.publish({"p": 1}, {"p": 2}, {"p": 3})
    stage.sweep()
    stage.client.subscribe("work")
    stage.redis.hset(stage.key("filters", "work"), "resort", 1)
    return stage.explain(bookmark), (
        "The message, of priority 3, waits because the queue's priority or barrier expression was changed: 2 messages "
        "are still to be judged anew before anything is delivered."
    )


@scene("indexing", "ready")
def a_filter_s_index_is_being_built(stage):
    stage.queue(priority="/p")
    stage.client.subscribe("work")
    *_, bookmark = stage.publish({"p": 1}, {"p": 2}, {"p": 3})
    stage.sweep()
    stage.client.subscribe("work", filter="/p > 1")
    return stage.explain(bookmark), (
        "The message, of priority 3, waits while the index of a new filter is being built, /p > 1, which nobody with "
        "room can do without."
    )


@scene("removed", "ready")
def somebody_removed_what_waits(stage):
    stage.queue()
    (bookmark,) = stage.publish(1)
    stage.client.subscribe("work", filter="/n = 0")
    stage.publish(2)
    assert stage.explain(bookmark).state == "ready"
    stage.remove(bookmark)
    return stage.explain(bookmark), (
        "The message was removed from the log of topic 'orders' by somebody else; the queue settles it as missing when "
        "it comes to it."
    )


# -- behind others of a group


def grouped(stage, *bodies, **elements):
    """A queue with groups, of which the first message is leased; gives its subscription, that one and the bookmarks."""
    stage.queue(**({"group_by": "/g", "max_per_subscription_backlog": 10} | elements))
    subscription = stage.client.subscribe("work", max_backlog=10)
    bookmarks = stage.publish(*bodies)
    (first,) = pick_up(subscription, 1)
    return subscription, first, bookmarks


def times_in(sentence, pattern):
    """Text that says how long something lasts."""
    return re.search(pattern, sentence)[1]


@scene("group_full", "ready")
def behind_one_of_its_group_that_is_leased(stage):
    subscription, _, bookmarks = grouped(stage, {"g": "a"})
    subscription.get(0.05)
    bookmarks = stage.publish({"g": "a"})
    found = stage.explain(bookmarks[0])
    held = times_in(found.sentence, r" for (\w[\w.]*);")
    assert (found.facts["group"], found.facts["group_leased"]) == ("a", 1)
    return found, (
        f"The message waits because its group 'a' has 1 of 1 leased, by {subscription.id} of {stage.me} for {held}; no "
        "other message is waiting in it."
    )


@scene("group_full", "ready")
def behind_a_batch_of_its_group(stage):
    stage.queue(group_by="/g", max_per_subscription_backlog=10, group_batch=2)
    *_, bookmark = stage.publish(*[{"g": "a"}] * 4)
    subscription = stage.client.subscribe("work", max_backlog=10)
    pick_up(subscription, 1)
    found = stage.explain(bookmark)
    held = times_in(found.sentence, r" for (\w[\w.]*);")
    assert found.facts["group_leased"] == 2
    return found, (
        f"The message waits because its group 'a' has 2 messages of a batch leased, by {subscription.id} of {stage.me} "
        f"for {held}; 1 other message is waiting in it."
    )


@scene("in_line", "ready")
def behind_the_turns_of_other_groups(stage):
    stage.queue(group_by="/g", group_choice="round_robin")
    stage.client.subscribe("work")
    *_, bookmark = stage.publish({"g": "a"}, {"g": "a"}, {"g": "b"}, {"g": "c"}, {"g": "c"}, {"g": "c"})
    stage.sweep()
    stage.client.subscribe("work")
    found = stage.explain(bookmark)
    assert [found.facts[f"group_{name}"] for name in ("line", "before", "weight")] == [1, 2, 1]
    return found, (
        "The message, of group 'c', waits in line: the turn of one other group and 2 messages of its own group come "
        "before it, and there is room for 1."
    )


@scene("sorting", "waiting")
def everything_is_read_before_groups_take_turns(stage):
    stage.queue(group_by="/g", group_choice="fair")
    *_, bookmark = stage.publish({"g": "a"}, {"g": "b"})
    stage.client.subscribe("work")
    stage.redis.delete(stage.key("due"))
    return stage.explain(bookmark), (
        "The message, of group 'b', waits because the queue lets its groups take turns and delivers nothing before it "
        "has read everything: 2 messages are still to be read."
    )


@scene("group_held", "ready")
def behind_one_of_its_group_that_failed(stage):
    subscription, first, bookmarks = grouped(stage, {"g": "a"}, {"g": "a"})
    assert subscription.get(0.05) is None
    first.cancel("60s")
    subscription.flush()
    return stage.explain(bookmarks[1]), (
        "The message waits because a message of its group 'a' failed, and holds it until it is settled."
    )


@scene("group_stopped", "ready")
def of_a_group_that_was_stopped(stage):
    subscription, first, bookmarks = grouped(stage, {"g": "a"}, {"g": "a"}, on_group_failure="stop")
    assert subscription.get(0.05) is None
    first.expire()
    subscription.flush()
    found = stage.explain(bookmarks[1])
    ago = times_in(found.sentence, r"stopped (\S+) ago")
    return found, (
        f"The message waits because its group 'a' was stopped {ago} ago, when a message of it was given up: ampsq "
        "groups work --release a lets it go on."
    )


@scene("group_paused", "ready")
def of_a_group_that_is_paused(stage):
    subscription, first, bookmarks = grouped(stage, {"g": "a"}, {"g": "a"})
    stage.client.admin.pause_group("work", "a")
    first.ack(wait=True)
    assert subscription.get(0.05) is None
    found = stage.explain(bookmarks[1])
    assert found.facts["group_paused"] > 0
    ago = times_in(found.sentence, r"paused (\S+) ago")
    return found, (
        f"The message waits because its group 'a' was paused {ago} ago by {stage.me}: ampsq groups work --resume a "
        "lets it go on."
    )


def bound(stage, **elements):
    """Two messages of a group that is bound to a full subscription wait; gives that one and their bookmarks."""
    subscription, first, _ = grouped(stage, {"g": "a"}, group_affinity="1h", **elements)
    first.ack(wait=True)
    subscription.replace(max_backlog=1)
    stage.publish({"g": "b"})
    bookmarks = stage.publish({"g": "a"}, {"g": "a"})
    pick_up(subscription, 1)
    return subscription, bookmarks


@scene("group_bound", "waiting")
def bound_to_a_full_subscription(stage):
    subscription, (bookmark, _) = bound(stage)
    found = stage.explain(bookmark)
    assert found.facts["group_bound_to"] == f"{subscription.id} of {stage.me}"
    left = times_in(found.sentence, r"no room, for (\S+) more")
    assert 3_500_000 < found.facts["group_bound_until"] - found.facts["now"] <= 3_600_000
    return found, (
        f"The message waits because its group 'a' is bound to subscription {subscription.id} of {stage.me}, which has "
        f"no room, for {left} more; it goes to another one that finds nothing else to take."
    )


@scene("group_bound", "waiting")
def bound_to_a_full_subscription_that_has_one_of_the_group(stage):
    stage.queue(group_by="/g", group_affinity="1h", group_concurrency=3, max_per_subscription_backlog=10)
    subscription = stage.client.subscribe("work", max_backlog=1)
    _, bookmark = stage.publish({"g": "a"}, {"g": "a"})
    pick_up(subscription, 1)
    found = stage.explain(bookmark)
    left = times_in(found.sentence, r"no room, for (\S+) more")
    return found, (
        f"The message waits because its group 'a' is bound to subscription {subscription.id} of {stage.me}, which has "
        f"no room, for {left} more; 1 message is leased of it, so that it goes to no other one."
    )


@scene("rated", "waiting")
def for_the_rate_of_the_queue(stage):
    stage.queue(rate="1/h", max_per_subscription_backlog=10)
    stage.client.subscribe("work")
    first, second = stage.publish({}, {})
    stage.client.ack("work", first)
    found = stage.explain(second)
    assert 3_500_000 < found.facts["rate_wait"] <= 3_600_000
    wait = times_in(found.sentence, r"next in (\S+);")
    return found, (
        f"The message waits because queue 'work' may deliver 1 an hour; next in {wait}; nothing comes before it."
    )


@scene("backlogs_full", "ready")
def beyond_the_burst_of_its_group(stage):
    stage.queue(
        group_by="/g", group_concurrency=3, group_rate="10/s", group_rate_burst=1, max_per_subscription_backlog=10
    )
    subscription = stage.client.subscribe("work", max_backlog=10)
    *_, last = stage.publish({"g": "a"}, {"g": "a"}, {"g": "a"})
    pick_up(subscription, 1)
    subscription.replace(max_backlog=1)
    # Its bucket is full again, and more tokens than the burst never come: it waits for the one before it alone.
    eventually(lambda: stage.explain(last).reason != "group_rated")
    return stage.explain(last), (
        f"The message, of group 'a', waits because the backlogs of all subscriptions are full: {subscription.id} of "
        f"{stage.me} (1 of 1); 1 message comes before it."
    )


@scene("group_rated", "ready")
def for_the_rate_of_its_group(stage):
    subscription, first, bookmarks = grouped(stage, {"g": "a"}, {"g": "a"}, group_rate="6/min")
    first.ack(wait=True)
    assert subscription.get(0.05) is None
    found = stage.explain(bookmarks[1])
    assert 8_000 < found.facts["group_rate_wait"] <= 10_000
    wait = times_in(found.sentence, r"next in (\S+);")
    return found, (
        f"The message waits because 6 a minute of its group 'a' may be delivered; next in {wait}; no other message is "
        "waiting in it."
    )
