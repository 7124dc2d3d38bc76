"""Calls of callers on a cluster, their times, and their results: for the judge."""

from __future__ import annotations

import itertools
import logging
import time
from collections import Counter
from typing import NamedTuple

from ampsq import Client
from ampsq.base.errors import StaleLease, Unavailable

__all__ = ["LOOK", "Called", "Calls"]

#: Seconds that a call waits for a message at most, since one is published all the time; and one look for it.
_WAIT, LOOK = 20.0, 0.25


class Called(NamedTuple):
    """One call: when it began by the monotonic clock, and how many seconds it took."""

    name: str
    began: float
    took: float


class Calls:
    """The calls of one run.

    Args:
        instance: whose log is read in the end.
        stop: set when nothing is called any more.

    Attributes:
        calls: each call that came to its end.
        allowed: what was raised and may be, after a primary was lost.
        answered, unknown: bodies of publishers without a name, whose answer came, or of which nobody knows.
        stored: bodies that a publisher's store took.
        seen: what a reader of the topic had.
        stalls: (when, for how many seconds) the machine held everything up.
        log: a handler for what ours log.
    """

    def __init__(self, instance, stop):
        self._instance, self._stop, self._numbers = instance, stop, itertools.count()
        self.calls, self.allowed, self.raised, self.stalls = [], Counter(), [], []
        self.answered, self.stored, self.unknown = set(), set(), set()
        self.seen, self.recorded, self.log = [], None, _Log()

    def call(self, name, function, *arguments, **options):
        began = time.monotonic()
        try:
            return function(*arguments, **options)
        finally:
            self.calls.append(Called(name, began, time.monotonic() - began))

    async def call_async(self, name, function, *arguments, **options):
        began = time.monotonic()
        try:
            return await function(*arguments, **options)
        finally:
            self.calls.append(Called(name, began, time.monotonic() - began))

    def wait_for(self, name, get):
        """Wait for the next message; None once it is over. So long as messages are published, it is not long."""
        began = time.monotonic()
        while (message := get(LOOK)) is None and not self._stop.is_set():
            if time.monotonic() - began > _WAIT:
                raise AssertionError(f"{name}: no message in {_WAIT} s, while messages are published")
        if message is not None:
            self.calls.append(Called(name, began, time.monotonic() - began))
        return message

    def take(self, name, number=1):
        return [f"{name}-{next(self._numbers)}" for _ in range(number)]

    def note(self, name, error):
        self.raised.append((name, time.monotonic(), error))

    def held_up(self, began, until):
        """Seconds of a time in which the machine held this process up."""
        return sum(late for at, late in self.stalls if began - late < at < until)

    def held_up_most(self):
        return max((late for _, late in self.stalls), default=0.0)

    def missing(self):
        """Return calls that every run makes, and this one did not."""
        done = {call.name for call in self.calls}
        return sorted(_ALWAYS - done)

    def read_log(self, url):
        """Read what the log has."""
        with (
            Client(url, instance=self._instance) as client,
            client.subscribe_topic("orders", bookmark="[epoch:now)") as messages,
        ):
            self.recorded = [message.data for message in iter(lambda: messages.get(2.0), None)]

    def wrong(self, *, killed):
        """Return the faults, and count the allowed errors."""
        found = []
        for name, _, error in self.raised:
            if killed and ((isinstance(error, Unavailable) and error.may_have_run) or isinstance(error, StaleLease)):
                self.allowed[type(error).__name__] += 1
            else:
                found.append(f"{name} raised {type(error).__name__}: {str(error)[:300]}")
        found += [f"log: {text[:300]}" for text in self.log.texts]
        counts = Counter(self.recorded)
        doubled = sorted(body for body, number in counts.items() if number > 1)
        lost = sorted(self.stored - set(counts))
        answered = sorted(self.answered - set(counts))
        if doubled:
            found.append(f"{len(doubled)} messages are recorded more than once: {doubled[:3]}")
        if lost:
            found.append(f"{len(lost)} messages of a store are LOST: {lost[:3]}")
        if answered and not killed:
            found.append(f"{len(answered)} answered messages are LOST: {answered[:3]}")
        if answered:
            self.allowed["answered without a guarantee and lost"] = len(answered)
        unasked = sorted(set(counts) - self.stored - self.answered - self.unknown)
        if unasked:
            found.append(f"{len(unasked)} messages are recorded that nobody published: {unasked[:3]}")
        if not killed and (repeated := len(self.seen) - len(set(self.seen))):
            found.append(f"the reader of the topic had {repeated} messages twice")
        return found


class _Log(logging.Handler):
    """A collector of errors that ampsq logs with an exception: faults that nobody expected."""

    def __init__(self):
        super().__init__(logging.ERROR)
        self.texts = []

    def emit(self, record):
        if record.exc_info:
            self.texts.append(f"{record.getMessage()}: {record.exc_info[1]!r}")


#: What every run has to have called.
_ALWAYS = {
    "publish", "publish_many", "publish with a delay", "publish a record", "delta_publish", "publisher.publish",
    "publisher.publish_many", "publisher.flush", "subscription.get", "extend", "cancel", "ack", "Worker.run",
    "ack with a filter", "cancel for good", "dead_letters", "redrive", "sow_and_subscribe", "record.get", "sow_delete",
    "subscribe_topic", "topic.get", "apply", "plan", "pause_queue", "resume_queue", "async publish",
    "async publish_many", "async publisher.publish", "async publisher.flush", "async subscription.get", "async ack",
    "async sow", "async queue_stats", "async ack with a filter", "queue_stats", "history", "sow", "explain",
    "rebuild", "remove", "async topic.get", "async record.get", "async apply", "async check", "async dead_letters",
}  # fmt: skip
