"""Two queues with filters, priorities, barriers, target depths, and filtered subscriptions; see test_queue_model."""

from __future__ import annotations

import pytest
from queue_machine import examples, run_machine
from sorted_machine import SortedMachine


@pytest.mark.timeout(600)
@examples(8, 100)
def test_random_histories_of_sorted_queues_agree_with_the_model(valkey, examples):
    run_machine(SortedMachine, valkey.url, examples)
