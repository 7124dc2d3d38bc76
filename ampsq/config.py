"""Reads definitions from one YAML file, from an Artemis ``broker.xml``, or from a configuration of AMPS.

    name: nyc-1
    group: NYC
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

The elements are those of `ampsq.models`. Every value is read as the text that stands in the file, so that
almost nothing has to be quoted: a queue may be named ``on``, ``no`` or ``2024``. Nothing after a colon, ``~``
and ``null`` mean the default. Anchors and ``<<`` work, for queues that have much in common. An expression has to be
quoted only where YAML would read something else: if it begins with a quote or a square bracket, has ``#`` after a
space or a colon before one, or, within a list in brackets, has commas or brackets.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ampsq.action import DeadLetter
from ampsq.address_setting import AddressSetting
from ampsq.amps_xml import ROOT, read_amps_xml
from ampsq.broker_xml import is_xml, read_broker_xml
from ampsq.definition import Fault, Lines, Loaded, nearest
from ampsq.destination import Destination
from ampsq.errors import DefinitionError
from ampsq.instance import ITSELF, Instance
from ampsq.models import Action, Definition, GroupLocalQueue, LocalQueue, Queue, Topic, View
from ampsq.transport import INSTANCE, Transport
from ampsq.values import Interval, shown

if TYPE_CHECKING:
    import yaml

__all__ = ["load"]

# A node of PyYAML; its type hints leave out `id`.
_Node = Any

_SECTIONS: dict[str, type[Definition]] = {
    "transports": Transport,
    "topics": Topic,
    "address_settings": AddressSetting,
    "queues": Queue,
    "local_queues": LocalQueue,
    "group_local_queues": GroupLocalQueue,
    "views": View,
    "actions": Action,
    "destinations": Destination,
}
_KINDS: tuple[type[Definition], ...] = (Instance, *_SECTIONS.values())
_FILE_ALLOWED = f"the sections {', '.join(_SECTIONS)}, each a list of definitions"
#: What may stand at the top of a file, too: of the instance, and of its transport `*`.
_AT_THE_TOP: dict[type[Definition], tuple[str, frozenset[str]]] = {
    Instance: (ITSELF, frozenset(Instance.model_fields)),
    Transport: (INSTANCE, frozenset(Transport.model_fields) - {"name"}),
}
#: An element whose value begins with #.
_COMMENT = re.compile(r"(\w+)\s*:\s+(#[A-Za-z0-9_/*#.-]*)")
#: Lines before a fault in which such an element is looked for.
_LOOKED_BACK = 3
_SECONDS = re.compile(r"[0-9]+(\.[0-9]+)?")
_XML_ROOT = re.compile(rf"\A[^<]*(?:<[?!][^>]*>[^<]*)*<{ROOT}[\s/>]")
#: How deep an element's value may be: a list of texts, unless a kind has more.
_DEPTH = 2
_DEEPER: dict[type[Definition], int] = {Action: 5, Destination: 3}


def load(path_or_text: str | Path) -> Loaded:
    """Read definitions from a YAML file, from a ``broker.xml``, or from a configuration of AMPS, all or none.

    Args:
        path_or_text: a `Path`, or a text: what a file has when it has a line break or a colon, else a file's path.

    Returns:
        What the file defines, by kind, each in the order of the file, and where each stands.

    Raises:
        DefinitionError: the file cannot be read, is not YAML, or something in it is wrong: the text has a
            line ``file:line: definition: element: what is wrong`` for each thing. Or PyYAML is missing.
    """
    text, source = _read(path_or_text)
    if is_xml(text):
        return read_amps_xml(text, source) if _XML_ROOT.search(text) else read_broker_xml(text, source)
    try:
        import yaml  # noqa: PLC0415 - only those who read files need it
    except ImportError:
        raise DefinitionError("reading YAML needs PyYAML: pip install 'ampsq[cli]'") from None
    try:
        return _Reader(yaml.SafeLoader(text), text, source).definitions()
    except yaml.MarkedYAMLError as reason:
        mark = reason.problem_mark or reason.context_mark
        problem = " ".join(part for part in (reason.context, reason.problem) if part)
        line = mark.line if mark else 0
        # Within brackets, what a comment has swallowed is missed on a later line.
        hints = (_comment(text, at) for at in range(line, max(line - _LOOKED_BACK, -1), -1))
        hint = next(filter(None, hints), "") or _quoting(text, line)
        raise DefinitionError(f"{source}:{line + 1}: not YAML: {problem}{hint}") from None
    except (yaml.YAMLError, RecursionError) as reason:
        raise DefinitionError(f"{source}: not YAML: {' '.join(str(reason).split())}") from None


def _comment(text: str, line: int) -> str:
    """What to do about a line in which a value is a comment for YAML."""
    found = _COMMENT.search("".join(text.split("\n")[line : line + 1]))
    if found is None:
        return ""
    return f"; for YAML a comment begins at the #: put the value in quotes, as in {found[1]}: '{found[2]}'"


def _quoting(text: str, line: int) -> str:
    """What to do about a line with an expression in which YAML reads something else."""
    found = text.split("\n")[line : line + 1]
    if not found or "/" not in found[0] or not any(mark in found[0] for mark in "'\":[{%@"):
        return ""
    return "; an expression that has such characters: put the whole expression in double quotes, as in \"/a = 'x: y'\""


def _read(path_or_text: str | Path) -> tuple[str, str]:
    """The YAML text, and what error texts call its source."""
    if isinstance(path_or_text, str) and ("\n" in path_or_text or ":" in path_or_text):
        return path_or_text, "<text>"
    try:
        return Path(path_or_text).read_text(encoding="utf-8"), str(path_or_text)
    except FileNotFoundError:
        raise DefinitionError(f"{path_or_text}: no such file") from None
    except (OSError, UnicodeDecodeError) as reason:
        raise DefinitionError(f"{path_or_text}: cannot be read as a UTF-8 text file: {reason}") from None


class _Reader:
    """Reads one file to its end, collecting what is wrong with it."""

    def __init__(self, loader: yaml.SafeLoader, text: str, source: str) -> None:
        self._loader = loader
        self._text = text
        self._source = source
        self._instance: list[Definition] = []
        self._lines: dict[tuple[str, str], Lines] = {}
        self._seconds: dict[tuple[str, str], list[str]] = {}
        self._faults: list[tuple[int, str]] = []
        self._first_lines: dict[tuple[type[Definition], str], int] = {}

    def definitions(self) -> Loaded:
        """Everything that the file defines, or the refusal of the whole file."""
        found: list[Definition] = []
        for name, node in self._sections().items():
            found += self._section(name, node)
        found = self._instance + found
        if self._faults:
            lines = [f"{self._source}:{line}: {text}" for line, text in sorted(self._faults)]
            raise DefinitionError("\n".join(lines))
        in_order = sorted(found, key=lambda definition: _KINDS.index(type(definition)))
        loaded = Loaded(in_order, self._source, self._lines)
        loaded.seconds = self._seconds
        return loaded

    def _sections(self) -> dict[str, _Node]:
        root: _Node = self._loader.get_single_node()
        if root is None or root.id != "mapping":
            self._faults.append((1, f"the file has no definitions; allowed: {_FILE_ALLOWED}"))
            return {}
        sections = {}
        known = [name for _, elements in _AT_THE_TOP.values() for name in elements]
        top: dict[str, tuple[int, _Node]] = {}
        for name, (line, node) in self._pairs(root).items():
            if name in _SECTIONS:
                sections[name] = node
            elif name in known:
                top[name] = (line, node)
            else:
                self._faults.append((line, f"{name}: {nearest(name, _SECTIONS, 'section')}"))
        for kind, (default, names) in _AT_THE_TOP.items():
            self._at_the_top(kind, default, {name: place for name, place in top.items() if name in names})
        return sections

    def _at_the_top(self, kind: type[Definition], name: str, elements: dict[str, tuple[int, _Node]]) -> None:
        """What the file says of the instance, or of its transport, outside of all sections."""
        if not elements:
            return
        values = {"name": name, **{element: _value(node) for element, (_, node) in elements.items()}}
        faults = kind.faults(values)
        self._faults += [(elements[element][0], f"{element}: {text}") for element, text in faults]
        if faults:
            return
        first = min(line for line, _ in elements.values())
        made = kind(**values)
        self._first_lines[kind, made.name] = first
        self._note(made, {"": first, **{element: line for element, (line, _) in elements.items()}}, values)
        self._instance.append(made)

    def _section(self, name: str, node: _Node) -> list[Definition]:
        if node.id == "sequence":
            made = [self._definition(_SECTIONS[name], item) for item in node.value]
            return [definition for definition in made if definition is not None]
        if _value(node) is not None:
            text = f"{name}: {shown(_value(node))} is not a list; allowed: a list of definitions"
            self._faults.append((_line(node), text))
        return []

    def _definition(self, kind: type[Definition], node: _Node) -> Definition | None:
        """Make one definition, or note what is wrong with it."""
        elements = self._elements(kind, node)
        if elements is None:
            return None
        if kind is Action and self._is_dead_letter(node):
            kind = DeadLetter
        depth = _DEEPER.get(kind, _DEPTH)
        values = {element: _value(value, depth) for element, (_, value) in elements.items()}
        faults = kind.faults(values) or _silent(kind, values)
        for element, text in faults:
            line = _line_of(element, elements, node)
            hint = _comment(self._text, line - 1) if element in values and values[element] is None else ""
            self._faults.append((line, f"{kind.title(values)}: {element}: {text}{hint}"))
        if faults:
            return None
        made = kind(**values)
        definition = made.action() if isinstance(made, DeadLetter) else made
        # Queues of all kinds have one space of names.
        named = (Queue if isinstance(definition, Queue) else type(definition), definition.name)
        first = self._first_lines.get(named)
        if first is not None:
            text = f"{kind.title(values)}: defined twice, first at line {first}; allowed: once in a file"
            self._faults.append((_line(node), text))
        self._first_lines.setdefault(named, _line(node))
        self._note(definition, {"": _line(node), **{element: line for element, (line, _) in elements.items()}}, values)
        return definition

    def _note(self, definition: Definition, lines: Lines, values: dict[str, Any]) -> None:
        """Keep where a definition stands, and which of its intervals are plain numbers."""
        named = (type(definition).__name__, definition.name)
        self._lines[named] = lines
        self._seconds[named] = [
            element
            for element, value in values.items()
            if isinstance(value, str) and _SECONDS.fullmatch(value)
            and isinstance(getattr(definition, element, None), Interval)
        ]  # fmt: skip

    @staticmethod
    def _is_dead_letter(node: _Node) -> bool:
        return any(_key(key) == "dead_letter" for key, _ in node.value)

    def _elements(self, kind: type[Definition], node: _Node) -> dict[str, tuple[int, _Node]] | None:
        """The elements of one definition, with `dead_letter` opened."""
        if node.id != "mapping":
            text = f"{shown(_value(node))} is not a definition; allowed: elements, as in name: work"
            self._faults.append((_line(node), f"{kind.__name__}: {text}"))
            return None
        elements = self._pairs(node)
        if kind is not Action:
            return elements
        if "dead_letter" not in elements:
            return elements if self._is_plain(elements) else None
        line, inner = elements.pop("dead_letter")
        if elements or inner.id != "mapping":
            text = "stands alone and has elements; allowed: dead_letter: {queue: work, topic: dead}"
            self._faults.append((line, f"Action: dead_letter: {text}"))
            return None
        return self._pairs(inner)

    def _is_plain(self, elements: dict[str, tuple[int, _Node]]) -> bool:
        """Whether nothing in an action is a misspelt `dead_letter`."""
        known = {*Action.model_fields, "if"}
        wrong = difflib.get_close_matches("dead_letter", [each for each in elements if each not in known])
        for name in wrong:
            self._faults.append((elements[name][0], f"Action: {name}: no such element; did you mean 'dead_letter'?"))
        return not wrong

    def _pairs(self, node: _Node) -> dict[str, tuple[int, _Node]]:
        """Key -> line and value. Keys are texts: for YAML itself, the key ``on`` would be true."""
        lines: dict[str, int] = {}
        for key, _ in node.value:
            name = _key(key)
            if name in lines:
                text = f"{name}: given twice, first at line {lines[name]}; allowed: once"
                self._faults.append((_line(key), text))
            lines.setdefault(name, _line(key))
        self._loader.flatten_mapping(node)
        return {_key(key): (_line(key), value) for key, value in node.value}


def _silent(kind: type[Definition], values: dict[str, Any]) -> list[Fault]:
    """An address setting without an element is a mistake; one that takes something back names it."""
    if kind is not AddressSetting or not values.keys() <= {"match", "name"}:
        return []
    others = ", ".join(element for element in AddressSetting.model_fields if element != "name")
    text = f"says nothing; allowed: with {others}; one with nothing behind its colon takes back what the setting said"
    return [Fault("match", text)]


def _line(node: _Node) -> int:
    return int(node.start_mark.line) + 1


def _line_of(element: str, elements: dict[str, tuple[int, _Node]], definition: _Node) -> int:
    """Where a fault's element stands: ``projection[1]`` is the second item of a list."""
    if element in elements:
        return elements[element][0]
    name, _, place = element.rstrip("]").partition("[")
    return _line(elements[name][1].value[int(place)]) if place and name in elements else _line(definition)


def _key(node: _Node) -> str:
    return str(node.value) if node.id == "scalar" else str(_value(node))


def _value(node: _Node, depth: int = 2) -> Any:
    """What stands in the file: a text, None, or a list of these; of an action also mappings of these.

    Other mappings and deep lists are no element's value; a refusal shows them, cut, since they may be endless.
    """
    if node.id == "scalar":
        return None if node.tag == "tag:yaml.org,2002:null" else node.value
    if depth == 0:
        return "..."
    if node.id == "sequence":
        return [_value(item, depth - 1) for item in node.value]
    return {_key(key): _value(value, depth - 1) for key, value in node.value}
