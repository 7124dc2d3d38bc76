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
`inet_addresses` says. Whatever else stands in the file is named in a warning, once, and not acted on; so is what can be
meant in AMPS and not here: such a queue, view or action is left out as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ampsq.base.values import INSTANCE_TRANSPORT
from ampsq.definitions.action import Action
from ampsq.definitions.destination import Destination
from ampsq.definitions.instance import ITSELF, Instance
from ampsq.definitions.queue import GroupLocalQueue, LocalQueue, Queue, Topic, View
from ampsq.definitions.topic import ConflatedTopic
from ampsq.definitions.transport import Transport
from ampsq.files.amps_actions import ActionReader
from ampsq.files.amps_collector import ROOT, Collector
from ampsq.files.amps_elements import ACTED_ON, QUEUE_TAGS
from ampsq.files.amps_include import with_included
from ampsq.files.amps_names import numbered
from ampsq.files.amps_replication import DestinationReader
from ampsq.files.amps_sow import SowReader, children_of
from ampsq.files.amps_types import FileTypes
from ampsq.files.file_faults import Faults
from ampsq.files.xml_elements import Element

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ampsq.definitions.definition import Loaded

__all__ = ["is_amps", "read_amps_xml"]

#: Parts that may stand alone in a file, and what is around them otherwise.
_AROUND: Final[Mapping[str, tuple[str, ...]]] = {
    ROOT: (),
    **dict.fromkeys(("SOW", "TopicMetaData", "TransactionLog", "Transports", "Replication", "Actions"), (ROOT,)),
    **dict.fromkeys((*QUEUE_TAGS, "View", "ViewDefinition", "ConflatedTopic"), (ROOT, "SOW")),
    "Transport": (ROOT, "Transports"),
    "Destination": (ROOT, "Replication"),
    "Action": (ROOT, "Actions"),
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
    whole.is_read = True
    collector = Collector(faults)
    _read_instance(collector, whole)
    for transport in children_of(whole, "Transports", "Transport"):
        _read_transport(collector, transport)
    sow = SowReader(collector, FileTypes(whole))
    sow.read(whole)
    sow.read_recorded(whole)
    ActionReader(collector, sow).read(whole)
    DestinationReader(collector, sow).read(whole)
    return collector.finish(whole, _KINDS)


def _read_instance(collector: Collector, root: Element) -> None:
    known = collector.elements(root, ACTED_ON[ROOT])
    of_instance = {"name", "group"}
    limits = {element: value for element, value in known.items() if element not in of_instance}
    given = {element: value for element, value in known.items() if element in of_instance}
    if given:
        label = given.get("name", "")
        collector.make_name(given, "name", root)
        if given.get("name", label) != label:
            given["label"] = label
        collector.add(Instance, {"name": ITSELF, **given}, root)
    if limits:
        collector.add(Transport, {"name": INSTANCE_TRANSPORT, **limits}, root)


def _read_transport(collector: Collector, element: Element) -> None:
    elements = collector.elements(element, ACTED_ON["Transports/Transport"])
    taken = {each.name for each in collector.found if isinstance(each, Transport)}
    if elements.get("name", INSTANCE_TRANSPORT) != INSTANCE_TRANSPORT:
        collector.make_name(elements, "name", element)
    elif not elements:
        # Where nothing is limited, nothing needs the name.
        return
    elements.setdefault("name", numbered("transport", taken))
    collector.add(Transport, elements, element)
