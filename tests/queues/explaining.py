"""Scenes of explanations."""

from __future__ import annotations

from datetime import UTC, datetime

from ampsq import Queue
from ampsq.base.bookmarks import Bookmark
from ampsq.base.formatting import span_text
from ampsq.protocol.calls import duties as duty_calls
from ampsq.protocol.schema import key

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
        while self.client._store.call(duty_calls.sweep())[0]:
            pass

    def explain(self, bookmark=None):
        return self.client.admin.explain("work", bookmark)


def moment(milliseconds):
    return f"{datetime.fromtimestamp(milliseconds // 1000, UTC):%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03d}Z"


def seconds(milliseconds):
    return span_text(milliseconds)


def scene(reason, state):
    """A scene gives an explanation, which must have this reason and state, and the sentence that it must have."""

    def add(function):
        function.scene = reason, state
        return function

    return add


def barriers(stage):
    stage.queue(barrier_expression="/end = 1", max_per_subscription_backlog=10)
