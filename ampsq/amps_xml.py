"""Reads the instance, its limits of slow clients and its destinations from a configuration file of AMPS.

    <AMPSConfig>
      <Name>amps-1</Name>
      <Group>NYC</Group>
      <MessageMemoryLimit>10GB</MessageMemoryLimit>
      <Transports><Transport><Name>low</Name><ClientMessageAgeLimit>15s</ClientMessageAgeLimit></Transport></Transports>
      <Replication>
        <Destination>
          <Name>amps-2</Name>
          <Group>NYC</Group>
          <SyncType>sync</SyncType>
          <Topic><Name>orders</Name><MessageType>json</MessageType></Topic>
          <Transport><InetAddr>amps-2-server:6379</InetAddr><Type>amps-replication</Type></Transport>
        </Destination>
      </Replication>
    </AMPSConfig>

Limits at the top are those of the instance, the transport ``*``. An ``InetAddr`` of a destination is the address of the
Redis or Valkey server of the instance there, as `inet_address` says. Whatever else stands in the file is named in a
warning, once, and not acted on.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any, Final

from ampsq.broker_xml import parse_xml
from ampsq.definition import Loaded
from ampsq.destination import Destination
from ampsq.errors import DefinitionError
from ampsq.instance import ITSELF, Instance
from ampsq.transport import INSTANCE, Transport

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ampsq.broker_xml import Element
    from ampsq.definition import Definition, Lines

__all__ = ["ROOT", "inet_address", "read_amps_xml"]

_log = logging.getLogger("ampsq")
ROOT: Final = "AMPSConfig"
_OF_INSTANCE: Final = {"Name": "name", "Group": "group"}
_LIMITS: Final = {
    "MessageMemoryLimit": "message_memory_limit",
    "MessageDiskLimit": "message_disk_limit",
    "MessageDiskPath": "message_disk_path",
    "ClientMaxCapacity": "client_max_capacity",
    "ClientMessageAgeLimit": "client_message_age_limit",
}
_OF_DESTINATION: Final = {
    "Name": "name",
    "Group": "group",
    "SyncType": "sync_type",
    "Compression": "compression",
    "AckConflationInterval": "ack_conflation_interval",
    "ReconnectTimeout": "reconnect_timeout",
}
#: What is given again for each more of it.
_MORE: Final = {"PassThrough": "pass_through", "InetAddr": "addresses"}
_OF_TOPIC: Final = {
    "Name": "name",
    "MessageType": "message_type",
    "Filter": "filter",
    "ExcludeValidation": "exclude_validation",
}
#: By the type of a destination's transport, what an address begins with.
_SCHEMES: Final = {"amps-replication": "redis://", "amps-replication-secure": "rediss://"}
_HAS_SCHEME: Final = re.compile(r"[a-z+]+://")
#: Elements that are acted on and yet change nothing.
_HINTS: Final = {
    "Destination/Compression": "a link is a connection of the server's protocol, which has no compression",
    "Transport/Authenticator": "give the credentials in InetAddr, as in rediss://user:password@host:port",
}


def inet_address(text: str, type: str) -> str:  # noqa: A002
    """The address that an ``InetAddr`` of a destination stands for.

    Args:
        text: ``host:port`` of the server of the instance there, its name behind ``#`` if that is not the destination's;
            or a whole address, which stays as it is.
        type: of the transport; ``amps-replication-secure`` is TLS.
    """
    return text if _HAS_SCHEME.match(text) else _SCHEMES.get(type, "redis://") + text


def read_amps_xml(text: str, source: str) -> Loaded:
    """Read the instance, transports, the instance's first if it has limits, and destinations.

    Args:
        text: of the file.
        source: what error texts call it.

    Raises:
        DefinitionError: it is not XML, or defines what is wrong: a line for each fault.
    """
    return _Reader(source).read(parse_xml(text, source))


class _Reader:
    """Reads one file to its end, collecting what is wrong with it and what is not acted on."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._ignored: dict[str, int] = {}
        self._faults: list[tuple[int, str]] = []
        self._found: list[Definition] = []
        self._lines: dict[tuple[str, str], Lines] = {}

    def read(self, root: Element) -> Loaded:
        known = self._elements(root, {**_OF_INSTANCE, **_LIMITS}, apart={"Transports", "Replication"})
        for kind, name, names in ((Instance, ITSELF, _OF_INSTANCE), (Transport, INSTANCE, _LIMITS)):
            given = {element: known[element] for element in names.values() if element in known}
            if given:
                self._add(kind, {"name": name, **given}, root.line)
        for transport in self._children(root, "Transports", "Transport"):
            self._add(Transport, self._elements(transport, {**_LIMITS, "Name": "name"}), transport.line)
        for destination in self._children(root, "Replication", "Destination"):
            self._add(Destination, self._destination(destination), destination.line)
        if self._faults:
            raise DefinitionError("\n".join(f"{self._source}:{line}: {text}" for line, text in sorted(self._faults)))
        for path, line in sorted(self._ignored.items(), key=lambda item: item[1]):
            hint = f"; {_HINTS[path]}" if path in _HINTS else ""
            _log.warning("%s:%d: %s is not acted on%s", self._source, line, path, hint)
        return Loaded(self._found, self._source, self._lines)

    def _children(self, root: Element, section: str, tag: str) -> list[Element]:
        """The elements of a section; others in it are not acted on."""
        within = [child for part in root.children if part.tag == section for child in part.children]
        for child in within:
            if child.tag != tag:
                self._ignored.setdefault(f"{section}/{child.tag}", child.line)
        return [child for child in within if child.tag == tag]

    def _elements(
        self, element: Element, names: Mapping[str, str], apart: frozenset[str] | set[str] = frozenset()
    ) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for child in element.children:
            if child.tag in _MORE and child.tag in names:
                found.setdefault(names[child.tag], []).append(child.text.strip())
            elif child.tag in names:
                found[names[child.tag]] = child.text.strip()
            elif child.tag not in apart:
                self._ignored.setdefault(f"{element.tag}/{child.tag}", child.line)
        return found

    def _destination(self, element: Element) -> dict[str, Any]:
        names = {**_OF_DESTINATION, "PassThrough": "pass_through"}
        elements = self._elements(element, names, apart={"Topic", "Transport"})
        elements["topics"] = [self._elements(child, _OF_TOPIC) for child in element.children if child.tag == "Topic"]
        for child in element.children:
            if child.tag == "Transport":
                transport = self._transport(child)
                elements["addresses"] = [*elements.get("addresses", ()), *transport.pop("addresses")]
                elements |= transport
            elif child.tag == "Compression":
                self._ignored.setdefault("Destination/Compression", child.line)
        return elements

    def _transport(self, element: Element) -> dict[str, Any]:
        names = {"InetAddr": "addresses", "ReconnectTimeout": "reconnect_timeout", "Type": "type"}
        elements = self._elements(element, names)
        type_of = elements.pop("type", "amps-replication")
        if type_of not in _SCHEMES:
            text = f"Destination: Transport: Type: {type_of!r} is not known; allowed: {', '.join(_SCHEMES)}"
            self._faults.append((element.line, text))
        addresses = [inet_address(text, type_of) for text in elements.pop("addresses", ())]
        return {**elements, "addresses": addresses}

    def _add(self, kind: type[Definition], elements: dict[str, Any], line: int) -> None:
        faults = kind.faults(elements)
        self._faults += [(line, f"{kind.title(elements)}: {fault.element}: {fault.text}") for fault in faults]
        if faults:
            return
        made = kind(**elements)
        if (kind.__name__, made.name) in self._lines:
            self._faults.append((line, f"{kind.title(elements)}: defined twice; allowed: once in a file"))
        self._lines[kind.__name__, made.name] = {"": line}
        self._found.append(made)
