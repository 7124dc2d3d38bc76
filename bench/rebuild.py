"""Rate of checking a queue, and of rebuilding it from log and journal, and how long one call holds the server."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING

from ampsq.bench.setup import Stage
from ampsq.definitions.queue import Queue
from ampsq.protocol.calls.check import rebuilt_keys

if TYPE_CHECKING:
    from ampsq.client.client import Client

__all__ = ["Rebuild"]

#: Keys of a queue's delivery state.


class Rebuild(Stage):
    """The measurements, on one server; see `Stage`."""

    def run(self) -> dict[str, object]:
        """Measure everything; gives groups of figures, JSON-like."""
        count = self.settings.backlog
        client = self.client()
        client.apply(Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=10_000))
        self.progress(f"a queue of {count:,} messages, two thirds of them acknowledged")
        bodies = (json.dumps({"id": number, "x": "x" * 230}).encode() for number in itertools.count())
        client.publish_many("orders", itertools.islice(bodies, count), batch=500)
        self._settle(client, 2 * count // 3)
        out: dict[str, object] = {"messages": count}
        self.progress("checking it")
        with self.timed_calls() as times:
            checked = client.admin.check("work")[0]
        out["check"] = _figures(count, checked.seconds, times)
        before = client.admin.queue_stats("work")
        self.redis.delete(*rebuilt_keys(client.instance, "work"))
        self.progress("rebuilding it")
        with self.timed_calls() as times:
            rebuilt = client.admin.rebuild("work")
        out["rebuild"] = _figures(count, rebuilt.seconds, times)
        out["right"] = checked.clean and client.admin.queue_stats("work").depth == before.depth
        self.remove(client)
        return out

    def _settle(self, client: Client, number: int) -> None:
        """Acknowledge most messages in order; some stay leased for a while, and come back."""
        with client.subscribe("work", max_backlog=500) as messages:
            for at, message in enumerate(itertools.islice(messages, number)):
                if at % 1000:
                    message.ack()
                else:
                    message.cancel()
            messages.flush()


def _figures(count: int, seconds: float, times: dict[str, float]) -> dict[str, float]:
    return {"per_second": round(count / seconds), "seconds": round(seconds, 2), **times}
