"""The house's rooms: what a module may import, and that its `__all__` is what it has."""

from __future__ import annotations

import ast
import importlib
from functools import cache
from pathlib import Path

import pytest

import ampsq

ROOT = Path(ampsq.__file__).parent
BESIDE = ROOT.parent / "cli"

#: The ground floor, exactly. Above it, a module may import what is listed before it, and its neighbours.
GROUND = {
    "ampsq.transitions": set(),
    "ampsq.schema": {"ampsq.transitions"},
    "ampsq.errors": set(),
    "ampsq.limits": {"ampsq.errors", "ampsq.values"},
    "ampsq.message_types": {"ampsq.errors", "ampsq.limits"},
    "ampsq.supervisor": set(),
    "ampsq.written": set(),
    "ampsq.values": {"ampsq.errors", "ampsq.written"},
    "ampsq.definitions.definition": {"ampsq.errors", "ampsq.values"},
    "ampsq.definitions.elements": {"ampsq.errors", "ampsq.values", "ampsq.expressions", "ampsq.message_types"},
    "ampsq.definitions.view": {
        "ampsq.errors",
        "ampsq.values",
        "ampsq.definitions.definition",
        "ampsq.definitions.elements",
        "ampsq.expressions",
    },
    "ampsq.definitions.address_setting": {
        "ampsq.errors",
        "ampsq.values",
        "ampsq.definitions.definition",
        "ampsq.definitions.elements",
    },
    "ampsq.definitions.conflated_topic": {"ampsq.values", "ampsq.definitions.definition", "ampsq.definitions.elements"},
    "ampsq.files.broker_xml": {
        "ampsq.errors",
        "ampsq.values",
        "ampsq.definitions.definition",
        "ampsq.models",
        "ampsq.definitions.address_setting",
        "ampsq.files.xml_elements",
    },
    "ampsq.files.environment": {"ampsq.errors", "ampsq.values"},
    "ampsq.files.yaml_nodes": {"ampsq.errors", "ampsq.values", "ampsq.files.environment", "ampsq.files.file_faults"},
    "ampsq.files.config": {
        "ampsq.definitions.conflated_topic",
        "ampsq.errors",
        "ampsq.connections.addresses",
        "ampsq.files.file_faults",
        "ampsq.files.xml_elements",
        "ampsq.files.yaml_nodes",
        "ampsq.values",
        "ampsq.definitions.definition",
        "ampsq.models",
        "ampsq.definitions.action",
        "ampsq.definitions.address_setting",
        "ampsq.files.broker_xml",
        "ampsq.files.amps_xml",
        "ampsq.definitions.transport",
        "ampsq.definitions.instance",
        "ampsq.definitions.destination",
    },
    "ampsq.files.file_faults": {"ampsq.errors"},
    "ampsq.files.xml_elements": {"ampsq.errors"},
    "ampsq.files.amps_elements": set(),
    "ampsq.files.amps_actions": {
        "ampsq.definitions.action_parts",
        "ampsq.files.amps_elements",
        "ampsq.files.xml_elements",
    },
    "ampsq.files.amps_include": {
        "ampsq.errors",
        "ampsq.files.environment",
        "ampsq.files.file_faults",
        "ampsq.files.xml_elements",
    },
    "ampsq.files.amps_xml": {
        "ampsq.definitions.conflated_topic",
        "ampsq.definitions.definition",
        "ampsq.values",
        "ampsq.definitions.action",
        "ampsq.files.amps_actions",
        "ampsq.files.amps_elements",
        "ampsq.files.amps_include",
        "ampsq.definitions.destination",
        "ampsq.files.file_faults",
        "ampsq.definitions.instance",
        "ampsq.models",
        "ampsq.definitions.transport",
        "ampsq.files.xml_elements",
    },
    "ampsq.definitions.instance": {"ampsq.errors", "ampsq.values", "ampsq.definitions.definition"},
    "ampsq.definitions.destination": {
        "ampsq.errors",
        "ampsq.values",
        "ampsq.definitions.definition",
        "ampsq.definitions.elements",
        "ampsq.message_types",
        "ampsq.connections.addresses",
    },
    "ampsq.definitions.queue_changes": {"ampsq.values"},
    "ampsq.definitions.transport": {"ampsq.errors", "ampsq.values", "ampsq.definitions.definition"},
    "ampsq.definitions.topic": {
        "ampsq.errors",
        "ampsq.values",
        "ampsq.definitions.definition",
        "ampsq.definitions.elements",
        "ampsq.message_types",
    },
    "ampsq.definitions.action_schedule": {"ampsq.errors", "ampsq.values"},
    "ampsq.definitions.action_values": {
        "ampsq.errors",
        "ampsq.values",
        "ampsq.definitions.elements",
        "ampsq.definitions.action_schedule",
        "ampsq.expressions",
    },
    "ampsq.definitions.action_on": {
        "ampsq.errors",
        "ampsq.values",
        "ampsq.definitions.definition",
        "ampsq.definitions.elements",
        "ampsq.definitions.action_values",
    },
    "ampsq.definitions.action_do": {
        "ampsq.values",
        "ampsq.definitions.definition",
        "ampsq.definitions.elements",
        "ampsq.definitions.action_values",
        "ampsq.definitions.action_on",
    },
    "ampsq.definitions.action_parts": {
        "ampsq.values",
        "ampsq.definitions.definition",
        "ampsq.definitions.action_values",
        "ampsq.definitions.action_on",
        "ampsq.definitions.action_do",
    },
    "ampsq.definitions.action": {
        "ampsq.errors",
        "ampsq.values",
        "ampsq.definitions.definition",
        "ampsq.definitions.action_parts",
        "ampsq.definitions.action_values",
    },
    "ampsq.models": {
        "ampsq.errors",
        "ampsq.values",
        "ampsq.definitions.definition",
        "ampsq.definitions.elements",
        "ampsq.message_types",
        "ampsq.definitions.topic",
        "ampsq.definitions.view",
        "ampsq.definitions.action",
        "ampsq.definitions.action_parts",
    },
    "ampsq.scripts": {"ampsq.schema", "ampsq.errors"},
    "ampsq.flow": {"ampsq.scripts"},
    "ampsq.messages.entry": {"ampsq.schema", "ampsq.values"},
    "ampsq.connections.addresses": {"ampsq.errors"},
    "ampsq.connections.causes": {"ampsq.errors", "ampsq.connections.addresses"},
    "ampsq.connections.connection_state": set(),
    "ampsq.connections.finding": {"ampsq.errors", "ampsq.connections.addresses", "ampsq.connections.causes"},
    "ampsq.connections.route": {
        "ampsq.schema",
        "ampsq.errors",
        "ampsq.values",
        "ampsq.connections.addresses",
        "ampsq.connections.connection_state",
        "ampsq.connections.finding",
    },
    "ampsq.connections.lines": {"ampsq.errors", "ampsq.connections.causes", "ampsq.connections.finding"},
    "ampsq.connections.channels": {"ampsq.errors", "ampsq.connections.causes", "ampsq.flow", "ampsq.scripts"},
    "ampsq.store": {
        "ampsq.errors",
        "ampsq.flow",
        "ampsq.connections.causes",
        "ampsq.connections.channels",
        "ampsq.connections.finding",
        "ampsq.connections.lines",
        "ampsq.connections.route",
    },
    "ampsq.calls": {"ampsq.schema", "ampsq.messages.entry", "ampsq.flow", "ampsq.message_types"},
    "ampsq.publishing.publish_calls": {"ampsq.flow", "ampsq.values"},
}
#: Who may open connections: on which calls run, and to ask who serves an instance.
OPENERS = {"ampsq.connections.lines", "ampsq.connections.finding"}
#: Who may know redis-py: those, who read its addresses and errors, and the demo that cleans up.
REDIS = OPENERS | {
    "ampsq.connections.addresses",
    "ampsq.connections.causes",
    "ampsq.connections.channels",
    "ampsq.connections.route",
    "ampsq.store",
    "ampsq.connections.presence",
    "ampsq.cli.demo_world",
}
#: Nothing below these may know them.
ROOF = ("ampsq.cli", "ampsq.testing", "ampsq.worker", "ampsq.coordinator", "ampsq.console", "ampsq.gateway")


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
    """What a module imports at run time, also inside its functions."""
    found = set()
    for node in nodes_at_run_time(ast.parse(PATHS[name].read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: imports are absolute"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.add(whole if whole in PATHS else node.module)
    return found


def ours(name):
    return {target for target in imports(name) if target.split(".")[0] == "ampsq"}


def is_below(name, roof):
    return not (name == roof or name.startswith(roof + "."))


@pytest.mark.parametrize("name", sorted(GROUND))
def test_the_ground_floor_imports_only_what_it_stands_on(name):
    assert ours(name) <= GROUND[name]


def test_expressions_stand_on_the_ground_floor_alone():
    used = {target for name in PATHS if name.startswith("ampsq.expressions") for target in ours(name)}

    allowed = {"ampsq.schema", "ampsq.errors", "ampsq.values", "ampsq.message_types"}
    assert {target for target in used if not target.startswith("ampsq.expressions")} <= allowed


def test_imports_never_come_back_to_where_they_started():
    graph = {name: ours(name) & set(PATHS) for name in PATHS}
    done = set()

    def walk(name, chain):
        assert name not in chain, " -> ".join((*chain, name))
        if name not in done:
            for target in graph[name]:
                walk(target, (*chain, name))
            done.add(name)

    for name in graph:
        walk(name, ())


@pytest.mark.parametrize("roof", ROOF)
def test_nothing_below_the_roof_imports_it(roof):
    users = {name for name in PATHS if is_below(name, roof) and any(not is_below(t, roof) for t in ours(name))}

    assert users <= {
        "ampsq",
        "ampsq.cli.main",
        *(n for n in PATHS if n.startswith(("ampsq.cli.", "ampsq.testing"))),
    }


def test_a_look_at_the_package_shows_what_it_is_for():
    assert {name for name in dir(ampsq) if not name.startswith("__")} == set(ampsq.__all__)


def test_only_lines_and_finding_open_connections():
    made = ("Redis.from_url(", "ConnectionPool.from_url(", "Sentinel(", "RedisCluster(")

    assert {name for name in PATHS if any(text in PATHS[name].read_text() for text in made)} <= OPENERS | {
        "ampsq.embedded"  # in its docstring
    }


def test_only_what_is_about_connections_knows_redis_py():
    users = {name for name in PATHS if any(target.split(".")[0] == "redis" for target in imports(name))}

    assert users <= REDIS


def public_names(name):
    """What a module defines at its top level without an underscore, and does not import."""
    found = set()
    for node in ast.parse(PATHS[name].read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return {defined for defined in found if not defined.startswith("_")}


WITH_ALL = [name for name in PATHS if "__all__" in PATHS[name].read_text()]


@pytest.mark.parametrize("name", WITH_ALL)
def test_what_a_module_exports_exists_and_is_sorted(name):
    module = importlib.import_module(name)

    exported = module.__all__

    kinds = [(not n.isupper(), not n[:1].isupper(), n) for n in exported]
    assert kinds == sorted(kinds), "constants, classes, then functions, each sorted"
    assert [n for n in exported if not hasattr(module, n)] == []
    assert len(exported) == len(set(exported))


@pytest.mark.parametrize("name", sorted(GROUND))
def test_the_ground_floor_says_what_it_exports(name):
    if name == "ampsq.supervisor":
        return  # not for import: a process of its own
    assert name in WITH_ALL


@pytest.mark.parametrize(
    "name",
    [
        "ampsq.schema",
        "ampsq.errors",
        "ampsq.scripts",
        "ampsq.flow",
        "ampsq.store",
        "ampsq.calls",
        "ampsq.publishing.publish_calls",
    ],
)
def test_what_a_module_defines_is_exported_or_underscored(name):
    defined = public_names(name)
    exported = set(importlib.import_module(name).__all__)

    # type variables are nobody's business
    assert defined - exported - {"T"} == set()
