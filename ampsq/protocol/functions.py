"""The hot scripts as server functions: the same text, whose closures are made once, when it is loaded.

They are one library, so that what several of them need is there once: the server's collector of garbage looks through
all that is loaded, again and again. A library keeps its variables from call to call, also after an error in the middle
of one. So whatever an include keeps is made anew at the beginning of each call that reaches it, and a call knows
nothing of the ones before it, as a script does.

Names end in a hash of the text: those of two releases stand side by side. A name protects nothing, though, since
whoever may load functions may put another text under it; so a client calls a function only on a connection on which it
has read that the server's text is its own (`ampsq.transport.known_functions`).
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import DefinitionError
from ampsq.protocol import scripts

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "HOT",
    "LIBRARY_HASH",
    "PREFIX",
    "SWITCH",
    "ServerLibrary",
    "are_used",
    "function_name",
    "has_library_text",
    "library",
    "library_name",
]

#: The verbs of messages that are published, delivered and settled. Others are called too seldom to gain anything.
HOT: Final = ("publish", "settle", "sweep", "take")
#: What the names of all our functions and libraries begin with, of whatever release.
PREFIX: Final = "ampsq_"
#: The variable of the environment by which a process uses no functions, and its coordinators load none: ``off``.
SWITCH: Final = "AMPSQ_FUNCTIONS"
_SWITCHED: Final = {"off": False, "on": True}
#: Letters of the hash that names have: 80 bits.
_HASHED: Final = 20
#: SHA-256 of the text below before the names have a part of it. Written by lua/library_hash.py; a test compares it.
LIBRARY_HASH: Final = "40707bdba38aeac73a09bfbac2ab2e8fa1ee87a79f215b59a37762e75d343079"
#: Stands for the hash while the text is made; no Lua file has it.
_HASH: Final = "\x00"
#: While a library is loaded there is no `redis.call`, so each call binds it. KEYS and ARGV are a function's parameters.
#: nested: what nests keep may have been used by the call before.
_HEAD: Final = ("local call, P, KEYS, ARGV, nested, only_reads", "local libs, nests = {}, {}")
_BEGIN: Final = ("call, KEYS, ARGV, P = redis.call, keys, arguments, keys[1]", "if nested then forget_nested() end")


@dataclass(frozen=True, slots=True)
class ServerLibrary:
    """The hot scripts as a library of functions.

    Attributes:
        name: of the library.
        hash: SHA-256 of its text without the names' part of it; `LIBRARY_HASH` has it.
        functions: the name of each function, by the verb of its script.
        source: what is loaded.
        where: for each line of the source, the file and line that it came from.
    """

    name: str
    hash: str
    functions: Mapping[str, str]
    source: str
    where: tuple[str, ...] = field(repr=False)

    def place(self, line: int) -> str:
        """Tell which file and line stand behind a line of the source."""
        return self.where[line - 1] if 0 < line <= len(self.where) else self.name


def are_used() -> bool:
    """Return whether this process uses functions: not with AMPSQ_FUNCTIONS=off.

    Raises:
        DefinitionError: the variable says something else than ``on`` or ``off``.
    """
    text = os.environ.get(SWITCH, "")
    if text and text not in _SWITCHED:
        raise DefinitionError(f"{SWITCH}={text!r}; allowed: on and off")
    return _SWITCHED.get(text, True)


def library_name() -> str:
    """Return the name of this release's library, which is not composed for it."""
    return f"{PREFIX}{LIBRARY_HASH[:_HASHED]}"


def function_name(verb: str) -> str:
    """Return the name of the function of a hot script, which is not composed for it."""
    return _name(verb).replace(_HASH, LIBRARY_HASH[:_HASHED])


def has_library_text(text: bytes) -> bool:
    """Say whether a text is that of this release's library, by its hash: to compose it takes 0.2 s."""
    # As the hash was made: with the placeholder where the names have a part of it.
    plain = text.replace(LIBRARY_HASH[:_HASHED].encode(), _HASH.encode())
    return _HASH.encode() not in text and hashlib.sha256(plain).hexdigest() == LIBRARY_HASH


@cache
def library() -> ServerLibrary:
    """Return the hot scripts as functions; composed once a process."""
    parts = scripts.compose_library(HOT)
    lines = [(text, "lua") for text in (f"#!lua name={PREFIX}{_HASH}", *_HEAD)] + parts.includes
    lines += [(text, "lua") for text in ("local function forget_nested()", "nested = nil", *parts.forgetting, "end")]
    for verb, script in parts.scripts.items():
        start = f"lua/{verb}"
        flags = ", ".join(f"'{flag}'" for flag in script.flags)
        begin = [
            f"redis.register_function{{function_name = '{_name(verb)}', flags = {{{flags}}},",
            *("callback = function(keys, arguments)", *_BEGIN, *script.forgetting),
        ]
        lines += [("do", start), *script.names, *((text, start) for text in begin)]
        lines += [*script.body, ("end}", start), ("end", start)]
    text = "\n".join(line for line, _ in lines) + "\n"
    digest = hashlib.sha256(text.encode()).hexdigest()
    hashed = digest[:_HASHED]
    names = {verb: _name(verb).replace(_HASH, hashed) for verb in HOT}
    where = tuple(place for _, place in lines)
    return ServerLibrary(f"{PREFIX}{hashed}", digest, MappingProxyType(names), text.replace(_HASH, hashed), where)


def _name(verb: str) -> str:
    return f"{PREFIX}{verb}_{_HASH}"
