"""The facts of pages, as their JSON has them: models from which the OpenAPI document is made, too.

Here are what all models share and the pages of all instances; what a part of an instance has is in files of its own.

Names of members stay; new ones are added. A page gives what it has, and its model takes from that what it promises.
"""

from __future__ import annotations

import base64
import json
from datetime import datetime, timedelta
from typing import Annotated, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer, WithJsonSchema

from ampsq.definitions.definition import Definition

__all__ = [
    "Body",
    "DefinitionFacts",
    "DefinitionField",
    "Facts",
    "FaultFacts",
    "Moment",
    "OverviewFacts",
    "OverviewInstanceFacts",
    "OverviewLinkFacts",
    "OverviewPartitionFacts",
    "QuestionFacts",
    "RefusalFacts",
    "SearchFacts",
    "SearchHitFacts",
    "Seconds",
    "Text",
    "Values",
]


def _text(value: object) -> object:
    """Give a bookmark, and whatever else is a text, as a plain one; halves of pairs, which UTF-8 lacks, as escapes."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def _texts(value: object) -> object:
    """Do the same with all texts of a value."""
    if isinstance(value, dict):
        return {_text(name): _texts(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_texts(each) for each in value]
    return _text(value)


def _body(value: object) -> object:
    """Give a body as its text; one that is no text as ``{"base64": ...}``."""
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _definition(value: object) -> object:
    """Give a definition by its kind and its elements, without passwords."""
    if not isinstance(value, Definition):
        return value
    elements = json.loads(json.dumps(value.public_elements(), default=str))
    return _texts({"kind": type(value).__name__, "name": value.name, **elements})


def _seconds(value: object) -> object:
    return value.total_seconds() if isinstance(value, timedelta) else value


Text: TypeAlias = Annotated[str, BeforeValidator(_text)]
Values: TypeAlias = Annotated[dict[str, object], BeforeValidator(_texts)]
Body: TypeAlias = Annotated[str | dict[str, str], BeforeValidator(_body)]
Seconds: TypeAlias = Annotated[float, BeforeValidator(_seconds)]
Moment: TypeAlias = Annotated[
    datetime,
    PlainSerializer(lambda moment: moment.isoformat(), return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]


class Facts(BaseModel):
    """The common base: what an object has, taken by its names and checked."""

    model_config = ConfigDict(frozen=True, extra="forbid", from_attributes=True)


class FaultFacts(Facts):
    """A fault, as `ampsq doctor` finds it.

    Attributes:
        check: what was looked at.
        subject: what is wrong: its kind and its name.
        text: what is wrong with it.
        why: why that matters.
        mend: what mends it.
        page: address of the page about it; "" where there is none.
    """

    check: Text
    subject: Text
    text: Text
    why: Text
    mend: Text
    page: Text


class OverviewLinkFacts(Facts):
    """A link of an instance, in short.

    Attributes:
        direction: `to` or `from`.
        peer: the instance at the other end, or the destination's name while none is known.
        state: as of the page on replication, or `downgraded`.
        reason: why it is not connected; "" where it is.
        behind: messages and journal entries that it lacks; null of an incoming link.
    """

    direction: Text
    peer: Text
    state: Text
    reason: Text
    behind: int | None


class OverviewPartitionFacts(Facts):
    """A partition of an instance, in short.

    Attributes:
        number: from 0.
        name: by which it is an instance of its own, with pages of its own.
        unreachable: as of the instance.
        health: as of the instance.
        per_second_in: as of the instance.
        per_second_out: as of the instance.
        depth: messages that are not settled, of all queues.
        oldest: seconds for which the oldest of them has been there; null where there is none.
        faults: how many things are wrong with it.
        is_hot: whether it has many more messages than the others.
    """

    number: int
    name: Text
    unreachable: Text
    health: Text
    per_second_in: float | None
    per_second_out: float | None
    depth: int
    oldest: Seconds | None
    faults: int
    is_hot: bool


class OverviewInstanceFacts(Facts):
    """State of one instance, or of one with partitions: of these the sums, and the oldest message of any.

    Attributes:
        name: its name.
        unreachable: why its figures could not be read; "" where they could.
        health: `well`, `wrong`, `unreachable`, or `unknown` until it is examined.
        faults: what is wrong.
        checks: how many things were found to be well.
        per_second_in: messages a second that came in, over the last ten seconds; null while that is not known.
        per_second_out: messages a second that were settled.
        queues: how many it has.
        depth: messages that are not settled, of all queues.
        oldest: seconds for which the oldest of them has been there; null where there is none.
        oldest_queue: in which queue that is.
        dead_letters: those that wait.
        links: its links, both directions.
        coordinators: those that care for it, as `host:process`.
        partitions: those of an instance that has some, with the most messages first.
        total: how many partitions it has.
    """

    name: Text
    unreachable: Text
    health: Text
    faults: list[FaultFacts]
    checks: int
    per_second_in: float | None
    per_second_out: float | None
    queues: int
    depth: int
    oldest: float | None
    oldest_queue: Text
    dead_letters: int
    links: list[OverviewLinkFacts]
    coordinators: list[Text]
    partitions: list[OverviewPartitionFacts]
    total: int


class OverviewFacts(Facts):
    """The overview.

    Attributes:
        server: what is wrong with the server.
        is_examined: whether the server was looked at.
        instances: those of this page; those with something wrong first, then by name.
        number: of instances on all pages.
        wrong: how many of all have something wrong, or could not be reached.
        page: its number, from 1.
        pages: how many there are.
    """

    server: list[FaultFacts]
    is_examined: bool
    instances: list[OverviewInstanceFacts]
    number: int
    wrong: int
    page: int
    pages: int


class SearchHitFacts(Facts):
    """One thing that was found.

    Attributes:
        kind: `message`, `queue`, `topic`, `view`, `action`, `link`, `subscription`, `publisher` or `instance`.
        name: its name; of a message its bookmark.
        instance: where it is.
        detail: what else is known of it; "" where nothing is.
        page: address of the page about it.
    """

    kind: Text
    name: Text
    instance: Text
    detail: Text
    page: Text


class SearchFacts(Facts):
    """The result of a search.

    Attributes:
        text: what was looked for.
        hits: what was found, ten of each kind at most.
        more: kind -> how many more there are.
        unread: instances that were not looked at: the time was over, or they could not be read.
        partly: what was looked at in part alone, in words.
    """

    text: Text
    hits: list[SearchHitFacts]
    more: dict[Text, int]
    unread: list[Text]
    partly: list[Text]


class DefinitionFacts(Facts):
    """A definition, with the elements that differ from the defaults; passwords are left out.

    Attributes:
        kind: as `Queue` or `View`.
        name: its name.
    """

    model_config = ConfigDict(extra="allow")

    kind: Text
    name: Text


DefinitionField: TypeAlias = Annotated[DefinitionFacts, BeforeValidator(_definition)]


class QuestionFacts(Facts):
    """The question before a change, which JSON does not make.

    Attributes:
        change: the change.
        asks: what will happen, for people.
        messages: how many messages it would concern; null where that is not counted.
        given: what it is about.
    """

    change: Text
    asks: Text
    messages: int | None
    given: dict[Text, Text]


class RefusalFacts(Facts):
    """A refusal: what was asked for is wrong, is not there, or cannot be had now.

    Attributes:
        title: what kind of refusal it is.
        error: what was wrong, what is allowed and what to do.
    """

    title: Text
    error: Text
