"""`ampsq doctor` looks at every server that answers, also at those that no other command would work with."""

from __future__ import annotations

import contextlib
import shlex
from unittest import mock

import pytest
from cases import first_ones
from observing import eventually

import ampsq
from ampsq import Action, Client, Queue
from ampsq.protocol.schema import FIELDS, FORMAT, key
from ampsq.server.embedded import acquire
from ampsq.transport.store import Store

SHORT = ("--interval", "0.1s")


def told(run, *arguments, code=1):
    """All findings: (check, subject) -> finding."""
    return {
        (each["check"], each["subject"]): each for each in run("doctor", *SHORT, "--json", *arguments, code=code).json
    }


def wrong(run, *arguments):
    """Return the faults, each with its meaning and what to do."""
    return faults(told(run, *arguments))


def faults(findings):
    """Return those of all findings that are faults, each with its meaning and what to do."""
    found = {subject: each for subject, each in findings.items() if not each["well"]}
    assert all(each["why"] and each["mend"] for each in found.values())
    return found


@contextlib.contextmanager
def settings_of(run, **wanted):
    """A server with other settings for a while."""
    with contextlib.closing(Store(run.environment["AMPSQ_URL"], "", retry_timeout=5.0)) as store:
        before = {name: store.redis.config_get(name)[name] for name in wanted}
        try:
            for name, value in wanted.items():
                store.redis.config_set(name, value)
            yield store.redis
        finally:
            for name, value in before.items():
                store.redis.config_set(name, value)


def is_answered_soon(found):
    """Return the findings if a busy machine has not held up the server's answers; else nothing."""
    return found if found["latency", "server"]["well"] else None


def test_a_server_that_evicts_and_that_clients_refuse_is_looked_at(defined):
    # Given
    with settings_of(defined, **{"maxmemory": "1gb", "maxmemory-policy": "allkeys-lru"}):
        assert "maxmemory-policy is allkeys-lru" in defined("queues", code=1).err

        # When, at a moment at which the machine lets the server answer
        found = eventually(lambda: is_answered_soon(told(defined)), within=60.0)

    # Then that is told, and the rest as ever
    assert [subject for subject, each in found.items() if not each["well"]] == [("memory", "server")]
    assert found["memory", "server"]["mend"] == "redis-cli CONFIG SET maxmemory-policy noeviction"
    assert found["coordinator", "coordinator"]["well"]


def test_a_full_server_is_looked_at(defined):
    with settings_of(defined, maxmemory="1mb"):
        # At a moment at which the machine lets the server answer
        found = faults(eventually(lambda: is_answered_soon(told(defined)), within=60.0))

    assert list(found) == [("memory", "server")]
    assert found["memory", "server"]["why"] == "nothing can be published"


def test_a_server_that_is_too_old_is_told_and_nothing_else_is_asked_of_it(defined):
    real = Store.call

    def old(self, call):
        assert call.script is None
        reply = real(self, call)
        return {"redis_version": "6.2.14", "aof_enabled": "1"} if call.arguments == ["INFO"] else reply

    with mock.patch.object(Store, "call", old):
        found = wrong(defined)

    assert list(found) == [("version", "server")]
    assert found["version", "server"]["text"] == "redis 6.2.14 is too old"
    assert "Redis 7.0 or newer" in found["version", "server"]["mend"]


#: Of a Redis, and of a Valkey.
MODES = ("redis_mode", "server_mode")


@pytest.mark.parametrize("name", MODES)
def test_a_sentinel_of_either_kind_of_server_is_told(defined, name):
    real = Store.call

    def sentinel(self, call):
        reply = real(self, call)
        if call.arguments != ["INFO"]:
            return reply
        return {fact: each for fact, each in reply.items() if fact not in MODES} | {name: "sentinel"}

    with mock.patch.object(Store, "call", sentinel):
        found = wrong(defined)

    assert "sentinel://HOST:PORT/SERVICE" in found["role", "server"]["mend"]


def test_a_replica_is_looked_at_and_its_primary_named(defined, folder):
    with (
        acquire(folder / "replica", coordinator=False) as server,
        contextlib.closing(Store(server.url, "", retry_timeout=5.0)) as store,
    ):
        # Given a replica, with the instance in it
        store.redis.hset(key("here", "instance"), FIELDS["format"], "no such one")
        store.redis.replicaof("127.0.0.1", 1)
        try:
            assert "this is a replica" in defined("queues", "--url", server.url, code=1).err

            # When
            found = wrong(defined, "--url", server.url, "--instance", "here")
        finally:
            store.redis.replicaof("no", "one")

    # Then
    assert "--url redis://127.0.0.1:1 " in found["role", "server"]["mend"]
    assert "a replica of 127.0.0.1:1, to which it has no connection" in found["role", "server"]["text"]


@contextlib.contextmanager
def _node(start_server, kind, *options):
    """A cluster of one node, which has all slots."""
    server = start_server(kind, options=["--cluster-enabled", "yes", "--appendonly", "yes", *options])
    with contextlib.closing(server.client()) as plain:
        plain.execute_command("CLUSTER ADDSLOTSRANGE", 0, 16383)
        eventually(lambda: b"cluster_state:ok" in plain.execute_command("CLUSTER", "INFO"), 30)
    yield server


@first_ones("kind", ["valkey", "redis"], 1)
def test_a_cluster_by_its_defaults_is_told_what_does_not_fit(defined, start_server, kind):
    # Given a node with the settings that a cluster has by itself
    with _node(start_server, kind) as server, Client(server.url, instance="here") as client:
        client.apply(Queue(name="work", underlying_topic="orders"))
        # When
        found = defined("doctor", *SHORT, "--json", "--url", server.url, "--instance", "here", code=1).json
        # Then both are told, each with what mends it
        told_of = [each for each in found if each["check"] == "cluster"]
        assert [each["text"] for each in told_of] == [
            "cluster-require-full-coverage is yes", "cluster-node-timeout is 15s",
        ]  # fmt: skip
        with contextlib.closing(server.client()) as plain:
            for each in told_of:
                plain.execute_command(*shlex.split(each["mend"], comments=True)[1:])
        # And nothing once that was done
        found = defined("doctor", *SHORT, "--json", "--url", server.url, "--instance", "here", code=1).json
        (well,) = [each for each in found if each["check"] == "cluster"]
        assert well["well"], well


def test_of_a_cluster_whose_settings_may_not_be_asked_nothing_is_told(defined, start_server):
    # Given a user who may all but CONFIG, at a node with the settings that a cluster has by itself
    with _node(start_server, "redis") as server, Client(server.url, instance="here") as client:
        client.apply(Queue(name="work", underlying_topic="orders"))
        with contextlib.closing(server.client()) as plain:
            plain.execute_command("ACL", "SETUSER", "guest", "on", ">word", "~*", "&*", "+@all", "-config")
        url = server.url.replace("://", "://guest:word@")
        # When
        found = defined("doctor", *SHORT, "--json", "--url", url, "--instance", "here", code=1).json
        # Then
        assert {"version", "coordinator"} <= {each["check"] for each in found}
        assert "cluster" not in {each["check"] for each in found}


def test_a_server_that_loads_its_data_is_told(defined):
    real = Store.call

    def loading(self, call):
        reply = real(self, call)
        more = {"loading": "1", "loading_loaded_perc": "41.70", "loading_eta_seconds": "12"}
        return {**reply, **more} if call.arguments == ["INFO"] else reply

    with mock.patch.object(Store, "call", loading):
        found = wrong(defined)

    assert list(found) == [("loading", "server")]
    assert found["loading", "server"]["text"] == "it loads its data, 42% are there"
    assert found["loading", "server"]["mend"] == "ampsq doctor    # again, in about 12s"


@pytest.mark.parametrize(("apart", "mend"), [(-1, "ampsq upgrade"), (94, "the release of ampsq that wrote it")])
def test_keys_of_another_version_are_told_with_what_helps(defined, apart, mend):
    stored = FORMAT + apart
    with defined.client() as client:
        client._store.redis.hset(key(client.instance, "instance"), FIELDS["format"], str(stored))

    found = wrong(defined)

    assert [check for check, _ in found] == ["format"]
    (finding,) = found.values()
    assert f"stored in format {stored}" in finding["text"]
    assert finding["mend"].startswith(mend)


def test_a_key_of_the_name_that_scripts_declare_is_told(defined):
    with defined.client() as client:
        client._store.redis.set(f"{{{client.instance}}}", "of another program")

    found = wrong(defined)

    assert [check for check, _ in found] == ["slot key"]
    (finding,) = found.values()
    with contextlib.closing(Store(defined.environment["AMPSQ_URL"], "", retry_timeout=5.0)) as store:
        store.redis.execute_command(*shlex.split(finding["mend"].partition("#")[0])[1:])
    assert all(each["well"] for each in told(defined, code=0).values())


def test_an_instance_that_is_not_there_is_told_with_those_that_are_and_none_is_made(lonely):
    # Given
    with ampsq.Client(lonely.environment["AMPSQ_URL"], instance="other"):
        pass
    lonely.environment["AMPSQ_INSTANCE"] = "lonly"

    def kept():
        with contextlib.closing(Store(lonely.environment["AMPSQ_URL"], "", retry_timeout=5.0)) as store:
            return sorted(store.redis.keys())

    before = kept()

    # When
    found = wrong(lonely)

    # Then
    assert list(found) == [("instance", "instance lonly")]
    text = found["instance", "instance lonly"]["text"]
    assert text == "the server has no instance 'lonly'; did you mean 'lonely'? there are 'lonely', 'other'"
    assert found["instance", "instance lonly"]["mend"] == "ampsq apply FILE --instance lonly"
    assert kept() == before


@pytest.mark.parametrize(("allowed", "checks"), [((), {"rights"}), (("+info", "+time"), {"rights"})])
def test_a_user_who_may_do_little_is_told_what_is_refused_and_which_rights_are_needed(defined, allowed, checks):
    with settings_of(defined) as redis:
        redis.execute_command("ACL", "SETUSER", "visitor", "reset", "on", "nopass", "~*", *allowed)
        try:
            found = wrong(defined, "--url", defined.environment["AMPSQ_URL"].replace("unix://", "unix://visitor:x@"))
        finally:
            redis.execute_command("ACL", "DELUSER", "visitor")

    assert {check for check, _ in found} == checks
    assert all(each["mend"].startswith("ampsq acl admin --instance ") for each in found.values())
    assert (("rights", "server") in found) == (not allowed)


def test_where_no_server_answers_there_is_no_finding_but_an_error(defined, folder):
    done = defined("doctor", "--url", f"unix://{folder}/none.sock", code=1)

    assert done.err.startswith("Error: unix://")
    assert not done.out


def test_a_folder_without_a_server_gets_none(alone):
    done = alone("doctor", code=1)

    assert "there is no server; `ampsq up` begins one" in done.err
    assert not list(alone.folder.iterdir())


# --- dead letters


def test_a_letter_that_was_put_back_within_the_hour_is_no_trouble_any_more(defined):
    # Given a message that was given up, and put back
    with defined.client() as client, client.subscribe("work", max_backlog=10):
        client.apply(Queue(name="letters", underlying_topic="dead"), Action.dead_letter("work", "dead"))
        bookmark = client.publish("orders", 1)
        client.ack("work", [bookmark], "expire")
        letter = client.subscribe("letters", max_backlog=1)
        assert letter.get(timeout="30s") is not None
        letter.close()
        assert list(wrong(defined)) == [("dead letters", "topic dead")]
        client.admin.redrive("letters")

        # When
        found = told(defined, code=0)

    # Then
    text = found["dead letters", "topic dead"]["text"]
    assert text == "none of the last hour waits, 1 were seen to; 0 earlier ones wait"
