"""Rules that change while a gateway serves: their files are looked at, and what is wrong with new ones is only told."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import DefinitionError
from ampsq.gateway.rules import marks_of, read_rules

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ampsq.gateway.rules import GatewayRules, Marks

__all__ = ["RulesFile"]

_log = logging.getLogger("ampsq.gateway")
#: Seconds between two looks.
_LOOK: Final = 1.0


class RulesFile:
    """Follows a file of rules, and the files that it includes.

    Args:
        path: of the file.
        rules: what was read from it.
        adopt: called with the rules that it has now.
        look: seconds between two looks.
    """

    def __init__(
        self, path: Path, rules: GatewayRules, adopt: Callable[[GatewayRules], None], look: float = _LOOK
    ) -> None:
        self._path, self._adopt, self._look = path, adopt, look
        self._files = rules.files or (path,)
        # Of those that were read before; what was changed since is found at the first look.
        self._read = rules.marks
        self._asked = asyncio.Event()

    def read_now(self) -> None:
        """Read it at once, whether it looks changed or not."""
        self._asked.set()

    async def follow(self) -> None:
        """Read it again each time it has changed and stays as it is for a look, until this is cancelled."""
        former = self._read
        while True:
            try:
                async with asyncio.timeout(self._look):
                    await self._asked.wait()
            except TimeoutError:
                pass
            marks = await asyncio.to_thread(marks_of, self._files)
            # Who writes it in place may be half done: a part of a file can be a file, too.
            if self._asked.is_set() or (marks != self._read and marks == former):
                self._asked.clear()
                await self._renew(marks)
            former = marks

    async def _renew(self, marks: Marks) -> None:
        self._read = marks
        try:
            rules = await asyncio.to_thread(read_rules, self._path)
        except DefinitionError as error:
            _log.error("%s is refused, and the rules of before stay: %s", self._path, error)
            return
        self._files, self._read = rules.files, rules.marks
        self._adopt(rules)
        _log.info("%s is read again: %d users", self._path, len(rules.users))
