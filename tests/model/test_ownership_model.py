"""Ownership of a message, over all histories of two and three instances; and the purpose of each guard.

`pytest -s` prints a line a scenario. AMPSQ_WORLDS=3000000 searches the large ones too, up to that many worlds each.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ownership_model import Protocol
from ownership_scenarios import LARGE, SMALL
from ownership_search import TooManyStates, search
from ownership_steps import Steps
from ownership_variants import VARIANTS

pytestmark = pytest.mark.slow

_WORLDS = int(os.environ.get("AMPSQ_WORLDS", "0"))
_SCENARIOS = SMALL | (LARGE if _WORLDS else {})


@pytest.mark.timeout(3600 if _WORLDS else 600)
@pytest.mark.parametrize("name", _SCENARIOS)
def test_every_rule_holds_in_every_history(name):
    found = search(Steps(Protocol(_SCENARIOS[name])), _WORLDS or 100_000)
    print(f"| {name} | {found.states:,} | {found.transitions:,} | {found.quiet:,} | {found.seconds:.1f} |")  # noqa: T201
    assert not found.broken, str(found)
    # Where nothing ever comes to rest, half of the rules would never be asked.
    assert found.quiet > 0


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.without.__name__)
def test_without_a_guard_a_rule_is_broken_after_so_many_steps(variant):
    found = search(variant.begin())
    print(f"| {variant.guard} | {variant.scenario} | {found.broken} | {len(found.trace)} |")  # noqa: T201
    assert (found.broken, len(found.trace)) == (variant.broken, variant.steps), str(found)


def test_the_page_on_the_proof_tells_what_each_guard_is_there_for():
    page = (Path(__file__).parents[2] / "docs" / "replication-proof.md").read_text()
    for variant in VARIANTS:
        assert f"| {variant.guard} | {variant.scenario} | {variant.broken} | {variant.steps} |" in page


def test_a_counterexample_is_a_list_of_named_steps():
    seizing = next(variant for variant in VARIANTS if variant.without.__name__ == "SeizeByTimeout")
    assert str(search(seizing.begin())).splitlines() == [
        "two owners, after 3 steps:",
        "  1. publish at A",
        "  2. apply log at B from A A~1",
        "  3. seize at B message 0",
    ]


def test_a_scenario_that_is_larger_than_its_search_is_no_proof():
    with pytest.raises(TooManyStates):
        search(Steps(Protocol(SMALL["three, two routes to each"])), 100)
