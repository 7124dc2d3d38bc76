"""The calls that take and settle messages of queues.

Every module here has such typed calls, one a script: arguments in, a `Call` out whose reply is read into plain values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from ampsq.protocol import schema
from ampsq.protocol.request import Call, command, script_call
from ampsq.protocol.scripts import script

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from redis.typing import EncodableT

__all__ = [
    "RUN_OVER",
    "LeaseRun",
    "MessagesByQueue",
    "Parts",
    "RedriveReply",
    "TakeReply",
    "Verb",
    "VisitReply",
    "acknowledge_group",
    "acknowledgement_groups",
    "bell_channel",
    "redrive",
    "resume",
    "settle",
    "take",
    "visit",
    "wait_for_bell",
    "wait_for_push",
]

_END_OF_WAIT: Final = schema.END_OF_WAIT.encode()
#: Marks of a bell that are read at once; more than one is rare.
_MARKS: Final = 100
#: The code of a refusal that says that nothing of a run is leased in it any more.
RUN_OVER: Final = str(schema.VALUES["run_over"])
Verb = Literal["acknowledged", "cancelled", "expired", "extended", "given_back"]
#: The parts of a delivered message's head: queue, token, delivery, deadline, kind, ref, other fields if any.
Parts: TypeAlias = list[bytes]
#: Delivered messages by queue.
MessagesByQueue: TypeAlias = dict[bytes, list[Parts]]


class LeaseRun:
    """Messages of one queue that were leased in one record: neighbours in a log, delivered for the first time.

    Args:
        queue: theirs.
        token: of the first one; each has the one behind that of the one before.
        ref: of the first one.
        count: how many they were.
    """

    __slots__ = ("count", "first", "name", "queue")

    def __init__(self, queue: bytes, token: int, ref: bytes, count: int) -> None:
        self.queue, self.first, self.count = queue, token, count
        self.name = b"%b %d" % (ref, token)

    def part_of(self, messages: Sequence[Parts]) -> bytes:
        """Name some of them, as the scripts take them to be acknowledged; those that follow each other in one go."""
        if len(messages) == self.count:
            return self.name
        tokens = sorted([int(parts[1]) for parts in messages])
        texts, first, last, before = [self.name], tokens[0], tokens[0], self.first - 1
        for token in tokens:
            if token > last + 1:
                texts.append(b"%d %d" % (first - before, last - before))
                first = token
            last = token
        texts.append(b"%d %d" % (first - before, last - before))
        return b" ".join(texts)


@dataclass(frozen=True, slots=True)
class TakeReply:
    """The elements picked up, and the acknowledgements refused: ref, code.

    `elements`: heads and bodies in turn; a head with several refs, a space between them, is that of a run: their tokens
    follow each other from the head's on, and as many bodies follow. A refusal `RUN_OVER` has the token of a run instead
    of a ref: what was acknowledged of it is to be acknowledged one by one.
    `unfinished`: nothing yet, but messages are still being judged by filters or priorities; ask again at once.
    """

    elements: list[bytes]
    refused: list[tuple[bytes, str]]
    unfinished: bool


class VisitReply(NamedTuple):
    """The answer to a visit.

    Attributes:
        taken: the messages.
        leased: how many messages the subscription has leased there now.
        is_done: all that was there was found; the bell rings when more comes. Else whoever visited is to come again.
    """

    taken: TakeReply
    leased: int
    is_done: bool


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
    queue: str, topic: str, target: str, by: str, letters: Iterable[tuple[bytes, bytes, bytes, bytes]]
) -> Call[RedriveReply]:
    """Put letters of a queue back: ref of the letter, body, headers and group of the message, each; at most 500.

    Gives how many were, and ref and code of those that were not. `topic` gets the messages, for `target` alone. A
    second run puts nothing back again: what the first one did is refused then.
    """
    arguments: list[EncodableT] = ["", queue, topic, target, by, *(text for letter in letters for text in letter)]
    return script_call(
        "redrive", arguments, lambda reply: RedriveReply(int(reply[0]), _refusals(reply[1:])), repeatable=True
    )


def take(
    subscription: str, wanted: int, acks: MessagesByQueue, in_runs: Mapping[bytes, LeaseRun] | None = None
) -> Call[TakeReply]:
    """Pick up messages, carrying acknowledgements. A lost reply's messages come again by `push_again`.

    `in_runs`: token -> the run in which a message was delivered; None: runs are not understood.
    """
    arguments: list[EncodableT] = [
        "",
        subscription,
        f"{wanted} run" if in_runs is not None else wanted,
    ]
    if in_runs:
        for group in acknowledgement_groups(acks, in_runs):
            arguments += group
    else:
        for queue, some in acks.items():
            arguments += [queue, len(some), *[parts[5] for parts in some], *[parts[1] for parts in some]]
    return Call(
        script("take"),
        arguments,
        lambda reply: TakeReply(reply[0], _refusals(reply[1]), bool(reply[2])),
        repeatable=True,
    )


def visit(
    subscription: str,
    wanted: int,
    acks: MessagesByQueue,
    in_runs: Mapping[bytes, LeaseRun],
    *,
    credits: int,  # noqa: A002  (the word of the design)
    number: int,
) -> Call[VisitReply]:
    """Take messages for a subscription with a bell, as `take` does, with room that is lent for this call alone.

    Args:
        subscription: its name.
        wanted: messages at most.
        acks: what is acknowledged, before anything is taken.
        in_runs: token -> the run in which a message was delivered.
        credits: how many messages it may have leased there afterwards, all together.
        number: rises with each visit; one that comes late, after a later one, acknowledges and takes nothing. So the
            next visit is made under another number, also after one that was not answered.
    """
    now, name, _, *acknowledged = take(subscription, wanted, acks, in_runs).arguments
    form = f"{wanted} run {credits} {number}"

    def read(reply: tuple[list[bytes], list[bytes], int, int, int]) -> VisitReply:
        elements, refused, unfinished, leased, is_done = reply
        return VisitReply(TakeReply(elements, _refusals(refused), bool(unfinished)), leased, bool(is_done))

    # Not repeatable: a copy that came late, under the same number, would take messages while its credits are elsewhere.
    return Call(script("take"), [now, name, form, *acknowledged], read)


def acknowledgement_groups(acks: MessagesByQueue, in_runs: Mapping[bytes, LeaseRun]) -> list[list[EncodableT]]:
    """Spell acknowledgements as the scripts take them: one group a run, and one a queue of all others.

    `in_runs`: token -> the run in which a message was delivered.
    """
    groups: list[list[EncodableT]] = []
    for queue, some in acks.items():
        of_runs: dict[LeaseRun, list[Parts]] = {}
        others: list[Parts] = []
        last, group = None, others
        for parts in some:
            run = in_runs.get(parts[1])
            # Mostly the same as of the message before.
            if run is not last:
                last, group = run, others if run is None or run.queue != queue else of_runs.setdefault(run, [])
            group.append(parts)
        groups += [[queue, "run", run.part_of(messages)] for run, messages in of_runs.items()]
        if others:
            groups.append([queue, len(others), *[parts[5] for parts in others], *[parts[1] for parts in others]])
    return groups


def acknowledge_group(group: Sequence[EncodableT], by: str) -> Call[list[tuple[bytes, str]]]:
    """Acknowledge one of `acknowledgement_groups`; gives ref and code of those refused, as `TakeReply` has them."""
    return Call(script("settle"), ["", "acknowledged", 0, by, *group], _refusals, repeatable=True)


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


def bell_channel(instance: str, subscription: str) -> str:
    """Return the sharded channel by which the bell of a subscription rings where its client listens to that.

    What comes is when it rang, ms.
    """
    return schema.key(instance, "bell", subscription)


def wait_for_bell(instance: str, subscription: str, seconds: float) -> Call[int]:
    """Wait until the bell of a subscription rings; gives when that was, ms, or 0 when the time is over."""
    bell = schema.key(instance, "bell", subscription)
    return command(
        ["BLMPOP", f"{seconds:.3f}", 1, bell, "LEFT", "COUNT", _MARKS],
        lambda reply: int(reply[1][0]) if reply else 0,
        blocks=seconds,
    )


def wait_for_push(instance: str, subscription: str, messages: int, seconds: float) -> Call[list[bytes]]:
    """Wait for what is pushed to a subscription; heads and bodies in turn, empty when the time or the wait is over.

    Not repeated when the connection is lost: the server may go on with the first one, and give it what is pushed.
    """
    inbox = schema.key(instance, "inbox", subscription)
    return command(
        ["BLMPOP", f"{seconds:.3f}", 1, inbox, "LEFT", "COUNT", 2 * messages],
        lambda reply: _messages(reply[1]) if reply else [],
        blocks=seconds,
        patience=0.0,
    )


def _messages(elements: list[bytes]) -> list[bytes]:
    """Heads and bodies without what only ended the wait."""
    if _END_OF_WAIT not in elements:
        return elements
    heads = [i for i in range(0, len(elements), 2) if elements[i] != _END_OF_WAIT]
    return [text for i in heads for text in elements[i : i + 2]]
