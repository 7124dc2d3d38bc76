"""The longest call of each verb, and a message that goes to many queues at once."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from ampsq.bench.consuming import drain, drain_out_of_order
from ampsq.bench.setup import Stage
from ampsq.definitions.queue import Queue
from ampsq.protocol.calls import duties as duty_calls
from ampsq.transport.store import Store

if TYPE_CHECKING:
    from ampsq.client.client import Client

__all__ = ["Extremes"]

_BODY: Final = b"x" * 250
#: Messages that one subscription holds, and loses or hands back at once.
_HELD: Final = 10_000
#: Messages that go to many queues, one by one.
_PUBLISHED: Final = 50
#: Seconds in which what a sweep gives again does not lapse.
_SWEPT: Final = 0.9


class Extremes(Stage):
    """The measurements, on one server; see `Stage`."""

    def many_queues(self) -> dict[str, float]:
        """Define so many queues on one topic, and publish into them, one by one."""
        many = self.settings.many
        self.progress(f"{many:,} queues on one topic")
        client = self.client()
        started = time.perf_counter()
        client.apply(*[Queue(name=f"queue-{number}", underlying_topic="orders") for number in range(many)])
        defined = time.perf_counter() - started
        client.publish("orders", _BODY)
        with self.logged_calls() as calls:
            for _ in range(_PUBLISHED):
                client.publish("orders", _BODY)
        spent = sorted(milliseconds for name, milliseconds in calls if name == "publish")
        self.remove(client)
        return {
            "define_s": round(defined, 2),
            "publish_ms": round(spent[len(spent) // 2], 3),
            "longest_call_ms": round(spent[-1], 2),
        }

    def longest_calls(self) -> dict[str, float]:
        """Publish, take, settle, extend, hand back and let lapse in large batches; gives ms by verb.

        It is the time that passed, by the server's own log: more than it worked, where others want the processor too.
        """
        self.progress("the longest call of each verb")
        client = self.client()
        client.apply(
            Queue(name="work", underlying_topic="orders", lease_period="60s", max_per_subscription_backlog=_HELD),
            Queue(name="lapsing", lease_period="1s", max_per_subscription_backlog=_HELD),
        )
        # A first call sends the script, and composing it is no part of what a message costs.
        self._work(client, 500)
        with self.logged_calls() as calls:
            self._work(client, _HELD)
        longest: dict[str, float] = defaultdict(float)
        for name, milliseconds in calls:
            longest[name] = max(longest[name], milliseconds)
        self.remove(client)
        return {name: round(milliseconds, 2) for name, milliseconds in sorted(longest.items())}

    def _work(self, client: Client, count: int) -> None:
        client.publish_many("orders", [_BODY] * count * 3, batch=500)
        drain(client, count, backlog=500)
        drain_out_of_order(client, count, has_slow=True)
        self._hold(client, count)
        self._lapse(client, count)
        drain(client, count, backlog=500)

    @staticmethod
    def _hold(client: Client, count: int) -> None:
        """Hold messages, extend one and cancel another, and hand all back by leaving."""
        with client.subscribe("work", max_backlog=count) as messages:
            held = [messages.get(60) for _ in range(count)]
            for at, message in enumerate(held[:20]):
                if message is not None:
                    message.extend("60s") if at % 2 else message.cancel()

    def _lapse(self, client: Client, count: int) -> None:
        """Hold messages whose leases end, and let sweeps return them."""
        client.publish_many("lapsing", [_BODY] * count, batch=500)
        store = Store(self.url, client.instance)
        with client.subscribe("lapsing", max_backlog=count) as messages:
            for _ in range(count):
                messages.get(60)
            # The lease of the last one ends as any does: by the server's clock.
            time.sleep(1.1)
            # What it gives again lapses after another second, without end where others want the processor too.
            until = time.monotonic() + _SWEPT
            while store.call(duty_calls.sweep())[0] and time.monotonic() < until:
                pass
        store.close()
