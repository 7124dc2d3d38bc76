"""Pages as JSON, where a request asks for that: the facts that they show, under names that stay."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from starlette.responses import Response

from ampsq.base.formatting import printable
from ampsq.operations.latencies import percentiles_of
from ampsq.protocol.calls.queue_latencies import Latencies

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request

    from ampsq.base.partitions import Partition
    from ampsq.console.facts import Facts
    from ampsq.console.lookups import Browse, QueuePast, Row
    from ampsq.console.topic_lookups import TopicDetails
    from ampsq.operations.actions import ActionState
    from ampsq.operations.figures import QueueFigures
    from ampsq.queues.dead_letters import DeadLetter
    from ampsq.topics.topic_state import TopicState

__all__ = [
    "action_facts",
    "browse_facts",
    "details_facts",
    "json_answer",
    "latency_facts",
    "letter_facts",
    "missing_facts",
    "queue_facts",
    "topic_facts",
    "wants_json",
]

_JSON = "application/json"


def wants_json(request: Request) -> bool:
    """Say whether a request would rather have JSON than HTML; browsers and those who ask for anything get HTML."""
    quality = {"text/html": 0.0, _JSON: 0.0}
    for part in request.headers.get("accept", "").split(","):
        kind, *parameters = (each.strip().lower() for each in part.split(";"))
        if kind in quality:
            weight = next((each[2:] for each in parameters if each.startswith("q=")), "1")
            quality[kind] = float(weight) if weight.replace(".", "", 1).isdigit() else 0.0
    return quality[_JSON] > quality["text/html"]


def json_answer(facts: Facts, status: int = 200) -> Response:
    """Answer with facts as JSON; characters that act on who looks stand in it as escapes."""
    text = printable(json.dumps(facts.model_dump(mode="json"), ensure_ascii=False, indent=1))
    return Response(text.encode() + b"\n", status, {"vary": "accept"}, _JSON)


def queue_facts(queue: QueueFigures, rates: tuple[float, float] | None) -> dict[str, object]:
    """Tell the figures of a queue, ages in seconds, and messages a second; None while these are not known."""
    stats = {name: getattr(queue.stats, name) for name in type(queue.stats).__slots__ if name != "name"}
    each_second = {"in_per_second": rates[0] if rates else None, "out_per_second": rates[1] if rates else None}
    ages = {"oldest": queue.ages.message, "oldest_lease": queue.ages.lease, "behind": queue.behind}
    groups = asdict(queue.groups) if queue.groups else None
    return {
        "name": queue.stats.name, **stats, **ages, **each_second, "paused": queue.definition.paused, "groups": groups
    }  # fmt: skip


def missing_facts(away: Sequence[tuple[Partition, str]]) -> list[dict[str, object]]:
    """Tell which partitions could not be read, and why."""
    return [{"number": each.number, "instance": each.instance, "reason": reason} for each, reason in away]


def latency_facts(range_: str, past: QueuePast) -> dict[str, object]:
    """Tell percentiles of how long messages took over a range, in seconds."""
    whole = Latencies.merged(bucket.latencies for bucket in past.latencies)
    delivery, handling = percentiles_of(whole.delivery), percentiles_of(whole.handling)
    return {"over": range_, "delivery": delivery, "handling": handling}


def browse_facts(found: Browse) -> dict[str, object]:
    """Tell what a look at the messages of a queue found."""
    return {
        "leased": [_row_facts(each) for each in found.leased],
        "waiting": [_row_facts(each) for each in found.waiting],
        "is_whole": found.is_whole,
        "was_cut": found.was_cut,
    }


def _row_facts(row: Row) -> dict[str, object]:
    message = row.message
    facts = {"bookmark": message.bookmark, "topic": message.topic, "body": message.raw}
    return {**facts, "headers": message.headers, "deliveries": message.deliveries, "holder": row.holder}


def letter_facts(letter: DeadLetter) -> dict[str, object]:
    """Tell what is known of a dead letter."""
    names = ("bookmark", "original", "queue", "topic", "reasons", "consumer_reason", "deliveries", "group", "headers")
    facts = {name: getattr(letter, name) for name in names}
    return {**facts, "age": letter.age, "body": letter.raw}


def topic_facts(name: str, state: TopicState, rates: tuple[float, float] | None, *, is_view: bool) -> dict[str, object]:
    """Tell the figures of a topic, and messages a second; None while these are not known."""
    return {"name": name, "view": is_view, "in_per_second": rates[0] if rates else None, **state.as_dict()}


def details_facts(name: str, found: TopicDetails, rates: tuple[float, float] | None) -> dict[str, object]:
    """Tell all that the page of a topic shows."""
    return {
        **topic_facts(name, found.state, rates, is_view=found.view is not None), "readers": found.readers,
        "publishers": [each._asdict() for each in found.publishers], "definition": found.view,
        "records": [
            {"key": each.key, "bookmark": each.bookmark, "body": each.raw} for each in found.rows
        ],
        "messages": [
            {
                "bookmark": each.bookmark, "at": each.at, "headers": each.headers, "body": each.raw,
            }
            for each in found.messages
        ],
        "wrong": found.wrong,
    }  # fmt: skip


def action_facts(state: ActionState) -> dict[str, object]:
    """Tell how an action stands; its definition without secrets."""
    figures = {name: getattr(state, name) for name in ("name", "waiting", "done", "failed", "error")}
    return {**figures, "definition": state.definition}
