"""``ampsq check``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from ampsq.base.formatting import count_text, span_text
from ampsq.cli.listing import listing_options, print_records
from ampsq.cli.names import names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampsq.cli.options import CommandSettings
    from ampsq.operations.check.queue import CheckReport

__all__ = ["check"]

_COLUMNS: Final = (
    *("queue", "messages", "settled", "clean", "repaired", "differences", "undecided", "seconds", "partition"),
)
#: Bookmarks of one kind of difference that are printed.
_SHOWN: Final = 5
_EPILOG = """\b
Exit codes:
  0    nothing was wrong, or all of it was mended
  1    something is wrong

\b
Examples:
  ampsq check                                      # all queues
  ampsq check work --repair
  ampsq check --json | jq 'select(.clean | not)'
  ampsq check work --rebuild                       # from log and journal, whatever its state is
"""


@click.command(epilog=_EPILOG)
@click.argument("queues", metavar="[QUEUE]...", nargs=-1, shell_complete=names("queues"))
@click.option("--repair", is_flag=True, help="Repair the faults, in bounded steps.")
@click.option("--rebuild", is_flag=True, help="Rebuild the queues first; they read no log meanwhile.")
@listing_options(_COLUMNS)
def check(settings: CommandSettings, queues: tuple[str, ...], *, repair: bool, rebuild: bool) -> None:
    """Compare queues with log and journal, and repair differences.

    The state of each QUEUE, by default of all, is worked out from its logs and its journal alone and compared with
    the live state, on a running system. Each kind of difference has a name; docs/recovery.md tells of all.
    """
    if rebuild and not queues:
        raise click.UsageError("--rebuild needs the names of the queues")
    with settings.client(merged=True) as client:
        for queue in queues if rebuild else ():
            built = client.admin.rebuild(queue)
            if settings.output == "table":
                print(f"{queue}: rebuilt from {count_text(built.messages, 'message')}, {built.settled:,} settled")
        checked = client.admin.check(*queues, repair=repair)
    if not print_records(settings, (found.as_dict() for found in checked)):
        _show_all(checked)
    if not all(found.clean or found.repaired for found in checked):
        click.get_current_context().exit(1)


def _show_all(checked: Sequence[CheckReport]) -> None:
    """Print what was found: of partitions in which a queue is clean one line together, of each other one its own."""
    together: dict[str, list[CheckReport]] = {}
    for found in checked:
        if found.partition is not None and found.clean and not found.undecided:
            together.setdefault(found.queue, []).append(found)
        else:
            _show(found)
    for queue, some in together.items():
        _show_counts(f"{queue}: clean in {count_text(len(some), 'partition')}", some)


def _show_counts(begins: str, checked: Sequence[CheckReport]) -> None:
    messages, settled = (sum(each) for each in zip(*[(one.messages, one.settled) for one in checked], strict=True))
    took = span_text(int(sum(one.seconds for one in checked) * 1000))
    print(f"{begins}; {count_text(messages, 'message')}, {settled:,} settled, {took}")


def _show(found: CheckReport) -> None:
    where = "" if found.partition is None else f" in partition {found.partition}"
    state = "clean" if found.clean else "mended" if found.repaired else "differs"
    _show_counts(f"{found.queue}{where}: {state}", [found])
    for one in found.differences:
        print(f"  {one.name}: {one.sentence}")
        for bookmark in one.bookmarks[:_SHOWN]:
            print(f"    {bookmark}")
        if len(one.bookmarks) > _SHOWN:
            print("    ...")
    for text in found.undecided:
        print(f"  not told: {text}")
