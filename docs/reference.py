"""Writes docs/reference/: the Python API from its docstrings (docs/api.py says what is on which page).

python docs/reference.py            # writes
python docs/reference.py --check    # exit code 1 if what is there is not current
python docs/reference.py --text     # prints all of it as one text, without links
"""

# ruff: noqa: INP001, T201  (a program beside the pages, which prints)

from __future__ import annotations

import sys
from pathlib import Path

from api import as_text, pages

FOLDER = Path(__file__).parent / "reference"
_HEAD = "<!-- Written by docs/reference.py from the code; change it there. -->\n\n"


def main() -> int:
    """Write the pages, or with ``--check`` compare them; gives the exit code."""
    written = pages()
    if "--text" in sys.argv:
        print(as_text(written.values()))
        return 0
    is_checked, faults = "--check" in sys.argv, 0
    FOLDER.mkdir(exist_ok=True)
    for name, text in written.items():
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
