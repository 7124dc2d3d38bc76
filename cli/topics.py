"""``ampsq topics``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from ampsq.base.formatting import size_text
from ampsq.cli.formatting import element_text
from ampsq.cli.listing import listing_options, print_records
from ampsq.cli.names import names
from ampsq.cli.output import labelled, note, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ampsq.cli.options import CommandSettings
    from ampsq.definitions.queue import Queue
    from ampsq.topics.topic_state import TopicState

__all__ = ["topics"]

_EPILOG = """\b
memory     of the topic's log, about
key        identifiers whose values make messages versions of one record; - keeps no records
retention  messages beyond it are removed as soon as nobody needs them; - keeps all
pinned by  the reader that needs the first message kept beyond the retention
--json has more: the first message, the pinned one, what it is there, how many are kept.

\b
Examples:
  ampsq topics
  ampsq topics orders
  ampsq topics --json | jq -r .topic
  ampsq topics --json | jq -c 'select(.pinned) | {topic, pinned_by, pinned, state, kept}'
"""
_COLUMNS: Final = (
    "topic", "messages", "bytes", "first", "last", "queues", "retention", "key", "records", "recorded", "kept",
    "pinned_by", "pinned", "state",
)  # fmt: skip


@click.command(epilog=_EPILOG)
@click.argument("name", required=False, shell_complete=names("topics"))
@listing_options(_COLUMNS)
def topics(settings: CommandSettings, name: str | None) -> None:
    """List the topics, or show one with all that is known of it.

    For each topic: how many messages its log has, their memory, the queues that it feeds, its key and how many records
    it keeps, what of the log is kept and what is in the way of that, and the bookmark of the last message.
    """
    with settings.client(merged=True) as client:
        found = client.admin.topics()
        if name is not None and name not in found:
            raise click.ClickException(_missing_topic(name, found, client.admin.queues()))
    chosen = found if name is None else {name: found[name]}
    if print_records(settings, ({"topic": topic, **state.as_dict()} for topic, state in chosen.items())):
        return
    if name is not None:
        _show(name, found[name])
    elif found:
        rows = [
            [
                *(topic, state.messages, size_text(state.bytes), ", ".join(state.queues) or None),
                *(", ".join(state.key) or None, state.records if state.key else None),
                *(_retention(state.retention), state.pinned_by, state.last),
            ]
            for topic, state in found.items()
        ]
        columns = ["topic", "messages", "memory", "queues", "key", "records", "retention", "pinned by", "last"]
        table(columns, rows, {"messages": "msgs", "records": "recs"}, ("pinned by", "retention"))
    else:
        note("no topics yet; ampsq publish TOPIC JSON makes one, ampsq apply FILE defines them")


def _missing_topic(name: str, found: Iterable[str], queues: Mapping[str, Queue]) -> str:
    if name in queues:
        return f"{name!r} is a queue over {queues[name].underlying_topic!r}; ampsq queues {name} shows it"
    if not found:
        return f"{name!r} is no topic; there is no topic yet"
    from ampsq.base.suggestions import nearest

    return f"topic {name!r}: {nearest(name, found, 'topic')}"


def _show(name: str, state: TopicState) -> None:
    lines: list[tuple[str, object]] = [
        ("topic", name), ("messages", state.messages), ("memory", size_text(state.bytes)),
        ("first", state.first or "-"), ("last", state.last or "-"), ("queues", ", ".join(state.queues) or "-"),
    ]  # fmt: skip
    if state.key:
        lines += [("key", ", ".join(state.key)), ("records", state.records)]
    lines += [(element, element_text(element, value)) for element, value in state.retention.items()]
    if state.pinned:
        lines += [("kept beyond that", state.kept), ("pinned", state.pinned)]
        lines.append(("pinned by", f"{state.pinned_by}, where it is {state.state}".removesuffix(", where it is ")))
    labelled(lines)


def _retention(elements: dict[str, object]) -> str | None:
    texts = [f"{name.removeprefix('retention_')} {element_text(name, value)}" for name, value in elements.items()]
    return ", ".join(texts) or None
