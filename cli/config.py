"""``ampsq config check``, ``diff``, ``export`` and ``schema``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from ampsq.base.errors import AmpsqError
from ampsq.cli.apply import compare_file, loaded_from, settings_for
from ampsq.cli.listing import output_options, print_records
from ampsq.cli.options import FILE, CommandSettings, connection_options
from ampsq.cli.output import note
from ampsq.cli.plan import COLUMNS, plan_records, show_plan

if TYPE_CHECKING:
    from ampsq.definitions.definition import Definition, Loaded

__all__ = ["config"]

_EPILOG = """\b
Examples:
  ampsq config check nyc-1.yaml             # without a server
  ampsq config diff nyc-1.yaml              # 0: nothing to do, 1: something, 2: refused
  ampsq config export > nyc-1.yaml          # what is defined, as a file
  ampsq config schema > ampsq.schema.json   # for editors
"""
#: As of the program diff: something differs.
_DIFFERS: Final = 1


class _Trouble(click.ClickException):
    """The file, or the server, is not to be compared."""

    exit_code = 2


@click.group(epilog=_EPILOG)
@connection_options
@click.pass_context
def config(ctx: click.Context, settings: CommandSettings) -> None:
    """Check, compare and export configuration files, and give their schema."""
    ctx.obj = settings


@config.command()
@click.argument("file", type=FILE)
@output_options(("kind", "name", "place", "elements"))
def check(settings: CommandSettings, file: str) -> None:
    """Check a file, and all that it includes, without a server: every fault with its place.

    What depends on the instance, as whether a queue may be changed so, is checked by `diff` and `apply`.
    """
    from ampsq.catalog.definition_checks import check_among_themselves

    definitions = loaded_from(file)
    try:
        check_among_themselves(list(definitions))
    except AmpsqError as error:
        raise click.ClickException(definitions.placed(error)) from error
    if print_records(settings, (_record(settings, each, each.public_elements(), definitions) for each in definitions)):
        return
    number = len(definitions)
    print(f"{file}: {number} definition{'' if number == 1 else 's'}, nothing wrong")


@config.command()
@click.argument("file", type=FILE)
@click.option("--prune", is_flag=True, help="Also definitions that are not in the file.")
@output_options(COLUMNS)
def diff(settings: CommandSettings, file: str, *, prune: bool) -> None:
    """Say what applying a file would change: + for new, ~ for changed, - for removed, element by element.

    Ends with 0 if that is nothing, 1 if it is something, 2 if the file or the server refuses it.
    """
    try:
        definitions = loaded_from(file)
    except AmpsqError as error:
        raise _Trouble(str(error)) from error
    try:
        comparison = compare_file(settings_for(settings, definitions), definitions, prune=prune)
    except AmpsqError as error:
        raise _Trouble(definitions.placed(error)) from error
    if not print_records(settings, plan_records(comparison.plans, comparison.removed)):
        show_plan(comparison.plans, comparison.removed, comparison.waiting)
    if comparison.changes:
        raise click.exceptions.Exit(_DIFFERS)


@config.command()
@click.option("--secrets", is_flag=True, help="Write passwords of addresses, too.")
@output_options(("kind", "name", "elements"))
def export(settings: CommandSettings, *, secrets: bool) -> None:
    """Print everything that is defined as a YAML file; applied, it changes nothing.

    Without --secrets a variable of the environment stands for each address that has a password. Topics that were only
    used are no definitions.
    """
    from ampsq.files.config_text import render_config

    with settings.client(merged=True) as client:
        definitions = client.admin.definitions()
    # The file is YAML.
    if settings.output != "yaml" and print_records(
        settings,
        (_record(settings, each, each.elements() if secrets else each.public_elements()) for each in definitions),
    ):
        return
    text = render_config(definitions, secrets=secrets)
    print(text, end="")
    if text.variables:
        note(f"{', '.join(text.variables)}: variables for addresses with passwords, which --secrets writes")


def _record(
    settings: CommandSettings, definition: Definition, elements: dict[str, object], file: Loaded | None = None
) -> dict[str, object]:
    """A definition for programs; in CSV its elements, which are others in each kind, are one column."""
    facts = {"kind": type(definition).__name__}
    if file is not None:
        facts["place"] = file.place(definition)
    return (
        {**facts, "name": definition.name, "elements": elements} if settings.output == "csv" else {**facts, **elements}
    )


@config.command()
def schema() -> None:
    """Print the JSON schema of YAML files, for editors, with what each element means.

    It is one document, which has no other form.
    """
    import json

    from ampsq.files.config_schema import schema as made

    print(json.dumps(made(), indent=2, ensure_ascii=False))
