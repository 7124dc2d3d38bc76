"""Fair shares of messages, as their subscribers see it."""

from __future__ import annotations

import pytest
from scene import data_of, pick_up, rest_of

from ampsq import Queue


def subscribe_all(client, backlogs):
    return [client.subscribe("work", max_backlog=backlog) for backlog in backlogs]


def received(subscriptions):
    return [data_of(rest_of(subscription)) for subscription in subscriptions]


def test_inky_blinky_and_clyde_proportional_delivery_chooses_clyde(either):
    # Given three subscriptions whose backlogs are full
    either.apply(Queue(name="work", max_per_subscription_backlog=100))
    either.publish_many("work", range(16))
    backlogs = (2, 4, 10)
    inky, blinky, clyde = subscriptions = [either.subscribe("work", max_backlog=backlog) for backlog in backlogs]
    held = [pick_up(subscription, backlog) for subscription, backlog in zip(subscriptions, backlogs, strict=True)]
    # And then Inky holds 1 of 2, Blinky 3 of 4 and Clyde 4 of 10 messages
    for messages, leased in zip(held, (1, 3, 4), strict=True):
        for message in messages[leased:]:
            message.ack(wait=True)
    assert either.admin.queue_stats("work").leased == 8
    # When one more message is published, then Clyde gets it: 40 % against 50 % and 75 %
    either.publish("work", "for Clyde")
    assert received([inky, blinky, clyde]) == [[], [], ["for Clyde"]]


def test_proportional_serves_the_first_registered_among_equals(client):
    client.apply(Queue(name="work", max_per_subscription_backlog=100))
    subscriptions = subscribe_all(client, (2, 4, 4))
    for number in range(10):
        client.publish("work", number)
    # 0/2 0/4 0/4 -> first; 1/2 0 0 -> second; third; then 1/2 1/4 1/4 -> second; third; all at a half -> first ...
    assert received(subscriptions) == [[0, 5], [1, 3, 6, 8], [2, 4, 7, 9]]


def test_round_robin_gives_to_each_in_turn(client):
    client.apply(Queue(name="work", max_per_subscription_backlog=100, fairness_model="round-robin"))
    subscriptions = subscribe_all(client, (2, 10, 10))
    for number in range(10):
        client.publish("work", number)
    # Then who is full is passed by
    assert received(subscriptions) == [[0, 3], [1, 4, 6, 8], [2, 5, 7, 9]]


def test_fast_gives_to_the_first_with_room(client):
    client.apply(Queue(name="work", max_per_subscription_backlog=100, fairness_model="fast"))
    subscriptions = subscribe_all(client, (2, 3, 10))
    for number in range(6):
        client.publish("work", number)
    held = [rest_of(subscription) for subscription in subscriptions]
    assert [data_of(messages) for messages in held] == [[0, 1], [2, 3, 4], [5]]
    # When the second and then the first have room again, then they are served before the third, in that order
    held[1][0].ack(wait=True)
    client.publish("work", "second")
    held[0][0].ack(wait=True)
    client.publish("work", "first")
    assert received(subscriptions) == [["first"], ["second"], []]


@pytest.mark.parametrize("model", ["proportional", "round-robin", "fast"])
def test_nobody_starves_and_nothing_is_lost_under_any_model(client, model):
    # Given three subscriptions of different sizes that acknowledge everything
    client.apply(Queue(name="work", max_per_subscription_backlog=100, fairness_model=model))
    subscriptions = subscribe_all(client, (1, 5, 50))
    client.publish_many("work", range(300))
    seen = []
    while len(seen) < 300:
        for subscription in subscriptions:
            for message in rest_of(subscription):
                seen.append(message.data)
                message.ack(wait=True)
        assert client.admin.queue_stats("work").depth + len(seen) == 300
    assert sorted(seen) == list(range(300))
