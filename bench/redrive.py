"""Rate at which dead letters go back to their queues, and how long one call holds the server."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from ampsq.bench.setup import Stage
from ampsq.definitions.queue import Queue

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Redrive"]


class Redrive(Stage):
    """The measurement, on one server; see `Stage`."""

    def run(self) -> dict[str, object]:
        """Put letters of 250-byte messages back, into one of two queues over a topic, with a waiting consumer."""
        client, number = self.client(), self.settings.letters
        for name, topic in (("work", "orders"), ("audit", "orders"), ("dead", "letters")):
            client.apply(Queue(name=name, underlying_topic=topic, max_per_subscription_backlog=10_000))
        self.progress(f"{number:,} dead letters")
        client.publish_many("letters", self._letters(number), batch=500)
        self.progress(f"{number:,} dead letters are put back")
        with client.subscribe("work", max_backlog=100), self.script_time() as spent, self.timed_calls() as times:
            started = time.perf_counter()
            redriven = client.admin.redrive("dead")
            took = time.perf_counter() - started
        self.remove(client)
        return {
            "letters": int(redriven),
            "per_second": round(redriven / took),
            "server_us": round(spent[0] / redriven, 1),
            **times,
        }

    @staticmethod
    def _letters(number: int) -> Iterator[bytes]:
        """As a dead-letter action writes them."""
        message = json.dumps({"id": 1, "n": 0, "p": 5, "symbol": "AAPL", "x": "x" * 180})
        head = '{"queue":"work","topic":"orders","bookmark":"orders~bench.1~5-0","reason":"max_deliveries",'
        for n in range(number):
            yield f'{head}"deliveries":5,"cancels":{n},"message":{message}}}'.encode()
