"""Server functions that one connection may call: those whose text was read on it and is this release's own.

SHA1 protects what EVALSHA runs; the name of a function protects nothing. Who may load functions could put a text of his
own under a name of ours, and it would run with the rights of whoever calls it. So a connection reads the text once,
before its tenth call of a verb, and calls a function only where that is the text that EVALSHA would run.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

from ampsq.protocol.functions import HOT, are_used, function
from ampsq.protocol.reads.functions import read_function, text_of

if TYPE_CHECKING:
    from ampsq.protocol.request import Call
    from ampsq.transport.route import ServerAddress

__all__ = ["KnownFunctions", "known_functions"]

_log = logging.getLogger("ampsq")
#: What a server answers that does not have a function, and one whose user may call none.
_UNKNOWN: Final = "Function not found"
_FORBIDDEN: Final = "'fcall' command"
#: Calls of a verb on a connection before its function is looked for: to read its 150 kB costs what a few calls gain.
_FEW: Final = 9
#: Seconds until a function that was not there, or was no longer, is looked for again.
_AGAIN: Final = 60.0


class KnownFunctions:
    """Functions that a connection knows at its server; used only by the holder of the connection.

    Args:
        server: named in the log.

    Attributes:
        names: the functions that may be called, by their verbs.
    """

    def __init__(self, server: ServerAddress) -> None:
        self.names: dict[str, str] = {}
        self._server = server
        self._calls: Counter[str] = Counter()
        #: When a verb's function is looked for, by the monotonic clock.
        self._look_at = dict.fromkeys(HOT, 0.0)

    def is_due(self, verb: str) -> bool:
        """Count a call of a script, and return whether to ask for the text of its function before it: not for a few.

        The caller that gets True asks the server. All others get False for a while, so that no other one asks.
        """
        at = self._look_at.get(verb)
        if at is None:
            return False
        self._calls[verb] += 1
        if self._calls[verb] <= _FEW or time.monotonic() < at:
            return False
        self._look_at[verb] = time.monotonic() + _AGAIN
        return True

    @staticmethod
    def question(verb: str) -> Call[object]:
        """Ask for the text of a verb's function."""
        return read_function(function(verb).name)

    def learn(self, verb: str, reply: object) -> None:
        """Take in the answer as it came, or the error that was raised in its stead."""
        expected = function(verb)
        if isinstance(reply, Exception):
            # There are no functions here, or this user may not read them: that stays so.
            self._look_at.pop(verb, None)
            return
        text = text_of(reply)
        if text == expected.source.encode():
            self.names[verb] = expected.name
            return
        self._look_at[verb] = time.monotonic() + _AGAIN
        if text is not None:
            _log.warning(
                "%s: the function %s has another text than this release's and is not called: somebody replaced it; "
                "see who may load functions there (ACL LIST), and run `ampsq functions load`",
                *(self._server, expected.name),
            )

    def is_missing(self, answer: str) -> bool:
        """Return whether an error says that a function did nothing, for it is not there, or this user may call none.

        Then none is called until they are looked for again.
        """
        if _UNKNOWN not in answer and _FORBIDDEN not in answer:
            return False
        for verb in self.names:
            self._look_at[verb] = time.monotonic() + _AGAIN
        self.names.clear()
        return True


def known_functions(server: ServerAddress) -> KnownFunctions | None:
    """Return what a new connection knows: nothing yet; None: this process uses no functions."""
    return KnownFunctions(server) if are_used() else None
