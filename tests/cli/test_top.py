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

from ampsq import Client, Destination, Queue, Topic
from ampsq.cli.top_queue_view import QueueView
from ampsq.cli.top_view import TopView
from ampsq.operations.queue_survey import QueueSurveyor
from ampsq.operations.survey import Surveyor
from ampsq.protocol.calls.subscriptions import heartbeat
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


def measured(client, queue):
    """Tell the server what messages of a queue took, as clients do: 1,200 deliveries, 5 acknowledgements."""
    client._store.call(heartbeat(30_000, [], f"{queue}|1200000 12 1200|250000 7 5"))


def test_a_queue_is_shown_with_all_that_is_known_of_it(defined):
    # Given a queue with a message that is held, one that waits, one that was given up, and figures of clients
    defined.publish(*range(4))
    with defined.client() as client, client.subscribe("work", max_backlog=1, filter="/id IS NULL") as messages:
        client.apply(Queue(name="letters", underlying_topic="dead"))
        client.publish("dead", {"a": "letter"})
        measured(client, "work")
        held = messages.get(timeout="30s")
        held.report(0.4, "page 40 of 100")

        # When one looks
        (found,) = defined("top", "work", *ONCE, "--json").json
        text = defined("top", "work", *ONCE).out

    # Then all of it is there
    assert (found["queue"], found["depth"], found["ready"], found["leased"], found["delayed"]) == ("work", 4, 3, 1, 0)
    assert (found["in_per_second"], found["out_per_second"]) == (0, 0)
    assert 0 < found["oldest"] < 60
    assert found["dead_letters"] == {"letters": 1}
    assert (found["latencies"]["delivery"]["samples"], found["latencies"]["handling"]["samples"]) == (1200, 5)
    assert found["latencies"]["delivery"]["p95"] == pytest.approx(9.75)
    assert (found["next"]["state"], found["next"]["reason"]) == ("waiting", "backlogs_full")
    (subscription,) = found["subscriptions"]
    assert (subscription["leased"], subscription["max_backlog"], subscription["state"]) == (1, 1, "full")
    assert subscription["filter"] == "/id IS NULL"
    assert [(each["done"], each["said"]) for each in found["progress"]] == [(0.4, "page 40 of 100")]
    assert found["groups"] == []
    lines = text.splitlines()
    assert lines[0].split("   ")[2:5] == ["depth 4", "oldest " + lines[0].split("oldest ")[1].split()[0], "ready 3"]
    assert "dead letters in letters 1" in " ".join(lines[:3])
    assert any(re.match(r"delivery  p50 7.5 s   p95 9.8 s   p99 9.9 s   \(1,200 measured", line) for line in lines)
    assert any(line.startswith("next      ") for line in lines)
    assert found["next"]["sentence"].split()[0] in text
    assert all(len(line) <= 80 for line in lines[:6])


def test_rates_of_a_queue_are_those_between_two_surveys(defined):
    view, surveys = QueueView("work", 10), []
    with defined.client() as client, client._store.pipeline() as channel:
        surveyor = QueueSurveyor(client, "work")
        for _ in range(2):
            surveys.append(client._store.run(surveyor.read(channel)))
            view.take(surveys[-1])
            if len(surveys) == 1:
                assert view.as_dict()["in_per_second"] is None
                for number in range(10):
                    client.publish("orders", number)
                client.ack("work", filter="/id IS NULL")
                time.sleep(0.05)  # rates are of a time

    seconds = (surveys[1].at - surveys[0].at) / 1000
    shown = view.as_dict()
    assert (shown["in_per_second"], shown["out_per_second"]) == (round(10 / seconds, 1),) * 2


def test_groups_of_a_queue_are_shown_those_first_that_stand_still(run):
    with run.client() as client:
        client.apply(Queue(name="tenants", underlying_topic="in", group_by="/g", on_group_failure="stop"))
        client.publish_many("in", [{"g": each} for each in ("alice", "alice", "bob", "bob", "bob")])
        with client.subscribe("tenants", max_backlog=1) as held:
            held.get(timeout="30s").expire()
            held.flush()
            assert held.get(timeout="30s").data == {"g": "bob"}
            (found,) = run("top", "tenants", *ONCE, "--json").json
            text = run("top", "tenants", *ONCE).out

    assert [(each["group"], each["waiting"]) for each in found["groups"]] == [("alice", 1), ("bob", 2)]
    assert 0 <= found["groups"][0]["stopped"] < 60
    assert found["groups"][1]["stopped"] is None
    assert 0 < found["groups"][1]["oldest"] < 60
    assert "group  leased  waiting  failed  stopped  paused  oldest" in text


def test_an_unknown_queue_is_refused_with_what_was_meant(defined):
    assert "did you mean 'work'?" in defined("top", "wrok", *ONCE, code=1).err
    assert "is a topic; its queues are" in defined("top", "orders", *ONCE, code=1).err


def test_what_chooses_among_queues_is_refused_beside_the_name_of_one(defined):
    for option in (("--sort", "in"), ("--filter", "w")):
        told = defined("top", "work", *ONCE, *option, code=2).err
        assert f"{option[0]} is for the list of queues; leave it or QUEUE out" in told


def test_all_partitions_are_watched_as_one_and_each_by_its_name(run):
    # Given messages in both partitions, and a subscription to all that holds some of each
    address = run.environment["AMPSQ_URL"]
    queue = Queue(
        name="work", underlying_topic="orders", lease_period="30s", group_by="/group", group_concurrency=100,
        max_per_subscription_backlog=100,
    )  # fmt: skip
    with Client(address, partitions=2, instance="shop") as client:
        client.apply(queue)
        for number, key in enumerate(["a", "b", "c", "d", "e", "f"] * 2):
            client.publish("orders", {"group": "same", "id": number}, key=key)
        with client.subscribe("work", max_backlog=100) as messages:
            held = [messages.get(timeout="30s") for _ in range(12)]
            held[0].report(0.5, "half of it")
            messages.flush()
            parts = [each.admin.queue_stats("work").leased for each in client.clients]

            # When one looks at the whole, and at a part
            whole = ("--url", f"{address}?partitions=2", "--instance", "shop")
            (listed,) = run("top", *ONCE, "--json", *whole).json
            (found,) = run("top", "work", *ONCE, "--json", *whole).json
            (one,) = run("top", "work", *ONCE, "--json", "--instance", client.partitions[0]).json

    # Then counts are sums, and the subscription and the group are rows alone
    assert min(parts) > 0
    (row,) = [each for each in listed["queues"] if each["queue"] == "work"]
    assert (row["leased"], found["leased"], one["leased"]) == (12, 12, parts[0])
    for shown in (listed, found):
        (subscription,) = shown["subscriptions"]
        assert (subscription["leased"], subscription["max_backlog"]) == (12, 100)
        assert [each["said"] for each in shown["progress"]] == ["half of it"]
    assert [(each["group"], each["leased"]) for each in found["groups"]] == [("same", 12)]
    assert 0 < found["oldest"] < 60
    assert found["next"]["sentence"]


@pytest.mark.parametrize("width", [40, 80, 120])
def test_a_queue_fits_narrow_and_wide_screens(defined, width):
    defined.publish(*range(5))
    view = QueueView("work", 10)
    with (
        defined.client() as client,
        client.subscribe("work", max_backlog=2) as held,
        client._store.pipeline() as channel,
    ):
        assert held.get(timeout="30s") is not None
        measured(client, "work")
        view.take(client._store.run(QueueSurveyor(client, "work").read(channel)))
    drawn = Console(file=io.StringIO(), width=width)
    drawn.print(view.screen("nyc-1  queue work", width, 24))
    lines = drawn.file.getvalue().splitlines()

    assert max(map(len, lines)) <= width
    assert len(lines) <= 24
    heads = next(line.split() for line in lines if line.startswith("subscription "))
    assert heads == ["subscription", *(["client"] if width > 60 else []), "leased", "max", "state",
                     *(["filter"] if width > 60 else [])]  # fmt: skip
    assert not any(line.rstrip().endswith("…") for line in lines[: lines.index("")])


def test_a_wide_screen_has_the_percentiles_of_each_queue(defined):
    with defined.client() as client, client._store.pipeline() as channel:
        client.publish("orders", 1)
        client.ack("work", client.publish("orders", 2))
        with client.subscribe("work") as held:
            held.get(timeout="30s").ack(wait=True)
        measured(client, "work")
        view = TopView("name", 10, None)
        view.take(client._store.run(Surveyor(client.instance).read(channel, view.chosen)))
    drawn = Console(file=io.StringIO(), width=120)
    drawn.print(view.screen("top", 120, 20))
    lines = drawn.file.getvalue().splitlines()

    assert re.search(r"subs delivery p95 handling p95$", lines[2].rstrip())
    assert re.search(r" 0 +9\.\d s +\d+ m?s$", lines[4].rstrip())
    other, work = view.tables()["queues"]
    assert (other["delivery_p95"], other["handling_p95"]) == (None, None)
    assert work["delivery_p95"] > 9


def test_a_queue_is_live_at_a_terminal_until_it_is_left_or_removed(defined):
    with terminal(defined, "top", "work", "--interval", "0.2s") as (_, keys, until):
        shown = until("Nothing is waiting|has no message|next ")
        assert "queue work" in shown
        defined.publish(1)
        until("depth 1")
        os.write(keys, b"s")
        os.write(keys, b"q")
    program = defined.start("top", "work", "--interval", "0.2s", "--json")
    assert "work" in program.stdout.readline()
    with defined.client() as client:
        client.admin.remove(client.admin.actions()["dead-letter-work"].definition, client.admin.queues()["work"])
    _, told = program.communicate(timeout=60)
    assert program.returncode == 1
    assert "'work' is no queue" in told
