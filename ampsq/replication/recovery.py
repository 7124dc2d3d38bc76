"""A new incarnation recovers: it holds its shared queues until it has what its peers have of the last one.

Each link that brings something to it, from an instance that does not recover itself, first lets its source take nothing
more of the incarnation that is over (`close_incarnations`), then reads all that is durable there, and says so
(`note_fetched`). Once that is said for every destination that shares a queue, the queues go on.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from ampsq.base.errors import DefinitionError
from ampsq.base.values import check_text
from ampsq.catalog.sent_streams import sent_queue
from ampsq.definitions.stored import read_stored_queue
from ampsq.definitions.stored_destination import read_stored_destination
from ampsq.protocol.calls import catalog as catalog_calls
from ampsq.protocol.calls import incarnations as incarnation_calls

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ampsq.definitions.stored_destination import StoredDestination
    from ampsq.protocol.calls.catalog import Catalog
    from ampsq.protocol.calls.incarnations import RecoveryNotes

__all__ = ["Recovery", "read_recovery", "recover_without", "resume_recovered"]


@dataclass(frozen=True, slots=True)
class Recovery:
    """The recovery of an instance, with what it waits for.

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

    def as_dict(self) -> dict[str, object]:
        """The same as plain values, for JSON."""
        return asdict(self)


async def resume_recovered(instance: str) -> Recovery | None:
    """Let those queues go on for which nobody is waited any more; None where the instance does not recover any more."""
    word: str = await incarnation_calls.recovery_word(instance)
    found = await read_recovery(instance)
    if found is None:
        return None
    queues = found.queues if not found.waits_for else (await _alone(found.queues))
    if not found.waits_for or queues:
        left = await incarnation_calls.end_recovery(word, queues)
        return found if left > 0 else None
    return found


async def read_recovery(instance: str) -> Recovery | None:
    """Read the recovery of an instance; None where it does not recover."""
    word: str = await incarnation_calls.recovery_word(instance)
    if not word:
        return None
    catalog: Catalog = await catalog_calls.catalog()
    held: list[str] = []
    for queue in sorted(catalog.queues):
        is_held = await incarnation_calls.is_recovering(instance, queue)
        held += [queue] if is_held else []
    notes: RecoveryNotes = await incarnation_calls.read_recovery_notes(instance, word)
    waits_for, left_out = [], []
    for name, text in sorted(catalog.destinations.items()):
        definition = read_stored_destination(text)
        if not _shares(definition, catalog, held):
            continue
        if name in notes.left_out:
            left_out.append(name)
        elif not _is_fetched(definition, notes.fetched):
            waits_for.append(name)
    return Recovery(int(word.partition("-")[0]), tuple(held), tuple(waits_for), tuple(left_out))


async def recover_without(instance: str, destination: str) -> Recovery | None:
    """Wait for a destination no more, which is gone for good, or for long; the operator's word.

    Returns:
        What is waited for still; None where the instance recovers no more.

    Raises:
        DefinitionError: there is no such destination.
    """
    check_text("destination", destination)
    catalog: Catalog = await catalog_calls.catalog()
    if destination not in catalog.destinations:
        known = ", ".join(sorted(catalog.destinations)) or "none"
        raise DefinitionError(f"no destination {destination!r}; there are: {known}")
    word: str = await incarnation_calls.recovery_word(instance)
    if word:
        await incarnation_calls.note_left_out(instance, word, destination)
    return await resume_recovered(instance)


async def _alone(held: Iterable[str]) -> tuple[str, ...]:
    """Return the queues that no destination shares."""
    catalog: Catalog = await catalog_calls.catalog()
    definitions = [read_stored_destination(text) for text in catalog.destinations.values()]
    return tuple(name for name in held if not any(_shares(each, catalog, [name]) for each in definitions))


def _shares(definition: StoredDestination, catalog: Catalog, queues: Iterable[str]) -> bool:
    return any(sent_queue(definition, read_stored_queue(catalog.queues[name])) is not None for name in queues)


def _is_fetched(definition: StoredDestination, fetched: Mapping[str, str]) -> bool:
    return any(definition.leads_to(name, group) for name, group in fetched.items())
