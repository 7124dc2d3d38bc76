"""``ampsq explain``."""

from __future__ import annotations

import shutil
import sys
import textwrap
from typing import TYPE_CHECKING

import click

from ampsq.base.formatting import fact_text
from ampsq.cli.listing import listing_options, print_records
from ampsq.cli.names import names
from ampsq.cli.output import labelled, table
from ampsq.queues.history_texts import reasons_text

if TYPE_CHECKING:
    from ampsq.cli.options import CommandSettings
    from ampsq.queues.explain import Explanation

__all__ = ["explain"]

_EPILOG = """\b
States: waiting (unread), ready, held (behind a barrier), delayed, leased, settled;
absent (not of this queue), empty (no message waits).

\b
Examples:
  ampsq explain work                               # the message that is to be delivered next
  ampsq explain work orders~ampsq.t6w1xka~1763640000000-0
  ampsq explain work --json | jq -r .sentence
  ampsq explain work --watch 1s
"""
_COLUMNS = ("queue", "bookmark", "state", "reason", "sentence", "facts")


@click.command(epilog=_EPILOG)
@click.argument("queue", shell_complete=names("queues"))
@click.argument("bookmark", required=False)
@listing_options(_COLUMNS)
def explain(settings: CommandSettings, queue: str, bookmark: str | None) -> None:
    """Say why a message is where it is.

    With BOOKMARK: that message, wherever it is, also when it is settled or never was in the queue. Without: the
    head of QUEUE, the message that is to be delivered next. Nothing is changed.
    """
    with settings.client(merged=True) as client:
        explanation = client.admin.explain(queue, bookmark)
    if not print_records(settings, [explanation.as_dict()]):
        _show(explanation)


def _show(explanation: Explanation) -> None:
    sentence = explanation.sentence
    if sys.stdout.isatty():
        # Names and bookmarks are one word each: they stay whole, to be copied.
        width = shutil.get_terminal_size().columns
        sentence = textwrap.fill(sentence, width, break_long_words=False, break_on_hyphens=False)
    print(sentence)
    print()
    facts: list[tuple[str, object]] = [("queue", explanation.queue), ("bookmark", explanation.bookmark)]
    facts += [("state", explanation.state), ("reason", explanation.reason.replace("_", " "))]
    for name, value in explanation.facts.items():
        if name == "holders" and isinstance(value, dict):
            facts += [(name, ", ".join(f"{who} ({count})" for who, count in value.items()))] if value else []
        elif isinstance(value, dict):
            facts += value.items()
        elif not isinstance(value, list):
            facts.append((name, value))
    labelled([(name.replace("_", " "), _fact(name, value)) for name, value in facts])
    subscriptions = explanation.facts.get("subscriptions")
    if isinstance(subscriptions, list) and subscriptions:
        print()
        table(
            [name.replace("_", " ") for name in subscriptions[0]],
            [[_plain(value) for value in row.values()] for row in subscriptions],
        )


def _fact(name: str, value: object) -> object:
    if name == "reasons":
        return reasons_text(map(str, value) if isinstance(value, list) else str(value).split(","))
    return _plain(fact_text(name, value) if value else value)


def _plain(value: object) -> object:
    """A value as people write it."""
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return {True: "yes", False: "no", None: "-"}[value] if value is None or isinstance(value, bool) else value
