"""Values as commands write them for people, by the names of their elements; ``--json`` has numbers."""

from __future__ import annotations

from typing import Final

from ampsq.base.formatting import interval_text, size_text
from ampsq.base.values import Interval

__all__ = ["INTERVALS", "element_text"]

#: Elements of definitions that are intervals.
INTERVALS: Final = (
    "lease_period", "expiration", "redelivery_delay", "max_redelivery_delay", "expiry_delay", "retention_age",
    "client_message_age_limit",
)  # fmt: skip
#: Elements of definitions that are sizes.
_SIZES: Final = ("retention_size", "message_memory_limit", "message_disk_limit")


def element_text(element: str, value: object) -> str:
    """Write the value of a definition's element, given as in its JSON: ``7d``, ``64KB``, ``true``, ``none``."""
    if value is None or value == []:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if element in INTERVALS and isinstance(value, str):
        return interval_text(Interval.parse(value))
    if element in _SIZES and isinstance(value, int):
        text = size_text(value)
        # A size to a tenth is not what was defined.
        return text if value % 1024 == 0 and "." not in text else f"{value}B"
    return str(value)
