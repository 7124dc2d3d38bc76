"""``ampsq publish``."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import sys
import time
from codecs import BOM_UTF8
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, NamedTuple, NoReturn, cast

import click

from ampsq.base.errors import AmpsqError, NotPersisted
from ampsq.base.values import shown
from ampsq.cli.names import names, words
from ampsq.cli.options import FILE, INTERVAL, CommandSettings, connection_options
from ampsq.cli.options import failover as failover_option
from ampsq.cli.output import json_line, note

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from io import BufferedReader

    from ampsq import Bookmark, Client, Publisher, Receipt
    from ampsq.base.values import Interval
    from ampsq.publishing.guarantee_options import FailedWrite

__all__ = ["publish"]

_EPILOG = """\b
JSON is recorded as it is written, and is one of
  an object, a list, a "text" in quotes, a number, true, false, null
To a topic of message type msgpack, nvfix or fix it is recorded as that.

\b
Examples:
  ampsq publish orders '{"id": 1, "price": 12.5}'
  ampsq publish orders --text 'any text at all' --header source=till-4
  ampsq publish executions '{"35": "8", "55": "IBM"}'
  ampsq publish orders '{"id": 2}' --expiration 10m --delay 30s
  ampsq publish orders '{"id": 3}' --at 2026-12-24T18:00+01:00
  ampsq publish orders '{"id": 4}' --group alice
  ampsq publish orders '{"id": 5}' --key alice            # of an instance with partitions: into that of alice
  ampsq publish orders --file orders.jsonl.gz
  tail -f orders.jsonl | ampsq publish orders -
  ampsq publish orders '{"id": 1, "price": 13}' --delta   # of a topic with a key: what changes of its record
  ampsq publish orders --file orders.jsonl --publisher till-4 --store till-4.db --persisted fsync
"""

_BLOCK: Final = 4 << 20
#: Bytes of a file from which on a bar shows how far it is.
_LONG: Final = 8 << 20
#: Seconds of waiting after which it is told what for, and looked whether that has changed.
_SILENT: Final = 3
#: What changes of a reason while it stays the same.
_AGES: Final = re.compile(r"\b[\d.]+ s\b")
_GZIP: Final = b"\x1f\x8b"


@click.command(epilog=_EPILOG)
@click.argument("topic", shell_complete=names("topics", "queues"))
@click.argument("message", metavar="[JSON | -]", required=False)
@click.option("--file", "-f", type=FILE, metavar="FILE", help="Publish one JSON message a line; .gz is read, too.")
@click.option("--text", is_flag=True, help="Publish the text as it is, not as JSON.")
@click.option("--header", "headers", metavar="NAME=VALUE", multiple=True, help="Add a header; may be repeated.")
@click.option(
    "--expiration",
    type=INTERVAL,
    metavar="INTERVAL",
    help="How long it may be in a queue; default the queue's.",
)
@click.option("--delay", type=INTERVAL, metavar="INTERVAL", help="How long until it is delivered; default at once.")
@click.option("--at", metavar="TIME", help="When it is delivered, ISO 8601 with a zone, as 2026-12-24T18:00Z.")
@click.option("--group", metavar="GROUP", help="The group in queues with groups; default what their group_by gives.")
@click.option(
    "--key",
    metavar="KEY",
    help="The key whose partition it goes to; default what its topic says. Without partitions it says nothing.",
)
@click.option(
    "--publisher",
    metavar="NAME",
    shell_complete=names("publishers"),
    help="Number the messages under this name: recorded once each.",
)
@click.option(
    "--store", type=FILE, metavar="FILE", help="Keep messages here until they are persisted, and send them again."
)
@click.option(
    "--persisted",
    metavar="LEVEL",
    shell_complete=words("memory", "fsync", "replicas="),
    default="memory",
    help="With --store: memory (default), fsync or replicas=N of the server.",
)
@click.option("--delta", is_flag=True, help="Merge it into the record of its key, where the topic has a key.")
@failover_option
@connection_options
def publish(
    settings: CommandSettings,
    topic: str,
    message: str | None,
    file: str | None,
    headers: tuple[str, ...],
    *,
    delta: bool,
    expiration: Interval | None,
    delay: Interval | None,
    at: str | None,
    group: str | None,
    key: str | None,
    text: bool,
    publisher: str | None,
    store: str | None,
    persisted: str,
    failover: str,
) -> None:
    """Publish one message, or one a line of a file.

    TOPIC is a topic, which is made when it is new, unless the instance takes defined ones alone; or a queue, whose
    publish target then gets the message. With - messages are read from standard input, one a line, and published as
    they come. Prints the bookmark of one message; of many, how many there were. With --store, ends when everything is
    persisted, also what an earlier run has left in the file, and prints sequences instead of bookmarks.
    """
    _check_choice(message, file, expiration, delay, at, delta=delta)
    if delta and group is not None:
        raise click.UsageError("--delta and --group exclude each other")
    _check_store(publisher, store, persisted)
    said = _MessageOptions(_parse_headers(headers), expiration, delay, _parse_time(at), group, key)
    refused = _Refused()

    @contextlib.contextmanager
    def opened() -> Iterator[tuple[Client, Publisher | None]]:
        with settings.client(failover=failover, merged=True) as client:
            if publisher is None:
                yield client, None
                return
            if store is None:
                made = client.publisher(publisher)
            else:
                made = client.publisher(publisher, store=store, persisted=persisted, on_failed_write=refused.note)
            with made as named:
                yield client, named

    if file is not None or message == "-":
        _publish_lines(settings, topic, file or "-", said, opened, text=text)
        refused.tell()
        return
    body = os.fsencode(cast("str", message))
    if not text and (wrong := _fault(body)):
        _refuse(f"not JSON: {wrong}", body)
    with opened() as (client, named):
        (data,) = _data(client, topic, [body], text=text)
        by: Client | Publisher = client if named is None else named
        if delta:
            published = by.delta_publish(topic, data, headers=said.headers, expiration=said.expiration, key=key)
        else:
            published = by.publish(topic, data, **said._asdict())
        _flush(named)
    refused.tell()
    what = _name_of(published, is_stored=store is not None)
    if settings.json:
        partition = None if isinstance(published, str) else published.partition
        where = {} if partition is None or store is None else {"partition": partition}
        json_line({"bookmark" if store is None else "sequence": what, **where})
    else:
        print(what)


def _name_of(published: Bookmark | Receipt, *, is_stored: bool) -> Bookmark | int:
    """Return a message's bookmark; of one in a store its number, since its bookmark costs a look at the server."""
    if isinstance(published, str):
        return published
    return published.sequence if is_stored else published.bookmark()


def _check_choice(
    message: str | None,
    file: str | None,
    expiration: Interval | None,
    delay: Interval | None,
    at: str | None,
    *,
    delta: bool,
) -> None:
    if (message is None) == (file is None):
        raise click.UsageError("give one of: a JSON message, --file FILE, or - for standard input")
    if delay is not None and at is not None:
        raise click.UsageError("--delay and --at exclude each other")
    if expiration == 0:
        raise click.UsageError("--expiration 0: allowed is 1ms or longer, or no --expiration for no limit")
    if delta and (file is not None or message == "-" or delay is not None or at is not None):
        raise click.UsageError("--delta is for one message, without --file, --delay and --at")


def _check_store(publisher: str | None, store: str | None, persisted: str) -> None:
    if store is not None and publisher is None:
        raise click.UsageError("--store needs --publisher NAME")
    if store is None and persisted != "memory":
        raise click.UsageError("--persisted goes with --store FILE")


class _Refused:
    """The messages of a publish store that the server refused for good, from this run or an earlier one."""

    def __init__(self) -> None:
        self._count = 0
        self._first: FailedWrite | None = None

    def note(self, failed: FailedWrite) -> None:
        self._count += 1
        self._first = self._first or failed

    def tell(self) -> None:
        """Fail when there is something to tell."""
        if self._first is not None:
            first, count = self._first, f"{self._count} messages were" if self._count > 1 else "a message was"
            raise click.ClickException(
                f"{count} refused for good, and not in the store any more; topic {first.topic!r}, "
                f"sequence {first.sequence}: {first.error}"
            )


class _MessageOptions(NamedTuple):
    """The properties of each message besides its body."""

    headers: dict[str, str]
    expiration: Interval | None
    delay: Interval | None
    at: datetime | None
    group: str | None
    key: str | None

    def publish_many(self, by: Client | Publisher, topic: str, messages: Sequence[object]) -> None:
        """Publish messages with these properties, all of one key where one is said."""
        key = self.key
        of_each = {**self._asdict(), "key": None if key is None else lambda _: key}
        by.publish_many(topic, messages, **of_each)


def _parse_time(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise click.UsageError(f"--at {text!r}: allowed is a time with a zone, as 2026-12-24T18:00Z or ...T18:00+01:00")
    return at


def _parse_headers(headers: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for header in headers:
        name, equals, value = header.partition("=")
        if not name or not equals:
            raise click.UsageError(f"--header {header!r}: allowed is NAME=VALUE, as in --header source=till-4")
        if name in found:
            raise click.UsageError(f"--header {header!r}: {name} has the value {found[name]!r} already; give it once")
        found[name] = value
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_DECODER: Final = json.JSONDecoder(parse_constant=_no_constant)


def _fault(body: bytes) -> str | None:
    """Describe what is wrong with a text that should be JSON."""
    try:
        _DECODER.decode(body.decode())
    except json.JSONDecodeError as error:
        return f"{error.msg} at column {error.colno}"
    except RecursionError:
        return "nested too deeply"
    except ValueError as error:
        return str(error)
    return None


def _refuse(what: str, body: bytes) -> NoReturn:
    text = shown(body.decode(errors="replace"))
    raise click.ClickException(
        f"{what}: {text}\n  allowed: JSON, as in '{{\"id\": 1}}' or '\"a text\"'; --text publishes any text as it is"
    )


def _data(client: Client, topic: str, bodies: list[bytes], *, text: bool) -> Sequence[object]:
    """Return what is published: JSON of a JSON topic, and any text, to the byte; else the values of the JSON."""
    if text or client.admin.message_type(topic) == "json":
        return bodies
    return [_DECODER.decode(body.decode()) for body in bodies]


def _publish_lines(
    settings: CommandSettings,
    topic: str,
    file: str,
    said: _MessageOptions,
    opened: Callable[[], AbstractContextManager[tuple[Client, Publisher | None]]],
    *,
    text: bool,
) -> None:
    done, began = 0, time.monotonic()
    with contextlib.ExitStack() as stack:
        raw = _open(stack, file)
        client, named = stack.enter_context(opened())
        by: Client | Publisher = client if named is None else named
        progress = stack.enter_context(_progress(raw))
        began, number = time.monotonic(), 0
        for lines in _blocks(raw):
            good, wrong = (lines, None) if text else _checked(lines)
            bodies = [line for line in good if line]
            if bodies:
                with _telling_of_those_before(done):
                    said.publish_many(by, topic, _data(client, topic, bodies, text=text))
            done, number = done + len(bodies), number + len(good)
            if wrong is not None:
                before = f"the {done} before it were published" if done else "nothing was published"
                name = "standard input" if file == "-" else file
                _refuse(f"{name}: line {number + 1} is not JSON ({before}): {wrong}", lines[len(good)])
            progress()
        _flush(named)
    seconds = time.monotonic() - began
    if settings.json:
        json_line({"published": done, "seconds": round(seconds, 3)})
    else:
        print(f"published {done} to {topic} in {seconds:.2f} s ({done / max(seconds, 1e-6):,.0f} a second)")


@contextlib.contextmanager
def _telling_of_those_before(done: int) -> Iterator[None]:
    """Say at a failure how many lines are published, those of earlier calls with them."""
    try:
        yield
    except AmpsqError as error:
        done += sum(each is not None for each in error.published)
        note(f"{done} of the lines were published" if done else "no line is known to be published")
        raise


def _flush(named: Publisher | None) -> None:
    """Wait until everything is persisted; who watches is told what for, and again when that changes."""
    told = None
    while named is not None:
        try:
            named.flush(_SILENT)
        except NotPersisted as missing:
            why = _AGES.sub("", missing.why)
            if why != told:
                note(f"still waiting: {missing}")
            told = why
        else:
            return


def _checked(lines: list[bytes]) -> tuple[list[bytes], str | None]:
    """The lines before the first that is not JSON, and what is wrong with it. Blank ones are skipped."""
    for index, line in enumerate(lines):
        if line and (wrong := _fault(line)):
            return lines[:index], wrong
    return lines, None


def _open(stack: contextlib.ExitStack, file: str) -> BufferedReader:
    if file == "-":
        return cast("BufferedReader", sys.stdin.buffer)
    try:
        return stack.enter_context(Path(file).open("rb"))
    except OSError as error:
        raise click.ClickException(f"{file}: {error.strerror}") from error


def _blocks(raw: BufferedReader) -> Iterator[list[bytes]]:
    """Cut what is there into lines: much of a file at once, of a pipe what has come."""
    source: BufferedReader | gzip.GzipFile = raw
    if raw.peek(2)[:2] == _GZIP:
        source = gzip.GzipFile(fileobj=raw)
    rest, begins = b"", True
    while block := _read(source):
        *lines, rest = (rest + (block.removeprefix(BOM_UTF8) if begins else block)).split(b"\n")
        begins = False
        yield [line.strip() for line in lines]
    if rest:
        yield [rest.strip()]


def _read(source: BufferedReader | gzip.GzipFile) -> bytes:
    try:
        return source.read1(_BLOCK)
    except (OSError, EOFError) as error:
        raise click.ClickException(f"cannot be read: {error}") from error


@contextlib.contextmanager
def _progress(raw: IO[bytes]) -> Iterator[Callable[[], None]]:
    """Show how much of a long file is done, where somebody watches; what it gives is called now and then."""
    try:
        size = os.fstat(raw.fileno()).st_size
    except OSError:
        size = 0
    if size < _LONG or not sys.stderr.isatty():
        yield lambda: None
        return
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ImportError:
        yield lambda: None
        return
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("publishing", total=size)
        yield lambda: bar.update(task, completed=raw.tell())
