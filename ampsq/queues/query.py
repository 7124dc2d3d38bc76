"""Queries and their results: filter, order, first ones, and messages that nothing can be done to."""

from __future__ import annotations

import json
import re
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from ampsq.base.bookmarks import parse_ref
from ampsq.base.errors import DefinitionError, ExpressionError
from ampsq.base.message_types import JSON
from ampsq.base.values import shown
from ampsq.expressions import Document, parse
from ampsq.expressions.aggregates import place_of
from ampsq.expressions.values import first
from ampsq.protocol.encoding import decode_body, read_headers, shorten
from ampsq.protocol.entries import body_in, bookmark_of, headers_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ampsq.base.bookmarks import Bookmark
    from ampsq.base.message_types import MessageType
    from ampsq.expressions import Expression
    from ampsq.protocol.calls.browse import Browsed

__all__ = ["Query", "QueryResult", "SowMessage", "as_json", "parse_query_filter", "select"]

#: What a query keeps beyond the messages that it wants before it drops the last ones.
_SPARE: Final = 2_000
_MOST: Final = 1_000_000_000
_DIRECTION = re.compile(r"(?is)(.*\S)\s+(asc|desc)\s*")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SowMessage:
    """A message, or the row of a view, as a query found it; nothing can be done to it.

    Attributes:
        raw: the body as it was published; for an entry that somebody wrote without ampsq, its fields as JSON.
        topic: the topic that it was published to; of a row, the view's name.
        bookmark: its public identity; None for a row.
        headers: the headers that it was published with.
        deliveries: how often it was delivered before.
        key: of a topic's record, its key (several parts have ``|`` between them); None of all else.
    """

    raw: bytes
    topic: str
    bookmark: Bookmark | None
    headers: dict[str, str]
    deliveries: int
    key: str | None = None
    _type: MessageType = JSON

    @property
    def data(self) -> Any:
        """The body decoded by its message type, or the bytes as they are when they are not of it."""
        return decode_body(self.raw, self._type)

    @property
    def message_type(self) -> str:
        """The type of the body, as in ``msgpack``."""
        return self._type.name

    def __repr__(self) -> str:
        return f"<SowMessage {self.bookmark or self.topic}: {shorten(self.data)}, deliveries {self.deliveries}>"

    @classmethod
    def of(
        cls,
        found: Browsed,
        origin: str,
        *,
        key: str | None = None,
        type: MessageType = JSON,  # noqa: A002
    ) -> SowMessage:
        """Make it of what a walk gave; `type` is that of the queue or topic."""
        topic, stream_id = parse_ref(found.ref.decode())
        body, headers = body_in(found.fields), headers_in(found.fields)
        return cls(
            as_json(found.fields) if body is None else body,
            topic,
            bookmark_of(topic, origin, stream_id, found.source),
            read_headers(headers),
            found.deliveries,
            key,
            JSON if body is None else type,
        )


def as_json(fields: Mapping[bytes, bytes]) -> bytes:
    """The body that an entry has for readers which somebody wrote without ampsq: its fields, as JSON."""
    # Bytes that are no text are written \udc80 to \udcff: JSON that can be turned back into them.
    plain = {name.decode(errors="replace"): value.decode(errors="surrogateescape") for name, value in fields.items()}
    return json.dumps(plain, separators=(",", ":"), ensure_ascii=False).encode(errors="backslashreplace")


class _Order(NamedTuple):
    """One expression to order by."""

    expression: Expression
    descending: bool

    def place(self, document: Document) -> tuple[int, Any]:
        """Return a message's place in the order; NaN and NULL are last in both directions."""
        value = first(self.expression.value(document))
        if value is None:
            kind = _NULL
        elif value != value:  # noqa: PLR0124
            kind = _NAN
        else:
            return (_LAST - _VALUE if self.descending else _VALUE), place_of(value)
        return (_LAST - kind if self.descending else kind), (0, 0)


_VALUE, _NAN, _NULL = range(3)
_LAST: Final = 2


class Query:
    """A query, checked.

    Args:
        filter: only what matches.
        order_by: expressions, each with ``ASC`` (default) or ``DESC`` behind it if need be. Numbers come before
            strings, then NaN, then NULL, which stays last with ``DESC``. What is equal keeps the order of delivery.
        top_n: at most this many.
        skip_n: without this many at the beginning; needs `order_by` and `top_n`.

    Raises:
        DefinitionError: an argument is wrong.
    """

    def __init__(
        self,
        filter: str | None = None,  # noqa: A002
        order_by: str | Sequence[str] = (),
        top_n: int | None = None,
        skip_n: int | None = None,
    ) -> None:
        self._text = filter
        self.filter = parse_query_filter(filter) if filter is not None else None
        self.order = [_order(text) for text in _listed(order_by)]
        self.top_n = _whole("top_n", top_n, 1)
        self.skip_n = _whole("skip_n", skip_n, 0)
        if skip_n is not None and (top_n is None or not self.order):
            raise DefinitionError(
                f"skip_n={skip_n!r} needs top_n, how many to give after those skipped, and order_by, since without an "
                "order nobody knows which ones they are; allowed: sow(..., order_by='/price DESC', top_n=10, skip_n=20)"
            )

    def within(self, text: str | None) -> Query:
        """The same of what a filter lets through."""
        within = copy(self)
        if text is not None:
            within.filter = parse_query_filter(f"({text}) AND ({self._text})" if self._text is not None else text)
        return within


def _whole(name: str, value: object, least: int) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and least <= value <= _MOST):
        return value
    raise DefinitionError(f"{name}={shown(value)}: allowed is a whole number from {least} to {_MOST}")


def parse_query_filter(text: object) -> Expression:
    """Read the filter of a query.

    Raises:
        DefinitionError: it is no text. ExpressionError: it is wrong.
    """
    if not isinstance(text, str):
        raise DefinitionError(f"filter={shown(text)} is not a text; allowed: an expression, as in '/price > 10'")
    return parse(text, "query")


def _listed(order_by: object) -> Sequence[object]:
    if order_by is None or isinstance(order_by, str):
        return [order_by] if order_by is not None else ()
    if not isinstance(order_by, list | tuple):
        raise DefinitionError(
            f"order_by={shown(order_by)}: allowed is an expression, as in '/price DESC', or a list of such texts"
        )
    return order_by


def _order(text: object) -> _Order:
    if not isinstance(text, str):
        raise DefinitionError(f"order_by: {shown(text)} is not a text; allowed: one as in '/price DESC', or a list")
    found = _DIRECTION.fullmatch(text)
    source, direction = (found[1], found[2]) if found else (text, "asc")
    try:
        return _Order(parse(source, "query"), direction.lower() == "desc")
    except ExpressionError as fault:
        rest = source[fault.column - 1 :].strip()
        if re.match(r"(?i)((asc|desc)\b)?\s*,", rest):
            reason = "one expression each: give --order-by again; in Python, a list as ['/price DESC', '/qty']"
        elif re.fullmatch(r"[A-Za-z]+", rest) and fault.column > 1 and rest.lower() not in ("asc", "desc"):
            reason = f"{rest!r} is no direction; allowed behind an expression: ASC (default) or DESC"
        else:
            raise
        raise ExpressionError(reason, text, fault.column) from None


#: Places by each order, rank, message.
_Found: TypeAlias = "tuple[tuple[tuple[int, Any], ...], Any, SowMessage]"


class QueryResult:
    """The messages that a query has found so far."""

    def __init__(self, query: Query, *, in_order: bool) -> None:
        self._query = query
        self._limit = None if query.top_n is None else query.top_n + (query.skip_n or 0)
        # What comes in the order of delivery is all there as soon as there is enough of it.
        self._sorts = bool(query.order) or not in_order
        self._found: list[_Found] = []

    @classmethod
    def merged(cls, query: Query, parts: Iterable[QueryResult]) -> QueryResult:
        """Put together what the same query has found at several places."""
        merged = cls(query, in_order=False)
        for part in parts:
            merged._found += part._found  # noqa: SLF001  (our own)
        return merged

    @property
    def found(self) -> list[SowMessage]:
        """All that it found, those among them that the query does not give."""
        return [message for _, _, message in self._found]

    @property
    def full(self) -> bool:
        """Return whether nothing that comes could still matter."""
        return not self._sorts and self._limit is not None and len(self._found) >= self._limit

    def add(self, message: SowMessage, document: Document, rank: Any) -> None:
        """Take one in; `rank` is its place in the order of delivery, where they do not come in that order."""
        self._found.append((tuple(order.place(document) for order in self._query.order), rank, message))
        if self._sorts and self._limit is not None and len(self._found) > self._limit + _SPARE:
            self._sort()
            del self._found[self._limit :]

    def _sort(self) -> None:
        if self._sorts:
            self._found.sort(key=lambda entry: entry[1])
        for number, order in reversed(list(enumerate(self._query.order))):
            self._found.sort(key=_place(number), reverse=order.descending)

    def messages(self) -> list[SowMessage]:
        """Return the messages that the query gives."""
        self._sort()
        return [message for _, _, message in self._found[self._query.skip_n or 0 : self._limit]]


def _place(number: int) -> Callable[[_Found], tuple[int, Any]]:
    return lambda entry: entry[0][number]


def select(query: Query, rows: Iterable[tuple[str, bytes]], view: str) -> QueryResult:
    """Query the rows of a view, group and JSON each; without `order_by` they come in the order of their groups."""
    selection = QueryResult(query, in_order=False)
    for group, row in rows:
        document = Document(row, topic=view)
        if query.filter is None or query.filter.matches(document):
            selection.add(SowMessage(row, view, None, {}, 0), document, group)
    return selection
