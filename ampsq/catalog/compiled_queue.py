"""Definitions of queues as the scripts take them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ampsq.definitions.elements import NO_RING
from ampsq.expressions import parse
from ampsq.protocol.calls.definitions import CompiledQueue
from ampsq.protocol.limits import NO_ROOM

if TYPE_CHECKING:
    from ampsq.definitions.queue import Queue
    from ampsq.expressions import Use

__all__ = ["compiled_queue"]


def _numbers(queue: Queue) -> dict[str, int]:
    return {
        # At-most-once has nothing to take back: its leases only fill the backlog.
        "lease": 0 if queue.semantics == "at-most-once" else int(queue.lease_period or 0),
        "backlog": NO_ROOM if queue.paused else queue.max_backlog or 0,
        "deliveries": queue.max_deliveries,
        "cancels": queue.max_cancels,
        "ratio": int(queue.fairness_model == "proportional"),
        "turn": int(queue.fairness_model == "round-robin"),
        "once": int(queue.semantics == "at-most-once"),
        "strict": int(queue.leasing == "strict"),
        "room": queue.max_per_subscription_backlog,
        "depth": queue.target_queue_depth or 0,
    }


_MODELS: Final = ("default", "queue", "latest", "earliest")


def _policy(queue: Queue) -> dict[str, int]:
    """Elements that few queues have."""
    return {
        "life": int(queue.expiration or 0),
        "model": _MODELS.index(queue.expiration_model),
        "redelivery": int(queue.redelivery_delay),
        "multiplier": round(1000 * queue.redelivery_delay_multiplier),
        "longest": int(queue.max_redelivery_delay),
        "jitter": round(1000 * queue.redelivery_collision_avoidance_factor),
    }


def _ring(queue: Queue) -> int | None:
    return None if queue.ring_size == NO_RING else queue.ring_size


def _trees(queue: Queue) -> list[str]:
    """Of filter, priority and barrier expression, as the scripts take them."""
    uses: list[tuple[str | None, Use]] = [
        (queue.filter, "filter"), (queue.priority, "priority"), (queue.barrier_expression, "barrier"),
    ]  # fmt: skip
    return [parse(text, use).json if text is not None else "" for text, use in uses]


def _grouping(queue: Queue) -> str:
    """Return what lua/definitions/lib/queue_grouping.lua takes; "" without groups."""
    if not queue.is_grouped:
        return ""
    tree = parse(queue.group_by, "group").json if queue.group_by is not None else ""
    weight = f"\n{parse(queue.group_weight, 'weight').json}" if queue.group_weight is not None else ""
    batch = f"/{queue.group_batch}" if queue.group_batch > 1 else ""
    affinity = f"~{int(queue.group_affinity)}" if queue.group_affinity else ""
    return f"{queue.group_concurrency}{batch}{affinity} {queue.on_group_failure} {queue.group_choice} {tree}{weight}"


def _rated(queue: Queue) -> str:
    """Return the rates as lua/queues/lib/queue.lua takes them; "" without any."""
    rates = (queue.rate, queue.rate_burst), (queue.group_rate, queue.group_rate_burst)
    if queue.rate is None and queue.group_rate is None:
        return ""
    return " ".join(f"{round(rate.step, 6):.15g} {burst}" if rate else "0 0" for rate, burst in rates)


def compiled_queue(queue: Queue, settled: Queue, group: str, *, recorded: bool) -> CompiledQueue:
    """Compile a queue.

    Args:
        queue: as it is defined.
        settled: the same with what address settings add.
        group: the group of the instance.
        recorded: whether its deliveries are recorded.
    """
    alone = "" if queue.is_pattern else queue.underlying_topic
    return CompiledQueue(
        _numbers(settled), alone, _policy(settled), _trees(queue), _ring(settled), recorded, queue.type.word,
        queue.owner, queue.domain(group), int(queue.deferred_ack_expiration), _grouping(queue), _rated(queue),
    )  # fmt: skip
