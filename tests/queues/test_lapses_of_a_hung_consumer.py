"""Messages that a consumer lets lapse go to another one that is free, in every kind of queue."""

from __future__ import annotations

import pytest

from ampsq import Queue

FAIRNESS = {"fast": {"fairness_model": "fast"}, "round-robin": {"fairness_model": "round-robin"}, "proportional": {}}
KINDS = {
    **FAIRNESS,
    "priority": {"priority": "/id"},
    "groups": {"group_by": "/id"},
    "turns": {"group_by": "/id", "group_choice": "round_robin"},
    "barriers": {"barrier_expression": "/barrier = 1"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_nobody_picks_up_goes_to_a_free_consumer_when_its_lease_lapses(ampsq_instance, ampsq_client, kind):
    ampsq_client.apply(Queue(name="work", lease_period="1s", max_per_subscription_backlog=10, **KINDS[kind]))
    # Given a consumer that never comes for what is pushed to it, and is free at every moment
    with ampsq_client.subscribe("work", max_backlog=10), ampsq_client.subscribe("work", max_backlog=10) as works:
        taken = []
        for number in range(1, 5):
            ampsq_client.publish("work", {"id": number})
            # When one lease period is over
            ampsq_instance.advance("1100ms")
            while (message := works.get("50ms")) is not None:
                taken.append(message.data["id"])
                message.ack(wait=True)

            # Then no message waits for it any longer
            assert sorted(taken) == list(range(1, number + 1))
