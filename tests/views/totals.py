"""A view of totals over one queue."""

from __future__ import annotations

from ampsq import Queue, View

TOTALS = {"projection": ["/s", "COUNT(*) AS /n", "SUM(/v) AS /sum"], "grouping": ["/s"]}


def define(client, **elements):
    client.apply(Queue(name="work", **{"max_per_subscription_backlog": 1_000, **elements}))


def define_view(client, **elements):
    client.apply(View(name="totals", **{"underlying_topic": "work", **TOTALS, **elements}))


def totals(client, name="totals"):
    """The rows of a view by their `s`, without it."""
    return {message.data["s"]: (message.data["n"], message.data["sum"]) for message in client.sow(name)}


def the_view(**elements):
    return View(name="totals", **{"underlying_topic": "work", **TOTALS, **elements})
