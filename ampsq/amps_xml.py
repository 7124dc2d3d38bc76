"""Reads the limits of slow clients from a configuration file of AMPS, whose root is ``AMPSConfig``.

    <AMPSConfig>
      <MessageMemoryLimit>10GB</MessageMemoryLimit>
      <Transports><Transport><Name>low</Name><ClientMessageAgeLimit>15s</ClientMessageAgeLimit></Transport></Transports>
    </AMPSConfig>

Elements at the top are those of the instance, the transport ``*``. Whatever else stands in the file is named in a
warning, once, and not acted on.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from ampsq.broker_xml import parse_xml
from ampsq.definition import Loaded
from ampsq.errors import DefinitionError
from ampsq.transport import INSTANCE, Transport

if TYPE_CHECKING:
    from ampsq.broker_xml import Element
    from ampsq.definition import Lines

__all__ = ["ROOT", "read_amps_xml"]

_log = logging.getLogger("ampsq")
ROOT: Final = "AMPSConfig"
_ELEMENTS: Final = {
    "MessageMemoryLimit": "message_memory_limit",
    "MessageDiskLimit": "message_disk_limit",
    "MessageDiskPath": "message_disk_path",
    "ClientMaxCapacity": "client_max_capacity",
    "ClientMessageAgeLimit": "client_message_age_limit",
}


def read_amps_xml(text: str, source: str) -> Loaded:
    """Read transports, the instance's first, if it has limits.

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
        self._found: list[Transport] = []
        self._lines: dict[tuple[str, str], Lines] = {}

    def read(self, root: Element) -> Loaded:
        known = self._elements(root, {"Transports"})
        if known:
            self._add({"name": INSTANCE, **known}, root.line)
        for child in root.children:
            for transport in child.children if child.tag == "Transports" else ():
                if transport.tag == "Transport":
                    self._add(self._elements(transport, set(), {"Name": "name"}), transport.line)
                else:
                    self._ignored.setdefault(f"Transports/{transport.tag}", transport.line)
        if self._faults:
            raise DefinitionError("\n".join(f"{self._source}:{line}: {text}" for line, text in sorted(self._faults)))
        for path, line in self._ignored.items():
            _log.warning("%s:%d: %s is not acted on", self._source, line, path)
        return Loaded(self._found, self._source, self._lines)

    def _elements(self, element: Element, apart: set[str], more: dict[str, str] | None = None) -> dict[str, Any]:
        names, found = {**_ELEMENTS, **(more or {})}, {}
        for child in element.children:
            if child.tag in names:
                found[names[child.tag]] = child.text.strip()
            elif child.tag not in apart:
                self._ignored.setdefault(f"{element.tag}/{child.tag}", child.line)
        return found

    def _add(self, elements: dict[str, Any], line: int) -> None:
        faults = Transport.faults(elements)
        self._faults += [(line, f"{Transport.title(elements)}: {fault.element}: {fault.text}") for fault in faults]
        if faults:
            return
        made = Transport(**elements)
        if (Transport.__name__, made.name) in self._lines:
            self._faults.append((line, f"{Transport.title(elements)}: defined twice; allowed: once in a file"))
        self._lines[Transport.__name__, made.name] = {"": line}
        self._found.append(made)
