"""From format 4, as commit 285c5f6 wrote it, to format 5; docs/decisions/0021 says what differs."""

from __future__ import annotations

from typing import Final

from ampsq.operations.upgrade.step import UpgradePart, UpgradeStep
from ampsq.protocol.calls.upgrade import queue_names

__all__ = ["STEP"]

STEP: Final = UpgradeStep(4, 5, (UpgradePart("upgrade_queues", queue_names, 100),))
