"""Exports of modules, and which of them may know redis-py.

`python tests/house/test_exports.py --write` writes what `ampsq` exports, in all its forms, from the one table `_HOMES`.
"""

from __future__ import annotations

import ast
import importlib
import sys
from functools import cache
from pathlib import Path

import pytest
from cases import for_each
from sources import tree_of

import ampsq

ROOT = Path(ampsq.__file__).parent
BESIDE = ROOT.parent / "cli"

#: Who may open connections: on which calls run, and to ask who serves an instance.
OPENERS = {
    "ampsq.testing.servers",
    "ampsq.transport.async_store",
    "ampsq.transport.discovery",
    "ampsq.transport.shared_keepalive",
    "ampsq.transport.store",
    "ampsq.transport.tracked_keys",
}
#: Who may know redis-py: those, who read its addresses and errors, and the demo that cleans up.
REDIS = OPENERS | {
    "ampsq.base.addresses",
    "ampsq.transport.async_pipeline",
    "ampsq.transport.async_server_pools",
    "ampsq.transport.async_shared_pipelines",
    "ampsq.transport.attempts",
    "ampsq.transport.blocking_reads",
    "ampsq.transport.calls_in_flight",
    "ampsq.transport.errors",
    "ampsq.transport.pipeline",
    "ampsq.transport.repeated_question",
    "ampsq.transport.route",
    "ampsq.transport.server_pools",
    "ampsq.transport.shard_channels",
    "ampsq.transport.shared_pipelines",
    "ampsq.transport.wakeups",
    "ampsq.queues.heartbeat",
    "ampsq.cli.demo_world",
}


def module_name(path):
    base, prefix = (BESIDE, ["ampsq", "cli"]) if path.is_relative_to(BESIDE) else (ROOT, ["ampsq"])
    parts = [*prefix, *path.relative_to(base).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


PATHS = {
    module_name(path): path
    for path in sorted([*ROOT.rglob("*.py"), *BESIDE.rglob("*.py")])
    if "lua" not in path.relative_to(ROOT.parent).parts
}


def is_type_checking(node):
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def nodes_at_run_time(node):
    for child in ast.iter_child_nodes(node):
        if is_type_checking(child):
            continue
        yield child
        yield from nodes_at_run_time(child)


@cache
def imports(name):
    """Return the modules that one imports at run time, also inside its functions."""
    found = set()
    for node in nodes_at_run_time(tree_of(PATHS[name])):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: imports are absolute"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.add(whole if whole in PATHS else node.module)
    return found


def test_a_look_at_the_package_shows_what_it_is_for():
    assert {name for name in dir(ampsq) if not name.startswith("__")} == set(ampsq.__all__)


def written(source, homes):
    """The package's source with its table in order, and the names for checkers and for `*` written from that."""
    names = sorted(homes)
    modules = {}
    for name in names:
        modules.setdefault(homes[name], []).append(name)
    imports = "".join(
        f"    from ampsq.{home} import {', '.join(sorted(modules[home], key=str.lower))}\n" for home in sorted(modules)
    )
    table = "".join(f'    "{name}": "{homes[name]}",\n' for name in names)
    exported = "".join(f'    "{name}",\n' for name in names)
    for begin, inside, end in (
        ("if TYPE_CHECKING:\n", imports, "\n__all__"),
        ("__all__ = [\n", exported, "]\n"),
        ("_HOMES = {\n", table, "}\n"),
    ):
        before, mark, rest = source.partition(begin)
        source = f"{before}{mark}{inside}{end}{rest.partition(end)[2]}"
    return source


def test_all_that_the_package_exports_is_written_from_one_table():
    source = PATHS["ampsq"].read_text()

    assert source == written(source, ampsq._HOMES), "python tests/house/test_exports.py --write"


@for_each("name", ampsq.__all__)
def test_every_exported_name_is_found(name):
    assert getattr(ampsq, name).__module__.startswith("ampsq.")


def test_only_lines_and_finding_open_connections():
    made = ("Redis.from_url(", "ConnectionPool.from_url(", "Sentinel(", "RedisCluster(")

    assert {name for name in PATHS if any(text in PATHS[name].read_text() for text in made)} <= OPENERS | {
        "ampsq.server.embedded"  # in its docstring
    }


def test_only_what_is_about_connections_knows_redis_py():
    users = {name for name in PATHS if any(target.split(".")[0] == "redis" for target in imports(name))}

    assert users <= REDIS


def public_names(name):
    """Return the names that a module defines at its top level without an underscore, and does not import."""
    found = set()
    for node in tree_of(PATHS[name]).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return {defined for defined in found if not defined.startswith("_")}


WITH_ALL = [name for name in PATHS if "__all__" in PATHS[name].read_text()]


@for_each("name", WITH_ALL)
def test_what_a_module_exports_exists_and_is_sorted(name):
    module = importlib.import_module(name)

    exported = module.__all__

    kinds = [(not n.isupper(), not n[:1].isupper(), n) for n in exported]
    assert kinds == sorted(kinds), "constants, classes, then functions, each sorted"
    assert [n for n in exported if not hasattr(module, n)] == []
    assert len(exported) == len(set(exported))


@pytest.mark.parametrize(
    "name",
    [
        "ampsq.protocol.schema",
        "ampsq.base.errors",
        "ampsq.protocol.scripts",
        "ampsq.protocol.request",
        "ampsq.transport.store",
        "ampsq.protocol.calls.browse",
        "ampsq.protocol.calls.catalog",
        "ampsq.protocol.calls.queues",
        "ampsq.protocol.calls.subscriptions",
        "ampsq.protocol.calls.publish",
    ],
)
def test_what_a_module_defines_is_exported_or_underscored(name):
    defined = public_names(name)
    exported = set(importlib.import_module(name).__all__)

    # type variables are nobody's business
    assert defined - exported - {"T"} == set()


if __name__ == "__main__":
    assert sys.argv[1:] == ["--write"], __doc__
    PATHS["ampsq"].write_text(written(PATHS["ampsq"].read_text(), ampsq._HOMES))
