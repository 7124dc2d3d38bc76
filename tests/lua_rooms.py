"""The rooms of lua/ in their order, and lua/README.md, which is made from the heads of all files.

python tests/lua_rooms.py            # writes
python tests/lua_rooms.py --check    # exit code 1 if what is there is not current
"""

# ruff: noqa: T201  (a program, which prints)

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["FOLDER", "ROOMS", "File", "files", "readme"]

FOLDER: Final = Path(__file__).resolve().parents[1] / "lua"

#: The rooms from the left to the right: a file includes what is in its own room, left of it, or in lua/lib.
ROOMS: Final = {
    "log": "topics' logs: refs, IDs, who recorded an entry, the index of a log",
    "expressions": "the language of filters: bodies as documents, trees, functions, exact numbers; includes only",
    "queues": "what a queue is: its definition, journal and history, where its messages are, what it reads next; "
    "includes only",
    "leases": "who may get messages and who holds them: subscriptions, handing over, coming back, settling; "
    "includes only",
    "sorted": "queues that judge their messages, by filters, priorities, barriers or a ring; includes only",
    "groups": "queues whose messages have groups: which of them may go next",
    "delivery": "dispatch, and what consumers do with messages: take, settle",
    "expiry": "messages whose life is over, and queues that read on without consumers; includes only",
    "publishers": "sessions of publishers, and the sequences under which they publish",
    "records": "the state of the world of topics with a key",
    "publishing": "recording messages and serving the queues that a topic feeds",
    "jobs": "what jobs write exactly once: rows in sequence, or put aside and committed",
    "actions": "events, and what actions did with theirs",
    "subscriptions": "subscriptions of consumers to queues, and their signs of life",
    "readers": "readers of topics: what they hold of logs, their bookmarks and reports",
    "bookmarks": "how messages are named on every instance, and where those of others are here",
    "ownership": "which instance delivers a message: requests, grants, transfers",
    "replication": "what links carry: logs and journals of other instances, and how far they are",
    "retention": "what is removed from logs and journals, and what is still needed of them",
    "instance": "the instance itself: its opening, incarnations and duties, and the timetable",
    "definitions": "what is defined: added, changed, removed, read",
    "check": "comparing what is kept with log and journal, mending it, rebuilding a queue",
    "inspection": "looking at queues and messages without changing anything",
    "upgrade": "turning an instance of the format before into this one",
}

_TOP: Final = """\
# Lua

<!-- Written by tests/lua_rooms.py from the heads of the files; change it there: python tests/lua_rooms.py -->

A script is one atomic operation: `<room>/<verb>.lua`. Python names it by its verb alone, `script("take")`. What
scripts share are includes, `<room>/lib/<noun>.lua`, which are included by their noun alone; in `lib/` are the few that
all rooms use. The module that composes them, `scripts.py`, says what a head holds.

The rooms have an order. A file includes what is in its own room, in a room above it in this table, or in `lib/`; so
every room can be read with those above it, and without those below.

"""


class File(NamedTuple):
    """A file of lua/.

    Attributes:
        room: its room; "" for ``lua/lib``.
        name: its verb or noun.
        is_include: whether it is in a ``lib``.
        meaning: its head's line.
        includes: the nouns that it includes, in order.
    """

    room: str
    name: str
    is_include: bool
    meaning: str
    includes: tuple[str, ...]

    @property
    def path(self) -> str:
        """Path of the file, from lua/ on."""
        return "/".join(part for part in (self.room, "lib" if self.is_include else "", f"{self.name}.lua") if part)


def _read(path: Path) -> File:
    *folders, name = path.relative_to(FOLDER).with_suffix("").parts
    head, _, rest = path.read_text().partition("\n")
    match = re.match(r"--- (\w+): (.*)", head)
    meaning = match[2] if match and match[1] == name else ""
    # A head's first line may go on in a second one.
    for line in rest.splitlines():
        if not (more := re.match(r"--- (?!(?:ARGV|FAIL|GIVES|FLAGS|@include) )(.*)", line)):
            break
        meaning += f" {more[1]}"
    lines = re.findall(r"^--- @include (.*)$", rest, re.MULTILINE)
    includes = [part.strip().removesuffix("()") for line in lines for part in line.split(",") if part.strip()]
    is_include = folders[-1:] == ["lib"]
    return File("/".join(folders[: len(folders) - is_include]), name, is_include, meaning, tuple(includes))


def files() -> list[File]:
    """Read all files, by room and name; scripts come before includes."""
    found = [_read(path) for path in FOLDER.rglob("*.lua")]
    order = ["", *ROOMS]
    return sorted(
        found, key=lambda each: (order.index(each.room) if each.room in order else -1, each.is_include, each.name)
    )


def _table(title: str, rows: list[File]) -> list[str]:
    if not rows:
        return []
    lines = [f"| {title} | |", "|---|---|"]
    for each in rows:
        text = each.meaning.replace("|", "\\|")
        lines.append(f"| [{each.name}]({each.path}) | {text[:1].upper()}{text[1:]} |")
    return [*lines, ""]


def readme() -> str:
    """Return the text of lua/README.md."""
    found = files()
    lines = ["| room | | scripts | includes |", "|---|---|---|---|"]
    for room, what in {"": "what all rooms use", **ROOMS}.items():
        kinds = [each.is_include for each in found if each.room == room]
        name = f"[{room}](#{room})" if room else "[lib](#lib)"
        lines.append(f"| {name} | {what} | {kinds.count(False) or ''} | {kinds.count(True) or ''} |")
    lines.append("")
    for room in ["", *ROOMS]:
        here = [each for each in found if each.room == room]
        lines += [f"## {room or 'lib'}", ""]
        lines += _table("script", [each for each in here if not each.is_include])
        lines += _table("include", [each for each in here if each.is_include])
    return _TOP + "\n".join(lines)


def main() -> int:
    """Write lua/README.md, or compare it."""
    text, path = readme(), FOLDER / "README.md"
    if sys.argv[1:] == ["--check"]:
        if path.is_file() and path.read_text() == text:
            return 0
        print("lua/README.md is not what the heads say: python tests/lua_rooms.py")
        return 1
    path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
