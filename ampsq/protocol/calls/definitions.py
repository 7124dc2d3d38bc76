"""The calls that define topics, queues, settings, views, actions and destinations.

See `ampsq.protocol.calls.queues`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ampsq.protocol.limits import BATCH, DEFERRED_PERIOD
from ampsq.protocol.request import Call, command, script_call
from ampsq.protocol.schema import COMPILED, POLICY, key

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from redis.typing import EncodableT

__all__ = [
    "CompiledQueue",
    "define_action",
    "define_conflated",
    "define_destination",
    "define_instance",
    "define_queue",
    "define_setting",
    "define_topic",
    "define_transport",
    "define_view",
    "drop_wanted",
    "note_definitions",
    "read_wanted",
    "remove_action",
    "remove_conflated",
    "remove_destination",
    "remove_queue",
    "remove_setting",
    "remove_transport",
    "remove_view",
    "set_intent",
    "want_name",
]


def define_topic(
    version: int,
    topic: str,
    definition: str,
    queues: Iterable[str],
    *,
    life: int = 0,
    paths: str = "",
    type: str = "",  # noqa: A002
) -> Call[int]:
    """Add a topic and the queues that it feeds, if the catalog is still at `version`; gives the catalog's next version.

    Args:
        version: of the catalog that this was worked out from.
        topic: its name.
        definition: as JSON.
        queues: those that it feeds.
        life: of its records, ms; 0 without a limit.
        paths: of its key, as lua/records/lib/record_key.lua takes them.
        type: the word of its message type, "" for JSON.
    """
    arguments: list[EncodableT] = ["", version, topic, definition, life, paths, type, *queues]
    return script_call("define_topic", arguments, int)


@dataclass(frozen=True, slots=True)
class CompiledQueue:
    """A queue's definition as the scripts take it.

    Attributes:
        numbers: those that `schema.COMPILED` names.
        topic: its only one, or "".
        policy: the numbers that `schema.POLICY` names.
        trees: of its filter, its priority, its barrier expression; "" where there is none.
        ring: the size of the ring, or None.
        recorded: whether its deliveries are recorded.
        type: the word of its message type, "" for JSON.
        owner: `Queue.owner`.
        domain: `Queue.domain`.
        deferral: ms for which what is told of a message waits for it.
        grouping: as lua/definitions/lib/queue_grouping.lua takes it, "" of a queue without groups.
        rated: its rates, as lua/queues/lib/queue.lua takes them, "" of a queue without any.
    """

    numbers: Mapping[str, int]
    topic: str
    policy: Mapping[str, int]
    trees: Sequence[str]
    ring: int | None
    recorded: bool
    type: str
    owner: str
    domain: str
    deferral: int
    grouping: str
    rated: str

    @property
    def arguments(self) -> list[EncodableT]:
        """The arguments between `target` and `number` in the script's head."""
        numbers = " ".join(str(self.numbers[name]) for name in COMPILED) + (f" {self.topic}" if self.topic else "")
        numbers += f":{self.type}" if self.type else ""
        ring = "" if self.ring is None else self.ring
        deferral = "" if self.deferral == DEFERRED_PERIOD else self.deferral
        ownership: list[EncodableT] = [self.owner, self.domain, deferral]
        # Most queues have none that differs.
        policy = "" if self.policy == dict(POLICY) else " ".join(str(self.policy[name]) for name in POLICY)
        return [numbers, policy, *self.trees, ring, int(self.recorded), *ownership, self.grouping, self.rated]


def define_queue(  # noqa: PLR0917  (in the order of the script's head)
    version: int,
    name: str,
    definition: str,
    compiled: CompiledQueue,
    target: str,
    topics: Sequence[str],
    subscriptions: Sequence[str],
) -> Call[int]:
    """Add or change a queue; gives the catalog's next version.

    Args:
        version: of the catalog that this was worked out from.
        name: the queue.
        definition: as JSON.
        compiled: the same for the scripts.
        target: where a publish to its name goes.
        topics: those that feed it.
        subscriptions: those whose pattern matches its name.
    """
    head: list[EncodableT] = ["", version, name, definition, target, *compiled.arguments]
    return script_call("define_queue", [*head, len(topics), *topics, *subscriptions], int)


def define_setting(version: int, match: str, definition: str) -> Call[None]:
    """Add or change an address setting."""
    return script_call("define_setting", [version, match, definition], lambda _: None)


def set_intent(expected: str, intent: str) -> Call[None]:
    """Say in the first partition what is being defined in all, where `expected` stands there; a repeat finds itself."""
    return script_call("set_intent", [expected, intent], lambda _: None, repeatable=True)


def note_definitions(version: int) -> Call[None]:
    """Note the version of the definitions of all partitions that one is given; it refuses older ones from then on."""
    return script_call("note_definitions", [version], lambda _: None, repeatable=True)


def define_transport(version: int, name: str, definition: str, limits: str) -> Call[None]:
    """Add or change a transport; `limits` are `Transport.limits`."""
    return script_call("define_transport", [version, name, definition, limits], lambda _: None)


def define_destination(version: int, name: str, definition: str, *, is_sync: bool) -> Call[None]:
    """Add or change a destination; `is_sync`: its acknowledgement is waited for."""
    return script_call("define_destination", [version, name, definition, int(is_sync)], lambda _: None)


def remove_destination(name: str) -> Call[bool]:
    """Remove a destination and what it holds; says whether there was one."""
    return script_call("remove_destination", [name], bool)


def define_instance(
    version: int, group: str, label: str, expression_limit: int | None, *, defined_only: bool
) -> Call[None]:
    """Say what an instance is.

    Args:
        version: of the catalog.
        group: which group it belongs to; "" for the default, its name.
        label: what people call it; "" for none.
        expression_limit: bytes; None for the default.
        defined_only: a first publish makes no topic.
    """
    arguments: list[EncodableT] = [version, group, label, expression_limit or "", 1 if defined_only else ""]
    return script_call("define_instance", arguments, lambda _: None)


def define_conflated(version: int, name: str, definition: str) -> Call[None]:
    """Add or change a conflated topic."""
    return script_call("define_conflated", [version, name, definition], lambda _: None)


def define_view(version: int, name: str, definition: str) -> Call[None]:
    """Add or change a view."""
    return script_call("define_view", [version, name, definition], lambda _: None)


def define_action(
    version: int,
    name: str,
    definition: str,
    orders: Iterable[tuple[str, str, str]],
    *,
    has_listeners: bool,
) -> Call[None]:
    """Add or change an action.

    Args:
        version: of the catalog that this was worked out from.
        name: the action.
        definition: as JSON.
        orders: what the script's head lists: a word, what it is about, and a stream or "".
        has_listeners: whether any action asks for happenings.
    """
    values = [text for order in orders for text in order]
    return script_call("define_action", ["", version, name, definition, int(has_listeners), *values], lambda _: None)


def want_name(name: str) -> Call[bool]:
    """Ask for a topic or a queue; False where this user may define it, and has to."""
    return script_call("want_name", ["", name], bool, repeatable=True)


def read_wanted(instance: str) -> Call[list[str]]:
    """Read the names that were asked for, the oldest first, at most 500."""
    wanted = key(instance, "wanted")

    def read(reply: list[bytes]) -> list[str]:
        return [name.decode(errors="replace") for name in reply]

    return command(["ZRANGE", wanted, 0, BATCH - 1], read)


def drop_wanted(instance: str, names: Sequence[str]) -> Call[int]:
    """Forget names that were asked for."""
    return command(["ZREM", key(instance, "wanted"), *names], int)


def remove_queue(version: int, name: str) -> Call[bool]:
    """Remove a queue that nobody uses, and all that it keeps; says whether there was one."""
    return script_call("remove_queue", [version, name], bool)


def remove_view(version: int, name: str) -> Call[bool]:
    """Remove a view and its rows; says whether there was one."""
    return script_call("remove_view", [version, name], bool)


def remove_conflated(version: int, name: str) -> Call[bool]:
    """Remove a conflated topic; says whether there was one."""
    return script_call("remove_conflated", [version, name], bool)


def remove_setting(version: int, match: str) -> Call[bool]:
    """Remove an address setting that says nothing any more; says whether there was one."""
    return script_call("remove_setting", [version, match], bool)


def remove_transport(version: int, name: str) -> Call[bool]:
    """Remove a transport and its limits; says whether there was one."""
    return script_call("remove_transport", [version, name], bool)


def remove_action(version: int, name: str, queues: Iterable[str], *, has_listeners: bool) -> Call[bool]:
    """Remove an action; says whether there was one.

    Args:
        version: of the catalog that this was worked out from.
        name: the action.
        queues: those whose deliveries nobody follows without it.
        has_listeners: whether any other action asks for happenings.
    """
    return script_call("remove_action", [version, name, int(has_listeners), *queues], bool)
