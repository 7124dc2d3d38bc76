"""The hot scripts as server functions: the same text, whose closures are made once, when it is loaded.

Each is a library with one function of the same name. A library keeps its variables from call to call, also after an
error in the middle of one. So whatever an include keeps is made anew at the beginning of each call, and a call knows
nothing of the ones before it, as a script does.

A name ends in a hash of the text: those of two releases stand side by side. A name protects nothing, though, since
whoever may load functions may put another text under it; so a client calls a function only on a connection on which it
has read that the server's text is its own (`ampsq.transport.known_functions`).
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from ampsq.base.errors import DefinitionError
from ampsq.protocol import scripts

__all__ = ["HOT", "PREFIX", "SWITCH", "ServerFunction", "are_used", "function", "is_switched_on"]

#: The verbs of messages that are published, delivered and settled. Others are called too seldom to gain anything.
HOT: Final = ("publish", "settle", "sweep", "take")
#: What the names of all our functions begin with, of whatever release.
PREFIX: Final = "ampsq_"
#: The variable of the environment by which a process uses no functions, and its coordinators load none: ``off``.
SWITCH: Final = "AMPSQ_FUNCTIONS"
_SWITCHED: Final = {"off": False, "on": True}
#: Letters of the hash that names have: 80 bits.
_HASHED: Final = 20
#: Stands for the name while the text is made; no Lua file has it.
_NAME: Final = "\x00"


@dataclass(frozen=True, slots=True)
class ServerFunction:
    """A script as a library of one function.

    Attributes:
        verb: of the script.
        name: of the function, and of its library.
        source: what is loaded.
        where: for each line of the source, the file and line that it came from.
    """

    verb: str
    name: str
    source: str
    where: tuple[str, ...] = field(repr=False)

    def place(self, line: int) -> str:
        """Tell which file and line stand behind a line of the source."""
        return self.where[line - 1] if 0 < line <= len(self.where) else f"{self.verb}.lua"


def is_switched_on(variable: str, *, default: bool) -> bool:
    """Return whether a variable of the environment says ``on``; `default` where it says nothing.

    Raises:
        DefinitionError: the variable says something else.
    """
    text = os.environ.get(variable, "")
    if text and text not in _SWITCHED:
        raise DefinitionError(f"{variable}={text!r}; allowed: on and off")
    return _SWITCHED.get(text, default)


def are_used() -> bool:
    """Return whether this process uses functions: not with AMPSQ_FUNCTIONS=off; raises as `is_switched_on` does."""
    return is_switched_on(SWITCH, default=True)


@cache
def function(verb: str) -> ServerFunction:
    """Return a hot script as a function; composed once a process."""
    parts = scripts.pieces(verb, are_nests_kept=True)
    start = f"lua/{verb}"
    # While a library is loaded there is no `redis.call`. KEYS and ARGV are parameters of a function.
    head = [f"#!lua name={_NAME}", "local call, P, KEYS, ARGV", "local nests = {}"]
    resets = [*scripts.forgetting(parts.variables), "for i = 1, #nests do nests[i]() end"]
    begin = [
        *("local function begin(keys, arguments)", "call, KEYS, ARGV, P = redis.call, keys, arguments, keys[1]"),
        *(*resets, "end"),
        *(f"redis.register_function{{function_name = '{_NAME}',", f"flags = {{{_quoted(parts.flags)}}},"),
        *("callback = function(keys, arguments)", "begin(keys, arguments)"),
    ]
    lines = [(text, start) for text in head] + parts.definitions + [(text, start) for text in begin]
    lines += [*parts.checks, *parts.body, ("end}", start)]
    text = "\n".join(line for line, _ in lines) + "\n"
    name = f"{PREFIX}{verb}_{hashlib.sha256(text.encode()).hexdigest()[:_HASHED]}"
    return ServerFunction(verb, name, text.replace(_NAME, name), tuple(place for _, place in lines))


def _quoted(flags: list[str]) -> str:
    return ", ".join(f"'{flag}'" for flag in flags)
