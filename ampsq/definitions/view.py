"""The definition of a view: rows computed from the messages of topics or of a queue, one for each group."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator

from ampsq.base.errors import DefinitionError, ExpressionError
from ampsq.base.name_patterns import matches_name, parse_topic_or_pattern
from ampsq.base.values import is_name, parse_name, shown
from ampsq.definitions.definition import Definition, Fault
from ampsq.definitions.elements import Filter, is_stored, misread

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ampsq.expressions.check import Tree

__all__ = ["View"]

_TOPICS_ALLOWED = "the name of a topic or queue, a list of such names, or one regular expression, as in '^orders'"
_PROJECTION_ALLOWED = "a list of one or more texts '<expression> AS /<path>', as in ['SUM(/qty) AS /total']"
_GROUPING_ALLOWED = "a list of identifiers, as in ['/symbol'], or none for one row of everything"
# Functions of the instance rather than of a message.
_SAME_FOR_ALL = ("AMPS_INSTANCE_NAME",)


def _topics(value: object) -> tuple[str, ...]:
    """Read topics: names, sorted and each once, or one regular expression alone."""
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list | tuple) or not listed:
        raise DefinitionError(f"{shown(value)} names no topic; allowed: {_TOPICS_ALLOWED}")
    if len(listed) == 1:
        return (parse_topic_or_pattern(listed[0]),)
    for topic in listed:
        if isinstance(topic, str) and not is_name(topic):
            raise DefinitionError(
                f"{shown(topic)} is not a name, and a regular expression stands alone; allowed: {_TOPICS_ALLOWED}"
            )
    return tuple(sorted({parse_name(topic) for topic in listed}))


def _texts(value: object) -> list[str] | None:
    """A list of texts, or None for anything else."""
    if isinstance(value, list | tuple) and all(isinstance(text, str) for text in value):
        return list(value)
    return None


def _listed(value: object, allowed: str) -> tuple[str, ...]:
    texts = _texts(value)
    if texts is None:
        raise DefinitionError(f"{shown(value)} is not a list of texts; allowed: {allowed}")
    return tuple(texts)


Topics = Annotated[tuple[str, ...], BeforeValidator(_topics)]
Projections = Annotated[tuple[str, ...], BeforeValidator(lambda value: _listed(value, _PROJECTION_ALLOWED))]
Groupings = Annotated[tuple[str, ...], BeforeValidator(lambda value: _listed(value, _GROUPING_ALLOWED))]

# What is missing is said by `View._conflicts`, since the general text knows of names only.
_MISSING: Any = None


class View(Definition):
    """Rows that are kept up to date: the messages of topics, or those that wait in a queue, grouped and aggregated.

    A row is published as a message of the topic that has the view's name, each time that it changes, so that a
    queue may have the view as its underlying topic. When its last message is gone, so is the row, and the row of no
    messages is published: what it is grouped by, counts of 0, null for a sum or an extreme.

    Attributes:
        name: of the view and of the topic that its rows are published to; the same grammar as a topic's name.
        underlying_topic: what the rows are made of: a topic's name, several, or a regular expression, searched for
            anywhere in a topic's name, but not in the view's own; or a queue's name, for the messages that wait in
            it. Read as a tuple: the names, sorted, or the one regular expression.
        filter: an expression over the body; only messages that match it count. Default: all do.
        projection: what a row has, one or more texts ``<expression> AS /<path>``, as in ``SUM(/qty) AS /total``;
            an identifier alone keeps its path. Outside of an aggregate, an expression may use the grouping's
            identifiers only, since all else may differ between the messages of one row. No path may be given twice
            or lie within another. Identifiers of one topic, ``[topic]./a``, are refused: nothing is joined.
        grouping: identifiers, as in ``/symbol``; messages that are alike in all of them make up one row. Default:
            none, that is, one row of all messages.
    """

    underlying_topic: Topics = _MISSING
    filter: Filter | None = None
    projection: Projections = ()
    grouping: Groupings = ()

    if TYPE_CHECKING:
        # Lists and single names are read too; a type checker cannot know that.
        def __init__(
            self,
            *,
            name: str,
            underlying_topic: str | Sequence[str],
            projection: Sequence[str],
            grouping: Sequence[str] = (),
            filter: str | None = None,  # noqa: A002  (AMPS's name)
        ) -> None: ...

    @property
    def is_pattern(self) -> bool:
        """Return whether `underlying_topic` is one regular expression."""
        return not is_name(self.underlying_topic[0])

    def feeds_from(self, topic: str) -> bool:
        """Say whether the messages of a topic, or of the queue of that name, count in this view."""
        return _feed(self.underlying_topic, topic)

    @classmethod
    def _conflicts(cls, given: Mapping[str, Any]) -> Iterator[Fault]:
        topics: tuple[str, ...] = ()
        # What is wrong with an element alone is reported where it is read.
        with contextlib.suppress(DefinitionError):
            topics = _topics(given.get("underlying_topic"))
        if "underlying_topic" not in given:
            yield Fault("underlying_topic", f"missing; allowed: {_TOPICS_ALLOWED}")
        name = given.get("name")
        if topics and isinstance(name, str) and _feed(topics, name):
            yield Fault(
                "underlying_topic",
                f"{shown(given['underlying_topic'])} feeds the view from {shown(name)}, the topic of its own rows; "
                "allowed: other topics, or a view of another name",
            )
        projection, grouping = _texts(given.get("projection", ())), _texts(given.get("grouping", ()))
        if projection is not None and not projection:
            yield Fault("projection", f"missing; allowed: {_PROJECTION_ALLOWED}")
        if is_stored():
            return
        groups = [_identifier(text) for text in grouping or ()]
        yield from _grouping_faults(grouping or [], groups)
        # What a row may use cannot be told while the grouping is wrong.
        is_known = grouping is not None and None not in groups
        known = {tree: text for tree, text in zip(groups, grouping or (), strict=True) if tree} if is_known else None
        yield from _projection_faults(projection or [], known)


def _feed(topics: tuple[str, ...], topic: str) -> bool:
    return topic in topics or matches_name(topics[0], topic)


def _identifier(text: str) -> Tree | None:
    """The tree of an identifier, or None for any other text."""
    from ampsq.expressions import parse_projection  # noqa: PLC0415 - see `ampsq.definitions.elements`

    try:
        tree = parse_projection(f"{text} AS /group").expression.tree
    except ExpressionError:
        return None
    return tree if tree[0] in ("f", "t") else None


def _grouping_faults(texts: list[str], groups: list[Tree | None]) -> Iterator[Fault]:
    for place, (text, tree) in enumerate(zip(texts, groups, strict=True)):
        element = f"grouping[{place}]"
        if tree is None:
            yield Fault(element, f"{shown(text)} is not an identifier; allowed: {_GROUPING_ALLOWED}")
            continue
        if tree in groups[:place]:
            yield Fault(element, f"{shown(text)}: given twice; allowed: once")
        yield from _topic_faults(element, text, tree)


def _projection_faults(texts: list[str], known: Mapping[Tree, str] | None) -> Iterator[Fault]:
    """Say what is wrong with projections.

    Args:
        texts: as they were given.
        known: the grouping's trees and texts, or None where these are wrong.
    """
    from ampsq.expressions import parse_projection  # noqa: PLC0415 - see `ampsq.definitions.elements`

    taken: dict[tuple[str, ...], str] = {}
    for place, text in enumerate(texts):
        element = f"projection[{place}]"
        try:
            expression, path = parse_projection(text)
        except ExpressionError as fault:
            yield Fault(element, misread(text, fault))
            continue
        other = next((taken[end] for end in taken if end[: len(path)] == path[: len(end)]), None)
        if other is not None:
            yield Fault(
                element,
                f"{shown(text)}: the path /{'/'.join(path)} is that of {shown(other)}, or one of the two lies within "
                "the other; allowed: a path of its own after AS",
            )
        taken.setdefault(path, text)
        joined = list(_topic_faults(element, text, expression.tree))
        yield from joined
        if known is not None and not joined:
            yield from _loose_faults(element, text, expression.tree, known)


def _loose_faults(element: str, text: str, tree: Tree, known: Mapping[Tree, str]) -> Iterator[Fault]:
    """Refuse what may differ between the messages of one row."""
    loose = next(_loose(tree, known), None)
    if loose is None:
        return
    grouping = f"the grouping's {', '.join(known.values())}" if known else "no identifier, since there is no grouping"
    yield Fault(
        element,
        f"{shown(text)} uses {loose}, which may differ between the messages of one row; allowed outside of an "
        f"aggregate: {grouping}; inside of one, as in MAX({loose}), anything",
    )


def _topic_faults(element: str, text: str, tree: Tree) -> Iterator[Fault]:
    """Refuse identifiers of one topic: joining topics takes the last message of each key, which no topic keeps."""
    joined = next((node for node in _nodes(tree) if node[0] == "t"), None)
    if joined is not None:
        field = _identifier_text(joined)
        yield Fault(
            element,
            f"{shown(text)} uses {field}, a field of one topic, and a view does not join topics; allowed: "
            f"{field.partition('].')[2]}, which is read from every message, whatever its topic",
        )


def _nodes(tree: Tree) -> Iterator[Tree]:
    """A tree and all that is in it; see `docs/decisions/0003-expressions.md`."""
    yield tree
    for part in tree:
        if isinstance(part, tuple):
            yield from _nodes(part)


def _loose(tree: Tree, known: Mapping[Tree, str]) -> Iterator[str]:
    """Yield the identifiers of an expression that are in no aggregate and not in the grouping, as they are written."""
    match tree:
        case ("agg", *_):
            return
        case ("f" | "t", *_):
            if tree not in known:
                yield _identifier_text(tree)
        case ("call", name) if name not in _SAME_FOR_ALL:
            yield _identifier_text(tree)
        case _:
            for part in tree:
                if isinstance(part, tuple):
                    yield from _loose(part, known)


def _identifier_text(node: Tree) -> str:
    """An identifier, or a function without arguments, as an expression has it."""
    if node[0] == "call":
        return f"{node[1]}()"
    topic, steps = (f"[{node[1]}].", node[2:]) if node[0] == "t" else ("", node[1:])
    return topic + "".join(f"/{step}" if isinstance(step, str) else f"[{step}]" for step in steps)
