"""Address settings: what queues are by default, by the pattern of their topic's name, as Artemis has it."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Final, Self

from pydantic import BeforeValidator, PlainSerializer, PlainValidator

from ampsq.base.errors import DefinitionError
from ampsq.base.values import Interval, is_name, parse_count, shown
from ampsq.definitions.definition import Definition, Fault
from ampsq.definitions.elements import NO_RING, Factor, Multiplier, RingSize

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import timedelta

    from ampsq.definitions.queue import Queue

__all__ = ["NO_LIMIT", "AddressSetting", "covers", "makes_queues", "settled_for"]

NO_LIMIT: Final = -1
"""Artemis's word for "none": no limit of deliveries, no expiration, no ring."""

_MATCH_ALLOWED = (
    "words of the characters A-Z a-z 0-9 _ / - with dots between them, of which some may be * (one word) or # (any "
    "words, none too), as in 'ring.#'"
)
_MATCH = re.compile(r"[A-Za-z0-9_/*#.-]{1,255}")
_WILD = ("*", "#")


def _match(value: object) -> str:
    if not isinstance(value, str) or not _MATCH.fullmatch(value):
        raise DefinitionError(f"{shown(value)} is no match; allowed: {_MATCH_ALLOWED}")
    mixed = [word for word in value.split(".") if word not in _WILD and not is_name(word or "_")]
    if mixed:
        raise DefinitionError(f"{shown(value)}: {mixed[0]!r} is no word; allowed: {_MATCH_ALLOWED}")
    return value


def _attempts(value: object) -> int:
    allowed = f"a whole number from 0 to 1000000000, or {NO_LIMIT} for no limit"
    return NO_LIMIT if value in (NO_LIMIT, str(NO_LIMIT)) else parse_count(value, allowed)


def _expiry_delay(value: object) -> Interval | int:
    if value in (NO_LIMIT, str(NO_LIMIT)):
        return NO_LIMIT
    delay = Interval.parse(value)
    if delay < 1:
        raise DefinitionError(f"{shown(value)} would expire everything at once; allowed: 1ms or longer, or {NO_LIMIT}")
    return delay


if TYPE_CHECKING:
    Delay = Interval
    ExpiryDelay = int
else:
    _AS_TEXT = PlainSerializer(lambda value: getattr(value, "text", value), when_used="json")
    Delay = Annotated[Interval, PlainValidator(Interval.parse), _AS_TEXT]
    ExpiryDelay = Annotated[int, PlainValidator(_expiry_delay), _AS_TEXT]

Match = Annotated[str, BeforeValidator(_match)]
Attempts = Annotated[int, BeforeValidator(_attempts)]


class AddressSetting(Definition):
    """Defaults of the queues whose topic's name matches.

    Where several settings match a name, each element counts of the most specific one that gives it: a name in full
    before ``*``, ``*`` before ``#``, and then the one with more words and the longer one. What a queue's own definition
    says counts more than all of them; an element that is as by default there says nothing.

    Attributes:
        match: which names: words with dots between them, ``*`` for one word, ``#`` for any words, none too. The name
            is that of the queue's topic (of one over several topics, of its `default_publish_target`).
        default_ring_size: `ring_size` of a queue; -1: no limit. Queues with a priority or barriers are no rings.
        auto_create_queues: a queue of a name that matches is made when somebody first subscribes to it, or publishes
            to it while it is no topic yet. Default: false.
        redelivery_delay: the same of a queue.
        redelivery_delay_multiplier: the same of a queue.
        redelivery_collision_avoidance_factor: the same of a queue.
        max_redelivery_delay: the same of a queue.
        max_delivery_attempts: `max_deliveries` of a queue; -1: no limit.
        expiry_delay: `expiration` of a queue; -1: none.
    """

    name: Match
    default_ring_size: RingSize | None = None
    auto_create_queues: bool | None = None
    redelivery_delay: Delay | None = None
    redelivery_delay_multiplier: Multiplier | None = None
    redelivery_collision_avoidance_factor: Factor | None = None
    max_redelivery_delay: Delay | None = None
    max_delivery_attempts: Attempts | None = None
    expiry_delay: ExpiryDelay | None = None

    if TYPE_CHECKING:
        # A setting is known by what it matches; a type checker cannot know that the two are one.
        def __init__(
            self,
            *,
            match: str,
            default_ring_size: int | None = None,
            auto_create_queues: bool | None = None,
            redelivery_delay: timedelta | float | str | None = None,
            redelivery_delay_multiplier: float | None = None,
            redelivery_collision_avoidance_factor: float | None = None,
            max_redelivery_delay: timedelta | float | str | None = None,
            max_delivery_attempts: int | None = None,
            expiry_delay: timedelta | float | str | None = None,
        ) -> None: ...

    @property
    def match(self) -> str:
        """The pattern, which is the setting's name."""
        return self.name

    def matches(self, address: str) -> bool:
        """Say whether a name matches."""
        return covers(self.match, address)

    @property
    def rank(self) -> tuple[bool, bool, int, int, str]:
        """The setting's rank among those that match the same name: less is more specific."""
        words = self.match.split(".")
        plain = sum(word not in _WILD for word in words)
        return "#" in words, "*" in words, -plain, -len(self.match), self.match

    @classmethod
    def _fill(cls, instance: Self, elements: Mapping[str, Any]) -> list[Fault]:
        return [_renamed(fault) for fault in super()._fill(instance, elements)]

    @classmethod
    def _completed(cls, elements: Mapping[str, Any]) -> dict[str, Any]:
        given = super()._completed(elements)
        if "name" not in given and "match" in given:
            given["name"] = given.pop("match")
        return given


def _renamed(fault: Fault) -> Fault:
    if fault.element != "name":
        return fault
    return Fault("match", f"missing; allowed: {_MATCH_ALLOWED}" if fault.text.startswith("missing") else fault.text)


@lru_cache(maxsize=4096)
def covers(pattern: str, name: str) -> bool:
    """Say whether a pattern matches a name, or all that another pattern matches."""
    words = name.split(".")
    # How many words of the name the pattern's words up to here may stand for.
    reached = {0}
    for word in pattern.split("."):
        if word == "#":
            reached = set(range(min(reached), len(words) + 1))
        else:
            ahead = [at for at in reached if at < len(words)]
            reached = {at + 1 for at in ahead if words[at] == word or (word == "*" and words[at] != "#")}
        if not reached:
            return False
    return len(words) in reached


def _merged(settings: Iterable[AddressSetting], address: str) -> dict[str, Any]:
    """Element -> value, each of the most specific setting that gives it."""
    found: dict[str, Any] = {}
    for setting in sorted((each for each in settings if each.matches(address)), key=lambda each: each.rank):
        for element in type(setting).model_fields:
            value = getattr(setting, element)
            if value is not None:
                found.setdefault(element, value)
    return found


def makes_queues(settings: Iterable[AddressSetting], name: str) -> bool:
    """Say whether a queue of this name is made when it is first used."""
    return bool(_merged(settings, name).get("auto_create_queues", False))


def settled_for(queue: Queue, settings: Iterable[AddressSetting]) -> Queue:
    """The definition that counts for a queue: its own elements, and what the settings say of the others."""
    found = _merged(settings, queue.default_publish_target)
    if not found:
        return queue
    own = queue.elements()
    update = {element: value for element, value in _as_elements(found).items() if element not in own}
    if "ring_size" in update and (queue.priority or queue.barrier_expression or queue.is_grouped):
        del update["ring_size"]
    delay, most = (update.get(name, getattr(queue, name)) for name in ("redelivery_delay", "max_redelivery_delay"))
    if "max_redelivery_delay" in {**own, **update} and most < delay:
        # What the queue itself says is not cut by a setting; of settings, the longest delay is the limit of the other.
        update.update({"max_redelivery_delay": delay} if "redelivery_delay" in own else {"redelivery_delay": most})
    return queue.model_copy(update=update) if update else queue


def _as_elements(found: Mapping[str, Any]) -> dict[str, Any]:
    """The same as elements of a queue, without what says no more than a queue's default."""
    elements = {
        name: found[name]
        for name in (
            "redelivery_delay", "redelivery_delay_multiplier", "redelivery_collision_avoidance_factor",
            "max_redelivery_delay",
        )
        if name in found
    }  # fmt: skip
    if found.get("default_ring_size", NO_RING) != NO_RING:
        elements["ring_size"] = found["default_ring_size"]
    if found.get("max_delivery_attempts", 0) > 0:
        elements["max_deliveries"] = found["max_delivery_attempts"]
    if found.get("expiry_delay", NO_LIMIT) != NO_LIMIT:
        # At once is the least that a queue can have.
        elements["expiration"] = Interval(max(found["expiry_delay"], 1))
    return elements
