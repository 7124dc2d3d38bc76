"""Faults that a queue may have: a stable word each, its meaning, and the way it is mended."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DIFFERENCES", "Kind"]


class Kind(NamedTuple):
    """One kind of difference.

    Attributes:
        meaning: what is wrong, with ``{n}`` for how many.
        mended: what `repair` does about it.
    """

    meaning: str
    mended: str


# fmt: off
DIFFERENCES: Final[Mapping[str, Kind]] = MappingProxyType({
    # of messages
    "lost": Kind(
        "{n} messages are missing from the queue, and no journal entry says that they were settled",
        "they are ready again"),
    "settled_but_live": Kind(
        "the journal says that {n} messages were settled, and they are still in the queue",
        "they were removed from the queue"),
    "settled_but_waiting": Kind(
        "the journal says that {n} messages were settled, and the queue would read and deliver them again",
        "the queue skips them when it reads that far"),
    "ahead_unsettled": Kind(
        "{n} messages are marked as settled before the queue read them, and the journal has no such entry",
        "the marks were removed; the queue reads these messages in their turn"),
    "ahead_left": Kind(
        "{n} messages are still marked as settled before the queue read them, and it has read them since",
        "the marks were removed"),
    "unread_but_live": Kind(
        "{n} messages are in the queue though it has not read that far, and it would read them again",
        "the queue skips them when it reads that far"),
    "in_two_places": Kind(
        "{n} messages are in several states at once",
        "each is in one: leased, else ready, else delayed"),
    "unrecorded": Kind(
        "{n} messages are in the queue, and the logs of their topics do not have them",
        "they were settled as missing"),
    "unjournaled": Kind(
        "{n} messages were delivered at most once, and the journal has no entry of that",
        "the journal has the entries now"),
    "own_but_remote": Kind(
        "{n} messages could be delivered here, and another instance owns them",
        "they wait for their owner"),
    "remote_but_own": Kind(
        "{n} messages wait for another instance, and this one owns them",
        "they are ready again"),
    "owner_left": Kind(
        "the owners of {n} messages are recorded, and these messages are settled or gone",
        "the records were removed"),
    "owner_missing": Kind(
        "the journal says that {n} messages were transferred, and their new owner is not recorded",
        "the owner is recorded, and they wait where it is"),
    # of what other instances published
    "copy_missing": Kind(
        "{n} messages of other instances cannot be found by their bookmark",
        "they can be found again"),
    "received_behind": Kind(
        "{n} messages of other instances are here beyond the place up to which their topic counts as received, so "
        "that links would bring them again",
        "the topic counts as received up to them, under the filter that was known"),
    "told_in_vain": Kind(
        "{n} reports of other instances wait for messages that are here already, or that will not come",
        "each report was applied, or dropped"),
    "counting_wrong": Kind(
        "of the bookmarks of {n} messages that have several, not the lowest is recorded as the lowest",
        "the lowest is recorded"),
    "request_stray": Kind(
        "{n} requests for messages name queues that this instance does not have",
        "they were removed"),
    # of subscriptions
    "holder_gone": Kind(
        "{n} leases belong to subscriptions that do not exist, and no check of leases is due",
        "a check is due, which takes them back"),
    "leased_count": Kind(
        "{n} subscriptions have a wrong count of their leases",
        "counted again"),
    "free_wrong": Kind(
        "{n} subscriptions stand in a wrong place among those with room for messages, or are missing there",
        "each stands in its place"),
    "free_stranger": Kind(
        "{n} subscriptions that stand among those with room do not exist, or have another filter",
        "they were removed there"),
    "member_gone": Kind(
        "{n} subscriptions of the queue do not exist",
        "they were removed from it"),
    "member_missing": Kind(
        "{n} subscriptions to the queue are not recorded in it",
        "they are recorded"),
    # of structures
    "undefined": Kind(
        "the queue's compiled definition is gone",
        "compiled again from the catalog"),
    "cursor_missing": Kind(
        "the queue's position in {n} of its topics is gone",
        "rebuilt from log and journal"),
    "paused": Kind(
        "a rebuild of the queue began and did not end, so that the queue reads nothing",
        "rebuilt from log and journal"),
    "behind_missing": Kind(
        "{n} topics have messages for the queue, and the queue is not marked as behind them",
        "it is marked"),
    "anchor_missing": Kind(
        "the field that keeps leases in a hash table is gone",
        "set"),
    "run_wrong": Kind(
        "the count of messages that are leased in runs is wrong, or a run has lost its messages",
        "counted again, and such a run is removed"),
    "pass_missing": Kind(
        "there are leases with deadlines, and no check of them is due",
        "a check is due"),
    "group_count": Kind(
        "{n} groups have a wrong count of their leased, waiting or failed messages",
        "counted again"),
    "group_place": Kind(
        "{n} messages have a wrong place in their group, or none",
        "each has its place"),
    "delayed_count": Kind(
        "the count of delayed messages is off by {n}",
        "counted again"),
    "scheduled_count": Kind(
        "the count of scheduled messages is off by {n}",
        "counted again"),
    "unread_count": Kind(
        "the count of unread messages is off by {n}",
        "counted again"),
    "due_stray": Kind(
        "{n} entries of the timetable belong to no queue or no message",
        "they were removed"),
    "index_stranger": Kind(
        "the indexes of filters have {n} entries of messages that are in another place of the queue, or in none",
        "they were removed"),
    "index_missing": Kind(
        "{n} messages are missing in the index of a filter that they match",
        "they were added"),
})
# fmt: on
