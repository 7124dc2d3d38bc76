"""Expired messages of a journal, and the times when more are due."""

from __future__ import annotations

from world import ref

FIRST, SECOND, THIRD = ref("1000-0"), ref("1000-1"), ref("1000-2")
MODELS = {"default": 0, "queue": 1, "latest": 2, "earliest": 3}


def expired(*refs, reason="time_limit", attempts=None, **more):
    return {
        "how": "expired",
        "reason": reason,
        "refs": " ".join(refs),
        "attempts": " ".join(attempts or ["0:0"] * len(refs)),
        **more,
    }


def due(world):
    return world.state().get(":due", {})
