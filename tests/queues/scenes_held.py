"""Scenes of messages that somebody holds or that wait for their time: leased, delayed, scheduled, over."""

from __future__ import annotations

import contextlib
import time
from datetime import UTC, datetime

from explaining import NOBODY_AT_WORK, moment, scene, seconds
from observing import eventually
from scene import pick_up

from ampsq.protocol.keepalive import wake_channel


def wait_past(milliseconds):
    """Until a moment is over by the clock, which the server shares."""
    eventually(lambda: time.time() * 1000 > milliseconds)


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
    # It listens, and does nothing.
    with contextlib.closing(stage.redis.pubsub()) as listening:
        listening.ssubscribe(wake_channel(stage.client.instance))
        eventually(lambda: listening.get_sharded_message(timeout=1.0))
        found = stage.explain(bookmark)
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
    wait_past(due)
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
    wait_past(int(bookmark.id.partition("-")[0]) + 1)
    found = stage.explain(bookmark)
    over = found.facts["now"] - found.facts["due"]
    return found, (
        f"The message was published for later, was due {seconds(over)} ago, and waits to be made ready{NOBODY_AT_WORK}."
    )


@scene("over", "waiting")
def a_life_that_is_over(stage):
    stage.queue()
    bookmark = stage.client.publish("orders", 1, expiration="1ms")
    wait_past(int(bookmark.id.partition("-")[0]) + 1)
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
