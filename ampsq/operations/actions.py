"""Looking at actions and steering what failed, as flows; `Admin.actions` and its like run them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import DefinitionError
from ampsq.base.suggestions import nearest
from ampsq.base.values import check_text, list_of
from ampsq.catalog.followed_streams import followed_streams, track_name
from ampsq.definitions.stored_action import read_stored_action
from ampsq.protocol.calls import actions as action_calls
from ampsq.protocol.calls import catalog as catalog_calls
from ampsq.protocol.reads.actions import (
    count_failed,
    failed_numbers,
    read_failed,
    read_failed_event,
    read_progress,
)
from ampsq.protocol.reads.streams import Stream, log_of, stream_exists, stream_facts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ampsq.definitions.action import Action
    from ampsq.definitions.stored_action import StoredAction
    from ampsq.protocol.calls.catalog import Catalog
    from ampsq.protocol.reads.actions import ActionProgress, StoredEvent

__all__ = ["ActionState", "FailedEvent", "actions", "drop_failed", "failed_events", "retry_action"]

#: The kinds of sources whose entries are counted.
_STREAMS: Final = frozenset({"journal", "log", "deliveries", "happenings"})
#: Failed events that one call reads or moves.
_TOGETHER: Final = 100


@dataclass(frozen=True, slots=True)
class ActionState:
    """An action and how far it has come.

    Attributes:
        name: its name.
        text: its definition, as it is stored: JSON.
        waiting: entries of its sources that it has not looked at yet; an entry of a journal may be many events.
        done: events on which it acted to the end; those whose conditions were false are among them.
        failed: events that failed and are tried again.
        error: why the last one failed, or why the action waited last; empty: never.
        sources: source -> entries that it has not looked at yet.
    """

    name: str
    text: str
    waiting: int
    done: int
    failed: int
    error: str
    sources: dict[str, int]

    @property
    def definition(self) -> Action:
        """The action: what sets it off, and what it does."""
        from ampsq.definitions.action import Action  # noqa: PLC0415 - slow to import

        return Action.from_json(self.text)

    def as_dict(self) -> dict[str, object]:
        """The same as plain values, for JSON."""
        figures = {name: getattr(self, name) for name in ("name", "waiting", "done", "failed", "error", "sources")}
        return {**figures, "definition": read_stored_action(self.text).elements()}


@dataclass(frozen=True, slots=True)
class FailedEvent:
    """An event that failed.

    Attributes:
        number: by which it is retried or dropped.
        source: what it is of, as ``expire work``.
        step: where it failed: the index of the step, -1 for the conditions.
        what: the word of that step.
        error: why.
        tries: how often it was tried.
        failed: when it failed first, ISO-8601.
        next: when it is tried again.
        variables: name -> value; bytes that are no UTF-8 are escaped.
    """

    number: int
    source: str
    step: int
    what: str
    error: str
    tries: int
    failed: str
    next: str
    variables: dict[str, str]

    def as_dict(self) -> dict[str, object]:
        """The same as plain values, for JSON."""
        return {name: getattr(self, name) for name in self.__slots__}


async def actions(instance: str) -> dict[str, ActionState]:
    """Read the state of all actions."""
    catalog = await catalog_calls.catalog()
    out = {}
    for name, text in sorted(catalog.actions.items()):
        out[name] = await _state(instance, catalog, read_stored_action(text))
    return out


async def _state(instance: str, catalog: Catalog, action: StoredAction) -> ActionState:
    progress: ActionProgress = await read_progress(instance, action.name)
    failed = await count_failed(instance, action.name)
    waiting: dict[str, int] = {}
    streams = [
        (source.name, Stream(source.kind, source.of))
        for trigger in action.on
        for source in followed_streams(trigger, catalog)
        if source.kind in _STREAMS
    ]
    timed = [trigger.about or "" for trigger in action.on if trigger.word == "timeout"]
    streams += [(track_name(topic), log_of(topic)) for topic in timed]
    for name, stream in streams:
        added = 0
        if await stream_exists(instance, stream):
            added = (await stream_facts(instance, stream)).added
        waiting[name] = max(added - progress.read.get(name, 0), 0)
    return ActionState(action.name, action.text, sum(waiting.values()), progress.done, failed, progress.error, waiting)


async def failed_events(instance: str, name: str) -> list[FailedEvent]:
    """Read the events of an action that failed, in the order in which they did first.

    Raises:
        DefinitionError: there is no such action.
    """
    action = await _known(name)
    numbers = await _numbers(instance, name, None)
    events = []
    for first in range(0, len(numbers), _TOGETHER):
        some = numbers[first : first + _TOGETHER]
        found = await read_failed(instance, name, some)
        events += [_event(action, number, stored) for number, stored in zip(some, found, strict=True) if stored]
    return events


def _event(action: StoredAction, number: int, stored: StoredEvent) -> FailedEvent:
    facts = json.loads(stored.text)
    step = facts["step"]
    what = "if" if step < 0 else action.steps[step] if step < len(action.steps) else "nothing"
    shown = {
        name: value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        for name, value in facts["variables"].items()
    }
    return FailedEvent(
        number, facts["source"], step, what, facts["error"], facts["tries"], facts["failed"], facts["next"], shown
    )


async def retry_action(instance: str, name: str, events: Iterable[int] | int | None = None) -> int:
    """Let failed events be tried at once; gives how many.

    Raises:
        DefinitionError: there is no such action.
    """
    await _known(name)
    numbers = await _numbers(instance, name, events)
    for first in range(0, len(numbers), _TOGETHER):
        await action_calls.retry_at_once(instance, name, numbers[first : first + _TOGETHER])
    return len(numbers)


async def drop_failed(instance: str, name: str, events: Iterable[int] | int | None = None) -> int:
    """Forget failed events: what is left of them is not done; gives how many.

    Raises:
        DefinitionError: there is no such action.
    """
    await _known(name)
    numbers = await _numbers(instance, name, events)
    dropped = 0
    for number in numbers:
        stored: StoredEvent | None = await read_failed_event(instance, name, number)
        if stored is not None:
            dropped += await action_calls.redo(name, str(number), stored.revision, b"", 0)
    return dropped


async def _numbers(instance: str, name: str, events: Iterable[int] | int | None) -> list[int]:
    """Return the numbers of an action's failed events that are asked for, and are there."""
    found = await failed_numbers(instance, name)
    if events is None:
        return list(found)
    asked = {events} if isinstance(events, int) else set(list_of("events", events, "[1, 2]"))
    return [number for number in found if number in asked]


async def _known(name: str) -> StoredAction:
    check_text("action", name)
    catalog = await catalog_calls.catalog()
    if name not in catalog.actions:
        known = nearest(name, sorted(catalog.actions), "action") if catalog.actions else "no action is defined yet"
        raise DefinitionError(f"action {name!r}: {known}")
    return read_stored_action(catalog.actions[name])
