"""Probe of the server behind a gateway."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import AmpsqError

if TYPE_CHECKING:
    from ampsq.gateway.client import GatewayClient

__all__ = ["Probe"]

#: Seconds that the server has to answer, and for which its answer holds: probes come from anybody.
_WITHIN: Final = 3.0
_HOLDS: Final = 1.0


class Probe:
    """Asks the server whether it answers, once for all who want to know in the same second."""

    def __init__(self, client: GatewayClient) -> None:
        self._client, self._lock = client, asyncio.Lock()
        self._fault, self._until = "", float("-inf")

    async def fault(self) -> str:
        """Return why nobody can be served now; "" if somebody can."""
        async with self._lock:
            if time.monotonic() >= self._until:
                self._fault = await self._ask()
                self._until = time.monotonic() + _HOLDS
            return self._fault

    async def _ask(self) -> str:
        try:
            async with asyncio.timeout(_WITHIN):
                await self._client.ping()
        except (AmpsqError, TimeoutError):
            # Which server, and why, is for the log.
            return "the server behind this gateway does not answer"
        return ""
