"""`ampsq doctor`: each thing that is wrong is told with what mends it, and nothing else is."""

from __future__ import annotations

import shlex
import sys

import pytest
from observing import eventually

from ampsq import Action, Destination, Do, Instance, Queue, Topic, View
from ampsq.cli.doctor import _show
from ampsq.operations.doctor import Finding, server_rules
from ampsq.operations.doctor import instance_facts as look
from ampsq.operations.doctor import instance_rules as rules
from ampsq.protocol.schema import key

SHORT = ("--interval", "0.1s")
#: Setting of the server, a wrong value of it, the check that finds it.
SETTINGS = (
    ("appendonly", "no", "persistence"),
    ("appendfsync", "no", "persistence"),
    ("no-appendfsync-on-rewrite", "yes", "persistence"),
    ("maxmemory-policy", "allkeys-lru", "memory"),
)


@pytest.fixture(autouse=True)
def _near(monkeypatch):
    """Fix how far the server seems to be: that is the mood of the machine, and no test here is about it."""
    monkeypatch.setattr(server_rules, "_FAR", 60_000.0)


def findings(run, *, code=1):
    """Return the findings: (check, subject) -> finding."""
    told = run("doctor", *SHORT, "--json", code=code).json
    return {(each["check"], each["subject"]): each for each in told if not each["well"]}


def test_a_list_of_what_is_well_is_told_where_nothing_is_wrong(defined):
    done = defined("doctor", *SHORT)

    assert all(line.startswith("ok     ") for line in done.out.splitlines())
    told = defined("doctor", *SHORT, "--json").json
    assert {each["check"] for each in told} == {
        "version", "persistence", "memory", "clock", "latency", "coordinator", "leases", "consumers", "dead letters",
        "logs", "actions", "functions",
    }  # fmt: skip
    assert {each["mend"] for each in told} == {""}


def test_that_defined_topics_alone_are_taken_is_told(defined):
    with defined.client() as client:
        client.apply(Instance(topics="defined"))
        number = len(client.admin.topics())

    # Whether all else is well is not asked here
    told = defined.ended(("doctor", *SHORT, "--json"), b"").json

    (found,) = [each for each in told if each["check"] == "topics"]
    text = f"{number} topics; a first publish to another name is refused (topics: defined)"
    assert (found["subject"], found["well"], found["text"]) == ("instance", True, text)


def test_a_server_that_takes_long_to_answer_is_told_with_how_long(defined, monkeypatch):
    monkeypatch.setattr(server_rules, "_FAR", 0.0)

    found = findings(defined)

    assert list(found) == [("latency", "server")]
    assert found["latency", "server"]["text"].startswith("a round trip takes ")


def test_what_is_wrong_is_broken_at_words_at_a_terminal_and_nowhere_else(monkeypatch, capsys):
    why = "each call waits for one: a worker that acknowledges one message after the other handles few a second"
    finding = Finding(
        "latency", "server", well=False, text="a round trip takes 25.72 ms", why=why, mend="redis-cli ping"
    )
    monkeypatch.setenv("COLUMNS", "40")

    _show(finding)
    piped = capsys.readouterr().out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    _show(finding)
    narrow = capsys.readouterr().out

    assert piped.count("\n") == 3
    assert max(map(len, narrow.splitlines())) <= 40
    assert narrow.split() == piped.split()


def test_wrong_settings_of_the_server_are_told_with_the_commands_that_mend_them(run):
    with run.client() as client:
        redis = client._store.redis
        for setting, wrong, check in SETTINGS:
            # Given a server that is set wrongly
            before = redis.config_get(setting)[setting]
            redis.config_set(setting, wrong)
            try:
                # When one looks
                found = findings(run)

                # Then that is told, and nothing else; and what it says mends it
                assert list(found) == [(check, "server")], setting
                program, *words = shlex.split(found[check, "server"]["mend"])
                assert program == "redis-cli"
                assert redis.execute_command(*words)
                assert findings(run, code=0) == {}, setting
            finally:
                redis.config_set(setting, before)


def test_a_server_whose_memory_is_nearly_full_is_told(run):
    with run.client() as client:
        redis = client._store.redis
        redis.config_set("maxmemory", int(redis.info("memory")["used_memory"] * 1.08))
        try:
            assert list(findings(run)) == [("memory", "server")]
        finally:
            redis.config_set("maxmemory", 0)


def test_a_clock_that_went_back_is_told(run):
    with run.client() as client:
        client.publish("orders", 1)
        milliseconds = int(client._store.redis.time()[0]) * 1000
        client._store.redis.set(key(client.instance, "clock"), f"{milliseconds + 3_600_000}-0")

    (found,) = findings(run).values()

    assert found["check"] == "clock"
    assert "behind the last message" in found["text"]


def test_without_a_coordinator_the_views_and_leases_that_wait_for_one_are_told(lonely):
    # Given a message whose lease lapsed a while ago, and a view that was kept once
    with lonely.client() as client:
        client.apply(
            Queue(name="work", underlying_topic="orders"),
            View(name="totals", underlying_topic="work", projection=["/id", "COUNT(/id) AS /n"], grouping=["/id"]),
        )
        redis, past = client._store.redis, int(client._store.redis.time()[0]) * 1000 - 60_000
        redis.hset(key("lonely", "keepers"), "totals", f"somebody {past}")
        redis.zadd(key("lonely", "due"), {"leases work": past})

        # When one looks
        found = findings(lonely)

    # Then each is told
    assert set(found) == {("coordinator", "coordinator"), ("views", "view totals"), ("leases", "queue work")}
    assert {each["mend"] for each in found.values()} == {"ampsq coordinator"}
    assert "past their deadline" in found["leases", "queue work"]["text"]


def test_messages_that_wait_where_nobody_is_subscribed_are_told(defined):
    # Given a message that somebody else recorded long ago
    with defined.client() as client:
        client._store.redis.xadd(key(client.instance, "log", "orders"), {"id": "1"}, id="1-1")
        eventually(lambda: client.admin.queue_stats("work").depth == 1)

        # Then it is told, as long as nobody is subscribed
        assert list(findings(defined)) == [("consumers", "queue work")]
        with client.subscribe("work", max_backlog=10):
            assert findings(defined, code=0) == {}


def test_a_queue_that_grows_with_nobody_subscribed_is_told_before_its_messages_are_old(defined):
    with defined.client() as client, client._store.pipeline() as channel:
        client.publish("orders", 1)
        before = client._store.run(look.read_repeated_facts(client.instance, channel))
        client.publish("orders", 2)
        client.publish("orders", 3)
        after = client._store.run(look.read_instance_facts(client.instance, client.origin, channel))

    (found,) = [each for each in rules.unattended(before, after) if not each.well]

    assert found.subject == "queue work"
    assert "2 more since a moment ago" in found.text
    assert [each.well for each in rules.unattended(after.seen, after)] == [True]


def test_what_was_given_up_into_a_topic_without_a_queue_is_told_with_a_command_that_shows_it(defined):
    with defined.client() as client:
        bookmark = client.publish("orders", "lost")
        client.ack("work", [bookmark], "expire")
        eventually(lambda: "dead" in client.admin.topics())

    mend = findings(defined)["dead letters", "topic dead"]["mend"]

    assert "lost" in defined(*shlex.split(mend)[1:]).out


def test_what_was_given_up_in_the_last_hour_is_told_and_where_to_see_it(defined):
    with defined.client() as client:
        client.apply(Queue(name="letters", underlying_topic="dead"))
        bookmark = client.publish("orders", 1)
        client.ack("work", [bookmark], "expire")
        eventually(lambda: client.admin.queue_stats("letters").depth == 1)

    found = findings(defined)

    assert list(found) == [("dead letters", "topic dead")]
    assert found["dead letters", "topic dead"]["mend"] == "ampsq dead-letters list letters"
    assert "1" in defined("dead-letters", "list", "letters").out


def test_links_that_nobody_runs_or_that_are_not_waited_for_are_told(run):
    with run.client() as client:
        client.apply(
            Topic(name="orders"),
            Destination(name="far", sync_type="sync", topics=["orders"], addresses=["redis://far.example.com"]),
        )
        client.publish("orders", 1)
        client.admin.downgrade_replication("far")
        eventually(lambda: client.admin.replication().links[0].state != "silent")
        # Whoever ran it last is gone for a while
        past = int(client._store.redis.time()[0]) * 1000 - 60_000
        client._store.redis.hset(key(client.instance, "keepers"), "link far", f"somebody {past}")

    told = run("doctor", *SHORT, "--json", code=1).json
    assert "views" not in {each["check"] for each in told}
    told = [each for each in told if each["check"] == "links"]

    assert [each["subject"] for each in told] == ["destination far"] * 2
    assert "ampsq replication upgrade far" in told[0]["mend"]
    assert "it lacks 1" in told[1]["text"]


def test_a_log_that_is_kept_beyond_its_retention_is_told_with_who_needs_it(run):
    with run.client() as client:
        client.apply(Topic(name="orders", retention_count=1), Queue(name="work", underlying_topic="orders"))
        for number in range(3):
            client.publish("orders", number)
        eventually(lambda: client.admin.topics()["orders"].pinned, within=40.0)
        pinned = client.admin.topics()["orders"].pinned
        with client.subscribe("work"):
            found = findings(run)

    assert list(found) == [("logs", "topic orders")]
    mend = found["logs", "topic orders"]["mend"]
    assert mend == f"ampsq explain work {pinned}"
    assert "queue work" in found["logs", "topic orders"]["text"]
    run(*shlex.split(mend)[1:])


def test_a_queue_that_gives_a_worker_one_message_at_a_time_is_told_with_what_to_write(run):
    # Given a queue with AMPS's default, messages, and a subscription like that of a worker of four handlers
    with run.client() as client:
        client.apply(Queue(name="narrow", underlying_topic="orders"))
        client.publish_many("orders", range(3))
        with client.subscribe("narrow", max_backlog=8):
            found = findings(run)
            assert list(found) == [("backlogs", "queue narrow")]
            told = found["backlogs", "queue narrow"]
            assert "asks for 8 messages and may hold 1" in told["text"]
            assert told["mend"].endswith("max_per_subscription_backlog: 8 for the queue narrow")
            # When one writes what it says, then nothing is wrong
            client.apply(Queue(name="narrow", underlying_topic="orders", max_per_subscription_backlog=8))
            assert findings(run, code=0) == {}
            client.apply(Queue(name="narrow", underlying_topic="orders"))
        # A worker of one handler asks for the next message, too, and loses nothing.
        with client.subscribe("narrow", max_backlog=2):
            assert findings(run, code=0) == {}


def test_an_action_whose_events_fail_is_told(run):
    # Given an action whose target is no stream
    with run.client() as client:
        client.apply(Topic(name="orders"), Action(name="copy", on={"publish": "orders"}, do=Do.publish(topic="target")))
        client._store.redis.set(key(client.instance, "log", "target"), "planted")
        client.publish("orders", 1)
        eventually(lambda: client.admin.actions()["copy"].failed, within=40.0)
        # It is tried again much later.
        client._store.redis.zadd(key(client.instance, "retries", "copy"), {"1": 1e15}, xx=True)
        client._store.redis.delete(key(client.instance, "log", "target"))

    found = findings(run)

    assert list(found) == [("actions", "action copy")]
    assert found["actions", "action copy"]["mend"] == "ampsq actions failed copy"
    assert "WRONGTYPE" in found["actions", "action copy"]["text"]


def test_the_list_is_for_people_what_is_wrong_first_with_why_and_what_to_do(lonely):
    lines = lonely("doctor", *SHORT, code=1).out.splitlines()

    assert lines[0].startswith("WRONG  ")
    assert lines[1].startswith("       why: ")
    assert lines[2].startswith("       do:  ampsq ")
    assert lines[-1].startswith("ok     ")
