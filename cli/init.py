"""``ampsq init``."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Final

import click

from ampsq.base.formatting import printable

__all__ = ["init"]

_EPILOG = """\b
Examples:
  ampsq init shop
  ampsq init .                                # into this folder, which is empty

\b
Then, in the folder:
  ampsq apply queues.yaml --yes
  ampsq worker tasks:app
"""
#: File that is written -> what it is for; its text is the file of that name in data/project, with .txt behind it.
_FILES: Final = {
    "queues.yaml": "the definitions: a queue, and one for what its handler gives up",
    "tasks.py": "the handler",
    "test_tasks.py": "its tests, which need no server",
    "compose.yaml": "server, coordinator with console, and worker in containers",
    "README.md": "what to call",
    ".gitignore": "what belongs into no repository",
}
_NEXT = """
Next, in {folder}:
  ampsq apply queues.yaml --yes
  ampsq worker tasks:app
and in a second terminal:
  ampsq publish orders '{{"id": 1, "price": 2.5, "quantity": 2}}'"""


@click.command(epilog=_EPILOG)
@click.argument("folder", type=click.Path(path_type=Path))
def init(folder: Path) -> None:
    """Write a folder with a queue, its handler, a test and a compose file, which runs by two commands.

    FOLDER is a new one, or an empty one; nothing is overwritten. It needs no server.
    """
    texts = {name: files("ampsq.cli.data.project").joinpath(_source(name)).read_text() for name in _FILES}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        there = sorted(each.name for each in folder.iterdir())
        if there:
            raise click.ClickException(_not_empty(folder, there))
        for name, text in texts.items():
            # Whoever wrote one meanwhile keeps it.
            with (folder / name).open("x", encoding="utf-8") as file:
                file.write(text)
    except FileExistsError as error:
        raise click.ClickException(
            f"{printable(str(error.filename))}: a file is there; allowed: the name of a new folder, or an empty one"
        ) from error
    except OSError as error:
        raise click.ClickException(f"{printable(str(error.filename or folder))}: {error.strerror}") from error
    width = max(map(len, _FILES))
    for name, what in _FILES.items():
        print(f"{name:{width}}  {what}")
    print(_NEXT.format(folder=printable(str(folder))))


def _source(name: str) -> str:
    """The name of a text in the package: nothing takes it for a module, or for a setting of its own repository."""
    return f"{name.lstrip('.')}.txt"


def _not_empty(folder: Path, there: list[str]) -> str:
    shown = ", ".join(map(printable, there[:3])) + (f" and {len(there) - 3} more" if len(there) > 3 else "")
    return f"{printable(str(folder))}: the folder has {shown}; allowed: a new folder, or an empty one"
