"""Reads the addresses and the address settings of an Artemis ``broker.xml``, whole or in parts.

    <addresses>
       <address name="myRing"><anycast><queue name="myRing" ring-size="3"/></anycast></address>
    </addresses>

A queue of an address is a queue over the topic of the address's name; an address without one is a topic. Where the file
says that a queue has groups, itself or in a setting of its address, publishers name them (``group=``), and each has one
message out at a time. Whatever else stands in the file is named in a warning, once, and not acted on.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from ampsq.base.errors import DefinitionError
from ampsq.base.values import shown
from ampsq.definitions.address_setting import NO_LIMIT, AddressSetting, covers
from ampsq.definitions.definition import Loaded
from ampsq.definitions.queue import Queue, Topic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ampsq.definitions.definition import Definition, Lines
    from ampsq.files.xml_elements import Element

__all__ = ["read_broker_xml"]

_log = logging.getLogger("ampsq")

_ROOTS: Final = ("configuration", "core", "addresses", "address-settings")
_ROUTING: Final = ("anycast", "multicast")
_DEFAULT: Final = "default-"
_PINNED: Final = (
    "a group stays with one consumer in Artemis, which may have several messages of it; here whoever is free gets the "
    "next one, once the one before it is settled; define the queue with group_affinity where its groups should stay "
    "(docs/groups.md)"
)
_FIRST_KEY: Final = (
    "group-first-key is not acted on: message.group_begins says that a message is the first of its group for its "
    "consumer, where the queue has group_affinity (docs/groups.md)"
)
_MADE_LATER: Final = (
    "defaults of groups count for the queues of this file alone: one that is made when it is first used has no groups; "
    "define those that need them"
)
#: What to do instead of some elements that are not acted on.
_HINTS: Final = {
    "address-setting/dead-letter-address": "define an action for each queue: dead_letter: {queue: ..., topic: ...}",
    "core/grouping-handler": "each instance has an order of its own; define the groups on the one that delivers them",
    "queue/filter": "the queue gets every message; an element `filter` of a queue reads the body",
}


def _milliseconds(text: str) -> str | None:
    return None if int(text) == NO_LIMIT else f"{int(text)}ms"


def _expiry(text: str) -> str | int:
    return NO_LIMIT if int(text) == NO_LIMIT else f"{int(text)}ms"


def _truth(text: str) -> bool:
    if text not in ("true", "false", "1", "0"):
        raise ValueError("allowed: true or false")
    return text in ("true", "1")


def _buckets(text: str) -> int:
    number = int(text)
    if number < -1:
        raise ValueError("allowed: -1 for no limit, 0 for no groups, or a number of buckets")
    return number


#: What a queue, or behind `default-` a setting, says of groups, and how its text is read.
_GROUPS: Final[dict[str, Callable[[str], Any]]] = {
    "group-buckets": _buckets,
    "group-rebalance": _truth,
    "group-rebalance-pause-dispatch": _truth,
    "group-first-key": str,
}
#: Elements of a setting that are acted on, and how their text is read. Artemis's times are milliseconds.
_SETTINGS: Final[dict[str, Callable[[str], Any]]] = {
    "default-ring-size": int,
    "auto-create-queues": _truth,
    "redelivery-delay": _milliseconds,
    "redelivery-delay-multiplier": float,
    "redelivery-collision-avoidance-factor": float,
    "max-redelivery-delay": _milliseconds,
    "max-delivery-attempts": int,
    "expiry-delay": _expiry,
}


def read_broker_xml(root: Element) -> Loaded:
    """Read definitions from a file.

    Args:
        root: a ``configuration``, ``core``, ``addresses`` or ``address-settings`` element.

    Returns:
        Topics, settings and queues. Of settings that say nothing of `auto_create_queues` it is true, as in Artemis,
        unless a less specific one of the file that matches the same names says otherwise.

    Raises:
        DefinitionError: it is no such file, or defines what is wrong: a line for each fault.
    """
    reader = _Reader(root.source)
    definitions = reader.read(root)
    for line, warning in sorted(reader.warnings()):
        _log.warning("%s:%d: %s", root.source, line, warning)
    return definitions


def _has_groups(said: Mapping[str, Any]) -> bool:
    """Say whether that is of a queue whose publishers name groups; without a word, or as by default, nobody knows."""
    return said.get("group-buckets") != 0 and (
        (said.get("group-buckets") or 0) > 0
        or bool(
            said.get("group-rebalance") or said.get("group-rebalance-pause-dispatch") or said.get("group-first-key")
        )
    )


class _Reader:
    """Reads one file to its end, collecting what is wrong with it and what is not acted on.

    Attributes:
        ignored: element, behind the one around it -> its first line.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self.ignored: dict[str, int] = {}
        self._lines: dict[tuple[str, str], Lines] = {}
        self._warnings: list[tuple[int, str]] = []
        self._faults: list[tuple[int, str]] = []
        self._topics: list[Definition] = []
        self._queues: list[Definition] = []
        self._pending: list[tuple[Element, dict[str, Any], dict[str, Any]]] = []
        self._group_defaults: list[tuple[AddressSetting, dict[str, Any]]] = []
        self._settings: list[tuple[Element, dict[str, Any]]] = []

    def warnings(self) -> list[tuple[int, str]]:
        """Return the warnings about the file, each with its line."""
        hints = {path: f"; {_HINTS[path]}" if path in _HINTS else "" for path in self.ignored}
        ignored = [(line, f"{path} is not acted on{hints[path]}") for path, line in self.ignored.items()]
        return ignored + self._warnings

    def read(self, root: Element) -> Loaded:
        """Everything that the file defines, or the refusal of the whole file."""
        if root.tag not in _ROOTS:
            raise DefinitionError(
                f"{self._source}:{root.line}: {root.tag!r} is no part of a broker.xml; allowed: {', '.join(_ROOTS)}"
            )
        self._section(root)
        settings = self._made_settings()
        self._make_queues()
        if self._faults:
            raise DefinitionError("\n".join(f"{self._source}:{line}: {text}" for line, text in sorted(self._faults)))
        return Loaded([*self._topics, *settings, *self._queues], self._source, self._lines)

    def _section(self, element: Element) -> None:
        readers: dict[str, Mapping[str, Callable[[Element], None]]] = {
            "configuration": {"core": self._section},
            "core": {"addresses": self._section, "address-settings": self._section},
            "addresses": {"address": self._address},
            "address-settings": {"address-setting": self._setting},
        }
        self._each(element, readers[element.tag])

    def _each(self, element: Element, readers: Mapping[str, Callable[[Element], None]]) -> None:
        for child in element.children:
            read = readers.get(child.tag)
            if read is None:
                self._ignore(element, child.tag, child.line)
            else:
                read(child)

    def _ignore(self, element: Element, what: str, line: int) -> None:
        self.ignored.setdefault(f"{element.tag}/{what}", line)

    def _named(self, element: Element, known: tuple[str, ...]) -> str | None:
        """The first of the attributes known, which is the element's name; others are named in a warning."""
        for attribute in element.attributes:
            if attribute not in known:
                self._ignore(element, f"@{attribute}", element.line)
        name = element.attributes.get(known[0])
        if name is None:
            self._faults.append((element.line, f"{element.tag}: {known[0]}: missing; allowed: a text"))
        return name

    # -- addresses

    def _address(self, element: Element) -> None:
        name = self._named(element, ("name",))
        if name is None:
            return
        before = len(self._pending)
        self._each(element, dict.fromkeys(_ROUTING, lambda routing: self._routing(routing, name)))
        if len(self._pending) == before:
            self._add(self._topics, Topic, {"name": name}, element)

    def _routing(self, element: Element, address: str) -> None:
        queues = [child for child in element.children if child.tag == "queue"]
        if element.tag == "anycast" and len(queues) > 1:
            text = f"address {address!r}: its anycast queues share its messages in Artemis; here each gets all of them"
            self._warnings.append((element.line, text))
        self._each(element, {"queue": lambda queue: self._queue(queue, address)})

    def _queue(self, element: Element, address: str) -> None:
        name = self._named(element, ("name", "ring-size", *_GROUPS))
        groups: dict[str, Any] = {}

        def note(what: str, text: str, line: Element) -> None:
            groups[what] = self._value(line, what, text, _GROUPS[what])

        for what in _GROUPS.keys() & element.attributes.keys():
            note(what, element.attributes[what], element)
        self._each(element, dict.fromkeys(_GROUPS, lambda child: note(child.tag, child.text, child)))
        if name is None:
            return
        size = element.attributes.get("ring-size")
        ring = None if size is None else self._value(element, "ring-size", size, int)
        self._pending.append((element, {"name": name, "underlying_topic": address, "ring_size": ring}, groups))

    def _make_queues(self) -> None:
        """Make the queues, once all settings are known: those of an address say what its queues say nothing of."""
        told: dict[str, int] = {}
        for element, elements, own in self._pending:
            groups = dict(own)
            address = elements["underlying_topic"]
            matching = [each for each in self._group_defaults if each[0].matches(address)]
            for _, defaults in sorted(matching, key=lambda each: each[0].rank):
                groups = defaults | groups
            if _has_groups(groups):
                elements["group_concurrency"] = 1
                told.setdefault(_PINNED, element.line)
                if groups.get("group-first-key"):
                    told.setdefault(_FIRST_KEY, element.line)
            self._add(self._queues, Queue, elements, element)
        self._warnings += [(line, text) for text, line in told.items()]

    def _add(self, made: list[Definition], kind: type[Definition], elements: dict[str, Any], element: Element) -> None:
        faults = kind.faults(elements)
        for fault in faults:
            self._faults.append((element.line, f"{kind.title(elements)}: {fault.element}: {fault.text}"))
        if faults:
            return
        new = kind(**elements)
        first = self._lines.get((kind.__name__, new.name))
        if first is None:
            made.append(new)
            self._lines[kind.__name__, new.name] = {"": element.line}
        elif kind is not Topic:
            text = f"{kind.title(elements)}: defined twice, first at line {first['']}; allowed: once in a file"
            self._faults.append((element.line, text))

    def _value(self, element: Element, name: str, text: str, read: Callable[[str], Any]) -> Any:
        try:
            return read(text.strip())
        except ValueError as reason:
            told = str(reason) if "allowed" in str(reason) else "allowed: a number"
            self._faults.append((element.line, f"{name}: {shown(text.strip())} is not known; {told}"))
            return None

    # -- settings

    def _setting(self, element: Element) -> None:
        match = self._named(element, ("match",))
        if match is None:
            return
        if before := next((each.line for each, elements in self._settings if elements["match"] == match), 0):
            text = f"address-setting {match!r} is not acted on: that of line {before} counts, as in Artemis"
            self._warnings.append((element.line, text))
            return
        elements: dict[str, Any] = {"match": match}
        groups: dict[str, Any] = {}
        for child in element.children:
            read, what = _SETTINGS.get(child.tag), child.tag.removeprefix(_DEFAULT)
            if what in _GROUPS and what != child.tag:
                groups[what] = self._value(child, child.tag, child.text, _GROUPS[what])
            elif read is None:
                self._ignore(element, child.tag, child.line)
            else:
                elements[child.tag.replace("-", "_")] = self._value(child, child.tag, child.text, read)
        self._settings.append((element, elements))
        if groups and not AddressSetting.faults({"match": match}):
            self._group_defaults.append((AddressSetting(match=match), groups))
            if _has_groups(groups) and all(text != _MADE_LATER for _, text in self._warnings):
                self._warnings.append((element.line, _MADE_LATER))

    def _made_settings(self) -> list[Definition]:
        made: list[Definition] = []
        telling = [elements["match"] for _, elements in self._settings if "auto_create_queues" in elements]
        for element, elements in self._settings:
            wrong = [fault for fault in AddressSetting.faults(elements) if fault.element == "match"]
            if wrong:
                what = f"address-setting {elements['match']!r}, which matches no name of ours,"
                self.ignored.setdefault(what, element.line)
                continue
            if not any(covers(other, elements["match"]) for other in telling):
                elements["auto_create_queues"] = True
            self._add(made, AddressSetting, elements, element)
        return made
