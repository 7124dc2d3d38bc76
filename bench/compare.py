"""Compare two commits by `ampsq bench`, in interleaved rounds: ``python -m ampsq.bench.compare OLD NEW``.

Each round runs the old commit, the new one, and the old one once more, so that the same rounds show what a difference
between equal sides looks like on this machine: parent against parent.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ampsq.bench.checkouts import laid_out
from ampsq.bench.verdicts import FALLEN_BELOW, Better, Verdict, direction, flattened, own_figure, verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ampsq.bench.checkouts import Checkout

    #: Values of figures by their names, of each side, round by round.
    Measured = Mapping[str, Sequence[Mapping[str, float]]]

__all__ = ["compare", "judged", "measured", "table"]

#: What every message costs. The others measure what many messages cost at once, or processes beside the server.
_DEFAULT: Final = ("raw", "kinds", "publishing", "replay")
_PARTS: Final = (*_DEFAULT, "redrive", "expiry", "rebuild", "gateway", "replication")
_SIDES: Final = ("old", "new", "again")
#: Seconds that a run may take, by whether it is quick: many times what it takes on two cores.
_DEADLINES: Final = {True: 300.0, False: 1800.0}
#: Width of the table's first column.
_NAME: Final = 35
_RULE: Final = f"""\
Ratios: 1 is the same, less is worse, whichever way a figure is better. A figure has FALLEN when its ratio
of medians is below {FALLEN_BELOW} and below every ratio of parent against parent, taken both ways, of a round or
of medians. It is noisy when it is below {FALLEN_BELOW} and parent against parent is as low. "divisor": it is a ratio to
another figure of ours, which is better now; what is divided, a figure of its own here, is not below {FALLEN_BELOW}."""


def measured(
    old: Checkout, new: Checkout, parts: Sequence[str], *, rounds: int, quick: bool, url: str | None, deadline: float
) -> dict[str, list[dict[str, float]]]:
    """Run the parts of both in turn; gives the figures of each side, round by round.

    Raises:
        RunFailed: a run gave no figures.
    """
    values: dict[str, list[dict[str, float]]] = {side: [{} for _ in range(rounds)] for side in _SIDES}
    for number in range(rounds):
        # Each side is first in turn, so that what becomes slower or faster with time is nobody's.
        turn = number % len(_SIDES)
        order = _SIDES[turn:] + _SIDES[:turn]
        # Part by part: what is compared was measured within a minute.
        for part in parts:
            for side in order:
                started = time.monotonic()
                click.echo(f"round {number + 1} of {rounds}, {part}, {side} ...", err=True, nl=False)
                checkout = new if side == "new" else old
                figures = checkout.figures(part, quick=quick, url=url, deadline=deadline)
                values[side][number].update(flattened(figures))
                click.echo(f" {time.monotonic() - started:.0f} s", err=True)
    return values


def judged(values: Measured) -> tuple[list[Verdict], dict[str, list[str]]]:
    """Return the verdicts on all figures, and by reason the names of those without one."""
    named = {side: [set(each) for each in values[side]] for side in _SIDES}
    before = set[str]().union(*named["old"], *named["again"])
    after = set[str]().union(*named["new"])
    always = set.intersection(*(each for side in named.values() for each in side))
    # In the order in which the benchmark prints them.
    order = dict.fromkeys(name for side in _SIDES for each in values[side] for name in each)
    found: list[Verdict] = []
    others: dict[str, list[str]] = {}
    for name in order:
        better = direction(name)
        if name not in after:
            others.setdefault("only the old one has", []).append(name)
        elif name not in before:
            others.setdefault("only the new one has", []).append(name)
        elif name not in always:
            others.setdefault("not in every run", []).append(name)
        elif better is None:
            others.setdefault("which way is better is not known", []).append(name)
        elif better is Better.NOT_COMPARED:
            others.setdefault("not compared", []).append(name)
        else:
            sides = ([each[name] for each in values[side]] for side in _SIDES)
            found.append(verdict(name, better, *sides))
    ratios = {each.name: each.ratio for each in found}
    return [dataclasses.replace(each, own_ratio=ratios.get(own_figure(each.name) or "")) for each in found], others


def table(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """Return the lines of a table of figures, under the names that they share."""
    heads = ("old", "new", "new/old", "rounds", "old/old", "rounds")
    yield _row("", heads, "")
    # Some are printed twice by the benchmark, once apart from their group.
    rank = {group: at for at, group in enumerate(dict.fromkeys(_group(each) for each in verdicts))}
    group = ""
    for each in sorted(verdicts, key=lambda each: rank[_group(each)]):
        shared, dot, last = each.name.rpartition(".")
        if shared != group:
            yield shared
        group = shared
        name = f"  {last}" if dot else last
        if len(name) > _NAME:
            yield name
            name = ""
        cells = (
            _value(each.old),
            _value(each.new),
            _ratio(each.ratio),
            _spread(each.rounds),
            _ratio(each.parent_ratio),
            _spread(each.parent_rounds),
        )
        yield _row(name, cells, each.word)


def _group(each: Verdict) -> str:
    return each.name.rpartition(".")[0]


def _row(name: str, cells: Sequence[str], word: str) -> str:
    widths = (9, 9, 7, 10, 7, 10)
    middle = " ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
    return f"{name:<{_NAME}} {middle} {word}".rstrip()


def _value(value: float) -> str:
    return f"{value:,.0f}" if 1000 <= abs(value) < 9_999_999 else f"{value:.4g}"


def _ratio(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"


def _spread(ratios: Sequence[float]) -> str:
    return f"{_ratio(min(ratios))}..{_ratio(max(ratios))}"


def _as_json(verdicts: Sequence[Verdict], values: Measured) -> dict[str, object]:
    return {
        each.name: {
            "better": each.better.value,
            "old": each.old,
            "new": each.new,
            "ratio": each.ratio,
            "parent_ratio": each.parent_ratio,
            "own_ratio": each.own_ratio,
            "lowest_of_parent": each.lowest,
            "fallen": each.fallen,
            "values": {side: [row[each.name] for row in values[side]] for side in _SIDES},
        }
        for each in verdicts
    }


@click.command(
    epilog="\b\nExamples:\n"
    "  python -m ampsq.bench.compare HEAD~1 HEAD\n"
    "  python -m ampsq.bench.compare HEAD . --part raw --rounds 9\n"
    "  python -m ampsq.bench.compare main ../other --whole --json figures.json\n\n"
    "\b\nExit codes: 0 nothing has fallen, 1 a figure has, 2 there is no such commit, checkout or\n"
    "option, 3 a run failed."
)
@click.argument("old")
@click.argument("new")
@click.option("--rounds", type=click.IntRange(min=1), default=5, show_default=True, help="Runs of each commit.")
@click.option(
    "--quick/--whole",
    default=True,
    show_default=True,
    help="A tenth of the work in each run, or all of it.",
)
@click.option(
    "--part",
    "parts",
    type=click.Choice(["all", *_PARTS]),
    multiple=True,
    default=_DEFAULT,
    show_default=True,
    help="A part of `ampsq bench`; several with several.",
)
@click.option("--url", help="A server; default a fresh Valkey for every run.")
@click.option(
    "--deadline", type=click.FloatRange(min=1), help="Seconds that a run may take; default 300, with --whole 1800."
)
@click.option("--json", "file", type=click.Path(dir_okay=False, path_type=Path), help="Write every value to a file.")
def compare(
    old: str,
    new: str,
    *,
    rounds: int,
    quick: bool,
    parts: tuple[str, ...],
    url: str | None,
    deadline: float | None,
    file: Path | None,
) -> None:
    """Measure two commits in interleaved rounds, the old one twice, and say which figures have fallen.

    OLD and NEW are git revisions of the repository here, or folders of checkouts, whose files are taken as they are
    (`.`). Both run with the Python and the packages that run this.

    The parts that are measured by default take about eleven minutes on two idle cores.
    """
    chosen = _PARTS if "all" in parts else tuple(dict.fromkeys(parts))
    limit = _DEADLINES[quick] if deadline is None else deadline
    if file is not None and not file.absolute().parent.is_dir():
        raise click.UsageError(f"--json {file}: there is no folder {file.absolute().parent}")
    with tempfile.TemporaryDirectory(prefix="ampsq-compare-") as folder:
        first, second = laid_out(old, Path(folder, "old")), laid_out(new, Path(folder, "new"))
        values = measured(first, second, chosen, rounds=rounds, quick=quick, url=url, deadline=limit)
    verdicts, others = judged(values)
    fallen = [each.name for each in verdicts if each.fallen]
    titles = {"old": first.title, "new": second.title}
    for side, title in titles.items():
        click.echo(f"{side}: {title}")
    size = "a tenth of the work" if quick else "all of the work"
    click.echo(f"{rounds} rounds, {size}, parts {', '.join(chosen)}\n")
    for line in (*table(verdicts), "", _RULE):
        click.echo(line)
    for reason, names in others.items():
        click.echo(click.wrap_text(f"{reason}: {', '.join(names)}", 100, subsequent_indent="  "))
    click.echo(f"\nfallen: {', '.join(fallen) or 'none'}")
    if file is not None:
        told = {
            **titles,
            "rounds": rounds,
            "quick": quick,
            "parts": chosen,
            "fallen": fallen,
            "without_verdict": others,
        }
        file.write_text(json.dumps({**told, "figures": _as_json(verdicts, values)}, indent=1) + "\n", encoding="utf-8")
    sys.exit(1 if fallen else 0)


if __name__ == "__main__":
    compare(prog_name="python -m ampsq.bench.compare")
