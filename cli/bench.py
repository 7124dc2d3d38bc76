"""``ampsq bench``: ampsq beside raw Redis Streams, measured on your server."""

from __future__ import annotations

import gc
import importlib.util
import json
import logging
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ampsq.bench.verdicts import flattened
from ampsq.cli.bench_goals import print_comparison
from ampsq.cli.bench_tables import flat, print_tables

if TYPE_CHECKING:
    from collections.abc import Callable

    from ampsq.bench.setup import BenchSettings

__all__ = ["bench", "measure"]

#: Each is several connections of the server.
_MOST_INSTANCES: Final = 2_000
#: Each is a server.
_MOST_PRIMARIES: Final = 16
#: When Python collects garbage where nobody says otherwise: after so many new objects, and so many collections of them.
_COLLECTS_AFTER: Final = (700, 10, 10)


def _numbers_of_instances(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    numbers = [int(each) if each.isdecimal() else 0 for each in text.replace(" ", "").split(",")]
    if not all(1 <= each <= _MOST_INSTANCES for each in numbers):
        raise click.BadParameter(f"{text!r}; allowed: numbers from 1 to {_MOST_INSTANCES:,} with commas, as 1,100")
    return tuple(dict.fromkeys(numbers))


@click.command(
    epilog="\b\nExamples:\n  ampsq bench\n  ampsq bench --quick --json > before.json\n"
    "  ampsq bench --quick --compare before.json\n  ampsq bench --url redis://localhost:6379"
)
@click.option("--url", envvar="AMPSQ_URL", help="The server; default a fresh Valkey of its own, over TCP.")
@click.option("--quick", is_flag=True, help="A tenth of the work: seconds instead of a minute.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.option(
    "--part",
    type=click.Choice(
        [
            "all",
            "raw",
            "kinds",
            "expiry",
            "redrive",
            "rebuild",
            "publishing",
            "concurrency",
            "replay",
            "replication",
            "gateway",
            "hostile",
            "idle",
            "groups",
            "partitions",
            "stalls",
        ]
    ),
    metavar="PART",
    default="all",
    show_default=True,
    help="One of all, raw, kinds, expiry, redrive, rebuild, publishing, concurrency, replay, replication and gateway. "
    "raw: beside raw Streams; kinds: queues that choose beside a plain one; "
    "expiry: many messages whose lives end together; redrive: dead letters; "
    "rebuild: a queue rebuilt from log and journal; publishing: with a guarantee beside plain; "
    "concurrency: by eight threads and tasks at once beside one; "
    "replay: topics read from a bookmark on; "
    "replication: between two servers of its own, in none of the others; "
    "gateway: over HTTP and WebSockets, in none of the others, either; "
    "hostile: the longest call over bodies that are made to hold the server, in none of the others; "
    "idle: instances of which nothing is asked, on a server of its own, in none of the others; "
    "groups: queues with groups beside plain and priority ones, in none of the others; "
    "partitions: publishers and consumers of an instance with partitions beside those of one without, in none of the "
    "others; "
    "stalls: the longest publish while slots of a cluster of its own are moved and a primary is killed, in none of the "
    "others.",
)
@click.option(
    "--instances",
    metavar="NUMBER,...",
    callback=lambda _context, _option, text: _numbers_of_instances(text),
    help="Of the part idle: how many instances, each number measured for itself. Default: 1,100.",
)
@click.option(
    "--primaries",
    type=click.IntRange(1, _MOST_PRIMARIES),
    metavar="NUMBER",
    help="Of the part partitions: how many primaries a cluster of the benchmark's own has, on the loopback. Default: "
    "one server, and no cluster.",
)
@click.option(
    "--compare",
    "earlier",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Figures of another run, as --json printed them; shown beside the figures of this run.",
)
def bench(
    url: str | None,
    *,
    quick: bool,
    as_json: bool,
    part: str,
    instances: tuple[int, ...] | None,
    primaries: int | None,
    earlier: Path | None,
) -> None:
    """Measure publish, delivery, latency, memory and growth beside raw Redis Streams, and kinds of queues.

    Both sides run in turn on the same server with the same durability; compare the ratios. The server's
    statistics are reset, its other keys are left alone. After each measurement the queues are checked; where one is
    not what its logs and journal say, there are no figures.
    """
    before = _figures_of(earlier, as_json=as_json) if earlier else {}
    if not as_json and importlib.util.find_spec("rich") is None:
        raise click.ClickException("tables need the package rich: pip install 'ampsq[cli]', or say --json")
    # Both sides collect garbage as a program does that imports a client, not as seldom as this command line.
    gc.set_threshold(*_COLLECTS_AFTER)
    # What is wrong with the server is said once in the table's head, not by every client.
    logging.getLogger("ampsq").setLevel(logging.ERROR)
    from ampsq.bench.server import raise_as_ours
    from ampsq.bench.setup import BenchSettings

    settings = BenchSettings.small() if quick else BenchSettings()
    if instances is not None:
        if part != "idle":
            raise click.UsageError("--instances goes with --part idle alone")
        settings = replace(settings, idle_instances=instances)

    if primaries is not None and (part != "partitions" or url):
        raise click.UsageError("--primaries goes with --part partitions alone, and without --url")

    def progress(what: str) -> None:
        click.echo(f"{what} ...", err=True)

    with raise_as_ours():
        figures = _measured(url, part, settings, progress, primaries)
    if as_json:
        click.echo(json.dumps({**(flat(figures) if "publish" in figures else {}), **figures}))
    else:
        print_tables(figures)
        print_comparison(before, flattened(figures))


def _measured(
    url: str | None, part: str, settings: BenchSettings, progress: Callable[[str], None], primaries: int | None
) -> dict[str, object]:
    """Measure a part, or "all", at the server that is named, or at servers of the benchmark's own."""
    from ampsq.bench.server import private_server

    if part == "replication":
        from ampsq.bench.replication import ReplicationBenchmark

        return {"replication": ReplicationBenchmark(settings, progress).run()}
    if part == "idle":
        from ampsq.bench.idle import IdleBenchmark

        return {"idle": IdleBenchmark(settings, progress).run()}
    if part == "stalls":
        from ampsq.bench.partition_stalls import PartitionStalls

        return {"stalls": PartitionStalls(progress).run()}
    if primaries is not None:
        from ampsq.bench.partitions import PartitionsBenchmark
        from ampsq.bench.private_cluster import private_cluster

        with private_cluster(primaries) as cluster:
            return {"partitions": PartitionsBenchmark(cluster.url, settings, progress, cluster.servers).run()}
    if url:
        return measure(url, part, settings, progress)
    with private_server() as address:
        return measure(address, part, settings, progress)


def _figures_of(file: Path, *, as_json: bool) -> dict[str, float]:
    """Read the figures of another run, by their dotted names."""
    if as_json:
        raise click.UsageError("--compare prints a table; leave --json out")
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise click.UsageError(
            f"--compare {file}: it is no JSON; allowed: what `ampsq bench --json` printed"
        ) from error
    figures = flattened(found) if isinstance(found, dict) else {}
    if not figures:
        raise click.UsageError(f"--compare {file}: it has no figures; allowed: what `ampsq bench --json` printed")
    return figures


def measure(url: str, part: str, settings: BenchSettings, progress: Callable[[str], None]) -> dict[str, object]:
    """Measure a part, or "all", at a server; gives groups of figures."""
    from ampsq.bench.concurrency import ConcurrencyBenchmark
    from ampsq.bench.expiry import Expiry
    from ampsq.bench.measure import Bench
    from ampsq.bench.publishing import PublishingBenchmark
    from ampsq.bench.queue_kinds import Kinds
    from ampsq.bench.rebuild import Rebuild
    from ampsq.bench.redrive import Redrive
    from ampsq.bench.replay import Replay

    figures: dict[str, object] = Bench(url, settings, progress).run() if part in {"all", "raw"} else {}
    stages: dict[
        str, type[Kinds | Expiry | Redrive | Rebuild | PublishingBenchmark | ConcurrencyBenchmark | Replay]
    ] = {
        "kinds": Kinds,
        "expiry": Expiry,
        "redrive": Redrive,
        "rebuild": Rebuild,
        "publishing": PublishingBenchmark,
        "concurrency": ConcurrencyBenchmark,
        "replay": Replay,
    }
    for name, stage in stages.items():
        if part in {"all", name}:
            figures[name] = stage(url, settings, progress).run()
    if part == "gateway":
        # Of an extra, which the others do without.
        from ampsq.bench.gateway import GatewayFigures

        figures["gateway"] = GatewayFigures(url, settings, progress).run()
    if part == "hostile":
        from ampsq.bench.hostile import Hostile

        figures["hostile"] = Hostile(url, settings, progress).run()
    if part == "groups":
        from ampsq.bench.groups import GroupsBenchmark

        figures["groups"] = GroupsBenchmark(url, settings, progress).run()
    if part == "partitions":
        from ampsq.bench.partitions import PartitionsBenchmark

        figures["partitions"] = PartitionsBenchmark(url, settings, progress).run()
    return figures


if __name__ == "__main__":
    sys.exit(bench())
