"""What a script looks for before it writes anything: the rights that not every role has.

A server judges each command of a script when it comes to it, and takes nothing back. So a script that one role may run
and another may not would stop halfway for the other. Therefore each script begins by asking the server for what of it
somebody may lack, and where that is refused it does just this: the server's own error ends it, with all keys as they
were. What every role may is not asked for, so that publishing and taking stay as fast as they are.

Whoever records in a log asks for that log beside, before it writes (lua/log/lib/log_rights.lua): a publisher may be
bound to some topics.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["GUARDED_COMMANDS", "GUARDED_KEYS", "rights_asked"]

#: Commands of scripts that some role lacks -> what follows the key where they are asked for; a test compares roles.
GUARDED_COMMANDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "HRANDFIELD": "", "HVALS": "", "LINDEX": ", 0", "LLEN": "", "LPOP": "", "LPOS": ", ''", "LPUSH": ", ''",
        "PERSIST": "", "PEXPIRE": ", 1", "SCARD": "", "SREM": ", ''", "XDEL": ", '0-1'", "XSETID": ", '0-1'",
        "XTRIM": ", 'MAXLEN', 0", "ZRANK": ", ''", "ZREMRANGEBYSCORE": ", 0, 0", "ZREVRANGE": ", 0, 0",
        "ZSCAN": ", 0",
    }
)  # fmt: skip
#: Keys without parameters that some role may only read: what follows the tag. A test compares roles, too.
GUARDED_KEYS: Final = frozenset({":lasting", ":limits", ":links"})
#: How keys are written -> what follows the key where that is asked for.
_WRITES: Final = MappingProxyType({"HDEL": ", ''", "HSET": ", '', ''", "HSETNX": ", '', ''", "SET": ", ''"})
_COMMAND: Final = re.compile(r"'([A-Z]+)'")
_WRITTEN: Final = re.compile(rf"call\('({'|'.join(_WRITES)})', \(P \.\. '(:[a-z]+)'\)")


def rights_asked(source: str) -> Iterator[str]:
    """Lines of Lua that ask for what a script has in it and some role lacks.

    Args:
        source: all of the script, its keys spelled out.
    """
    used = set(_COMMAND.findall(source))
    for command, rest in GUARDED_COMMANDS.items():
        if command in used:
            yield _asked(command, "P", rest)
    # One way of writing a key stands for all.
    written = {suffix: command for command, suffix in _WRITTEN.findall(source) if suffix in GUARDED_KEYS}
    for suffix, command in sorted(written.items()):
        yield _asked(command, f"P .. '{suffix}'", _WRITES[command])


def _asked(command: str, key: str, rest: str) -> str:
    arguments = f"'{command}', {key}{rest}"
    # The refused command itself: the error, and the server's log of refusals, are those of any other one.
    return f"if not redis.acl_check_cmd({arguments}) then call({arguments}) end"
