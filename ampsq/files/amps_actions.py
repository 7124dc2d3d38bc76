"""Reads the actions of a configuration of AMPS: its modules by their names, its options by theirs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from ampsq.base.values import NAME_ALLOWED, is_name
from ampsq.definitions.action import Action
from ampsq.definitions.action_parts import CONDITIONS, STEPS, TRIGGERS, Part
from ampsq.definitions.queue import Queue, Topic, View
from ampsq.definitions.topic import ConflatedTopic
from ampsq.files.amps_elements import MODULES
from ampsq.files.amps_names import safe_name
from ampsq.files.amps_sow import children_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ampsq.definitions.definition import Definition
    from ampsq.files.amps_collector import Collector
    from ampsq.files.amps_sow import SowReader
    from ampsq.files.xml_elements import Element

__all__ = ["ActionReader"]

#: Element of an action -> the element of a definition, and its parts by AMPS's names of them.
_PARTS: Final[Mapping[str, tuple[str, Mapping[str, type[Part]]]]] = {
    tag: (element, {kind.module: kind for kind in kinds.values()})
    for tag, element, kinds in (("On", "on", TRIGGERS), ("If", "if", CONDITIONS), ("Do", "do", STEPS))
}
#: Options that are called otherwise here.
_OTHERWISE: Final = {"crontab": "cron"}
_DELETION: Final = "amps-action-do-delete-sow"
_LEAVES: Final = "it is no queue; `sow_and_subscribe` tells of what leaves records and views"
#: Modules that follow what only queues have -> why others do not.
_QUEUES_ONLY: Final = {
    "amps-action-on-sow-expire-message": _LEAVES,
    "amps-action-on-sow-delete-message": _LEAVES,
    "amps-action-on-deliver-message": "it is no queue; deliveries of queues alone are recorded",
}
#: Modules about what only records have; what their filter reads.
_RECORDS_ONLY: Final = ("amps-action-on-message-condition-timeout", _DELETION, "amps-action-do-query-sow")
_READING: Final = (*_RECORDS_ONLY, "amps-action-on-publish-message")
_WORD: Final = re.compile("(?<=[a-z])(?=[A-Z])")
_NOT_OF_NAMES: Final = re.compile(r"[^A-Za-z0-9_./-]+")
#: The longest name of an action that is made of what sets it off, so that a number may follow.
_LONGEST: Final = 240


class ActionReader:
    """Reads actions.

    Args:
        collector: what they become.
        sow: what was read of the topics and queues that they are about.
    """

    def __init__(self, collector: Collector, sow: SowReader) -> None:
        self._collector, self._sow = collector, sow

    def read(self, root: Element) -> None:
        """Read the definitions of a file."""
        keys = {topic.name: topic.key for topic in self._collector.found if isinstance(topic, Topic) and topic.key}
        for element in children_of(root, "Actions", "Action"):
            missing = _missing_module(element) or self._about_nothing(element)
            if missing is not None:
                module, reason = missing
                text = f"Action/{module.tag}: {module.text.strip()} is not acted on, nor is its action; {reason}"
                self._collector.leave_out(element, module, text)
                continue
            element.is_read = True
            tags = [child.tag for child in element.children if child.tag in _PARTS]
            if "If" in tags[tags.index("Do") if "Do" in tags else len(tags) :]:
                late = [child for child in element.children if child.tag == "If"][-1]
                self._collector.warn(
                    late, "Action/If behind a Do: all conditions are looked at before anything is done"
                )
            self._name_events(element)
            names = [action.name for action in self._collector.found if isinstance(action, Action)]
            self._collector.add(Action, _action_elements(element, keys, names), element)

    def _name_events(self, action: Element) -> None:
        """Make names of events, which are free texts in AMPS; the same one of the same text."""
        for option in action.walk():
            name = safe_name(option.text)
            if option.tag == "Event" and not option.fault and name and not is_name(option.text.strip()):
                text, option.text = option.text.strip(), name
                self._collector.warn(option, f"Options/Event: {text!r} is {name!r} here; a name has {NAME_ALLOWED}")

    def _about_nothing(self, action: Element) -> tuple[Element, str] | None:
        """Return the element, and the reason, if an action is about something that has no state here to follow."""
        for part in action.children:
            module = next((child.text.strip() for child in part.children if child.tag == "Module"), "")
            options = [each for child in part.children if child.tag == "Options" for each in child.children]
            for option in options:
                if option.tag == "Topic":
                    is_filtered = any(each.tag == "Filter" for each in options)
                    reason = self._why_not_about(module, option.text.strip(), is_filtered=is_filtered)
                    if reason:
                        return option, reason
        return None

    def _why_not_about(self, module: str, name: str, *, is_filtered: bool) -> str:
        """Say why a part of an action cannot be about a name of this file; empty: it can, or there is no such name."""
        kinds: dict[str, Definition] = {
            each.name: each
            for each in reversed(self._collector.found)
            if isinstance(each, Topic | View | ConflatedTopic)
        }
        about = (
            None
            if any(isinstance(each, Queue) and each.name == name for each in self._collector.found)
            else kinds.get(name)
        )
        reasons = {
            "that is left out, too": name in self._sow.absent,
            "expressions cannot read its bodies": is_filtered and module in _READING and name in self._sow.opaque,
            _QUEUES_ONLY.get(module, ""): about is not None,
            "it is no topic: what it shows is its topic's": module == _DELETION and isinstance(about, View),
            "it records nothing: its underlying topic does": module in _RECORDS_ONLY
            and isinstance(about, ConflatedTopic),
            "the topic has no key here, and so no records": module in _RECORDS_ONLY
            and isinstance(about, Topic)
            and not about.key,
        }
        return next((reason for reason, holds in reasons.items() if reason and holds), "")


def _missing_module(action: Element) -> tuple[Element, str] | None:
    """The first module of an action that there is nothing for, with the reason; None: there is something for all."""
    for part in action.children:
        if part.tag in _PARTS:
            module = next((child for child in part.children if child.tag == "Module"), part)
            name = module.text.strip()
            if name not in _PARTS[part.tag][1]:
                return module, MODULES.get(name, "no such module is known")
            options = {each.tag for child in part.children if child.tag == "Options" for each in child.children}
            if "EventVariable" in options and "Event" not in options:
                return module, "an event is raised by its name, not by a variable"
    return None


def _action_elements(action: Element, keys: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
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
        name = _OTHERWISE.get(name, name)
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
    about = next((str(options[name]) for name in ("topic", "every", "cron", "event") if name in options), "")
    end = _NOT_OF_NAMES.sub("-", about).strip("-.")
    name = f"on-{word}-{end}".strip("-")[:_LONGEST]
    number = next(number for number in range(1, len(taken) + 2) if _numbered(name, number) not in taken)
    return _numbered(name, number)


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name}-{number}"
