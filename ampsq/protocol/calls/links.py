"""The states that links between instances report, and the stored place of each destination."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypeAlias

from ampsq.base.log_positions import parse_id
from ampsq.protocol.replies import name_set, names, pairs, texts
from ampsq.protocol.request import Call, command
from ampsq.protocol.schema import FIELDS, key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ampsq.base.log_positions import Id
    from ampsq.protocol.replies import RawHash

__all__ = [
    "LinkReports",
    "LinkState",
    "SentPlaces",
    "copied_origins",
    "drop_sent",
    "incoming_instances",
    "read_link_reports",
    "read_link_state",
    "read_raw_groups",
    "read_sent_places",
    "removed_up_to",
    "write_link_state",
]

#: A field of `LinkState` is named as a type is.
_Json: TypeAlias = "str | bytes"
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"))
#: In a report: the group, as JSON has it.
_GROUP: Final = re.compile(rb'"group":"((?:[^"\\]|\\.)+)"')
_OUT: Final = "out "
_IN: Final = "in "


@dataclass(slots=True)
class LinkState:
    """The state that a link reports of itself; whoever runs the link changes it, and writes it down again.

    Attributes:
        destination: its name.
        source: the instance that sends.
        instance: the one that it is sent to, "" while there is none.
        group: of that one, or of the one that was there last.
        address: where it is, without passwords; of one that is refused for good, all its addresses.
        state: ``connected``, ``waiting`` (nobody answers) or ``refused`` (the other side does not fit).
        sync_type: as configured.
        since: ms of the server since when the state is this.
        at: ms when it was last said.
        losses: how often the connection was lost since the coordinator began to run the link.
        lost_at: ms when it was lost last, 0 for never.
        messages: copies recorded at the destination since the link was connected.
        bytes: of their fields, by what was sent.
        messages_per_second: of the last second or so.
        bytes_per_second: of the last second or so.
        told: journal entries followed there.
        requests: requests, offers and claims of messages passed there.
        reason: why it is not connected.
        is_final: nothing but another definition of the destination ends that.
        run_by: the coordinator that runs it.
    """

    destination: str
    source: str
    instance: str = ""
    group: str = ""
    address: str = ""
    state: str = "waiting"
    sync_type: str = "async"
    since: int = 0
    at: int = 0
    losses: int = 0
    lost_at: int = 0
    messages: int = 0
    bytes: int = 0
    messages_per_second: int = 0
    bytes_per_second: int = 0
    told: int = 0
    requests: int = 0
    reason: str = ""
    is_final: bool = False
    run_by: str = ""

    @classmethod
    def parse(cls, text: _Json) -> Self:
        """Read what a link wrote, of whatever version: what it does not say is as by default."""
        said = {"destination": "", "source": "", **json.loads(text)}
        return cls(**{field.name: said[field.name] for field in fields(cls) if field.name in said})

    def text(self) -> str:
        """As JSON."""
        return _ENCODER.encode({name: getattr(self, name) for name in self.__slots__})


class LinkReports(NamedTuple):
    """The last reports of an instance's links.

    Attributes:
        outgoing: those to its destinations, by the destination's name.
        incoming: those that come in, by the name of the instance that they come from.
    """

    outgoing: dict[str, LinkState]
    incoming: dict[str, LinkState]

    @property
    def groups(self) -> dict[str, str]:
        """Of each destination the group of the instance that its link found last."""
        return {name: link.group for name, link in self.outgoing.items() if link.group}


def read_link_reports(instance: str) -> Call[LinkReports]:
    """Read what all links said of themselves last."""
    return command(["HGETALL", key(instance, "links")], _read_reports)


def _read_reports(reply: RawHash) -> LinkReports:
    reports = LinkReports({}, {})
    for name, text in sorted(texts(reply).items()):
        direction, _, other = name.partition(" ")
        (reports.outgoing if f"{direction} " == _OUT else reports.incoming)[other] = LinkState.parse(text)
    return reports


def read_raw_groups(instance: str) -> Call[dict[bytes, bytes]]:
    """Read the group that each destination's link found last, as text to compare, without parsing the reports."""

    def read(reply: RawHash) -> dict[bytes, bytes]:
        return {name: found[1] for name, text in pairs(reply) if name[:4] == b"out " and (found := _GROUP.search(text))}

    return command(["HGETALL", key(instance, "links")], read)


def read_link_state(instance: str, destination: str) -> Call[LinkState | None]:
    """Read what the link to a destination said of itself last; None where it never did."""
    return command(
        ["HGET", key(instance, "links"), f"{_OUT}{destination}"],
        lambda reply: LinkState.parse(reply) if reply else None,
    )


def incoming_instances(instance: str) -> Call[set[str]]:
    """Read the names of the instances that links come from."""

    def read(reply: Iterable[bytes]) -> set[str]:
        return {name.removeprefix(_IN) for name in names(reply) if name.startswith(_IN)}

    return command(["HKEYS", key(instance, "links")], read)


def write_link_state(instance: str, state: LinkState, *, is_incoming: bool = False) -> Call[int]:
    """Write what a link says of itself, at its source or, where it comes in, at its destination."""
    name = f"{_IN}{state.source}" if is_incoming else f"{_OUT}{state.destination}"
    return command(["HSET", key(instance, "links"), name, state.text()], int)


class SentPlaces(NamedTuple):
    """The places up to which a destination has what it is sent.

    Attributes:
        peer: the origin of the instance there, "" where none was found yet.
        places: ``log <topic>``, ``same <topic>`` and ``journal <queue>`` -> the ID here up to which it was sent, and
            behind ``@`` and an origin the ID there.
        filters: ``<topic>@<origin>`` -> the digest of the filters that it was sent through.
    """

    peer: str
    places: dict[str, str]
    filters: dict[str, str]


def read_sent_places(instance: str, destination: str) -> Call[SentPlaces]:
    """Read how far a destination has what it is sent."""
    return command(["HGETALL", key(instance, "sent", destination)], _read_sent)


def _read_sent(reply: RawHash) -> SentPlaces:
    known = texts(reply)
    filters = {name.partition(" ")[2]: text for name, text in known.items() if name.startswith("filter ")}
    places = {name: text for name, text in known.items() if " " in name and not name.startswith("filter ")}
    return SentPlaces(known.get(FIELDS["peer"], ""), places, filters)


def drop_sent(instance: str, destination: str) -> Call[int]:
    """Forget how far a destination has what it is sent: another one is there now."""
    return command(["DEL", key(instance, "sent", destination)], int)


def copied_origins(instance: str, topic: str) -> Call[set[str]]:
    """Read the origins of which a topic's log has copies."""
    return command(["SMEMBERS", key(instance, "origins", topic)], name_set)


def removed_up_to(instance: str, topic: str) -> Call[Id]:
    """Read the greatest ID that was removed from a topic's log; 0-0 where nothing was."""
    return command(["HGET", key(instance, "retention"), f"removed {topic}"], lambda reply: parse_id(reply or b"0-0"))
