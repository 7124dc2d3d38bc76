"""The tables that ``ampsq bench`` prints of what it measured."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import click

from ampsq.bench.goals import LONGEST_CALL_MS
from ampsq.cli.bench_goals import print_goals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["flat", "print_tables"]

#: Columns of the widest table where there is no terminal.
_WIDTH: Final = 132


class _Figures:
    """Figures by their names, as JSON has them: a number, or a group of figures.

    Args:
        figures: of one group.
    """

    def __init__(self, figures: Mapping[str, object]) -> None:
        self._figures = figures

    def __contains__(self, name: str) -> bool:
        return name in self._figures

    def __getitem__(self, name: str) -> float:
        found = self._figures[name]
        if not isinstance(found, int | float):
            raise TypeError(f"{name} is no number")
        return found

    @property
    def all(self) -> Mapping[str, object]:
        """All of them, as they are."""
        return self._figures

    def text(self, name: str) -> str:
        return str(self._figures[name])

    def group(self, name: str) -> _Figures:
        found = self._figures[name]
        if not isinstance(found, dict):
            raise TypeError(f"{name} is no group of figures")
        return _Figures(found)

    def groups(self) -> Iterator[tuple[str, _Figures]]:
        """Yield the figures that are groups."""
        return ((name, self.group(name)) for name, found in self._figures.items() if isinstance(found, dict))

    def numbers(self) -> Iterator[tuple[str, float]]:
        """Yield the figures that are numbers."""
        return ((name, found) for name, found in self._figures.items() if isinstance(found, int | float))


def flat(figures: Mapping[str, object]) -> dict[str, float]:
    """The figures that goals are stated for, by their full names."""
    known = _Figures(figures)
    publish, consume, latency, memory = map(known.group, ("publish", "consume", "latency", "memory"))
    return {
        "publish.ratio": publish["ratio"],
        "consume.ratio": consume["ratio"],
        "latency.p50_ratio": latency["p50_ratio"],
        "latency.p99_ratio": latency["p99_ratio"],
        "memory.bytes_per_queued": memory["bytes_per_queued"],
        "memory.bytes_per_leased": memory["bytes_per_leased"],
    }


def print_tables(figures: Mapping[str, object]) -> None:
    """Print what `measure` gave."""
    known = _Figures(figures)
    if "publish" in known:
        _print_beside_raw(known)
    printers: dict[str, Callable[[_Figures], None]] = {
        "kinds": _print_kinds,
        "expiry": _print_expiry,
        "redrive": _print_redrive,
        "rebuild": _print_rebuild,
        "publishing": _print_publishing,
        "concurrency": _print_concurrency,
        "replay": _print_replay,
        "replication": _print_replication,
        "gateway": _print_gateway,
        "hostile": _print_hostile,
        "idle": _print_idle,
        "groups": _print_groups,
        "partitions": _print_partitions,
        "stalls": _print_stalls,
    }
    for part, print_part in printers.items():
        if part in known:
            print_part(known.group(part))


def _print_partitions(figures: _Figures) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    for what, title in (
        ("publish", "Publishing 100 a call: processor time a message"),
        ("by_key", "Publishing 1,000 a call by key, all recorded before the next: processor time a message"),
        ("consume", "A consumer: processor time a message, where many wait in each partition"),
        ("consume_few", "A consumer: processor time a message, where few wait in each partition"),
    ):
        table = Table(title=title, title_justify="left")
        for column in ("partitions", "messages a call", "client us", "server us", "to none: client, server"):
            table.add_column(column, justify="right")
        for name, row in figures.group(what).groups():
            table.add_row(
                "none" if name == "one" else name,
                f"{row['messages_per_call']:.0f}",
                f"{row['client_us']:.1f}",
                f"{row['server_us']:.1f}",
                f"{row['client_to_none']:.2f}, {row['server_to_none']:.2f}",
            )
        console.print(table)
    alone = figures.group("by_themselves")
    print(
        f"Left out above, since servers take it while nothing is asked of them: {alone['publish_server_ms']:.1f} ms/s "
        f"where was published, {alone['consume_server_ms']:.1f} ms/s where was consumed, of all servers together"
    )
    for name, row in figures.group("open").groups():
        of = "without partitions" if name == "one" else f"of {name} partitions, each"
        print(f"Beginning to consume {of}: client {row['client_us']:.0f} us, server {row['server_us']:.0f} us")
    table = Table(title="A consumer that waits", title_justify="left")
    for column in ("partitions", "wake-up p50, p99 ms", "idle: client, server ms/s", "close ms"):
        table.add_column(column, justify="right")
    for name, waits in figures.group("wait").groups():
        table.add_row(
            "none" if name == "one" else name,
            f"{waits['p50_ms']:.2f}, {waits['p99_ms']:.2f}",
            f"{waits['idle_client_ms']:.1f}, {waits['idle_server_ms']:.1f}",
            f"{waits['close_ms']:.0f}",
        )
    console.print(table)
    for name, row in figures.group("idle").groups():
        print(
            f"{int(name):,} idle partitions: coordinator {row['coordinator_ms']:.1f} ms/s, "
            f"server {row['server_ms']:.1f} ms/s, {row['server_alone_ms']:.1f} of it without a coordinator"
        )


def _print_stalls(figures: _Figures) -> None:
    for name, what in (("quiet", "nothing happens"), ("move", "slots are moved"), ("kill", "a primary is killed")):
        row = figures.group(name)
        print(f"Longest publish while {what}: {row['longest_publish_s']:.2f} s, of {row['messages']:,.0f}")


def _print_groups(figures: _Figures) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    table = Table(title="Server time a message, us, one subscription", title_justify="left")
    for column in (
        "groups",
        "queue",
        "publish",
        "take + ack",
        "messages a call",
        "publish, to plain",
        "both, to priority",
    ):
        table.add_column(column, justify="left" if column == "queue" else "right")
    for groups, kinds in figures.group("costs").groups():
        for kind, row in kinds.groups():
            beside = (f"{row['publish_ratio']:.2f}", f"{row['priority_ratio']:.2f}")
            costs = (f"{row['publish_us']:.1f}", f"{row['consume_us']:.1f}", f"{row['messages_per_call']:.1f}")
            table.add_row(f"{int(groups):,}", kind.replace("_", " "), *costs, *beside)
    console.print(table)
    beside_busy = figures.group("beside")
    for name, kind in (("takers", "100 groups"), ("bound_takers", "100 groups with affinity")):
        takers = figures.group(name)
        console.print(
            f"{kind}, take + ack of one subscription {takers['one_us']} us, of sixteen {takers['sixteen_us']} us"
        )
    for groups, row in figures.group("memory").groups():
        number, _, each = groups.partition(" of ")
        console.print(
            f"{int(number):,} groups{f' of {each}' if each else ''}: bytes of a message beyond the log: unread "
            f"{row['bytes_per_unread']}, listed {row['bytes_per_placed']}; longest call {row['longest_call_ms']} ms, "
            f"longest work of a call that places messages {row['longest_work_ms']} ms"
        )
    console.print(
        f"From publish to delivery of a quiet group: {beside_busy['alone_p50_us']} us alone, "
        f"{beside_busy['beside_p50_us']} us where much of another group waits"
    )


def _print_idle(figures: _Figures) -> None:
    from rich.console import Console
    from rich.table import Table

    for number, row in figures.groups():
        cpu, size = row.group("cpu"), row.group("coordinator")
        click.echo(
            f"Idle instances: {number} (defined in {row['definition_s']} s). Processor, ms/s: coordinator "
            f"{cpu['coordinator_ms']}, server {cpu['server_ms']} (its main thread {cpu['server_main_ms']}; an empty "
            f"one {cpu['server_empty_ms']}, so {cpu['server_net_ms']} for the instances), clients {cpu['clients_ms']}"
        )
        click.echo(
            f"Coordinator: {size['threads']:,} threads, {size['descriptors']:,} descriptors, "
            f"{size['resident_kb'] / 1024:.0f} MB"
        )
        calls = [f"{name} {calls:,}" for name, calls in row.group("commands").numbers()]
        click.echo(f"Commands a second: {', '.join(calls)}")
        table = Table(title="From what is due until it is received, ms", title_justify="left")
        for column in ("what", "p50", "p99", "longest", "samples"):
            table.add_column(column, justify="left" if column == "what" else "right")
        for kind, times in row.group("latency").groups():
            cells = [f"{times[name]:,.1f}" for name in ("p50_ms", "p99_ms", "max_ms")]
            table.add_row(kind.replace("_", " "), *cells, str(times["samples"]))
        Console().print(table)


def _print_hostile(figures: _Figures) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="The longest call over hostile bodies, ms of the server's processor", title_justify="left")
    for column in ("size", "use", "ms", "of"):
        table.add_column(column, justify="right" if column == "ms" else "left")
    for size, uses in figures.groups():
        for use, row in uses.groups():
            table.add_row(size, use, f"{row['longest_call_ms']:.2f}", row.text("of"))
    Console().print(table)


def _print_gateway(row: _Figures) -> None:
    latency = row.group("latency")
    click.echo(
        f"Over a gateway, one connection: publish {row['publish_per_second']:,}/s one by one (a client of the server "
        f"{row['publish_directly_per_second']:,}/s), {row['publish_many_per_second']:,}/s 100 a request; "
        f"subscribe + ack, backlog 100: {row['subscribe_per_second']:,}/s"
    )
    click.echo(f"Push to a subscriber at 200/s: p50 {latency['p50_us']} us, p99 {latency['p99_us']} us")


def _print_replication(figures: _Figures) -> None:
    rates, takeover, recovery = map(figures.group, ("rates", "takeover", "recovery"))
    click.echo(
        f"Replicated one way, 100 a call: {rates['replicated_per_second']:,} messages/s; plain publish "
        f"{rates['publish_per_second']:,}/s, beside the link {rates['publish_beside_link_per_second']:,}/s "
        f"({rates['ratio_beside_link']:.2f})"
    )
    click.echo(
        f"Server us a message: publish {rates['source_us']}, the link's reading {rates['source_us_of_the_link']}, "
        f"at the destination {rates['destination_us']}"
    )
    for flushed, row in figures.group("lag").groups():
        click.echo(f"Lag at 5,000/s, appendfsync {flushed}: p50 {row['p50_ms']} ms, p99 {row['p99_ms']} ms")
    for sync_type, row in figures.group("sync").groups():
        click.echo(
            f"Publish until persisted, appendfsync always, destination {sync_type}: p50 {row['p50_ms']} ms, "
            f"p99 {row['p99_ms']} ms"
        )
    click.echo(
        f"Dead subscriber to a subscriber elsewhere: {takeover['held']} messages, the first after "
        f"{takeover['first_ms']:,} ms, all after {takeover['all_ms']:,} ms"
    )
    click.echo(
        f"Link down for {recovery['outage_s']} s at 5,000/s ({recovery['messages']:,} messages): caught up "
        f"{recovery['caught_up_after_s']} s after it is started, of which {recovery['link_stands_after_s']} s until it "
        "stands"
    )


def _calls(row: _Figures) -> str:
    return (
        f"longest call on the server {row['longest_call_ms']} ms, 99.9% within {row['p999_call_ms']} ms, "
        f"{row['calls_over_10_ms']} over 10 ms"
    )


def _print_expiry(figures: _Figures) -> None:
    words = {"queue": "the queue's life", "message": "lives of their own", "priority": "the queue's life, priorities"}
    for kind, row in figures.groups():
        click.echo(
            f"{row['messages']:,} messages expire together ({words[kind]}): {row['per_second']:,} a second, "
            f"{row['server_us']} us of the server each; {_calls(row)}"
        )


def _print_redrive(figures: _Figures) -> None:
    click.echo(
        f"Dead letters put back: {figures['letters']:,}, {figures['per_second']:,} letters/s, "
        f"{figures['server_us']} us of the server each; {_calls(figures)}"
    )


def _print_rebuild(figures: _Figures) -> None:
    for what, text in (("check", "checked"), ("rebuild", "rebuilt from log and journal")):
        row = figures.group(what)
        click.echo(
            f"A queue of {figures['messages']:,} messages {text}: {row['seconds']} s, {row['per_second']:,} a second; "
            f"{_calls(row)}"
        )


def _print_publishing(figures: _Figures) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(
        title="Guaranteed publishing beside plain, same run, until all is persisted, messages/s", title_justify="left"
    )
    for column in ("store; persisted", "100 a call", "plain", "ratio", "one by one", "plain", "ratio"):
        table.add_column(column, justify="left" if column.startswith("store") else "right")
    for name, row in figures.groups():
        cells = [
            (f"{row[f'{kind}_per_second']:,}", f"{row[f'plain_{kind}_per_second']:,}", f"{row[f'{kind}_ratio']:.2f}")
            for kind in ("many", "single")
        ]
        table.add_row(name, *cells[0], *cells[1])
    Console().print(table)


def _print_concurrency(figures: _Figures) -> None:
    from ampsq.bench.concurrency import AT_ONCE, DELAY, FLOOR

    for kind, row in figures.groups():
        click.echo(
            f"Publish one by one with {DELAY * 1000:g} ms of network delay: {AT_ONCE} {kind} "
            f"{row['at_once_per_second']:,} messages/s, one {row['alone_per_second']:,}: {row['ratio']:.2f} of that "
            f"(floor {FLOOR:g})"
        )


def _print_replay(figures: _Figures) -> None:
    from rich.console import Console
    from rich.table import Table

    rates = figures.group("rates")
    table = Table(title="Replay beside raw paged XRANGE, messages/s", title_justify="left")
    for column in ("what", "ampsq", "raw", "ratio"):
        table.add_column(column, justify="left" if column == "what" else "right")
    for name, row in rates.groups():
        texts = (f"{row['per_second']:,}", f"{rates['raw_per_second']:,}", f"{row['ratio']:.2f}")
        table.add_row(name.replace("_", " "), *texts)
    Console().print(table)
    click.echo(f"Server time a message: {rates['server_us']} us.")
    for name, row in figures.group("latency").groups():
        click.echo(
            f"Latency at 1,000/s, {name}: p50 {row['p50_us']} us ({row['p50_ratio']} of a raw blocked XREAD), "
            f"p99 {row['p99_us']} us ({row['p99_ratio']})"
        )


def _print_kinds(kinds: _Figures) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    rates = Table(title="Beside a plain queue, same run", title_justify="left")
    for column in ("queue", "publish", "sub + ack", "msgs/s", "server us", "plain msgs/s", "server us"):
        rates.add_column(column, justify="left" if column == "queue" else "right")
    for name, row in kinds.group("rates").groups():
        texts = (f"{row['publish_ratio']:.2f}", f"{row['consume_ratio']:.2f}", f"{row['per_second']:,}")
        beside = (f"{row['server_us']:.1f}", f"{row['plain_per_second']:,}", f"{row['plain_server_us']:.1f}")
        rates.add_row(name.replace("_", " "), *texts, *beside)
    console.print(rates)
    titles = {
        "memory": "Bytes beyond the log of a message that waits",
        "ahead": "A selective subscription's next message, server us, behind so many others",
        "filters": "Server us a message beside so many distinct filters",
    }
    for group, title in titles.items():
        cells = [f"{name.replace('_', ' ')}: {value:,}" for name, value in kinds.group(group).numbers()]
        console.print(f"{title}: {'; '.join(cells)}")


def _print_beside_raw(figures: _Figures) -> None:
    from rich.console import Console
    from rich.table import Table

    # A file has no width, and the table has ten columns.
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    server = figures.group("server")
    console.print(
        f"{server.text('kind')} {server.text('version')}, appendonly {server.text('appendonly')}, "
        f"appendfsync {server.text('appendfsync')}, server functions {server.text('functions')}"
    )
    print_goals(figures.all, console)
    growth = Table(title="Server time a message, us", title_justify="left")
    for column in ("beside", "publish", "take + ack"):
        growth.add_column(column, justify="left" if column == "beside" else "right")
    for name, costs in figures.group("growth").groups():
        what, _, number = name.rpartition("_")
        label = f"{int(number):,} {what.replace('_', ' ')}" if number.isdigit() else name
        growth.add_row(label, f"{costs['publish_us']:.2f}", f"{costs['take_and_ack_us']:.2f}")
    console.print(growth)
    _print_calls(figures.group("calls"))
    console.print(f"Server CPU: {figures['server_cpu_us_per_message']} us a message, subscribe + ack.")


def _print_calls(calls: _Figures) -> None:
    cells = [f"{name} {milliseconds:.2f}" for name, milliseconds in calls.numbers()]
    click.echo(f"Longest call of each verb, ms (at most {LONGEST_CALL_MS:g}): {', '.join(cells)}")
