"""The state machine: a message of one queue is always in exactly one of the states below.

The rows of `TRANSITIONS` are all the ways between them. This module imports nothing of ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

__all__ = ["TRANSITIONS", "Event", "State", "Transition"]


class State(StrEnum):
    """Where a message of one queue is. Waiting messages cost no key of their own: the cursor says it."""

    WAITING = "waiting"  # beyond the cursor of its topic, not in `ahead`
    READY = "ready"  # read and waiting: it came back, its time has come, or it has its place by priority and filters
    HELD = "held"  # a barrier that waits for all before it, or read behind one
    DELAYED = "delayed"  # came back and is due later: an entry of `due`
    SCHEDULED = "scheduled"  # published for later: an entry of `due`, and of `ahead` until the queue has read it
    LEASED = "leased"  # delivered and unacknowledged: an entry of `leases`
    REMOTE = "remote"  # read, and owned by another instance: an entry of `remote`
    SETTLED = "settled"  # for ever: an entry of the journal, and of nothing else


class Event(StrEnum):
    """What moves a message, named as in the journal and in `TRANSITIONS`."""

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

    event: Event
    before: tuple[State, ...]
    after: tuple[State, ...]
    meaning: str


_UNLEASED = (State.WAITING, State.READY, State.DELAYED, State.SCHEDULED, State.HELD)
#: What its owner settles is settled wherever it is.
_ANYWHERE = (State.LEASED, *_UNLEASED, State.REMOTE)
TRANSITIONS: Final = (
    Transition(
        Event.DELIVERED,
        (State.WAITING, State.READY),
        (State.LEASED,),
        "given to the best free subscription under a new token; at-most-once: journaled in the same step",
    ),
    Transition(
        Event.ACKNOWLEDGED,
        _ANYWHERE,
        (State.SETTLED,),
        "processed; by token, or by bookmark as `leasing` allows",
    ),
    Transition(
        Event.CANCELLED,
        (State.LEASED,),
        (State.READY, State.DELAYED, State.SETTLED),
        "handed back by its holder; settled when a limit is reached",
    ),
    Transition(
        Event.EXPIRED,
        _ANYWHERE,
        (State.SETTLED,),
        "removed unprocessed, with the reason; for its age only what nobody holds",
    ),
    Transition(
        Event.EVICTED,
        (State.READY, State.DELAYED, State.SCHEDULED, State.REMOTE),
        (State.SETTLED,),
        "the oldest in a full ring that something entered; a scheduled one whose time comes gives way itself",
    ),
    Transition(Event.EXTENDED, (State.LEASED,), (State.LEASED,), "a later deadline for the same token"),
    Transition(
        Event.LAPSED,
        (State.LEASED,),
        (State.READY, State.DELAYED, State.SETTLED),
        "the deadline passed without an acknowledgement; counts as a delivery",
    ),
    Transition(
        Event.DISCONNECTED,
        (State.LEASED,),
        (State.READY, State.DELAYED, State.SETTLED),
        "its subscription is gone; counts as a delivery if it was picked up",
    ),
    Transition(
        Event.GIVEN_BACK,
        (State.LEASED,),
        (State.READY, State.SETTLED),
        "returned before anyone began to process it; counts for nothing; settled if its life is over",
    ),
    Transition(Event.SCHEDULED, (State.WAITING,), (State.SCHEDULED,), "published for later"),
    Transition(
        Event.DUE, (State.DELAYED, State.SCHEDULED), (State.READY,), "its time has come; has the place of its arrival"
    ),
    Transition(
        Event.SORTED,
        (State.WAITING, State.READY),
        (State.READY,),
        "judged by priority and filters and put in its place; what the queue's filter refuses never was in the queue",
    ),
    Transition(Event.HELD, (State.WAITING, State.READY), (State.HELD,), "read, and a barrier or behind one"),
    Transition(Event.RELEASED, (State.HELD,), (State.READY,), "the barrier before it was sent or settled"),
    Transition(
        Event.BARRIER,
        (State.HELD,),
        (State.SETTLED,),
        "all before it is settled: sent to every subscription whose filter it matches, without a lease",
    ),
    Transition(
        Event.MISSING,
        _ANYWHERE,
        (State.SETTLED,),
        "beyond its topic's retention, or removed from its log by somebody else; journaled so that counts stay true",
    ),
    Transition(Event.REMOTE, (State.WAITING,), (State.REMOTE,), "read, and another instance owns it"),
    Transition(
        Event.TRANSFERRED,
        (State.READY, State.REMOTE),
        (State.REMOTE, State.READY),
        "its owner made another instance its owner: it is remote there, and ready here, or the other way round",
    ),
)
