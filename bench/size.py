"""Capacity of one node: a long log, and a queue with a filter in which many messages wait.

``python -m ampsq.bench.size --messages 2000000 --waiting 500000`` starts a server, measures there and prints a table.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypedDict, cast

import click

from ampsq.bench.replies import info
from ampsq.bench.server import PrivateServer, raise_as_ours
from ampsq.bench.setup import BenchSettings, Stage
from ampsq.definitions.queue import Queue, Topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ampsq.client.client import Client
    from ampsq.queues.query import SowMessage
    from ampsq.topics.subscription import TopicSubscription

__all__ = ["Size", "SizeFigures", "size"]

#: Seconds for which a restart and a rewrite of the append-only file are waited for.
_LONG: Final = 3600.0
#: Seconds in which a message of the log comes.
_COMES: Final = 60.0
#: Seconds in which memory is freed.
_FREED: Final = 60.0
#: Messages of one `publish_many`, whose bookmarks it gives.
_TOGETHER: Final = 50_000
#: Messages that are replayed from the middle, and rows that a query asks for.
_REPLAYED: Final = 100_000
_ROWS: Final = 10
#: Bytes beside the numbers of a body, which has about 250.
_PADDING: Final = "x" * 200
_MEGABYTE: Final = 1_000_000


class Timed(TypedDict):
    """The time that something took.

    Attributes:
        seconds: until it was done.
        longest_call_ms: how long the longest script call on the server took meanwhile; None where it was not measured.
    """

    seconds: float
    longest_call_ms: float | None


class SizeFigures(TypedDict):
    """The figures of a run. Bytes are bytes of the server's memory where nothing else is said.

    Attributes:
        messages: in the log.
        waiting: of them, in the queue.
        records: of the topic with a key, each the last of as many messages as there are records.
        body_bytes: of one body.
        log_bytes: of a message in the log.
        publish_per_second: messages, 500 a call.
        record_bytes: of a record, its message included.
        place_bytes: of a message that waits and has its place, beyond the log: a subscription's filter looked at it.
        select: until a subscription whose filter matches the last waiting message alone has it.
        check: of the queue.
        sow_rows: ten rows of the queue, in the order of delivery.
        sow_filter: the one row of the queue that a filter matches, the last one.
        sow_record: a record, by its key.
        replay_first: from the middle of the log, until the first message.
        replay_per_second: messages from there on.
        file_bytes: of the append-only file as it was written.
        rewritten_bytes: of the same after a rewrite.
        rewrite: of it.
        restart: until the data is loaded from the file as it was written.
        restart_rewritten: the same from the rewritten one.
        trimmed: messages that nobody needs.
        trim: of them.
        freed_bytes: by that.
        peak_bytes: the most memory that the server's process had.
    """

    messages: int
    waiting: int
    records: int
    body_bytes: int
    log_bytes: float
    publish_per_second: int
    record_bytes: float
    place_bytes: float
    select: Timed
    check: Timed
    sow_rows: Timed
    sow_filter: Timed
    sow_record: Timed
    replay_first: Timed
    replay_per_second: int
    file_bytes: int
    rewritten_bytes: int
    rewrite: Timed
    restart: Timed
    restart_rewritten: Timed
    trimmed: int
    trim: Timed
    freed_bytes: int
    peak_bytes: int


def _body(number: int, part: int) -> bytes:
    return json.dumps({"id": number, "part": part, "account": f"A-{number}", "x": _PADDING}).encode()


class Size(Stage):
    """The measurement, on a server of its own that is stopped and started again.

    Args:
        server: runs, and has nothing else to do.
        messages: in the log.
        waiting: of them, in the queue: every second one at the end of the log.
        records: of the topic with a key.
    """

    def __init__(self, server: PrivateServer, messages: int, waiting: int, records: int) -> None:
        super().__init__(server.url, BenchSettings(), lambda what: click.echo(f"{what} ...", err=True))
        self._server, self._messages, self._records = server, messages, records
        self._first, self._waiting = messages - 2 * waiting, waiting

    def run(self) -> SizeFigures:
        """Measure everything."""
        client = self.client()
        client.apply(Topic(name="orders"), Topic(name="accounts", key="/account"))
        out: dict[str, object] = {
            "messages": self._messages,
            "waiting": self._waiting,
            "records": self._records,
            "body_bytes": len(_body(self._messages // 2, 0)),
        }
        out |= self._publish(client)
        # As anywhere: what a call leaves undone, since it was long enough, is for a coordinator.
        with _coordinating(self.url, client.instance):
            out |= self._wait_in_queue(client)
            out |= self._ask(client)
            out |= self._restart()
            out |= self._trim(client)
        out["peak_bytes"] = round(info(self.redis, "memory")["used_memory_peak"])
        client.close()
        # The parts together are all of it, which a checker cannot see; a test does.
        return cast("SizeFigures", out)

    def _nth(self, waiting: int) -> int:
        """The number of a message that waits."""
        return self._first + 2 * waiting

    def _order(self, number: int) -> bytes:
        return _body(number, int(number >= self._first and (number - self._first) % 2 == 0))

    def _memory(self) -> float:
        """Bytes that the server uses, once all is freed that is to be."""
        # What was logged of slow calls, all of them, is none of ours.
        self.redis.slowlog_reset()
        until = time.monotonic() + _FREED
        while info(self.redis, "memory").get("lazyfree_pending_objects") and time.monotonic() < until:
            time.sleep(0.05)
        return info(self.redis, "memory")["used_memory"]

    @contextlib.contextmanager
    def _timed(self) -> Iterator[Timed]:
        """Gives times, filled at the end."""
        out: Timed = {"seconds": 0.0, "longest_call_ms": None}
        with self.timed_calls() as calls:
            started = time.perf_counter()
            yield out
            out["seconds"] = round(time.perf_counter() - started, 3)
        out["longest_call_ms"] = calls["longest_call_ms"]

    def _publish(self, client: Client) -> dict[str, object]:
        self.progress(f"publishing {self._messages:,} messages")
        # What the server has from the beginning, tables of a first message for one, is no message's.
        client.publish("orders", self._order(0))
        before, started = self._memory(), time.perf_counter()
        numbers = iter(range(1, self._messages))
        while chunk := list(itertools.islice(numbers, _TOGETHER)):
            client.publish_many("orders", [self._order(number) for number in chunk], batch=500)
        seconds, log = time.perf_counter() - started, self._memory() - before
        self.progress(f"publishing {self._records:,} records")
        client.publish("accounts", _body(0, 0))
        before, numbers = self._memory(), iter(range(1, self._records))
        while chunk := list(itertools.islice(numbers, _TOGETHER)):
            client.publish_many("accounts", [_body(number, 0) for number in chunk], batch=500)
        client.sow("accounts", sow_keys=["A-0"])
        return {
            "log_bytes": round(log / self._messages, 1),
            "publish_per_second": round(self._messages / seconds),
            "record_bytes": round((self._memory() - before) / self._records, 1),
        }

    def _wait_in_queue(self, client: Client) -> dict[str, object]:
        self.progress(f"a queue of which {self._waiting:,} messages wait, read by a filter that matches the last one")
        client.apply(Queue(name="work", underlying_topic="orders", filter="/part = 1", recovery_point="epoch"))
        last = self._nth(self._waiting - 1)
        before = self._memory()
        with (
            self._timed() as select,
            client.subscribe("work", filter=f"/id = {last}") as messages,
        ):
            message = messages.get(_LONG)
            if message is None or message.data["id"] != last:
                raise AssertionError("the last waiting message did not come")
            message.cancel()
            messages.flush()
        place = (self._memory() - before) / self._waiting
        depth = client.admin.queue_stats("work").depth
        if depth != self._waiting:
            raise AssertionError(f"{depth} messages wait, and {self._waiting} match the filter")
        return {"select": select, "place_bytes": round(place, 1)}

    def _ask(self, client: Client) -> dict[str, object]:
        out: dict[str, object] = {}
        self.progress("check, sow, replay from the middle")
        with self._timed() as out["check"]:
            (checked,) = client.admin.check("work")
        if not checked.clean:
            raise AssertionError(f"the queue is not as it should be: {checked}")
        last = self._nth(self._waiting - 1)
        queries: dict[str, Callable[[], list[SowMessage]]] = {
            "sow_rows": lambda: client.sow("work", order_by="/id", top_n=_ROWS),
            "sow_filter": lambda: client.sow("work", f"/id = {last}"),
            "sow_record": lambda: client.sow("accounts", sow_keys=[f"A-{self._records - 1}"]),
        }
        for name, ask in queries.items():
            with self._timed() as out[name]:
                rows = ask()
            if len(rows) != (min(_ROWS, self._waiting) if name == "sow_rows" else 1):
                raise AssertionError(f"{name}: {len(rows)} rows")
        return out | self._replay(client)

    def _replay(self, client: Client) -> dict[str, object]:
        # The message from which on half of the log is left, or the waiting one that is next to that.
        nth = max(0, (self._messages // 2 - self._first) // 2)
        (middle,) = client.sow("work", f"/id = {self._nth(nth)}")
        # A bookmark is that of the last message that a reader has.
        number = min(_REPLAYED, self._messages - self._nth(nth) - 1)
        with self._timed() as first, client.subscribe_topic("orders", bookmark=str(middle.bookmark)) as messages:
            _next(messages)
        started = time.perf_counter()
        with client.subscribe_topic("orders", bookmark=str(middle.bookmark)) as messages:
            for _ in range(number):
                _next(messages)
        return {
            "replay_first": first,
            "replay_per_second": round(number / (time.perf_counter() - started)),
        }

    def _file_bytes(self) -> int:
        return sum(path.stat().st_size for path in self._server.folder.glob("appendonlydir/*"))

    def _start_again(self) -> Timed:
        self._server.stop(_LONG)
        started = time.perf_counter()
        self._server.start(_LONG)
        return {"seconds": round(time.perf_counter() - started, 3), "longest_call_ms": None}

    def _restart(self) -> dict[str, object]:
        out: dict[str, object] = {"file_bytes": self._file_bytes()}
        self.progress("restart from the file as it was written")
        out["restart"] = self._start_again()
        self.progress("rewrite, and restart from that")
        started = time.perf_counter()
        self.redis.bgrewriteaof()
        until = started + _LONG
        while time.perf_counter() < until:
            state = info(self.redis, "persistence")
            if not state["aof_rewrite_in_progress"] and not state["aof_rewrite_scheduled"]:
                break
            time.sleep(0.05)
        out["rewrite"] = {"seconds": round(time.perf_counter() - started, 3), "longest_call_ms": None}
        out["rewritten_bytes"] = self._file_bytes()
        return out | {"restart_rewritten": self._start_again()}

    def _trim(self, client: Client) -> dict[str, object]:
        self.progress("trim")
        before = self._memory()
        with self._timed() as trim:
            trimmed = client.admin.trim("orders", age="0s")
        return {"trimmed": trimmed.removed, "trim": trim, "freed_bytes": round(before - self._memory())}


@contextlib.contextmanager
def _coordinating(url: str, instance: str) -> Iterator[None]:
    """Run a coordinator of an instance, in a process of its own."""
    command = [sys.executable, "-m", "ampsq.coordinator", "--url", url, "--instance", instance]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(_COMES)


def _next(messages: TopicSubscription) -> None:
    if messages.get(_COMES) is None:
        raise AssertionError("no message came of those behind the middle of the log")


def _text(timed: Timed) -> str:
    longest = timed["longest_call_ms"]
    return f"{timed['seconds']:,.2f} s" + ("" if longest is None else f"; longest call {longest:,.1f} ms")


def table(figures: SizeFigures) -> str:
    """The figures as a table in Markdown."""
    waiting, records = figures["waiting"], figures["records"]
    rows = {
        f"a message in the log, body of {figures['body_bytes']} bytes": f"{figures['log_bytes']:,} bytes of memory",
        "publish, 500 a call": f"{figures['publish_per_second']:,} messages/s",
        f"a record of {records:,}, with its message in the log": f"{figures['record_bytes']:,} bytes of memory",
        f"a message of {waiting:,} that wait and have a place, beyond the log": f"{figures['place_bytes']:,} bytes of "
        "memory",
        "the last of them for a subscription's filter, everything read for it": _text(figures["select"]),
        "`check` of the queue": _text(figures["check"]),
        f"`sow` of the queue, the first {_ROWS} by a field": _text(figures["sow_rows"]),
        "`sow` of the queue, the one that a filter matches": _text(figures["sow_filter"]),
        "`sow` of a record, by its key": _text(figures["sow_record"]),
        "replay from the middle, until the first message": _text(figures["replay_first"]),
        "replay from there on": f"{figures['replay_per_second']:,} messages/s",
        "append-only file as written": f"{figures['file_bytes'] / _MEGABYTE:,.0f} MB",
        "restart from it": _text(figures["restart"]),
        "append-only file rewritten": f"{figures['rewritten_bytes'] / _MEGABYTE:,.0f} MB in "
        + _text(figures["rewrite"]),
        "restart from that": _text(figures["restart_rewritten"]),
        f"trim of the {figures['trimmed']:,} that nobody needs": _text(figures["trim"]),
        "memory that this freed": f"{figures['freed_bytes'] / _MEGABYTE:,.0f} MB",
        "the most memory that the server used": f"{figures['peak_bytes'] / _MEGABYTE:,.0f} MB",
    }
    head = f"| {figures['messages']:,} messages in the log, {waiting:,} waiting | |\n|---|---|"
    return "\n".join([head, *(f"| {what} | {value} |" for what, value in rows.items())])


@click.command(epilog="\b\nExample:\n  python -m ampsq.bench.size --messages 2000000 --waiting 500000")
@click.option("--messages", type=click.IntRange(min=100), default=20_000_000, show_default=True, help="In the log.")
@click.option("--waiting", type=click.IntRange(min=10), default=5_000_000, show_default=True, help="In the queue.")
@click.option("--records", type=click.IntRange(min=10), help="Of a topic with a key; default a twentieth of messages.")
@click.option(
    "--folder", type=click.Path(file_okay=False, path_type=Path), help="For the data; default a temporary one."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def size(messages: int, waiting: int, records: int | None, folder: Path | None, *, as_json: bool) -> None:
    """Measure what one node carries, on a server of its own; twenty million messages take about 8 GB of memory."""
    if 2 * waiting > messages:
        raise click.UsageError(f"--waiting {waiting}: allowed is up to half of --messages, {messages // 2}")
    with contextlib.ExitStack() as stack:
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ampsq-size-")))
        folder.mkdir(parents=True, exist_ok=True)
        server = PrivateServer(folder)
        stack.callback(server.stop)
        stack.enter_context(raise_as_ours())
        server.start()
        figures = Size(server, messages, waiting, records or max(10, messages // 20)).run()
    click.echo(json.dumps(figures) if as_json else table(figures))


if __name__ == "__main__":
    size()
