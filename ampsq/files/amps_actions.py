"""Reads the actions of a configuration of AMPS: its modules by their names, its options by theirs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from ampsq.definitions.action_parts import CONDITIONS, STEPS, TRIGGERS, Part
from ampsq.files.amps_elements import MODULES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ampsq.files.xml_elements import Element

__all__ = ["action_elements", "missing_module"]

#: Element of an action -> the element of a definition, and its parts by AMPS's names of them.
_PARTS: Final[Mapping[str, tuple[str, Mapping[str, type[Part]]]]] = {
    tag: (element, {kind.module: kind for kind in kinds.values()})
    for tag, element, kinds in (("On", "on", TRIGGERS), ("If", "if", CONDITIONS), ("Do", "do", STEPS))
}
_WORD: Final = re.compile("(?<=[a-z])(?=[A-Z])")
_NOT_OF_NAMES: Final = re.compile(r"[^A-Za-z0-9_./-]+")
#: The longest name of an action that is made of what sets it off, so that a number may follow.
_LONGEST: Final = 240


def missing_module(action: Element) -> tuple[Element, str] | None:
    """The first module of an action that there is nothing for, with the reason; None: there is something for all."""
    for part in action.children:
        if part.tag in _PARTS:
            module = next((child for child in part.children if child.tag == "Module"), part)
            name = module.text.strip()
            if name not in _PARTS[part.tag][1]:
                return module, MODULES.get(name, "no such module is known")
    return None


def action_elements(action: Element, keys: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """The elements of the definition of an action, all of whose modules are known.

    Args:
        action: the element of the file. What is acted on of it is marked.
        keys: the keys of topics, for time-outs, which in AMPS go by that of their topic.
        names: those of the actions before it. AMPS's have none: one is named by what first sets it off, so that it
            stays the same action when it does something else.
    """
    elements: dict[str, Any] = {"on": [], "if": [], "do": []}
    for part in action.children:
        if part.tag in _PARTS:
            element, kinds = _PARTS[part.tag]
            kind, options = _options(part, kinds)
            if kind.word == "timeout" and options.get("topic") in keys:
                options.setdefault("key", keys[options["topic"]])
            elements[element].append({kind.word: options})
        elif part.tag == "Name":
            part.is_read = True
            elements["name"] = part.text.strip()
    given = {element: value for element, value in elements.items() if value}
    return {"name": _name(given, set(names)), **given}


def _options(part: Element, kinds: Mapping[str, type[Part]]) -> tuple[type[Part], dict[str, Any]]:
    part.is_read = True
    options: dict[str, Any] = {}
    kind = Part
    given: list[Element] = []
    for child in part.children:
        child.is_read = child.tag in ("Module", "Options")
        if child.tag == "Module":
            kind = kinds[child.text.strip()]
        elif child.tag == "Options":
            given += child.children
    for option in given:
        name = _WORD.sub("_", option.tag).lower()
        if name in kind.model_fields:
            option.is_read = True
            text = option.text.strip()
            options[name] = [*_listed(options[name]), text] if name in options else text
    return kind, options


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _name(elements: Mapping[str, Any], taken: set[str]) -> str:
    triggers: list[dict[str, dict[str, Any]]] = elements.get("on", [])
    word, options = next(iter(triggers[0].items())) if triggers else ("nothing", {})
    about = next((str(options[name]) for name in ("topic", "every", "event") if name in options), "")
    end = _NOT_OF_NAMES.sub("-", about).strip("-.")
    name = f"on-{word}-{end}".strip("-")[:_LONGEST]
    number = next(number for number in range(1, len(taken) + 2) if _numbered(name, number) not in taken)
    return _numbered(name, number)


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name}-{number}"
