"""View of ``ampsq top``: rows, their order, and the screen that they make."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from ampsq.base.formatting import span_text

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Mapping, Sequence

    from rich.console import RenderableType

    from ampsq.operations.survey import Survey, SurveyedSubscription
    from ampsq.protocol.calls.queue_stats import QueueStats

__all__ = ["COLUMNS", "HEADS", "SORTS", "TopView", "cell", "screen", "tables"]

#: A value of a table.
Cell: TypeAlias = "str | float | list[str] | None"
#: The columns of the tables, as JSON has them, too.
COLUMNS: Final[Mapping[str, Sequence[str]]] = {
    "queues": ("queue", "ready", "leased", "delayed", "in_per_second", "out_per_second", "oldest", "subscriptions"),
    "subscriptions": ("subscription", "client", "queues", "leased", "max_backlog"),
    "progress": ("queue", "topic", "id", "done", "said", "seconds_ago"),
    "links": ("link", "state", "ack", "behind", "seconds_behind", "messages_per_second"),
}
#: What people read above them.
HEADS: Final[Mapping[str, str]] = {
    "in_per_second": "in/s", "out_per_second": "out/s", "messages_per_second": "messages/s", "subscriptions": "subs",
    "max_backlog": "max", "seconds_behind": "by", "seconds_ago": "ago",
}  # fmt: skip
#: Key of the order -> what it goes by; all but names from the most on.
SORTS: Final[Sequence[str]] = ("depth", "ready", "leased", "delayed", "in", "out", "oldest", "subscriptions", "name")
#: Columns of a screen that those with few columns do without, and how many those have at most.
_SPARED: Final = frozenset(("delayed", "subscriptions", "client", "ack", "messages_per_second", "topic", "seconds_ago"))
_NARROW: Final = 60
#: Lines beside the rows of the queues: head, foot, blanks.
_BESIDE: Final = 5
_LEAST: Final = 3


@dataclass
class TopView:
    """The options of the view, and the surveys that it shows.

    Attributes:
        sort: one of `SORTS`.
        top: rows of each table at most.
        filter: a regular expression of queues; None: all.
        before: the last survey, for rates.
        now: this one.
    """

    sort: str
    top: int
    filter: re.Pattern[str] | None
    before: Survey | None = None
    now: Survey | None = None
    rates: dict[str, tuple[float | None, float | None]] = field(default_factory=dict)

    def take(self, survey: Survey) -> None:
        """Go on to another survey."""
        self.before, self.now = self.now, survey
        self.rates = {name: self._rate(name, stats) for name, stats in survey.queues.items()}

    def _rate(self, name: str, stats: QueueStats) -> tuple[float | None, float | None]:
        earlier = self.before.queues.get(name) if self.before is not None else None
        if earlier is None or self.before is None or self.now is None:
            return None, None
        seconds = max(self.now.at - self.before.at, 1) / 1000
        return max(stats.entered - earlier.entered, 0) / seconds, max(stats.settled - earlier.settled, 0) / seconds

    def chosen(self, queues: Mapping[str, QueueStats]) -> list[str]:
        """The queues whose ages are wanted: those that are shown; all, where these decide which ones are."""
        return [*self._matching(queues)] if self.sort == "oldest" else self.shown(queues)

    def shown(self, queues: Mapping[str, QueueStats]) -> list[str]:
        """The names of the queues that are shown, in their order."""
        matching = self._matching(queues)
        if self.sort != "name":
            matching.sort(key=lambda name: (-self._weight(queues[name]), name))
        return matching[: self.top]

    def _matching(self, queues: Mapping[str, QueueStats]) -> list[str]:
        return sorted(name for name in queues if self.filter is None or self.filter.search(name))

    def _weight(self, stats: QueueStats) -> float:
        weights: dict[str, Callable[[], float | None]] = {
            "depth": lambda: stats.depth,
            "ready": lambda: _ready(stats),
            "leased": lambda: stats.leased,
            "delayed": lambda: stats.delayed + stats.scheduled,
            "in": lambda: self.rates.get(stats.name, (0.0, 0.0))[0],
            "out": lambda: self.rates.get(stats.name, (0.0, 0.0))[1],
            "oldest": lambda: self._oldest(stats.name),
            "subscriptions": lambda: stats.subscriptions,
        }
        return weights[self.sort]() or 0.0

    def _oldest(self, name: str) -> float | None:
        ages = self.now.ages.get(name) if self.now is not None else None
        return None if ages is None or (ages.message is None and ages.leased is None) else ages.behind


def _ready(stats: QueueStats) -> int:
    return int(stats.waiting + stats.ready + stats.held)


def tables(view: TopView) -> dict[str, list[dict[str, Cell]]]:
    """The rows of each table, as values."""
    survey = view.now
    if survey is None:
        return {name: [] for name in COLUMNS}
    queues = [_queue(view, survey.queues[name]) for name in view.shown(survey.queues)]
    held = sorted(survey.subscriptions, key=lambda each: (-each.leased, each.subscription))
    shown = [each for each in held if view.filter is None or any(map(view.filter.search, each.queues))]
    links: list[list[Cell]] = [
        [f"{'to' if link.direction == 'out' else 'from'} {link.instance or link.destination}", link.state,
         link.acknowledgement, link.behind, link.seconds_behind, link.messages_per_second]
        for link in survey.links
    ]  # fmt: skip
    rows: dict[str, list[list[Cell]]] = {
        "queues": queues,
        "subscriptions": [_subscription(each) for each in shown[: view.top]],
        "progress": _progress(view, survey)[: view.top],
        "links": links,
    }
    return {name: [dict(zip(COLUMNS[name], row, strict=True)) for row in rows[name]] for name in COLUMNS}


def _queue(view: TopView, stats: QueueStats) -> list[Cell]:
    inside: list[Cell] = [stats.name, _ready(stats), stats.leased, stats.delayed + stats.scheduled]
    rates = [None if rate is None else round(rate, 1) for rate in view.rates.get(stats.name, (None, None))]
    return [*inside, *rates, view._oldest(stats.name), stats.subscriptions]  # noqa: SLF001  (of this module)


def _subscription(each: SurveyedSubscription) -> list[Cell]:
    return [each.subscription, each.client, list(each.queues), each.leased, each.max_backlog]


def _progress(view: TopView, survey: Survey) -> list[list[Cell]]:
    """Return the progress of messages, those first whose report is the latest."""
    reports = sorted(survey.reports, key=lambda each: -each.report.at)
    return [
        [each.queue, each.topic, each.id, each.report.done, each.report.text,
         round(max(survey.at - each.report.at, 0) / 1000, 3)]
        for each in reports if view.filter is None or view.filter.search(each.queue)
    ]  # fmt: skip


def screen(view: TopView, title: str, width: int, height: int) -> RenderableType:
    """Draw the tables so that they fit; queues get what the others leave."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    found = {name: rows for name, rows in tables(view).items() if rows or name == "queues"}
    room = max(height - _BESIDE - 2 * (len(found) - 1), _LEAST * len(found))
    links = min(len(found.get("links", ())), room // 4)
    subscriptions = min(len(found.get("subscriptions", ())), max(room // 3, _LEAST))
    progress = min(len(found.get("progress", ())), room // 4)
    rooms = {"links": links, "subscriptions": subscriptions, "progress": progress}
    rooms["queues"] = room - sum(rooms.values())
    parts: list[RenderableType] = [Text(title, style="bold", no_wrap=True, overflow="ellipsis")]
    for name, rows in found.items():
        drawn = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="reverse", width=width)
        columns = [column for column in COLUMNS[name] if width > _NARROW or column not in _SPARED]
        for number, column in enumerate(columns):
            is_text = column in {
                "queue",
                "subscription",
                "client",
                "queues",
                "link",
                "state",
                "ack",
                "topic",
                "id",
                "said",
            }
            drawn.add_column(
                HEADS.get(column, column), justify="left" if is_text else "right", no_wrap=True, overflow="ellipsis",
                ratio=1 if number == 0 or column in {"queues", "said"} else None, min_width=4,
            )  # fmt: skip
        for row in rows[: rooms[name]]:
            drawn.add_row(*(Text(cell(column, row[column])) for column in columns))
        parts += [Text(""), drawn]
    return Group(*parts)


def cell(column: str, value: Cell) -> str:
    """Write a value as people read it."""
    if value is None:
        return "-"
    if column == "done" and isinstance(value, int | float):
        return f"{value:.0%}"
    if column in {"oldest", "seconds_behind", "seconds_ago"} and isinstance(value, int | float):
        return span_text(int(value * 1000))
    if isinstance(value, list):
        return " ".join(value)
    return f"{value:,}" if isinstance(value, int | float) else str(value)
