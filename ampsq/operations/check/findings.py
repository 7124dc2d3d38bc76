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
        "{n} messages are settled by no entry of the journal, and are nowhere in the queue",
        "they are ready again"),
    "settled_but_live": Kind(
        "{n} messages are settled in the journal, and still in the queue",
        "they were taken out"),
    "settled_but_waiting": Kind(
        "{n} messages are settled in the journal, and would be read and delivered again",
        "they are noted, so that reading passes over them"),
    "ahead_unsettled": Kind(
        "{n} messages are noted as settled before they were read, and the journal does not say so",
        "the notes were removed; they are read in their turn"),
    "ahead_left": Kind(
        "{n} notes of messages settled before they were read are left, though the queue has read them",
        "the notes were removed"),
    "unread_but_live": Kind(
        "{n} messages are in the queue though it has not come to them, and would be read once more",
        "they are noted, so that reading passes over them"),
    "in_two_places": Kind(
        "{n} messages are in several places of the queue at once",
        "each is in one: its lease, else ready, else delayed"),
    "unrecorded": Kind(
        "{n} messages are in the queue, and their topics' logs do not have them",
        "they were settled as missing"),
    "unjournaled": Kind(
        "{n} messages were delivered at most once, and the journal does not say so",
        "they were journaled as delivered"),
    "own_but_remote": Kind(
        "{n} messages could be delivered here, and another instance owns them",
        "they wait for their owner"),
    "remote_but_own": Kind(
        "{n} messages wait as those of another instance, and are owned here",
        "they are ready again"),
    "owner_left": Kind(
        "{n} notes of who owns a message are of messages that are settled or gone",
        "the notes were removed"),
    "owner_missing": Kind(
        "{n} messages were transferred, as the journal says, and it is not noted who owns them",
        "noted, and they wait where their owner is"),
    # of what other instances published
    "copy_missing": Kind(
        "{n} messages of other instances are not found by their bookmark",
        "they are found again"),
    "received_behind": Kind(
        "{n} messages of other instances are here beyond the place up to which their topic is said to be received, so "
        "that links would bring them again",
        "received is said up to them, under the filter that was known"),
    "told_in_vain": Kind(
        "{n} notes wait for messages that are here already, or that will not come",
        "what they tell was done, or dropped"),
    "counting_wrong": Kind(
        "{n} messages with several bookmarks have another one noted as the lowest than they have",
        "the lowest is noted"),
    "request_stray": Kind(
        "{n} requests for messages are of no queue here",
        "removed"),
    # of subscriptions
    "holder_gone": Kind(
        "{n} leases are of subscriptions that do not exist, and no lease pass is due",
        "a pass is due, which takes them back"),
    "leased_count": Kind(
        "{n} subscriptions count another number of leases than they have",
        "counted anew"),
    "free_wrong": Kind(
        "{n} subscriptions stand wrongly among those with room, or not at all though they have some",
        "each stands where it should"),
    "free_stranger": Kind(
        "{n} subscriptions stand among those with room that do not exist or have another filter",
        "removed"),
    "member_gone": Kind(
        "{n} of the queue's subscriptions do not exist",
        "removed"),
    "member_missing": Kind(
        "{n} subscriptions to the queue are not known to it",
        "added"),
    # of structures
    "undefined": Kind(
        "the queue's compiled definition is gone",
        "defined again as the catalog has it"),
    "cursor_missing": Kind(
        "the queue does not know up to where it has read {n} of its topics",
        "rebuilt from log and journal"),
    "paused": Kind(
        "a rebuild of the queue was begun and not ended, so that it reads nothing",
        "rebuilt from log and journal"),
    "behind_missing": Kind(
        "{n} topics have something for the queue, and it was not told",
        "it was told"),
    "anchor_missing": Kind(
        "the field that keeps leases in a hash table is gone",
        "set"),
    "run_wrong": Kind(
        "the number of messages that are leased in runs is off, or a run has lost its messages",
        "counted anew, and such a run is removed"),
    "pass_missing": Kind(
        "there are leases with deadlines, and no lease pass is due",
        "a pass is due"),
    "group_count": Kind(
        "{n} groups count other messages than are leased of them, wait in them or hold them",
        "counted anew"),
    "group_place": Kind(
        "{n} messages stand wrongly among those of their group, or not at all",
        "each stands where it should"),
    "delayed_count": Kind(
        "the number of delayed messages is off by {n}",
        "counted anew"),
    "scheduled_count": Kind(
        "the number of scheduled messages is off by {n}",
        "counted anew"),
    "unread_count": Kind(
        "the number of unread messages is off by {n}",
        "counted anew"),
    "due_stray": Kind(
        "{n} entries of the timetable are of no queue or no message",
        "removed"),
    "index_stranger": Kind(
        "{n} entries of filters' indexes are of messages that have no place in the queue, or another one",
        "removed"),
    "index_missing": Kind(
        "{n} messages are missing in the index of a filter that they match",
        "added"),
})
# fmt: on
