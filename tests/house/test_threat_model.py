"""Each line of docs/threat-model.md names a test that there is."""

from __future__ import annotations

import ast
import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "threat-model.md"
#: The end of a line: a link to a file, and a test in it.
TEST = re.compile(r"\[[\w ]+\]\((\S+\.py)\) `(test_\w+)` \|$")


def lines():
    """Yield the attacker, the abilities, the limits, and the rest, of each line of the tables."""
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| ") and cells[0] != "who":
            yield line, cells


def names_in(path):
    return {each.name for each in ast.walk(ast.parse(path.read_text())) if isinstance(each, ast.FunctionDef)}


def test_each_line_names_a_test_that_there_is():
    missing = []
    for line, _ in lines():
        named = TEST.search(line)
        path = named and (PAGE.parent / named[1]).resolve()
        if not named or not path.is_file() or named[2] not in names_in(path):
            missing.append(line)

    assert missing == []
    assert len(list(lines())) > 25


def test_each_line_says_what_somebody_can_or_cannot_do():
    assert [line for line, cells in lines() if not cells[0] or not any(cells[1:3])] == []
