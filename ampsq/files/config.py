"""Reads definitions from one YAML file, from an Artemis ``broker.xml``, or from a configuration of AMPS.

    include: [topics.yaml, queues/*.yaml]
    name: nyc-1
    group: NYC
    instance:
      topics: defined
    url: redis://${REDIS_HOST:-localhost}:6379
    message_memory_limit: 1GB
    transports:
      - name: low
        client_message_age_limit: 15s
    topics:
      - name: orders
    address_settings:
      - match: ring.#
        default_ring_size: 3
    queues:
      - name: work
        underlying_topic: orders
        lease_period: 30s
    local_queues:
      - name: audit
        underlying_topic: orders
    group_local_queues:
      - name: local-work
        underlying_topic: orders
        initial_owner: nyc-1
    views:
      - name: open-orders
        underlying_topic: work
        projection: [/symbol, SUM(/qty) AS /total]
        grouping: [/symbol]
    conflated_topics:
      - {name: orders-slow, underlying_topic: orders, interval: 5s, key: [/id]}
    actions:
      - dead_letter: {queue: work, topic: dead}
      - name: copy
        on: {publish: orders}
        do: {publish: {topic: all, data: "{{AMPS_DATA}}"}}
    destinations:
      - name: nyc-2
        sync_type: sync
        topics: [orders, {name: work, exclude_validation: [cascade]}]
        addresses: ["redis://nyc-2:6379"]

The elements are those of `ampsq.definitions.queue`. Every value is read as the text that stands in the file, so that
almost nothing has to be quoted: a queue may be named ``on``, ``no`` or ``2024``. Nothing after a colon, ``~``
and ``null`` mean the default. Anchors and ``<<`` work, for queues that have much in common. An expression has to be
quoted only where YAML would read something else: if it begins with a quote or a square bracket, has ``#`` after a
space or a colon before one, or, within a list in brackets, has commas or brackets. ``${NAME}`` and ``${NAME:-default}``
in a value come from the environment; docs/configuration.md has everything about files.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ampsq.base.errors import DefinitionError
from ampsq.base.suggestions import nearest
from ampsq.base.values import INSTANCE_TRANSPORT, parse_name, shown
from ampsq.definitions.action import Action, DeadLetterAction
from ampsq.definitions.address_setting import AddressSetting
from ampsq.definitions.definition import Fault, Lines, Loaded
from ampsq.definitions.destination import Destination
from ampsq.definitions.instance import ITSELF, Instance
from ampsq.definitions.queue import Definition, GroupLocalQueue, LocalQueue, Queue, Topic, View
from ampsq.definitions.topic import ConflatedTopic
from ampsq.definitions.transport import Transport
from ampsq.files.amps_xml import is_amps, read_amps_xml
from ampsq.files.broker_xml import read_broker_xml
from ampsq.files.file_faults import Faults, FilePosition, read_file
from ampsq.files.xml_elements import is_xml, parse_xml
from ampsq.files.yaml_nodes import (
    INCLUDE,
    File,
    Node,
    comment_hint,
    is_filled,
    key_of,
    merge,
    place_of,
    read_files,
    value_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["AT_THE_TOP", "OF_GATEWAY", "OF_INSTANCE", "SECTIONS", "load"]

SECTIONS: Final[dict[str, type[Definition]]] = {
    "transports": Transport,
    "topics": Topic,
    "address_settings": AddressSetting,
    "queues": Queue,
    "local_queues": LocalQueue,
    "group_local_queues": GroupLocalQueue,
    "views": View,
    "conflated_topics": ConflatedTopic,
    "actions": Action,
    "destinations": Destination,
}
"""The sections of a file, each a list of definitions of one kind."""

AT_THE_TOP: Final[dict[type[Definition], tuple[str, frozenset[str]]]] = {
    Instance: (ITSELF, frozenset(Instance.model_fields) - SECTIONS.keys()),
    Transport: (INSTANCE_TRANSPORT, frozenset(Transport.model_fields) - {"name"}),
}
"""Elements that may stand at the top of a file, too: of the instance, and of its transport `*`."""

OF_INSTANCE: Final = "instance"
"""The section of the instance: its elements, those too whose name at the top is that of another section."""

OF_GATEWAY: Final = ("users", "entitlements", "gateway")
"""Sections that a gateway reads (docs/gateway.md); they define nothing."""

_KINDS: Final[tuple[type[Definition], ...]] = (Instance, *SECTIONS.values())
_FILE_ALLOWED: Final = f"the sections {', '.join(SECTIONS)}, each a list of definitions"
#: How deep an element's value may be: a list of texts, unless a kind has more.
_DEPTH: Final = 2
_DEEPER: Final[dict[type[Definition], int]] = {Action: 5, Destination: 3}


def load(path_or_text: str | Path) -> Loaded:
    """Read definitions from a YAML file, from a ``broker.xml``, or from a configuration of AMPS, all or none.

    Args:
        path_or_text: a `Path`, or a text: what a file has when it has a line break or a colon, else a file's path.

    Returns:
        What the file defines, by kind, each in the order of the file, and where each stands.

    Raises:
        DefinitionError: the file, or one that it includes, cannot be read, is not YAML, or something in it is wrong:
            the text has a line ``file:line: definition: element: what is wrong`` for each thing. Or PyYAML is missing.
    """
    text, path = _read(path_or_text)
    if is_xml(text):
        root = parse_xml(text, "<text>" if path is None else str(path))
        return read_amps_xml(root, path) if is_amps(root) else read_broker_xml(root)
    faults = Faults()
    return _Reader(read_files(text, path, faults), faults).definitions()


def _read(path_or_text: str | Path) -> tuple[str, Path | None]:
    """The text, and the file that has it."""
    if isinstance(path_or_text, str) and ("\n" in path_or_text or ":" in path_or_text):
        return path_or_text, None
    try:
        return read_file(Path(path_or_text)), Path(path_or_text)
    except FileNotFoundError:
        raise DefinitionError(f"{path_or_text}: no such file") from None
    except (OSError, UnicodeDecodeError) as reason:
        raise DefinitionError(f"{path_or_text}: cannot be read as a UTF-8 text file: {reason}") from None


def _url(value: object) -> str:
    from ampsq.base.addresses import parse_endpoints  # noqa: PLC0415 - redis-py is slow to import

    if not isinstance(value, str):
        raise DefinitionError(f"{shown(value)} is no address; allowed: one text, as in redis://localhost:6379")
    parse_endpoints(value)
    return value


#: What a file says of itself rather than of a definition.
_OF_FILE: Final[dict[str, Callable[[object], str]]] = {"url": _url, "domain": parse_name}


class _Reader:
    """Reads files to their end, collecting what is wrong with them."""

    def __init__(self, files: list[File], faults: Faults) -> None:
        self._files = files
        self._file = files[-1]
        self._faults = faults
        self._instance: list[Definition] = []
        self._lines: dict[tuple[str, str], Lines] = {}
        self._sources: dict[tuple[str, str], str] = {}
        self._first: dict[tuple[type[Definition], str], FilePosition] = {}
        self._domain: str | None = None

    def definitions(self) -> Loaded:
        """Everything that the files define, or the refusal of all."""
        found: list[Definition] = []
        top: dict[str, tuple[FilePosition, Node]] = {}
        sections = [(file, self._sections(file, top)) for file in self._files]
        of_file = self._of_file(top)
        self._domain = of_file.get("domain")
        for kind, (default, names) in AT_THE_TOP.items():
            elements = names.union(kind.model_fields) if kind is Instance else names
            self._at_the_top(kind, default, {name: place for name, place in top.items() if name in elements})
        for self._file, named in sections:
            for name, node in named:
                found += self._section(name, node)
        self._faults.refuse()
        in_order = sorted(self._instance + found, key=lambda definition: _KINDS.index(type(definition)))
        loaded = Loaded(in_order, self._files[-1].source, self._lines)
        loaded.sources, loaded.url = self._sources, of_file.get("url")
        return loaded

    def _sections(self, file: File, top: dict[str, tuple[FilePosition, Node]]) -> list[tuple[str, Node]]:
        """The sections of a file, and at the top what it says besides."""
        self._file = file
        if file.root is None or file.root.id != "mapping":
            place = FilePosition(file.source, 1)
            self._faults.add(place, f"the file has no definitions; allowed: {_FILE_ALLOWED}")
            return []
        sections = []
        known = [*_OF_FILE, *(name for _, elements in AT_THE_TOP.values() for name in elements)]
        for name, (place, node) in self._pairs(file.root).items():
            if name in SECTIONS:
                sections.append((name, node))
            elif name == OF_INSTANCE:
                self._of_instance(place, node, top)
            elif name in known:
                self._once(name, place, node, top)
            elif name != INCLUDE and name not in OF_GATEWAY:
                there = [*SECTIONS, OF_INSTANCE, *known, INCLUDE]
                self._faults.add(place, f"{name}: {nearest(name, there, 'section')}")
        return sections

    def _of_instance(self, place: FilePosition, section: Node, top: dict[str, tuple[FilePosition, Node]]) -> None:
        """Take what a file says of the instance in its section as if it stood at the top."""
        if section.id != "mapping":
            if value_of(section) is not None:
                text = f"{shown(value_of(section))} is not a mapping; allowed: its elements, as in topics: defined"
                self._faults.add(place, f"{OF_INSTANCE}: {text}")
            return
        for name, (at, node) in self._pairs(section).items():
            if name in Instance.model_fields:
                self._once(name, at, node, top)
            else:
                self._faults.add(at, f"{OF_INSTANCE}: {name}: {nearest(name, Instance.model_fields)}")

    def _once(self, name: str, place: FilePosition, node: Node, top: dict[str, tuple[FilePosition, Node]]) -> None:
        if name in top:
            first = self._position_text(top[name][0], place)
            self._faults.add(place, f"{name}: given twice, first at {first}; allowed: once")
        else:
            top[name] = (place, node)

    @staticmethod
    def _position_text(first: FilePosition, second: FilePosition) -> str:
        """Describe the place of the first of two for a reader at the second."""
        return f"line {first.line}" if first.source == second.source else str(first)

    def _of_file(self, top: dict[str, tuple[FilePosition, Node]]) -> dict[str, str]:
        found = {}
        for name, read in _OF_FILE.items():
            place, node = top.get(name, (None, None))
            given = None if node is None else value_of(node)
            if place is None or given is None:
                continue
            try:
                found[name] = read(given)
            except DefinitionError as reason:
                self._faults.add(place, f"{name}: {reason}")
        return found

    def _at_the_top(self, kind: type[Definition], name: str, elements: dict[str, tuple[FilePosition, Node]]) -> None:
        """Add the definitions of the instance, or of its transport, from elements outside of all sections."""
        if not elements:
            return
        values = {"name": name, **{element: value_of(node) for element, (_, node) in elements.items()}}
        faults = kind.faults(values)
        for element, text in faults:
            self._faults.add(elements[element][0], f"{element}: {text}")
        if faults:
            return
        first = min((place for place, _ in elements.values()), key=lambda place: place.line)
        made = kind(**values)
        self._first[kind, made.name] = first
        self._note(made, first, elements)
        self._instance.append(made)

    def _section(self, name: str, node: Node) -> list[Definition]:
        if node.id == "sequence":
            made = [self._definition(SECTIONS[name], item) for item in node.value]
            return [definition for definition in made if definition is not None]
        if value_of(node) is not None:
            text = f"{name}: {shown(value_of(node))} is not a list; allowed: a list of definitions"
            if name in Instance.model_fields:
                text += f"; which ones the instance takes is another thing, as in {OF_INSTANCE}: {{{name}: defined}}"
            self._faults.add(place_of(node), text)
        return []

    def _definition(self, kind: type[Definition], node: Node) -> Definition | None:
        """Make one definition, or note what is wrong with it."""
        elements = self._elements(kind, node)
        if elements is None:
            return None
        if kind is Action and self._is_dead_letter(node):
            kind = DeadLetterAction
        depth = _DEEPER.get(kind, _DEPTH)
        values = {element: value_of(value, depth) for element, (_, value) in elements.items()}
        if kind is GroupLocalQueue and self._domain is not None:
            values.setdefault("group_local_queue_domain", self._domain)
        unfilled = {element for element, (_, value) in elements.items() if not is_filled(value)}
        faults = kind.faults(values) or _silent(kind, values)
        for element, text in faults:
            if element.partition("[")[0] in unfilled:
                continue
            place = _place_in(element, elements, node)
            is_empty = element in values and values[element] is None
            hint = comment_hint(self._file.text, place.line - 1) if is_empty else ""
            self._faults.add(place, f"{kind.title(values)}: {element}: {text}{hint}")
        if faults or unfilled:
            return None
        made = kind(**values)
        definition = made.action() if isinstance(made, DeadLetterAction) else made
        # Queues of all kinds have one space of names.
        named = (Queue if isinstance(definition, Queue) else type(definition), definition.name)
        place = place_of(node)
        if named in self._first:
            told = self._position_text(self._first[named], place)
            self._faults.add(place, f"{kind.title(values)}: defined twice, first at {told}; allowed: once in a file")
        self._first.setdefault(named, place)
        self._note(definition, place, elements)
        return definition

    def _note(
        self, definition: Definition, first: FilePosition, elements: dict[str, tuple[FilePosition, Node]]
    ) -> None:
        """Keep where a definition stands."""
        named = (type(definition).__name__, definition.name)
        # What a merged or an included part says may stand in another file.
        lines = {element: place.line for element, (place, _) in elements.items() if place.source == first.source}
        self._lines[named] = {"": first.line, **lines}
        self._sources[named] = first.source

    @staticmethod
    def _is_dead_letter(node: Node) -> bool:
        return any(key_of(key) == "dead_letter" for key, _ in node.value)

    def _elements(self, kind: type[Definition], node: Node) -> dict[str, tuple[FilePosition, Node]] | None:
        """The elements of one definition, with `dead_letter` opened."""
        if node.id != "mapping":
            text = f"{shown(value_of(node))} is not a definition; allowed: elements, as in name: work"
            self._faults.add(place_of(node), f"{kind.__name__}: {text}")
            return None
        elements = self._pairs(node)
        if kind is not Action:
            return elements
        if "dead_letter" not in elements:
            return elements if self._is_plain(elements) else None
        place, inner = elements.pop("dead_letter")
        if elements or inner.id != "mapping":
            text = "stands alone and has elements; allowed: dead_letter: {queue: work, topic: dead}"
            self._faults.add(place, f"Action: dead_letter: {text}")
            return None
        return self._pairs(inner)

    def _is_plain(self, elements: dict[str, tuple[FilePosition, Node]]) -> bool:
        """Return whether nothing in an action is a misspelt `dead_letter`."""
        known = {*Action.model_fields, "if"}
        wrong = difflib.get_close_matches("dead_letter", [each for each in elements if each not in known])
        for name in wrong:
            self._faults.add(elements[name][0], f"Action: {name}: no such element; did you mean 'dead_letter'?")
        return not wrong

    def _pairs(self, node: Node) -> dict[str, tuple[FilePosition, Node]]:
        """Key -> place and value. Keys are texts: for YAML itself, the key ``on`` would be true."""
        places: dict[str, FilePosition] = {}
        for key, _ in node.value:
            name = key_of(key)
            if name in places:
                text = f"{name}: given twice, first at line {places[name].line}; allowed: once"
                self._faults.add(place_of(key), text)
            places.setdefault(name, place_of(key))
        merge(self._file, node)
        return {key_of(key): (place_of(key), value) for key, value in node.value}


def _silent(kind: type[Definition], values: dict[str, Any]) -> list[Fault]:
    """An address setting without an element is a mistake; one that takes something back names it."""
    if kind is not AddressSetting or not values.keys() <= {"match", "name"}:
        return []
    others = ", ".join(element for element in AddressSetting.model_fields if element != "name")
    text = f"says nothing; allowed: with {others}; one with nothing behind its colon takes back what the setting said"
    return [Fault("match", text)]


def _place_in(element: str, elements: dict[str, tuple[FilePosition, Node]], definition: Node) -> FilePosition:
    """Return the place of a fault's element: ``projection[1]`` is the second item of a list."""
    if element in elements:
        return elements[element][0]
    name, _, at = element.rstrip("]").partition("[")
    if not at or name not in elements:
        return place_of(definition)
    # One thing may stand for a list of it.
    node = elements[name][1]
    return place_of(node.value[int(at)]) if node.id == "sequence" else elements[name][0]
