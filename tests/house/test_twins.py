"""Files for asyncio that are made from those for threads: both have the same calls, and one text says them.

python tests/house/test_twins.py --write
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2] / "ampsq"


class Twin(NamedTuple):
    """A file, the one made from it, the words that change, and the calls that are awaited there."""

    source: str
    made: str
    words: dict[str, str]
    awaits: tuple[str, ...]


TWINS = [
    Twin(
        "client/admin.py",
        "client/async_admin.py",
        {"Admin": "AsyncAdmin", "Store": "AsyncStore", "a client": "an asyncio client"},
        ("self._store.run(", "self._store.call("),
    )
]


def made(twin: Twin, text: str) -> str:
    """Return the text for asyncio; a method that awaits is an `async def`."""
    for call in twin.awaits:
        text = text.replace(call, f"await {call}")
    for word, other in twin.words.items():
        text = re.sub(rf"(?<![\w.]){re.escape(word)}\b", other, text)
    methods = re.split(r"(?m)^(?=    (?:@|def ))", text)
    text = "".join(re.sub(r"^    def ", "    async def ", each) if "await " in each else each for each in methods)
    head, quotes, rest = text.partition('"""\n\n')
    return f"{head}{quotes}# Made from {twin.source} by tests/house/test_twins.py --write.\n\n{rest}"


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.made)
def test_the_file_for_asyncio_is_what_the_one_for_threads_makes(twin):
    assert (ROOT / twin.made).read_text() == made(twin, (ROOT / twin.source).read_text())


if __name__ == "__main__" and sys.argv[1:] == ["--write"]:
    for each in TWINS:
        (ROOT / each.made).write_text(made(each, (ROOT / each.source).read_text()))
