"""A step of an upgrade: what turns an instance of one format into the next, in bounded parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from ampsq.protocol.request import Call

__all__ = ["UpgradePart", "UpgradeStep"]


@dataclass(frozen=True, slots=True)
class UpgradePart:
    """One kind of thing that a step goes through, in the order of names.

    Attributes:
        script: of `lua/upgrade`; each call does some of them and moves the cursor, or finds that another one did.
        names: reads which there are, of an instance by its name; nobody can add any meanwhile.
        limit: how many of them one call takes, so that it stays within some milliseconds.
    """

    script: str
    names: Callable[[str], Call[list[str]]]
    limit: int


@dataclass(frozen=True, slots=True)
class UpgradeStep:
    """The upgrade of one format to the next.

    Attributes:
        found: the format that it begins with.
        made: the one that it ends with.
        parts: in the order in which they are done.
    """

    found: int
    made: int
    parts: tuple[UpgradePart, ...]

    @property
    def name(self) -> str:
        """Both formats, ``4>5``: while the step lasts, it stands where the format does."""
        return f"{self.found}>{self.made}"
