"""Searching a server's keys for logs of topics that nobody defined: a plain XADD made them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ampsq.protocol.reads.duties import scan_all_logs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ampsq.protocol.reads.duties import AllLogsScan
    from ampsq.protocol.request import Call
    from ampsq.transport.store import Store

__all__ = ["LogSearch"]

#: Keys of one step, and steps a look while the number of keys changes.
_KEYS: Final = 1_000
_STEPS: Final = 5
#: Looks from the beginning of one search to that of the next while the number of keys is the same, at least, and for
#: each step of the search: a log may have come as another key went.
_LOOKS: Final = 5
_LOOKS_A_STEP: Final = 3


class LogSearch:
    """The search, in steps: at every look while the server has other keys than before, else now and then.

    Args:
        store: on the server.
        found: called with instance and topic of each log, also of those that are known.
    """

    def __init__(self, store: Store, found: Callable[[Sequence[tuple[str, str]]], None]) -> None:
        self._store, self._found = store, found
        self._cursor = "0"
        # Keys of the server as they were counted last, and when the search began that is under way; -1: not counted.
        self._keys = self._keys_searched = -1
        # Since the search began that is under way, or was the last one.
        self._looks = self._steps = 0

    @property
    def is_done(self) -> bool:
        """Return whether the search has come to its end, for the keys that were counted last."""
        return self._cursor == "0" and self._keys == self._keys_searched >= 0

    def begin(self, looks: int = 1) -> list[Call[AllLogsScan]]:
        """Return what a look asks; empty where it leaves the keys alone. The reply is for `go_on`.

        Args:
            looks: as which it counts: those that had nothing to look at were left out.
        """
        self._looks += looks
        is_soon = self._looks < max(_LOOKS, _LOOKS_A_STEP * self._steps)
        if self._cursor == "0" and self._keys == self._keys_searched >= 0 and is_soon:
            return []
        return [self._step()]

    def go_on(self, step: AllLogsScan | None, keys: int) -> None:
        """Take in what a look was answered, and search on where there is reason to.

        Args:
            step: the reply to what `begin` gave; None: that was nothing.
            keys: how many the server has now; -1: that is not known.
        """
        has_changed, self._keys = keys < 0 or keys != self._keys, keys
        if step is None and not has_changed:
            return
        for _ in range(_STEPS if has_changed else 1):
            step = self._store.call(self._step()) if step is None else step
            self._cursor = step.next
            self._steps += 1
            self._found(step.logs)
            if self._cursor == "0":
                return
            step = None

    def _step(self) -> Call[AllLogsScan]:
        if self._cursor == "0":
            self._keys_searched, self._looks, self._steps = self._keys, 0, 0
        return scan_all_logs(self._cursor, _KEYS)
