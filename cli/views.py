"""``ampsq views``."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

import click

from ampsq.cli.listing import listing_options, print_records
from ampsq.cli.names import names
from ampsq.cli.output import labelled, note, table
from ampsq.definitions.stored import read_stored_view

if TYPE_CHECKING:
    from ampsq.cli.options import CommandSettings
    from ampsq.client.client import Client
    from ampsq.definitions.stored import StoredView

__all__ = ["views"]

_EPILOG = """\b
Examples:
  ampsq views
  ampsq views totals                    # its definition
  ampsq sow totals                      # its rows
"""
_COLUMNS = ("name", "underlying_topic", "filter", "projection", "grouping")


@click.command(epilog=_EPILOG)
@click.argument("name", required=False, shell_complete=names("views"))
@listing_options(_COLUMNS)
def views(settings: CommandSettings, name: str | None) -> None:
    """List the views with their sources, or show one's definition.

    A view's rows are kept up to date by a coordinator; `ampsq sow VIEW` shows them, and a queue whose
    underlying topic is the view gets each row that changes.
    """
    with settings.client() as client:
        defined = _stored_views(client)
    if name is not None and name not in defined:
        close = difflib.get_close_matches(name, list(defined), n=1)
        hint = f"did you mean {close[0]!r}?" if close else "ampsq views lists those there are"
        raise click.ClickException(f"no view has the name {name!r}; {hint}")
    chosen = [defined[name]] if name is not None else list(defined.values())
    if print_records(settings, (view._asdict() for view in chosen)):
        return
    if name is not None:
        _show(chosen[0])
    elif chosen:
        rows = [[view.name, ", ".join(view.underlying_topic), view.filter, *_texts(view)] for view in chosen]
        table(("name", "over", "filter", "projection", "grouping"), rows)
    else:
        note("no views yet; ampsq apply FILE defines them (docs/queues.md shows one)")


def _stored_views(client: Client) -> dict[str, StoredView]:
    """The views by name, without their models, which take longer to import than all else."""
    from ampsq.protocol.reads.definitions import read_definitions

    texts = client._store.call(read_definitions(client.instance, "views"))  # noqa: SLF001  (it has no call for it)
    return {name: read_stored_view(text) for name, text in sorted(texts.items())}


def _texts(view: StoredView) -> tuple[str, str]:
    return "; ".join(view.projection), "; ".join(view.grouping)


def _show(view: StoredView) -> None:
    facts: list[tuple[str, object]] = []
    for element, value in view._asdict().items():
        values = value if isinstance(value, tuple) else [value]
        facts += [(element if i == 0 else "", item) for i, item in enumerate(values) if item is not None]
    labelled(facts)
