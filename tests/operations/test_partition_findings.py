"""Findings of several partitions are told once, with the partitions that have them; the hot one is found."""

from __future__ import annotations

import pytest

from ampsq.base.partitions import partitions_of
from ampsq.operations.doctor import Finding
from ampsq.operations.doctor.partition_findings import find_skew, merge_findings, numbers_text

ALL = partitions_of("shop", 4)


def found(number, *, well=False, text="it is late", subject="queue work"):
    why = "" if well else "nobody gets them"
    return ALL[number], Finding("leases", subject, well=well, text=text, why=why, mend="" if well else "ampsq up")


def test_a_finding_of_one_partition_names_it():
    (one,) = merge_findings([found(2)], 4)

    assert one.subject == f"queue work in partition 2 ({ALL[2].instance})"
    assert (one.text, one.why, one.mend, one.partitions) == ("it is late", "nobody gets them", "ampsq up", (2,))
    assert one.as_dict()["partitions"] == [2]


def test_a_finding_of_several_partitions_is_told_once_with_their_texts():
    late = [found(number, text=f"{number} are late") for number in range(4)]
    three, other = merge_findings([*late[:3], found(3, subject="queue other")], 4)
    (all_of_them,) = merge_findings(late, 4)

    assert three.subject == "queue work in partitions 0, 1 and 2"
    assert three.text == "partition 0: 0 are late; partition 1: 1 are late; partition 2: 2 are late"
    assert other.partitions == (3,)
    assert all_of_them.subject == "queue work in all 4 partitions"
    assert all_of_them.text.endswith("2 are late; 1 more")


def test_what_is_well_is_told_once_with_how_many_partitions_say_so():
    same = merge_findings([found(number, well=True, text="none is late") for number in range(4)], 4)
    others = merge_findings([found(number, well=True, text=f"{number} leased") for number in range(3)], 4)

    assert [each.text for each in same] == ["in 4 of 4 partitions: none is late"]
    assert [each.text for each in others] == ["well in 3 of 4 partitions"]
    assert same[0].as_dict()["partitions"] == []


@pytest.mark.parametrize(
    ("figures", "hot"),
    [
        ([100, 100, 100, 5_000], 3),
        ([9_000, 9_500, 10_000, 11_000], None),
        # Three times as much, and few
        ([1, 0, 900, 2], None),
        # Many more, and not so many times as much
        ([10_000, 10_000, 10_000, 25_000], None),
        # The hot one is no part of what it is compared with
        ([2_000, 10_000], 1),
        ([50_000], None),
    ],
)
def test_a_partition_is_hot_that_has_several_times_what_the_others_have(figures, hot):
    found = find_skew(dict(enumerate(figures)))

    assert (found and found.where) == hot
    if found:
        assert found.all == sum(figures)


def test_partitions_are_named_by_their_numbers():
    assert [numbers_text(each) for each in ([], [3], [1, 2], [0, 1, 5])] == [
        "", "partition 3", "partitions 1 and 2", "partitions 0, 1 and 5"
    ]  # fmt: skip
