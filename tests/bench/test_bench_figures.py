"""Figures of two runs of the benchmark: which are better, and which have fallen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ampsq.bench.compare import judged, table
from ampsq.bench.verdicts import Better, direction, flattened, own_figure, quotient, verdict

#: What `ampsq bench --quick --json` printed, all parts in one object.
RECORDED = json.loads((Path(__file__).parents[2] / "tests" / "data" / "bench.json").read_text())


def test_figures_are_all_numbers_by_their_names():
    given = {"publish.ratio": 2, "publish": {"ratio": 2, "ratios": [1, 3.5]}, "server": {"kind": "x"}, "right": True}

    assert flattened(given) == {"publish.ratio": 2, "publish.ratios.0": 1, "publish.ratios.1": 3.5}


def test_every_figure_that_the_benchmark_printed_has_a_direction():
    figures = flattened(RECORDED)

    assert len(figures) > 180
    assert [name for name in figures if direction(name) is None] == []


@pytest.mark.parametrize(
    ("name", "better"),
    [
        ("publish.ratio", Better.MORE),
        ("publish.cpu_ratio", Better.MORE),
        ("publish.ratios.2", Better.NOT_COMPARED),
        ("publish.per_second", Better.MORE),
        ("publish.raw_per_second", Better.NOT_COMPARED),
        ("consume.backlog_500.ratio", Better.MORE),
        ("latency.p50_ratio", Better.LESS),
        ("latency.p99_us", Better.LESS),
        ("latency.p99_raw_us", Better.NOT_COMPARED),
        ("memory.bytes_per_leased", Better.LESS),
        ("growth.idle_subscriptions_1000.take_and_ack_us", Better.LESS),
        ("server_cpu_us_per_message", Better.LESS),
        ("kinds.rates.filtered.publish_ratio", Better.MORE),
        ("kinds.rates.depth.plain_server_us", Better.LESS),
        ("kinds.memory.two_filters_that_match", Better.LESS),
        ("kinds.ahead.1000", Better.LESS),
        ("kinds.filters.30", Better.LESS),
        ("publishing.file, fsync; memory.single_ratio", Better.MORE),
        ("replay.rates.server_us", Better.LESS),
        ("replay.latency.file.p99_ratio", Better.LESS),
        ("expiry.queue.messages", Better.NOT_COMPARED),
        ("expiry.queue.calls_over_10_ms", Better.LESS),
        ("redrive.letters", Better.NOT_COMPARED),
        ("redrive.p999_call_ms", Better.LESS),
        ("rebuild.messages", Better.NOT_COMPARED),
        ("rebuild.rebuild.seconds", Better.LESS),
        ("gateway.publish_directly_per_second", Better.MORE),
        ("gateway.latency.p50_us", Better.LESS),
        ("replication.rates.ratio_beside_link", Better.MORE),
        ("replication.rates.source_us_of_the_link", Better.LESS),
        ("replication.recovery.outage_s", Better.NOT_COMPARED),
        ("replication.recovery.caught_up_after_s", Better.LESS),
        ("replication.takeover.held", Better.NOT_COMPARED),
        ("replication.takeover.first_ms", Better.LESS),
        ("groups.costs.100.fair.publish_us", Better.LESS),
        ("groups.costs.100.fair.priority_ratio", Better.MORE),
        ("groups.costs.100.fair.messages_per_call", Better.MORE),
        ("groups.memory.1.bytes_per_placed", Better.LESS),
        ("groups.memory.1.longest_call_ms", Better.LESS),
        ("groups.memory.1.longest_work_ms", Better.LESS),
        ("groups.takers.sixteen_us", Better.LESS),
        ("something.new", None),
    ],
)
def test_directions(name, better):
    assert direction(name) == better


@pytest.mark.parametrize(
    ("new", "old", "better", "ratio"),
    [
        (90, 100, Better.MORE, 0.9),
        (90, 100, Better.LESS, 100 / 90),
        (0, 0, Better.LESS, 1),
        (2, 0, Better.LESS, 0.001),
        (0, 2, Better.LESS, 1000),
        (0, 2, Better.MORE, 0.001),
        (2, 0, Better.MORE, 1000),
    ],
)
def test_a_ratio_is_less_than_one_where_the_new_figure_is_worse(new, old, better, ratio):
    assert quotient(new, old, better) == pytest.approx(ratio)


# --- verdicts


def test_a_figure_has_fallen_that_is_worse_than_parent_against_parent_shows():
    found = verdict("publish.per_second", Better.MORE, [100, 101, 99], [90, 91, 89], [101, 99, 100])

    assert found.fallen
    assert found.word == "FALLEN"
    assert found.ratio == pytest.approx(0.9)
    assert found.lowest == pytest.approx(99 / 101)


def test_a_figure_has_not_fallen_above_ninety_five_hundredths_however_steady_it_is():
    found = verdict("publish.per_second", Better.MORE, [100, 100, 100], [96, 96, 96], [100, 100, 100])

    assert (found.fallen, found.word) == (False, "")
    assert not verdict("x_us", Better.LESS, [100], [105.2], [100]).fallen
    assert verdict("x_us", Better.LESS, [100], [105.3], [100]).fallen


@pytest.mark.parametrize("again", [[100, 100, 88], [100, 100, 113]])
def test_a_figure_is_noisy_where_the_parent_beside_itself_is_as_low_whichever_run_is_called_the_second(again):
    found = verdict("publish.per_second", Better.MORE, [100, 100, 100], [90, 90, 90], again)

    assert (found.fallen, found.word) == (False, "noisy")


def test_a_median_of_parent_against_parent_counts_also_where_no_round_is_as_low():
    # Given rounds that are alike, from different levels, so that medians come from different rounds
    old, again = [50, 100, 120], [55, 90, 125]

    found = verdict("publish.per_second", Better.MORE, old, [45, 91, 115], again)

    assert found.parent_ratio == 0.9
    assert (found.ratio, found.fallen) == (0.91, False)


def test_less_is_better_for_times_and_a_gain_is_said():
    found = verdict("latency.p50_us", Better.LESS, [100, 100], [50, 50], [100, 101])

    assert (found.ratio, found.word) == (2, "better")


def of_a_filter(ratio, own, plain):
    """Return the figures of one run: a queue with a filter beside a plain one."""
    rates = {"per_second": own, "plain_per_second": plain} if own else {}
    return flattened({"kinds": {"rates": {"filtered": {"consume_ratio": ratio, **rates}}}})


@pytest.mark.parametrize(
    ("now", "word"),
    [
        # The plain queue became faster, and so did the other, less.
        (of_a_filter(0.4, 110, 275), "divisor"),
        # The same, and the other is hardly slower.
        (of_a_filter(0.48, 96, 200), "divisor"),
        # Both are what they are: the other became slower.
        (of_a_filter(0.4, 80, 200), "FALLEN"),
        (of_a_filter(0.8, 80, 100), "FALLEN"),
    ],
)
def test_a_ratio_whose_divisor_became_better_has_not_fallen_unless_what_is_divided_did(now, word):
    before = of_a_filter(1.0, 100, 100)

    verdicts, _ = judged({"old": [before], "new": [now], "again": [before]})

    words = {each.name.rpartition(".")[2]: each.word for each in verdicts}
    assert words["consume_ratio"] == word
    assert (words["per_second"] == "FALLEN") is (word == "FALLEN")


def test_a_ratio_beside_which_nothing_else_was_printed_is_judged_by_itself():
    before = of_a_filter(1.0, 0, 0)

    verdicts, _ = judged({"old": [before], "new": [of_a_filter(0.8, 80, 100)], "again": [before]})

    assert [(each.word, each.own_ratio) for each in verdicts] == [("FALLEN", None)]


def test_a_ratio_to_raw_streams_is_judged_by_itself():
    assert own_figure("publish.ratio") is None
    assert own_figure("policies.filter.cpu_ratio") is None


def test_what_is_divided_is_a_figure_that_the_benchmark_prints():
    figures = flattened(RECORDED)
    divided = {name: own for name in figures if (own := own_figure(name))}

    assert len(divided) > 15
    assert [own for own in divided.values() if own not in figures] == []


def test_figures_that_cannot_be_compared_are_named():
    old = {"publish.per_second": 1, "gone_us": 1, "x.raw_per_second": 1, "odd": 1}
    new = {"publish.per_second": 1, "come_us": 1, "x.raw_per_second": 1, "odd": 1}
    values = {
        "old": [old | {"sometimes_us": 1}, old],
        "new": [new | {"sometimes_us": 1}, new],
        "again": [old, old],
    }

    verdicts, others = judged(values)

    assert [each.name for each in verdicts] == ["publish.per_second"]
    assert others == {
        "only the old one has": ["gone_us"],
        "only the new one has": ["come_us"],
        "not in every run": ["sometimes_us"],
        "not compared": ["x.raw_per_second"],
        "which way is better is not known": ["odd"],
    }


def test_the_table_of_all_figures_fits_a_hundred_columns():
    figures = flattened(RECORDED)
    worse = {name: value * 200 for name, value in figures.items()}
    verdicts, _ = judged({"old": [figures], "new": [worse], "again": [figures]})

    lines = list(table(verdicts))

    assert max(map(len, lines)) <= 100
    assert (lines.count("publish"), lines.count("latency")) == (1, 1)
    assert any(line.startswith("publishing.file, fsync; memory") for line in lines)
    assert any(line.split()[-1] == "FALLEN" for line in lines)
