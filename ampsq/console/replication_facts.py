"""The facts of links and of who owns what, as the JSON of their page has them."""

from __future__ import annotations

from ampsq.console.facts import Facts, Text

__all__ = [
    "LinkStatusFacts",
    "OwnershipFacts",
    "RecoveryFacts",
    "ReplicationFacts",
]


class LinkStatusFacts(Facts):
    """One direction of a link.

    Attributes:
        destination: the destination that makes it.
        direction: `out` or `in`.
        instance: the instance at the other end; null while none is known.
        group: its group; null where that is not known.
        address: where it is; null where that is not known.
        state: `connected`, `waiting`, `refused` or `silent`.
        acknowledgement: `sync`, `async` or `downgraded`.
        pass_through: groups whose messages go on over it.
        connected_for: seconds; null where it is not connected.
        behind: messages and journal entries that it lacks, at most; null of an incoming link.
        seconds_behind: age of the oldest of them; null of an incoming link.
        messages: copies since it was connected.
        bytes: bytes sent since then.
        messages_per_second: copies over the last second.
        bytes_per_second: bytes sent over the last second.
        disconnects: how often the connection was lost.
        disconnected_ago: seconds since it was lost last; null where it never was.
        reason: why it is not connected; null where it is.
    """

    destination: Text
    direction: Text
    instance: Text | None
    group: Text | None
    address: Text | None
    state: Text
    acknowledgement: Text
    pass_through: list[Text]
    connected_for: float | None
    behind: int | None
    seconds_behind: float | None
    messages: int
    bytes: int
    messages_per_second: int
    bytes_per_second: int
    disconnects: int
    disconnected_ago: float | None
    reason: Text | None


class OwnershipFacts(Facts):
    """A queue that several instances have.

    Attributes:
        queue: its name.
        initial_owner: `origin` of a distributed queue, an instance's name of a group local one.
        owned: messages that were read, and wait to be delivered here.
        elsewhere: messages that were read, and that another instance owns.
        owners: of the oldest 500 of these who owns how many.
        oldest: seconds for which the oldest of these has been here; null where there is none.
        usual: seconds from a message's arrival until its owner has settled it, on average.
        transferred_in: how often a message became this instance's.
        transferred_out: how often one was given to another.
        deferred: reports on messages that have not arrived yet.
        proxied: whether this instance may act for owners out of reach.
        carried_to: destinations that are sent what is settled and transferred of it.
    """

    queue: Text
    initial_owner: Text
    owned: int
    elsewhere: int
    owners: dict[Text, int]
    oldest: float | None
    usual: float
    transferred_in: int
    transferred_out: int
    deferred: int
    proxied: bool
    carried_to: list[Text]


class RecoveryFacts(Facts):
    """A recovery of an instance whose last incarnation is not known yet.

    Attributes:
        since: ms of the server when it began.
        queues: queues that are held.
        waits_for: destinations that were not read to the end yet.
        left_out: destinations that it does not wait for, by the operator's word.
    """

    since: int
    queues: list[Text]
    waits_for: list[Text]
    left_out: list[Text]


class ReplicationFacts(Facts):
    """Links of an instance, and who owns messages of shared queues.

    Attributes:
        instance: its name.
        group: its group.
        links: those to its destinations, then those that come in.
        queues: queues that are not this instance's alone.
        recovery: what a new incarnation waits for; null where it waits for nothing.
    """

    instance: Text
    group: Text
    links: list[LinkStatusFacts]
    queues: list[OwnershipFacts]
    recovery: RecoveryFacts | None
