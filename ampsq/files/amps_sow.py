"""Reads the state of the world of a configuration of AMPS, and what its transaction log records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ampsq.base.values import is_name
from ampsq.definitions.queue import GroupLocalQueue, LocalQueue, Queue, Topic, View
from ampsq.definitions.topic import ConflatedTopic
from ampsq.files.amps_elements import ACTED_ON, QUEUE_TAGS, why_not
from ampsq.files.amps_types import OPAQUE, FileTypes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ampsq.definitions.definition import Definition
    from ampsq.files.amps_collector import Collector
    from ampsq.files.xml_elements import Element

__all__ = ["SowReader", "children_of"]

_SOW: Final[Mapping[str, type[Definition]]] = {
    **dict.fromkeys(("Topic", "TopicDefinition", "TopicMetaData"), Topic),
    **dict.fromkeys(QUEUE_TAGS, Queue),
    "LocalQueue": LocalQueue,
    "GroupLocalQueue": GroupLocalQueue,
    **dict.fromkeys(("View", "ViewDefinition"), View),
    **dict.fromkeys(("ConflatedTopic", "TopicReplica"), ConflatedTopic),
}
#: Each knows those before it.
_ORDER: Final = (Topic, Queue, View, ConflatedTopic)
#: Of a queue, what reads bodies.
_READING: Final = ("Filter", "Priority", "BarrierExpression")
#: AMPS's bookmarks that are no message's.
_POINTS: Final = {"0": "epoch", "0|1": "now", "0|1|": "now"}


def children_of(root: Element, section: str, *tags: str) -> list[Element]:
    """The elements of a section that have one of these tags."""
    within = []
    for part in root.children:
        if part.tag == section:
            part.is_read = True
            within += [child for child in part.children if child.tag in tags]
    return within


class SowReader:
    """Reads topics, queues, views and conflated topics.

    What AMPS can do with bodies that nothing here reads, or with records of which there is no key, would be something
    else here: it is left out and told.

    Args:
        collector: what they become.
        types: the message types of the file.

    Attributes:
        absent: queues, views and conflated topics that are left out.
        opaque: topics and queues whose bodies nothing reads.
    """

    def __init__(self, collector: Collector, types: FileTypes) -> None:
        self._collector, self._types = collector, types
        self.absent: set[str] = set()
        self.opaque: set[str] = set()

    @staticmethod
    def _sow_elements(root: Element) -> list[Element]:
        """Return the elements of the state of the world, topics first: the others depend on their definitions."""
        sections = [part for part in root.children if part.tag in ("SOW", "TopicMetaData")]
        found: list[Element] = []
        while sections:
            section = sections.pop(0)
            section.is_read = True
            for child in section.children:
                # In older files a section of its own, around definitions.
                is_section = child.tag == "TopicMetaData" and any(
                    each.tag in _SOW and each.children for each in child.children
                )
                if is_section:
                    sections.append(child)
                elif child.tag in _SOW:
                    found.append(child)
        return sorted(
            found, key=lambda element: next(i for i, each in enumerate(_ORDER) if issubclass(_SOW[element.tag], each))
        )

    def read(self, root: Element) -> None:
        """Read the definitions of a file."""
        for element in self._sow_elements(root):
            kind = _SOW[element.tag]
            is_queue = issubclass(kind, Queue)
            names = ACTED_ON["SOW/Queue" if is_queue else f"SOW/{kind.__name__}"]
            cause = self._left_out(element, kind)
            if cause is not None:
                self.absent |= {child.text.strip() for child in element.children if names.get(child.tag) == "name"}
                self._collector.leave_out(element, *cause)
                continue
            elements = self._collector.elements(element, names, kind)
            self.read_type(elements, element)
            if kind is Topic:
                self._complete_topic(elements, element)
            elif is_queue:
                point = elements.get("recovery_point", "")
                elements |= {"recovery_point": _POINTS[point]} if point in _POINTS else {}
            self._collector.add(kind, elements, element)

    def _left_out(self, element: Element, kind: type[Definition]) -> tuple[Element, str] | None:
        """Return why a definition of the state of the world would mean something else here, and where that is said."""
        given = {child.tag: child for child in element.children}
        if kind is Topic and "Pattern" in given:
            return given["Pattern"], f"SOW/Topic with Pattern is not acted on; {why_not('SOW/Topic/Pattern')}"
        joins = [join for child in element.children if child.tag == "UnderlyingTopic" for join in child.children]
        if joins:
            # Half of a join would be another view.
            reason = why_not("View/UnderlyingTopic/Join")
            return joins[0], f"View/UnderlyingTopic/{joins[0].tag} is not acted on; {reason}"
        if issubclass(kind, Queue):
            found = self._types.find(given["MessageType"].text.strip()) if "MessageType" in given else None
            reading = next((given[tag] for tag in _READING if tag in given), None)
            if found is not None and found.is_opaque and reading is not None:
                told = (
                    f"{element.tag} with {reading.tag} is not acted on; expressions cannot read its bodies, which are "
                )
                return reading, f"{told}{given['MessageType'].text.strip()}"
        if kind in (View, ConflatedTopic) and "UnderlyingTopic" in given:
            under = given["UnderlyingTopic"]
            reason = self._why_not_over(under.text.strip(), kind)
            if reason:
                return under, f"{element.tag} over {under.text.strip()!r} is not acted on; {reason}"
        return None

    def _why_not_over(self, under: str, kind: type[Definition]) -> str:
        """Say why there can be no view, or no conflated topic, over a topic or a queue; empty: there can."""
        if under in self.opaque:
            return "expressions cannot read the bodies of that"
        if under in self.absent:
            return "that is left out, too"
        if kind is ConflatedTopic and any(each.name == under for each in self._keyless()):
            return "that has no key by which changes are gathered"
        return ""

    def _keyless(self) -> Iterator[Topic]:
        return (each for each in self._collector.found if isinstance(each, Topic) and not each.key)

    def read_type(self, elements: dict[str, Any], element: Element) -> None:
        """Put ampsq's message type in the place of the file's, and tell where nothing reads it."""
        named = elements.get("message_type", "")
        found = self._types.find(named)
        if found is None:
            return
        elements["message_type"] = found.name
        if found.separator is not None:
            elements["field_separator"] = found.separator
        if found.is_opaque:
            self.opaque.add(elements.get("name", ""))
            child = next(each for each in element.children if each.tag == "MessageType")
            told = f"{element.tag}/MessageType: {named!r} is {found.name!r} here: bodies that expressions cannot read"
            self._collector.warn(child, told)

    def _complete_topic(self, elements: dict[str, Any], element: Element) -> None:
        """Leave out what goes with no topic here that has records in AMPS."""
        given = {child.tag: child for child in reversed(element.children)}
        if elements.get("expiration") in ("enabled", "disabled"):
            # Neither is a life of those messages that have none of their own.
            del elements["expiration"]
        if "key" in elements and elements.get("message_type") == OPAQUE:
            del elements["key"]
            told = f"{element.tag}/Key is not acted on; its bodies cannot be read, so that the topic keeps no records"
            self._collector.warn(given["Key"], told)
        if "expiration" in elements and "key" not in elements:
            del elements["expiration"]
            told = f"{element.tag}/Expiration is not acted on; a topic without a key keeps no records that could expire"
            self._collector.warn(given["Expiration"], told)

    def read_recorded(self, root: Element) -> None:
        """Read what the transaction log is to record. Every topic is, so that only a message type says something."""
        named = {
            definition.name for definition in self._collector.found if isinstance(definition, Topic | Queue | View)
        }
        for element in children_of(root, "TransactionLog", "Topic"):
            elements = self._collector.elements(element, ACTED_ON["TransactionLog/Topic"])
            name = elements.get("name", "")
            if name in named | self.absent or not is_name(name):
                continue
            self.read_type(elements, element)
            if elements.get("message_type", "json") != "json":
                named.add(name)
                self._collector.add(Topic, elements, element)
