"""The facts about the server that are judged, also those of one that nobody else would work with."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import AmpsqError, NotPermitted
from ampsq.operations.functions import functions_at
from ampsq.protocol.reads.clock import exact_server_time, last_given_id
from ampsq.protocol.reads.server import cluster_configuration, configuration, information, is_too_old, kind_and_version

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ampsq.operations.functions import FunctionState

__all__ = ["ServerFacts", "read_server_facts", "rules_of"]

#: Round trips that are timed.
_PINGS: Final = 5


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """A server at one moment.

    Attributes:
        now: its clock, ms; 0: it may not be asked.
        ahead: how far that is before the clock of this machine, ms; half a round trip is taken into account.
        latency: how long a round trip took, the median of five, ms.
        clock: the time of the instance's last message, ms by the server's clock when it was recorded; 0: none, or
            nobody may ask.
        info: what ``INFO`` says; empty where nobody may ask.
        settings: of the server's, those that matter; empty where nobody may ask.
        refused: commands that this user may not use.
        rules: the command that prints the rules of a user who may.
        functions: ours at the server; empty where nobody may ask.
    """

    now: int
    ahead: float
    latency: float
    clock: int
    info: Mapping[str, str]
    settings: Mapping[str, str]
    refused: tuple[str, ...]
    rules: str
    functions: tuple[FunctionState, ...] = ()

    @property
    def kind(self) -> str:
        """``redis`` or ``valkey``; "" where nobody may ask."""
        return kind_and_version(self.info)[0] if self.info else ""

    @property
    def version(self) -> str:
        """Of the server."""
        return kind_and_version(self.info)[1]

    @property
    def mode(self) -> str:
        """``standalone``, ``cluster`` or ``sentinel``; "" where nobody may ask."""
        return _mode_of(self.info)

    @property
    def used(self) -> tuple[int, int]:
        """Bytes of its memory that are used, and that it may use; 0: no bound is set."""
        return int(self.info.get("used_memory", 0)), int(self.info.get("maxmemory", 0))

    @property
    def is_full(self) -> bool:
        """Return whether it refuses what takes memory."""
        used, most = self.used
        return 0 < most <= used

    @property
    def is_loading(self) -> bool:
        """Return whether it still reads its data."""
        return self.info.get("loading") == "1"

    @property
    def is_readable(self) -> bool:
        """Return whether its contents can be looked at."""
        is_old = bool(self.kind) and is_too_old(self.kind, self.version)
        return not (is_old or self.is_loading or self.mode == "sentinel")


def _mode_of(info: Mapping[str, str]) -> str:
    """Redis and Valkey name it differently."""
    return info.get("server_mode") or info.get("redis_mode", "")


def rules_of(instance: str) -> str:
    """The command that prints the rules of a user who may look at everything."""
    return f"ampsq acl admin --instance {instance}    # the rules of a user who may"


async def read_server_facts(instance: str) -> ServerFacts:
    """Read what can be read of a server; nothing is changed.

    Args:
        instance: its name.

    Raises:
        Unavailable: there is no answer.
    """
    refused, info, settings, clock = [], {}, {}, 0
    now, ahead, latency = 0, 0.0, 0.0
    try:
        info = await information()
    except NotPermitted:
        refused.append("INFO")
    # Read before the clock, so that what is recorded meanwhile does not count as ahead of it. The examination of the
    # instance has a finding for what goes wrong here.
    with contextlib.suppress(AmpsqError):
        clock, _ = await last_given_id(instance)
    try:
        now, ahead, latency = await _timed()
    except NotPermitted:
        refused.append("TIME")
    # Hosted servers do not let everybody ask.
    with contextlib.suppress(AmpsqError):
        settings = await configuration()
        if _mode_of(info) == "cluster":
            settings |= await cluster_configuration()
    functions: list[FunctionState] = []
    with contextlib.suppress(AmpsqError):
        functions = await functions_at()
    return ServerFacts(now, ahead, latency, clock, info, settings, tuple(refused), rules_of(instance), tuple(functions))


async def _timed() -> tuple[int, float, float]:
    """The server's clock, how far it is before ours, and what a round trip takes; all ms."""
    rounds = []
    for _ in range(_PINGS):
        began, ours = time.perf_counter(), time.time()
        now = await exact_server_time()
        took = (time.perf_counter() - began) * 1000
        rounds.append((took, now, now - (ours * 1000 + took / 2)))
    rounds.sort()
    # The shortest round trip says most about the clock.
    return int(max(now for _, now, _ in rounds)), rounds[0][2], rounds[_PINGS // 2][0]
