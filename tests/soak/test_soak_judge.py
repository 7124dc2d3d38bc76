"""The judge of the soak, on numbers alone: what it takes for enough, for lost, for doubled and for growth."""

from __future__ import annotations

import random

import pytest
from soak_judge import LIMITS, Leg, account, growth_table, judge_capped, judge_growth, needed, table
from soak_ledger import Consumed, Published
from soak_measure import kind_of

from ampsq.protocol.schema import INSTANCES, KEYS, key

#: Settled messages at ten looks, as a run of five minutes has them.
SETTLED = [20_000 + 9_000 * number for number in range(10)]


@pytest.mark.parametrize(
    ("number", "seconds", "need"),
    [(10_000, 7_200, 10_000), (10_000, 14_400, 10_000), (10_000, 300, 417), (50, 300, 3), (2, 60, 1), (50, 7_200, 50)],
)
def test_a_shorter_run_needs_its_share_and_never_nothing(number, seconds, need):
    assert needed(number, seconds) == need


def test_a_leg_below_its_number_is_named_with_both():
    assert Leg("webhooks", 9_999, 10_000).finding == "webhooks: 9,999 went through, 10,000 are needed"
    assert Leg("webhooks", 10_000, 10_000).finding == ""


def told_and_had(*lines):
    """Ten messages of one publisher that was told of all, and what a consumer wrote down."""
    consumed = Consumed(lines)
    return account({"p": set(range(10))}, {"p": 12}, consumed, lambda _by, _number: True), consumed


ALL = [f"h p {number} 7-{number}" for number in range(10)]


def test_a_message_that_came_once_or_again_under_its_bookmark_is_neither_lost_nor_doubled():
    found, consumed = told_and_had(*ALL, "h p 3 7-3")
    assert found == []
    assert consumed.again == 1


def test_what_nobody_was_told_of_may_have_come_or_not():
    assert told_and_had(*ALL, "h p 11 7-11")[0] == []


@pytest.mark.parametrize(
    ("lines", "finding"),
    [
        (ALL[1:], "1 messages lost, as [('p', 0)]"),
        ([], "10 messages lost"),
        ([*ALL, "h p 3 8-0"], "1 messages doubled, as [('p', 3)]"),
        ([*ALL, "k p 3 7-3", "h p 3 7-3"], "1 messages delivered again behind a confirmed acknowledgement"),
        ([*ALL, "h p 12 7-12"], "1 messages that nobody published"),
        ([*ALL, "h q 0 7-12"], "1 messages that nobody published"),
    ],
    ids=["lost", "all lost", "doubled", "behind its acknowledgement", "from nowhere", "of nobody"],
)
def test_what_is_lost_doubled_or_from_nowhere_is_found(lines, finding):
    (found,) = told_and_had(*lines)[0]
    assert found.startswith(finding)


def test_a_message_that_is_not_for_the_queue_is_not_missed_there_and_found_if_it_comes():
    found = account({"p": {0, 1}}, {"p": 2}, Consumed(["h p 0 7-0"]), lambda _by, number: number == 0)
    assert found == []
    found = account({"p": {0, 1}}, {"p": 2}, Consumed(["h p 0 7-0", "h p 1 7-1"]), lambda _by, number: number == 0)
    assert len(found) == 1


def test_a_publisher_that_was_killed_goes_on_behind_all_that_it_may_have_sent(tmp_path):
    (tmp_path / "published").mkdir()
    first = Published(tmp_path, "p")
    first.is_told(first.attempt(5))
    first.attempt(5)
    second = Published(tmp_path, "p")
    assert list(second.attempt(2)) == [10, 11]
    assert second.all_told() == set(range(5))


def noise(unit):
    """Return the movement of a line that does not grow: a quarter of its slack, up and down."""
    chance = random.Random(unit)  # noqa: S311 - noise
    return [(settled, 1_000 + chance.uniform(-0.25, 0.25) * LIMITS[unit].slack) for settled in SETTLED]


@pytest.mark.parametrize("unit", LIMITS)
def test_what_only_moves_does_not_grow(unit):
    assert judge_growth("it", unit, noise(unit)).finding == ""


@pytest.mark.parametrize(("unit", "leaked"), [("keys", 1), ("memory", 1_024), ("heap", 1_024), ("bytes", 1_024),
                                              ("threads", 1), ("files", 1)])  # fmt: skip
def test_one_thing_each_1000_messages_is_growth(unit, leaked):
    points = [(settled, value + leaked * settled / 1_000) for settled, value in noise(unit)]
    growth = judge_growth("it", unit, points)
    assert "it" in growth.finding
    assert growth.per_thousand == pytest.approx(leaked, rel=0.3)


@pytest.mark.parametrize("unit", LIMITS)
def test_a_cache_that_filled_is_no_growth(unit):
    much = 20 * LIMITS[unit].slack
    points = [(settled, value + min(number, 3) * much) for number, (settled, value) in enumerate(noise(unit))]
    assert judge_growth("it", unit, points).finding == ""


def test_a_leak_that_begins_late_is_growth():
    points = [(settled, 1_000 + max(number - 3, 0) * 9 * 1_024) for number, settled in enumerate(SETTLED)]
    assert judge_growth("it", "memory", points).finding != ""


@pytest.mark.parametrize("points", [[], [(1_000, 1.0)] * 9, [(1_000 * number, 1.0) for number in range(4)]])
def test_too_few_looks_or_nothing_settled_between_them_is_no_proof(points):
    assert "looks" in judge_growth("it", "keys", points).finding


def test_every_kind_of_key_is_told_apart():
    for name, each in KEYS.items():
        parameters = [f"one{number}" for number in range(each.suffix.count("<"))]
        assert kind_of(key("soak-a", name, *parameters)) == name
    assert kind_of(INSTANCES) == "instances"
    assert kind_of("{soak-a}:other") == "unknown"


def test_the_table_of_growth_has_what_moved_and_names_all_else():
    still = [(settled, 7) for settled in SETTLED]
    lines = [judge_growth("key a", "keys", still), judge_growth("key a", "bytes", noise("bytes"))]
    lines += [judge_growth("key b", unit, still) for unit in ("keys", "bytes")]
    shown = growth_table(lines)
    assert "| key a | bytes |" in shown
    assert shown.endswith("0.00 for 1,000 settled messages: key a (keys), key b.")


@pytest.mark.parametrize(("elements", "is_found"), [(1_000, False), (1_250, False), (1_400, True)])
def test_what_its_own_length_cuts_may_grow_up_to_that(elements, is_found):
    points = [(settled, settled / 100) for settled in SETTLED]
    growth = judge_capped("key requests", "bytes", points, elements, 1_000)
    assert bool(growth.finding) is is_found


def test_a_table_is_one_of_markdown():
    assert table(["leg", "times"], [("a", 10_000)]) == "| leg | times  |\n|-----|--------|\n| a   | 10,000 |"


def test_memory_that_grows_a_little_is_growth_in_a_long_run_alone():
    # Given 200 bytes for 1,000 messages
    points = [(settled, 1_000 + settled / 5) for settled in SETTLED]
    longer = [(10 * settled, 1_000 + 2 * settled) for settled in SETTLED]
    # When each is judged
    # Then in five minutes code that ran for the first time explains it, and in an hour nothing does
    assert judge_growth("it", "memory", points).finding == ""
    assert judge_growth("it", "memory", longer).finding != ""
