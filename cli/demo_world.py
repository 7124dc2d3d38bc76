"""Site of the demo: a server, an instance of its own, a folder for records; definitions and messages."""

from __future__ import annotations

import bz2
import contextlib
import fcntl
import itertools
import json
import os
import secrets
import shutil
import tempfile
import time
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Final

import redis

from ampsq import Action, AmpsqError, Queue, Topic
from ampsq.cli.demo_worker import Spec
from ampsq.protocol.reads.instances import unlist_instance
from ampsq.protocol.reads.server import ping
from ampsq.server import supervisor
from ampsq.server.embedded import acquire
from ampsq.transport.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ampsq.definitions.queue import Definition

__all__ = [
    "ALL",
    "BOARD",
    "BOARD_QUEUE",
    "DELAYS",
    "DELAYS_QUEUE",
    "FLIGHTS",
    "NEVER_LEFT",
    "WORKERS",
    "DemoSite",
    "children",
    "day_of",
    "definitions",
    "find_site",
    "flights",
    "messages",
    "pause_for",
]

#: Flights of January 2013 in the file.
ALL: Final = 27_004
FLIGHTS, NEVER_LEFT = "flights", "flights.never-left"
DELAYS, BOARD = "delays", "board"
#: The backlog of each worker process; the third one is killed.
WORKERS: Final = (10, 25, 100, 50)
_BOARD_BACKLOGS: Final = (200, 200)
#: Handling is slowed down to about so many seconds, or it is over before anybody has seen it.
_SECONDS: Final = 1.5
#: Seconds that a flight takes anyway.
_OWN_TIME: Final = 0.0002
_LETTERS: Final = 500
_GONE_WITHIN: Final = 10.0
_POLL: Final = 0.02

DELAYS_QUEUE: Final = Queue(
    name=DELAYS,
    underlying_topic=FLIGHTS,
    lease_period="30s",
    max_per_subscription_backlog=max(WORKERS),
    max_cancels=3,
    barrier_expression="/end_of_day IS NOT NULL",
)
BOARD_QUEUE: Final = Queue(
    name=BOARD,
    underlying_topic=FLIGHTS,
    filter="/flight IS NOT NULL",
    lease_period="60s",
    fairness_model="round-robin",
    max_per_subscription_backlog=max(_BOARD_BACKLOGS),
)


def definitions() -> list[Definition]:
    """Everything that the demo defines: two queues over one topic, and where dead letters go."""
    return [
        Topic(name=FLIGHTS),
        Topic(name=NEVER_LEFT),
        DELAYS_QUEUE,
        Action.dead_letter(DELAYS, NEVER_LEFT),
        BOARD_QUEUE,
        Queue(
            name=NEVER_LEFT,
            underlying_topic=NEVER_LEFT,
            lease_period="60s",
            max_per_subscription_backlog=_LETTERS,
        ),
    ]


def flights(number: int) -> list[bytes]:
    """The first flights of January 2013, each a JSON object, as they were scheduled."""
    packed = (files("ampsq.cli") / "data" / "flights-2013-01.jsonl.bz2").read_bytes()
    return bz2.decompress(packed).splitlines()[:number]


def day_of(flight: Mapping[str, object]) -> str:
    """The day on which a flight was to leave, as in 2013-01-05."""
    return f"{flight['year']}-{flight['month']:02}-{flight['day']:02}"


def messages(number: int) -> list[tuple[bytes, dict[str, object]]]:
    """All that is published, as bodies and what they say: the first flights by day, and the end of each day."""
    read = [(body, json.loads(body)) for body in flights(number)]
    wanted: list[tuple[bytes, dict[str, object]]] = []
    for day, some in itertools.groupby(sorted(read, key=_day_of), key=_day_of):
        end: dict[str, object] = {"end_of_day": day}
        wanted += [*some, (json.dumps(end).encode(), end)]
    return wanted


def _day_of(message: tuple[bytes, dict[str, object]]) -> str:
    return day_of(message[1])


@dataclass(frozen=True, slots=True)
class DemoSite:
    """The site of one demo.

    Attributes:
        url: the server.
        instance: a name that no other demo uses.
        folder: for the processes' records and logs.
        data_dir: the embedded server's, None on another server.
    """

    url: str
    instance: str
    folder: Path
    data_dir: Path | None


@contextlib.contextmanager
def find_site(url: str | None, data_dir: Path | None, *, keep: bool) -> Iterator[DemoSite]:
    """Start the embedded server, or use the one given; what is temporary is removed at the end.

    Args:
        url: a server; default the embedded one.
        data_dir: the embedded server's folder, which stays; default a temporary one.
        keep: remove nothing.
    """
    instance = f"demo-{secrets.token_hex(4)}"
    with contextlib.ExitStack() as stack:
        home = data_dir
        if home is None:
            home = Path(tempfile.mkdtemp(prefix="ampsq-demo-"))
            if not keep:
                stack.callback(shutil.rmtree, home, ignore_errors=True)
            if url is None:
                stack.callback(_await_end, home)
        if url is None:
            server = stack.enter_context(acquire(home))
            site = DemoSite(server.url, instance, home / instance, server.data_dir)
        else:
            _reach(url)
            if not keep:
                stack.callback(_tidy_up, url, instance)
            site = DemoSite(url, instance, home / instance, None)
        site.folder.mkdir(mode=0o700)
        yield site


def _await_end(folder: Path) -> None:
    """Wait until the supervisor has gone: until then the server may write into its folder."""
    until = time.monotonic() + _GONE_WITHIN
    while time.monotonic() < until:
        try:
            lock = os.open(folder / supervisor.SUPERVISOR, os.O_RDWR)
        except FileNotFoundError:
            return
        try:
            if supervisor.try_lock(lock, fcntl.LOCK_SH):
                return
        finally:
            os.close(lock)
        time.sleep(_POLL)


def _reach(url: str) -> None:
    """Ask once: a client waits for a server that is away, who watches a demo wants to know it."""
    with contextlib.closing(Store(url, "", retry_timeout=0.0)) as store:
        store.call(ping())


def _tidy_up(url: str, instance: str) -> None:
    """Remove the instance from a server that is not ours."""
    with contextlib.closing(Store(url, instance)) as store, contextlib.suppress(redis.RedisError, AmpsqError):
        store.call(unlist_instance(instance))
        for name in store.redis.scan_iter(match="{" + instance + "}:*", count=1000):
            store.redis.unlink(name)


def pause_for(number: int) -> float:
    """Return the time that a worker waits at each flight, so that the demo of any size can be watched."""
    return max(_SECONDS * len(WORKERS) / number - _OWN_TIME, 0.0)


def children(site: DemoSite, number: int) -> list[tuple[str, Spec]]:
    """The demo's processes by name: four workers, one for the second queue, and perhaps a coordinator."""
    pause = pause_for(number)
    wanted = [
        (f"worker-{at}", Spec("worker", site.url, site.instance, "", DELAYS, (backlog,), pause))
        for at, backlog in enumerate(WORKERS, 1)
    ]
    wanted.append((BOARD, Spec("board", site.url, site.instance, "", BOARD, _BOARD_BACKLOGS)))
    if site.data_dir is None:
        wanted.append(("coordinator", Spec("coordinator", site.url, site.instance, "")))
    return wanted
