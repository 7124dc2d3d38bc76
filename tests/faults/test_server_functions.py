"""Hot scripts as server functions, through all that may happen to them: nothing is lost, doubled or left over."""
# Long: all that may happen to functions, each on a server of its own.

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import threading

import pytest
import redis
from click.testing import CliRunner
from cluster_harness import Cluster
from draining import KINDS, define, drain
from evidence import Evidence
from observing import eventually
from scene import take_ahead

from ampsq import AsyncClient, Client, Topic
from ampsq.base.errors import (
    FormatMismatch,
    MissingKey,
    NotPermitted,
    ScriptBug,
    ServerFull,
    UnknownQueue,
    UnknownSubscription,
    UnknownTopic,
)
from ampsq.cli.main import program
from ampsq.operations.functions import functions_at, keep_functions, load_functions, remove_others
from ampsq.operations.roles import ROLES, rules, server_rules
from ampsq.protocol.functions import library
from ampsq.protocol.request import script_call
from ampsq.protocol.schema import FORMAT, key
from ampsq.transport import known_functions
from ampsq.transport.discovery import slot_of
from ampsq.transport.store import Store

pytestmark = pytest.mark.default_user(reason="loads functions, which no role may, and makes users itself")

NUMBERS = range(200)


@pytest.fixture(autouse=True)
def _functions_on(monkeypatch):
    """Every call of a hot script is one of a function, the first one, too."""
    monkeypatch.setenv("AMPSQ_FUNCTIONS", "on")
    monkeypatch.setattr(known_functions, "_FEW", 0)


@pytest.fixture(params=KINDS)
def loaded(request, start_server):
    """A server of the test's own that has the functions."""
    server = start_server(request.param)
    load(server.url)
    return server


def bare(start_server, kind="valkey"):
    """A server of the test's own that has no functions."""
    server = start_server(kind)
    ask(server, "FUNCTION", "FLUSH")
    return server


def load(url):
    with contextlib.closing(Store(url, "")) as store:
        return store.run(load_functions())


def calls(server):
    """Return the number of calls of functions and scripts."""
    with contextlib.closing(server.client(protocol=2)) as plain:
        stats = plain.info("commandstats")
    counted = {name: stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("fcall", "eval", "evalsha")}
    return counted["fcall"], counted["eval"] + counted["evalsha"]


def ask(server, *words):
    with contextlib.closing(server.client()) as plain:
        return plain.execute_command(*words)


def test_messages_are_published_delivered_and_settled_by_functions(loaded, connect, evidence_of):
    # Given a server with functions, and a client
    client = connect(loaded.url)
    define(client)

    # When messages go their way
    for number in NUMBERS:
        client.publish("orders", number)
    with client.subscribe("work", max_backlog=10) as messages:
        assert drain(messages, len(NUMBERS)) == list(NUMBERS)

    # Then functions did it, and what is recorded is what it is with scripts
    functions, sent = calls(loaded)
    assert functions > len(NUMBERS)
    assert functions > sent
    evidence_of(client).check("orders", "work", NUMBERS)
    assert all(report.clean for report in client.admin.check())


def test_asyncio_calls_functions_too(loaded, connect, instance):
    define(connect(loaded.url))

    async def work():
        async with AsyncClient(loaded.url, instance=instance) as client:
            for number in range(20):
                await client.publish("orders", number)
            async with client.subscribe("work", max_backlog=10) as messages:
                found = []
                while len(found) < 20 and (message := await messages.get(20)) is not None:
                    found.append(message.data)
                    await message.ack()
        return found

    before, _ = calls(loaded)
    assert asyncio.run(work()) == list(range(20))
    assert calls(loaded)[0] - before >= 20


@pytest.mark.parametrize("is_async", [False, True])
def test_a_consumer_whose_connection_always_has_something_in_flight_calls_functions_too(
    loaded, connect, instance, monkeypatch, is_async
):
    # Given that functions are looked for after a few calls, as by default
    monkeypatch.setattr(known_functions, "_FEW", 9)
    client = connect(loaded.url)
    define(client)
    client.publish_many("orders", range(3_000))

    async def work():
        found = []
        async with (
            AsyncClient(loaded.url, instance=instance) as consumer,
            consumer.subscribe("work", max_backlog=100) as messages,
        ):
            take_ahead(messages)
            while len(found) < 3_000 and (message := await messages.get(20)) is not None:
                found.append(message.data)
                await message.ack()
        return found

    # When it takes and acknowledges without a pause, so that the next call is sent before the last is answered
    before, sent_before = calls(loaded)
    if is_async:
        assert asyncio.run(work()) == list(range(3_000))
    else:
        with client.subscribe("work", max_backlog=100) as messages:
            assert drain(take_ahead(messages), 3_000) == list(range(3_000))

    # Then all but the first calls are those of functions
    functions, sent = calls(loaded)
    assert functions - before > sent - sent_before
    assert all(report.clean for report in client.admin.check())


def test_a_single_call_reads_no_text(loaded, connect, monkeypatch):
    monkeypatch.setattr(known_functions, "_FEW", 1)
    client = connect(loaded.url)
    client.publish("orders", 1)

    with contextlib.closing(loaded.client(protocol=2)) as plain:
        plain.config_resetstat()
        with Client(loaded.url, instance=client.instance) as other:
            other.publish("orders", 2)
        assert "cmdstat_fcall" not in plain.info("commandstats")
        assert "cmdstat_function|list" not in plain.info("commandstats")


def test_without_the_switch_no_function_is_called(loaded, connect, monkeypatch):
    monkeypatch.setenv("AMPSQ_FUNCTIONS", "off")
    client = connect(loaded.url)
    define(client)
    for number in range(20):
        client.publish("orders", number)

    assert calls(loaded)[0] == 0


def test_the_server_of_the_test_kit_has_no_functions(caplog):
    # Its time is the test's, which a function would not know; the coordinator there looks for functions, too
    with Client("memory://") as client:
        define(client)
        for number in range(10):
            client.publish("orders", number)
        with client.subscribe("work", max_backlog=3) as messages:
            assert drain(messages, 10) == list(range(10))
        assert client._store.run(keep_functions()) is False
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


# --- functions that are gone


def test_functions_that_are_flushed_in_mid_life_lose_and_double_nothing(loaded, connect, evidence_of):
    # Given a publisher and a consumer that call functions
    client, other = connect(loaded.url), connect(loaded.url)
    define(client)
    done, stopping = [], threading.Event()

    def publish():
        for number in NUMBERS:
            client.publish("orders", number)
            if number % 40 == 20:
                # When somebody flushes the functions, and they are loaded again, again and again
                ask(loaded, "FUNCTION", "FLUSH")
            if number % 40 == 30:
                load(loaded.url)
        stopping.set()

    thread = threading.Thread(target=publish)
    thread.start()
    with other.subscribe("work", max_backlog=7) as messages:
        while len(done) < len(NUMBERS):
            message = messages.get(20)
            assert message is not None
            done.append(message.data)
            message.ack()
    thread.join(60)

    # Then each message was recorded once and delivered once
    assert done == list(NUMBERS)
    assert stopping.is_set()
    evidence_of(client).check("orders", "work", NUMBERS)
    assert all(report.clean for report in client.admin.check())


def test_after_a_flush_scripts_are_sent_until_the_functions_are_looked_for_again(loaded, connect, monkeypatch):
    client = connect(loaded.url)
    client.publish("orders", 1)
    client.publish("orders", 2)
    ask(loaded, "FUNCTION", "FLUSH")
    client.publish("orders", 3)
    functions, _ = calls(loaded)

    # Not at once
    load(loaded.url)
    client.publish("orders", 4)
    assert calls(loaded)[0] == functions

    # Later
    later = known_functions.time.monotonic() + 61
    monkeypatch.setattr(known_functions.time, "monotonic", lambda: later)
    client.publish("orders", 5)
    assert calls(loaded)[0] == functions + 1


def test_a_script_flush_and_a_function_flush_at_once_are_outlived(loaded, connect, evidence_of):
    client = connect(loaded.url)
    define(client)
    for number in range(10):
        client.publish("orders", number)
    ask(loaded, "FUNCTION", "FLUSH")
    ask(loaded, "SCRIPT", "FLUSH")
    with client.subscribe("work", max_backlog=3) as messages:
        assert drain(messages, 10) == list(range(10))
    client.publish("orders", 10)
    with client.subscribe("work", max_backlog=3) as messages:
        assert drain(messages, 1) == [10]
    evidence_of(client).check("orders", "work", range(11))


# --- whose text it is


@pytest.mark.parametrize("kind", KINDS)
def test_a_function_with_another_text_is_never_called(kind, start_server, connect, caplog):
    # Given somebody who has loaded his own text under all names of ours
    server, ours = bare(start_server, kind), library()
    text = f"#!lua name={ours.name}\n" + "".join(
        f"redis.register_function('{name}', function() redis.call('SET', 'stolen', '1') return 'x' end)\n"
        for name in ours.functions.values()
    )
    assert ask(server, "FUNCTION", "LOAD", text) == ours.name.encode()

    # When a client works there
    client = connect(server.url)
    define(client)
    with caplog.at_level(logging.WARNING, "ampsq"):
        for number in range(10):
            client.publish("orders", number)
        with client.subscribe("work", max_backlog=3) as messages:
            assert drain(messages, 10) == list(range(10))

    # Then his text never ran, and the log names it
    assert calls(server)[0] == 0
    assert ask(server, "EXISTS", "stolen") == 0
    assert f"the functions {ours.name} have another text than this release's" in caplog.text

    # And loading ours again mends it
    assert {each.state for each in load(server.url)} == {"replaced"}
    with Client(server.url, instance=client.instance) as other:
        other.publish("orders", 10)
    assert calls(server)[0] > 0


def test_two_releases_stand_side_by_side_and_the_older_is_removed(loaded, connect):
    # Given functions of another release
    name = "ampsq_publish_00000000000000000000"
    ask(loaded, "FUNCTION", "LOAD", f"#!lua name={name}\nredis.register_function('{name}', function() return 1 end)\n")
    ask(loaded, "FUNCTION", "LOAD", "#!lua name=others\nredis.register_function('others', function() return 1 end)\n")
    client = connect(loaded.url)
    client.publish("orders", 1)
    before, _ = calls(loaded)
    assert before > 0

    # When they are looked at, and removed
    with contextlib.closing(Store(loaded.url, "")) as store:
        assert {each.name: each.state for each in store.run(functions_at())} == {
            name: "other",
            **dict.fromkeys(library().functions.values(), "here"),
        }
        assert store.run(remove_others()) == [name]
        assert {each.state for each in store.run(functions_at())} == {"here"}

    # Then ours and those of other applications are still there
    client.publish("orders", 2)
    assert calls(loaded)[0] == before + 1
    assert ask(loaded, "FCALL", "others", 0) == 1


# --- state between calls


def _broken(client, *parts):
    """Make a key of the instance one of another type: the server ends each script that comes to it in its middle."""
    name = key(client.instance, *parts)

    @contextlib.contextmanager
    def broken():
        with contextlib.closing(redis.Redis.from_url(client.url)) as plain:
            kept = plain.dump(name)
            plain.set(name, "of another type")
            try:
                yield
            finally:
                plain.delete(name)
                if kept is not None:
                    plain.restore(name, 0, kept)

    return broken()


def _call(client, name, *arguments):
    return client._store.call(script_call(name, list(arguments), list))


def test_an_error_in_mid_call_leaves_nothing_to_the_calls_after_it(loaded, instance, connect, evidence_of):
    # Given an instance where each verb has something to do
    client, numbers = connect(loaded.url), itertools.count()
    define(client)
    client.apply(Topic(name="keyed", key="/id"))
    settled = "acknowledged"

    def all_do_what_they_do():
        some = list(itertools.islice(numbers, 3))
        client.publish_many("orders", some)
        with client.subscribe("work", max_backlog=2) as messages:
            assert drain(messages, 3) == some
        _call(client, "sweep", "")

    def format_is_another():
        name = key(instance, "instance")
        ask(loaded, "HSET", name, "format", "999")
        try:
            for words in (
                ("publish", "", "orders", "", "", "b", "x"),
                ("settle", "", settled, "0", "", "work", "0"),
                ("take", "", "s1", 1),
                ("sweep", ""),
            ):
                with pytest.raises(FormatMismatch):
                    _call(client, *words)
        finally:
            ask(loaded, "HSET", name, "format", FORMAT)

    def script_breaks(verb, *words, parts):
        with _broken(client, *parts), pytest.raises(ScriptBug, match=r"^lua/.*WRONGTYPE"):
            _call(client, verb, *words)

    def refused(error, call):
        with pytest.raises(error):
            call()

    faults = (
        lambda: refused(UnknownQueue, lambda: _call(client, "settle", "", settled, "0", "", "nowhere", "1", "r", "1")),
        lambda: refused(UnknownSubscription, lambda: _call(client, "take", "", "s00000000000", 10)),
        lambda: refused(UnknownTopic, lambda: _call(client, "publish", "", "nowhere", "", "", "b", "x")),
        lambda: refused(MissingKey, lambda: client.publish("keyed", {"other": 1})),
        lambda: script_breaks("publish", "", "orders", "", "", "b", "x", parts=("routes",)),
        lambda: script_breaks("settle", "", settled, "0", "", "work", "0", parts=("queue", "work")),
        lambda: script_breaks("sweep", "", parts=("due",)),
        format_is_another,
    )
    all_do_what_they_do()
    before, _ = calls(loaded)
    for fault in faults:
        # When a call fails, then those after it do what they did before
        fault()
        all_do_what_they_do()
    assert calls(loaded)[0] - before > len(faults) * 5
    evidence_of(client).check("orders", "work", range(next(numbers)))
    assert all(report.clean for report in client.admin.check())


def test_calls_of_several_instances_know_nothing_of_each_other(loaded, instance):
    with Client(loaded.url, instance=f"{instance}-a") as first, Client(loaded.url, instance=f"{instance}-b") as second:
        for client in (first, second):
            define(client)
        for number in range(20):
            first.publish("orders", number)
            second.publish("orders", -number)
        for client, sign in ((first, 1), (second, -1)):
            with client.subscribe("work", max_backlog=5) as messages:
                assert drain(messages, 20) == [sign * number for number in range(20)]


# --- rights


@pytest.mark.parametrize("kind", KINDS)
def test_no_role_loads_functions_and_each_calls_those_that_are_there(kind, start_server, instance):
    # Given a server with a user of each kind, and an operator of the server
    server = bare(start_server, kind)
    users = {role: rules(role, instance, password="secret") for role in ROLES}  # noqa: S106
    operator = server_rules(password="secret")  # noqa: S106
    for user in (*users.values(), operator):
        assert ask(server, "ACL", "SETUSER", user.user, *user.words()) == b"OK"

    def url_of(user):
        return f"unix://{user.user}:secret@{server.socket}"

    # When a role loads, then it is refused
    for user in users.values():
        with pytest.raises(NotPermitted, match="function"):
            load(url_of(user))
        with redis.Redis.from_url(url_of(user)) as plain:
            for words in (("DELETE", "x"), ("FLUSH",), ("RESTORE", "x"), ("KILL",)):
                with pytest.raises(redis.exceptions.NoPermissionError):
                    plain.execute_command("FUNCTION", *words)

    # The operator loads, and can do nothing else
    assert {each.state for each in load(url_of(operator))} == {"missing"}
    with redis.Redis.from_url(url_of(operator)) as plain:
        for words in (("GET", "x"), ("FCALL", "x", 0), ("EVAL", "return 1", 0), ("FUNCTION", "FLUSH")):
            with pytest.raises(redis.exceptions.NoPermissionError):
                plain.execute_command(*words)

    # And each role works with functions
    with Client(url_of(users["admin"]), instance=instance) as admin:
        define(admin)
    with Client(url_of(users["publisher"]), instance=instance) as publisher:
        for number in range(5):
            publisher.publish("orders", number)
    with Client(url_of(users["worker"]), instance=instance) as worker, worker.subscribe("work") as messages:
        assert drain(messages, 5) == list(range(5))
    assert calls(server)[0] >= 10


@pytest.mark.parametrize("taken", ["-fcall", "-function|list"])
def test_a_user_without_the_right_sends_scripts(loaded, instance, taken):
    found = rules("gateway", instance, password="secret")  # noqa: S106
    with Client(loaded.url, instance=instance) as client:
        define(client)
    before, _ = calls(loaded)
    ask(loaded, "ACL", "SETUSER", found.user, *found.words(), taken)

    with Client(f"unix://{found.user}:secret@{loaded.socket}", instance=instance) as client:
        for number in range(10):
            client.publish("orders", number)
        with client.subscribe("work", max_backlog=3) as messages:
            assert drain(messages, 10) == list(range(10))

    assert calls(loaded)[0] == before


def test_a_coordinator_loads_functions_where_the_server_has_no_users_and_there_alone(start_server, coordinate, connect):
    # Given a server without users, and one that has some
    alone, shared = bare(start_server), bare(start_server)
    ask(shared, "ACL", "SETUSER", "somebody", "on", ">secret", "~other:*", "+get")

    # When coordinators work there
    for server in (alone, shared):
        connect(server.url).publish("orders", 1)
        coordinate(server.url)

    # Then the first has functions, also after they were flushed and it is looked for them again
    def states(server):
        with contextlib.closing(Store(server.url, "")) as store:
            return {each.state for each in store.run(functions_at())}

    eventually(lambda: states(alone) == {"here"}, within=40.0)
    with contextlib.closing(Store(shared.url, "")) as store:
        assert store.run(keep_functions()) is False
    assert states(shared) == {"missing"}


# --- memory, replicas, clusters


@pytest.mark.parametrize("kind", KINDS)
def test_a_full_server_refuses_publishes_by_functions_and_drains(kind, start_server, connect):
    server = start_server(kind)
    load(server.url)
    client = connect(server.url)
    define(client)
    for number in range(50):
        client.publish("orders", number)
    used = calls(server)[0]
    ask(server, "CONFIG", "SET", "maxmemory", "1mb")

    with pytest.raises(ServerFull):
        client.publish("orders", 50)
    with client.subscribe("work", max_backlog=10) as messages:
        assert drain(messages, 50) == list(range(50))
    ask(server, "CONFIG", "SET", "maxmemory", "0")
    client.publish("orders", 50)
    assert client.admin.queue_stats("work").depth == 1
    assert calls(server)[0] > used + 50


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_new_primary_has_the_functions_of_the_old_one(kind, start_node, connect):
    # Given a primary with functions, whose replica has them from it
    first, second = start_node(kind=kind), start_node(kind=kind)
    second.follow(first)
    load(first.url)
    client = connect([first.url, second.url], heartbeat="1s", retry_timeout="20s")
    define(client)
    for number in range(10):
        client.publish("orders", number)
    eventually(lambda: first.ask("WAIT", 1, 1000) == 1)

    # When it leads
    first.kill()
    second.lead()
    for number in range(10, 20):
        client.publish("orders", number)

    # Then clients call them there
    assert "cmdstat_fcall" in second.ask("INFO", "commandstats")
    with client.subscribe("work", max_backlog=5) as messages:
        assert drain(messages, 20) == list(range(20))
    Evidence(second.url, client.instance, client.origin).check("orders", "work", range(20))


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", KINDS)
def test_a_slot_that_moves_goes_to_a_node_without_functions_and_back(kind, start_node, connect):
    # Given a cluster of which one node has the functions
    cluster = Cluster(lambda **options: start_node(kind=kind, **options))
    client = connect(f"cluster://{cluster.nodes[0].address}")
    slot = slot_of(client.instance)
    owner = cluster.owner(slot)
    load(owner.url)
    define(client)
    numbers = itertools.count()

    def work(times):
        some = list(itertools.islice(numbers, times))
        for number in some:
            client.publish("orders", number)
        with client.subscribe("work", max_backlog=4) as messages:
            assert drain(messages, times) == some

    work(10)
    assert "cmdstat_fcall" in owner.ask("INFO", "commandstats")

    # When the slot moves to another one and back
    other = next(node for node in cluster.nodes if node is not owner)
    cluster.move_by_keys(slot, other)
    work(10)
    assert "cmdstat_fcall" not in other.ask("INFO", "commandstats")
    cluster.move_by_keys(slot, owner)
    work(10)

    # Then nothing was lost, and each node that has none loads its own
    with contextlib.closing(Store(other.url, "")) as store:
        assert {each.state for each in store.run(functions_at())} == {"missing"}
    found = CliRunner().invoke(program, ["functions", "load", "--url", owner.url, "--json"])
    assert found.exit_code == 0, found.output
    assert sorted(json.loads(line)["state"] for line in found.stdout.splitlines()) == ["here"] * 4 + ["loaded"] * 8
    Evidence(owner.url, client.instance, client.origin).check("orders", "work", range(next(numbers)))
    assert all(report.clean for report in client.admin.check())
