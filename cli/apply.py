"""``ampsq apply``."""

from __future__ import annotations

import contextlib
import logging
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ampsq.base.errors import AmpsqError
from ampsq.cli.listing import output_options, print_records
from ampsq.cli.options import FILE, CommandSettings, log_to_stderr
from ampsq.cli.output import note
from ampsq.cli.plan import COLUMNS, confirm, plan_records, show_plan
from ampsq.definitions.definition import Loaded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampsq.catalog.compare import Comparison

__all__ = ["apply", "compare_file", "loaded_from", "settings_for"]

_EPILOG = """\b
A file:
  topics:
    - name: orders
  queues:
    - name: work
      underlying_topic: orders
      lease_period: 30s
      max_per_subscription_backlog: 100
      max_deliveries: 5
  actions:
    - dead_letter: {queue: work, topic: dead}

\b
Examples:
  ampsq apply queues.yaml --dry-run          # what would change, element by element
  ampsq apply queues.yaml                    # the same, and asks
  ampsq apply queues.yaml --yes              # does not ask, as in scripts
  ampsq apply queues.yaml --prune            # also removes what the file does not have
  ampsq apply - --yes < queues.yaml
  ampsq apply broker.xml --dry-run           # what of it is not acted on, too
  ampsq apply tasks:app                      # the queues of an ampsq.App

\b
Exit codes:
  0  done, or nothing to do
  1  refused: nothing was done
  3  not confirmed: nothing was done
"""
_log = logging.getLogger("ampsq")


def loaded_from(file: str) -> Loaded:
    """Load the definitions of a file, of standard input (``-``) or of an app (``module:app``).

    Elements of AMPS or Artemis that have no effect here are listed on standard error.
    """
    from ampsq.cli.handler import find_app, names_app
    from ampsq.files.config import load

    log_to_stderr(30, times=False)
    if names_app(file):
        app = find_app(file)
        loaded = Loaded(app.definitions, file, {})
        loaded.url = app._url  # noqa: SLF001  (said by the app, as by a file)
        return loaded
    # A text without a line break could be taken for a path.
    return load(sys.stdin.read() + "\n") if file == "-" else load(Path(file))


def settings_for(settings: CommandSettings, loaded: Loaded) -> CommandSettings:
    """Return the settings with the file's instance: the command's, the environment's, or the file's own."""
    from ampsq.definitions.instance import ITSELF, Instance

    name = next((each.name for each in loaded if isinstance(each, Instance) and each.name != ITSELF), None)
    return settings.completed(loaded.url, name)


@click.command(epilog=_EPILOG)
@click.argument("file", type=FILE)
@click.option("--dry-run", is_flag=True, help="Show the changes without making them.")
@click.option("--prune", is_flag=True, help="Remove definitions that are not in the file.")
@click.option("--yes", is_flag=True, help="Do it without asking.")
@output_options(COLUMNS)
def apply(settings: CommandSettings, file: str, *, dry_run: bool, prune: bool, yes: bool) -> None:
    """Define an instance, its topics, queues, views, actions, destinations and the rest from a file.

    Shows what would change, + for new, ~ for changed, - for removed, element by element, and asks. FILE is YAML, or a
    configuration of AMPS, or the broker.xml of an Artemis, with a warning for each element without effect here; - is
    standard input; MODULE:APP is an ampsq.App, from the current folder or from what is installed. It is checked whole,
    against the server too, before anything is done. What is already so is left alone, so that a file may be applied
    again and again. A definition is whole: an element left out goes back to its default. Without --prune nothing is
    removed.
    """
    definitions = loaded_from(file)
    if not definitions and not prune:
        note(f"{file} defines nothing")
        return
    where = settings_for(settings, definitions)
    try:
        comparison = compare_file(where, definitions, prune=prune)
        for advice in comparison.server.notes:
            _log.warning("%s %s: %s", comparison.server.kind, comparison.server.version, advice)
        if settings.output == "table":
            show_plan(comparison.plans, comparison.removed, comparison.waiting)
        if comparison.changes and not dry_run:
            confirm(yes=yes, from_stdin=file == "-")
            with where.client(makes=True, merged=True) as client:
                client.apply(*definitions)
                client.admin.remove(*comparison.removed)
    except AmpsqError as error:
        raise click.ClickException(definitions.placed(error)) from error
    print_records(settings, plan_records(comparison.plans, comparison.removed))
    if dry_run:
        note("a dry run: nothing was done")


def compare_file(settings: CommandSettings, definitions: Loaded, *, prune: bool) -> Comparison:
    """Compare a file with what is defined; nothing is written, and no instance is made."""
    from ampsq.catalog.compare import compare
    from ampsq.cli.open_instance import find_instance
    from ampsq.transport.store import Store

    if settings.partitions:
        return _compare_partitions(settings, definitions, prune=prune)
    with _server_of(settings) as url:
        instance_address = find_instance(url, settings.instance).instance_address
        assert instance_address is not None  # noqa: S101  (it was not patient)
        with contextlib.closing(Store(instance_address.url, instance_address.instance)) as store:
            return store.run(compare(instance_address.instance, list(definitions), prune=prune))


def _compare_partitions(settings: CommandSettings, definitions: Loaded, *, prune: bool) -> Comparison:
    """Compare a file with what is defined in the first partition, which all have."""
    from ampsq.base.partitions import partitions_of
    from ampsq.catalog.compare import compare
    from ampsq.catalog.partitioned import check_definable
    from ampsq.cli.open_instance import DEFAULT, find_instance
    from ampsq.transport.store import Store

    check_definable(definitions)
    find_instance(settings.url or "", settings.instance)
    first = partitions_of(settings.instance or DEFAULT, settings.partitions or 0)[0].instance
    with contextlib.closing(Store(settings.server_url, first)) as store:
        return store.run(compare(first, list(definitions), prune=prune))


@contextlib.contextmanager
def _server_of(settings: CommandSettings) -> Iterator[str]:
    """The server's address; of a folder that is not there yet, that of a server that is like the one to come."""
    if settings.url is not None or Path(settings.data_dir).exists():
        with settings.address() as url:
            yield url
        return
    from ampsq.server.embedded import acquire

    with tempfile.TemporaryDirectory(prefix="ampsq-") as folder, acquire(folder, coordinator=False) as server:
        yield server.url
