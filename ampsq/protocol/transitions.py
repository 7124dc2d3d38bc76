"""The state machine: a message of one queue is always in exactly one of the states below.

The rows of `TRANSITIONS` are all the ways between them. This module imports nothing of ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

__all__ = ["TRANSITIONS", "MessageEvent", "MessageState", "Transition"]


class MessageState(StrEnum):
    """The state of a message in one queue. Waiting messages cost no key of their own: the cursor covers them."""

    WAITING = "waiting"  # beyond the cursor of its topic, not in `ahead`
    READY = "ready"  # read and waiting: it came back, its time has come, or it has its place by priority and filters
    HELD = "held"  # a barrier that waits for all before it, or read behind one
    DELAYED = "delayed"  # came back and is due later: an entry of `due`
    SCHEDULED = "scheduled"  # published for later: an entry of `due`, and of `ahead` until the queue has read it
    LEASED = "leased"  # delivered and unacknowledged: an entry of `leases`
    REMOTE = "remote"  # read, and owned by another instance: an entry of `remote`
    SETTLED = "settled"  # for ever: an entry of the journal, and of nothing else


class MessageEvent(StrEnum):
    """An event that moves a message, named as in the journal and in `TRANSITIONS`."""

    DELIVERED = "delivered"
    ACKNOWLEDGED = "acknowledged"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    EVICTED = "evicted"
    EXTENDED = "extended"
    LAPSED = "lapsed"
    DISCONNECTED = "disconnected"
    GIVEN_BACK = "given_back"
    SCHEDULED = "scheduled"
    DUE = "due"
    SORTED = "sorted"
    HELD = "held"
    RELEASED = "released"
    BARRIER = "barrier"
    MISSING = "missing"
    REMOTE = "remote"
    TRANSFERRED = "transferred"


@dataclass(frozen=True, slots=True)
class Transition:
    """One row: in these states, this event leads to that state."""

    event: MessageEvent
    before: tuple[MessageState, ...]
    after: tuple[MessageState, ...]
    meaning: str


_UNLEASED = (MessageState.WAITING, MessageState.READY, MessageState.DELAYED, MessageState.SCHEDULED, MessageState.HELD)
#: What its owner settles is settled wherever it is.
_ANYWHERE = (MessageState.LEASED, *_UNLEASED, MessageState.REMOTE)
TRANSITIONS: Final = (
    Transition(
        MessageEvent.DELIVERED,
        (MessageState.WAITING, MessageState.READY),
        (MessageState.LEASED,),
        "given to the best free subscription under a new token; at-most-once: journaled in the same step",
    ),
    Transition(
        MessageEvent.ACKNOWLEDGED,
        _ANYWHERE,
        (MessageState.SETTLED,),
        "processed; by token, or by bookmark as `leasing` allows",
    ),
    Transition(
        MessageEvent.CANCELLED,
        (MessageState.LEASED,),
        (MessageState.READY, MessageState.DELAYED, MessageState.SETTLED),
        "handed back by its holder; settled when a limit is reached",
    ),
    Transition(
        MessageEvent.EXPIRED,
        _ANYWHERE,
        (MessageState.SETTLED,),
        "removed unprocessed, with the reason; for its age only what nobody holds",
    ),
    Transition(
        MessageEvent.EVICTED,
        (MessageState.READY, MessageState.DELAYED, MessageState.SCHEDULED, MessageState.REMOTE),
        (MessageState.SETTLED,),
        "the oldest in a full ring that something entered; a scheduled one whose time comes gives way itself",
    ),
    Transition(
        MessageEvent.EXTENDED, (MessageState.LEASED,), (MessageState.LEASED,), "a later deadline for the same token"
    ),
    Transition(
        MessageEvent.LAPSED,
        (MessageState.LEASED,),
        (MessageState.READY, MessageState.DELAYED, MessageState.SETTLED),
        "the deadline passed without an acknowledgement; counts as a delivery",
    ),
    Transition(
        MessageEvent.DISCONNECTED,
        (MessageState.LEASED,),
        (MessageState.READY, MessageState.DELAYED, MessageState.SETTLED),
        "its subscription is gone; counts as a delivery if it was picked up",
    ),
    Transition(
        MessageEvent.GIVEN_BACK,
        (MessageState.LEASED,),
        (MessageState.READY, MessageState.SETTLED),
        "returned before anyone began to process it; counts for nothing; settled if its life is over",
    ),
    Transition(MessageEvent.SCHEDULED, (MessageState.WAITING,), (MessageState.SCHEDULED,), "published for later"),
    Transition(
        MessageEvent.DUE,
        (MessageState.DELAYED, MessageState.SCHEDULED),
        (MessageState.READY,),
        "its time has come; has the place of its arrival",
    ),
    Transition(
        MessageEvent.SORTED,
        (MessageState.WAITING, MessageState.READY),
        (MessageState.READY,),
        "judged by priority and filters and put in its place; what the queue's filter refuses never was in the queue",
    ),
    Transition(
        MessageEvent.HELD,
        (MessageState.WAITING, MessageState.READY),
        (MessageState.HELD,),
        "read, and a barrier or behind one",
    ),
    Transition(
        MessageEvent.RELEASED, (MessageState.HELD,), (MessageState.READY,), "the barrier before it was sent or settled"
    ),
    Transition(
        MessageEvent.BARRIER,
        (MessageState.HELD,),
        (MessageState.SETTLED,),
        "all before it is settled: sent to every subscription whose filter it matches, without a lease",
    ),
    Transition(
        MessageEvent.MISSING,
        _ANYWHERE,
        (MessageState.SETTLED,),
        "beyond its topic's retention, or removed from its log by somebody else; journaled so that counts stay true",
    ),
    Transition(
        MessageEvent.REMOTE, (MessageState.WAITING,), (MessageState.REMOTE,), "read, and another instance owns it"
    ),
    Transition(
        MessageEvent.TRANSFERRED,
        (MessageState.READY, MessageState.REMOTE),
        (MessageState.REMOTE, MessageState.READY),
        "its owner made another instance its owner: it is remote there, and ready here, or the other way round",
    ),
)
