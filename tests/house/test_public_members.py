"""Public names of subscriptions, messages and clients: public_members.json has every one of these classes.

A name that is there is a promise; what only other parts of ampsq call belongs to an object behind the class, or has an
underscore. `python tests/house/test_public_members.py --write` writes the list anew, for a commit that says why.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
import textwrap
from pathlib import Path

import pytest

import ampsq

TABLE = Path(__file__).with_name("public_members.json")
#: The classes that users hold in their hands and that do something, each with the asyncio one.
HELD = re.compile(r"(Async)?((\w*Subscription|(Topic)?Message|Client|Publisher|\w*Receipt)|Worker)")

#: An asyncio client connects when it is told to: with `async with`, or with `connect`. The other one is still to go.
APART = {"connect"}


def classes():
    return {name: getattr(ampsq, name) for name in sorted(ampsq.__all__) if HELD.fullmatch(name)}


def set_on_instances(cls):
    """The attributes that the methods of a class give to `self`."""
    found = set()
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(cls)))):
        is_set = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        if is_set and isinstance(node.value, ast.Name) and node.value.id == "self":
            found.add(node.attr)
    return found


def members(cls):
    ours = [each for each in cls.__mro__ if each.__module__.startswith("ampsq")]
    names = set(dir(cls)).union(*(set_on_instances(each) for each in ours))
    return sorted(name for name in names if not name.startswith("_"))


def counted_now():
    return {name: members(cls) for name, cls in classes().items()}


@pytest.mark.parametrize("name", classes())
def test_a_class_that_users_hold_has_the_public_names_that_are_written_down(name):
    listed = json.loads(TABLE.read_text())

    assert members(classes()[name]) == listed[name], (
        "a new name is a promise: python tests/house/test_public_members.py --write"
    )


def test_the_list_has_no_class_that_is_not_exported():
    assert list(json.loads(TABLE.read_text())) == list(classes())


@pytest.mark.parametrize("name", [name for name in classes() if f"Async{name}" in ampsq.__all__])
def test_the_asyncio_class_has_the_same_names(name):
    listed = json.loads(TABLE.read_text())

    assert set(listed[f"Async{name}"]) ^ set(listed[name]) <= APART


if __name__ == "__main__" and sys.argv[1:] == ["--write"]:
    TABLE.write_text(json.dumps(counted_now(), indent=1) + "\n")
