"""The definition of a destination: another instance, or several that are alike, and what is replicated to it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, ConfigDict, PlainSerializer

from ampsq.base.errors import DefinitionError
from ampsq.base.message_types import MessageType, MessageTypeName
from ampsq.base.name_patterns import matches_name, pattern_of
from ampsq.base.values import Interval, is_name, shown
from ampsq.definitions.definition import CheckedModel, Definition, Fault, Name
from ampsq.definitions.elements import Delay, Filter, TopicOrPattern

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import timedelta

__all__ = ["CHECKS", "MANDATORY", "MOST_SYNC", "Address", "Destination", "ReplicatedTopic"]

#: What a link checks of the other side's definitions, in AMPS's words; docs/replication.md says what each means.
CHECKS: Final = (
    "txlog", "replicate", "sow", "cascade", "queue", "keys", "replicate_filter", "queue_passthrough",
    "queue_underlying",
)  # fmt: skip
#: Those that no topic can leave out.
MANDATORY: Final = ("queue", "queue_underlying")
#: Most destinations with `sync_type: sync` of an instance; AMPS's own limit.
MOST_SYNC: Final = 64

_ADDRESS_ALLOWED: Final = (
    "the URL of a server (redis://, rediss://, unix://, sentinel:// or cluster://) and, behind #, the instance's name, "
    "as in 'redis://nyc-2:6379#nyc-2'; a # in a password is written %23"
)
_SECRET: Final = re.compile(r"//.*@")


def _passwordless(text: str) -> str:
    """For error texts: no credentials, even of what cannot be read."""
    from ampsq.base.addresses import redacted  # noqa: PLC0415 - redis-py is slow to import

    return _SECRET.sub("//***@", redacted(text))


@dataclass(frozen=True, slots=True, repr=False)
class Address:
    """The address of an instance. As a text it has no passwords.

    Attributes:
        url: of its server, with credentials if it wants some; `ampsq.base.addresses` says which there are.
        instance: its name there; None: the destination's.
    """

    url: str
    instance: str | None = None

    @classmethod
    def parse(cls, value: object) -> Self:
        """Read an address.

        Raises:
            DefinitionError: it is not one; the text shows no passwords.
        """
        from ampsq.base.addresses import parse_endpoints  # noqa: PLC0415 - redis-py is slow to import

        if isinstance(value, cls):
            return value
        if not isinstance(value, str) or not value.strip():
            what = shown(value) if value is None or isinstance(value, str) else f"a {type(value).__name__}"
            raise DefinitionError(f"{what} is no address; allowed: {_ADDRESS_ALLOWED}")
        url, mark, instance = value.strip().partition("#")
        if mark and not is_name(instance):
            raise DefinitionError(
                f"{shown(_passwordless(value))}: behind the # is no instance's name; allowed: {_ADDRESS_ALLOWED}"
            )
        if url.startswith("memory:"):
            raise DefinitionError(
                f"{shown(url)}: a server inside a process has no links, for no other process sees it; allowed: "
                f"{_ADDRESS_ALLOWED}"
            )
        try:
            endpoints = parse_endpoints(url)
        except DefinitionError:
            raise DefinitionError(f"{shown(_passwordless(url))} cannot be read; allowed: {_ADDRESS_ALLOWED}") from None
        if len(endpoints) != 1:
            raise DefinitionError(
                f"{shown(_passwordless(url))} are {len(endpoints)} addresses; allowed: a list with one an item, the "
                "first that is tried first"
            )
        return cls(url, instance or None)

    @property
    def text(self) -> str:
        """As it was given, with its passwords."""
        return f"{self.url}#{self.instance}" if self.instance else self.url

    def __str__(self) -> str:
        shown_url = _passwordless(self.url)
        return f"{shown_url}#{self.instance}" if self.instance else shown_url

    def __repr__(self) -> str:
        return f"Address({str(self)!r})"


def _exclusions(value: object) -> tuple[str, ...]:
    words = [word.strip() for word in value.split(",")] if isinstance(value, str) else value
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        raise DefinitionError(f"{shown(value)} is not a list; allowed: a list of {', '.join(_OPTIONAL)}")
    for word in words:
        if word in MANDATORY:
            raise DefinitionError(
                f"{word!r} cannot be left out: by queues that differ, messages would be lost or delivered twice; "
                f"allowed: {', '.join(_OPTIONAL)}"
            )
        if word not in CHECKS:
            raise DefinitionError(f"{shown(word)} is no check; allowed: {', '.join(_OPTIONAL)}")
    return tuple(check for check in CHECKS if check in words)


_OPTIONAL: Final = tuple(check for check in CHECKS if check not in MANDATORY)
Exclusions = Annotated[tuple[str, ...], BeforeValidator(_exclusions)]


class ReplicatedTopic(CheckedModel):
    """A topic or queue, or a pattern of them, whose messages a destination is sent.

    Attributes:
        name: of a topic or a queue, or a regular expression, searched for anywhere in their names; as everywhere, a
            text with no other characters than a name has is a name.
        message_type: only topics and queues of this type. Default: of any.
        filter: an expression over the body; only messages that match it are sent, and each deletion of a record, by
            its key. What decides it must not change: functions of the moment are refused. Default: all are sent.
        exclude_validation: checks that the link leaves out for them, a list or a text with commas: ``txlog``,
            ``replicate``, ``sow``, ``cascade``, ``keys``, ``replicate_filter``, ``queue_passthrough``. Default: none.
    """

    name: TopicOrPattern
    message_type: MessageTypeName | None = None
    filter: Filter | None = None
    exclude_validation: Exclusions = ()

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            name: str,
            message_type: MessageTypeName | None = None,
            filter: str | None = None,  # noqa: A002
            exclude_validation: Sequence[str] | str | None = None,
        ) -> None: ...

    @property
    def is_pattern(self) -> bool:
        """Return whether the name is a regular expression."""
        return not is_name(self.name)

    @property
    def enforced(self) -> frozenset[str]:
        """The checks that are made."""
        return frozenset(CHECKS) - frozenset(self.exclude_validation)

    def matches(self, name: str, type: MessageType) -> bool:  # noqa: A002
        """Say whether a topic or queue of this name and type is meant."""
        return self.message_type in (None, type.name) and matches_name(self.name, name)

    @classmethod
    def _conflicts(cls, given: Mapping[str, Any]) -> Iterator[Fault]:
        if given.get("message_type") == "binary" and "filter" in given:
            yield Fault("filter", "reads the body, and message_type 'binary' says that nothing can be read there")


def _group_patterns(value: object) -> tuple[str, ...]:
    items = (value,) if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
        raise DefinitionError(f"{shown(value)} is not a list; allowed: {_GROUPS_ALLOWED}")
    for item in items:
        pattern_of(item, allowed=_GROUPS_ALLOWED)
    return tuple(items)


_GROUPS_ALLOWED: Final = "regular expressions of groups' names, as in ['^NYC'], or ['.*'] for all groups"
GroupPatterns = Annotated[tuple[str, ...], BeforeValidator(_group_patterns)]
Topics = Annotated[
    tuple[ReplicatedTopic, ...],
    PlainSerializer(lambda topics: [topic.elements() for topic in topics], when_used="json"),
]
Addresses = Annotated[
    tuple[Address, ...],
    PlainSerializer(lambda addresses: [address.text for address in addresses], when_used="json"),
]
# For a type checker, what is not given fits every type.
_NOT_GIVEN: Any = None
_AT_ONCE: Any = Interval(0)
_TEN_SECONDS: Any = Interval(10_000)


class Destination(Definition):
    """A destination of replication: one link, that sends what is recorded here and has not passed there.

    Attributes:
        name: of the destination; where an address does not say so, that of the instance there.
        group: the group of the instance there, which the link refuses if it is another one. Default: the group of the
            instance that the link finds; that one's name is checked.
        sync_type: ``sync``: what is published here is persisted when it is recorded there, too; at most 64 of an
            instance. ``async``: when it is recorded here. Required.
        topics: what is sent, at least one: `ReplicatedTopic`, its elements, or a name. Of those that match a topic the
            first counts. A queue is replicated if one matches its name, its messages if one matches their topic.
        addresses: instances that are alike, one of which is sent to: the first that can be reached. Each is the URL of
            a server, with credentials and TLS, and behind ``#`` the instance's name. Default: none, the link is made by
            a coordinator of the other side.
        reconnect_timeout: the longest pause before all addresses are tried again; it grows to that with each round that
            reaches none. Default: 10s.
        pass_through: regular expressions, searched for in the names of groups: what arrived here directly from an
            instance of such a group is sent, too. Default: what was published here alone.
        compression: of no effect, whatever it says: a link is a connection of the server's protocol, which has no
            compression. For a thin line use a tunnel that compresses.
        ack_conflation_interval: how often the link says here how far the destination is. For a `sync` destination,
            publishers wait that much longer. Default: 0s, after each batch (AMPS: 1s).
    """

    # An address is no model.
    model_config = ConfigDict(arbitrary_types_allowed=True)

    group: Name | None = None
    sync_type: Literal["sync", "async"] = _NOT_GIVEN
    topics: Topics = ()
    addresses: Addresses = ()
    reconnect_timeout: Delay = _TEN_SECONDS
    pass_through: GroupPatterns = ()
    compression: str | None = None
    ack_conflation_interval: Delay = _AT_ONCE

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            name: str,
            sync_type: Literal["sync", "async"],
            topics: ReplicatedTopic | Mapping[str, Any] | str | Sequence[ReplicatedTopic | Mapping[str, Any] | str],
            group: str | None = None,
            addresses: Sequence[Address | str] | str | None = None,
            reconnect_timeout: timedelta | float | str | None = None,
            pass_through: Sequence[str] | str | None = None,
            compression: str | None = None,
            ack_conflation_interval: timedelta | float | str | None = None,
        ) -> None: ...

    @property
    def peers(self) -> tuple[tuple[str, str], ...]:
        """URL and instance of each address, in the order in which they are tried."""
        return tuple((address.url, address.instance or self.name) for address in self.addresses)

    def topic_for(self, name: str, type: MessageType) -> ReplicatedTopic | None:  # noqa: A002
        """Return the element of `topics` that counts for a topic or a queue; None: it is not sent."""
        return next((topic for topic in self.topics if topic.matches(name, type)), None)

    def leads_to(self, instance: str, group: str) -> bool:
        """Say whether the link may be one to this instance, of this group."""
        if self.addresses:
            return any(instance == name for _, name in self.peers)
        return instance == self.name or (self.group is not None and group == self.group)

    def passes(self, group: str) -> bool:
        """Say whether what arrived directly from this group is sent, too."""
        return any(pattern_of(pattern).search(group) for pattern in self.pass_through)

    def public_elements(self) -> dict[str, Any]:
        """As of every definition; addresses have no passwords."""
        elements = self.elements()
        return {**elements, **({"addresses": [str(each) for each in self.addresses]} if self.addresses else {})}

    def changes_from(self, old: Self) -> dict[str, tuple[Any, Any]]:
        """As of every definition; addresses have no passwords."""
        changes = super().changes_from(old)
        if "addresses" in changes:
            changes["addresses"] = ([str(each) for each in old.addresses], [str(each) for each in self.addresses])
        return changes

    @classmethod
    def _fill(cls, instance: Self, elements: Mapping[str, Any]) -> list[Fault]:
        given, faults = dict(elements), []
        for element, read in (("topics", _read_topic), ("addresses", _read_address)):
            if given.get(element) is not None:
                given[element], wrong = _listed(element, given[element], read)
                faults += wrong
        wrong_elements = {fault.element.partition("[")[0] for fault in faults}
        found = super()._fill(instance, given)
        return [fault for fault in found if fault.element not in wrong_elements] + faults

    @classmethod
    def _conflicts(cls, given: Mapping[str, Any]) -> Iterator[Fault]:
        if "sync_type" not in given:
            yield Fault("sync_type", "missing; allowed: 'sync' or 'async'")
        topics = given.get("topics", ())
        if not topics:
            yield Fault("topics", "missing; allowed: at least one, as in {name: orders}")
        names = [topic.name for topic in topics if isinstance(topic, ReplicatedTopic) and topic.message_type is None]
        for number, name in enumerate(names):
            if name in names[:number]:
                yield Fault("topics", f"{name!r} is there twice; allowed: once, since the first that matches counts")


def _read_topic(value: object) -> ReplicatedTopic:
    if isinstance(value, ReplicatedTopic):
        return value
    elements = {"name": value} if isinstance(value, str) else value
    if not isinstance(elements, dict) or not all(isinstance(each, str) for each in elements):
        raise DefinitionError(f"{shown(value)} is no topic; allowed: its elements, as in {{name: orders}}, or a name")
    faults = ReplicatedTopic.faults(elements)
    if faults:
        raise DefinitionError("; ".join(f"{element}: {text}" for element, text in faults))
    return ReplicatedTopic(**elements)


def _read_address(value: object) -> Address:
    return Address.parse(value)


def _listed(
    element: str, value: object, read: Callable[[object], ReplicatedTopic | Address]
) -> tuple[tuple[ReplicatedTopic | Address, ...], list[Fault]]:
    """The items that can be read, and what is wrong with the others, each with its place in the list."""
    is_list = isinstance(value, list | tuple)
    items: Sequence[object] = value if isinstance(value, list | tuple) else (value,)
    found, faults = [], []
    for number, item in enumerate(items):
        try:
            found.append(read(item))
        except DefinitionError as fault:
            faults.append(Fault(f"{element}[{number}]" if is_list else element, str(fault)))
    return tuple(found), faults
