"""A new incarnation recovers: it holds its shared queues until it has what its peers have of the last one.

Each link that brings something to it, from an instance that does not recover itself, first lets its source take nothing
more of the incarnation that is over (`close_incarnations`), then reads all that is durable there, and says so
(`note_fetched`). Once that is said for every destination that shares a queue, the queues go on.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ampsq.base.errors import DefinitionError
from ampsq.catalog.destination_checks import sent_queue
from ampsq.definitions.destination import Destination
from ampsq.definitions.queue import Queue
from ampsq.protocol.calls import queues as calls
from ampsq.protocol.request import command, script_call
from ampsq.protocol.schema import FIELDS, key

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ampsq.protocol.calls.queues import Catalog
    from ampsq.protocol.request import Call

__all__ = [
    "Recovery",
    "close_incarnations",
    "closed_incarnations",
    "note_fetched",
    "read_recovery",
    "recover",
    "recover_without",
    "recovery_word",
    "resume_recovered",
]


@dataclass(frozen=True, slots=True)
class Recovery:
    """What an instance that recovers waits for.

    Attributes:
        since: ms of the server when it began.
        queues: the queues that are held.
        waits_for: the destinations that were not read to the end yet; while it waits for one, all these queues wait.
        left_out: the destinations that it does not wait for, by the operator's word.
    """

    since: int
    queues: tuple[str, ...]
    waits_for: tuple[str, ...]
    left_out: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The same as plain values, for JSON."""
        return asdict(self)


def recover(origins: Iterable[str]) -> Call[str]:
    """Tell an instance of incarnations that it had; gives the word under which it recovers, "" where it does not."""
    return script_call("begin_recovery", ["", *origins], bytes.decode, repeatable=True)


def close_incarnations(instance: str, origins: Iterable[str]) -> Call[int]:
    """Let an instance take nothing more that was read of these incarnations of others."""
    return command(["SADD", key(instance, "closed"), *origins], int)


def closed_incarnations(instance: str) -> Call[set[str]]:
    """The incarnations of others that are over, as far as an instance was told."""
    return command(["SMEMBERS", key(instance, "closed")], lambda reply: {origin.decode() for origin in reply})


def recovery_word(instance: str) -> Call[str]:
    """The word under which an instance recovers, "" where it does not."""
    return command(["HGET", key(instance, "instance"), FIELDS["recovering"]], lambda reply: (reply or b"").decode())


def note_fetched(instance: str, word: str, peer: str, group: str) -> Call[int]:
    """Note that an instance has all that a peer has, durable, and that the peer takes nothing more of the last."""
    return command(["HSET", key(instance, "recovery"), f"from {peer}", f"{word} {group}"], int)


async def resume_recovered(instance: str) -> Recovery | None:
    """Let those queues go on for which nobody is waited any more; None where the instance does not recover any more."""
    word: str = await recovery_word(instance)
    found = await read_recovery(instance)
    if found is None:
        return None
    queues = found.queues if not found.waits_for else (await _alone(found.queues))
    if not found.waits_for or queues:
        left = await script_call("end_recovery", ["", word, *queues], int, repeatable=True)
        return found if left > 0 else None
    return found


async def read_recovery(instance: str) -> Recovery | None:
    """What an instance waits for; None where it does not recover."""
    word: str = await recovery_word(instance)
    if not word:
        return None
    catalog: Catalog = await calls.catalog()
    held: list[str] = []
    for queue in sorted(catalog.queues):
        is_held = await command(["HEXISTS", key(instance, "queue", queue), FIELDS["recovering"]], bool)
        held += [queue] if is_held else []
    said: dict[str, str] = await command(["HGETALL", key(instance, "recovery")], _texts)
    known = {name: text.partition(" ") for name, text in said.items()}
    groups = {name: group for name, (of, _, group) in known.items() if of == word}
    waits_for, left_out = [], []
    for name, text in sorted(catalog.destinations.items()):
        definition = Destination.from_json(text)
        if not _shares(definition, catalog, held):
            continue
        if f"without {name}" in groups:
            left_out.append(name)
        elif not _is_fetched(definition, groups):
            waits_for.append(name)
    return Recovery(int(word.partition("-")[0]), tuple(held), tuple(waits_for), tuple(left_out))


async def recover_without(instance: str, destination: str) -> Recovery | None:
    """Wait for a destination no more, which is gone for good, or for long; the operator's word.

    Returns:
        What is waited for still; None where the instance recovers no more.

    Raises:
        DefinitionError: there is no such destination.
    """
    catalog: Catalog = await calls.catalog()
    if destination not in catalog.destinations:
        known = ", ".join(sorted(catalog.destinations)) or "none"
        raise DefinitionError(f"no destination {destination!r}; there are: {known}")
    word: str = await recovery_word(instance)
    if word:
        await command(["HSET", key(instance, "recovery"), f"without {destination}", word], int)
    return await resume_recovered(instance)


async def _alone(held: Iterable[str]) -> tuple[str, ...]:
    """Those queues that no destination shares."""
    catalog: Catalog = await calls.catalog()
    definitions = [Destination.from_json(text) for text in catalog.destinations.values()]
    return tuple(name for name in held if not any(_shares(each, catalog, [name]) for each in definitions))


def _shares(definition: Destination, catalog: Catalog, queues: Iterable[str]) -> bool:
    return any(sent_queue(definition, Queue.from_json(catalog.queues[name])) is not None for name in queues)


def _is_fetched(definition: Destination, groups: Mapping[str, str]) -> bool:
    return any(
        definition.leads_to(name.removeprefix("from "), group)
        for name, group in groups.items()
        if name.startswith("from ")
    )


def _texts(reply: Any) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in zip(reply[::2], reply[1::2], strict=True)}
