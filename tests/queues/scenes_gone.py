"""Scenes of messages that are not of the queue or not in it any more, and of a queue in which nothing waits."""

from __future__ import annotations

from explaining import barriers, moment, scene, seconds
from scene import pick_up

import ampsq.queues.explain
import ampsq.queues.explain_texts
from ampsq.base.bookmarks import Bookmark
from ampsq.protocol.calls import check as check_calls

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


@scene("not_here", "absent")
def a_message_of_another_instance_that_never_came(stage):
    stage.queue()
    return stage.explain("orders~other.one~1-0"), (
        "The message is not here: its origin is other.one, of whose messages of topic 'orders' this instance does not "
        "have all up to 1-0 yet: where a link brings them, it is to come."
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
    monkeypatch.setattr(ampsq.queues.explain, "_STEP", 2)
    # Found by a search of several steps
    assert stage.explain(bookmarks[0]).reason == "acknowledged"
    monkeypatch.setattr(ampsq.queues.explain, "SEARCH_TIME", 0.0)
    monkeypatch.setattr(ampsq.queues.explain_texts, "SEARCH_TIME", 0.0)
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
