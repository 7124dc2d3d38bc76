"""The parts of an action as files have them: words and their elements, or what is wrong with them.

Each part has the word that files use, AMPS's module name, and its elements. A part may be its word and the value of its
main element, as in ``expire: work``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ampsq.base.suggestions import nearest
from ampsq.base.values import shown
from ampsq.definitions.action_steps import ActionStep, Do
from ampsq.definitions.action_triggers import If, On, Part, Trigger
from ampsq.definitions.action_values import VARIABLE, Reasons
from ampsq.definitions.definition import Fault

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "CONDITIONS",
    "STEPS",
    "TRIGGERS",
    "VARIABLE",
    "ActionStep",
    "Do",
    "If",
    "On",
    "Part",
    "Reasons",
    "Trigger",
    "read_parts",
]


def _kinds(family: type) -> dict[str, type[Part]]:
    return {kind.word: kind for kind in vars(family).values() if isinstance(kind, type) and issubclass(kind, Part)}


TRIGGERS: Final = _kinds(On)
STEPS: Final = _kinds(Do)
CONDITIONS: Final = _kinds(If)

_BY_HAND: Final = {
    f"{verb}_{what}transfer": f"is no step: an operator does it, by `ampsq replication {verb}-proxied-transfer`"
    for verb in ("enable", "disable")
    for what in ("", "proxied_")
}


def read_parts(element: str, value: object, kinds: Mapping[str, type[Part]]) -> tuple[list[Part], list[Fault]]:
    """Read one part or a list of parts: those that are right, and what is wrong with the others.

    Args:
        element: what they are of, for faults: ``do`` or, in a list, ``do[1]``.
        value: parts, mappings ``{word: elements}``, or words of parts that need no element.
        kinds: the parts that are allowed, by word.
    """
    listed = list(value) if isinstance(value, list | tuple) else [value]
    parts, faults = [], []
    for number, item in enumerate(listed):
        where = f"{element}[{number}]" if isinstance(value, list | tuple) else element
        found = _read_part(item, kinds)
        if isinstance(found, Part):
            parts.append(found)
        else:
            faults += [Fault(where, text) for text in found]
    return parts, faults


def _read_part(value: object, kinds: Mapping[str, type[Part]]) -> Part | list[str]:
    if isinstance(value, Part):
        return value if type(value) in kinds.values() else [f"{value.word} does not belong here; {_allowed(kinds)}"]
    word, given = next(iter(value.items())) if isinstance(value, dict) and len(value) == 1 else (value, None)
    if not isinstance(word, str):
        return [f"{shown(value)}: {_allowed(kinds)}"]
    if word in _BY_HAND:
        return [f"{word} {_BY_HAND[word]}"]
    kind = kinds.get(word) or {kind.module: kind for kind in kinds.values()}.get(word)
    if kind is None:
        return [f"{shown(word)}: {nearest(word, kinds, 'word')}"]
    inner = {} if given is None else {kind.main: given} if kind.main and not isinstance(given, dict) else given
    if not isinstance(inner, dict):
        return [f"{word}: {shown(inner)}: allowed are its elements, {', '.join(kind.model_fields)}"]
    faults = [
        f"{word}: {element}: {text}" for element, text in (_with_allowed(kind, fault) for fault in kind.faults(inner))
    ]
    return faults or kind(**inner)


def _with_allowed(kind: type[Part], fault: Fault) -> Fault:
    """A missing element is told with what it is."""
    if not fault.text.startswith("missing"):
        return fault
    meaning = re.search(rf"^\s+{fault.element}: ([^.;]*)", kind.__doc__ or "", re.MULTILINE)
    return Fault(fault.element, f"missing; {meaning[1]}") if meaning else fault


def _allowed(kinds: Mapping[str, type[Part]]) -> str:
    example = f"{{{next(iter(kinds))}: ...}}"
    return f"allowed: one of the words {', '.join(kinds)} with its elements, as in {example}"
