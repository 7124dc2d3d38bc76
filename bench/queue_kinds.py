"""Comparison of queues that choose what to deliver with a plain one: rates, memory, growth. Each function a table."""

from __future__ import annotations

import itertools
import json
import random
import statistics
import time
from typing import TYPE_CHECKING, Final, TypedDict, Unpack

from ampsq.bench.setup import Stage
from ampsq.definitions.queue import Queue
from ampsq.protocol.calls import duties as duty_calls
from ampsq.transport.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ampsq.client.client import Client
    from ampsq.queues.subscription import Message, Subscription

__all__ = ["Elements", "Kinds", "json_bodies"]


class Elements(TypedDict, total=False):
    """Elements of a queue that differ from kind to kind."""

    filter: str
    priority: str
    barrier_expression: str
    target_queue_depth: int


#: What is beside the plain queue: elements of the queue, filter of the subscription.
_KINDS: Final[dict[str, tuple[Elements, str | None]]] = {
    "filtered": ({"filter": "/n >= 0"}, None),
    "filtered_subscription": ({}, "/n >= 0"),
    "prioritised": ({"priority": "/p"}, None),
    "barrier": ({"barrier_expression": "/end = 1"}, None),
    "depth": ({"target_queue_depth": 5_000}, None),
}


def json_bodies(count: int, number: int = 0) -> list[bytes]:
    """Make orders of 250 bytes; `number` is their field n, priorities are even over 1,000."""
    dice = random.Random(1)  # noqa: S311  (data of a measurement)
    return [
        json.dumps({"id": i, "n": number, "p": dice.randrange(1000), "symbol": "AAPL", "x": "x" * 180}).encode()
        for i in range(count)
    ]


class Kinds(Stage):
    """The measurements, on one server; see `Stage`."""

    def run(self) -> dict[str, object]:
        """Measure everything; gives groups of figures, JSON-like."""
        return {"rates": self.rates(), "memory": self.memory(), "ahead": self.ahead(), "filters": self.filters()}

    def _apply(self, client: Client, **elements: Unpack[Elements]) -> None:
        client.apply(
            Queue(
                name="work",
                underlying_topic="orders",
                lease_period="60s",
                max_per_subscription_backlog=10_000,
                **elements,
            )
        )

    def rates(self) -> dict[str, dict[str, float]]:
        """Publish, then subscribe and acknowledge with a backlog of 100, each kind beside a plain queue."""
        bodies, out = json_bodies(self.settings.messages), {}
        for kind, (elements, text) in _KINDS.items():
            rounds = []
            for number in range(self.settings.rounds):
                self.progress(f"a {kind.replace('_', ' ')} queue, round {number + 1} of {self.settings.rounds}")
                rounds.append((self._rate(bodies, {}, None), self._rate(bodies, elements, text)))
            out[kind] = {
                "publish_ratio": _median(own[0] / plain[0] for plain, own in rounds),
                "consume_ratio": _median(own[1] / plain[1] for plain, own in rounds),
                "publish_per_second": round(statistics.median(own[0] for _, own in rounds)),
                "plain_publish_per_second": round(statistics.median(plain[0] for plain, _ in rounds)),
                "per_second": round(statistics.median(own[1] for _, own in rounds)),
                "plain_per_second": round(statistics.median(plain[1] for plain, _ in rounds)),
                "server_us": round(statistics.median(own[2] for _, own in rounds), 1),
                "plain_server_us": round(statistics.median(plain[2] for plain, _ in rounds), 1),
            }
        return out

    def _rate(self, bodies: Sequence[bytes], elements: Elements, text: str | None) -> tuple[float, float, float]:
        """Messages a second published and consumed, and server time a message consumed."""
        client, count = self.client(), len(bodies)
        self._apply(client, **elements)
        started = time.perf_counter()
        client.publish_many("orders", bodies)
        published = count / (time.perf_counter() - started)
        with self.script_time() as spent, client.subscribe("work", max_backlog=100, filter=text) as messages:
            started = time.perf_counter()
            for message in itertools.islice(messages, count):
                message.ack()
            messages.flush()
            consumed = count / (time.perf_counter() - started)
        self.remove(client)
        return published, consumed, spent[0] / count

    def memory(self) -> dict[str, float]:
        """Bytes beyond the log of a message that waits and has its place."""
        count, out = 20_000, {}
        kinds: tuple[tuple[str, Elements, tuple[str, ...]], ...] = (
            ("prioritised", {"priority": "/p"}, ()),
            ("two_filters_that_match", {"priority": "/p"}, ("/n >= 0", "/n < 5")),
            ("one_selective_filter", {}, ("/n = 77",)),
            ("ten_selective_filters", {}, tuple(f"/n = {100 + i}" for i in range(10))),
            ("depth_1000_beside_a_selective_filter", {"target_queue_depth": 1_000}, ("/n = 77",)),
        )
        for kind, elements, texts in kinds:
            self.progress(f"memory: {kind.replace('_', ' ')}")
            client = self.client()
            self._apply(client, **elements)
            before = self.held(client)
            client.publish_many("orders", json_bodies(count), batch=500)
            subscriptions = [client.subscribe("work", filter=text) for text in texts or ("/n = 77",)]
            for subscription in subscriptions:
                subscription.get(0)
            self._sweep(client)
            out[kind] = round((self.held(client) - before) / count, 1)
            self.remove(client)
        return out

    def ahead(self) -> dict[str, float]:
        """Server time of a selective subscription's next message, by how many others wait ahead of it, us."""
        out = {}
        for number in (10, 1_000, self.settings.backlog):
            self.progress(f"a selective subscription behind {number:,} others")
            client = self.client()
            self._apply(client)
            others = itertools.islice(itertools.cycle(json_bodies(min(number, 10_000))), number)
            client.publish_many("orders", itertools.chain(others, json_bodies(2_000, 77)), batch=500)
            with client.subscribe("work", filter="/n = 77") as messages:
                message = messages.get(600)
                # The first ones pay for the garbage that reading the others has left in the server's Lua.
                for _ in range(1_500):
                    message = self._following(messages, message)
                with self.script_time() as spent:
                    for _ in range(200):
                        message = self._following(messages, message)
            out[str(number)] = round(spent[0] / 200, 1)
            self.remove(client)
        return out

    @staticmethod
    def _following(messages: Subscription, message: Message | None) -> Message | None:
        if message is not None:
            message.ack()
        return messages.get(5)

    def filters(self) -> dict[str, float]:
        """Server time a message of a queue whose subscriptions have so many distinct filters, us."""
        out = {}
        bodies = json_bodies(2_000, 5)
        for number in (0, 1, 3, 10, 30):
            self.progress(f"{number} filters")
            client = self.client()
            self._apply(client)
            others = [client.subscribe("work", filter=f"/n = {100 + i}") for i in range(number)]
            client.publish_many("orders", bodies)
            with self.script_time() as spent, client.subscribe("work", max_backlog=100) as messages:
                for message in itertools.islice(messages, len(bodies)):
                    message.ack()
                messages.flush()
            out[str(number)] = round(spent[0] / len(bodies), 1)
            for other in others:
                other.close()
            self.remove(client)
        return out

    def _sweep(self, client: Client) -> None:
        """Let what is due be done, as a coordinator would."""
        store = Store(self.url, client.instance)
        while store.call(duty_calls.sweep())[0]:
            pass
        store.close()


def _median(values: Iterable[float]) -> float:
    return round(statistics.median(values), 2)
