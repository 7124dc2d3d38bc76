"""`ampsq top`: once for scripts, live at a terminal, few round trips however many queues there are."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import pty
import re
import select
import signal
import struct
import termios
import time

import pytest
from rich.console import Console

from ampsq import Destination, Queue, Topic
from ampsq.cli.top_view import TopView
from ampsq.operations.survey import Surveyor
from ampsq.protocol.request import Call, Collect, Post

ONCE = ("--once", "--interval", "0.1s")


def test_one_refresh_shows_queues_and_who_holds_what(defined):
    # Given messages, one of them leased
    defined.publish(*range(5))
    with defined.client() as client, client.subscribe("work", max_backlog=1) as messages:
        assert messages.get(timeout="30s").data == 0

        # When one looks
        (found,) = defined("top", *ONCE, "--json").json
        text = defined("top", *ONCE).out

    # Then both are there
    work = next(row for row in found["queues"] if row["queue"] == "work")
    assert (work["ready"], work["leased"], work["delayed"], work["subscriptions"]) == (4, 1, 0, 1)
    assert 0 < work["oldest"] < 60
    (held,) = found["subscriptions"]
    assert (held["queues"], held["leased"], held["max_backlog"]) == (["work"], 1, 1)
    assert text.splitlines()[1].split() == ["queue", "ready", "leased", "delayed", "in/s", "out/s", "oldest", "subs"]


def test_how_far_handlers_are_is_shown_the_last_report_first(defined):
    # Given two messages that are held, and whose holder says how far they are, and one of which nothing is said
    bookmarks = defined.publish(*range(3))
    with defined.client() as client, client.subscribe("work", max_backlog=3) as messages:
        held = [messages.get(timeout="30s") for _ in range(3)]
        held[0].report(0.4, "page 40 of 100")
        held[1].report(0.125)

        # When one looks, once with a filter that leaves the queue out
        (found,) = defined("top", *ONCE, "--json").json
        text = defined("top", *ONCE).out
        (other,) = defined("top", *ONCE, "--json", "--filter", "other").json
        held[1].ack(wait=True)
        (behind,) = defined("top", *ONCE, "--json").json

    # Then both are there
    second, first = found["progress"]
    assert (first["queue"], first["topic"], first["done"], first["said"]) == ("work", "orders", 0.4, "page 40 of 100")
    assert bookmarks[0].endswith(f"~{first['id']}")
    assert (second["done"], second["said"]) == (0.125, "")
    assert 0 <= first["seconds_ago"] < 60
    assert " 40% " in text
    assert "page 40 of 100" in text
    # And not what is settled, nor what is not asked for
    assert other["progress"] == []
    assert [each["done"] for each in behind["progress"]] == [0.4]


def test_a_narrow_screen_does_without_some_columns_and_cuts_no_head_of_the_others(defined):
    defined.publish(*range(5))
    view = TopView("name", 10, None)
    with defined.client() as client, client._store.pipeline() as channel:
        view.take(client._store.run(Surveyor(client.instance).read(channel, view.chosen)))

    def heads(width):
        drawn = Console(file=io.StringIO(), width=width)
        drawn.print(view.screen("top", width, 20))
        return drawn.file.getvalue().splitlines()[2].split()

    assert heads(80) == ["queue", "ready", "leased", "delayed", "in/s", "out/s", "oldest", "subs"]
    assert heads(40) == ["queue", "ready", "leased", "in/s", "out/s", "oldest"]


def test_links_are_shown_where_there_are_some(run):
    with run.client() as client:
        far = Destination(name="far", sync_type="async", topics=["orders"], addresses=["redis://far.example.com"])
        client.apply(Topic(name="orders"), far)
        client.publish("orders", 1)

    (link,) = run("top", *ONCE, "--json").json[0]["links"]

    assert (link["link"], link["ack"], link["behind"], link["messages_per_second"]) == ("to far", "async", 1, 0)


def test_rates_are_those_between_two_surveys(defined):
    view = TopView("in", 10, None)
    with defined.client() as client, client._store.pipeline() as channel:
        surveyor = Surveyor(client.instance)
        view.take(client._store.run(surveyor.read(channel, view.chosen)))
        assert view.tables()["queues"][0]["in_per_second"] is None
        for number in range(10):
            client.publish("orders", number)
        client.ack("work", filter="/id IS NULL")
        time.sleep(0.05)  # rates are of a time
        view.take(client._store.run(surveyor.read(channel, view.chosen)))

    seconds = (view.now.at - view.before.at) / 1000
    first = view.tables()["queues"][0]
    assert first["queue"] == "work"
    assert (first["in_per_second"], first["out_per_second"]) == (round(10 / seconds, 1),) * 2


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (["--sort", "name"], ["other", "q1", "q2", "work"]),
        (["--sort", "depth"], ["q2", "q1", "other", "work"]),
        (["--sort", "depth", "--top", "1"], ["q2"]),
        (["--filter", "^q"], ["q2", "q1"]),
    ],
)
def test_rows_are_sorted_filtered_and_limited(defined, options, names):
    with defined.client() as client:
        client.apply(Queue(name="q1", underlying_topic="one"), Queue(name="q2", underlying_topic="two"))
        client.publish("one", 1)
        client.publish_many("two", [1, 2])

    (found,) = defined("top", *ONCE, *options, "--json").json

    assert [row["queue"] for row in found["queues"]] == names


def test_a_filter_that_is_no_regular_expression_is_refused(defined):
    assert "--filter '['" in defined("top", *ONCE, "--filter", "[", code=2).err


def test_a_refresh_is_two_round_trips_also_with_many_queues(run):
    # Given 100 queues
    with run.client() as client, client._store.pipeline() as channel:
        client.apply(*(Queue(name=f"q{number}", underlying_topic="orders") for number in range(100)))
        surveyor, steps = Surveyor(client.instance), []
        client._store.run(surveyor.read(channel, lambda _: ()))

        def noted(flow):
            step = flow.send(None)
            with contextlib.suppress(StopIteration):
                while True:
                    steps.append(type(step))
                    step = flow.send((yield step))

        # When they are read again
        client._store.run(noted(surveyor.read(channel, lambda queues: list(queues)[:20])))

    # Then all calls of a round trip are sent before the first reply is read
    turns = [after for before, after in zip([None, *steps], steps, strict=False) if before is not after]
    assert turns == [Post, Collect, Post, Collect]
    assert steps.count(Post) == 100 + 20 + 4
    assert Call not in steps


@contextlib.contextmanager
def terminal(program, *arguments, size=(24, 80)):
    """A program at a terminal; gives it, what is written there, and what reads on until something shows."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    process = program.start_at(theirs, size[1], *arguments)
    os.close(theirs)
    shown = ""

    def until(text, within=25.0):
        nonlocal shown
        deadline = time.monotonic() + within
        while not re.search(text, shown):
            assert time.monotonic() < deadline, shown
            if select.select([ours], [], [], 0.1)[0]:
                with contextlib.suppress(OSError):
                    shown += os.read(ours, 65536).decode()
        before, shown = shown, ""
        return before

    try:
        yield process, ours, until
        # What it writes at its end must be read, or it waits.
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            if select.select([ours], [], [], 0.1)[0]:
                with contextlib.suppress(OSError):
                    shown += os.read(ours, 65536).decode()
        assert process.wait(1) == 0
    finally:
        process.kill()
        process.wait(30)
        os.close(ours)


@pytest.mark.parametrize("end", ["q", "Ctrl-C"])
def test_it_is_live_at_a_terminal_of_80_columns_and_ends_cleanly(defined, end):
    defined.publish(1)
    with terminal(defined, "top", "--interval", "0.2s") as (process, keys, until):
        # Given the first screen
        shown = until("other ")
        assert "by depth" in shown
        lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown).splitlines()
        assert max(map(len, lines)) <= 80

        # When keys are pressed, then the order changes
        os.write(keys, b"s")
        until("by ready")
        os.write(keys, b"r")
        until("by depth")

        # Then it ends as one ends it
        if end == "q":
            os.write(keys, b"q")
        else:
            process.send_signal(signal.SIGINT)
