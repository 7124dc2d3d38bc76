"""Promises of a server's disk: given to publishers and workers too, who may not ask how it flushes."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time

import pytest
from observing import eventually

from ampsq import Client, MemoryPublishStore, Queue, Topic
from ampsq.base.errors import FlushingUnknown, ServerUnsuitable
from ampsq.gateway.client import GatewayClient
from ampsq.operations.roles import rules
from ampsq.protocol.reads.server import examine
from ampsq.protocol.schema import key
from ampsq.publishing.persistence_level import PersistenceLevel

pytestmark = pytest.mark.default_user(reason="makes its users itself, some with other rights than their role has")

PASSWORD = "secret"  # noqa: S105 - of this test alone
_numbers = itertools.count(1)


@pytest.fixture(params=["valkey", "redis"])
def server(request, start_server):
    return start_server(request.param, appendonly=True)


@pytest.fixture
def no_wait(monkeypatch):
    """No note comes, and nobody waits for it."""
    monkeypatch.setattr("ampsq.protocol.reads.server._NOTED_WITHIN", 0.0)


@pytest.fixture
def login(server, instance, plain):
    """Make a user of a role: ``login(role, rules...)`` gives its address; rules behind those of the role count."""

    def make(role, *beside):
        found = rules(role, instance, user=f"{role}-{next(_numbers)}", password=PASSWORD)
        plain.execute_command("ACL", "SETUSER", found.user, *found.words(), *beside)
        return f"unix://{found.user}:{PASSWORD}@{server.socket}"

    return make


@pytest.fixture
def defined(server, instance):
    with Client(server.url, instance=instance) as client:
        client.apply(Topic(name="orders"), Queue(name="work", underlying_topic="orders"))


@pytest.fixture
def noted(plain, instance):
    """Return a function that gives a coordinator's note: run, appendfsync, if it stops while it rewrites, its hold."""
    return lambda: (plain.get(key(instance, "lasting")) or b"").decode().split()


@contextlib.contextmanager
def publishing(url, instance):
    with (
        Client(url, instance=instance) as client,
        client.publisher("till-1", store=MemoryPublishStore(), persisted="fsync") as publisher,
    ):
        yield client, publisher


def with_publisher(url, instance):
    with publishing(url, instance):
        pass


@pytest.mark.usefixtures("defined", "no_wait")
def test_without_a_note_nothing_is_promised_and_what_helps_is_said(login, instance):
    with pytest.raises(FlushingUnknown, match=r"persisted='fsync': how .* Start one \(ampsq coordinator\)"):
        with_publisher(login("publisher"), instance)
    with (
        Client(login("worker"), instance=instance) as worker,
        pytest.raises(FlushingUnknown, match=r"fully_durable.*grant this user \+config\|get"),
    ):
        worker.subscribe_topic("orders", bookmark="epoch", fully_durable=True)


@pytest.mark.usefixtures("defined")
def test_what_depends_on_no_disk_needs_no_note(login, instance):
    with Client(login("publisher"), instance=instance) as publisher:
        publisher.publish("orders", {"id": 1})
        assert publisher.server.appendfsync == ""
    with Client(login("worker"), instance=instance) as worker, worker.subscribe("work") as messages:
        assert messages.get(timeout="30s").data == {"id": 1}


@pytest.mark.usefixtures("defined")
def test_a_coordinators_note_is_enough_for_those_who_may_not_ask(login, instance, coordinate, noted):
    coordinate(login("coordinator"))

    with publishing(login("publisher"), instance) as (client, publisher):
        publisher.publish("orders", {"id": 1})
        publisher.flush(timeout="20s")
        assert client.server.appends
    with (
        Client(login("worker"), instance=instance) as worker,
        worker.subscribe_topic("orders", bookmark="epoch", fully_durable=True) as messages,
    ):
        assert messages.get(timeout="20s").data == {"id": 1}
    assert noted()[1:] == ["everysec", "no", "0"]


@pytest.mark.usefixtures("defined")
def test_a_server_that_does_not_flush_is_refused_to_them_too_also_when_that_came_later(
    login, instance, coordinate, noted, plain
):
    coordinate(login("coordinator"))
    eventually(lambda: noted()[1:2] == ["everysec"], 30)

    plain.config_set("appendfsync", "no")
    eventually(lambda: noted()[1:2] == ["no"], 30)

    with pytest.raises(ServerUnsuitable, match="appendfsync is no there"):
        with_publisher(login("publisher"), instance)
    with (
        Client(login("worker"), instance=instance) as worker,
        pytest.raises(ServerUnsuitable, match="appendfsync is no there"),
    ):
        worker.subscribe_topic("orders", bookmark="epoch", fully_durable=True)


@pytest.mark.usefixtures("defined", "no_wait")
def test_a_note_of_another_run_of_the_server_counts_for_nothing(login, instance, plain):
    run = plain.info("server")["run_id"]
    plain.set(key(instance, "lasting"), f"{'0' * len(run)} always no 0")

    with pytest.raises(FlushingUnknown):
        with_publisher(login("publisher"), instance)

    plain.set(key(instance, "lasting"), f"{run} everysec no 0")
    with publishing(login("publisher"), instance) as (_, publisher):
        publisher.publish("orders", {"id": 1})
        publisher.flush(timeout="20s")


@pytest.mark.usefixtures("no_wait")
def test_a_publisher_waits_for_the_note_of_a_server_that_began_anew(start_server, tmp_path, instance, coordinate):
    users = tmp_path / "users.acl"
    lines = [rules(role, instance, user=role, password=PASSWORD).file_line() for role in ("publisher", "coordinator")]
    users.write_text("\n".join(["user default on nopass ~* &* +@all", *lines]) + "\n")
    options = ["--aclfile", str(users), "--appendfsync", "always"]
    server = start_server(appendonly=True, options=options)

    def address(role):
        return f"unix://{role}:{PASSWORD}@{server.socket}"

    with Client(server.url, instance=instance) as client:
        client.apply(Topic(name="orders"))
    with contextlib.closing(server.client()) as plain:
        plain.set(key(instance, "lasting"), f"{plain.info('server')['run_id']} always no 0")
    with publishing(address("publisher"), instance) as (_, publisher):
        publisher.publish("orders", {"id": 1})
        publisher.flush(timeout="20s")
        # When the server is another run of itself, whose note nobody has made yet
        server.process.kill()
        server.process.wait()
        publisher.publish("orders", {"id": 2})
        start_server(appendonly=True, data_dir=server.directory, options=options)
        eventually(lambda: "how the server flushes is not known" in publisher._core.guaranteed._work.trouble, 30)
        # Then it goes on when a coordinator has
        coordinate(address("coordinator"))
        publisher.flush(timeout="20s")


@pytest.mark.usefixtures("defined")
def test_at_most_once_is_not_assumed_where_nobody_knows(login, instance, coordinate, plain):
    queue = Queue(name="once", semantics="at-most-once")
    with Client(login("admin", "-config|get"), instance=instance) as admin:
        with pytest.raises(FlushingUnknown, match="at-most-once"):
            admin.apply(queue)
        # When a coordinator notes it, the same client may
        plain.config_set("appendfsync", "always")
        coordinate(login("coordinator"))
        eventually(lambda: plain.exists(key(instance, "lasting")), 30)
        admin.apply(queue)
        assert admin.admin.queues()["once"].semantics == "at-most-once"


@pytest.mark.usefixtures("defined", "no_wait")
def test_a_gateway_learns_it_when_it_is_noted_after_it_connected(login, instance, plain):
    fsync = PersistenceLevel.parse("fsync")

    async def serve():
        async with GatewayClient(login("gateway"), instance=instance) as client:
            persisting = client.persisting()
            with pytest.raises(FlushingUnknown):
                await persisting.begin(fsync)
            plain.set(key(instance, "lasting"), f"{plain.info('server')['run_id']} everysec no 0")
            wanted = await persisting.begin(fsync)
            await client.publish("orders", {"id": 1})
            assert await persisting.wait(wanted, "orders", time.monotonic() + 20) is None

    asyncio.run(serve())


@pytest.mark.usefixtures("defined")
def test_a_coordinator_that_may_not_ask_either_says_so_and_notes_nothing(login, instance, coordinate, noted, caplog):
    coordinator = coordinate(login("coordinator", "-config|get"))

    eventually(lambda: "how the server flushes is not noted" in caplog.text, 30)
    eventually(lambda: (instance, "flushing") in coordinator.rounds, 30)
    assert noted() == []


def test_a_server_without_config_is_taken_as_everysec_with_a_warning(start_server, instance, caplog):
    # As managed services have it; Valkey's way to take a command away from everybody.
    server = start_server(appendonly=True, options=["--rename-command", "CONFIG", ""])

    with publishing(server.url, instance) as (client, publisher):
        publisher.publish("orders", {"id": 1})
        publisher.flush(timeout="20s")
        assert client.server.appendfsync == "everysec"
    assert "this server has no CONFIG" in caplog.text


def test_what_is_known_is_looked_at_without_a_note(store, monkeypatch, instance):
    monkeypatch.setattr("ampsq.protocol.reads.server.key", None)

    assert store.run(examine(instance)).appendfsync == "everysec"
