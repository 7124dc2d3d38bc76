"""The topic subscriptions that limits of slow clients are kept for, as they reported last."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from ampsq.protocol.request import command
from ampsq.protocol.schema import key

__all__ = ["ReaderState", "read_readers"]

_REASON = 6


@dataclass(frozen=True, slots=True)
class ReaderState:
    """One topic subscription, as it reported last, about a second ago.

    Attributes:
        client: of which client.
        transport: whose limits count for it.
        subscription: what it subscribed to.
        topics: those, 20 at most.
        state: ``online``, ``durable`` (the same, and it cannot be offlined), ``replaying`` (it counts for nothing yet),
            ``offline`` (its messages go to disk), or ``disconnected`` (for a quarter of a minute).
        behind: bytes that it has not read, or not handed out, about.
        spooled: bytes on disk.
        oldest: seconds for which its oldest message has waited; None: none waits.
        reason: of one that is disconnected: the limit that it was beyond.
    """

    client: str
    transport: str
    subscription: str
    topics: tuple[str, ...]
    state: str
    behind: int
    spooled: int
    oldest: float | None
    reason: str | None

    def as_dict(self) -> dict[str, object]:
        """The same as plain values, for JSON."""
        return asdict(self)


def _state(text: str, now: int) -> ReaderState:
    head, _, facts = text.partition("\n")
    words, known = head.split(" "), json.loads(facts)
    _, _, state, behind, spooled, oldest = words[:_REASON]
    return ReaderState(
        client=known["client"],
        transport=known["transport"],
        subscription=known["subscription"],
        topics=tuple(known["topics"]),
        state=state,
        behind=int(behind),
        spooled=int(spooled),
        oldest=max(now - int(oldest), 0) / 1000 if int(oldest) else None,
        reason=words[_REASON] if len(words) > _REASON and state == "disconnected" else None,
    )


async def read_readers(instance: str) -> list[ReaderState]:
    """All that reported lately, by client and subscription."""
    now = await command(["TIME"], lambda reply: int(reply[0]) * 1000 + int(reply[1]) // 1000)
    alive = await command(["ZRANGEBYSCORE", key(instance, "reporting"), now, "+inf"], list[bytes])
    if not alive:
        return []
    found = await command(["HMGET", key(instance, "readers"), *alive], list[bytes | None])
    states = [_state(text.decode(), now) for text in found if text is not None]
    return sorted(states, key=lambda each: (each.client, each.subscription))
