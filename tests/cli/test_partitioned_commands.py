"""Every command where all partitions of an instance are asked for: it works with all, or refuses and says why."""

# Long: one scene, an instance with partitions, with every command.

from __future__ import annotations

import json

import click
import httpx
import pytest
from cases import first_ones
from observing import eventually
from programs import Called, Program

import ampsq
import ampsq.files.config
from ampsq.base.partitions import partition_of_key, partitions_of
from ampsq.catalog.partitioned import Intent
from ampsq.cli.main import COMMANDS
from ampsq.cli.names import names
from ampsq.gateway.users import Secret

TOTAL = 4
FILE = """
topics:
  - name: orders
    partition_by: /customer
queues:
  - name: work
    underlying_topic: orders
    lease_period: 30s
    max_per_subscription_backlog: 10
  - name: dead
    max_per_subscription_backlog: 10
actions:
  - dead_letter: {queue: work, topic: dead}
"""
BOOKMARK = "orders~one.t6w1xka~1763640000000-0"
#: Commands that work with one instance alone, each with what it needs to come as far as the server.
REFUSED = {
    "views": [],
    "replication": [],
}
#: Commands that work with all partitions; the tests below call each of them.
MERGED = {
    "apply",
    "config",
    "topics",
    "queues",
    "groups",
    "explain",
    "history",
    "check",
    "doctor",
    "keys",
    "top",
    "trim",
    "publishers",
    "readers",
    "actions",
    "publish",
    "sow",
    "sow-delete",
    "subscribe",
    "subscribe-topic",
    "tail",
    "ack",
    "dead-letters",
    "worker",
    "coordinator",
    "coordinators",
    "gateway",
    "functions",
    "upgrade",
    "up",
}
#: Commands that ask no instance.
ELSEWHERE = {"demo", "init", "acl", "bench", "completion", "version"}
_numbers = iter(range(1, 1_000))


def _on_partitions(kind, folder, served):
    program = kind(folder, f"{served.url}?partitions={TOTAL}", f"p{next(_numbers)}")
    with program.client() as client:
        client.apply(*ampsq.files.config.load(FILE))
    return program


@pytest.fixture
def run(folder, served):
    """The program on an instance with partitions, of a server with a coordinator, in this process."""
    program = _on_partitions(Called, folder, served)
    yield program
    program.close()


@pytest.fixture
def process(folder, served):
    """The same, each command a process of its own."""
    program = _on_partitions(Program, folder, served)
    yield program
    program.close()


def orders(number):
    return [{"customer": f"c{each % 7}", "id": each} for each in range(number)]


def test_every_command_is_looked_at():
    assert MERGED | set(REFUSED) | ELSEWHERE == {*COMMANDS}


@pytest.mark.parametrize("command", REFUSED)
def test_a_command_of_one_instance_says_so_and_names_those_that_there_are(run, command):
    partitions = partitions_of(run.environment["AMPSQ_INSTANCE"], TOTAL)

    result = run(command, *REFUSED[command], code=2)

    assert f"ampsq {command}" in result.err
    assert "works at one instance, and partitions=4 asks for all partitions" in result.err
    assert f"--instance with one of them: {partitions[0].instance} ... {partitions[3].instance}" in result.err
    assert result.out == ""


def test_an_address_without_partitions_is_told_of_them(run):
    run.environment["AMPSQ_URL"] = run.environment["AMPSQ_URL"].partition("?")[0]

    result = run("queues", code=2)

    assert "has 4 partitions, which hold what it has; allowed: ?partitions=4 in the address" in result.err
    one = partitions_of(run.environment["AMPSQ_INSTANCE"], TOTAL)[1].instance
    assert [each["name"] for each in run("queues", "--json", "--instance", one).json] == ["dead", "work"]


HOT = 2
SHORT = ("doctor", "--interval", "0.1s")


def key_in(number, *others):
    """A key of a partition, unlike others."""
    return next(key for key in map("k{}".format, range(1_000)) if partition_of_key(key, TOTAL) == number
                and key not in others)  # fmt: skip


def test_the_doctor_looks_at_all_partitions_and_names_the_one_where_something_is_wrong(run):
    hot = partitions_of(run.environment["AMPSQ_INSTANCE"], TOTAL)[HOT]
    told = run(*SHORT, "--json").json
    assert all(each["well"] for each in told)
    (placed,) = [each for each in told if each["check"] == "partitions"]
    assert placed["text"].startswith("4 of 4 partitions answer: 4 at ")
    assert [each["text"] for each in told if each["check"] == "definitions"] == ["all partitions have version 1"]

    # Given a dead letter in one partition
    with run.client() as client:
        letter = client.publish("orders", {"customer": key_in(HOT), "id": 1})
        client.ack("work", [letter], "expire")
        eventually(lambda: client.admin.dead_letters("dead"), within=20.0)
    wrong = [each for each in run(*SHORT, "--json", code=1).json if not each["well"]]

    # Then that one is named, and its command works at all of them
    (found,) = wrong
    assert (found["check"], found["partitions"]) == ("dead letters", [HOT])
    assert found["subject"] == f"topic dead in partition {HOT} ({hot.instance})"
    assert found["mend"] == "ampsq dead-letters list dead"
    assert f"WRONG  dead letters, topic dead in partition {HOT}" in run(*SHORT, code=1).out


def test_a_hot_partition_is_told_and_its_keys_are_counted(run):
    hot, cold = key_in(HOT), key_in(1)
    with run.client() as client:
        client.publish_many("orders", [{"customer": hot, "id": each} for each in range(1_100)], batch=500)
        # What is newer has a later millisecond: partitions have no other order.
        seconds, us = client.clients[0]._store.redis.time()
        eventually(lambda: client.clients[0]._store.redis.time() > (seconds, us + 1_000))
        client.publish_many("orders", [{"customer": cold, "id": each} for each in range(20)])
        client.publish("orders", {"id": 0}, group="a")

    wrong = [each for each in run(*SHORT, "--json", code=1).json if not each["well"]]
    assert {(each["check"], *each["partitions"]) for each in wrong} == {("skew", HOT)}
    assert {each["subject"].partition(" in ")[0] for each in wrong} == {"topic orders", "queue work"}
    assert {each["mend"].partition("  ")[0] for each in wrong} == {"ampsq keys --hot orders", "ampsq keys --hot work"}

    rows = run("keys", "--hot", "work", "--json").json
    partitions = {each["partition"]: each["messages"] for each in rows if each["of"] == "partition"}
    assert sum(partitions.values()) == 1_121
    assert partitions[HOT] >= 1_100
    keys = [(each["key"], each["partition"], each["messages"]) for each in rows if each["of"] == "key"]
    assert keys[:2] == [(hot, HOT, 1_100), (cold, 1, 20)]
    assert [key for key, *_ in keys[2:]] == [None]
    # Of the newest alone, those before are not there.
    newest = run("keys", "--hot", "orders", "--newest", "21", "--json").json
    assert [each["key"] for each in newest if each["of"] == "key"] == [cold, None]
    shown = run("keys", "--hot", "orders", "--top", "1").out.splitlines()
    assert shown[1].split()[0] == str(HOT)
    assert shown[-1].split()[:4] == [
        hot,
        str(HOT),
        partitions_of(run.environment["AMPSQ_INSTANCE"], TOTAL)[HOT].instance,
        "1100",
    ]
    assert "neither a queue nor a topic" in run("keys", "--hot", "ordrs", code=1).err


def test_what_is_half_defined_is_told_by_the_doctor(run):
    partitions = partitions_of(run.environment["AMPSQ_INSTANCE"], TOTAL)
    with run.client() as client:
        first = client.clients[0]
        intent = first._store.run(Intent.read(first.instance))
        first._store.run(intent.begin([ampsq.Topic(name="more")], []))
        first._store.run(first._session.make_so(first._store.run(Intent.read(first.instance))))
        # When one looks
        (found,) = [each for each in run(*SHORT, "--json", code=1).json if not each["well"]]
    # Then those that lack it are named
    assert (found["check"], found["subject"]) == ("definitions", f"instance {partitions[0].name}")
    assert "version 2 is not in all partitions yet: partitions 1, 2 and 3 lack it" in found["text"]
    run(*found["mend"].partition("#")[0].split()[1:])
    run(*SHORT)


def test_the_doctor_refuses_another_number_and_says_that_an_instance_has_partitions(run):
    url = run.environment["AMPSQ_URL"]
    assert "has 4 partitions, and 8 are asked for" in run(*SHORT, "--url", url.replace("=4", "=8"), code=1).err
    (found,) = [each for each in run(*SHORT, "--url", url.partition("?")[0], "--json", code=1).json if not each["well"]]
    assert (found["text"], found["mend"]) == (
        "it has 4 partitions, which hold what it has", "ampsq doctor --url 'ADDRESS?partitions=4'"
    )  # fmt: skip


def test_a_mistyped_instance_is_refused_and_another_number_too(run):
    assert "has no instance 'shopp'" in run("queues", "--instance", "shopp", code=2).err
    url = run.environment["AMPSQ_URL"].replace("partitions=4", "partitions=8")
    assert "has 4 partitions, and 8 are asked for" in run("queues", "--url", url, code=1).err


def test_a_file_is_applied_to_all_partitions_and_shows_what_differs(run, served):
    (run.folder / "q.yaml").write_text(FILE.replace("10\n", "20\n", 1))
    planned = run("apply", "q.yaml", "--dry-run")
    assert "max_per_subscription_backlog" in planned.out
    assert "max_per_subscription_backlog: 20" not in run("config", "export").out

    run("apply", "q.yaml", "--yes")

    assert "partition_by:" in run("config", "export").out
    for each in partitions_of(run.environment["AMPSQ_INSTANCE"], TOTAL):
        with ampsq.Client(served.url, instance=each.instance) as one:
            assert one.admin.queues()["work"].max_per_subscription_backlog == 20
    # A new instance is made by it.
    run("apply", "q.yaml", "--yes", "--instance", "fresh-one")
    assert [each["name"] for each in run("queues", "--json", "--instance", "fresh-one").json] == ["dead", "work"]
    (run.folder / "v.yaml").write_text("queues:\n  - {name: q, barrier_expression: '/end = 1'}\n")
    assert "a barrier would hold one partition" in run("apply", "v.yaml", "--dry-run", code=1).err


def test_messages_are_published_and_their_figures_are_those_of_all(run):
    run("publish", "orders", json.dumps({"customer": "c3", "id": 1}))
    (run.folder / "o.jsonl").write_text("".join(json.dumps(each) + "\n" for each in orders(50)))
    run("publish", "orders", "--file", "o.jsonl")
    till = ["--publisher", "till", "--store", str(run.folder / "t.db")]
    run("publish", "orders", "--file", "o.jsonl", *till)
    assert run("publish", "orders", '{"customer": "c3"}', *till, "--json").json[0].keys() == {"sequence", "partition"}

    (work,) = [each for each in run("queues", "--json").json if each["name"] == "work"]
    assert work["depth"] == 102
    assert "102" in run("queues", "work").out
    (topic,) = [each for each in run("topics", "--json").json if each["topic"] == "orders"]
    assert topic["messages"] == 102
    publishers = run("publishers", "--json").json
    assert {each["name"] for each in publishers} == {"till"}
    assert sum(each["sequence"] for each in publishers) == 51
    checked = run("check", "work", "--json").json
    assert [each["partition"] for each in checked] == list(range(TOTAL))
    assert all(each["clean"] for each in checked)
    shown = run("check", "work").out
    assert shown.startswith(f"work: clean in {TOTAL} partitions; ")
    assert shown.count("\n") == 1


@pytest.mark.parametrize("ways", [(), ("--publisher", "till"), ("--publisher", "till", "--store", "t.db")], ids=len)
def test_a_key_says_the_partition_of_one_message_and_of_all_lines_before_what_the_topic_says(run, ways):
    (run.folder / "o.jsonl").write_text("".join(json.dumps(each) + "\n" for each in orders(20)))
    ways = [str(run.folder / each) if each == "t.db" else each for each in ways]
    names = [each.instance for each in partitions_of(run.environment["AMPSQ_INSTANCE"], TOTAL)]

    told = run("publish", "orders", json.dumps(orders(1)[0]), "--key", key_in(1), *ways, "--json").json[0]
    run("publish", "orders", "--file", "o.jsonl", "--key", key_in(2), *ways)
    run("publish", "orders", "-", "--text", "--key", key_in(3), *ways, stdin="one\ntwo\n")

    if "--store" in ways:
        assert told["partition"] == 1
    else:
        assert told["bookmark"].split("~")[1].rpartition(".")[0] == names[1]
    with run.client() as client:
        found = [each.admin.topics().get("orders") for each in client.clients]
        assert [each.messages if each else 0 for each in found] == [0, 1, 20, 2]


def test_a_change_goes_to_the_record_of_the_key_with_which_it_was_published(run):
    (run.folder / "k.yaml").write_text("topics:\n  - {name: states, key: /id, partition_by: /region}\n")
    run("apply", "k.yaml", "--yes")
    run("publish", "states", '{"id": 7, "region": "east", "qty": 1}')
    run("publish", "states", '{"id": 7, "qty": 2}', "--delta", "--key", "east")
    (found,) = run("sow", "states", "--json").json
    assert found["data"] == {"id": 7, "region": "east", "qty": 2}
    assert "partition_by" in run("publish", "states", '{"id": 7, "qty": 3}', "--delta", code=1).err


def recorded(bookmark):
    """Return when a message was recorded, ms: several may be in the same one."""
    return bookmark.rpartition("~")[2].partition("-")[0]


def test_a_message_is_explained_told_and_settled_where_it_is(run):
    bookmarks = run.publish(*orders(10))

    assert run("explain", "work", bookmarks[3], "--json").json[0]["bookmark"] == bookmarks[3]
    assert run("history", bookmarks[4], "--json").json[0]["bookmark"] == bookmarks[4]
    assert run("ack", "work", bookmarks[3], bookmarks[4]).out == "acknowledged 2\n"
    assert run("ack", "work", "--filter", "/id < 3", "--yes").out == "acknowledged 3\n"
    # The next one of all is the oldest one, whatever its partition.
    following = run("explain", "work", "--json").json[0]["bookmark"]
    assert following in bookmarks[5:]
    assert recorded(following) == recorded(bookmarks[5])
    assert run("explain", "dead", "--json").json[0]["state"] == "empty"
    assert "nothing is known of a message" in run("history", f"{bookmarks[0].rpartition('-')[0]}-99", code=1).err
    assert "has no groups" in run("groups", "work", "--release", "alice", code=1).err
    assert run("groups", "work").out == ""


def test_groups_of_all_partitions_are_shown_and_one_that_is_in_several_counts_once(run):
    with run.client() as client:
        grouped = ampsq.Queue(name="grouped", underlying_topic="events", group_by="/group", group_concurrency=1)
        client.apply(grouped)
        for number in range(40):
            client.publish("events", {"group": f"g{number % 2}"}, key=f"k{number}")
        assert client.admin.pause_group("grouped", "g1")
        with client.subscribe("grouped", max_backlog=TOTAL) as messages:
            assert messages.get(timeout="30s") is not None

            parts = [state for each in client.clients for state in each.admin.groups("grouped").groups]
            found = run("groups", "grouped", "--json").json

        # Then the paused one comes first, and counts are those of all partitions
        assert [each["group"] for each in found] == ["g1", "g0"]
        assert len(parts) > len(found)
        assert found[0]["paused"] is not None
        for row in found:
            own = [state for state in parts if state.group == row["group"]]
            assert (row["leased"], row["waiting"]) == (
                sum(state.leased for state in own), sum(state.waiting for state in own)
            )  # fmt: skip
        assert found[1]["leased"] > 0
        assert len(run("groups", "grouped", "--top", "1", "--json").json) == 1


def test_a_topic_is_trimmed_in_all_partitions_also_where_it_is_in_some_alone(run):
    run.publish(*orders(12))
    run("subscribe", "work", "--max-backlog", "8", "--count", "12")
    run("publish", "loose", "1")

    eventually(lambda: "12 messages would" in run("trim", "orders", "--age", "0s", "--dry-run").out, within=20.0)
    assert run("trim", "orders", "--age", "0s", "--yes", "--json").json[0]["removed"] == 12
    assert run("trim", "loose", "--age", "0s", "--yes", "--json").json[0]["removed"] == 1
    assert "no such topic" in run("trim", "nothing", "--age", "0s", "--yes", code=1).err


def test_records_of_all_partitions_are_printed_changed_deleted_and_followed(run):
    (run.folder / "k.yaml").write_text("topics:\n  - {name: states, key: /id}\n")
    run("apply", "k.yaml", "--yes")
    run.publish(*({"id": number, "qty": number % 3} for number in range(12)), topic="states")
    run("publish", "states", '{"id": 7, "qty": 50}', "--delta")

    assert [each["key"] for each in run("sow", "states", "--order-by", "/id DESC", "--top", "3", "--json").json] == [
        *("11", "10", "9"),
    ]
    assert run("sow", "states", "--key", "7", "--json").json[0]["data"] == {"id": 7, "qty": 50}
    assert run("sow", "states", "--count").out == "12\n"
    followed = run("sow", "states", "--follow", "--timeout", "300ms", "--json").json
    assert sorted(int(each["key"]) for each in followed) == list(range(12))
    assert run("sow-delete", "states", "--filter", "/qty = 0", "--dry-run").out == "4\n"
    assert run("sow-delete", "states", "--filter", "/qty = 0", "--yes").out == "4\n"
    assert run("sow-delete", "states", "--data", '{"id": 7}').out == "1\n"
    assert run("sow", "states", "--count").out == "7\n"


def test_failed_events_of_an_action_are_those_of_all_partitions(run):
    with run.client() as client:
        steps = [ampsq.Do.extract(value="TO=/to"), ampsq.Do.publish(topic="{{TO}}", data="{{AMPS_DATA}}")]
        client.apply(ampsq.Action(name="route", on=ampsq.On.publish(topic="orders"), do=steps))
    run.publish(*({"customer": f"c{number}", "id": number, "to": "no name"} for number in range(8)))

    def route():
        return next(each for each in run("actions", "--json").json if each["name"] == "route")

    eventually(lambda: route()["failed"] == 8, within=20.0)
    failed = run("actions", "failed", "route", "--json").json
    assert sorted(json.loads(each["variables"]["AMPS_DATA"])["id"] for each in failed) == list(range(8))
    assert len({each["event"] for each in failed}) == 8
    assert [each["failed"] for each in failed] == sorted(each["failed"] for each in failed)
    # A number names one event, in its partition.
    third = str(failed[2]["event"])
    assert run("actions", "drop", "route", "--event", third).out == "1 dropped\n"
    left = [each["event"] for each in run("actions", "failed", "route", "--json").json]
    assert {*left} == {each["event"] for each in failed} - {int(third)}
    assert f"event {third} of route did not fail" in run("actions", "retry", "route", "--event", third, code=1).err
    assert run("actions", "retry", "route").out == "7 retried\n"
    assert run("actions", "drop", "route", "--all", "--yes").out == "7 dropped\n"
    assert route()["failed"] == 0
    assert "no subscriptions to topics report" in run("readers").err


def test_topics_of_all_partitions_are_read(run):
    run.publish(*orders(20))

    found = run("subscribe-topic", "orders", "--bookmark", "[epoch:now]", "--json").json
    assert sorted(each["data"]["id"] for each in found) == list(range(20))
    durable = ["subscribe-topic", "orders", "--sub-id", "audit", "--timeout", "300ms", "--json"]
    assert len(run(*durable, "--count", "8").json) == 8
    assert len(run(*durable).json) == 12
    for name in ("orders", "work"):
        assert len(run("tail", name, "--bookmark", "epoch", "--timeout", "300ms", "--json").json) == 20
    assert "did you mean 'orders'?" in run("tail", "orderz", code=1).err


def test_messages_of_all_partitions_are_printed(run):
    run.publish(*orders(20))

    result = run("subscribe", "work", "--max-backlog", "8", "--count", "20", "--json")

    assert sorted(each["data"]["id"] for each in result.json) == list(range(20))
    eventually(lambda: run("queues", "work", "--json").json[0]["depth"] == 0, within=10.0)


def test_dead_letters_of_all_partitions_are_listed_and_put_back(run):
    bookmarks = run.publish(*orders(12))
    run("ack", "work", *bookmarks, "--expire")
    eventually(lambda: len(run("dead-letters", "list", "dead", "--json").json) == 12, within=20.0)
    (letter, *_) = run("dead-letters", "list", "dead", "--json").json

    assert json.loads(run("dead-letters", "show", "dead", letter["bookmark"], "--json").out)["data"] == letter["data"]
    assert "redriven 1" in run("dead-letters", "redrive", "dead", letter["bookmark"]).out
    assert "redriven 11" in run("dead-letters", "redrive", "dead", "--yes").out
    assert run("queues", "work", "--json").json[0]["depth"] == 12


HANDLERS = """
import ampsq
import ampsq.files.config

app = ampsq.App(ampsq.Queue(name="dead"))

@app.handler("work")
def handle(message):
    print(f"{message.data['id']}\\n", end="", flush=True)

async def later(message):
    print(message.data["id"], flush=True)
"""


@first_ones(
    "options",
    [
        ("handlers:later", "--queue", "work"),
        ("handlers:handle", "--queue", "work", "--concurrency", "4", "--processes", "1"),
        ("handlers:handle", "--queue", "work"),
        ("handlers:app",),
    ],
    2,
)
def test_a_worker_handles_messages_of_all_partitions_until_it_is_stopped(process, options):
    (process.folder / "handlers.py").write_text(HANDLERS)
    process.publish(*orders(20))

    worker = process.start("worker", *options)
    handled = sorted(int(worker.stdout.readline()) for _ in range(20))
    ended = process.end(worker)

    assert handled == list(range(20))
    assert ended.code == 0
    with process.client() as client:
        figures = client.admin.queue_stats("work")
    assert (figures.depth, figures.leased, figures.subscriptions) == (0, 0, 0)


def test_a_coordinator_cares_for_all_partitions(process):
    instance = process.environment["AMPSQ_INSTANCE"]
    partitions = [each.instance for each in partitions_of(instance, TOTAL)]
    for command in (("coordinator", "--json"), ("up", "--json")):
        coordinator = process.start(*command)
        line = json.loads(coordinator.stdout.readline())
        assert process.end(coordinator).code == 0
        assert line["instances"] == partitions
        assert "partitions" not in line["url"]


@pytest.mark.parametrize(
    "command",
    [
        ["gateway", "--listen", "127.0.0.1:0", "--config", "gateway.yaml", "--json"],
        ["coordinator", "--gateway", "127.0.0.1:0", "--gateway-config", "gateway.yaml"],
    ],
)
def test_a_gateway_serves_all_partitions(process, command):
    rules = f"""
users: [{{name: till, secret: "{Secret.of("tea")}"}}]
entitlements: [{{user: till, name: "^.*$", rights: [read, write]}}]
"""
    (process.folder / "gateway.yaml").write_text(rules)
    instance = process.environment["AMPSQ_INSTANCE"]
    gateway = process.start(*command)
    if command[0] == "gateway":
        told = json.loads(gateway.stdout.readline())
        assert told["instance"] == instance
        address = told["gateway"]
    else:
        address = next(line for line in gateway.stderr if line.startswith("gateway  ")).split()[1]
    messages = [{"data": each} for each in orders(20)]
    given = {"json": {"topic": "orders", "messages": messages}, "auth": ("till", "tea"), "timeout": 90}
    bookmarks = httpx.post(f"{address}/v1/publish_many", **given).json()["bookmarks"]
    for message, bookmark in zip(messages, bookmarks, strict=True):
        number = partition_of_key(message["data"]["customer"], TOTAL)
        assert bookmark.split("~")[1].startswith(f"{instance}.{number}-")
    assert process.end(gateway).code == 0


def test_a_gateway_beside_a_coordinator_is_of_one_instance(process):
    (process.folder / "gateway.yaml").write_text("users: []\n")
    named = ["--instance", "one", "--instance", "two"]
    refused = process("coordinator", *named, "--gateway", "127.0.0.1:0", "--gateway-config", "gateway.yaml", code=2)
    assert "a gateway is of one instance, and 2 are named" in refused.err


def test_commands_of_the_server_look_at_it_and_one_of_formats_at_the_partitions(run):
    partitions = {each.instance for each in partitions_of(run.environment["AMPSQ_INSTANCE"], TOTAL)}

    assert partitions <= {name for each in run("coordinators", "--json").json for name in each["instances"]}
    assert run("functions", "list", "--json").json
    assert {each["instance"] for each in run("upgrade", "--dry-run", "--json").json} == partitions


def test_names_of_all_partitions_complete_arguments(run, monkeypatch):
    for name, value in run.environment.items():
        if name.startswith("AMPSQ_"):
            monkeypatch.setenv(name, value)
    complete = names("queues", "topics")
    assert complete(click.Context(click.Command("queues")), None, "") == ["dead", "orders", "work"]


def test_a_key_is_where_its_own_number_says(run):
    run("publish", "orders", json.dumps({"customer": "c3", "id": 1}))
    with run.client() as client:
        assert [each.admin.queue_stats("work").depth for each in client.clients] == [
            int(number == partition_of_key("c3", TOTAL)) for number in range(TOTAL)
        ]


def test_an_address_may_have_the_name_of_the_instance(run):
    instance = run.environment.pop("AMPSQ_INSTANCE")
    run.environment["AMPSQ_URL"] += f"#{instance}"
    run.publish(*orders(4))

    assert run("queues", "work", "--json").json[0]["depth"] == 4
    assert all(each["well"] for each in run(*SHORT, "--json").json)
    assert "4 of 4 partitions answer" in run(*SHORT).out
    run.environment["AMPSQ_URL"] += f",{run.environment['AMPSQ_URL'].partition('?')[0]}#other"
    assert "the addresses are of the instances" in run("queues", code=2).err
