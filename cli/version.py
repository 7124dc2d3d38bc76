"""``ampsq version``."""

from __future__ import annotations

import platform

import click

from ampsq import __version__
from ampsq.cli.output import json_line

__all__ = ["version"]

_EPILOG = """\b
Examples:
  ampsq version
  ampsq version --json
"""


@click.command(epilog=_EPILOG)
@click.option("--json", is_flag=True, help="Print JSON.")
def version(*, json: bool) -> None:
    """Show the version."""
    if json:
        json_line({"version": __version__, "python": platform.python_version()})
    else:
        print(f"ampsq {__version__}, Python {platform.python_version()}")
