"""Reads the destinations of a configuration of AMPS, whose addresses are those of servers here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ampsq.definitions.destination import Destination
from ampsq.files.amps_elements import ACTED_ON
from ampsq.files.amps_names import SCHEMES, address_name, inet_addresses, is_of_server, numbered
from ampsq.files.amps_sow import children_of

if TYPE_CHECKING:
    from ampsq.files.amps_collector import Collector
    from ampsq.files.amps_sow import SowReader
    from ampsq.files.xml_elements import Element

__all__ = ["DestinationReader"]


class DestinationReader:
    """Reads destinations.

    Args:
        collector: what they become.
        sow: what reads message types.
    """

    def __init__(self, collector: Collector, sow: SowReader) -> None:
        self._collector, self._sow = collector, sow

    def read(self, root: Element) -> None:
        """Read the definitions of a file."""
        for element in children_of(root, "Replication", "Destination"):
            self._collector.add(Destination, self._destination(element), element)

    def _destination(self, element: Element) -> dict[str, Any]:
        names = {
            tag: name for tag, name in ACTED_ON["Replication/Destination"].items() if tag not in ("Topic", "Transport")
        }
        elements = self._collector.elements(element, names)
        self._collector.make_name(elements, "name", element)
        topics = [child for child in element.children if child.tag == "Topic"]
        elements["topics"] = [self._replicated(child) for child in topics]
        for child in element.children:
            if child.tag == "Compression":
                # It is kept, and has no effect, which is told.
                elements["compression"] = child.text.strip()
            if child.tag == "Transport":
                transport = self._transport(child)
                elements["addresses"] = [*elements.get("addresses", ()), *transport.pop("addresses")]
                elements |= transport
        self._name_destination(elements, element)
        return elements

    def _replicated(self, element: Element) -> dict[str, Any]:
        elements = self._collector.elements(element, ACTED_ON["Destination/Topic"])
        self._sow.read_type(elements, element)
        elements.pop("field_separator", None)
        return elements

    def _name_destination(self, elements: dict[str, Any], element: Element) -> None:
        """Name a destination without a name by its group, else by its first address."""
        first = next(iter(elements.get("addresses", ())), "")
        source, made = ("group", elements["group"]) if elements.get("group") else ("address", address_name(first))
        if elements.get("name") or not made:
            return
        elements["name"] = numbered(
            made, {each.name for each in self._collector.found if isinstance(each, Destination)}
        )
        self._collector.warn(
            element,
            f"Destination without Name is {elements['name']!r}, by its {source}; where the instance there has another "
            "name, say it behind # in InetAddr, as in redis://HOST:6379#amps-2",
        )

    def _transport(self, element: Element) -> dict[str, Any]:
        elements = self._collector.elements(element, ACTED_ON["Destination/Transport"])
        type_of = elements.pop("type", "amps-replication")
        if type_of not in SCHEMES:
            text = f"Destination: Transport: Type: {type_of!r} is not known; allowed: {', '.join(SCHEMES)}"
            self._collector.refuse(element, text)
        given = elements.pop("addresses", [])
        texts = given if isinstance(given, list) else [given]
        addresses = [address for text in texts for address in inet_addresses(text, type_of)]
        plain = [child for child in element.children if child.tag == "InetAddr" and not is_of_server(child.text)]
        if plain and not plain[0].fault:
            from ampsq.base.addresses import redacted  # noqa: PLC0415 - redis-py is slow to import

            made = ", ".join(redacted(each) for child in plain for each in inet_addresses(child.text, type_of))
            self._collector.warn(
                plain[0],
                f"Transport/InetAddr is taken for the server of the instance there: {made}; that is another one than "
                "AMPS, and to say which, write its whole address, as in redis://HOST:6379#INSTANCE",
            )
        return {**elements, "addresses": addresses}
