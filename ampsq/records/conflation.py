"""Conflation of what changes records: of each key only what is latest when it may go. Pure: changes and times go in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampsq.topics.conflation import Conflation

if TYPE_CHECKING:
    from ampsq.records.change import RecordChange

__all__ = ["ConflatedChanges"]


class ConflatedChanges:
    """The changes of one subscription that were read and not handed out: the latest of each record.

    Args:
        period: seconds from the first change of a record that was not handed out until its latest one is; 0: at once.
    """

    def __init__(self, period: float) -> None:
        self._waiting = Conflation(period)
        # By key: the latest change, and whether the subscriber has the record; None: there is nothing to tell any more.
        self._latest: dict[bytes, tuple[RecordChange | None, bool]] = {}

    @property
    def is_full(self) -> bool:
        """Return whether so much waits that nothing more is to be read."""
        return self._waiting.is_full

    def put(self, key: bytes, stream_id: bytes, change: RecordChange, now: float, *, is_given: bool) -> None:
        """Take in a change, later than all before it.

        Args:
            key: of the record.
            stream_id: of the entry of the log that tells it.
            change: what is to be told.
            now: by `time.monotonic`.
            is_given: whether the subscriber has the record, as far as nothing of it waits here.
        """
        _, was_given = self._latest.get(key, (None, is_given))
        # A record that came and left while it waited is none of the subscriber's business.
        told = None if change.command == "oof" and not was_given else change
        self._latest[key] = told, was_given
        self._waiting.put((change.topic, stream_id, [key, change.raw]), key, now)

    def wait(self, now: float) -> float | None:
        """Seconds until something may be handed out; 0: now; None: there is nothing."""
        return self._waiting.wait(now)

    def take(self, now: float) -> RecordChange | None:
        """The earliest change that may be handed out now, by the place of the latest of its record."""
        while (entry := self._waiting.take(now)) is not None:
            change, _ = self._latest.pop(entry[2][0])
            if change is not None:
                return change
        return None
