"""View of ``ampsq top QUEUE``: one queue's figures, its tables, and the screen that they make."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

from ampsq.base.formatting import duration_text, printable
from ampsq.cli.top_view import cell, draw_table, progress, rates, ready

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from rich.console import RenderableType

    from ampsq.cli.top_view import Cell
    from ampsq.operations.latencies import LatencyPercentiles
    from ampsq.operations.queue_survey import QueueSurvey
    from ampsq.operations.subscribers import Subscriber

__all__ = ["QUEUE_COLUMNS", "QueueView"]

#: The columns of the tables, as JSON has them, too.
QUEUE_COLUMNS: Final[Mapping[str, Sequence[str]]] = {
    "subscriptions": ("subscription", "client", "leased", "max_backlog", "state", "filter"),
    "groups": ("group", "leased", "waiting", "failed", "stopped", "oldest"),
    "progress": ("topic", "id", "done", "said", "seconds_ago"),
}
#: Lines of a table's head, with the blank one above it, and least rows of it.
_HEAD: Final = 2
_LEAST: Final = 2
_GAP: Final = "   "


class QueueView:
    """A queue as it was read last, and before.

    Args:
        queue: its name.
        top: rows of each table at most.
    """

    def __init__(self, queue: str, top: int) -> None:
        self._queue, self._top = queue, top
        self._now: QueueSurvey | None = None
        self._rates: tuple[float | None, float | None] = (None, None)

    def take(self, survey: QueueSurvey) -> None:
        """Go on to another survey."""
        if self._now is not None:
            self._rates = rates(self._now.stats, survey.stats, (survey.at - self._now.at) / 1000)
        self._now = survey

    @property
    def heading(self) -> str:
        """Name of the queue, for the first line."""
        return f"queue {self._queue}"

    @property
    def columns(self) -> Mapping[str, Sequence[str]]:
        """The columns of each table."""
        return QUEUE_COLUMNS

    def press(self, key: str) -> bool:  # noqa: ARG002
        """Take a key; gives whether it changes what is shown: none does."""
        return False

    def as_dict(self) -> dict[str, object]:
        """Return all that was read as JSON values; empty before the first survey."""
        if self._now is None:
            return {}
        latencies = self._now.latencies.as_dict()
        figures = {name: latencies[name] for name in ("over", "delivery", "handling")}
        return {
            **_figures(self._now, self._rates),
            "latencies": figures,
            "next": self._now.next.as_dict(),
            **self.tables(),
        }

    def tables(self) -> dict[str, list[dict[str, Cell]]]:
        """Return the rows of each table, as values."""
        if self._now is None:
            return {name: [] for name in QUEUE_COLUMNS}
        at = self._now.at
        rows: dict[str, list[list[Cell]]] = {
            "subscriptions": [
                [each.name, each.client, each.leased, each.room, _state(each), each.filter or None]
                for each in self._now.subscribers
            ],
            "groups": [
                [each.group, each.leased, each.waiting, each.failed, _since(each.stopped, at), _since(each.oldest, at)]
                for each in self._now.groups
            ],
            "progress": [row[1:] for row in progress(self._now.reports, at)],
        }  # fmt: skip
        return {
            name: [dict(zip(columns, row, strict=True)) for row in rows[name][: self._top]]
            for name, columns in QUEUE_COLUMNS.items()
        }

    def lines(self, width: int) -> list[str]:
        """Write the figures, how long messages take, and why the next one waits, in lines of so many characters."""
        if self._now is None:
            return []
        survey, found = self._now, _figures(self._now, self._rates)
        a_second = [("in/s", found["in_per_second"]), ("out/s", found["out_per_second"])]
        counts = [(name, found[name]) for name in ("depth", "ready", "leased", "delayed")]
        counts += [("subscriptions", found["subscribers"])]
        letters = [(f"dead letters in {name}", number) for name, number in survey.dead_letters.items()]
        parts = [
            f"{name} {'-' if number is None else f'{number:,}'}" for name, number in (*a_second, *counts, *letters)
        ]
        parts.insert(3, f"oldest {cell('oldest', _oldest(survey))}")
        texts = [_together(parts), f"delivery  {_percentiles(survey.latencies.delivery)}"]
        texts += [
            f"handling  {_percentiles(survey.latencies.handling)}",
            f"next      {printable(survey.next.sentence)}",
        ]
        lines = [
            line
            for text, indent in zip(texts, ("", *[" " * 10] * 3), strict=True)
            for line in textwrap.wrap(text, max(width, 20), subsequent_indent=indent, break_on_hyphens=False)
        ]
        return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]

    def screen(self, title: str, width: int, height: int) -> RenderableType:
        """Draw figures and tables so that they fit; what has most rows gives most of them up."""
        from rich.console import Group
        from rich.text import Text

        lines = self.lines(width)
        found = {name: rows for name, rows in self.tables().items() if rows}
        room = max(height - 2 - len(lines) - _HEAD * len(found), _LEAST * len(found))
        rooms = _shared(room, {name: len(rows) for name, rows in found.items()})
        parts: list[RenderableType] = [Text(title, style="bold", no_wrap=True, overflow="ellipsis")]
        parts += [Text(line, no_wrap=True, overflow="ellipsis") for line in lines]
        for name, rows in found.items():
            parts += [Text(""), draw_table(QUEUE_COLUMNS[name], rows[: rooms[name]], width)]
        return Group(*parts)


def _figures(survey: QueueSurvey, a_second: tuple[float | None, float | None]) -> dict[str, Cell | dict[str, int]]:
    stats = survey.stats
    come, gone = (None if rate is None else round(rate, 1) for rate in a_second)
    return {
        "queue": stats.name, "in_per_second": come, "out_per_second": gone, "depth": stats.depth, "ready": ready(stats),
        "leased": stats.leased, "delayed": stats.delayed + stats.scheduled,
        "oldest": _oldest(survey),
        "subscribers": stats.subscriptions, "dead_letters": dict(survey.dead_letters),
    }  # fmt: skip


def _since(time: datetime | None, now: int) -> float | None:
    """Seconds since a time; None where there is none."""
    return None if time is None else max(round(now / 1000 - time.timestamp(), 3), 0.0)


def _oldest(survey: QueueSurvey) -> float | None:
    ages = survey.ages
    return None if ages.message is None and ages.leased is None else ages.behind


def _state(each: Subscriber) -> str:
    if each.is_silent:
        return "silent"
    return "full" if each.leased >= each.room else "has room"


def _percentiles(took: LatencyPercentiles) -> str:
    if not took.samples:
        return "nothing measured in the last 15m"
    parts = [f"{name} {duration_text(getattr(took, name))}" for name in ("p50", "p95", "p99")]
    return _together([*parts, f"({took.samples:,} measured in the last 15m)"])


def _together(parts: Sequence[str]) -> str:
    """Join texts of which none is to be broken: a no-break space is none at which a line is."""
    return _GAP.join(part.replace(" ", "\N{NO-BREAK SPACE}") for part in parts)


def _shared(room: int, wanted: Mapping[str, int]) -> dict[str, int]:
    """Share rows among tables: none more than it wants, and what one leaves goes to the others."""
    given: dict[str, int] = {}
    for number, (name, rows) in enumerate(sorted(wanted.items(), key=lambda each: each[1])):
        given[name] = min(rows, max((room - sum(given.values())) // (len(wanted) - number), 1))
    return given
