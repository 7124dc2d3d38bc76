"""Size of a consumer's calls, and when it asks for the next messages before it has handled those that it has."""

from __future__ import annotations

import time

import pytest
from scene import define_work, take_ahead

BACKLOG = 40


@pytest.fixture
def messages(client):
    """Return a subscription to a queue with many messages."""
    define_work(client)
    client.publish_many("work", range(10 * BACKLOG))
    with client.subscribe("work", max_backlog=BACKLOG) as subscription:
        yield subscription


def handle(messages, number):
    """Acknowledge so many; gives how many calls were on their way at each."""
    seen = []
    for _ in range(number):
        messages.get("5s").ack()
        seen.append(len(messages._managed.core.inbox.ahead.posted))
    return seen


def test_where_it_does_not_pay_a_call_brings_the_whole_backlog_and_no_other_one_is_on_its_way(client, messages):
    assert handle(messages, 1) == [0]
    assert len(messages._managed.core.inbox.buffer) == BACKLOG - 1
    assert client.admin.queue_stats("work").leased == BACKLOG


def test_a_consumer_whose_handlers_are_slower_than_the_server_takes_ahead_from_then_on(messages):
    handle(messages, BACKLOG)
    # The handler takes half a second, the server some ms.
    time.sleep(0.5)
    handle(messages, 1)
    assert messages._managed.core.inbox.ahead.pays
    # Until a call takes longer than the handlers did: here, one that waits
    handle(messages, 9 * BACKLOG - 1)
    assert messages.get("200ms") is None
    assert not messages._managed.core.inbox.ahead.pays


def test_where_it_pays_the_next_half_is_on_its_way_while_one_is_handled_and_the_backlog_holds(client, messages):
    take_ahead(messages)
    assert set(handle(messages, 3 * BACKLOG)) == {1}
    assert client.admin.queue_stats("work").leased <= BACKLOG
