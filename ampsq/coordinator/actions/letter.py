"""A dead letter: what is published of a message that expired, where an action says nothing else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ampsq.coordinator.actions.event import moment
from ampsq.messages.letters import embedded

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["letter"]


def letter(queue: str, topic: str, bookmark: bytes, facts: Mapping[str, Any], fields: Mapping[bytes, bytes]) -> bytes:
    """Write a dead letter: a JSON object whose last member is the original.

    Args:
        queue: the queue that gave it up.
        topic: where it was published.
        bookmark: of the original.
        facts: reason, attempts and history, as the journal has them.
        fields: the original's log entry; empty: it is gone.
    """
    deliveries, _, cancels = str(facts["attempts"]).partition(":")
    said: dict[str, Any] = {
        "queue": queue,
        "topic": topic,
        "bookmark": bookmark.decode(),
        "reason": facts["reason"],
        "deliveries": int(deliveries),
        "cancels": int(cancels or 0),
        "history": _history(facts["history"]),
    }
    if not fields:
        said["lost"] = True
    return json.dumps(said, separators=(",", ":"))[:-1].encode() + b',"message":' + embedded(fields) + b"}"


def _history(text: str) -> list[dict[str, str]]:
    """When a message came back, why, and from whom: ``<ms>,<cause>,<subscription>,<client>;...``, or ``-``."""
    found = []
    for item in text.split(";") if text != "-" else ():
        came_back, cause, subscription, client = [*item.split(",", 3), "", "", ""][:4]
        if came_back.isdecimal():
            # What follows the slash is the number of the client's request.
            who = client.rpartition("/")[0] or client
            found.append({"came_back": moment(came_back), "cause": cause, "subscription": subscription, "client": who})
    return found
