"""A password is put wherever one may stand, and looked for in whatever people and logs see."""

from __future__ import annotations

import logging
import pickle
import threading
from urllib.parse import quote

import pytest
from observing import eventually

from ampsq import AsyncClient, Client, Destination, Topic
from ampsq.base.addresses import parse_endpoints
from ampsq.base.errors import AmpsqError, DefinitionError
from ampsq.coordinator import Coordinator
from ampsq.files.config import load
from ampsq.files.config_text import render_config
from ampsq.gateway import read_rules
from ampsq.gateway.users import Secret
from ampsq.operations.roles import rules
from ampsq.transport.instances import parse_instances
from ampsq.transport.route import Route
from ampsq.transport.store import Store

SECRET = "hunt/er2@:#?x"  # noqa: S105 - what is looked for
QUOTED = quote(SECRET, safe="")
PARTS = (SECRET, QUOTED, "hunt%2Fer2", "hunt/er2")
#: Nobody listens there.
ADDRESSES = (
    f"redis://till:{QUOTED}@127.0.0.1:1",
    f"redis://:{QUOTED}@127.0.0.1:1/0",
    f"rediss://till:{QUOTED}@127.0.0.1:1?ssl_password={QUOTED}",
    f"redis://127.0.0.1:1?password={QUOTED}&username=till",
    f"unix://till:{QUOTED}@/nowhere/s",
    f"sentinel://till:{QUOTED}@127.0.0.1:1/main?sentinel_password={QUOTED}",
    f"cluster://till:{QUOTED}@127.0.0.1:1",
    f"redis://a:{QUOTED}@127.0.0.1:1,redis://b:{QUOTED}@127.0.0.1:2",
)


def assert_hidden(*texts):
    for text in texts:
        assert [part for part in PARTS if part in str(text)] == [], text


@pytest.fixture
def logged(caplog):
    """Everything that is logged, with tracebacks."""
    caplog.set_level(logging.DEBUG)
    return lambda: "\n".join(map(logging.Formatter().format, caplog.records))


@pytest.mark.parametrize("url", ADDRESSES)
def test_no_error_of_an_address_and_no_representation_has_its_password(url, logged):
    with pytest.raises(AmpsqError) as refused:
        Client(url, retry_timeout=0)

    assert_hidden(refused.value, repr(refused.value), logged())
    store = Store(url, "x", retry_timeout=0.0)
    assert_hidden(*map(repr, parse_endpoints(url)), *map(str, parse_endpoints(url)))
    assert_hidden(repr(Route(url, "x")), repr(store), repr(AsyncClient(url)), *map(repr, parse_instances(url, "x")))
    store.close()


@pytest.mark.parametrize(
    "url",
    [
        f"redis://till:{QUOTED}@127.0.0.1:port",
        f"rdis://till:{QUOTED}@127.0.0.1",
        f"till:{QUOTED}@127.0.0.1",
        f"redis://till:{QUOTED}@127.0.0.1:1?sentinel_password={QUOTED}&socket_timeout=x",
        f"sentinel://till:{QUOTED}@127.0.0.1",
        f"cluster://till:{QUOTED}@127.0.0.1/main",
    ],
)
def test_an_address_that_cannot_be_read_is_refused_without_its_password(url):
    for read in (Client, parse_endpoints):
        with pytest.raises(DefinitionError) as refused:
            read(url)
        assert_hidden(refused.value, repr(refused.value))
    with pytest.raises(DefinitionError) as refused:
        Client(f"redis://a:{QUOTED}@one:1#a b")
    assert_hidden(refused.value)


@pytest.mark.default_user(reason="its users have rights of their own")
def test_a_connected_client_shows_no_password(valkey, instance, logged):
    found = rules("worker", instance, user="till", password=SECRET)
    with Client(valkey.url, instance=instance) as admin:
        admin.publish("orders", 1)
        redis = admin._store.redis
        redis.execute_command("ACL", "SETUSER", "till", *found.words())
        try:
            with Client(f"unix://till:{QUOTED}@{valkey.socket}", instance=instance) as client:
                with pytest.raises(AmpsqError) as refused:
                    client.publish("orders", 2)
                assert_hidden(client, repr(client), refused.value, client.server, logged())
        finally:
            redis.acl_deluser("till")
    assert_hidden(found, found.words(), found.file_line())


def test_a_destination_shows_its_password_in_its_own_definition_alone(valkey, instance, logged):
    destination = Destination(
        name="far", sync_type="async", topics=["orders"], addresses=[f"redis://till:{QUOTED}@127.0.0.1:1#far"]
    )
    with Client(valkey.url, instance=instance) as client:
        client.apply(Topic(name="orders"), destination)
        coordinator = Coordinator(valkey.url, [instance])
        thread = threading.Thread(target=coordinator.run)
        thread.start()
        try:
            eventually(lambda: client._store.redis.hlen(f"{{{instance}}}:links"), within=25.0)
        finally:
            coordinator.stop()
            thread.join()

        links = client._store.redis.hgetall(f"{{{instance}}}:links")
        definitions = client.admin.definitions()
        assert_hidden(
            destination, repr(destination), destination.addresses, links, client.admin.replication(), logged()
        )
        assert_hidden(definitions, render_config(definitions))
    assert any(part in destination.to_json() for part in PARTS)


def test_a_file_that_is_wrong_is_told_without_the_passwords_in_it():
    text = f"""
url: redis://till:{QUOTED}@one:x
destinations:
  - name: far
    sync_type: never
    topics: [orders]
    addresses: ["redis://till:{QUOTED}@one:port#far", "nonsense://till:{QUOTED}@two"]
"""
    with pytest.raises(DefinitionError) as refused:
        load(text)
    assert_hidden(refused.value)
    with pytest.raises(DefinitionError) as refused:
        read_rules(f"users: [{{name: till, secret: '{SECRET}'}}]")
    assert_hidden(refused.value)


def test_rules_of_a_gateway_show_neither_secrets_nor_hashes():
    secret = Secret.of(SECRET)
    found = read_rules(f"users: [{{name: till, secret: '{secret}'}}]")

    shown = repr(found) + repr(secret)
    assert_hidden(shown)
    assert str(secret).rpartition(":")[2] not in shown
    assert pickle.loads(pickle.dumps(secret)) == secret  # noqa: S301 - our own
