"""Contents of a queue, as commands and this process see it."""

from __future__ import annotations

import re

BOOKMARK = re.compile(r"orders~i\d+\.\w+~\d+-\d+")


def take(run, *arguments):
    """Every message of the queue, as --json shows it."""
    return run("subscribe", "work", "--json", "--timeout", "0.3", "--max-backlog", "10", *arguments).json


def data(run):
    """Take the queue's messages in this process, which is faster."""
    with run.client() as client, client.subscribe("work", max_backlog=10) as messages:
        found = []
        while (message := messages.get(0.2)) is not None:
            found.append(message.data)
            message.ack()
    return found
