"""Two plain queues, driven at random, against a model that says what must be where after each step.

The model predicts each delivery (who, which message, which token), each refusal and each count. It takes two
things from the server: the IDs of what was published, and what the timetable holds; that nothing is missing
there is an invariant of its own. AMPSQ_EXAMPLES sets the number of runs (12, and 150 in the slow test).
"""

from __future__ import annotations

import pytest
from queue_machine import QueueMachine, examples, run_machine


@pytest.mark.timeout(600)
@examples(12, 150)
def test_random_histories_of_two_queues_agree_with_the_model(valkey, examples):
    run_machine(QueueMachine, valkey.url, examples)
