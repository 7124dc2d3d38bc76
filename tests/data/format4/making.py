"""Parts that the dump's program shares: instances that are filled, and messages that were handed out there."""

from __future__ import annotations

import contextlib
import time

from ampsq import Client
from ampsq.coordinator.sweep import Sweep
from ampsq.errors import NotPersisted
from ampsq.replication import running

__all__ = ["FAR", "Site", "TooFew", "eventually"]

#: A period that outlives whoever loads the dump, and less than what is allowed at most: 36500d.
FAR = "36000d"


class TooFew(AssertionError):
    """Less was handed out than the dump is to have."""


def eventually(condition, within=30.0):
    """Wait until a condition holds."""
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            raise TooFew(f"waited {within} s in vain")
        time.sleep(0.02)


def _close(client):
    with contextlib.suppress(NotPersisted):
        client.close()


class Site:
    """One instance, with clients and subscriptions that stay until the dump is made.

    Args:
        stack: ends what stays.
        url: of the server.
        instance: the name.
    """

    def __init__(self, stack: contextlib.ExitStack, url: str, instance: str) -> None:
        self._stack, self.url, self.instance = stack, url, instance
        self.client = self.connect()
        self.handed: list[dict] = []

    def connect(self, **options):
        """Make a client that stays."""
        # It beats seldom, so that no beat comes between the last one, which is good for ever, and the dump.
        client = Client(self.url, instance=self.instance, heartbeat="10s", **options)
        self._stack.callback(_close, client)
        return client

    @property
    def store(self):
        return self.client._store

    @property
    def redis(self):
        return self.client._store.redis

    def subscribe(self, name, **options):
        """Make a subscription that stays."""
        return self.client.subscribe(name, **options)

    def take(self, subscription, number):
        """Take messages, each of which must come, within half a minute."""
        found = []
        for _ in range(number):
            message = subscription.get(10)
            if message is None:
                raise TooFew(f"{subscription}: {len(found)} of {number}")
            found.append(message)
        return found

    def keep(self, subscription, number):
        """The same, leased when the dump is made: what was handed out is told beside it."""
        found = self.take(subscription, number)
        for message in found:
            self.note(message)
        return found

    def note(self, message):
        """Note what is leased when the dump is made."""
        self.handed.append(
            {
                "queue": message.queue,
                "bookmark": str(message.bookmark),
                "subscription": message._subscription.id,
                "delivery": message.delivery,
                "token": message.parts[1].decode(),
                "ref": message.parts[5].split(b"\n")[0].decode(),
                "lease_until": None if message.lease_until is None else message.lease_until.isoformat(),
                "body": message.raw.decode("latin-1"),
            }
        )

    def sweep(self):
        """Do what is due, as a coordinator does."""
        Sweep().run_once(self.store)

    @property
    def end(self):
        """Return this instance as one end of a link."""
        return running.meet(self.store)
