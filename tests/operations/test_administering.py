"""Every call that administers, by every role that does not: the server refuses it, and nothing has changed.

The table has each method of `Client` that is not for publishing, consuming or looking; whoever adds one adds a row.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import subprocess
import sys

import pytest

from ampsq import Action, AsyncClient, Client, ConflatedTopic, Destination, Do, Instance, Queue, Topic, Transport, View
from ampsq.base.errors import NotPermitted
from ampsq.client.admin import Admin
from ampsq.coordinator.actions import Actions
from ampsq.definitions.address_setting import AddressSetting
from ampsq.protocol.schema import key
from ampsq.transport.store import Store

pytestmark = pytest.mark.default_user(reason="makes its users itself, and has them do what their role may not")

DEFINED = [
    Topic(name="orders", retention_count=1),
    Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=10),
    Action.dead_letter("work", "letters"),
    Queue(name="letters", underlying_topic="letters"),
    Action(name="copy", on={"publish": "orders"}, do=Do.publish(topic="copies")),
    View(name="totals", underlying_topic="work", projection=["COUNT(*) AS /n"]),
    ConflatedTopic(name="slowly", underlying_topic="orders", key="/id"),
    Transport(name="slow", client_message_age_limit="1s"),
    AddressSetting(match="jobs.#", max_delivery_attempts=3),
    Destination(name="ldn", sync_type="sync", topics=["orders", "work"]),
]
#: What is applied: new, and changed.
APPLIED = [
    Topic(name="orders", retention_count=9),
    Queue(name="work", underlying_topic="orders", max_deliveries=3),
    Queue(name="more", underlying_topic="orders"),
    Action(name="more", on={"publish": "orders"}, do=Do.webhook(url="http://127.0.0.1:9/")),
    View(name="more", underlying_topic="work", projection=["COUNT(*) AS /n"]),
    ConflatedTopic(name="more-slowly", underlying_topic="orders", key="/id"),
    Transport(name="slow", client_message_age_limit="9s"),
    AddressSetting(match="jobs.#", max_delivery_attempts=9),
    Destination(name="nyc", sync_type="async", topics=["orders"]),
    Instance(group="elsewhere"),
]
CALLS = {
    **{f"apply {each!r}": ("apply", each) for each in APPLIED},
    **{f"remove {each!r}": ("remove", each) for each in DEFINED if each.name not in ("orders", "work")},
    "pause_queue": ("pause_queue", "work"),
    "resume_queue": ("resume_queue", "letters"),
    "enable_proxied_transfer": ("enable_proxied_transfer", "work"),
    "disable_proxied_transfer": ("disable_proxied_transfer", "work"),
    "redrive": ("redrive", "letters"),
    "check": ("check", "work"),
    "rebuild": ("rebuild", "work"),
    "remove_destination": ("remove_destination", "ldn"),
    "downgrade_replication": ("downgrade_replication", "ldn"),
    "upgrade_replication": ("upgrade_replication", "ldn"),
    "begin_incarnation": ("begin_incarnation",),
    "recover_without": ("recover_without", "ldn"),
    "retry_action": ("retry_action", "copy", 1),
    "drop_failed": ("drop_failed", "copy", 1),
    "trim": ("trim", "orders"),
    "release_group": ("release_group", "work", "alice"),
    "pause_group": ("pause_group", "work", "alice"),
    "resume_group": ("resume_group", "work", "alice"),
    "drop_group": ("drop_group", "work", "alice"),
}
#: What only looks.
LOOKS = """
    actions address_settings dead_letters definitions destinations explain failed_events groups history message_type
    plan publishers queue_latencies queue_stats queues readers replication sync_states topics views
"""
ROLES = ("publisher", "worker", "gateway")


@pytest.fixture
def store(server, instance):
    with contextlib.closing(Store(server.url, instance)) as store:
        yield store


@pytest.fixture
def admin(login, instance, store):
    """An instance of which everything in the table has something to do; it recovers, waits for a destination."""
    with Client(login("admin"), instance=instance) as client:
        client.apply(*DEFINED)
        bookmarks = [client.publish("orders", {"id": number}) for number in range(3)]
        assert client.ack("work", bookmarks[0], option="expire") == 1
        for _ in range(9):
            Actions().run_once(store)
        assert len(client.admin.dead_letters("letters")) == 1
        client.admin.pause_queue("letters")
        client.admin.downgrade_replication("ldn")
        client.admin.begin_incarnation()
        client.admin.upgrade_replication("ldn")
        store.redis.hset(key(instance, "failed", "copy"), "1", "0 {}")
        store.redis.zadd(key(instance, "retries", "copy"), {"1": 5e12})
        yield client


def test_the_table_has_every_call_that_administers():
    public = {name for name, _ in inspect.getmembers(Admin) if not name.startswith("_")}

    assert public - set(LOOKS.split()) == {method for method, *_ in CALLS.values()} - {"apply"}


@pytest.mark.usefixtures("admin")
@pytest.mark.parametrize("role", ROLES)
def test_a_call_that_administers_is_refused_and_changes_nothing(role, login, instance, store, snapshot):
    allowed, changed, before = [], [], snapshot(store)
    with Client(login(role), instance=instance) as client:
        for what, (method, *arguments) in CALLS.items():
            with contextlib.suppress(NotPermitted):
                getattr(client if method == "apply" else client.admin, method)(*arguments)
                allowed.append(what)
            after = snapshot(store)
            if after != before:
                changed.append(what)
                before = after

    assert (allowed, changed) == ([], [])


@pytest.mark.usefixtures("admin")
@pytest.mark.parametrize("role", ROLES)
def test_so_it_is_for_asyncio(role, login, instance, store, snapshot):
    before = snapshot(store)

    async def try_all():
        allowed = []
        async with AsyncClient(login(role), instance=instance) as client:
            for what, (method, *arguments) in CALLS.items():
                with contextlib.suppress(NotPermitted):
                    await getattr(client if method == "apply" else client.admin, method)(*arguments)
                    allowed.append(what)
        return allowed

    assert asyncio.run(try_all()) == []
    assert snapshot(store) == before


@pytest.mark.usefixtures("admin")
def test_who_is_refused_is_told_whom_it_is_for(login, instance):
    with Client(login("worker"), instance=instance) as client, pytest.raises(NotPermitted) as caught:
        client.admin.pause_queue("work")

    assert "nothing has changed: this is for an administrator, whose rules `ampsq acl admin` prints" in str(
        caught.value
    )


@pytest.mark.usefixtures("admin")
def test_a_publisher_settles_nothing(login, instance, store, snapshot):
    before = snapshot(store)
    with Client(login("publisher"), instance=instance) as client, pytest.raises(NotPermitted):
        client.ack("work", filter="/id > 0")

    assert snapshot(store) == before


@pytest.mark.usefixtures("admin")
@pytest.mark.parametrize(
    "command",
    ["check --repair work", "trim orders --age 0s", "replication downgrade ldn"],
)
def test_so_it_is_for_commands(command, login, instance, store, snapshot):
    before = snapshot(store)
    done = subprocess.run(
        [sys.executable, "-m", "ampsq.cli", *command.split(), "--url", login("worker"), "--instance", instance],
        env=os.environ, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip

    assert (done.returncode != 0, "ampsq acl" in done.stderr) == (True, True), done.stdout + done.stderr
    assert snapshot(store) == before
