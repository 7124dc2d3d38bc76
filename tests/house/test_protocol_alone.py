"""The protocol room alone names keys, commands, scripts and fields: uses of these elsewhere are counted, and only fall.

`python tests/house/test_protocol_alone.py --write` writes the table anew; it refuses higher numbers without `--rise`,
which is for modules that were renamed.
"""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest
import ratchet
from sources import statements, tree_of
from test_rooms import modules, room_of

TABLE = Path(__file__).with_name("protocol_uses.json")
PROTOCOL = "ampsq.protocol"
SCHEMA = f"{PROTOCOL}.schema"
NAMES = ("key", "command", "script_call", "FIELDS", "VALUES", "KEYS")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def is_of_protocol(module):
    return module is not None and (module == PROTOCOL or module.startswith(PROTOCOL + "."))


def imported(tree):
    """Return a module's names for what it imports from the room, and its names for the room's modules."""
    names, rooms = {}, set()
    for node in statements(tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                said = alias.asname or alias.name
                if is_of_protocol(node.module) and alias.name in NAMES:
                    names[said] = alias.name
                elif is_of_protocol(f"{node.module}.{alias.name}"):
                    rooms.add(said)
        elif isinstance(node, ast.Import):
            rooms |= {alias.asname or alias.name for alias in node.names if is_of_protocol(alias.name)}
    return names, rooms


def bound_here(scope):
    """The names that a function or a comprehension binds itself, other than by imports: they hide imported ones."""
    bound = set()
    if isinstance(scope, FUNCTIONS):
        bound |= {node.arg for node in ast.walk(scope.args) if isinstance(node, ast.arg)}
    pending = list(ast.iter_child_nodes(scope))
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.add(node.name)
        if not isinstance(node, (*FUNCTIONS, *COMPREHENSIONS, ast.ClassDef)):
            pending += ast.iter_child_nodes(node)
    return bound


def uses(tree):
    """Return how often a module uses names that only the room may use, called or not."""
    names, rooms = imported(tree)
    counted = Counter()

    def walk(node, hidden):
        if isinstance(node, (*FUNCTIONS, *COMPREHENSIONS)):
            hidden = hidden | bound_here(node)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names.keys() - hidden:
            counted[names[node.id]] += 1
        elif isinstance(node, ast.Attribute) and node.attr in NAMES and ast.unparse(node.value) in rooms - hidden:
            counted[node.attr] += 1
        for child in ast.iter_child_nodes(node):
            walk(child, hidden)

    walk(tree, frozenset())
    return counted


def counted_now():
    found = {module: uses(tree_of(path)) for module, path in modules().items() if room_of(module) != "protocol"}
    found = {"total": sum(found.values(), Counter()), **{module: each for module, each in found.items() if each}}
    return {module: {name: each[name] for name in NAMES} for module, each in found.items()}


def test_keys_commands_scripts_and_fields_are_named_in_fewer_and_fewer_places_outside_of_the_protocol():
    risen, fallen = ratchet.changes(ratchet.read(TABLE), counted_now())

    assert risen == [], "say it in ampsq/protocol/, as a function of calls/ or reads/, and call that"
    assert fallen == [], "good; lower the table: python tests/house/test_protocol_alone.py --write"


def imports_schema(tree):
    return any(
        (
            isinstance(node, ast.ImportFrom)
            and (
                node.module == SCHEMA or (node.module == PROTOCOL and any(each.name == "schema" for each in node.names))
            )
        )
        or (isinstance(node, ast.Import) and any(each.name == SCHEMA for each in node.names))
        for node in statements(tree)
    )


def test_the_schema_is_imported_in_the_protocol_alone():
    """Limits that others count with are in `ampsq.protocol.limits`."""
    found = [module for module, path in modules().items() if imports_schema(tree_of(path))]

    assert [module for module in found if room_of(module) != "protocol"] == []
    assert len(found) > 20


@pytest.mark.parametrize(
    "text",
    [
        "from ampsq.protocol.schema import FORMAT",
        "from ampsq.protocol import scripts, schema as names",
        "def f():\n    import ampsq.protocol.schema",
    ],
)
def test_an_import_of_the_schema_is_seen(text):
    assert imports_schema(ast.parse(text))


def test_fields_values_and_scripts_count_as_keys_and_commands_do():
    text = (
        "from ampsq.protocol.request import script_call\n"
        "from ampsq.protocol.schema import BATCH, FIELDS, KEYS, VALUES\n"
        "script_call('open', [FIELDS['body'], VALUES['none'], BATCH], bool)\n[*KEYS]"
    )

    assert uses(ast.parse(text)) == {"script_call": 1, "FIELDS": 1, "VALUES": 1, "KEYS": 1}


@pytest.mark.parametrize(
    ("text", "keys", "commands"),
    [
        ("from ampsq.protocol.schema import key\nkey('i', 'queue')\n[key]", 2, 0),
        ("from ampsq.protocol.schema import key as spelled\nspelled('i', 'queue')", 1, 0),
        ("from ampsq.protocol import request, schema\nrequest.command([schema.key('i', 'queue')], list)", 1, 1),
        ("import ampsq.protocol.schema\nampsq.protocol.schema.key('i', 'queue')", 1, 0),
        ("import ampsq.protocol.schema as names\nnames.key('i', 'queue')", 1, 0),
        ("def f():\n    from ampsq.protocol.request import command\n    return command(['PING'], bool)", 0, 1),
        ("from ampsq.protocol.schema import key\ndef f(key):\n    return key\nkey('i', 'queue')", 1, 0),
        ("from ampsq.protocol.schema import key\n{key: 1 for key in 'ab'}\nsorted('ab', key=key)", 1, 0),
        ("from ampsq.protocol.schema import key\ndef f():\n    return [key(name, 'queue') for name in 'ab']", 1, 0),
        ("from elsewhere import command, key\ncommand(key)\nthing.key", 0, 0),
    ],
)
def test_what_counts_as_a_use(text, keys, commands):
    counted = uses(ast.parse(text))

    assert (counted["key"], counted["command"]) == (keys, commands)


def test_a_table_is_lowered_and_raised_only_on_demand(tmp_path):
    table = tmp_path / "uses.json"
    ratchet.write(table, {"total": {"key": 3}, "a": {"key": 3}})

    assert ratchet.write(table, {"total": {"key": 2}, "a": {"key": 2}}) == ["a: key 3 -> 2", "total: key 3 -> 2"]
    with pytest.raises(SystemExit, match=r"b: key 0 -> 1\n.*left as it is"):
        ratchet.write(table, {"total": {"key": 2}, "a": {"key": 1}, "b": {"key": 1}})
    assert ratchet.read(table) == {"total": {"key": 2}, "a": {"key": 2}}
    ratchet.write(table, {"total": {"key": 1}, "b": {"key": 1}}, may_rise=True)
    assert ratchet.changes(ratchet.read(table), {"total": {"key": 1}}) == ([], ["b: key 1 -> 0"])


if __name__ == "__main__":
    ratchet.asked(TABLE, counted_now())
