"""A queue that is emptied through failures."""

from __future__ import annotations

import time

from ampsq import Queue

KINDS = ["redis", "valkey"]


def define(client, **elements):
    client.apply(Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=500, **elements))


def drain(messages, number, *, within=40.0):
    """Acknowledge until nothing comes for a moment or `number` came; gives what was handed out."""
    seen, until = [], time.monotonic() + within
    while len(seen) < number and time.monotonic() < until:
        message = messages.get(0.5)
        if message is not None:
            seen.append(message.data)
            message.ack(wait=True)
    return seen
