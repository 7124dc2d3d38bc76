"""Dead letters are put back once each, whichever call, reply or process is lost on the way."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from observing import eventually

from ampsq import Queue

pytestmark = pytest.mark.slow

CHILD = Path(__file__).parent / "child.py"
NUMBER = 600


def define(client):
    client.apply(
        Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=500),
        Queue(name="dead", underlying_topic="letters", max_per_subscription_backlog=500),
    )


def publish_letters(client, number=NUMBER):
    letter = {"queue": "work", "topic": "orders", "bookmark": "orders~x.1~5-0", "reason": "max_cancels"}
    client.publish_many("letters", [{**letter, "message": n} for n in range(number)], batch=500)


def taken(client, number):
    """Return the contents of `work`; they must be no more than expected."""
    seen = []
    with client.subscribe("work", max_backlog=500) as messages:
        while len(seen) < number and (message := messages.get(30)) is not None:
            seen.append(message.data)
            message.ack()
        assert messages.get(0.1) is None
    return sorted(seen)


@pytest.mark.parametrize("late", [None, 0.15], ids=["lost", "late"])
@pytest.mark.parametrize("name", ["redrive", "browse", "begin_browse", "read_catalog"])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_lost_call_is_made_again_and_the_count_is_true(  # noqa: PLR0917 - fixtures and parameters
    valkey, proxy, connect, name, nth, late
):
    # Given letters, and a client behind a connection that breaks
    watcher = connect(valkey.url)
    define(watcher)
    publish_letters(watcher)
    client = connect(proxy.url)
    proxy.lose(name, nth, late=late)
    # When it puts all back
    result = client.admin.redrive("dead")
    # Then they are back once each, and it knows how many it put back
    assert (result, result.targets, result.refused) == (NUMBER, {"work": NUMBER}, 0)
    assert proxy.lost == ([name] if nth == 1 or name in ("redrive", "browse") else [])
    assert taken(watcher, NUMBER) == list(range(NUMBER))


@pytest.mark.parametrize("nth", [1, 2])
def test_a_lost_reply_is_told_from_what_others_put_back(valkey, proxy, connect, nth):
    # Given two clients at once, one of which loses a reply
    watcher = connect(valkey.url)
    define(watcher)
    publish_letters(watcher)
    client, other = connect(proxy.url), connect(valkey.url)
    proxy.lose("redrive", nth)
    results = []

    def meanwhile(progress):
        # Everything that is left, as soon as the first ones are back
        if progress.done and not results:
            results.append(other.admin.redrive("dead"))

    results.append(client.admin.redrive("dead", progress=meanwhile))
    # Then their counts add up
    assert sum(results) == NUMBER
    assert proxy.lost == ["redrive"][: 2 - nth] or nth == 2
    assert taken(watcher, NUMBER) == list(range(NUMBER))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_client_that_dies_in_the_middle_leaves_each_letter_here_or_there(  # noqa: PLR0917 - fixtures and parameters
    valkey, connect, launch_child, tmp_path, instance, number
):
    # Given three processes, one after the other, that are ended while they put letters back
    client = connect(valkey.url)
    define(client)
    publish_letters(client, 3_000)
    for round_ in range(3):
        path = tmp_path / f"records-{round_}"
        child = launch_child(CHILD, "redrive", valkey.url, instance, path)
        before = client.admin.queue_stats("dead").depth
        eventually(lambda before=before: client.admin.queue_stats("dead").depth <= before - 300, within=40.0)
        child.send_signal(number)
        child.wait()
        # Then what is no letter any more is a message, and nothing else is
        stats = client.admin.queue_stats("dead")
        assert stats.depth + client.admin.queue_stats("work").depth == 3_000
        assert 0 < stats.depth < before
        told = [json.loads(line) for line in path.read_text().splitlines()]
        assert told[-1]["done"] <= before - stats.depth
    # And the next one puts back the rest
    assert client.admin.redrive("dead") == client.admin.queue_stats("work").depth - (3_000 - stats.depth)
    assert taken(client, 3_000) == list(range(3_000))
