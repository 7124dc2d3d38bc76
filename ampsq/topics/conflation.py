"""Conflation: of messages with the same key only the latest is handed out. Pure: entries and times go in."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING, Final, TypeAlias

from ampsq.base.errors import DefinitionError, ExpressionError
from ampsq.base.log_positions import parse_id
from ampsq.base.values import Interval, shown
from ampsq.expressions import parse

if TYPE_CHECKING:
    from collections.abc import Hashable

    from ampsq.base.log_positions import Id
    from ampsq.expressions import Document, Expression
    from ampsq.topics.merge import Entry

__all__ = ["Conflation", "ConflationKey", "conflation_asked"]

#: A message's place over all topics.
_Place: TypeAlias = "tuple[Id, str]"
_AUTO: Final = "auto"
_NONE: Final = "none"
#: Keys, and bytes of bodies, that are kept; with more nothing is read until some are handed out.
_MOST_KEYS: Final = 100_000
_MOST_BYTES: Final = 64 * 2**20
_ALLOWED: Final = "an interval, as in '1s'; 'auto': only what the consumer is behind with; 'none'"


def _period_of(asked: object) -> float | None:
    """Read what a subscription asks for.

    Returns:
        Seconds for which changes of a key are gathered; 0 for ``auto``; None for ``none``.

    Raises:
        DefinitionError: it is none of these.
    """
    if asked is None or asked == _NONE:
        return None
    if asked == _AUTO:
        return 0.0
    try:
        period = Interval.parse(asked)
    except DefinitionError:
        period = Interval(0)
    if period < 1:
        raise DefinitionError(f"conflation={shown(asked)}: allowed is {_ALLOWED}")
    return period / 1000


class ConflationKey:
    """The identifiers whose values make two messages versions of the same.

    Args:
        identifiers: as in ``["/id"]``.

    Raises:
        DefinitionError: something is no identifier.
    """

    def __init__(self, identifiers: object) -> None:
        items = (identifiers,) if isinstance(identifiers, str) else identifiers
        if not isinstance(items, list | tuple) or not items:
            raise DefinitionError(f"conflation_key={shown(identifiers)}: allowed are identifiers, as in ['/id']")
        self._parts = [self._read(item) for item in items]

    @staticmethod
    def _read(text: object) -> Expression:
        try:
            expression = parse(text, "filter") if isinstance(text, str) else None
        except ExpressionError as fault:
            raise DefinitionError(f"conflation_key: {shown(text)}: column {fault.column}: {fault.reason}") from None
        if expression is None or expression.tree[0] != "f":
            raise DefinitionError(f"conflation_key: {shown(text)} is no identifier; allowed: identifiers, as in '/id'")
        return expression

    def of(self, document: Document) -> Hashable | None:
        """The key of a message; None when it does not have all of it, and so is no version of anything."""
        values = [part.value(document) for part in self._parts]
        if any(value is None or isinstance(value, list) for value in values):
            return None
        return tuple(values)


def conflation_asked(
    asked: object, identifiers: object, sub_id: object, rate: object
) -> tuple[float | None, ConflationKey | None]:
    """Read how a subscription is conflated.

    Args:
        asked: an interval, ``auto`` or ``none``.
        identifiers: the key.
        sub_id: an option that does not go with it.
        rate: another one.

    Returns:
        Seconds, and the key where it is given; None twice: it is not conflated.

    Raises:
        DefinitionError: something is wrong, or does not go together.
    """
    period = _period_of(asked)
    if period is None:
        if identifiers is not None:
            raise DefinitionError("conflation_key needs conflation, as in conflation='1s' or conflation='auto'")
        return None, None
    if sub_id is not None:
        raise DefinitionError(
            "conflation with sub_id: what a later message took the place of would count neither as handled nor as "
            "missed; allowed: one of the two"
        )
    if rate is not None:
        raise DefinitionError(
            "conflation with rate: both say when a message goes; allowed: conflation with an interval, or rate"
        )
    return period, None if identifiers is None else ConflationKey(identifiers)


@dataclass(slots=True)
class _Version:
    """The latest message of a key: where it is, and it."""

    place: _Place
    entry: Entry
    size: int


class Conflation:
    """The messages of one subscription that were read and not handed out: the latest of each key.

    Args:
        period: seconds from the first change of a key that was not handed out until its latest one is; 0: at once.
    """

    def __init__(self, period: float) -> None:
        self._period = period
        self._latest: dict[Hashable, _Version] = {}
        # When keys may be handed out, in this order; and those that may, by a place that is theirs or an earlier one.
        self._due: deque[tuple[float, Hashable]] = deque()
        self._ready: list[tuple[_Place, Hashable]] = []
        self._bytes = 0
        #: Messages that a later one of their key took the place of.
        self.replaced = 0

    def __len__(self) -> int:
        return len(self._latest)

    @property
    def size(self) -> int:
        """Bytes of what is kept, about."""
        return self._bytes

    @property
    def is_full(self) -> bool:
        """Return whether so much is kept that nothing more is to be read."""
        return len(self._latest) >= _MOST_KEYS or self._bytes >= _MOST_BYTES

    @property
    def oldest(self) -> int | None:
        """Time when the earliest message was recorded that may be handed out, ms; None: there is none."""
        return self._ready[0][0][0][0] if self._ready else None

    def put(self, entry: Entry, key: Hashable | None, now: float) -> None:
        """Take in a message, later than all before it.

        Args:
            entry: the message.
            key: of it; None: it is not conflated, and may be handed out at once.
            now: by `time.monotonic`.
        """
        place = (parse_id(entry[1]), entry[0])
        version = _Version(place, entry, sum(map(len, entry[2])))
        name: object = place if key is None else (entry[0], key)
        self._bytes += version.size
        former = self._latest.get(name)
        self._latest[name] = version
        if former is not None:
            self._bytes -= former.size
            self.replaced += 1
        elif key is None or not self._period:
            heappush(self._ready, (place, name))
        else:
            self._due.append((now + self._period, name))

    def wait(self, now: float) -> float | None:
        """Seconds until something may be handed out; 0: now; None: there is nothing."""
        if self._ready:
            return 0.0
        return max(self._due[0][0] - now, 0.0) if self._due else None

    def release(self) -> None:
        """No more comes: all may be handed out."""
        self._ready += [(self._latest[name].place, name) for _, name in self._due]
        self._due.clear()
        heapify(self._ready)

    def take(self, now: float) -> Entry | None:
        """The earliest message that may be handed out now, by the place of the latest of its key."""
        while self._due and self._due[0][0] <= now:
            name = self._due.popleft()[1]
            heappush(self._ready, (self._latest[name].place, name))
        while self._ready:
            place, name = self._ready[0]
            version = self._latest[name]
            if version.place != place:
                # It came again while it waited.
                heapreplace(self._ready, (version.place, name))
                continue
            heappop(self._ready)
            del self._latest[name]
            self._bytes -= version.size
            return version.entry
        return None
