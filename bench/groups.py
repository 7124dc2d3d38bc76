"""Costs of queues with groups beside plain and priority queues, and of a quiet group beside a busy one.

Everything is the server's processor time, so that other work on the machine changes little. Publishing is compared
with a plain queue, publishing and consuming together with a priority queue that makes no lease runs.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import statistics
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, TypedDict, Unpack, cast

from ampsq.bench.beside import server_seconds
from ampsq.bench.setup import Stage
from ampsq.definitions.queue import Queue
from ampsq.protocol.calls import duties as duty_calls
from ampsq.protocol.calls import queues as queue_calls
from ampsq.transport.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ampsq.client.client import Client
    from ampsq.definitions.queue import GroupChoice
    from ampsq.protocol.calls.queues import Parts
    from ampsq.queues.subscription import Subscription

__all__ = ["GroupsBenchmark"]

#: Messages of one call.
_A_CALL: Final = 100
#: Messages of a group that may be leased at once, where there is one group that takes turns with itself.
_CONCURRENCY: Final = 1_000
#: Of so many messages all are consumed; of more only so many, once what takes turns has its place.
_MOST_CONSUMED: Final = 100_000
#: Messages of each group where memory is measured, beside one of each, of so many groups up to so many.
_IN_EACH: Final = 10
_FEW: Final = 10_000
_MANY: Final = 1_000_000
#: For how long a group is bound to a subscription, where it is.
_AFFINITY: Final = "30s"
#: Subscriptions of the figure that compares many with one, and groups that they share.
_TAKERS: Final = (1, 16)
_SHARED_GROUPS: Final = 100
#: Messages of the busy group that may be leased at once, and how many deliveries of the quiet one are timed.
_BUSY: Final = 50
_TIMED: Final = 300


class _Elements(TypedDict, total=False):
    """Elements of a queue that differ from kind to kind."""

    priority: str
    group_by: str
    group_choice: GroupChoice
    group_concurrency: int
    group_batch: int
    group_affinity: str


class _Cost(TypedDict):
    """The cost of a kind of queue: microseconds of the server a message, and messages a call of a script."""

    publish_us: float
    consume_us: float
    messages_per_call: float


def _bodies(count: int, groups: int) -> list[bytes]:
    """Make orders of about 250 bytes; each group has the same number of them, one after the other.

    Neighbours differ in their priority, so that a priority queue can make no lease runs, as one with groups never does.
    """
    return [
        json.dumps({"id": i, "customer": f"c{i % groups}", "p": i * 7919 % 1000, "x": "x" * 195}).encode()
        for i in range(count)
    ]


class GroupsBenchmark(Stage):
    """The measurements, on one server; see `Stage`."""

    def run(self) -> dict[str, object]:
        """Measure everything; gives groups of figures, JSON-like."""
        costs = {str(groups): self._costs(groups) for groups in self.settings.groups}
        memory = {}
        for groups in self.settings.groups:
            for each in (1, _IN_EACH) if _FEW <= groups < _MANY else (1,):
                memory[str(groups) if each == 1 else f"{groups} of {each}"] = self._memory(groups, each)
        takers = {
            "takers": self._takers({"group_by": "/customer"}),
            "bound_takers": self._takers({"group_by": "/customer", "group_affinity": _AFFINITY}),
        }
        return {"costs": costs, **takers, "memory": memory, "beside": self._beside_a_busy_one()}

    def _apply(self, client: Client, **elements: Unpack[_Elements]) -> None:
        client.apply(
            Queue(
                name="work",
                underlying_topic="orders",
                lease_period="60s",
                max_per_subscription_backlog=10_000,
                **elements,
            )
        )

    # -- what a message costs

    def _costs(self, groups: int) -> dict[str, object]:
        """The costs of the three choices beside those of a plain and a priority queue, in interleaved rounds."""
        bodies = _bodies(max(self.settings.messages, groups), groups)
        is_one = groups == 1
        turns = _CONCURRENCY if is_one else 1
        kinds: dict[str, tuple[_Elements, int]] = {
            "plain": ({}, _A_CALL),
            "priority": ({"priority": "/p"}, _A_CALL),
            "first": ({"group_by": "/customer"}, _A_CALL),
            "round_robin": (_grouped("round_robin", turns), _A_CALL),
            "fair": (_grouped("fair", turns), _A_CALL),
            "first_with_affinity": ({"group_by": "/customer", "group_affinity": _AFFINITY}, _A_CALL),
        }
        if is_one:
            # One group at a concurrency of 1 gives one message a call, whatever is asked for.
            kinds["priority_singly"] = ({"priority": "/p"}, 1)
            kinds["first_in_batches"] = ({"group_by": "/customer", "group_batch": _A_CALL}, _A_CALL)
        rounds: list[dict[str, _Cost]] = []
        for number in range(self.settings.rounds if groups < self.settings.messages else 1):
            costs = {}
            for kind, (elements, backlog) in kinds.items():
                self.progress(f"{groups:,} groups, {kind.replace('_', ' ')}, round {number + 1}")
                costs[kind] = self._cost(bodies, elements, backlog)
            rounds.append(costs)
        out: dict[str, object] = {}
        for kind in kinds:
            row: dict[str, float] = {
                name: _median(cast("dict[str, float]", costs[kind])[name] for costs in rounds)
                for name in _Cost.__annotations__
            }
            row["publish_ratio"] = _median(costs["plain"]["publish_us"] / costs[kind]["publish_us"] for costs in rounds)
            is_singly = is_one and kind in {"first", "first_with_affinity"}
            beside = "priority_singly" if is_singly else "priority"
            row["priority_ratio"] = _median(_both(costs[beside]) / _both(costs[kind]) for costs in rounds)
            out[kind] = row
        return out

    def _cost(self, bodies: Sequence[bytes], elements: _Elements, a_call: int) -> _Cost:
        client, count = self.client(), len(bodies)
        consumed, placing = min(count, _MOST_CONSUMED), 0.0
        self._apply(client, **elements)
        published = self._server_us(lambda: client.publish_many("orders", bodies, batch=500), count)
        with client.subscribe("work", max_backlog=a_call) as messages, self._store(client) as store:
            if consumed < count and ("group_choice" in elements or "priority" in elements):
                # All that waits has to have its place before the first one goes, so each message has its share of that.
                placing = self._server_us(lambda: self._place(client), count)
            began = server_seconds(self.redis)
            calls = _drain(store, [messages.id], consumed, a_call)
            consuming = (server_seconds(self.redis) - began) / consumed * 1e6
        self.remove(client)
        return {
            "publish_us": published,
            "consume_us": round(placing + consuming, 2),
            "messages_per_call": round(consumed / calls, 1),
        }

    @contextlib.contextmanager
    def _store(self, client: Client) -> Iterator[Store]:
        with contextlib.closing(Store(self.url, client.instance)) as store:
            yield store

    def _takers(self, elements: _Elements) -> dict[str, float]:
        """The server's time a message for one subscription, and for sixteen that share the groups."""
        bodies = _bodies(self.settings.messages, _SHARED_GROUPS)
        found: dict[int, list[float]] = {number: [] for number in _TAKERS}
        for number, takers in itertools.product(range(self.settings.rounds), _TAKERS):
            self.progress(f"{takers} subscriptions on {_SHARED_GROUPS} groups, round {number + 1}")
            client = self.client()
            self._apply(client, **elements)
            client.publish_many("orders", bodies, batch=500)
            with ExitStack() as stack:
                some = [stack.enter_context(client.subscribe("work", max_backlog=_A_CALL)) for _ in range(takers)]
                began = server_seconds(self.redis)
                _drain(stack.enter_context(self._store(client)), [each.id for each in some], len(bodies), _A_CALL)
                found[takers].append((server_seconds(self.redis) - began) / len(bodies) * 1e6)
            self.remove(client)
        one, many = (statistics.median(found[takers]) for takers in _TAKERS)
        return {"one_us": round(one, 1), "sixteen_us": round(many, 1), "ratio": round(one / many, 2)}

    def _server_us(self, work: Callable[[], object], count: int) -> float:
        before = server_seconds(self.redis)
        work()
        return round((server_seconds(self.redis) - before) / count * 1e6, 2)

    # -- what a message that waits takes

    def _memory(self, groups: int, each: int) -> dict[str, float]:
        """Bytes beyond the log of a message, unread and listed in its group; and the longest call.

        Args:
            groups: how many there are.
            each: how many messages each has, at least.
        """
        count = max(self.settings.messages, groups * each)
        self.progress(f"memory, {groups:,} groups of {count // groups:,}")
        client = self.client()
        self._apply(client, **_grouped("round_robin", 1))
        with self.timed_calls() as times:
            before = self.held(client)
            client.publish_many("orders", _bodies(count, groups), batch=500)
            unread = self.held(client) - before
            with client.subscribe("work", max_backlog=1) as messages:
                messages.get(0)
                longest_work = self._longest_placing(client)
                placed = self.held(client) - before
        self.remove(client)
        return {
            "bytes_per_unread": round(unread / count, 1),
            "bytes_per_placed": round(placed / count, 1),
            "longest_call_ms": times["longest_call_ms"],
            "longest_work_ms": round(longest_work * 1000, 2),
        }

    def _place(self, client: Client) -> None:
        """Let what waits get its place, as a coordinator would."""
        with self._store(client) as store:
            while store.call(duty_calls.sweep())[0]:
                pass

    def _longest_placing(self, client: Client) -> float:
        """Let what waits get its place; gives how long the server worked in the longest call of that, seconds.

        Its work is no longer when others want the processor, too, as the time that passes is.
        """
        longest, is_over = 0.0, False
        with self._store(client) as store:
            # The first one makes its connection, and finds out what the server knows of functions.
            store.call(duty_calls.sweep())
            before = server_seconds(self.redis)
            while not is_over:
                is_over = not store.call(duty_calls.sweep())[0]
                after = server_seconds(self.redis)
                longest, before = max(longest, after - before), after
        return longest

    # -- a quiet group beside a busy one

    def _beside_a_busy_one(self) -> dict[str, float]:
        """The time from publishing a message of a quiet group to its delivery, us: alone, and where much waits."""
        with self._backlog(0) as alone, self._backlog(self.settings.backlog) as busy:
            found: dict[str, list[float]] = {"alone": [], "beside": []}
            for number in range(self.settings.rounds):
                for name, (client, free) in (("alone", alone), ("beside", busy)):
                    self.progress(f"a quiet group {name}, round {number + 1}")
                    spent = [self._one_delivery(client, free) for _ in range(_TIMED)]
                    found[name].append(statistics.median(spent) * 1e6)
        of_alone, of_beside = (statistics.median(each) for each in found.values())
        return {
            "alone_p50_us": round(of_alone),
            "beside_p50_us": round(of_beside),
            "ratio": round(of_alone / of_beside, 2),
        }

    @contextlib.contextmanager
    def _backlog(self, waiting: int) -> Iterator[tuple[Client, Subscription]]:
        """Let so many messages of the busy group wait; gives who publishes, and a subscription with one place free."""
        client = self.client()
        self._apply(client, **_grouped("fair", _BUSY))
        template = _bodies(1_000, 1)
        if waiting:
            self.progress(f"{waiting:,} messages of a busy group")
        client.publish_many("orders", itertools.islice(itertools.cycle(template), waiting), batch=500)
        with ExitStack() as stack:
            if waiting:
                # It is full from then on, and so is what may be leased of the busy group.
                busy = stack.enter_context(client.subscribe("work", max_backlog=_BUSY))
                for _ in range(_BUSY):
                    busy.get(60)
                self._place(client)
            yield client, stack.enter_context(client.subscribe("work", max_backlog=1))
        self.remove(client)

    @staticmethod
    def _one_delivery(client: Client, messages: Subscription) -> float:
        began = time.perf_counter()
        client.publish("orders", {"customer": "quiet"})
        message = messages.get(60)
        spent = time.perf_counter() - began
        if message is None:
            raise AssertionError("a message of the quiet group was not delivered")
        message.ack(wait=True)
        return spent


def _grouped(choice: GroupChoice, concurrency: int) -> _Elements:
    return {"group_by": "/customer", "group_choice": choice, "group_concurrency": concurrency}


def _both(cost: _Cost) -> float:
    return cost["publish_us"] + cost["consume_us"]


def _drain(store: Store, subscriptions: Sequence[str], count: int, a_call: int) -> int:
    """Let subscriptions take so many messages in turn; each acknowledges what it took with its next call.

    The server makes no lease runs: the calls do not say that they understand any.

    Returns:
        The number of calls.
    """
    calls, left = 0, count
    acks: dict[str, dict[bytes, list[Parts]]] = {each: {} for each in subscriptions}
    while left or any(acks.values()):
        for each in subscriptions:
            taken = store.call(queue_calls.take(each, max(min(a_call, left), 0), acks[each]))
            if taken.refused:
                raise AssertionError(f"acknowledgements were refused: {taken.refused[:3]}")
            acks[each] = {}
            for head in taken.elements[::2]:
                parts = head.split(b"\n", 1)[0].split(b" ", 5)
                acks[each].setdefault(parts[0], []).append(parts)
                left -= 1
            calls += 1
    return calls


def _median(values: Iterator[float]) -> float:
    return round(statistics.median(values), 2)
