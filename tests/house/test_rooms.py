"""The line of rooms: a room imports from rooms to its left, and inside a room files form no circle.

Imports made for types count. `cli`, `spark` and `bench` are rooms too.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from cases import for_each
from sources import statements, tree_of

import ampsq

ROOT = Path(ampsq.__file__).parents[1]
#: From left to right.
LINE = [
    "base",
    "expressions",
    "definitions",
    "protocol",
    "transport",
    "server",
    "catalog",
    "publishing",
    "queues",
    "topics",
    "views",
    "records",
    "replication",
    "operations",
    "client",
    "files",
    "coordinator",
    "testing",
    "console",
    "gateway",
    "tracing",
    "spark",
    "bench",
    "cli",
]
#: Modules that stand beside the rooms, each with the room that it counts to. The package's own page imports the shells.
LOOSE = {
    "ampsq": "client",
    "ampsq.app": "client",
    "ampsq.worker": "client",
    "ampsq.async_worker": "client",
    "ampsq.tracing": "tracing",
}
#: The one import from a room to the right: a client opens `memory://` late, by what only tests have installed.
EXCEPTION = ("ampsq.server.location", "ampsq.testing.memory")
#: Folders of the package that hold no Python modules of a room.
NO_ROOMS = {"lua"}


def module_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts if parts[0] == "ampsq" else ("ampsq", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules():
    """Dotted name -> path, of every module of the package, cli, spark and bench."""
    paths = [path for folder in ("ampsq", "cli", "spark", "bench") for path in (ROOT / folder).rglob("*.py")]
    return {module_of(path): path for path in sorted(paths)}


def room_of(module):
    return LOOSE.get(module) or module.split(".")[1]


@cache
def imports(module):
    """The modules of ours that a module imports, also for types and within functions."""
    found = set()
    for node in statements(tree_of(modules()[module])):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: write imports with the whole name"
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (whole & modules().keys()) or {node.module}
            found |= {node.module} if any(name not in modules() for name in whole) else set()
    return (found & modules().keys()) - {module}


def test_every_folder_of_the_package_is_a_room():
    folders = {path.name for path in (ROOT / "ampsq").iterdir() if path.is_dir() and path.name != "__pycache__"}
    files = {f"ampsq.{path.stem}" for path in (ROOT / "ampsq").glob("*.py") if path.stem != "__init__"}

    assert folders - NO_ROOMS <= set(LINE)
    assert files <= LOOSE.keys()
    assert {room_of(module) for module in modules()} == set(LINE)


@for_each("module", lambda: sorted(modules()))
def test_a_module_imports_from_rooms_to_its_left(module):
    here = LINE.index(room_of(module))

    wrong = sorted(
        target
        for target in imports(module)
        if LINE.index(room_of(target)) > here and target != "ampsq" and (module, target) != EXCEPTION
    )
    assert wrong == [], f"{module} stands in {room_of(module)}; these stand to its right"


@pytest.mark.parametrize("room", LINE)
def test_inside_a_room_files_form_no_circle(room):
    graph = {
        module: {target for target in imports(module) if room_of(target) == room}
        for module in modules()
        if room_of(module) == room
    }
    done = set()

    def walk(module, chain):
        assert module not in chain, "a circle: " + " -> ".join((*chain[chain.index(module) :], module))
        if module not in done:
            for target in sorted(graph[module]):
                walk(target, (*chain, module))
            done.add(module)

    for module in sorted(graph):
        walk(module, ())


def test_the_picture_shows_the_rooms_in_their_order():
    picture = (ROOT / "docs" / "images" / "rooms.svg").read_text()

    assert re.findall(r"<text x=[^>]*>(\w+)</text></g>", picture) == LINE


def test_the_page_on_the_design_tells_of_each_room():
    page = (ROOT / "docs" / "design.md").read_text().partition("## The rooms")[2].partition("\n## ")[0]

    told = [
        room for item in re.findall(r"^- (\*\*[^:]*):", page, re.MULTILINE) for room in re.findall(r"\*\*(\w+)", item)
    ]
    assert told == LINE
