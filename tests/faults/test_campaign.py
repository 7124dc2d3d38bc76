"""Short campaigns of faults; `campaign.py` runs longer ones by command."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from campaign import Campaign

pytestmark = pytest.mark.slow


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("power", [False, True], ids=["killed", "without power"])
def test_what_was_told_to_be_on_the_disk_is_at_both_instances_once_and_all_is_handled(power):
    with tempfile.TemporaryDirectory(prefix="aq-", dir="/tmp") as folder:
        Campaign(Path(folder), seed=7, power=power).run(9)
