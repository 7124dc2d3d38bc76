"""The outcomes of the batches of one `publish_many`, for its result and for an error that ends it."""

from __future__ import annotations

import contextlib
from collections import deque
from typing import TYPE_CHECKING

from ampsq.base.bookmarks import Bookmark, Bookmarks
from ampsq.base.errors import AmpsqError, Rejected, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ampsq.protocol.calls.publish import Published
    from ampsq.publishing.receipts import Sequences

__all__ = ["PublishingBatches", "bookmarks_of", "telling", "telling_of_taken"]


class PublishingBatches:
    """The batches of one call that are recorded, refused, or not answered yet.

    Args:
        origin: of the instance.

    Attributes:
        bookmarks: of what was recorded before the first refusal.
        is_over: a batch was refused, so that no other is to be sent.
    """

    def __init__(self, origin: str) -> None:
        self.bookmarks, self.is_over = Bookmarks(origin), False
        self._origin = origin
        # How many messages each batch has that was given away and is not answered.
        self._open: deque[int] = deque()
        self._refusal: AmpsqError | None = None
        # Of the refused batch, and of those that were on their way by then.
        self._behind: list[Bookmark | None] = []

    def begin(self, number: int) -> None:
        """Note a batch that is about to be sent."""
        self._open.append(number)

    def add(self, answer: Published | AmpsqError) -> None:
        """Note what became of the earliest batch that is not answered: it is recorded, or was refused."""
        number = self._open.popleft()
        if isinstance(answer, AmpsqError):
            if self._refusal is None:
                self._refusal, self.is_over = answer, True
                self._number_from_here(answer)
            self._behind.extend([None] * number)
            return
        if self._refusal is None:
            _add_published(self.bookmarks, answer, self._origin)
        else:
            self._behind.extend(bookmarks_of(answer, self._origin))

    def _number_from_here(self, error: AmpsqError) -> None:
        """Have a refusal name the message by its number in the whole call, where the script knew that of its batch."""
        if self.bookmarks and isinstance(error, Rejected):
            message = error.detail.get("message")
            if isinstance(message, int):
                error.renumber(message + len(self.bookmarks))

    @contextlib.contextmanager
    def telling(self) -> Iterator[None]:
        """Raise the refusal at the end; and have whatever ends the call tell what of it is recorded."""
        try:
            yield
        except Rejected as error:
            self._number_from_here(error)
            raise self._told(error) from error.__cause__
        except AmpsqError as error:
            raise self._told(error) from (self._refusal or error.__cause__)
        if self._refusal is not None:
            raise self._told(self._refusal) from self._refusal.__cause__

    def _told(self, error: AmpsqError) -> AmpsqError:
        first, behind = len(self.bookmarks), sum(each is not None for each in self._behind)
        in_doubt = sum(self._open) if isinstance(error, Unavailable) and error.may_have_run else 0
        parts = []
        if first:
            parts.append(f"the first {first:,} messages of this publish_many are recorded")
        if behind:
            parts.append(f"{behind:,} behind those that were refused are recorded, since they were on their way")
        if in_doubt and parts:
            parts.append(f"{in_doubt:,} more may be recorded")
        published: Sequence[Bookmark | None] = self.bookmarks
        if behind:
            while self._behind[-1] is None:
                self._behind.pop()
            published = [*self.bookmarks, *self._behind]
        return telling(error, parts, published)


def bookmarks_of(answer: Published, origin: str) -> Bookmarks:
    """Return the bookmarks of a batch that was recorded at an origin."""
    bookmarks = Bookmarks(origin)
    _add_published(bookmarks, answer, origin)
    return bookmarks


def _add_published(bookmarks: Bookmarks, answer: Published, origin: str) -> None:
    for part in answer.parts:
        for duplicate in part.duplicates:
            bookmarks.add(duplicate or Bookmark.of(part.topic, origin, ""))
        if part.number:
            bookmarks.add_run(part.topic, part.first_id, part.number)


@contextlib.contextmanager
def telling_of_taken(sequences: Sequences) -> Iterator[None]:
    """Have whatever ends a `publish_many` with a publish store tell which messages the store has taken."""
    try:
        yield
    except AmpsqError as error:
        parts = [f"the first {len(sequences):,} messages of this publish_many are taken"] if sequences else []
        raise telling(error, parts, sequences) from error.__cause__


def telling(error: AmpsqError, parts: list[str], published: Sequence[str | int | None]) -> AmpsqError:
    """The same error, telling more: another object, since the same one may be raised again, of other calls."""
    if not parts:
        return error
    made = type(error).__new__(type(error))
    made.__dict__.update(error.__dict__)
    made.args = (f"{error}; {'; '.join(parts)}",)
    made.published = published
    if isinstance(made, Unavailable):
        made.may_have_run = True
    return made.with_traceback(error.__traceback__)
