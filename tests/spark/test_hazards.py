"""Hazards that only a cluster shows: rows in another order, layouts that change, executors that die."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

_PROGRAM = Path(__file__).with_name("cluster_hazards.py")
_ROWS = 8_000


@pytest.fixture(scope="module")
def told(valkey, tmp_path_factory):
    """Return the fate of each job: what, protocol -> outcome, rows recorded, rows recorded twice."""
    arguments = [sys.executable, str(_PROGRAM), valkey.url, "hazards", str(tmp_path_factory.mktemp("hazards"))]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr[-4_000:]
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {(each["what"], each["protocol"]): (each["outcome"], each["rows"], each["twice"]) for each in lines}


pytestmark = [pytest.mark.slow, pytest.mark.timeout(420)]


@pytest.mark.parametrize("what", ["shuffle", "lose-executor"])
def test_staged_rows_are_recorded_once_whatever_happens(told, what):
    assert told[what, "staged"] == ("done", _ROWS, 0)


def test_a_layout_that_changes_before_a_repeat_costs_staged_rows_nothing(told):
    assert told["cut-anew", "staged"] == ("done", 2_000, 0)


def test_rows_in_sequence_that_come_in_another_order_fail_and_none_is_recorded_twice(told):
    outcome, rows, twice = told["shuffle", "sequence"]
    assert (outcome, rows) == ("done", _ROWS) or outcome == "RowsDiffer"
    assert twice == 0


def test_rows_in_sequence_that_are_sorted_are_recorded_once(told):
    assert told["sort", "sequence"] == ("done", _ROWS, 0)


def test_a_layout_that_changes_fails_a_job_in_sequence(told):
    assert told["cut-anew", "sequence"][:2] == ("RowsDiffer", 2_000)


def test_rows_in_sequence_of_an_executor_that_was_killed_are_recorded_once(told):
    assert told["lose-executor", "sequence"] == ("done", _ROWS, 0)
