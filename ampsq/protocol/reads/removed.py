"""Up to where topics' logs were trimmed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampsq.base.log_positions import FIRST, parse_id
from ampsq.protocol.request import command
from ampsq.protocol.schema import key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampsq.base.log_positions import Id
    from ampsq.protocol.request import Call

__all__ = ["removed_ids"]


def removed_ids(instance: str, topics: Sequence[str]) -> Call[list[Id]]:
    """Read of each topic the greatest ID that was removed from its log; `FIRST` where nothing was."""

    def read(reply: Sequence[bytes | None]) -> list[Id]:
        return [FIRST if text is None else parse_id(text) for text in reply]

    return command(["HMGET", key(instance, "retention"), *(f"removed {topic}" for topic in topics)], read)
