"""Short campaigns of faults, one of each kind of servers; `make campaign` and `make nightly` run longer ones."""

from __future__ import annotations

import pytest
from campaign import run, said

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.parametrize(("topology", "seed"), [("pair", 1), ("sentinel", 2), ("cluster", 3)])
def test_nothing_is_lost_or_doubled_that_must_not_be_whatever_fails(topology, seed):
    row = run(seed, 30, topology)
    assert not row["wrong"], said(row)
