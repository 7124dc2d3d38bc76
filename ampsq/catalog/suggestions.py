"""Advice on a name that no queue or topic has: what it is instead, what was meant, or what to do."""

from __future__ import annotations

import difflib
import functools
from typing import TYPE_CHECKING, Final, Literal, ParamSpec, TypeVar

from ampsq.base.errors import NoRecords, UnknownQueue
from ampsq.base.suggestions import as_sentence
from ampsq.definitions.stored import read_stored_queue
from ampsq.protocol.calls import catalog as catalog_calls

if TYPE_CHECKING:
    from collections.abc import Callable

    from ampsq.definitions.stored import StoredQueue
    from ampsq.protocol.calls.catalog import Catalog
    from ampsq.protocol.request import Flow

__all__ = ["closest_name", "explain_missing_name", "explain_no_queue", "explain_no_topic", "with_suggestions"]

P = ParamSpec("P")
T = TypeVar("T")
Kind = Literal["queue", "view", "topic"]
#: Names of one kind that a text lists.
_LISTED: Final = 5


def with_suggestions(
    *kinds: Kind, explain: Callable[[Catalog, str], str] | None = None
) -> Callable[[Callable[P, Flow[T]]], Callable[P, Flow[T]]]:
    """Let a flow that refuses an unknown queue, or a topic without records, say what the name is or who was meant.

    It looks only then.

    Args:
        kinds: what the name may be there.
        explain: says it instead of `explain_missing_name`.
    """

    def decorate(function: Callable[P, Flow[T]]) -> Callable[P, Flow[T]]:
        @functools.wraps(function)
        async def flow(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return await function(*args, **kwargs)
            except (UnknownQueue, NoRecords) as error:
                name = error.detail.get("topic" if isinstance(error, NoRecords) else "queue")
                if not isinstance(name, str) or error.explanation:
                    raise
                catalog = await catalog_calls.catalog()
                if isinstance(error, NoRecords) and name in catalog.queues:
                    raise error.with_explanation(_explain_queue_without_records(catalog, name)) from None
                if isinstance(error, NoRecords) and name in catalog.topics:
                    raise
                text = explain(catalog, name) if explain is not None else explain_missing_name(catalog, name, *kinds)
                raise error.with_explanation(text) from None

        return flow

    return decorate


def _explain_queue_without_records(catalog: Catalog, name: str) -> str:
    """Say which calls look at a queue's messages and settle them: a topic of its name could have no key."""
    topics = _queue(catalog, name).underlying_topic
    what = "a queue, which keeps no records" if topics == name else f"a queue, not a topic; its topics are {topics!r}"
    return f"{name!r} is {what}: sow({name!r}) looks at its messages, ack({name!r}, filter=...) settles them"


def closest_name(catalog: Catalog, name: str, *kinds: Kind) -> str | None:
    """The name that is most like one that nothing has; None: there is none like it."""
    known = {"queue": catalog.queues, "view": catalog.views, "topic": catalog.topics}
    close = difflib.get_close_matches(name, sorted({each for kind in kinds for each in known[kind]}), n=1)
    return close[0] if close else None


def explain_missing_name(catalog: Catalog, name: str, *kinds: Kind) -> str:
    """Say what is wrong with a name, the name first."""
    if name in catalog.views and "view" not in kinds:
        return f"{name!r} is a view; query it with sow, or define a queue over it" + _over(
            catalog, name, "; its queues"
        )
    if name in catalog.topics and "topic" not in kinds:
        none = f"; define one with underlying_topic {name!r}"
        over = _over(catalog, name, "; its queues") or f", and no queue is over it{none}"
        key = f"; to query the topic itself, give it a key, as in Topic(name={name!r}, key='/id')"
        return f"{name!r} is a topic{over}{key if 'view' in kinds else ''}"
    known = {"queue": catalog.queues, "view": catalog.views, "topic": catalog.topics}
    if name in catalog.queues and "queue" not in kinds:
        topics = _queue(catalog, name).underlying_topic
        return f"{name!r} is a queue, not a topic; its topics are {topics!r}"
    names = sorted({each for kind in kinds for each in known[kind]})
    close = closest_name(catalog, name, *kinds)
    what = f"no {kinds[0]}" if len(kinds) == 1 else f"neither a {' nor a '.join(kinds)}"
    if close:
        return f"{name!r} is {what}; did you mean {close!r}?"
    there = f"; there are {_list(names)}" if names else f"; there is no {kinds[0]} yet"
    return f"{name!r} is {what}{there}; client.apply({kinds[0].title()}(name=...)) or `ampsq apply FILE` defines one"


def explain_no_queue(catalog: Catalog, name: str) -> str:
    """Say what a name is that was subscribed to as a queue's and is none, and which call is for that."""
    follow = f"subscribe_topic({name!r}) follows"
    if name in catalog.views:
        return f"{name!r} is a view, not a queue: {follow} its rows" + _over(catalog, name, "; its queues")
    if name in catalog.conflated:
        return f"{name!r} is a conflated topic, not a queue: {follow} it"
    if name in catalog.topics:
        queues = _over(catalog, name, "; its queues") or ", and no queue is over it"
        return f"{name!r} is a topic, not a queue: {follow} it{queues}"
    close = closest_name(catalog, name, "queue", "topic")
    text = explain_missing_name(catalog, name, "queue", "topic")
    if close is None:
        return f"{as_sentence(text)} A topic that is to come is waited for with subscribe_topic({name!r})"
    return text if close in catalog.queues else f"{text} It is a topic: subscribe_topic({close!r}) follows it"


def explain_no_topic(catalog: Catalog, name: str) -> str:
    """Say what a name is that was subscribed to as a topic's and is none, and which call is for that."""
    if name in catalog.queues:
        topics = _queue(catalog, name).underlying_topic
        return (
            f"{name!r} is a queue, not a topic: subscribe({name!r}) takes its messages; subscribe_topic({topics!r}) "
            "follows its topics, and takes nothing"
        )
    close = closest_name(catalog, name, "topic", "queue")
    text = explain_missing_name(catalog, name, "topic", "queue")
    if close is None or close in catalog.topics:
        return text
    return f"{text} It is a queue: subscribe({close!r}) takes its messages"


def _over(catalog: Catalog, topic: str, what: str) -> str:
    names = sorted(name for name in catalog.queues if _queue(catalog, name).feeds_from(topic))
    return f"{what} are {_list(names)}" if names else ""


def _queue(catalog: Catalog, name: str) -> StoredQueue:
    return read_stored_queue(catalog.queues[name])


def _list(names: list[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(map(repr, names[:_LISTED])) + more
