"""The calls by which instances that share a queue ask for its messages, offer, claim, transfer and assume them.

See `ampsq.protocol.calls.queues`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ampsq.base.bookmarks import parse_ref
from ampsq.base.log_positions import parse_id
from ampsq.protocol.request import Call, command, script_call
from ampsq.protocol.schema import FIELDS, key

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from redis.typing import EncodableT

    from ampsq.protocol.calls.replication import Now

__all__ = [
    "AssumedMessages",
    "Offer",
    "OwnerCounts",
    "PassedOn",
    "RoomRequest",
    "assume_ownership",
    "claim_messages",
    "count_owners",
    "grant_ownership",
    "has_proxied_transfer",
    "offer_messages",
    "request_ownership",
    "set_proxied_transfer",
]


class RoomRequest(NamedTuple):
    """The messages that an instance has room for, by its own request.

    Attributes:
        shares: owners, and for how many messages of each.
        followed: up to where it had the journals of others then.
        place: where an earlier offer ended; empty for none.
        wishes: filters, each with its room and tree.
    """

    shares: EncodableT
    followed: EncodableT
    place: EncodableT
    wishes: EncodableT


class Offer(NamedTuple):
    """Messages that nobody at their owner can take.

    Attributes:
        to: the origin that they are offered to: nothing happens at another one.
        owner: the origin that offers.
        offered: for how many messages it was asked.
        place: where the offer ended.
        bookmarks: of the messages.
    """

    to: EncodableT
    owner: EncodableT
    offered: EncodableT
    place: EncodableT
    bookmarks: Sequence[bytes]


class PassedOn(NamedTuple):
    """The outcome of a request for messages.

    Attributes:
        number: how many are owned by, or offered to, the origin that asked.
        asks_again: whether it is to be asked again, since the queue is to be dispatched, read on or sorted first.
    """

    number: int
    asks_again: bool


class AssumedMessages(NamedTuple):
    """The outcome of `assume_ownership`: how many messages this instance owns now, and how many others own still."""

    number: int
    left: int


class OwnerCounts(NamedTuple):
    """Counts of a queue's messages by their owners.

    Attributes:
        elsewhere: those that were read and that another instance owns.
        owned: those that are ready here.
        usual: ms from a message's arrival to its settlement by its owner, on average.
        transferred_in: messages that became this instance's.
        transferred_out: messages that were given to others.
        proxied: whether this instance may act for owners out of reach.
        deferred: reports on messages of its topics that have not arrived yet.
        oldest: ms when the oldest of those that another instance owns came; None where there is none.
        owners: of the oldest of these, who owns how many.
    """

    elsewhere: int
    owned: int
    usual: int
    transferred_in: int
    transferred_out: int
    proxied: bool
    deferred: int
    oldest: int | None
    owners: dict[str, int]


def request_ownership(queue: str) -> Call[int]:
    """Ask other instances for what somebody here is free for; gives for how many messages."""
    return script_call("request_messages", ["", queue], int, repeatable=True)


def grant_ownership(
    queue: str, by: str, bookmarks: Sequence[bytes], *, rooms: EncodableT, followed: EncodableT = "", now: Now = ""
) -> Call[PassedOn]:
    """Make an origin that asked the owner of messages.

    Args:
        queue: the queue.
        by: the origin that asked.
        bookmarks: of the messages that it asked for.
        rooms: owners, and for how many messages of each it had room, as the request has them.
        followed: up to where it had the journals of others then, likewise.
        now: ms; default: the server's.
    """
    arguments: list[EncodableT] = [now, queue, by, rooms, followed, *bookmarks]
    return script_call("grant_messages", arguments, _offered, repeatable=True)


def _offered(reply: list[int]) -> PassedOn:
    return PassedOn(int(reply[0]), bool(reply[1]))


def offer_messages(queue: str, by: str, wish: RoomRequest, *, now: Now = "") -> Call[PassedOn]:
    """Let an owner offer what nobody there can take to an origin that has room.

    Args:
        queue: the queue.
        by: the origin that asks.
        wish: for what.
        now: ms; default: the server's.
    """
    return script_call("offer_messages", [now, queue, by, *wish], _offered, repeatable=True)


def claim_messages(queue: str, offer: Offer, *, now: Now = "") -> Call[int]:
    """Name to their owner those of the messages it offers that somebody here is free for; gives how many."""
    arguments: list[EncodableT] = [now, queue, *offer[:-1], *offer.bookmarks]
    return script_call("claim_messages", arguments, int, repeatable=True)


def count_owners(queue: str, limit: int) -> Call[OwnerCounts]:
    """Count who owns the messages of a queue; the owners of at most `limit` that others own."""
    return script_call("count_owners", [queue, limit], _counts, repeatable=True)


def _counts(reply: list[bytes]) -> OwnerCounts:
    oldest = parse_id(parse_ref(reply[7].decode())[1])[0] if reply[7] else None
    owners = {name.decode(): int(number) for name, number in zip(reply[8::2], reply[9::2], strict=True)}
    elsewhere, owned, usual, came, went, proxied, deferred = (int(each) for each in reply[:7])
    return OwnerCounts(elsewhere, owned, usual, came, went, bool(proxied), deferred, oldest, owners)


def assume_ownership(queue: str, limit: int, owners: Iterable[str]) -> Call[AssumedMessages]:
    """Own what somebody is free for in the place of owners out of reach.

    Args:
        queue: the queue; proxied transfer is enabled.
        limit: of so many the owners are looked at.
        owners: names of instances, or origins.
    """
    return script_call(
        "assume_ownership",
        ["", queue, limit, *owners],
        lambda reply: AssumedMessages(int(reply[0]), int(reply[1])),
        repeatable=True,
    )


def set_proxied_transfer(queue: str, *, enabled: bool) -> Call[None]:
    """Enable or disable proxied transfer of a queue."""
    return script_call("set_proxied_transfer", [queue, int(enabled)], lambda _: None, repeatable=True)


def has_proxied_transfer(instance: str, queue: str) -> Call[bool]:
    """Ask whether proxied transfer of a queue is enabled."""
    return command(["HEXISTS", key(instance, "queue", queue), FIELDS["proxied"]], bool)
