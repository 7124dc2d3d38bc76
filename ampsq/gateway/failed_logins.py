"""Failed logins: who guesses is slowed down, by address, and costs no memory beyond a bound."""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Failures"]

#: How many an address has at once, and the seconds after which it has one more.
_AT_ONCE: Final = 10
_EACH: Final = 6.0
#: Addresses that are remembered.
_MOST: Final = 10_000


class Failures:
    """Counts what each address may still try.

    Args:
        clock: gives seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # When all of its tries are back; whoever tried last is last.
        self._full_at: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._full_at)

    def spend(self, address: str) -> float:
        """Let an address try once; gives the seconds after which it may, 0.0 when it did."""
        name, now = _network(address), self._clock()
        full_at = max(self._full_at.get(name, now), now) + _EACH
        wait = full_at - now - _AT_ONCE * _EACH
        if wait > 0:
            return wait
        self._full_at[name] = full_at
        self._full_at.move_to_end(name)
        while len(self._full_at) > _MOST:
            self._full_at.popitem(last=False)
        return 0.0

    def give_back(self, address: str) -> None:
        """Give back an attempt that turned out to be right."""
        name = _network(address)
        if name in self._full_at:
            self._full_at[name] -= _EACH


def _network(address: str) -> str:
    """Return the addresses that one guesser has: an address, of the sixth version a whole network."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if found.version == 6:  # noqa: PLR2004
        return str(ipaddress.ip_network((int(found) >> 64 << 64, 64)))
    return address
