"""The calls that begin, change and end subscriptions to queues, and show that they live."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Self, cast

from ampsq.protocol import schema
from ampsq.protocol.keepalive import OVERDUE
from ampsq.protocol.replies import names
from ampsq.protocol.request import Call, script_call
from ampsq.protocol.schema import slot_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redis.typing import EncodableT

    from ampsq.protocol.calls.queues import MessagesByQueue

__all__ = [
    "ClientHeartbeat",
    "HeartbeatReply",
    "ReplaceReply",
    "SubscribeReply",
    "SubscribeRequest",
    "end_wait",
    "heartbeat",
    "heartbeat_all",
    "replace",
    "resize",
    "subscribe",
    "unsubscribe",
]


class SubscribeReply(NamedTuple):
    """A subscription that was registered.

    Attributes:
        name: its name.
        max_backlog: the effective one.
        now: ms of the server's clock, when it answered.
    """

    name: str
    max_backlog: int
    now: int


class HeartbeatReply(NamedTuple):
    """The answer to a sign of life.

    Attributes:
        now: ms of the server's clock, when it answered.
        due: ms at which the first entry of the instance's timetable is due; None: there is none.
        leased: how many messages each subscription is leased; None: it does not exist any more.
        backlogs: the effective `max_backlog` of each that exists.
    """

    now: int
    due: int | None
    leased: dict[str, int | None]
    backlogs: dict[str, int]

    @classmethod
    def read(cls, reply: Sequence[bytes], subscriptions: Sequence[str]) -> Self:
        """Read it as the script gives it."""
        now, due, *numbers = names(reply)
        leased: dict[str, int | None] = {}
        backlogs: dict[str, int] = {}
        for name, text in zip(subscriptions, numbers, strict=True):
            number, _, backlog = text.partition(" ")
            leased[name] = int(number) if number else None
            if backlog:
                backlogs[name] = int(backlog)
        return cls(int(now), int(float(due)) if due else None, leased, backlogs)

    @property
    def gone(self) -> list[str]:
        """The subscriptions that do not exist any more."""
        return [name for name, number in self.leased.items() if number is None]

    @property
    def is_late(self) -> bool:
        """Return whether something was due that long ago that a coordinator at work would have done it."""
        return self.due is not None and self.now - self.due > OVERDUE


class ClientHeartbeat(NamedTuple):
    """A client's sign of life.

    Attributes:
        instance: its instance.
        subscriptions: their names.
        latencies: what it measured since the last one, as `latency_lines` writes it.
    """

    instance: str
    subscriptions: Sequence[str]
    latencies: str = ""


@dataclass(frozen=True, slots=True)
class SubscribeRequest:
    """The request of a subscription.

    Attributes:
        asked: unacknowledged messages at most.
        filter: the name of a filter and its tree; None: everything.
        pattern: of queues, "" for one literal queue.
        queues: those that it has now.
        version: of the catalog that the pattern was matched against; None without a pattern.
    """

    asked: int
    filter: tuple[str, str] | None
    pattern: str
    queues: Sequence[str]
    version: int | None

    @property
    def arguments(self) -> list[EncodableT]:
        """`asked`, `filter`, `tree`, `pattern` of the scripts' heads."""
        return [self.asked, *(self.filter or (schema.VALUES["none"], "")), self.pattern]


@dataclass(frozen=True, slots=True)
class ReplaceReply:
    """The result of replacing a subscription.

    Attributes:
        max_backlog: the effective one.
        unfinished: part of its inbox is left, so that the call must be made again.
        tokens: queue -> the last token that was delivered under a former wish.
    """

    max_backlog: int
    unfinished: bool
    tokens: dict[bytes, int]


def subscribe(
    client: str, request: SubscribeRequest, session_timeout: int, *, has_bell: bool = False
) -> Call[SubscribeReply]:
    """Register a subscription. `client` is unlike in every other request.

    `has_bell`: it has no room but what visits lend it, and its bell rings once when messages wait for it.
    """
    version = "" if request.version is None else request.version
    asked = f"{request.asked} bell" if has_bell else request.asked
    arguments = ["", version, client, asked, *request.arguments[1:], session_timeout, *request.queues]
    return script_call(
        "subscribe", arguments, lambda reply: SubscribeReply(reply[0].decode(), int(reply[1]), int(reply[2])),
        repeatable=True,
    )  # fmt: skip


def replace(subscription: str, number: int, request: SubscribeRequest) -> Call[ReplaceReply]:
    """Change what a subscription asks for; `number` rises with each wish, so that a late call changes nothing."""
    version = "" if request.version is None else request.version
    arguments = ["", version, subscription, number, *request.arguments, *request.queues]

    def read(reply: tuple[int, int, *tuple[bytes, ...]]) -> ReplaceReply:
        backlog, left, *flat = reply
        tokens = {flat[i]: int(flat[i + 1]) for i in range(0, len(flat), 2)}
        return ReplaceReply(int(backlog), bool(left), tokens)

    return script_call("replace_subscription", arguments, read, repeatable=True)


def unsubscribe(subscription: str, held: MessagesByQueue) -> Call[bool]:
    """End a subscription; True while part of its inbox is left and the call must be made again."""
    arguments: list[EncodableT] = ["", subscription]
    for queue, some in held.items():
        arguments += [queue, len(some), *[parts[5] for parts in some], *[parts[1] for parts in some]]
    return script_call("unsubscribe", arguments, bool, repeatable=True)


def resize(subscription: str, asked: int) -> Call[int]:
    """Change the backlog that a subscription asks for; gives the effective one."""
    return script_call("resize_backlog", ["", subscription, asked], int, repeatable=True)


def end_wait(subscription: str) -> Call[bool]:
    """Let a subscription's blocked read return at once, or the next one; False where the subscription is gone."""
    return script_call("end_wait", [subscription], bool, repeatable=True)


def heartbeat(session_timeout: int, subscriptions: Sequence[str], latencies: str = "") -> Call[HeartbeatReply]:
    """Show that subscriptions live, and tell how long some of their messages took.

    Args:
        session_timeout: ms until they are gone without another sign of life.
        subscriptions: their names.
        latencies: what was measured since the last one, as `latency_lines` writes it. It is counted as often as it is
            sent, so such a call is not repeated.
    """
    arguments: list[EncodableT] = ["", session_timeout, latencies, *subscriptions]
    return script_call(
        "heartbeat", arguments, lambda reply: HeartbeatReply.read(reply, subscriptions), repeatable=not latencies
    )


def heartbeat_all(session_timeout: int, clients: Sequence[ClientHeartbeat]) -> Call[list[HeartbeatReply]]:
    """Show that subscriptions of several clients live, in one call to their server; gives the answer to each client.

    Args:
        session_timeout: ms until subscriptions are gone without another sign of life.
        clients: at least one. What they measured is counted as often as it is sent, so a call with that is not
            repeated.
    """
    first, *others = clients
    arguments: list[EncodableT] = ["", session_timeout, first.latencies, *first.subscriptions]
    for each in others:
        arguments += ["", each.instance, each.latencies, *each.subscriptions]

    def read(reply: Sequence[bytes | Sequence[bytes]]) -> list[HeartbeatReply]:
        own = 2 + len(first.subscriptions)
        now, *head = cast("Sequence[bytes]", reply[:own])
        parts = [head, *cast("Sequence[Sequence[bytes]]", reply[own:])]
        return [
            HeartbeatReply.read([now, *part], each.subscriptions) for each, part in zip(clients, parts, strict=True)
        ]

    call = script_call("heartbeat", arguments, read, repeatable=not any(each.latencies for each in clients))
    call.key = slot_key(first.instance)
    return call
