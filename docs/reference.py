"""Writes docs/reference/: the definitions from their models, the errors from their classes.

python docs/reference.py            # writes
python docs/reference.py --check    # exit code 1 if what is there is not current
"""

# ruff: noqa: INP001, T201  (a program beside the pages, which prints)

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import Any

from ampsq.base import errors
from ampsq.files.config import SECTIONS

FOLDER = Path(__file__).parent / "reference"
_HEAD = "<!-- Written by docs/reference.py from the code; change it there. -->\n\n"


def parts_of(text: str) -> tuple[str, dict[str, str]]:
    """A docstring's text before its Attributes, and what these say, by name."""
    before, _, rest = inspect.cleandoc(text).partition("\nAttributes:\n")
    found: dict[str, str] = {}
    for block in re.split(r"\n(?=    \w+: )", "\n" + re.split(r"\n(?=\S)", rest)[0]):
        name, mark, said = block.strip().partition(": ")
        if mark:
            found[name] = said
    return re.split(r"\n(?:Raises|Args):\n", before)[0].strip(), found


def linked(text: str) -> str:
    """A docstring's text on one line, as Markdown."""
    line = " ".join(text.split()).replace("``", "`").replace("|", "\\|")
    return re.sub(r"docs/([\w-]+)\.md", r"[\1](../\1.md)", line)


def definitions() -> str:
    """One table a definition: its elements, what they mean, and their defaults."""
    text = (
        "# Definitions\n\nThe elements of each section of a [configuration file](../configuration.md), with the names "
        "that the Python classes have, too.\n"
    )
    for section, model in SECTIONS.items():
        what, said = parts_of(model.__doc__ or "")
        for base in model.__mro__[1:]:
            said = {**parts_of(base.__doc__ or "")[1], **said} if hasattr(base, "model_fields") else said
        text += f"\n## {section}: {model.__name__}\n\n{linked(what)}\n\n| element | meaning |\n|---|---|\n"
        for name in model.model_fields:
            text += f"| `{name}` | {linked(said.get(name, ''))} |\n"
    return text


def all_errors(root: type[errors.AmpsqError]) -> list[type[errors.AmpsqError]]:
    """The classes below one, in the order of their definition."""
    return [each for child in root.__subclasses__() for each in (child, *all_errors(child))]


def listed() -> str:
    """One row an error: its code, its class, what it means."""
    text = (
        "# Errors\n\nAll are `ampsq.base.errors.AmpsqError`. Codes are the first word of what a script refuses with, "
        "`AMPSQ_<CODE>`, and never change; texts may.\n\n| error | is a | code | means |\n|---|---|---|---|\n"
    )
    for each in all_errors(errors.AmpsqError):
        if each.__module__ != errors.__name__:
            continue
        code: Any = each.__dict__.get("code") or ""
        shown = f"`{code}`" if isinstance(code, str) and code else ""
        meaning, _ = parts_of(each.__doc__ or "")
        text += f"| `{each.__name__}` | `{each.__bases__[0].__name__}` | {shown} | {linked(meaning)} |\n"
    return text


def main() -> int:
    """Write the pages, or with ``--check`` compare them; gives the exit code."""
    is_checked, faults = "--check" in sys.argv, 0
    FOLDER.mkdir(exist_ok=True)
    for name, text in {"definitions.md": definitions(), "errors.md": listed()}.items():
        path = FOLDER / name
        if path.exists() and path.read_text() == _HEAD + text:
            continue
        if is_checked:
            faults += 1
            print(f"{path} is not current: python docs/reference.py writes it")
        else:
            path.write_text(_HEAD + text)
            print(f"{path} is written")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
