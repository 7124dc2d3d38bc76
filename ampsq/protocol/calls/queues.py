"""The calls that take and settle messages of queues.

Every module here has such typed calls, one a script: arguments in, a `Call` out whose reply is read into plain values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from ampsq.protocol import schema
from ampsq.protocol.request import Call, command, script_call
from ampsq.protocol.scripts import script

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from redis.typing import EncodableT

__all__ = [
    "MessagesByQueue",
    "Parts",
    "RedriveReply",
    "TakeReply",
    "Verb",
    "redrive",
    "resume",
    "settle",
    "take",
    "wait_for_push",
]

Verb = Literal["acknowledged", "cancelled", "expired", "extended", "given_back"]
#: The parts of a delivered message's head: queue, token, delivery, deadline, kind, ref, other fields if any.
Parts: TypeAlias = list[bytes]
#: Delivered messages by queue.
MessagesByQueue: TypeAlias = dict[bytes, list[Parts]]


@dataclass(frozen=True, slots=True)
class TakeReply:
    """What was picked up, heads and bodies in turn, and the acknowledgements refused: ref, code.

    `unfinished`: nothing yet, but messages are still being judged by filters or priorities; ask again at once.
    """

    elements: list[bytes]
    refused: list[tuple[bytes, str]]
    unfinished: bool


class RedriveReply(NamedTuple):
    """The outcome of putting dead letters back.

    Attributes:
        number: how many were.
        refused: ref and code of those that were not.
    """

    number: int
    refused: list[tuple[bytes, str]]


def _refusals(flat: Sequence[bytes]) -> list[tuple[bytes, str]]:
    return [(flat[i], flat[i + 1].decode()) for i in range(0, len(flat), 2)]


def redrive(
    queue: str, topic: str, target: str, by: str, letters: Iterable[tuple[bytes, bytes, bytes]]
) -> Call[RedriveReply]:
    """Put letters of a queue back: ref of the letter, body and headers of the message, each; at most 500.

    Gives how many were, and ref and code of those that were not. `topic` gets the messages, for `target` alone. A
    second run puts nothing back again: what the first one did is refused then.
    """
    arguments: list[EncodableT] = ["", queue, topic, target, by, *(text for letter in letters for text in letter)]
    return script_call(
        "redrive", arguments, lambda reply: RedriveReply(int(reply[0]), _refusals(reply[1:])), repeatable=True
    )


def take(subscription: str, wanted: int, acks: MessagesByQueue) -> Call[TakeReply]:
    """Pick up messages, carrying acknowledgements. A lost reply's messages come again by `push_again`."""
    arguments: list[EncodableT] = ["", subscription, wanted]
    for queue, some in acks.items():
        arguments += [queue, len(some), *[parts[5] for parts in some], *[parts[1] for parts in some]]
    return Call(
        script("take"),
        arguments,
        lambda reply: TakeReply(reply[0], _refusals(reply[1]), bool(reply[2])),
        repeatable=True,
    )


def settle(
    verb: Verb,
    queue: bytes,
    refs: Sequence[bytes],
    tokens: Sequence[bytes],
    *,
    period: int | None = None,
    by: str = "",
    reason: str = "",
) -> Call[list[tuple[bytes, str]]]:
    """Settle messages of one queue; gives ref and code of those refused.

    `period`, ms: of a cancel the delay, None: as the queue's redelivery says; of an extension its length, None: as long
    as the lease was given for.
    `reason`: why, as `ampsq.queues.returns` checks it; of an extension what `report_text` made; "" for nothing.
    """
    default = -1 if verb in ("cancelled", "extended") else 0
    why = [reason] if reason else []
    given = default if period is None else int(period)
    return Call(
        script("settle"),
        ["", verb, given, by, queue, len(refs), *refs, *tokens, *why],
        _refusals,
        repeatable=all(tokens),
    )


def resume(subscription: str, queue: bytes, cursor: str, tokens: Sequence[bytes]) -> Call[str]:
    """Push again what is leased and not among `tokens`; gives the next cursor, "0" at the end."""
    return script_call(
        "push_again",
        ["", subscription, queue, cursor, *tokens],
        lambda reply: str(reply.decode()),
        repeatable=True,
    )


def wait_for_push(instance: str, subscription: str, messages: int, seconds: float) -> Call[list[bytes]]:
    """Wait for what is pushed to a subscription; heads and bodies in turn, empty when the time is over."""
    inbox = schema.key(instance, "inbox", subscription)
    return command(
        ["BLMPOP", f"{seconds:.3f}", 1, inbox, "LEFT", "COUNT", 2 * messages],
        lambda reply: reply[1] if reply else [],
        blocks=seconds,
    )
