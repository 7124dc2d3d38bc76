"""Each sleep in a test says why: tests wait for a condition (`observing.eventually`), or time is an argument."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
#: Not `sleep(0)`, by which others take their turn, and not the word in a text.
SLEEP = re.compile(r"\bsleep\((?!0\)|\")")


def sleeps_without_reason(text):
    """Return the numbers of the lines that sleep with no comment behind them or in the line above."""
    lines = text.split("\n")
    return [
        number
        for number, (above, line) in enumerate(zip(["", *lines], lines, strict=False), 1)
        if SLEEP.search(line) and "#" not in line and not above.lstrip().startswith("#")
    ]


def test_every_sleep_has_its_reason_beside_it():
    found = {
        f"{path.relative_to(TESTS)}:{number}"
        for path in TESTS.rglob("*.py")
        # Programs of a release that is past stay as they were.
        if TESTS / "data" not in path.parents
        for number in sleeps_without_reason(path.read_text())
    }
    assert found == set()


def test_a_sleep_without_one_is_found():
    assert sleeps_without_reason("x = 1\ntime.sleep(1)\n# Why.\nsleep(2)\nsleep(3)  # why\nsleep(0)\nsleep(4)") == [
        2,
        7,
    ]
