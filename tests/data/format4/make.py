"""Make the dump of an instance of format 4, full of everything, with what the public API says of it.

Made with commit 285c5f6f867f5e6c099e6ab19ba5a3682c9f6d84: run it in a checkout of that commit, whose `ampsq` is
installed, as `python tests/data/format4/make.py`. It starts a server of its own, which needs no network, and writes
`instance.jsonl.gz` and `said.json.gz` beside itself. A run takes about half a minute; each gives other IDs and times.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from ask import ask
from conftest import launch
from load import DUMP, SAID, dumped, instances_of, load, write_dump, write_said
from make_others import fill_others
from make_queues import fill_queues
from make_replication import fill_replication
from make_topics import fill_topics
from making import Site

from ampsq import calls
from ampsq.schema import FORMAT, key

_NAMES = ("format4-nyc", "format4-ldn", "format4-tyo")
#: Milliseconds for which subscriptions count as alive, and seconds until whoever is silent is said to be.
_ALIVE = 36_000 * 86_400_000
_SILENT = 6.0


def keep_alive(site):
    """Let each subscription's life last as long as the dump."""
    names = [name.decode() for name in site.redis.zrange(key(site.instance, "subscriptions"), 0, -1)]
    assert site.store.call(calls.beat(_ALIVE, names)) == []


def fill(stack, url):
    """Fill the instances."""
    nyc, ldn, tyo = (Site(stack, url, name) for name in _NAMES)
    fill_replication(nyc, ldn, tyo)
    fill_topics_and_queues(nyc)
    return nyc, ldn, tyo


def fill_topics_and_queues(site):
    """Fill the instance with what one has by itself."""
    fill_queues(site)
    fill_topics(site)
    fill_others(site)


def settled(sites, plain):
    """The lines of the dump, read in a moment in which nobody changes anything."""
    for _ in range(20):
        for site in sites:
            keep_alive(site)
        first, second = dumped(plain, _NAMES), dumped(plain, _NAMES)
        if first == second:
            return first
    raise AssertionError("the instances never come to rest")


def _unasked(line):
    """A line without what asking does: clients come and go, and whoever looks at rows of a queue has it watched."""
    kept = [pair for pair in line["value"] if pair[0] != "watched" and not pair[0].startswith("watch ")]
    return {**line, "value": kept}


def check_same(before, after):
    """See that asking changes nothing else."""
    old, new = (
        {line["key"]: line if line["type"] in ("stream", "string", "set", "list") else _unasked(line) for line in lines}
        for lines in (before, after)
    )
    changed = {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
    assert changed <= {"{format4-nyc}:happenings"}, changed


def make(folder):
    """Make both files; gives the lines of the dump and what is said."""
    with contextlib.ExitStack() as stack:
        server = launch("valkey", Path(folder, "made"), appendonly=True, options=["--appendfsync", "always"])
        stack.callback(server.end)
        plain = stack.enter_context(contextlib.closing(server.client()))
        with contextlib.ExitStack() as open_clients:
            sites = fill(open_clients, server.url)
            lines = settled(sites, plain)
            handed = [{"instance": site.instance, **each} for site in sites for each in site.handed]
            # The second server has what was dumped alone.
            copy = launch("valkey", Path(folder, "copy"))
            stack.callback(copy.end)
            other = stack.enter_context(contextlib.closing(copy.client()))
            load(other, lines)
            assert dumped(other, _NAMES) == lines, "what is loaded is not what was dumped"
            time.sleep(_SILENT)
            said = {name: ask(copy.url, name) for name in _NAMES}
            check_same(lines, dumped(other, _NAMES))
        return lines, {"instances": said, "handed": handed}


def main():
    """Make the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path, default=DUMP.parent, help="the folder of the files")
    into = parser.parse_args().into
    assert FORMAT == 4, "this makes dumps of format 4; check out the commit that is named above"
    # The names of clients have that of their machine.
    socket.gethostname = lambda: "till"
    with tempfile.TemporaryDirectory(prefix="aq-", dir="/tmp") as folder:
        lines, said = make(folder)
    assert instances_of(lines) == sorted(_NAMES)
    write_dump(lines, into / DUMP.name)
    write_said(said, into / SAID.name)


if __name__ == "__main__":
    main()
