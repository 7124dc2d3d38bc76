"""Tables of numbers that may only fall: each stands in a committed file, which one command lowers."""

from __future__ import annotations

import json
import sys
from itertools import chain


def read(table):
    return json.loads(table.read_text())


def changes(before, now):
    """Return the rises and the falls of two tables, name -> figure -> number; a missing one is 0."""
    risen, fallen = [], []
    for name in sorted(before.keys() | now.keys()):
        old, new = before.get(name, {}), now.get(name, {})
        for figure in dict.fromkeys(chain(old, new)):
            was, is_now = old.get(figure, 0), new.get(figure, 0)
            if was != is_now:
                (risen if is_now > was else fallen).append(f"{name}: {figure} {was} -> {is_now}")
    return risen, fallen


def write(table, now, *, may_rise=False):
    """Write a table; one with a number that has risen only where that is allowed. Gives what has changed.

    Raises:
        SystemExit: it has risen, and may not.
    """
    risen, fallen = changes(read(table) if table.exists() else now, now)
    if risen and not may_rise:
        raise SystemExit(
            "\n".join([*risen, f"{table.name} is left as it is; --rise writes it, in a commit that says why"])
        )
    # A line for each name, so that a difference is read at a glance.
    lines = [f" {json.dumps(name)}: {json.dumps(figures)}" for name, figures in now.items()]
    table.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    return [*risen, *fallen]


def asked(table, now):
    """Do what the command line says: ``--write``, and ``--rise`` with it."""
    options = set(sys.argv[1:])
    if "--write" not in options or not options <= {"--write", "--rise"}:
        raise SystemExit(f"usage: python {sys.argv[0]} --write [--rise]")
    sys.stdout.writelines(f"{change}\n" for change in write(table, now, may_rise="--rise" in options))
