"""Parts of scenarios: picking up, settling, and what the journal says."""

from __future__ import annotations

import time

from observing import journal_of

from ampsq import Queue
from ampsq.queues.takes_ahead import TakesAhead


def define_work(client, **elements):
    """Define the queue `work`, of which a subscription may hold 100 messages."""
    client.apply(Queue(name="work", **{"max_per_subscription_backlog": 100, **elements}))


def pick_up(subscription, number, within=30.0):
    """The next `number` messages; fails when they do not come in time."""
    messages = []
    deadline = time.monotonic() + within
    while len(messages) < number:
        assert time.monotonic() < deadline, f"{len(messages)} of {number} messages came: {messages}"
        if (message := subscription.get(0.2)) is not None:
            messages.append(message)
    return messages


class _Paying(TakesAhead):
    """Takes ahead that always pay, whatever is measured."""

    pays = property(lambda _: True, lambda _, __: None)


def take_ahead(subscription):
    """Let a subscription take ahead, as it does where handlers are slower than the server; gives it back."""
    subscription._managed.core.inbox.ahead.__class__ = _Paying
    return subscription


def data_of(messages):
    return [message.data for message in messages]


def rest_of(subscription):
    """Everything that is there for a subscription now, without waiting."""
    messages = []
    while (message := subscription.get(0)) is not None:
        messages.append(message)
    return messages


def settle_all(subscription, number=None):
    """Acknowledge `number` messages, or all that are there, one after the other; gives their data."""
    seen = []
    while (number is None or len(seen) < number) and (message := subscription.get(0.2 if number else 0)) is not None:
        seen.append(message.data)
        message.ack(wait=True)
    return seen


class Journal:
    """The settlements in a queue's journal, read straight from the server."""

    def __init__(self, redis, instance, origin):
        self._redis, self._instance, self._origin = redis, instance, origin

    def entries(self, queue):
        """Return (how, reason, bookmark) of each message, in the order in which they were settled."""
        return journal_of(self._redis, self._instance, self._origin, queue)
