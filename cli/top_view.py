"""View of ``ampsq top``: rows, their order, and the screen that they make."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from ampsq.base.formatting import duration_text, span_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rich.console import RenderableType

    from ampsq.base.name_automaton import NamePattern
    from ampsq.operations.survey import Survey, SurveyedReport, SurveyedSubscription
    from ampsq.protocol.calls.queue_stats import QueueStats

__all__ = [
    "COLUMNS",
    "SORTS",
    "Cell",
    "TopView",
    "cell",
    "columns_within",
    "draw_table",
    "head",
    "progress",
    "rates",
    "ready",
]

#: A value of a table.
Cell: TypeAlias = "str | float | list[str] | None"
#: The columns of the tables, as JSON has them, too.
COLUMNS: Final[Mapping[str, Sequence[str]]] = {
    "queues": (
        "queue", "ready", "leased", "delayed", "in_per_second", "out_per_second", "oldest", "subscriptions",
        "delivery_p95", "handling_p95",
    ),
    "subscriptions": ("subscription", "client", "queues", "leased", "max_backlog"),
    "progress": ("queue", "topic", "id", "done", "said", "seconds_ago"),
    "links": ("link", "state", "ack", "behind", "seconds_behind", "messages_per_second"),
}  # fmt: skip
#: What people read above them.
_HEADS: Final[Mapping[str, str]] = {
    "in_per_second": "in/s", "out_per_second": "out/s", "messages_per_second": "messages/s", "subscriptions": "subs",
    "max_backlog": "max", "seconds_behind": "by", "seconds_ago": "ago", "delivery_p95": "delivery p95",
    "handling_p95": "handling p95",
}  # fmt: skip
#: Key of the order -> what it goes by; all but names from the most on.
SORTS: Final[Sequence[str]] = ("depth", "ready", "leased", "delayed", "in", "out", "oldest", "subscriptions", "name")
#: Columns of a screen that those with few columns do without, and how many those have at most.
_SPARED: Final = frozenset((
    "delayed", "subscriptions", "client", "ack", "messages_per_second", "topic", "seconds_ago", "filter", "failed",
))  # fmt: skip
_NARROW: Final = 60
#: Columns for screens with many columns, and how many those have at least.
_RICH: Final = frozenset(("delivery_p95", "handling_p95"))
_WIDE: Final = 100
_TEXTS: Final = frozenset((
    "queue", "subscription", "client", "queues", "link", "state", "ack", "topic", "id", "said", "group", "filter",
))  # fmt: skip
_SPANS: Final = frozenset(("oldest", "stopped", "paused", "seconds_behind", "seconds_ago"))
#: Columns that take the room that others leave, beside the first one.
_FREE: Final = frozenset(("queues", "said", "filter"))
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
    filter: NamePattern | None
    before: Survey | None = None
    now: Survey | None = None
    rates: dict[str, tuple[float | None, float | None]] = field(default_factory=dict)

    def take(self, survey: Survey) -> None:
        """Go on to another survey."""
        self.before, self.now = self.now, survey
        earlier = self.before.queues if self.before is not None else {}
        seconds = (survey.at - self.before.at) / 1000 if self.before is not None else 0.0
        self.rates = {name: rates(earlier.get(name), stats, seconds) for name, stats in survey.queues.items()}

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
            "ready": lambda: ready(stats),
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

    @property
    def heading(self) -> str:
        """Number of queues and subscriptions, and their order, for the first line."""
        survey = self.now
        counts = f"{len(survey.queues):,} queues, {survey.number:,} subscriptions" if survey is not None else ""
        return f"{counts}  by {self.sort}"

    @property
    def columns(self) -> Mapping[str, Sequence[str]]:
        """The columns of each table."""
        return COLUMNS

    def lines(self, width: int) -> list[str]:  # noqa: ARG002
        """Return the text above the tables: none."""
        return []

    def press(self, key: str) -> bool:
        """Take a key; gives whether it changes what is shown."""
        if key not in {"s", "r"}:
            return False
        self.sort = SORTS[(SORTS.index(self.sort) + (1 if key == "s" else -1)) % len(SORTS)]
        return True

    def as_dict(self) -> Mapping[str, object]:
        """All tables, for JSON."""
        return self.tables()

    def tables(self) -> dict[str, list[dict[str, Cell]]]:
        """The rows of each table, as values."""
        survey = self.now
        if survey is None:
            return {name: [] for name in COLUMNS}
        queues = [_queue(self, survey.queues[name]) for name in self.shown(survey.queues)]
        held = sorted(survey.subscriptions, key=lambda each: (-each.leased, each.subscription))
        shown = [each for each in held if self.filter is None or any(map(self.filter.search, each.queues))]
        links: list[list[Cell]] = [
            [f"{'to' if link.direction == 'out' else 'from'} {link.instance or link.destination}", link.state,
             link.acknowledgement, link.behind, link.seconds_behind, link.messages_per_second]
            for link in survey.links
        ]  # fmt: skip
        rows: dict[str, list[list[Cell]]] = {
            "queues": queues,
            "subscriptions": [_subscription(each) for each in shown[: self.top]],
            "progress": progress(_reports(self, survey), survey.at)[: self.top],
            "links": links,
        }
        return {name: [dict(zip(COLUMNS[name], row, strict=True)) for row in rows[name]] for name in COLUMNS}

    def screen(self, title: str, width: int, height: int) -> RenderableType:
        """Draw the tables so that they fit; queues get what the others leave."""
        from rich.console import Group
        from rich.text import Text

        found = {name: rows for name, rows in self.tables().items() if rows or name == "queues"}
        room = max(height - _BESIDE - 2 * (len(found) - 1), _LEAST * len(found))
        links = min(len(found.get("links", ())), room // 4)
        subscriptions = min(len(found.get("subscriptions", ())), max(room // 3, _LEAST))
        progress = min(len(found.get("progress", ())), room // 4)
        rooms = {"links": links, "subscriptions": subscriptions, "progress": progress}
        rooms["queues"] = room - sum(rooms.values())
        parts: list[RenderableType] = [Text(title, style="bold", no_wrap=True, overflow="ellipsis")]
        for name, rows in found.items():
            parts += [Text(""), draw_table(COLUMNS[name], rows[: rooms[name]], width)]
        return Group(*parts)


def rates(earlier: QueueStats | None, now: QueueStats, seconds: float) -> tuple[float | None, float | None]:
    """Return how many messages a second came into a queue and left it; None where there are no figures of before."""
    if earlier is None:
        return None, None
    seconds = max(seconds, 0.001)
    return max(now.entered - earlier.entered, 0) / seconds, max(now.settled - earlier.settled, 0) / seconds


def ready(stats: QueueStats) -> int:
    """Return how many messages may be delivered, or wait behind what may."""
    return int(stats.waiting + stats.ready + stats.held)


def _queue(view: TopView, stats: QueueStats) -> list[Cell]:
    inside: list[Cell] = [stats.name, ready(stats), stats.leased, stats.delayed + stats.scheduled]
    a_second = [None if rate is None else round(rate, 1) for rate in view.rates.get(stats.name, (None, None))]
    took = view.now.latencies.get(stats.name) if view.now is not None else None
    p95 = (None, None) if took is None else (took.delivery.p95, took.handling.p95)
    return [*inside, *a_second, view._oldest(stats.name), stats.subscriptions, *p95]  # noqa: SLF001  (of this module)


def _subscription(each: SurveyedSubscription) -> list[Cell]:
    return [each.subscription, each.client, list(each.queues), each.leased, each.max_backlog]


def _reports(view: TopView, survey: Survey) -> list[SurveyedReport]:
    return [each for each in survey.reports if view.filter is None or view.filter.search(each.queue)]


def progress(reports: Sequence[SurveyedReport], now: int) -> list[list[Cell]]:
    """Return the progress of messages, those first whose report is the latest."""
    return [
        [each.queue, each.topic, each.id, each.report.done, each.report.text,
         round(max(now - each.report.at, 0) / 1000, 3)]
        # Of those of one millisecond, the server gives the later one behind the earlier one.
        for each in sorted(reports, key=lambda each: each.report.at)[::-1]
    ]  # fmt: skip


def columns_within(columns: Sequence[str], width: int) -> list[str]:
    """Choose the columns that a screen of so many characters has room for."""
    return [
        column
        for column in columns
        if (width > _NARROW or column not in _SPARED) and (width >= _WIDE or column not in _RICH)
    ]


def draw_table(columns: Sequence[str], rows: Sequence[Mapping[str, Cell]], width: int) -> RenderableType:
    """Draw a table on a screen of so many characters; long names are cut there, numbers are not."""
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="reverse", width=width)
    chosen = columns_within(columns, width)
    for number, column in enumerate(chosen):
        drawn.add_column(
            head(column), justify="left" if column in _TEXTS else "right", no_wrap=True, overflow="ellipsis",
            ratio=1 if number == 0 or column in _FREE else None, min_width=4,
        )  # fmt: skip
    for row in rows:
        drawn.add_row(*(Text(cell(column, row[column])) for column in chosen))
    return drawn


def head(column: str) -> str:
    """Write what people read above a column."""
    return _HEADS.get(column, column)


def cell(column: str, value: Cell) -> str:
    """Write a value as people read it."""
    if value is None:
        return "-"
    if column == "done" and isinstance(value, int | float):
        return f"{value:.0%}"
    if column in _SPANS and isinstance(value, int | float):
        return span_text(int(value * 1000))
    if column in _RICH and isinstance(value, int | float):
        return duration_text(value)
    if isinstance(value, list):
        return " ".join(value)
    return f"{value:,}" if isinstance(value, int | float) else str(value)
