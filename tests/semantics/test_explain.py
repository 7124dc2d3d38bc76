"""Why a message is where it is: a scene for each reason, with its sentence in full."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import threading
import time
from collections import Counter
from datetime import UTC, datetime

import pytest
from observing import eventually
from scene import pick_up

import ampsq.explain
import ampsq.explain_words
from ampsq import AsyncClient, Queue, calls, check_calls
from ampsq.errors import DefinitionError, Rejected, UnknownQueue
from ampsq.explain import REASONS
from ampsq.schema import key
from ampsq.values import Bookmark
from ampsq.written import span_text

NOBODY_AT_WORK = ", but no coordinator seems to be at work (ampsq coordinator starts one; idle subscriptions help out)"


class Stage:
    """A client, further ones, and a bare hand at the server's keys."""

    def __init__(self, client, connect, redis):
        self.client, self.connect, self.redis = client, connect, redis
        self.me = client._session.client

    def key(self, name, *parameters):
        return key(self.client.instance, name, *parameters)

    def queue(self, **elements):
        self.client.apply(Queue(**{"name": "work", "underlying_topic": "orders", **elements}))

    def publish(self, *bodies, topic="orders"):
        return [self.client.publish(topic, body) for body in bodies]

    def xadd(self, topic="orders", **fields):
        """Somebody else's entry, which no queue was told of."""
        found = self.redis.xadd(self.key("log", topic), fields).decode()
        return Bookmark.of(topic, self.client.origin, found)

    def remove(self, bookmark):
        assert self.redis.xdel(self.key("log", bookmark.topic), bookmark.id) == 1

    def sweep(self):
        while self.client._store.call(calls.sweep())[0]:
            pass

    def explain(self, bookmark=None):
        return self.client.explain("work", bookmark)


@pytest.fixture
def stage(client, connect, valkey):
    with contextlib.closing(valkey.client()) as redis:
        yield Stage(client, connect, redis)


def moment(milliseconds):
    return f"{datetime.fromtimestamp(milliseconds // 1000, UTC):%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03d}Z"


def seconds(milliseconds):
    return span_text(milliseconds)


SCENES = []


def scene(reason, state):
    """A scene gives an explanation and the sentence that it must have."""

    def add(function):
        SCENES.append(pytest.param(function, reason, state, id=function.__name__))
        return function

    return add


@pytest.mark.parametrize(("play", "reason", "state"), SCENES)
def test_scene(stage, monkeypatch, play, reason, state):
    explanation, sentence = play(stage, monkeypatch) if play.__code__.co_argcount == 2 else play(stage)

    assert explanation.sentence == sentence
    assert (explanation.reason, explanation.state) == (reason, state)
    assert explanation.as_dict()["facts"] == explanation.facts


def test_every_reason_has_a_scene():
    # Instances do not own messages yet.
    assert {param.values[1] for param in SCENES} == set(REASONS) - {"owned_elsewhere"}


# -- leased


@scene("leased", "leased")
def picked_up(stage):
    stage.queue(lease_period="30s")
    (bookmark,) = stage.publish(1)
    subscription = stage.client.subscribe("work")
    pick_up(subscription, 1)
    found = stage.explain(bookmark)
    lease = found.facts["lease"]
    left = lease.pop("until") - found.facts["now"]
    assert 20_000 < left <= 30_000
    assert lease == {
        "subscription": subscription.id, "client": stage.me, "filter": None, "delivery": 1, "picked_up": True,
        "silent": False,
    }  # fmt: skip
    until = moment(found.facts["now"] + left)
    return found, (
        f"The message is leased to subscription {subscription.id} of {stage.me} as delivery 1, picked up; the lease "
        f"lapses in {seconds(left)}, at {until}."
    )


@scene("leased", "leased")
def in_the_inbox_of_a_filter_after_it_came_back(stage):
    stage.queue(max_deliveries=5, max_cancels=3)
    subscription = stage.client.subscribe("work", filter="/n>0", max_backlog=2)
    (bookmark,) = stage.publish({"n": 1})
    pick_up(subscription, 1)[0].cancel()
    found = stage.explain(bookmark)
    assert found.facts["attempts"] == {"deliveries": 1, "cancels": 1, "last_reason": "cancelled"}
    return found, (
        f"The message is leased to subscription {subscription.id} of {stage.me} with filter /n > 0 as delivery 2 of at "
        "most 5, still in its inbox; the lease never lapses; it came back before, delivered once of at most 5 and "
        "cancelled once of at most 3, last because it was cancelled."
    )


@scene("leased", "leased")
def leased_and_no_more_in_its_log(stage):
    stage.queue()
    (bookmark,) = stage.publish(1)
    subscription = stage.client.subscribe("work")
    pick_up(subscription, 1)
    stage.remove(bookmark)
    return stage.explain(bookmark), (
        f"The message is leased to subscription {subscription.id} of {stage.me} as delivery 1, picked up; the lease "
        "never lapses; somebody removed it from its log meanwhile."
    )


@scene("leased", "leased")
def leased_to_somebody_silent(stage):
    stage.queue()
    (bookmark,) = stage.publish(1)
    subscription = stage.client.subscribe("work")
    pick_up(subscription, 1)
    stage.redis.zadd(stage.key("subscriptions"), {subscription.id: 1})
    return stage.explain(bookmark), (
        f"The message is leased to subscription {subscription.id} of {stage.me} (no sign of life for long) as delivery "
        "1, picked up; the lease never lapses."
    )


@scene("unacknowledged", "leased")
def delivered_at_most_once(stage):
    stage.queue(semantics="at-most-once", allow_redelivery_after_crash=True)
    (bookmark,) = stage.publish(1)
    subscription = stage.client.subscribe("work")
    pick_up(subscription, 1)
    return stage.explain(bookmark), (
        f"The message was delivered to subscription {subscription.id} of {stage.me} at most once, so that it never "
        "comes back, picked up; only the acknowledgement is awaited, which makes room for the next message."
    )


def lapse(stage):
    stage.queue(lease_period="100ms")
    (bookmark,) = stage.publish(1)
    subscription = stage.client.subscribe("work")
    (message,) = pick_up(subscription, 1)
    eventually(lambda: datetime.now(UTC) > message.lease_until)
    return bookmark, subscription


@scene("lapsed", "leased")
def lapsed_without_a_coordinator(stage):
    bookmark, subscription = lapse(stage)
    found = stage.explain(bookmark)
    assert found.facts["coordinator"] is False
    over = found.facts["now"] - found.facts["lease"]["until"]
    return found, (
        f"The lease of subscription {subscription.id} of {stage.me} on the message, delivery 1, lapsed {seconds(over)} "
        f"ago, and the message waits to be taken back{NOBODY_AT_WORK}."
    )


@scene("lapsed", "leased")
def lapsed_with_a_coordinator_that_is_busy(stage):
    bookmark, subscription = lapse(stage)
    done = threading.Event()

    def show_life():
        number = 0
        while not done.wait(0.05):
            number += 1
            stage.redis.hset(stage.key("instance"), "attended", number)

    thread = threading.Thread(target=show_life)
    thread.start()
    eventually(lambda: stage.redis.hexists(stage.key("instance"), "attended"))
    found = stage.explain(bookmark)
    done.set()
    thread.join()
    assert found.facts["coordinator"] is True
    over = found.facts["now"] - found.facts["lease"]["until"]
    return found, (
        f"The lease of subscription {subscription.id} of {stage.me} on the message, delivery 1, lapsed {seconds(over)} "
        "ago, and the message waits to be taken back, which a coordinator is about to do."
    )


@scene("holder_gone", "leased")
def leased_to_nobody(stage):
    stage.queue()
    (bookmark,) = stage.publish(1)
    subscription = stage.client.subscribe("work")
    pick_up(subscription, 1)
    stage.redis.delete(stage.key("subscription", subscription.id))
    return stage.explain(bookmark), (
        f"The message is leased as delivery 1 to subscription {subscription.id}, which has ended, and waits to be "
        f"taken back{NOBODY_AT_WORK}."
    )


# -- delayed


@scene("delayed", "delayed")
def cancelled_with_a_delay(stage):
    stage.queue()
    (bookmark,) = stage.publish(1)
    pick_up(stage.client.subscribe("work"), 1)[0].cancel("60s")
    found = stage.explain(bookmark)
    left = found.facts["due"] - found.facts["now"]
    assert 50_000 < left <= 60_000
    return found, (
        f"The message came back and is ready again in {seconds(left)}, at "
        f"{moment(found.facts['due'])}; it came back before, delivered once and cancelled once, last because it was "
        "cancelled."
    )


@scene("delay_over", "delayed")
def a_delay_that_is_over(stage):
    stage.queue()
    (bookmark,) = stage.publish(1)
    pick_up(stage.client.subscribe("work"), 1)[0].cancel("10ms")
    ((_, due),) = [item for item in stage.redis.zrange(stage.key("due"), 0, -1, withscores=True) if b"ready" in item[0]]
    eventually(lambda: time.time() * 1000 > due)
    found = stage.explain(bookmark)
    over = found.facts["now"] - found.facts["due"]
    return found, (
        f"The message came back, its delay was over {seconds(over)} ago, and it waits to be made "
        f"ready{NOBODY_AT_WORK}; it came back before, delivered once and cancelled once, last because it was cancelled."
    )


# -- scheduled, and over


@scene("scheduled", "scheduled")
def published_for_later(stage):
    stage.queue()
    bookmark = stage.client.publish("orders", 1, delay="60s")
    found = stage.explain(bookmark)
    left = found.facts["due"] - found.facts["now"]
    assert 50_000 < left <= 60_000
    return found, (
        f"The message was published for later and is ready in {seconds(left)}, at {moment(found.facts['due'])}."
    )


@scene("schedule_over", "scheduled")
def a_schedule_that_is_over(stage):
    stage.queue()
    bookmark = stage.client.publish("orders", 1, delay="1ms")
    eventually(lambda: time.time() * 1000 > stage.explain(bookmark).facts["due"])
    found = stage.explain(bookmark)
    over = found.facts["now"] - found.facts["due"]
    return found, (
        f"The message was published for later, was due {seconds(over)} ago, and waits to be made ready{NOBODY_AT_WORK}."
    )


@scene("over", "waiting")
def a_life_that_is_over(stage):
    stage.queue()
    bookmark = stage.client.publish("orders", 1, expiration="1ms")
    eventually(lambda: time.time() * 1000 > stage.explain(bookmark).facts["ends"])
    found = stage.explain(bookmark)
    over = found.facts["now"] - found.facts["ends"]
    return found, (
        f"The message's life was over {seconds(over)} ago, and it expires at the next pass, at the latest when the "
        f"queue comes to it{NOBODY_AT_WORK}."
    )


@scene("evicted", "settled")
def evicted_from_a_ring(stage):
    stage.queue(ring_size=1)
    bookmark, _ = stage.publish(1, 2)
    found = stage.explain(bookmark)
    return found, (
        f"The message was evicted at {moment(found.facts['journal']['at'])} because something entered a full ring."
    )


@scene("addressed_elsewhere", "absent")
def for_another_queue(stage):
    stage.queue()
    entry = stage.redis.xadd(stage.key("log", "orders"), {"b": "1", "q": "other"})
    found = stage.explain(f"orders~{stage.client.origin}~{entry.decode()}")
    return found, "The message is for the queue 'other' alone."


# -- barriers


def barriers(stage):
    stage.queue(barrier_expression="/end = 1", max_per_subscription_backlog=10)


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
    stage.client.subscribe("work", max_backlog=1)
    *_, barrier, _, bookmark = stage.publish(1, 2, {"end": 1}, {"end": 1}, 4)
    stage.client.ack("work", [stage.publish({"end": 1})[0]])
    found = stage.explain(bookmark)
    assert (found.facts["before"], found.facts["barrier"]) == (3, barrier)
    return found, (
        f"The message waits behind the barrier {barrier}, which waits until all before it is settled: 1 leased (to "
        f"s00000001 of {stage.me} (1)), 1 waiting."
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


@scene("no_subscription", "ready")
def it_came_back_and_everybody_left(stage):
    stage.queue()
    stage.publish(1)
    with stage.client.subscribe("work") as subscription:
        pick_up(subscription, 1)
    eventually(lambda: stage.client.queue_stats("work").ready == 1)
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


@scene("matching_full", "ready")
def those_that_match_are_full(stage):
    stage.queue()
    full = stage.client.subscribe("work", filter="/n < 10")
    stage.client.subscribe("work", filter="/n > 10")
    _, bookmark = stage.publish({"n": 1}, {"n": 2})
    stage.client.subscribe("work", filter="/n = 2", max_backlog=0)
    found = stage.explain(bookmark)
    assert [row["filter"] for row in found.facts["subscriptions"] if row["matches"]] == ["/n < 10", "/n = 2"]
    return found, (
        "The message waits because, of the 3 subscriptions, only those with a full backlog have a filter that it "
        f"matches: {full.id} of {stage.me} (1 of 1) and s00000003 of {stage.me} (asks for none); nothing "
        "comes before it."
    )


@scene("no_filter_matches", "ready")
def no_filter_matches_it(stage):
    stage.queue()
    stage.client.subscribe("work", filter="/n<1 or /name like 'x'")
    stage.client.subscribe("work", filter="/n>10")
    stage.publish({"n": 5})
    return stage.explain(), (
        "The next message waits because it matches the filter of none of the 2 subscriptions: "
        "/n < 1 OR /name LIKE 'x' and /n > 10."
    )


@scene("no_filter_matches", "ready")
def no_filter_matches_what_is_not_json(stage):
    stage.queue()
    stage.client.subscribe("work", filter="/n < 1")
    stage.publish(b"plain text")
    return stage.explain(), (
        "The next message waits because it matches the filter of none of the one subscription, since its body is not "
        "JSON: /n < 1."
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
    stage.client.subscribe("work")
    assert full.id == "s00000001"
    return stage.explain(), (
        "The next message, of priority 18446744073709551614, is about to be delivered: nothing comes before it, and "
        f"s00000002 of {stage.me} has room."
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
    full, _ = (stage.client.subscribe("work", filter=f"/n = {n}") for n in (1, 5))
    *_, bookmark = stage.publish({"n": 1}, {"n": 1}, {"n": 2}, {"n": 1}, {"n": 1})
    pick_up(full, 1)
    free = stage.client.subscribe("work", filter="/n = 1")
    found = stage.explain(bookmark)
    assert (found.facts["before"], found.facts["ready"], free.id) == (2, 4, "s00000003")
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


# -- not of the queue


@scene("kept_out", "absent")
def the_filter_will_keep_it_out(stage):
    stage.queue(filter="/n > 1")
    (bookmark,) = stage.publish({"n": 1})
    found = stage.explain(bookmark)
    assert (found.facts["enters"], found.facts["json"]) == (False, True)
    return found, ("The message is unread and will never enter the queue: the queue's filter /n > 1 does not match it.")


@scene("kept_out", "absent")
def the_filter_kept_out_what_is_not_json(stage):
    stage.queue(filter="/n > 1")
    (bookmark,) = stage.publish(b"plain")
    stage.publish({"n": 2})
    pick_up(stage.client.subscribe("work"), 1)
    return stage.explain(bookmark), (
        "The message never entered the queue: the queue's filter /n > 1 does not match it, whose body is not JSON."
    )


@scene("kept_out_before", "absent")
def a_former_filter_kept_it_out(stage):
    stage.queue(filter="/n > 1")
    (bookmark,) = stage.publish({"n": 1})
    stage.publish({"n": 2})
    pick_up(stage.client.subscribe("work"), 1)
    stage.queue(filter="/n > 0")
    return stage.explain(bookmark), (
        "The message never entered the queue: the filter that the queue had when it read it did not match it; today's "
        "is /n > 0."
    )


@scene("before_start", "absent")
def a_message_before_the_recovery_point(stage):
    (bookmark,) = stage.publish(1)
    stage.queue(recovery_point="now")
    return stage.explain(bookmark), "The message lies before the recovery point of the queue, and never was in it."


@scene("rebuilding", "waiting")
def a_queue_that_is_being_rebuilt(stage):
    stage.queue()
    (bookmark,) = stage.publish(1)
    stage.client._store.call(check_calls.pause_queue("work", "me", 60_000, [("orders", "0-0 0")], changed=False))
    return stage.explain(bookmark), (
        "The message waits because the queue is being rebuilt from log and journal, and reads nothing until that is "
        "done."
    )


@scene("other_topic", "absent")
def another_topic_s_message(stage):
    stage.queue()
    (bookmark,) = stage.publish(1, topic="returns")
    return stage.explain(bookmark), (
        "The message is not of this queue, which is fed by topic 'orders' and not by topic 'returns'."
    )


@scene("other_topic", "absent")
def a_topic_that_the_pattern_does_not_match(stage):
    stage.queue(underlying_topic="^orders", default_publish_target="orders-1")
    (bookmark,) = stage.publish(1, topic="returns")
    return stage.explain(bookmark), (
        "The message is not of this queue, which is fed by the topics that match '^orders' and not by topic 'returns'."
    )


@scene("no_message", "absent")
def a_message_that_never_was(stage):
    stage.queue()
    (last,) = stage.publish(1)
    return stage.explain(Bookmark.of("orders", stage.client.origin, "99999999999999-0")), (
        f"There is no such message: the log of topic 'orders', which ends at {last.id}, does not have it; it never was "
        "recorded, or it was removed: by the retention, or by somebody else."
    )


@scene("no_message", "absent")
def a_message_that_never_was_before_one_that_is_settled(stage):
    stage.queue()
    (last,) = stage.publish(1)
    pick_up(stage.client.subscribe("work"), 1)[0].ack(wait=True)
    return stage.explain(Bookmark.of("orders", stage.client.origin, "1-0")), (
        f"There is no such message: the log of topic 'orders', which ends at {last.id}, does not have it; it never was "
        "recorded, or it was removed: by the retention, or by somebody else."
    )


# -- settled


@scene("acknowledged", "settled")
def acknowledged(stage):
    stage.queue()
    (bookmark,) = stage.publish(1)
    pick_up(stage.client.subscribe("work"), 1)[0].ack(wait=True)
    found = stage.explain(bookmark)
    at = found.facts["journal"]["at"]
    assert found.facts["journal"] == {"found": True, "how": "acknowledged", "at": at, "ahead": False}
    assert abs(at - found.facts["now"]) < 5_000
    return found, f"The message was acknowledged at {moment(at)}."


@scene("acknowledged", "settled")
def acknowledged_ahead(stage):
    stage.queue()
    bookmarks = stage.publish(*range(10))
    stage.client.ack("work", bookmarks[3:8])
    found = stage.explain(bookmarks[5])
    assert found.facts["journal"]["ahead"]
    at = moment(found.facts["journal"]["at"])
    return found, f"The message was acknowledged at {at}, by bookmark, before the queue has come to read it."


@scene("expired", "settled")
def delivered_too_often(stage):
    stage.queue(max_deliveries=2, max_cancels=2)
    bookmarks = stage.publish(1, 2)
    subscription = stage.client.subscribe("work")
    for _ in range(2):
        pick_up(subscription, 1)[0].cancel()
    found = stage.explain(bookmarks[0])
    journal = found.facts["journal"]
    assert journal["reasons"] == ["max_cancels", "max_deliveries"]
    return found, (
        f"The message expired at {moment(journal['at'])} because max_cancels was reached and max_deliveries was "
        "reached, after 2 deliveries and 2 cancels."
    )


@scene("expired", "settled")
def expired_by_somebody(stage):
    stage.queue()
    (bookmark,) = stage.publish(1)
    pick_up(stage.client.subscribe("work"), 1)[0].expire()
    found = stage.explain(bookmark)
    at = moment(found.facts["journal"]["at"])
    return found, f"The message expired at {at} because somebody expired it, after 1 delivery and 0 cancels."


@scene("delivered", "settled")
def acknowledged_at_most_once(stage):
    stage.queue(semantics="at-most-once", allow_redelivery_after_crash=True)
    (bookmark,) = stage.publish(1)
    pick_up(stage.client.subscribe("work"), 1)[0].ack(wait=True)
    found = stage.explain(bookmark)
    at = moment(found.facts["journal"]["at"])
    return found, f"The message was settled when it was delivered, at {at}, since the queue is at-most-once."


@scene("barrier_sent", "settled")
def a_barrier_that_was_sent(stage):
    barriers(stage)
    stage.client.subscribe("work")
    (bookmark,) = stage.publish({"end": 1})
    found = stage.explain(bookmark)
    at = moment(found.facts["journal"]["at"])
    return found, f"The message was a barrier and was sent at {at} to all subscriptions whose filter it matched."


@scene("missing", "settled")
def found_missing(stage):
    stage.queue()
    (bookmark,) = stage.publish(1)
    subscription = stage.client.subscribe("work")
    message = pick_up(subscription, 1)[0]
    stage.remove(bookmark)
    message.cancel()
    assert subscription.get(0) is None
    found = stage.explain(bookmark)
    at = moment(found.facts["journal"]["at"])
    return found, (
        f"The message was removed from the log of topic 'orders' by somebody else, which the queue found at {at}."
    )


def settle_some(stage, number):
    """Acknowledge messages, each in a journal entry of its own."""
    stage.queue()
    bookmarks = stage.publish(*range(number))
    subscription = stage.client.subscribe("work")
    for _ in range(number):
        pick_up(subscription, 1)[0].ack(wait=True)
    return bookmarks


@scene("beyond_journal", "settled")
def a_journal_that_does_not_reach_back(stage):
    bookmarks = settle_some(stage, 3)
    stage.redis.xtrim(stage.key("journal", "work"), maxlen=2, approximate=False)
    found = stage.explain(bookmarks[0])
    first = stage.redis.xrange(stage.key("journal", "work"))[0][0]
    assert found.facts["journal"]["whole"] is False
    return found, (
        "The message is settled, but the journal does not tell how or when: it does not reach back that far, but only "
        f"to {moment(int(first.split(b'-')[0]))}."
    )


@scene("unfound", "settled")
def a_search_that_takes_too_long(stage, monkeypatch):
    bookmarks = settle_some(stage, 5)
    monkeypatch.setattr(ampsq.explain, "_STEP", 2)
    # Found by a search of several steps
    assert stage.explain(bookmarks[0]).reason == "acknowledged"
    monkeypatch.setattr(ampsq.explain, "PATIENCE", 0.0)
    monkeypatch.setattr(ampsq.explain_words, "PATIENCE", 0.0)
    found = stage.explain(bookmarks[0])
    reached = stage.redis.xrevrange(stage.key("journal", "work"))[1][0]
    return found, (
        "The message is settled, but how and when was not found in 0s: the search came back to "
        f"{moment(int(reached.split(b'-')[0]))}, and the journal begins earlier."
    )


# -- the head


@scene("empty", "empty")
def nothing_waits(stage):
    stage.queue()
    stage.publish(1, 2)
    subscription = stage.client.subscribe("work")
    pick_up(subscription, 1)[0].cancel("60s")
    pick_up(subscription, 1)
    found = stage.explain()
    assert found.bookmark is None
    due = found.facts["next_due"]
    return found, (
        f"Nothing waits in the queue: 1 message is leased, 1 message is delayed (due in "
        f"{seconds(due - found.facts['now'])}, at {moment(due)}), and all else is settled."
    )


def test_of_messages_that_are_all_scheduled_the_first_due_is_told(stage):
    stage.queue()
    stage.queue(name="other", underlying_topic="others")
    stage.client.publish("others", 0, delay="10s")
    stage.client.publish("orders", 1, delay="1h30m")
    stage.client.publish("orders", 2, delay="2h")

    found = stage.explain()

    due, now = found.facts["next_due"], found.facts["now"]
    assert 5_390_000 < due - now <= 5_400_000
    assert (found.reason, found.facts["scheduled"], found.facts["next_due_is_exact"]) == ("empty", 2, True)
    assert found.sentence == (
        "Nothing waits in the queue: no message is leased, no message is delayed, 2 messages are scheduled (the first "
        f"due in {seconds(due - now)}, at {moment(due)}), and all else is settled."
    )


def test_behind_too_many_others_in_the_timetable_a_scheduled_message_is_not_due_before_them(stage, monkeypatch):
    monkeypatch.setattr(ampsq.explain, "_TIMETABLE", 2)
    stage.queue()
    stage.queue(name="other", underlying_topic="others")
    for number in range(3):
        stage.client.publish("others", number, delay="1m")
    stage.client.publish("orders", 1, delay="2h")

    found = stage.explain()

    assert found.facts["next_due_is_exact"] is False
    assert found.facts["next_due"] < found.facts["now"] + 60_000
    assert f"1 message is scheduled (not due before {moment(found.facts['next_due'])})" in found.sentence


@scene("passed_over", "waiting")
def nothing_that_enters_in_reach(stage):
    stage.queue(filter="/n > 0")
    bookmarks = stage.client.publish_many("orders", [{"n": 0}] * 1_000)
    (last,) = stage.publish({"n": 1})
    found = stage.explain()
    assert found.bookmark in bookmarks
    assert stage.explain(last).sentence == (
        "The message waits because nobody is subscribed to the queue; too many messages to count come before it."
    )
    return found, (
        "All unread messages up to this one, the last that one look reaches, are settled already or will never enter "
        "the queue, and nothing else waits in it."
    )


def test_the_head_is_what_is_delivered_next(stage):
    # Given a queue over several topics, some of whose messages are settled ahead, or will be kept out
    stage.queue(underlying_topic="^orders", default_publish_target="orders-1", filter="/n > 0")
    first, second, _, fourth = [
        stage.client.publish(f"orders-{number % 3}", {"n": n}) for number, n in enumerate((1, 2, 0, 3))
    ]
    heads = []
    for _ in range(3):
        head = stage.explain()
        assert (head.reason, head.facts["before"], head.facts["head"]) == ("no_subscription", 0, True)
        heads.append(head.bookmark)
        stage.client.ack("work", [head.bookmark])
    assert heads == [first, second, fourth]
    assert stage.explain().reason == "empty"


def test_messages_of_all_topics_count_before_one(stage):
    stage.queue(underlying_topic="^orders", default_publish_target="orders-1")
    bookmarks = [stage.client.publish(f"orders-{number % 4}", number) for number in range(40)]
    stage.client.ack("work", bookmarks[5:10])

    assert stage.explain(bookmarks[30]).facts["before"] == 25


def test_too_much_before_a_message_is_told_as_a_least_number(stage):
    stage.queue()
    stage.client.publish_many("orders", ["x" * 10_000] * 5_000, batch=100)
    (bookmark,) = stage.publish("last")

    found = stage.explain(bookmark)

    assert not found.facts["before_is_exact"]
    assert 500 <= found.facts["before"] < 5_000
    assert f"; at least {found.facts['before']:,} messages come before it." in found.sentence


def test_a_hundred_subscriptions_are_looked_at(stage):
    stage.queue(max_per_subscription_backlog=1)
    for _ in range(130):
        stage.client.subscribe("work", max_backlog=0)
    stage.publish(1)

    found = stage.explain()

    assert len(found.facts["subscriptions"]) == 100
    assert found.facts["subscriptions_in_all"] == 130
    assert found.sentence.endswith(" and 95 more (only 100 were looked at); nothing comes before it.")


KINDS = {
    "plain": {},
    "at-most-once": {"semantics": "at-most-once", "allow_redelivery_after_crash": True},
    "filtered": {"filter": "/n > 3"},
    "priorities": {"priority": "/n % 5"},
    "barriers": {"barrier_expression": "/n % 7 = 6"},
    "topics": {"underlying_topic": "^orders", "default_publish_target": "orders-1"},
    "limits": {"max_deliveries": 2, "max_cancels": 2, "max_backlog": 7},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("filters", [(None, None), ("/n % 2 = 0", "/n % 3 = 0")])
def test_the_states_of_all_messages_are_the_queue_s_figures(stage, kind, filters):
    # Given a queue in which all kinds of things happened, by a random that is always the same
    dice = random.Random(kind)  # noqa: S311
    stage.queue(max_per_subscription_backlog=10, **KINDS[kind])
    topics = ["orders-1", "orders-2"] if kind == "topics" else ["orders"]
    subscriptions = [stage.client.subscribe("work", filter=text, max_backlog=5) for text in filters]
    bookmarks, held = [], []
    for n in range(100):
        bookmarks.append(stage.client.publish(dice.choice(topics), {"n": n}))
        message = dice.choice(subscriptions).get(0) if dice.random() < 0.6 else None
        held += [message] if message is not None and not message.is_barrier else []
        if held and dice.random() < 0.7:
            message = held.pop(dice.randrange(len(held)))
            verb, *delay = dice.choice([(message.ack,), (message.cancel,), (message.expire,), (message.cancel, "90s")])
            with contextlib.suppress(Rejected):
                verb(*delay)
        if dice.random() < 0.1:
            with contextlib.suppress(Rejected):
                stage.client.ack("work", [dice.choice(bookmarks)], dice.choice(["ack", "expire"]))
    for subscription in subscriptions:
        subscription.flush()
    # When each is explained
    states, sentences = Counter(), []
    for bookmark in bookmarks:
        found = stage.explain(bookmark)
        states[found.state] += 1
        sentences.append(found.sentence)
        assert json.loads(json.dumps(found.as_dict()))["bookmark"] == bookmark
    # Then that adds up, and the head is one of those that wait
    stats = stage.client.queue_stats("work")
    kept_out = states["absent"] - stats.filtered
    assert states["leased"] == stats.leased
    assert states["ready"] == stats.ready
    assert states["held"] == stats.held
    assert states["delayed"] == stats.delayed
    assert states["waiting"] + kept_out == stats.waiting
    assert not [text for text in sentences if "{" in text or "None" in text]
    assert stage.explain().state in ("waiting", "ready", "held", "empty")


# -- what is asked wrongly, and by whom


@pytest.mark.parametrize("wrong", ["", "orders", "orders~x~1-0", "a~b.c~01-0", "two words~b.c~1-0"])
def test_what_is_no_bookmark_is_refused(stage, wrong):
    stage.queue()
    with pytest.raises(DefinitionError, match="is not a bookmark; allowed: <topic>~<origin>~<stream id>"):
        stage.explain(wrong)


def test_another_origin_s_bookmark_is_refused(stage):
    stage.queue()
    with pytest.raises(DefinitionError, match=r"is of origin other\.one, not of test-"):
        stage.explain("orders~other.one~1-0")


def test_an_unknown_queue_is_refused(stage):
    with pytest.raises(UnknownQueue):
        stage.client.explain("nowhere")


def test_it_is_the_same_on_every_server_and_for_asyncio(either, server, instance):
    either.apply(Queue(name="work", underlying_topic="orders"))
    bookmark = either.publish("orders", 1)
    pick_up(either.subscribe("work"), 1)

    async def ask():
        async with AsyncClient(server.url, instance=instance) as client:
            return [await client.explain("work", bookmark), await client.explain("work")]

    mine = [either.explain("work", bookmark), either.explain("work")]
    theirs = asyncio.run(ask())
    assert [(found.reason, found.sentence, found.bookmark) for found in mine] == [
        (found.reason, found.sentence, found.bookmark) for found in theirs
    ]
    assert [found.reason for found in mine] == ["leased", "empty"]
