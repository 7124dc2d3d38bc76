"""Rights of each role that are used: what clients in a role sent while tests ran under roles.

With `AMPSQ_RIGHTS=FOLDER` the plugin `under_roles` notes every script and command that was sent in a role, each process
in a file of its own. ``python tests/rights.py FOLDER`` then names the rights of each role that nothing used, and what
was used beyond them, which ends it with 1. What nothing used is a hint and no fault: what tests send themselves, past
all clients, counts for nothing, nor do the tests that do not run under roles. What scripts run inside is no right of
its own: it follows from the scripts.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import redis.asyncio.connection
import redis.connection

from ampsq.operations.roles import ROLES
from ampsq.protocol.functions import HOT, library
from ampsq.protocol.scripts import names, script

_WORDS = re.compile(rb"\*\d+\r\n\$\d+\r\n([A-Za-z]+)\r\n(?:\$\d+\r\n([^\r\n]*)\r\n)?")
_SCRIPTS = {script(name).sha: name for name in names()} | {library().functions[verb]: verb for verb in HOT}
_PARTS = frozenset(name.partition("|")[0] for role in ROLES.values() for name in role.sent if "|" in name)

#: What is asked for without a right to, and done without.
_DONE_WITHOUT = frozenset({"CLIENT", "CLIENT|SETINFO", "CONFIG", "CONFIG|GET", "AUTH", "HELLO"})

#: Role -> the scripts (in small letters) and commands that were sent in it.
USED: dict[str, set[str]] = {}


def _sent(request):
    """The script or command of a request, as roles name it."""
    first = request if isinstance(request, bytes) else b"".join(request)[:4096]
    found = _WORDS.match(first)
    if found is None:
        return None
    word, second = found[1].decode().upper(), (found[2] or b"").decode("utf-8", "replace")
    if word in {"EVALSHA", "FCALL"}:
        return _SCRIPTS.get(second)
    return f"{word}|{second.upper()}" if word in _PARTS else word


def note(connection, request):
    """Count a request for the role of who has the connection."""
    role = getattr(connection, "counts_for", (getattr(connection, "username", None) or "").partition("@")[0])
    what = _sent(request) if role else None
    if what is None:
        return
    roles = role.replace("+", "_").split("_")
    if roles[0] not in ROLES:
        return
    # One who has two roles needs the second for what the first has not.
    having = next((each for each in roles if what in given(each)), roles[0])
    USED.setdefault(having, set()).update({what, "EVALSHA"} if what.islower() else {what})


def given(role):
    """All scripts that a role may run, and the commands that it sends beside them."""
    return ROLES[role].scripts | ROLES[role].sent


def noting():
    """Let connections note what is sent on them."""
    for kind in (redis.connection.AbstractConnection, redis.asyncio.connection.AbstractConnection):
        _noted(kind)


def _noted(kind):
    plainly = kind.send_packed_command

    def send(self, command, *arguments, **options):
        note(self, command)
        return plainly(self, command, *arguments, **options)

    kind.send_packed_command = send


def write(folder):
    """Keep what was noted in this process."""
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    (path / f"{os.getpid()}.json").write_text(json.dumps({role: sorted(used) for role, used in USED.items()}))


def compared(folder):
    """Role -> its rights that nothing used, and what it used beyond them."""
    used = {role: set() for role in ROLES}
    for path in Path(folder).glob("*.json"):
        for role, names_ in json.loads(path.read_text()).items():
            used[role] |= set(names_)
    return {
        role: (sorted(given(role) - used[role]), sorted(used[role] - given(role) - _DONE_WITHOUT)) for role in ROLES
    }


if __name__ == "__main__":
    found = compared(sys.argv[1])
    for role, (unused, beyond) in found.items():
        sys.stdout.write(
            f"{role:<12} unused: {' '.join(unused) or 'nothing'}; not its own: {' '.join(beyond) or 'nothing'}\n"
        )
    sys.exit(any(beyond for _, beyond in found.values()))
