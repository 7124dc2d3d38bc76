"""A file has one thought: none is longer than a head holds without a reason, none so short that it is a part.

`LONG` and `SHORT` are what is left; nothing is added to them.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest
from sources import statements, tree_of
from test_rooms import modules

ROOT = Path(__file__).resolve().parents[2]
MOST = 450
LEAST = 60
#: What the line at the head of a long file begins with; the reason follows.
REASON = "# Long: "
HEAD = 60
#: Long files without a reason: each is cut, or gets one.
LONG: frozenset[str] = frozenset()
#: Short modules that one other imports, or none, each with why it stands alone.
SHORT = {
    "ampsq.bench.redrive": "a part of the benchmark, as each has its file",
    "ampsq.catalog.contents_checks": "looks at what is recorded; the other checks read definitions alone",
    "ampsq.cli.completion": "a command, as each has its file",
    "ampsq.cli.publishers": "a command, as each has its file",
    "ampsq.cli.readers": "a command, as each has its file",
    "ampsq.cli.trim": "a command, as each has its file",
    "ampsq.cli.version": "a command, as each has its file",
    "ampsq.console.health": "the page that load balancers ask for, which knows none of the others",
    "ampsq.expressions.reading": "the budget of reading bodies, beside what is read",
    "ampsq.gateway.server_probe": "asks a server that may not answer, apart from those that serve",
    "ampsq.operations.upgrade.format_4": "a step of an upgrade, which the next one replaces",
    "ampsq.records.conflation": "turns changes of records into rows; following reads them",
    "ampsq.replication.ownership": "proxied transfer, which coordinators do and links do not",
    "ampsq.spark.session": "what a program calls first, before anything of Spark is loaded",
    "ampsq.testing.plugin": "what pytest loads in every run, apart from what an instance needs",
}


def files():
    return sorted(
        path
        for folder in ("ampsq", "cli", "spark", "bench", "tests")
        for path in (ROOT / folder).rglob("*.py")
        if "data" not in path.parts
    )


def has_reason(text):
    """Ask whether one of the first lines says why the file is long."""
    return any(line.startswith(REASON) and len(line) > len(REASON) + 10 for line in text.splitlines()[:HEAD])


def too_long():
    texts = {path.relative_to(ROOT).as_posix(): path.read_text() for path in files()}
    return {name for name, text in texts.items() if len(text.splitlines()) > MOST and not has_reason(text)}


@cache
def importers():
    """Of each module, those that import it."""
    known = modules()
    found = {module: set() for module in known}
    for module, path in known.items():
        for node in statements(tree_of(path)):
            names = []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module, *(f"{node.module}.{each.name}" for each in node.names)]
            elif isinstance(node, ast.Import):
                names = [each.name for each in node.names]
            for name in names:
                if name in found and name != module:
                    found[name].add(module)
    return found


def too_short():
    known = modules()
    return {
        module
        for module, by in importers().items()
        if len(by) <= 1
        and not known[module].name.startswith("__")
        and len(known[module].read_text().splitlines()) < LEAST
    }


def test_no_file_is_longer_than_a_head_holds():
    found = too_long()

    assert found - LONG == set(), f"cut it by thought, or say why it is one at its head: {REASON}..."
    assert LONG - found == set(), "good; take it out of LONG"


def test_no_module_is_a_part_of_the_one_that_imports_it():
    found = too_short()

    assert found - SHORT.keys() == set(), "make it one with who imports it, or say in SHORT why it stands alone"
    assert SHORT.keys() - found == set(), "good; take it out of SHORT"


@pytest.mark.parametrize(
    ("text", "is_reason"),
    [
        (f'"""Errors."""\n{REASON}one table of all errors.\n', True),
        (f'"""Errors."""\n{REASON}\n', False),
        ("\n" * HEAD + f"{REASON}one table of all errors.\n", False),
    ],
)
def test_what_counts_as_a_reason(text, is_reason):
    assert has_reason(text) is is_reason


def test_a_module_that_others_import_is_known_by_them():
    by = importers()

    assert "ampsq.client.client" in by["ampsq.base.errors"]
    assert by["ampsq.records.sow"] == {"ampsq.client.session"}
