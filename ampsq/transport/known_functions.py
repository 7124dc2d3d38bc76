"""Server functions that one connection may call: those whose text was read on it and is this release's own.

SHA1 protects what EVALSHA runs; the name of a function protects nothing. Who may load functions could put a text of his
own under a name of ours, and it would run with the rights of whoever calls it. So a connection reads the text once,
before its tenth call of a hot script, and calls functions only where that is the text that EVALSHA would run.
"""

from __future__ import annotations

import logging
import math
import time
from typing import TYPE_CHECKING, Final

from ampsq.protocol.functions import HOT, are_used, function_name, has_library_text, library_name
from ampsq.protocol.reads.functions import read_library, text_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ampsq.protocol.request import Call
    from ampsq.transport.route import ServerAddress

__all__ = ["KnownFunctions", "known_functions"]

_log = logging.getLogger("ampsq")
#: What a server answers that does not have a function, and one whose user may call none.
_UNKNOWN: Final = "Function not found"
_FORBIDDEN: Final = "'fcall' command"
#: Calls of hot scripts on a connection before the functions are looked for: to read their 300 kB costs what a few gain.
_FEW: Final = 9
#: Seconds until functions that were not there, or were no longer, are looked for again.
_AGAIN: Final = 60.0
#: The functions by their verbs.
_NAMES: Final = {verb: function_name(verb) for verb in HOT}


class KnownFunctions:
    """Functions that a connection knows at its server; used only by the holder of the connection.

    Args:
        server: named in the log.

    Attributes:
        names: the functions that may be called, by their verbs.
    """

    def __init__(self, server: ServerAddress) -> None:
        self.names: Mapping[str, str] = {}
        self._server = server
        self._calls = 0
        #: When they are looked for, by the monotonic clock; not any more where there are none.
        self._look_at = 0.0

    def is_due(self, verb: str) -> bool:
        """Count a call of a script, and return whether to ask for the text of the functions before it: not for a few.

        The caller that gets True asks the server. All others get False for a while, so that no other one asks.
        """
        if verb not in HOT:
            return False
        self._calls += 1
        if self._calls <= _FEW or time.monotonic() < self._look_at:
            return False
        self._look_at = time.monotonic() + _AGAIN
        return True

    @staticmethod
    def question() -> Call[object]:
        """Ask for the text of the functions."""
        return read_library(library_name())

    def learn(self, reply: object) -> None:
        """Take in the answer as it came, or the error that was raised in its stead."""
        if isinstance(reply, Exception):
            # There are no functions here, or this user may not read them: that stays so.
            self._look_at = math.inf
            return
        text = text_of(reply)
        if text is not None and has_library_text(text):
            self.names = _NAMES
            return
        self._look_at = time.monotonic() + _AGAIN
        if text is not None:
            _log.warning(
                "%s: the functions %s have another text than this release's and are not called: somebody replaced it; "
                "see who may load functions there (ACL LIST), and run `ampsq functions load`",
                *(self._server, library_name()),
            )

    def is_missing(self, answer: str) -> bool:
        """Return whether an error says that a function did nothing, for it is not there, or this user may call none.

        Then none is called until they are looked for again.
        """
        if _UNKNOWN not in answer and _FORBIDDEN not in answer:
            return False
        self._look_at = time.monotonic() + _AGAIN
        self.names = {}
        return True


def known_functions(server: ServerAddress) -> KnownFunctions | None:
    """Return what a new connection knows: nothing yet; None: this process uses no functions."""
    return KnownFunctions(server) if are_used() else None
