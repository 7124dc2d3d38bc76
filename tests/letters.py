"""Scenes of dead letters: queues whose messages die, letters of them, and as an action writes them."""

from __future__ import annotations

import json

from observing import eventually
from scene import pick_up, rest_of

from ampsq import Action, Queue


def define(client, *more, **elements):
    """Two queues over one topic, and a queue of letters."""
    client.apply(
        Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=500, max_cancels=1, **elements),
        Queue(name="audit", underlying_topic="orders", max_per_subscription_backlog=500),
        Queue(name="dead", underlying_topic="letters", max_per_subscription_backlog=500),
        Action.dead_letter("work", "letters"),
        *more,
    )


def give_up(client, bodies, *, coordinate, queue="work", **options):
    """Publish, cancel each once, and wait for the letters."""
    before = client.admin.queue_stats("dead").depth
    client.publish_many("orders", bodies, **options)
    with client.subscribe(queue, max_backlog=500) as messages:
        for message in pick_up(messages, len(bodies)):
            message.cancel()
    if coordinate is not None:
        eventually(lambda: client.admin.queue_stats("dead").depth == before + len(bodies), within=25.0)


def die_in_two_queues(client, died):
    """Two letters of `work` and two of `audit`, of the same messages."""
    define(client, Action.dead_letter("audit", "letters"))
    died([1, 2])
    with client.subscribe("audit", max_backlog=2) as messages:
        for message in pick_up(messages, 2):
            message.expire()
    eventually(lambda: client.admin.queue_stats("dead").depth == 4)


def settled(client, queue):
    """Take and settle all messages of a queue now, and return them raw."""
    with client.subscribe(queue, max_backlog=500) as messages:
        taken = rest_of(messages)
        for message in taken:
            message.ack()
        return taken


def letter_body(queue="work", topic="orders", body=b"{}", reason="max_cancels", **more):
    """A letter as the action writes it."""
    head = {"queue": queue, "topic": topic, "bookmark": f"{topic}~x.1~5-0", "reason": reason, "deliveries": 2}
    return (
        json.dumps({**head, "cancels": 1, **more}, separators=(",", ":")).encode()[:-1] + b',"message":' + body + b"}"
    )
