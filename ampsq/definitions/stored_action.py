"""Stored definitions of actions, read without their models; see `ampsq.definitions.stored`."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from ampsq.base.name_patterns import matches_name
from ampsq.base.values import is_name

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["StoredAction", "StoredTrigger", "read_stored_action"]

#: Stored texts that are kept as they were read.
_KEPT: Final = 4_096


class StoredTrigger:
    """A trigger of an action as it is stored; its attributes are those of `Trigger`.

    Args:
        word: what files call it.
        elements: what differs from the defaults.
    """

    def __init__(self, word: str, elements: Mapping[str, object]) -> None:
        self._elements = elements
        self.word = word
        self.about = self._text("topic")

    @property
    def is_pattern(self) -> bool:
        """Return whether it is about a regular expression of names."""
        return self.about is not None and not is_name(self.about)

    @property
    def id(self) -> str:
        """Kind of the trigger and what it is about, or, of a schedule, when it is due."""
        if self.word == "schedule":
            return " ".join(filter(None, (self.word, *map(self._text, ("every", "cron", "time_zone")))))
        return f"{self.word} {self.about or self._text('event') or '*'}"

    def follows(self, name: str) -> bool:
        """Say whether it is about the topic or queue of this name."""
        return self.about is None or matches_name(self.about, name)

    def _text(self, element: str) -> str | None:
        value = self._elements.get(element)
        return None if value is None else str(value)


class StoredAction(NamedTuple):
    """An action as it is stored.

    Attributes:
        name: its name.
        on: its triggers.
        steps: the words of what it does.
        published: the topics of its steps that publish, with the variables that they have.
        text: what `Action.to_json` wrote.
    """

    name: str
    on: tuple[StoredTrigger, ...]
    steps: tuple[str, ...]
    published: tuple[str, ...]
    text: str

    def elements(self) -> dict[str, object]:
        """The name and what differs from the defaults, as files have it."""
        stored = json.loads(self.text)
        return {element: stored[element] for element in ("name", "on", "if", "do") if element in stored}


@lru_cache(maxsize=_KEPT)
def read_stored_action(text: str) -> StoredAction:
    """Read what `Action.to_json` wrote."""
    elements = json.loads(text)
    on = tuple(StoredTrigger(word, given) for part in elements["on"] for word, given in part.items())
    steps = tuple(word for step in elements["do"] for word in step)
    published = tuple(step["publish"]["topic"] for step in elements["do"] if "publish" in step)
    return StoredAction(elements["name"], on, steps, published, text)
