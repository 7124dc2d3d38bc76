"""explain."""

from __future__ import annotations

import json
import re


def test_the_head_of_a_queue(defined):
    bookmark, _ = defined.publish({"n": 1}, {"n": 2})
    lines = defined("explain", "work").out.splitlines()
    assert lines[0] == "The next message waits because nobody is subscribed to the queue; nothing comes before it."
    shown = dict(re.split("  +", line, maxsplit=1) for line in lines[2:])
    assert shown["bookmark"] == bookmark
    assert (shown["queue"], shown["state"], shown["reason"]) == ("work", "waiting", "no subscription")
    assert (shown["unread"], shown["json"]) == ("2", "yes")


def test_a_message_with_all_that_could_get_it(defined):
    _, bookmark = defined.publish({"n": 1}, {"n": 2})
    with defined.client() as client, client.subscribe("work", filter="/n = 1") as subscription:
        subscription.get(30)
        done = defined("explain", "work", bookmark)
        told = defined("explain", "work", bookmark, "--json").json[0]
    head, row = [line.split("  ") for line in done.out.splitlines()[-2:]]
    assert [cell.strip() for cell in head if cell.strip()] == [
        "id", "client", "leased", "max", "queues", "filter", "matches", "silent",
    ]  # fmt: skip
    assert "/n = 1" in row
    assert told["reason"] == "no_filter_matches"
    assert told["sentence"] == done.out.splitlines()[0]
    assert told["facts"]["subscriptions"][0]["id"] == subscription.id
    assert list(told) == ["queue", "bookmark", "state", "reason", "sentence", "facts"]


def test_a_leased_message_s_lease_is_told(defined):
    (bookmark,) = defined.publish(1)
    with defined.client() as client, client.subscribe("work") as subscription:
        subscription.get(30)
        shown = defined("explain", "work", bookmark).out
    assert f"The message is leased to subscription {subscription.id} of " in shown
    facts = dict(re.split("  +", line, maxsplit=1) for line in shown.splitlines()[2:])
    assert facts["picked up"] == "yes"
    assert facts["until"] in shown.splitlines()[0]


def test_a_queue_where_nothing_waits(defined):
    assert defined("explain", "work").out.startswith("Nothing waits in the queue: no message is leased, ")
    assert json.loads(defined("explain", "work", "--json").out)["bookmark"] is None


def test_what_is_asked_wrongly_is_explained(defined):
    assert "wrok" in defined("explain", "wrok", code=1).err
    assert "is not a bookmark; allowed: " in defined("explain", "work", "orders", code=1).err
    assert "is not here: its origin is other.one" in defined("explain", "work", "orders~other.one~1-0").out
