"""Limits of Lua: a script that comes close to one is refused here, and not by some server."""

from __future__ import annotations

import pytest

from ampsq.base.errors import ScriptBug
from ampsq.protocol import scripts
from ampsq.protocol.request import Call
from ampsq.protocol.scripts import ComposeError, check_limits, compose


def run(store, script, *arguments):
    return store.call(Call(script, arguments, lambda reply: reply))


def test_each_script_leaves_room_below_the_limits_of_lua():
    for name in scripts.names():
        check_limits(name)


def test_a_script_that_is_close_to_two_hundred_local_variables_is_refused(opened, lua):
    def write(count):
        lua("lib/many", "--- many: x.\n" + "".join(f"local function f{i}()\n  return {i}\nend\n" for i in range(count)))
        calls = " + ".join(f"f{i}()" for i in range(count))
        head = "--- verb: x.\n--- ARGV a, b\n--- @include many, fail\n"
        lua("verb", f"{head}local c, d = 1, 2\nreturn {calls} + a + b + c + d\n")
        scripts._read.cache_clear()

    write(185)
    check_limits("verb")
    assert run(opened, compose("verb"), 1, 2) == 185 * 184 // 2 + 6
    write(186)
    with pytest.raises(ComposeError, match=r"^lua/verb\.lua: 191 local variables with all functions .*`name\(\)`"):
        check_limits("verb")
    write(200)
    with pytest.raises(ScriptBug, match="200 local variables"):
        run(opened, compose("verb"), 1, 2)


def test_a_function_that_is_close_to_sixty_upvalues_is_refused(opened, lua):
    def write(count):
        parts = "".join(f"local function f{i}()\n  return {i}\nend\n" for i in range(count))
        calls = " + ".join(f"f{i}()" for i in range(count))
        lua("lib/many", f"--- many: x.\n{parts}local function sum()\n  return {calls}\nend\n")
        lua("verb", "--- verb: x.\n--- @include many, fail\nreturn sum()\n")
        scripts._read.cache_clear()

    write(55)
    check_limits("verb")
    assert run(opened, compose("verb")) == 55 * 54 // 2
    write(56)
    with pytest.raises(ComposeError, match=r"^lua/lib/many\.lua:170: 59 functions and variables .* divide it$"):
        check_limits("verb")
    write(61)
    with pytest.raises(ScriptBug, match="60 upvalues"):
        run(opened, compose("verb"))
