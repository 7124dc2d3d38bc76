"""The random histories once more, with logs and journals trimmed and discarded in between; see test_queue_model."""

from __future__ import annotations

import pytest
from queue_machine import examples, run_machine
from trim_machine import SortedTrimmedMachine, TrimmedMachine


@pytest.mark.timeout(600)
@examples(6, 60)
def test_random_histories_of_plain_queues_agree_with_the_model_while_logs_are_trimmed(valkey, examples):
    run_machine(TrimmedMachine, valkey.url, examples)


@pytest.mark.timeout(600)
@examples(4, 30)
def test_random_histories_of_sorted_queues_agree_with_the_model_while_logs_are_trimmed(valkey, examples):
    run_machine(SortedTrimmedMachine, valkey.url, examples)
