"""Reads definitions from a configuration file of AMPS, whole or in parts.

    <AMPSConfig>
      <Name>amps-1</Name>
      <Group>NYC</Group>
      <MessageMemoryLimit>10GB</MessageMemoryLimit>
      <Transports><Transport><Name>low</Name><ClientMessageAgeLimit>15s</ClientMessageAgeLimit></Transport></Transports>
      <SOW>
        <Queue><Name>work</Name><MessageType>json</MessageType><UnderlyingTopic>orders</UnderlyingTopic></Queue>
      </SOW>
      <Replication>
        <Destination>
          <Name>amps-2</Name>
          <SyncType>sync</SyncType>
          <Topic><Name>orders</Name><MessageType>json</MessageType></Topic>
          <Transport><InetAddr>amps-2-server:6379</InetAddr><Type>amps-replication</Type></Transport>
        </Destination>
      </Replication>
      <Include>actions.xml</Include>
    </AMPSConfig>

`ampsq.files.amps_elements` says what becomes of each element. Limits at the top are those of the instance, the
transport ``*``. An ``InetAddr`` of a destination is the address of the Redis or Valkey server of the instance there, as
`inet_address` says. Whatever else stands in the file is named in a warning, once, and not acted on.
"""

from __future__ import annotations

import difflib
import logging
import re
from typing import TYPE_CHECKING, Any, Final

from ampsq.base.values import is_name
from ampsq.definitions.action import Action
from ampsq.definitions.definition import Definition, Loaded
from ampsq.definitions.destination import Destination
from ampsq.definitions.instance import ITSELF, Instance
from ampsq.definitions.queue import GroupLocalQueue, LocalQueue, Queue, Topic, View
from ampsq.definitions.topic import ConflatedTopic
from ampsq.definitions.transport import INSTANCE, Transport
from ampsq.files.amps_actions import action_elements, missing_module
from ampsq.files.amps_elements import ACTED_ON, QUEUE_TAGS, names_in, why_not
from ampsq.files.amps_include import with_included
from ampsq.files.file_faults import Faults, FilePosition
from ampsq.files.xml_elements import Element

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from ampsq.definitions.definition import Lines

__all__ = ["ROOT", "inet_address", "is_amps", "read_amps_xml"]

_log = logging.getLogger("ampsq")
ROOT: Final = "AMPSConfig"
#: Parts that may stand alone in a file, and what is around them otherwise.
_AROUND: Final[Mapping[str, tuple[str, ...]]] = {
    ROOT: (),
    **dict.fromkeys(("SOW", "TransactionLog", "Transports", "Replication", "Actions"), (ROOT,)),
    **dict.fromkeys((*QUEUE_TAGS, "View", "ViewDefinition", "ConflatedTopic"), (ROOT, "SOW")),
    "Transport": (ROOT, "Transports"),
    "Destination": (ROOT, "Replication"),
    "Action": (ROOT, "Actions"),
}
_SOW: Final[Mapping[str, type[Definition]]] = {
    **dict.fromkeys(("Topic", "TopicDefinition", "TopicMetaData"), Topic),
    **dict.fromkeys(QUEUE_TAGS, Queue),
    "LocalQueue": LocalQueue,
    "GroupLocalQueue": GroupLocalQueue,
    **dict.fromkeys(("View", "ViewDefinition"), View),
    **dict.fromkeys(("ConflatedTopic", "TopicReplica"), ConflatedTopic),
}
_KINDS: Final = (
    Instance,
    Transport,
    Topic,
    Queue,
    LocalQueue,
    GroupLocalQueue,
    View,
    ConflatedTopic,
    Action,
    Destination,
)
#: What there is one more of for each time that it is given.
_MORE: Final = ("key", "pass_through", "addresses", "underlying_topic")
#: Elements that hold others of one kind, which are the values.
_HOLDERS: Final = {"Projection": "Field", "Grouping": "Field"}
#: By the type of a destination's transport, what an address begins with.
_SCHEMES: Final = {"amps-replication": "redis://", "amps-replication-secure": "rediss://"}
_HAS_SCHEME: Final = re.compile(r"[a-z+]+://")


def inet_address(text: str, type: str) -> str:  # noqa: A002
    """The address that an ``InetAddr`` of a destination stands for.

    Args:
        text: ``host:port`` of the server of the instance there, its name behind ``#`` if that is not the destination's;
            or a whole address, which stays as it is.
        type: of the transport; ``amps-replication-secure`` is TLS.
    """
    return text if _HAS_SCHEME.match(text) else _SCHEMES.get(type, "redis://") + text


def is_amps(root: Element) -> bool:
    """Say whether a file is a configuration of AMPS, or a part of one."""
    return root.tag in _AROUND


def read_amps_xml(root: Element, path: Path | None = None) -> Loaded:
    """Read what a file defines.

    Args:
        root: ``AMPSConfig``, or a part of one: ``SOW``, ``Actions``, ``Destination`` and so on.
        path: of the file, from whose folder ``Include`` goes; None: the current folder.

    Raises:
        DefinitionError: something in it is wrong: a line for each fault.
    """
    faults = Faults()
    whole = with_included(root, path, faults)
    for tag in reversed(_AROUND[root.tag]):
        whole = Element(tag, root.line, root.source, children=[whole])
    return _Reader(faults).read(whole)


class _Reader:
    """Reads one file to its end, collecting what is wrong with it; what it acts on is marked."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._found: list[Definition] = []
        self._lines: dict[tuple[str, str], Lines] = {}
        self._sources: dict[tuple[str, str], str] = {}
        self._warnings: list[tuple[FilePosition, str]] = []

    def read(self, root: Element) -> Loaded:
        root.is_read = True
        known = self._elements(root, ACTED_ON[ROOT])
        of_instance = {"name", "group"}
        for kind, name, names in ((Instance, ITSELF, of_instance), (Transport, INSTANCE, known.keys() - of_instance)):
            given = {element: value for element, value in known.items() if element in names}
            if given:
                self._add(kind, {"name": name, **given}, root)
        for transport in self._children(root, "Transports", "Transport"):
            self._add(Transport, self._elements(transport, ACTED_ON["Transports/Transport"]), transport)
        self._sow(root)
        self._recorded(root)
        self._actions(root)
        for destination in self._children(root, "Replication", "Destination"):
            self._add(Destination, self._destination(destination), destination)
        self._faults.refuse()
        warnings = [*self._unread(root, root.tag, set()), *self._warnings]
        for place, text in sorted(warnings, key=lambda each: (each[0].source != root.source, *each)):
            _log.warning("%s: %s", place, text)
        in_order = sorted(self._found, key=lambda definition: _KINDS.index(type(definition)))
        loaded = Loaded(in_order, root.source, self._lines)
        loaded.sources = self._sources
        return loaded

    @staticmethod
    def _children(root: Element, section: str, *tags: str) -> list[Element]:
        """The elements of a section that have one of these tags."""
        within = []
        for part in root.children:
            if part.tag == section:
                part.is_read = True
                within += [child for child in part.children if child.tag in tags]
        return within

    def _elements(
        self, element: Element, names: Mapping[str, str], kind: type[Definition] | None = None
    ) -> dict[str, Any]:
        """What an element says, by the names of a definition's elements."""
        element.is_read = True
        found: dict[str, Any] = {}
        for child in element.children:
            name = names.get(child.tag)
            if name is None or (kind is not None and name not in kind.model_fields):
                continue
            child.is_read = True
            if child.tag in _HOLDERS:
                found.setdefault(name, []).extend(self._held(child))
            elif name in _MORE and name in found:
                found[name] = [*(found[name] if isinstance(found[name], list) else [found[name]]), child.text.strip()]
            else:
                found[name] = child.text.strip()
        return found

    @staticmethod
    def _held(element: Element) -> Iterator[str]:
        for child in element.children:
            if child.tag == _HOLDERS[element.tag]:
                child.is_read = True
                yield " ".join(child.text.split())

    def _sow(self, root: Element) -> None:
        for element in self._children(root, "SOW", *_SOW):
            kind = _SOW[element.tag]
            is_queue = issubclass(kind, Queue)
            names = ACTED_ON["SOW/Queue" if is_queue else f"SOW/{kind.__name__}"]
            joins = [join for child in element.children if child.tag == "UnderlyingTopic" for join in child.children]
            if joins:
                # Half of a join would be another view.
                reason = why_not("View/UnderlyingTopic/Join")
                self._leave_out(element, joins[0], f"View/UnderlyingTopic/{joins[0].tag} is not acted on; {reason}")
                continue
            elements = self._elements(element, names, kind)
            if kind is Topic and elements.get("expiration") in ("enabled", "disabled"):
                # Neither is a life of those messages that have none of their own.
                del elements["expiration"]
            self._add(kind, elements, element)

    def _recorded(self, root: Element) -> None:
        """What the transaction log is to record. Every topic is, so that only a message type says something."""
        named = {definition.name for definition in self._found if isinstance(definition, Topic | Queue | View)}
        for element in self._children(root, "TransactionLog", "Topic"):
            elements = self._elements(element, ACTED_ON["TransactionLog/Topic"])
            name = elements.get("name", "")
            if name not in named and (is_name(name) and elements.get("message_type", "json") != "json"):
                named.add(name)
                self._add(Topic, elements, element)

    def _actions(self, root: Element) -> None:
        keys = {topic.name: topic.key for topic in self._found if isinstance(topic, Topic) and topic.key}
        for element in self._children(root, "Actions", "Action"):
            missing = missing_module(element)
            if missing is not None:
                module, reason = missing
                text = f"Action/{module.tag}: {module.text.strip()} is not acted on, nor is its action; {reason}"
                self._leave_out(element, module, text)
                continue
            element.is_read = True
            names = [action.name for action in self._found if isinstance(action, Action)]
            self._add(Action, action_elements(element, keys, names), element)

    def _destination(self, element: Element) -> dict[str, Any]:
        names = {
            tag: name for tag, name in ACTED_ON["Replication/Destination"].items() if tag not in ("Topic", "Transport")
        }
        elements = self._elements(element, names)
        topics = [child for child in element.children if child.tag == "Topic"]
        elements["topics"] = [self._elements(child, ACTED_ON["Destination/Topic"]) for child in topics]
        for child in element.children:
            if child.tag == "Compression":
                # It is kept, and has no effect, which is told.
                elements["compression"] = child.text.strip()
            if child.tag == "Transport":
                transport = self._transport(child)
                elements["addresses"] = [*elements.get("addresses", ()), *transport.pop("addresses")]
                elements |= transport
        return elements

    def _transport(self, element: Element) -> dict[str, Any]:
        elements = self._elements(element, ACTED_ON["Destination/Transport"])
        type_of = elements.pop("type", "amps-replication")
        if type_of not in _SCHEMES:
            text = f"Destination: Transport: Type: {type_of!r} is not known; allowed: {', '.join(_SCHEMES)}"
            self._faults.add(FilePosition(element.source, element.line), text)
        given = elements.pop("addresses", [])
        addresses = [inet_address(text, type_of) for text in (given if isinstance(given, list) else [given])]
        return {**elements, "addresses": addresses}

    def _add(self, kind: type[Definition], elements: dict[str, Any], element: Element) -> None:
        place = FilePosition(element.source, element.line)
        known = names_in(element.tag)
        lines = {known[child.tag]: child.line for child in reversed(element.children) if child.tag in known}
        faults = kind.faults(elements)
        for fault in faults:
            line = lines.get(fault.element.partition("[")[0], element.line)
            self._faults.add(
                FilePosition(element.source, line), f"{kind.title(elements)}: {fault.element}: {fault.text}"
            )
        if faults:
            return
        made = kind(**elements)
        # Queues of all kinds have one space of names.
        same = [each for each in self._found if each.name == made.name and _is_alike(kind, each)]
        if same:
            self._faults.add(place, f"{kind.title(elements)}: defined twice; allowed: once in a file")
        self._lines[kind.__name__, made.name] = {**lines, "": element.line}
        self._sources[kind.__name__, made.name] = element.source
        self._found.append(made)

    def _unread(self, element: Element, path: str, told: set[str]) -> Iterator[tuple[FilePosition, str]]:
        """What is not acted on, each kind of it once, where it first is."""
        for child in element.children:
            below = f"{path}/{child.tag}"
            if child.is_read:
                yield from self._unread(child, below, told)
            elif below not in told:
                told.add(below)
                reason = why_not(below) or _likeness(element.tag, child.tag)
                text = f"{element.tag}/{child.tag} is not acted on" + (f"; {reason}" if reason else "")
                yield FilePosition(child.source, child.line), text

    def _leave_out(self, element: Element, cause: Element, text: str) -> None:
        """Tell once that nothing of an element is acted on, which is as good as acting on it."""
        self._warnings.append((FilePosition(cause.source, cause.line), text))
        pending = [element]
        while pending:
            one = pending.pop()
            one.is_read = True
            pending += one.children


def _likeness(around: str, tag: str) -> str:
    """What somebody may have meant by an element that nobody knows."""
    close = difflib.get_close_matches(tag, names_in(around), n=1)
    return f"did you mean {close[0]!r}?" if close else ""


def _is_alike(kind: type[Definition], other: Definition) -> bool:
    """Whether the two have one space of names."""
    return isinstance(other, Queue) if issubclass(kind, Queue) else type(other) is kind
