"""The list of queues: which are shown, in which order, a page at a time; and how lengths of time are written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ampsq.base.formatting import span_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ampsq.operations.figures import QueueFigures

__all__ = ["PAGE", "SORTS", "Listed", "asked_number", "choose_queues", "span", "wait"]

#: Queues on one page.
PAGE: Final = 50
#: Name -> by what queues are sorted; all but the names have the largest first.
SORTS: Final[Mapping[str, Callable[[QueueFigures], float]]] = {
    "depth": lambda queue: queue.stats.depth,
    "available": lambda queue: queue.stats.waiting + queue.stats.ready,
    "leased": lambda queue: queue.stats.leased,
    "delayed": lambda queue: queue.stats.delayed + queue.stats.scheduled,
    "oldest": lambda queue: queue.ages.message or -1.0,
}


@dataclass(frozen=True, slots=True)
class Listed:
    """One page of the list.

    Attributes:
        queues: those on it.
        search: what their names have.
        sort: by what they are sorted: ``name`` or one of `SORTS`.
        page: its number, from 1.
        pages: how many there are.
        number: of queues on all of them.
    """

    queues: tuple[QueueFigures, ...]
    search: str
    sort: str
    page: int
    pages: int
    number: int


def choose_queues(queues: Iterable[QueueFigures], search: str, sort: str, page: str) -> Listed:
    """Choose the queues of a page; what is asked for and does not exist is taken as the default."""
    wanted = search.strip().lower()
    found = [each for each in queues if wanted in each.stats.name.lower()]
    found.sort(key=lambda each: each.stats.name)
    if sort in SORTS:
        found.sort(key=SORTS[sort], reverse=True)
    pages = max(-(-len(found) // PAGE), 1)
    at = asked_number(page, pages)
    shown = tuple(found[(at - 1) * PAGE : at * PAGE])
    return Listed(shown, search.strip(), sort if sort in SORTS else "name", at, pages, len(found))


def asked_number(text: str, most: int, default: int = 1) -> int:
    """Read a number that an address asks for: what is no number is the default, what is too small or large the limit.

    Args:
        text: what the address has.
        most: the largest that is allowed; the least is 1.
        default: instead of what is no number.
    """
    if not text.isdecimal():
        return default
    # Python reads no number of very many digits.
    return min(max(int(text), 1), most) if len(text.lstrip("0")) <= len(str(most)) else most


def span(seconds: float | None) -> str:
    """A length of time for people; a dash where there is none."""
    return "–" if seconds is None else span_text(round(seconds * 1000))  # noqa: RUF001  (a dash, as it is set)


def wait(seconds: float | None) -> str:
    """Return how long something has waited, to the second: a text that changes each second would flicker."""
    if seconds is None:
        return "–"  # noqa: RUF001  (a dash, as it is set)
    return "under 1s" if seconds < 1 else span_text(int(seconds) * 1000)
