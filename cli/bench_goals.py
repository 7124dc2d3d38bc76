"""The table of what is measured beside raw Streams, with floors and goals, and that of two runs beside each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ampsq.bench.goals import reached
from ampsq.bench.verdicts import Better, direction, flattened, quotient

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from ampsq.bench.goals import Reached

__all__ = ["print_comparison", "print_goals"]

_TITLE: Final = (
    "Beside raw redis-py Streams, same server, same rounds, medians (rates: more is better; us, bytes: less)"
)
_NOTE: Final = (
    "time, CPU: ours beside raw; server, client: us a message, ours / raw. A floor of rates is one of the CPU, and by "
    "time 0.9 of it."
)
#: From here on a number is written without its decimals.
_LARGE: Final = 1000


def print_goals(figures: Mapping[str, object], console: Console) -> None:
    """Print the table of all figures that have a goal, or are to be seen beside them."""
    from rich.table import Table

    table = Table(title=_TITLE, title_justify="left", caption=_NOTE, caption_justify="left")
    for column in ("what", "ampsq", "raw", "time", "CPU", "server", "client", "floor", "goal", "holds"):
        table.add_column(column, justify="left" if column == "what" else "right")
    for row in reached(flattened(figures)):
        table.add_row(*_cells(row))
    console.print(table)


def _cells(row: Reached) -> list[str]:
    ratios = ["" if value is None else f"{value:.2f}" for value in (row.wall, row.cpu)]
    costs = ["" if pair is None else f"{pair[0]:.1f} / {pair[1]:.1f}" for pair in (row.server, row.client)]
    bounds = ["" if value is None else f"{value:g}" for value in (row.goal.floor, row.goal.goal)]
    holds = "" if row.holds is None else "yes" if row.holds else "no"
    return [row.goal.title, _number(row.own), _number(row.raw), *ratios, *costs, *bounds, holds]


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= _LARGE else f"{value:g}"


def print_comparison(before: Mapping[str, float], now: Mapping[str, float]) -> None:
    """Print the figures that two runs have, beside each other; 1 is the same, less is worse, whichever way it goes.

    Args:
        before: of the other run; of none there is no table.
        now: of this one.
    """
    if not before:
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Beside the other run (1 is the same, less is worse)", title_justify="left")
    for column in ("figure", "before", "now", "ratio"):
        table.add_column(column, justify="left" if column == "figure" else "right")
    for name, value in now.items():
        better = direction(name)
        if name not in before or better is None or better is Better.NOT_COMPARED:
            continue
        ratio = quotient(value, before[name], better)
        table.add_row(name, _number(before[name]), _number(value), f"{ratio:.2f}")
    Console().print(table)
