"""A command line written for one instance does the same at an address with partitions, with each of its options.

Each scene is run at an instance without partitions and at one with them. What it gives has no order of messages of
different keys and no names of instances. A test looks for every option of every command that works with all partitions.
"""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import click
import pytest
from observing import eventually
from programs import Called, Program
from test_partitioned_commands import MERGED

import ampsq
from ampsq.cli.main import program
from ampsq.files.config import load

FILE = """
topics:
  - name: orders
    partition_by: /customer
  - name: states
    key: /id
queues:
  - name: work
    underlying_topic: orders
    lease_period: 30s
    max_per_subscription_backlog: 10
  - name: again
    underlying_topic: orders
    max_per_subscription_backlog: 10
  - name: dead
    max_per_subscription_backlog: 10
  - name: mail
    underlying_topic: letters
    group_by: /group
actions:
  - dead_letter: {queue: work, topic: dead}
"""
HANDLERS = """
async def handle(message):
    print(message.data["id"], flush=True)
"""
#: Options that every command has, and those that begin a service, which `tests/cli/test_services.py` and others call.
OF_ALL = {"--url", "--instance", "--data-dir", "--json", "--output", "--watch", "--help", "--failover"}
SERVICES = {"coordinator", "gateway", "up"}
#: Of a worker, what is about its process.
OF_PROCESS = {"--reload", "--trace", "--advised", "--processes", "--verbose"}
SCENES = {}
_numbers = iter(range(1, 1_000))


def scene(function):
    """Put a scene into the table."""
    SCENES[function.__name__] = function
    return function


def orders(number):
    return [{"customer": f"c{each % 7}", "id": each} for each in range(number)]


def ids(result):
    """Return the numbers of the messages that were printed."""
    return sorted(each["data"]["id"] for each in result.json)


def depth(run, queue="work"):
    return run("queues", queue, "--json").json[0]["depth"]


@scene
def publishing(run):
    run("publish", "orders", '{"customer": "a", "id": 1}', "--header", "h=1", "--expiration", "1h", "--group", "g")
    run("publish", "orders", '{"customer": "a", "id": 2}', "--delay", "1h")
    run("publish", "orders", '{"customer": "a", "id": 3}', "--at", "2099-12-24T18:00Z")
    run("publish", "notes", "any text", "--text")
    (run.folder / "o.jsonl").write_text("".join(json.dumps(each) + "\n" for each in orders(20)))
    run("publish", "orders", '{"customer": "a", "id": 4}', "--key", "b")
    told = [run("publish", "orders", "--file", "o.jsonl").out, run("publish", "orders", "-", stdin='{"id": 9}').out]
    told = [each.partition(" in ")[0] for each in told]
    run("publish", "orders", "--file", "o.jsonl", "--publisher", "till", "--store", "t.db", "--persisted", "memory")
    run("publish", "states", '{"id": 7, "qty": 1}')
    run("publish", "states", '{"id": 7, "more": 1}', "--delta")
    (work,) = run("queues", "work", "--json").json
    (topic,) = [each for each in run("topics", "--json").json if each["topic"] == "orders"]
    publishers = {each["name"] for each in run("publishers", "--json").json}
    return [told, work["depth"], work["scheduled"], topic["messages"], sorted(publishers)]


@scene
def consuming(run):
    run.publish(*orders(30))
    taken = [ids(run("subscribe", "work", "--max-backlog", "5", "--count", "30", "--filter", "/id >= 0", "--json"))]
    run.publish(*orders(6))
    taken += [
        len(run("subscribe", "work", "--max-backlog", "4", "--count", "2", "--no-ack", "--json").json),
        len(run("subscribe", "work", "--count", "2", "--ack", "--json").json),
        len(run("subscribe", "work", "--count", "1", "--cancel", "--reason", "again", "--json").json),
        len(run("subscribe", "work", "--count", "1", "--expire", "--reason", "never", "--json").json),
        len(run("subscribe", "work", "--timeout", "300ms", "--json").json),
    ]
    return [*taken, depth(run), depth(run, "again")]


@scene
def settling(run):
    one, two, *_ = run.publish(*orders(12))
    return [
        run("ack", "work", one).out,
        run("ack", "work", two, "--expire", "--reason", "void").out,
        run("ack", "work", "--filter", "/id > 5", "--dry-run").out,
        run("ack", "work", "--filter", "/id > 5", "--expire", "--yes").out,
        run("ack", "work", "--filter", "/id > 3", "--cancel", "--yes").out,
        run("ack", "work", "--filter", "/id > 3", "--yes").out,
        depth(run),
        run("explain", "work", "--json").json[0]["state"],
        [each["event"] for each in run("history", one, "--json").json[0]["events"]],
    ]


@scene
def dead_letters(run):
    bookmarks = run.publish(*orders(12))
    run("ack", "work", *bookmarks, "--expire", "--reason", "bad")
    eventually(lambda: len(run("dead-letters", "list", "dead", "--json").json) == 12)
    chosen = ["--source", "work", "--reason", "forced_expire", "--filter", "/message/id < 9"]
    letters = run("dead-letters", "list", "dead", *chosen, "--top", "20", "--json").json
    by_id = {each["data"]["id"]: each["bookmark"] for each in letters}
    shown = run("dead-letters", "show", "dead", by_id[3], "--json").json[0]["data"]
    given = [
        sorted(by_id),
        shown,
        run("dead-letters", "redrive", "dead", *("--source", "work"), "--dry-run").out,
        run("dead-letters", "redrive", "dead", *("--filter", "/message/id = 8", "--to", "again"), "--yes").out,
        run("dead-letters", "redrive", "dead", by_id[3]).out,
        run("dead-letters", "edit", "dead", by_id[4], "--data", '{"customer": "e", "id": 99}').out,
        run("dead-letters", "edit", "dead", by_id[5], "--data", "no json", "--text", "--to", "again").out,
        run("dead-letters", "drop", "dead", by_id[6]).out,
        run("dead-letters", "drop", "dead", "--filter", "/message/id = 7", *("--source", "work"), "--dry-run").out,
        run("dead-letters", "drop", "dead", "--filter", "/message/id = 7", *("--reason", "forced_expire"), "--yes").out,
        run("dead-letters", "redrive", "dead", "--reason", "forced_expire", "--rate", "500/s", "--yes").out,
    ]
    return [*given, depth(run), len(run("sow", "work", "--filter", "/id = 99", "--json").json)]


@scene
def groups(run):
    with run.client() as client:
        client.publish_many("letters", [{"group": f"g{n % 3}"} for n in range(30)], key=lambda each: each["group"])
    return [
        run("groups", "mail", "--pause", "g1").out,
        [(each["group"], each["waiting"] <= 10) for each in run("groups", "mail", "--top", "1", "--json").json],
        run("groups", "mail", "--resume", "g1").out,
        run("groups", "mail", "--release", "g2").err,
        run("groups", "mail", "--drop", "g1", "--dry-run").out,
        run("groups", "mail", "--drop", "g1", "--reason", "void", "--yes").out,
        depth(run, "mail"),
    ]


@scene
def records(run):
    run.publish(*({"id": number, "qty": number % 3} for number in range(12)), topic="states")
    moment = "2099-01-01T00:00:00Z"
    found = run(
        "sow", "states", *("--filter", "/qty > 0"), "--order-by", "/id DESC", "--top", "3", "--skip", "1", "--json"
    )
    given = [
        [each["data"]["id"] for each in found.json],
        run("sow", "states", "--key", "7", "--json").json[0]["data"],
        run("sow", "states", "--count").out,
        run("sow", "states", "--count", "--at", moment).out,
        ids(run("sow", "states", "--follow", "--timeout", "300ms", "--conflation", "50ms", "--json")),
        run("sow-delete", "states", "--filter", "/qty = 0", "--dry-run").out,
        run("sow-delete", "states", "--filter", "/qty = 0", "--yes").out,
        run("sow-delete", "states", "--key", "7").out,
        run("sow-delete", "states", "--data", '{"id": 8}').out,
    ]
    return [*given, run("sow", "states", "--count").out]


@scene
def topics(run):
    run.publish(*orders(20))
    run.publish(*({"id": 1, "qty": number} for number in range(20)), topic="states")

    def read(*options, end=("--timeout", "300ms")):
        return ids(run("subscribe-topic", "orders", *options, *end, "--json"))

    given = [
        read("--bookmark", "epoch", "--filter", "/id < 9", "--rate", "1000", end=("--count", "9")),
        read("--bookmark", "[epoch:now)", "--rate", "1X", "--rate-max-gap", "1ms", "--not-found", "epoch", end=()),
        len(read("--sub-id", "audit", "--store", "b.db", end=("--count", "8"))),
        len(read("--sub-id", "audit", "--store", "b.db", "--no-ack")),
        len(read("--sub-id", "audit", "--store", "b.db")),
        run("subscribe-topic", "orders", "--bookmark", "epoch", "--fully-durable", "--count", "20", "--json").code,
        run(
            "subscribe-topic", "states", *("--conflation", "50ms"), "--conflation-key", "/id", "--timeout", "100ms"
        ).out,
    ]
    tailed = run("tail", "orders", "--bookmark", "epoch", "--filter", "/id < 9", *("--count", "9", "--timeout", "5s"))
    return [*given, len(tailed.out.splitlines())]


@scene
def definitions(run):
    (run.folder / "q.yaml").write_text("queues:\n  - {name: again, underlying_topic: orders}\n")
    exported = run("config", "export").out
    (run.folder / "same.yaml").write_text(exported)
    return [
        run("config", "check", "q.yaml").out,
        # One without partitions has a definition of itself, too.
        run("config", "diff", "same.yaml").out.partition(":")[0],
        run("config", "diff", "q.yaml", "--prune", code=1).out,
        run("apply", "q.yaml", "--dry-run").out,
        run("apply", "q.yaml", "--prune", "--dry-run").out,
        run("apply", "q.yaml", "--yes").out,
        re.sub(r"\Aname: .*\n", "", run("config", "export", "--secrets").out),
        run("config", "schema").out,
    ]


@scene
def care(run):
    run.publish(*orders(30))
    counted = run("keys", "--hot", "work", "--newest", "1000", "--top", "3", "--json").json
    run("subscribe", "work", "--max-backlog", "9", "--count", "20")
    run("ack", "again", "--filter", "/id >= 0", "--yes")
    checked = run("check", "work", "--repair", "--json").json
    run("check", "work", "--rebuild", "--json")
    trimmed = [
        run("trim", "orders", "--age", "0s", "--dry-run", "--json").json[0]["topic"],
        run("trim", "orders", "--age", "0s", "--yes", "--json").json[0]["topic"],
    ]
    (top,) = [e for e in run("top", "--once", "--interval", "0.1s", "--json").json[0]["queues"] if e["queue"] == "work"]
    run("top", "work", "--once", "--interval", "0.1s", "--json")
    sorted_by = run(
        "top", "--once", "--interval", "0.1s", "--sort", "depth", *("--filter", "wo"), "--top", "1", "--json"
    )
    (row,) = sorted_by.json[0]["queues"]
    doctor = {each["check"] for each in run("doctor", "--interval", "0.1s", "--json").json if not each["well"]}
    return [
        *(all(each["clean"] for each in checked), sum(each["messages"] for each in checked), trimmed),
        *(top["ready"], top["leased"], top["subscriptions"], row["queue"], sorted(doctor)),
        sorted(each["messages"] for each in counted if each["of"] == "key"),
        *(run("functions", "list", "--json").code, run("upgrade", "--dry-run").code, run("upgrade", "--yes").code),
        *(run("readers").err, len(run("coordinators", "--json").json) > 0),
    ]


@scene
def actions(run):
    with run.client() as client:
        steps = [ampsq.Do.extract(value="TO=/to"), ampsq.Do.publish(topic="{{TO}}", data="{{AMPS_DATA}}")]
        client.apply(ampsq.Action(name="route", on=ampsq.On.publish(topic="orders"), do=steps))
    run.publish(*({**each, "to": "no name"} for each in orders(6)))

    def failed():
        (route,) = [each for each in run("actions", "--json").json if each["name"] == "route"]
        return route["failed"]

    eventually(lambda: failed() == 6)
    first, second, *_ = [str(each["event"]) for each in run("actions", "failed", "route", "--json").json]
    return [
        run("actions", "show", "route").code,
        run("actions", "drop", "route", "--event", first).out,
        run("actions", "drop", "route", "--all", "--dry-run").out,
        run("actions", "retry", "route", "--event", second).out,
        run("actions", "retry", "route", "--all").code,
        run("actions", "drop", "route", "--all", "--yes").code,
    ]


def found_by(scene, kind, folder, url):
    """Run a scene on an instance of its own, with the definitions above."""
    run = kind(folder, url, f"one{next(_numbers)}")
    try:
        with run.client() as client:
            client.apply(*load(FILE))
        return scene(run)
    finally:
        run.close()


@pytest.mark.parametrize("name", SCENES)
def test_a_command_line_does_the_same_with_all_partitions(name, folder, served):
    (folder / "0").mkdir()
    (folder / "1").mkdir()
    found, of_partitions = (
        found_by(SCENES[name], Called, folder / str(number), f"{served.url}{suffix}")
        for number, suffix in enumerate(("", "?partitions=4"))
    )

    assert of_partitions == found


def working(run):
    (run.folder / "handlers.py").write_text(HANDLERS)
    run.publish(*orders(20))
    worker = run.start(
        *("worker", "handlers:handle", "--queue", "work", "--filter", "/id >= 0", "--concurrency", "3"),
        *("--max-backlog", "6", "--stop-timeout", "5s", "--cancel-delay", "1s", "--on-invalid", "expire"),
        *("--time-limit", "10s", "--log-format", "json"),
    )
    handled = sorted(int(worker.stdout.readline()) for _ in range(20))
    return handled, run.end(worker).code


def test_a_worker_does_the_same_with_all_partitions(folder, served):
    (folder / "0").mkdir()
    (folder / "1").mkdir()
    found, of_partitions = (
        found_by(working, Program, folder / str(number), f"{served.url}{suffix}")
        for number, suffix in enumerate(("", "?partitions=4"))
    )

    assert of_partitions == found == (list(range(20)), 0)


def _used():
    """Return the options that the scenes give to each command."""
    found = {}
    for node in ast.walk(ast.parse(Path(__file__).read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("run", "run.start", "read"):
            texts = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
            words = [each for each in texts if isinstance(each, str)]
            command = "subscribe-topic" if ast.unparse(node.func) == "read" else words[0]
            found.setdefault(command, set()).update(each for each in words if each.startswith("-"))
    return found


def _options(command):
    """Return the options of a command and of those below it."""
    if isinstance(command, click.Group):
        return set().union(*map(_options, command.commands.values()))
    options = [each for each in command.params if isinstance(each, click.Option)]
    return {max(each.opts, key=len) for each in options} - OF_ALL


def test_every_option_of_every_command_is_used():
    used, context = _used(), click.Context(program)
    missing = {}
    for name in MERGED - SERVICES:
        left = _options(program.get_command(context, name)) - used.get(name, set()) - OF_PROCESS
        if left:
            missing[name] = left

    assert missing == {}
