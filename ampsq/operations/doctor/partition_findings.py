"""Findings of several partitions, told once with the partitions that have them; and which partition has most."""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ampsq.base.partitions import Partition
    from ampsq.operations.doctor.instance_facts import Finding

__all__ = ["MORE", "TIMES", "Share", "find_skew", "merge_findings", "numbers_text"]

#: How many times as much as the median of the others makes a partition a hot one; and by how much it is more, so that
#: chance alone makes none.
TIMES: Final = 3.0
MORE: Final = 1_000
#: Texts of a finding that several partitions have, each with its own.
_TEXTS: Final = 3

T = TypeVar("T", int, str)


class Share(NamedTuple, Generic[T]):
    """The largest figure beside the others.

    Attributes:
        where: what it is of: the number of a partition, or the address of a server.
        number: the figure.
        others: the median of the others.
        all: the sum of all.
    """

    where: T
    number: int
    others: float
    all: int


def find_skew(figures: Mapping[T, int]) -> Share[T] | None:
    """Return the one that has most, where that is three times the median of the others, and so much more; else None.

    Args:
        figures: of each partition, or of each server.
    """
    if len(figures) < 2:  # noqa: PLR2004  (one is not more than others)
        return None
    hot, number = max(figures.items(), key=lambda each: each[1])
    others = median(value for each, value in figures.items() if each != hot)
    if number < others * TIMES or number - others < MORE:
        return None
    return Share(hot, number, others, sum(figures.values()))


def numbers_text(numbers: Sequence[int]) -> str:
    """Name partitions by their numbers; "" for none."""
    texts = list(map(str, numbers))
    if len(texts) < 2:  # noqa: PLR2004  (one, or none)
        return f"partition {texts[0]}" if texts else ""
    return f"partitions {', '.join(texts[:-1])} and {texts[-1]}"


def merge_findings(found: Iterable[tuple[Partition, Finding]], total: int) -> list[Finding]:
    """Put together what was found in partitions: one finding of each kind, which names the partitions that have it.

    Args:
        found: findings, each with its partition.
        total: how many partitions there are.
    """
    wrong: dict[tuple[str, str, str], list[tuple[Partition, Finding]]] = {}
    well: dict[tuple[str, str], list[Finding]] = {}
    for partition, finding in found:
        if finding.well:
            well.setdefault((finding.check, finding.subject), []).append(finding)
        else:
            wrong.setdefault((finding.check, finding.subject, finding.why), []).append((partition, finding))
    return [*(_merged_wrong(same, total) for same in wrong.values()), *_merged_well(well, total)]


def _merged_wrong(same: Sequence[tuple[Partition, Finding]], total: int) -> Finding:
    partitions, first = [partition for partition, _ in same], same[0][1]
    numbers = [partition.number for partition in partitions]
    if len(numbers) == total > 1:
        where = f"all {total} partitions"
    else:
        where = f"partition {numbers[0]} ({partitions[0].instance})" if len(numbers) == 1 else numbers_text(numbers)
    text = first.text
    if len({finding.text for _, finding in same}) > 1:
        told = [f"partition {partition.number}: {finding.text}" for partition, finding in same[:_TEXTS]]
        more = [f"{len(same) - _TEXTS} more"] if len(same) > _TEXTS else []
        text = "; ".join((*told, *more))
    return replace(first, subject=f"{first.subject} in {where}", text=text, partitions=tuple(numbers))


def _merged_well(well: Mapping[tuple[str, str], Sequence[Finding]], total: int) -> Iterator[Finding]:
    for same in well.values():
        texts = {finding.text for finding in same}
        of = f"in {len(same)} of {total} partitions"
        yield replace(same[0], text=f"{of}: {texts.pop()}" if len(texts) == 1 else f"well {of}")
