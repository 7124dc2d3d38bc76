"""The rows of a view, without any waiting: messages come and go, and every group's row is exact at each moment.

What a message added to an aggregate, its removal takes away without a trace; see `ampsq.expressions.aggregates`. A
message costs some 300 bytes while it is counted.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ampsq.expressions import Document, parse, parse_projection
from ampsq.expressions.aggregates import ACCUMULATORS
from ampsq.expressions.values import first

if TYPE_CHECKING:
    from collections.abc import Container

    from ampsq.definitions.queue import View
    from ampsq.expressions import Aggregate, Expression
    from ampsq.expressions.aggregates import Accumulator
    from ampsq.expressions.values import Scalar, Value

__all__ = ["Group", "Rows", "group_of", "key_of"]

#: What the messages of one row have in common: the values of the grouping expressions.
Group = tuple[Any, ...]
#: The tree of what `COUNT(*)` counts: messages, also those that are no JSON.
_EVERY: Final = ("n", 1)
#: What a row's expressions read where the group's messages have no fields.
_EMPTY: Final = Document(b"{}")


class _Column(NamedTuple):
    """One expression of a projection: where it goes, how it is worked out, which of the view's aggregates it reads."""

    path: tuple[str, ...]
    expression: Expression
    places: tuple[int, ...]


class _State:
    """The state of one group.

    Attributes:
        size: how many messages it has.
        aggregates: one accumulator for each different aggregate of the projection.
        document: of one of its messages: what is not aggregated is the same in all of them.
    """

    __slots__ = ("aggregates", "document", "size")

    def __init__(self, aggregates: list[Accumulator], document: Document) -> None:
        self.size = 0
        self.aggregates = aggregates
        self.document = document


class Rows:
    """The rows of one view, and the messages that they are made of.

    NaN and infinity become null in a row. Without a grouping all messages together are the one row, which is there
    even while there is no message. Messages that are not JSON count if the view has no filter; their fields are NULL.
    Those whose bodies are more than expressions read are left out, and counted.

    Args:
        view: its projection, grouping and filter.
    """

    def __init__(self, view: View) -> None:
        self._filter = parse(view.filter, "filter") if view.filter else None
        self._grouping = [parse(text, "filter") for text in view.grouping]
        wanted: dict[tuple[str, str], Aggregate] = {}
        self._columns = [_column(*parse_projection(text), wanted) for text in view.projection]
        self._makers = [ACCUMULATORS[aggregate.function] for aggregate in wanted.values()]
        self._operands = [None if each.operand.tree == _EVERY else each.operand for each in wanted.values()]
        self._groups: dict[Group, _State] = {}
        self._messages: dict[bytes, tuple[Group, tuple[Scalar | None, ...]]] = {}
        self._changed: set[Group] = set()
        self._unread: set[bytes] = set()
        self._unread_for_good = 0
        if not view.grouping:
            self._state((), _EMPTY)
            self._changed.add(())

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def left_out(self) -> int:
        """Number of messages that are left out."""
        return len(self._unread) + self._unread_for_good

    def groups(self) -> list[Group]:
        """All groups that there are now."""
        return list(self._groups)

    def add(self, ref: bytes, document: Document, *, for_good: bool = False) -> None:
        """Count a message, if the filter lets it in; one that is counted already is left alone.

        Args:
            ref: which message.
            document: what it says.
            for_good: it is never added again nor removed, so that nothing of it need be kept.
        """
        if document.is_unread:
            if for_good:
                self._unread_for_good += 1
            else:
                self._unread.add(ref)
            return
        if ref in self._messages or not (self._filter is None or self._filter.matches(document)):
            return
        group = tuple(_part(expression.value(document)) for expression in self._grouping)
        values = tuple(1 if operand is None else first(operand.value(document)) for operand in self._operands)
        state = self._groups.get(group) or self._state(group, document)
        state.size += 1
        for aggregate, value in zip(state.aggregates, values, strict=True):
            if value is not None:
                aggregate.add(value)
        self._changed.add(group)
        if not for_good:
            self._messages[ref] = group, values

    def _state(self, group: Group, document: Document) -> _State:
        found = _State([make() for make in self._makers], document if document.is_json and group else _EMPTY)
        self._groups[group] = found
        return found

    def remove(self, ref: bytes) -> None:
        """Count a message no more; one that is not counted is nothing to do."""
        self._unread.discard(ref)
        known = self._messages.pop(ref, None)
        if known is None:
            return
        group, values = known
        state = self._groups[group]
        state.size -= 1
        for aggregate, value in zip(state.aggregates, values, strict=True):
            if value is not None:
                aggregate.remove(value)
        if not state.size and group:
            del self._groups[group]
        self._changed.add(group)

    def keep_only(self, refs: Container[bytes]) -> None:
        """Count no more what is not among these."""
        for ref in [ref for ref in (*self._messages, *self._unread) if ref not in refs]:
            self.remove(ref)

    def take_changed(self) -> set[Group]:
        """Give the groups that messages were added to or removed from since the last time, vanished ones too."""
        changed, self._changed = self._changed, set()
        return changed

    def row(self, group: Group) -> dict[str, Any] | None:
        """Work out one row, nested as the columns' paths say; None when the group has no message left."""
        state = self._groups.get(group)
        return None if state is None else self._row(state)

    def row_of_nothing(self, group: Group, instance: str) -> dict[str, Any] | None:
        """Work out the row that a group has without any message: what it is grouped by, counts of 0, and null.

        Args:
            group: one that this grouping makes, whether it was ever seen or not.
            instance: the instance's name, which a row may have.

        Returns:
            The row; None for a group that this grouping cannot make.
        """
        if len(group) != len(self._grouping):
            return None
        paths = [expression.tree[1:] for expression in self._grouping]
        document = Document.of_topics({}, instance=instance)
        document.content.update(_content(dict(zip(paths, group, strict=True))))
        return self._row(_State([make() for make in self._makers], document))

    def _row(self, state: _State) -> dict[str, Any]:
        values = [aggregate.value() for aggregate in state.aggregates]
        row: dict[str, Any] = {}
        for column in self._columns:
            inner = row
            for name in column.path[:-1]:
                inner = inner.setdefault(name, {})
            read = [values[place] for place in column.places]
            inner[column.path[-1]] = _plain(column.expression.value(state.document, read))
        return row


def key_of(group: Group) -> str:
    """A text for a group: a list as JSON has it, different for different groups."""
    return json.dumps(group, separators=(",", ":"), default=lambda text: text.decode(errors="surrogateescape"))


def group_of(name: str) -> Group:
    """The group that `key_of` made a text of."""
    return tuple(_from_json(value) for value in json.loads(name))


def _from_json(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_from_json(element) for element in value)
    return value.encode(errors="surrogateescape") if isinstance(value, str) else value


def _content(values: dict[tuple[str | int, ...], Any]) -> dict[str | int, Any]:
    """A content in which identifiers have these values; numbers of elements are members like names."""
    content: dict[str | int, Any] = {}
    # What lies in another's value comes after it, and that other one is an object then.
    for path in sorted((path for path, value in values.items() if value is not None), key=len):
        inner = content
        for step in path[:-1]:
            if not isinstance(inner.get(step), dict):
                inner[step] = {}
            inner = inner[step]
        inner[path[-1]] = _as_content(values[path])
    return content


def _as_content(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_as_content(element) for element in value]
    return value.decode(errors="surrogateescape") if isinstance(value, bytes) else value


def _part(value: Value) -> Any:
    """A value as part of a group: hashable; NaN is the same as NaN, and 1.0 as 1."""
    if isinstance(value, list):
        return tuple(_part(element) for element in value)
    if isinstance(value, float):
        return math.nan if math.isnan(value) else int(value) if value.is_integer() else value
    return value


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, list):
        return [_plain(element) for element in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _column(expression: Expression, path: tuple[str, ...], wanted: dict[tuple[str, str], Aggregate]) -> _Column:
    """Prepare one column, and add those of its aggregates to `wanted` that no column before it had."""
    keys = [(aggregate.function, aggregate.operand.json) for aggregate in expression.aggregates]
    for key, aggregate in zip(keys, expression.aggregates, strict=True):
        wanted.setdefault(key, aggregate)
    places = list(wanted)
    return _Column(path, expression, tuple(map(places.index, keys)))
