"""A dead letter: what is published of a message that expired, where an action says nothing else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ampsq.coordinator.actions.event import moment
from ampsq.messages.letters import embedded
from ampsq.messages.returns import CameBack, last_reason, read_returns

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["letter"]


def letter(queue: str, topic: str, bookmark: bytes, facts: Mapping[str, Any], fields: Mapping[bytes, bytes]) -> bytes:
    """Write a dead letter: a JSON object whose last member is the original.

    Args:
        queue: the queue that gave it up.
        topic: where it was published.
        bookmark: of the original.
        facts: reason, consumer_reason, attempts and history, as the journal has them.
        fields: the original's log entry; empty: it is gone.
    """
    deliveries, _, cancels = str(facts["attempts"]).partition(":")
    returns = read_returns(facts["history"])
    said: dict[str, Any] = {
        "queue": queue,
        "topic": topic,
        "bookmark": bookmark.decode(),
        "reason": facts["reason"],
        "deliveries": int(deliveries),
        "cancels": int(cancels or 0),
        "history": [_returned(each) for each in returns],
    }
    if consumer_reason := facts["consumer_reason"] or last_reason(returns):
        said["consumer_reason"] = consumer_reason
    if not fields:
        said["lost"] = True
    return json.dumps(said, separators=(",", ":"))[:-1].encode() + b',"message":' + embedded(fields) + b"}"


def _returned(each: CameBack) -> dict[str, str]:
    """When a message came back, why, and from whom."""
    # What follows the slash is the number of the client's request.
    who = each.client.rpartition("/")[0] or each.client
    found = {"came_back": moment(each.at), "cause": each.cause, "subscription": each.subscription, "client": who}
    return {**found, "consumer_reason": each.consumer_reason} if each.consumer_reason else found
