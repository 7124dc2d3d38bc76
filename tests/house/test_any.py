"""`Any` stands for users' data alone: uses of it elsewhere are counted for each module, and only fall.

`python tests/house/test_any.py --write` writes the table anew; it refuses higher numbers without `--rise`, which is for
modules that were renamed.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import ratchet
from sources import tree_of
from test_rooms import modules

TABLE = Path(__file__).with_name("any_uses.json")
#: Modules and rooms whose `Any` is what users give or get, each with what that is.
USERS_DATA = {
    "ampsq.base.message_types": "decoded bodies",
    "ampsq.protocol.encoding": "decoded bodies",
    "ampsq.expressions": "values of documents, as their formats give them",
    "ampsq.definitions": "elements as users write them, before they are checked",
    "ampsq.files": "elements as files have them, before they are checked",
    "ampsq.gateway.acknowledgements": "JSON of strangers, before it is checked",
    "ampsq.gateway.asyncapi": "a JSON document",
    "ampsq.gateway.client": "bodies",
    "ampsq.gateway.deletion": "keys of records",
    "ampsq.gateway.entitlements": "elements as files have them, before they are checked",
    "ampsq.gateway.frames": "JSON of strangers, before it is checked",
    "ampsq.gateway.json_messages": "bodies",
    "ampsq.gateway.openapi": "a JSON document",
    "ampsq.console.openapi": "a JSON document",
    "ampsq.gateway.publish": "bodies",
    "ampsq.gateway.requests": "JSON of strangers, before it is checked",
    "ampsq.gateway.rules": "elements as files have them, before they are checked",
    "ampsq.client.client": "bodies and keys",
    "ampsq.client.async_client": "bodies and keys",
    "ampsq.client.partitioned_client": "bodies, and options of clients that are passed through",
    "ampsq.client.async_partitioned_client": "bodies, and options of clients that are passed through",
    "ampsq.client.partition_router": "bodies",
    "ampsq.client.async_partition_router": "bodies",
    "ampsq.client.partitioned_publisher": "bodies",
    "ampsq.client.async_partitioned_publisher": "bodies",
    "ampsq.client.partitioned_admin": "what an edit of a dead letter returns",
    "ampsq.client.async_partitioned_admin": "what an edit of a dead letter returns",
    "ampsq.client.publisher": "bodies and keys",
    "ampsq.client.async_publisher": "bodies and keys",
    "ampsq.client.admin": "what an edit of a dead letter returns",
    "ampsq.client.async_admin": "what an edit of a dead letter returns",
    "ampsq.publishing.deduplication": "messages, as a user's function takes them",
    "ampsq.publishing.partitioned_batches": "messages, as a user's function takes them",
    "ampsq.publishing.plain": "bodies and keys",
    "ampsq.publishing.topic_key": "bodies",
    "ampsq.queues.dead_letters": "decoded bodies",
    "ampsq.queues.message": "decoded bodies",
    "ampsq.queues.query": "decoded bodies, and what they are ordered by",
    "ampsq.topics.message": "decoded bodies",
    "ampsq.records.change": "decoded bodies",
    "ampsq.records.deletion": "bodies and keys",
    "ampsq.base.pattern_program": "the tree that the standard library makes of a user's pattern",
    "ampsq.views.async_subscription": "values of rows, which users index",
    "ampsq.views.rows": "values of rows",
    "ampsq.views.subscription": "values of rows, which users index",
    "ampsq.tracing": "bodies, and what is passed through to a client",
    "ampsq.client.handler_slots": "what a user's handler returns",
    "ampsq.client.handler_rules": "messages of either kind, as a user's handler takes them",
    "ampsq.client.handler_tasks": "what a user's handler returns",
    "ampsq.client.typed_handlers": "a user's handler, and the data that it asks for",
    "ampsq.app": "what a user's handler returns, and elements before they are checked",
    "ampsq.worker": "what a user's handler returns",
    "ampsq.async_worker": "what a user's handler returns",
    "ampsq.spark.options": "options as users write them, before they are checked",
    "ampsq.spark.read_options": "options as users write them, before they are checked",
    "ampsq.spark.write_options": "options as users write them, before they are checked",
    "ampsq.cli.handler": "what a user's module has",
}


def users_data(module):
    """Say what of users a module's `Any` stands for; None where it may not."""
    return next((what for name, what in USERS_DATA.items() if f"{module}.".startswith(f"{name}.")), None)


def uses(tree):
    """Count what names `Any`; the text of an alias counts, too."""
    found = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            found += node.id == "Any"
        elif isinstance(node, ast.Attribute):
            found += node.attr == "Any" and isinstance(node.value, ast.Name) and node.value.id == "typing"
        elif isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Constant):
            found += in_text(node.value) if ast.unparse(node.annotation) == "TypeAlias" else 0
    return found


def in_text(constant):
    return uses(ast.parse(constant.value, mode="eval")) if isinstance(constant.value, str) else 0


def counted_now():
    found = {module: uses(tree_of(path)) for module, path in sorted(modules().items())}
    found = {module: number for module, number in found.items() if number and users_data(module) is None}
    return {name: {"Any": number} for name, number in {"total": sum(found.values()), **found}.items()}


def test_any_is_named_in_fewer_and_fewer_places_beside_users_data():
    risen, fallen = ratchet.changes(ratchet.read(TABLE), counted_now())

    assert risen == [], "give it a type: what the server answers has one, what flows hand on has one"
    assert fallen == [], "good; lower the table: python tests/house/test_any.py --write"


def test_each_place_of_users_data_is_there_and_has_some():
    known = modules()

    for name in USERS_DATA:
        of = [path for module, path in known.items() if f"{module}.".startswith(f"{name}.")]
        assert sum(uses(tree_of(path)) for path in of), name


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("from typing import Any\ndef f(x: Any) -> dict[str, Any]: ...", 2),
        ("import typing\nx: typing.Any = 1", 1),
        ("Rows: TypeAlias = 'list[Any]'", 1),
        ("Anything = 1\n'Any number may run'\nx: str = 'Any'", 0),
    ],
)
def test_what_counts_as_a_use(text, number):
    assert uses(ast.parse(text)) == number


if __name__ == "__main__":
    ratchet.asked(TABLE, counted_now())
