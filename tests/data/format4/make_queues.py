"""Queues of every kind, with messages in every state."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from making import FAR, eventually

from ampsq import Action, AddressSetting, GroupLocalQueue, LocalQueue, Queue, Topic
from ampsq.coordinator.actions import Actions, Powers

__all__ = ["fill_queues"]

#: When scheduled messages are due; no whole day, so that nobody takes it for a length of time.
_DUE = datetime(2100, 1, 1, 6, 30, 1, tzinfo=UTC)


def fill_queues(site):
    """All of this module's."""
    plain(site)
    lapsed(site)
    scheduled(site)
    sorted_by_priority(site)
    filtered(site)
    rings(site)
    barriers(site)
    several_topics(site)
    at_most_once(site)
    of_one_instance(site)
    lives(site)
    paused(site)
    depth(site)
    moved(site)
    large_and_strange(site)
    watched(site)
    removed(site)


def plain(site):
    """First in, first out: leased, returned, delayed, settled in every way, given up, put back."""
    client = site.client
    client.apply(
        Topic(name="orders"),
        Queue(
            name="work",
            underlying_topic="orders",
            lease_period=FAR,
            max_per_subscription_backlog=10,
            max_deliveries=5,
            max_cancels=3,
            max_backlog=50,
            record_deliveries=True,
            redelivery_delay="10ms",
            redelivery_delay_multiplier=2.0,
            redelivery_collision_avoidance_factor=0.5,
        ),
        Queue(name="work-letters", underlying_topic="work-dead", max_per_subscription_backlog=5, lease_period=FAR),
        Action.dead_letter("work", "work-dead"),
    )
    bodies = (
        {"id": number, "symbol": ("EUR", "USD", "JPY")[number % 3], "price": number * 1.5} for number in range(20)
    )
    client.publish_many("orders", bodies, batch=6)
    client.publish("orders", {"id": 20, "text": "Grüße, 東京 €"}, headers={"source": "Zürich", "trace": "00-ab-01"})
    client.publish_many("orders", ({"id": number} for number in range(21, 40)))
    large = site.subscribe("work", max_backlog=6)
    small = site.subscribe("work", max_backlog=2)
    first = site.take(large, 6)
    first[0].ack(wait=True)
    first[1].ack()
    large.flush()
    first[2].cancel(0, reason="the ledger is closed")
    first[3].cancel("30000d", reason="not before the audit")
    first[4].expire(reason="no such account")
    first[5].extend("35000d")
    # Cancelled as often as is allowed, it is given up.
    again = site.take(small, 2)
    for _ in range(3):
        again[0].cancel(0, reason="it cannot be read: Grüße")
        again[0] = site.take(small, 1)[0]
    again[1].cancel(0)
    site.keep(large, 4)
    site.keep(small, 1)
    bookmark = client.publish("orders", {"id": 40})
    client.ack("work", [bookmark], "expire", reason="by hand")
    client.ack("work", filter="/id > 36 AND /id < 39", reason="by filter")
    letters(site)
    # A subscription that is gone while it holds something, and one that was never asked for what it was pushed.
    gone = site.subscribe("work", max_backlog=2)
    site.keep(gone, 1)
    gone.close()
    site.subscribe("work", max_backlog=3)


def letters(site):
    """Dead letters, of which one is put back, one leased, one acknowledged."""
    client, duty = site.client, Actions(Powers())

    def is_done():
        duty.run_once(site.store)
        return client.queue_stats("work-letters").waiting + client.queue_stats("work-letters").ready >= 3

    eventually(is_done)
    found = client.dead_letters("work-letters")
    client.redrive("work-letters", bookmarks=[found[0].bookmark])
    subscription = site.subscribe("work-letters", max_backlog=1)
    site.keep(subscription, 1)
    client.publish("work-dead", {"no": "letter"})


def lapsed(site):
    """A lease that lapsed, and one that will not: its subscription extended it."""
    client = site.client
    client.apply(
        Queue(
            name="brief",
            underlying_topic="brief",
            lease_period="200ms",
            max_deliveries=3,
            max_per_subscription_backlog=4,
        )
    )
    client.publish_many("brief", ({"id": number} for number in range(6)))
    subscription = site.subscribe("brief", max_backlog=3)
    _, second, third = site.take(subscription, 3)
    second.extend(FAR)
    third.extend(FAR)
    time.sleep(0.3)
    site.sweep()
    client.ack("brief", [third.bookmark])
    # The one that came back would be delivered again for so short a time.
    subscription.give_back()
    eventually(lambda: site.sweep() or client.queue_stats("brief").ready >= 1)


def scheduled(site):
    """Messages that are due in the year 2100, behind a cursor and before it, in a plain queue and in one that sorts."""
    client = site.client
    client.apply(
        Queue(name="later", underlying_topic="later", max_per_subscription_backlog=2, lease_period=FAR),
        Queue(name="later-best", underlying_topic="later", priority="/rank", expiration="10000d"),
    )
    for number in range(3):
        client.publish("later", {"id": number, "rank": number}, at=_DUE)
    client.publish_many("later", ({"id": number, "rank": 9} for number in range(3, 6)))
    client.publish("later", {"id": 6, "rank": 1}, delay=FAR, expiration="36500d")
    # One that was due already.
    client.publish("later", {"id": 7, "rank": 2}, delay="1ms")
    time.sleep(0.02)
    site.sweep()
    subscription = site.subscribe("later", max_backlog=2)
    site.keep(subscription, 2)


def sorted_by_priority(site):
    """Priorities, those beyond 2^53 among them, and filters with indexes of their own."""
    client = site.client
    client.apply(
        Queue(
            name="best",
            underlying_topic="bids",
            priority="/price",
            max_per_subscription_backlog=5,
            lease_period=FAR,
            max_cancels=9,
        )
    )
    prices = [5, 1, 2**53 + 3, 9, 2**60, 9, 0, None, 7, 2**64 - 1, 2**53 + 1, 2**63, 2**53 + 5, 2**53, 9.5, -1, "12"]
    for number, price in enumerate(prices):
        client.publish("bids", {"id": number, "price": price, "symbol": "AB"[number % 2]})
    ours = site.subscribe("best", max_backlog=2, filter="/symbol = 'A'")
    both = site.subscribe("best", max_backlog=1)
    site.keep(ours, 1)
    site.take(ours, 1)[0].cancel(FAR, reason="too dear")
    site.keep(both, 1)
    # One that nobody wants, with no room, so that its index is made and stays.
    site.subscribe("best", max_backlog=1, filter="/symbol = 'B' AND /price < 0")
    client.sow("best", "/price > 3", order_by="/id DESC", top_n=3)


def filtered(site):
    """A queue that lets in a part, a subscription with a filter there, strict leasing, turns."""
    client = site.client
    client.apply(
        Queue(
            name="big",
            underlying_topic="bids",
            filter="/price > 4 AND /symbol IN ('A', 'B')",
            leasing="strict",
            fairness_model="round-robin",
            max_per_subscription_backlog=2,
            lease_period=FAR,
        )
    )
    subscription = site.subscribe("big", max_backlog=1, filter="/symbol = 'B'")
    site.keep(subscription, 1)
    site.subscribe("big", max_backlog=1, filter="/symbol = 'A'")
    # Its former filter judged what it read.
    client.apply(
        Queue(
            name="big",
            underlying_topic="bids",
            filter="/price > 6",
            leasing="strict",
            fairness_model="round-robin",
            max_per_subscription_backlog=2,
            lease_period=FAR,
        )
    )


def rings(site):
    """A ring that evicted some, and one that an address setting makes of a queue that comes with its first message."""
    client = site.client
    client.apply(
        Queue(
            name="last-five", underlying_topic="beats", ring_size=5, max_per_subscription_backlog=2, lease_period=FAR
        ),
        AddressSetting(match="auto.#", auto_create_queues=True, default_ring_size=3, max_delivery_attempts=4),
        AddressSetting(match="auto.*.slow", redelivery_delay="1s", max_redelivery_delay="5s", expiry_delay=FAR),
    )
    client.publish_many("beats", ({"n": number} for number in range(12)))
    subscription = site.subscribe("last-five", max_backlog=1)
    site.keep(subscription, 1)
    client.publish_many("beats", ({"n": number} for number in range(12, 15)))
    client.publish_many("auto.sensors.slow", ({"n": number} for number in range(5)))


def barriers(site):
    """A barrier that was sent, one that waits for what is leased before it, and what waits behind it."""
    client = site.client
    client.apply(
        Queue(
            name="steps",
            underlying_topic="steps",
            barrier_expression="/end = 1",
            max_per_subscription_backlog=5,
            lease_period=FAR,
        )
    )
    client.publish_many(
        "steps", [{"id": 0}, {"id": 1, "end": 1}, {"id": 2}, {"id": 3, "end": 1}, {"id": 4}, {"id": 5, "end": 1}]
    )
    worker = site.subscribe("steps", max_backlog=2)
    watcher = site.subscribe("steps", max_backlog=1)
    site.take(worker, 1)[0].ack(wait=True)
    assert site.take(worker, 1)[0].is_barrier
    assert site.take(watcher, 1)[0].is_barrier
    holder = worker.get(1)
    (message,) = [holder] if holder is not None else site.take(watcher, 1)
    site.note(message)


def several_topics(site):
    """A queue over a regular expression of topics, a pattern of queues, and a publish to a queue's own name."""
    client = site.client
    client.apply(
        Queue(
            name="all-rates",
            underlying_topic="^rates-",
            default_publish_target="rates-eur",
            max_per_subscription_backlog=3,
            lease_period=FAR,
        ),
        Queue(
            name="more-rates",
            underlying_topic="^rates-",
            default_publish_target="rates-usd",
            lease_period=FAR,
            max_per_subscription_backlog=4,
        ),
    )
    for number in range(9):
        client.publish(("rates-eur", "rates-usd", "rates-jpy")[number % 3], {"n": number})
    client.publish("all-rates", {"n": 9})
    subscription = site.subscribe("^(all|more)-rates$", max_backlog=3)
    for message in site.take(subscription, 2):
        message.ack(wait=True)
    site.keep(subscription, 2)
    client.publish("rates-chf", {"n": 10})


def at_most_once(site):
    """A queue whose messages are gone when they are sent."""
    client = site.client
    client.apply(
        Queue(
            name="once",
            underlying_topic="once",
            semantics="at-most-once",
            max_per_subscription_backlog=3,
            allow_redelivery_after_crash=True,
        )
    )
    client.publish_many("once", ({"n": number} for number in range(5)))
    site.take(site.subscribe("once", max_backlog=2), 2)


def of_one_instance(site):
    """Queues of this instance alone, and of some."""
    client = site.client
    client.apply(
        LocalQueue(name="here", underlying_topic="orders", lease_period=FAR, max_per_subscription_backlog=2),
        GroupLocalQueue(
            name="ours",
            underlying_topic="orders",
            initial_owner=site.instance,
            group_local_queue_domain="trading",
            lease_period=FAR,
        ),
    )
    site.keep(site.subscribe("here", max_backlog=2), 2)


def lives(site):
    """Messages whose life is over, and those that live on, by themselves and by their queue."""
    client = site.client
    client.apply(
        Queue(
            name="fresh",
            underlying_topic="fresh",
            expiration=FAR,
            expiration_model="earliest",
            lease_period=FAR,
            max_per_subscription_backlog=2,
        ),
        Queue(
            name="fresh-best", underlying_topic="fresh", expiration="36500d", expiration_model="latest", priority="/n"
        ),
        Action.dead_letter("fresh", "stale", name="keep-stale", reasons=["time_limit"]),
    )
    client.publish_many("fresh", ({"n": number} for number in range(3)), expiration="1ms")
    client.publish_many("fresh", ({"n": number} for number in range(3, 6)), expiration="20000d")
    client.publish("fresh", {"n": 6})
    time.sleep(0.02)
    eventually(lambda: site.sweep() or client.queue_stats("fresh").expired == 3)
    site.keep(site.subscribe("fresh", max_backlog=1), 1)
    duty = Actions(Powers())
    eventually(
        lambda: (
            duty.run_once(site.store) >= 0 and "stale" in client.topics() and client.topics()["stale"]["messages"] == 3
        )
    )


def paused(site):
    """A queue that was paused while something was leased."""
    client = site.client
    client.apply(Queue(name="idle", underlying_topic="idle", max_per_subscription_backlog=2, lease_period=FAR))
    client.publish_many("idle", ({"n": number} for number in range(4)))
    site.keep(site.subscribe("idle", max_backlog=1), 1)
    client.pause_queue("idle")


def depth(site):
    """A queue that keeps only a part active, over a log that is long enough for an index."""
    site.client.publish_many("ticks", ({"n": number} for number in range(2_300)), batch=500)
    site.client.apply(
        Queue(
            name="deep",
            underlying_topic="ticks",
            target_queue_depth=1000,
            max_per_subscription_backlog=3,
            lease_period=FAR,
        )
    )
    site.keep(site.subscribe("deep", max_backlog=3), 2)


def moved(site):
    """Queues that begin elsewhere than at the first message."""
    client = site.client
    place = client.publish("orders", {"id": 50})
    client.publish("orders", {"id": 51})
    client.apply(
        Queue(name="from-now", underlying_topic="orders", recovery_point="now"),
        Queue(name="from-there", underlying_topic="orders", recovery_point=str(place)),
    )
    client.publish("orders", {"id": 52})


def large_and_strange(site):
    """A body that is handed out by reference, bodies that are no text, entries that somebody else wrote."""
    client = site.client
    client.apply(
        Queue(
            name="blobs",
            underlying_topic="blobs",
            message_type="binary",
            max_per_subscription_backlog=3,
            lease_period=FAR,
        ),
        Topic(name="blobs", message_type="binary"),
        Queue(name="large", underlying_topic="large", max_per_subscription_backlog=3, lease_period=FAR),
    )
    client.publish("blobs", bytes(range(256)))
    client.publish("blobs", b"\xff\xfe not UTF-8", headers={"kind": "raw"})
    client.publish("blobs", b"")
    site.keep(site.subscribe("blobs", max_backlog=2), 1)
    client.publish("large", {"pages": "0123456789abcdef" * 1_500})
    client.publish("large", {"pages": "small"})
    log = "{" + site.instance + "}:log:large"
    site.redis.xadd(log, {"id": "7", "raw": b"\x80\xff", "Grüße".encode(): "€"})
    site.redis.xadd(log, {"b": "not ours?", "x": "1"})
    # It is pushed as a reference and not picked up.
    site.subscribe("large", max_backlog=3)


def watched(site):
    """A queue whose changes are told, since somebody aggregates it."""
    client = site.client
    client.apply(Queue(name="seen", underlying_topic="seen", max_per_subscription_backlog=2, lease_period=FAR))
    client.publish_many("seen", ({"symbol": "AB"[number % 2], "qty": number} for number in range(6)))
    rows = client.aggregate("seen", ["/symbol", "SUM(/qty) AS /qty"], ["/symbol"])
    assert rows.get(10) is not None
    site.keep(site.subscribe("seen", max_backlog=1), 1)
    client.ack("seen", filter="/qty = 5")


def removed(site):
    """A queue that was removed: its keys are gone, its topic stays."""
    client = site.client
    queue = Queue(name="gone", underlying_topic="gone")
    client.apply(queue)
    client.publish_many("gone", [1, 2])
    client.remove(queue)
