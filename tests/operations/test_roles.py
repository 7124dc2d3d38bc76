"""Each role of access control, as a user of a real server: what it must do works, and nothing else is allowed."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import redis
from observing import eventually

from ampsq import Action, Client, Destination, Queue, Topic, View
from ampsq.base.errors import AuthenticationFailed, DefinitionError, NotPermitted
from ampsq.coordinator import Coordinator
from ampsq.operations.roles import ROLES, SCRIPTED, rules
from ampsq.protocol.schema import KEYS, key
from ampsq.protocol.scripts import names, script

pytestmark = pytest.mark.default_user(reason="makes its users itself, and has them do what their role may not")

PASSWORD = "secret"  # noqa: S105 - of this test alone
FORBIDDEN = (
    "GET {other}:log:orders",
    "SET {other}:clock 1",
    "EVAL return(redis.call('GET',KEYS[1])) 1 {other}:log:orders",
    "SUBSCRIBE {other}:client:x",
    *("FLUSHALL", "FLUSHDB", "CONFIG SET maxmemory 1", "SHUTDOWN", "KEYS *", "ACL LIST", "ACL SETUSER x", "MONITOR"),
    *("REPLICAOF NO ONE", "SCRIPT FLUSH", "FUNCTION FLUSH", "CLIENT LIST", "SAVE", "MIGRATE h 1 k 0 1", "PUBLISH x y"),
    *("SLOWLOG GET", "MODULE LIST", "BGREWRITEAOF", "SWAPDB 0 1", "RESTORE x 0 x"),
)
#: What is asked for and done without: settings of the server, and telling it the name of redis-py.
DONE_WITHOUT = {("command", "config|get"), ("command", "client|setinfo"), ("command", "client")}
DEFINITIONS = [
    Topic(name="orders"),
    Topic(name="other"),
    Topic(name="positions", key="/symbol"),
    Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=10, max_cancels=1),
    Queue(name="by-price", underlying_topic="orders", priority="/price", max_per_subscription_backlog=10),
    View(name="totals", underlying_topic="orders", projection=["SUM(/price) AS /sum"], grouping=["/symbol"]),
    Action.dead_letter("work", "failed"),
    Queue(name="letters", underlying_topic="failed"),
]


@contextlib.contextmanager
def coordinating(url, instance):
    coordinator = Coordinator(url, [instance])
    thread = threading.Thread(target=coordinator.run)
    thread.start()
    try:
        yield coordinator
    finally:
        coordinator.stop()
        thread.join()


@pytest.fixture
def plain(plain):
    plain.acl_log_reset()
    return plain


@pytest.fixture
def admin(login, instance):
    with Client(login("admin"), instance=instance) as client:
        client.apply(*DEFINITIONS)
        yield client


@pytest.fixture
def connect(login, instance, admin):  # noqa: ARG001 - the instance is there
    with contextlib.ExitStack() as stack:

        def connected(role, **options):
            rights = {"topics": options.pop("topics", ())}
            return stack.enter_context(Client(login(role, **rights), instance=instance, **options))

        yield connected


@pytest.fixture
def coordinated(login, instance, admin):  # noqa: ARG001 - the instance is there
    """A coordinator that logs in as one."""
    with coordinating(login("coordinator"), instance) as coordinator:
        yield coordinator


def refused(plain):
    """Return what the server refused since the test began, apart from what is done without."""
    told = ((each["reason"], each["object"], each["username"]) for each in plain.acl_log())
    return {each for each in told if each[:2] not in DONE_WITHOUT}


def test_a_publisher_publishes_in_every_way(connect, plain, tmp_path):
    publisher = connect("publisher").publisher("till-4", store=tmp_path / "till-4.db")

    publisher.publish("orders", {"id": 1})
    publisher.publish_many("orders", [{"id": 2}, {"id": 3}], expiration="1h")
    publisher.flush(timeout="5s")
    plainly = connect("publisher")
    plainly.publish("work", {"id": 4}, delay="1h")
    plainly.delta_publish("positions", {"symbol": "IBM", "qty": 5})
    plainly.delta_publish("positions", {"symbol": "IBM", "price": 7})
    plainly.publish("positions", {"symbol": "AAPL"})
    deleted = plainly.sow_delete("positions", keys=["AAPL"])

    assert deleted == 1
    assert [each.data for each in plainly.sow("positions")] == [{"symbol": "IBM", "qty": 5, "price": 7}]
    assert refused(plain) == set()


@pytest.mark.usefixtures("coordinated")
def test_a_worker_subscribes_and_settles_in_every_way(connect, plain):
    publisher, worker = connect("publisher"), connect("worker")
    publisher.publish_many("orders", [{"id": i, "price": i, "symbol": "IBM"} for i in range(6)])

    with worker.subscribe("work", max_backlog=3, filter="/id < 3") as messages:
        first, second, third = (messages.get(timeout="30s") for _ in range(3))
        first.ack(wait=True)
        second.extend("30s")
        second.expire()
        third.cancel()
        messages.replace(filter="/id >= 3")
        assert messages.get(timeout="30s").data["id"] == 3
    with worker.subscribe("by-price", max_backlog=1) as messages:
        assert messages.get(timeout="30s").data["id"] == 5
    with worker.subscribe_topic("orders", bookmark="epoch", sub_id="ledger") as messages:
        assert messages.get(timeout="30s").data["id"] == 0
    with worker.aggregate("by-price", ["SUM(/price) AS /sum"]) as rows:
        assert rows.get(timeout="30s") == {"sum": 15}
    assert len(worker.sow("by-price", "/price > 1")) == 4
    assert worker.admin.explain("by-price").sentence
    assert worker.ack("by-price", filter="/id = 0") == 1
    eventually(lambda: worker.admin.queue_stats("work").expired == 2)
    assert refused(plain) == set()


def test_a_worker_follows_records(connect, plain):
    publisher, worker = connect("publisher"), connect("worker")
    publisher.publish("positions", {"symbol": "IBM", "qty": 5})

    with worker.sow_and_subscribe("positions", oof=True) as messages:
        assert messages.get(timeout="30s").data == {"symbol": "IBM", "qty": 5}
        publisher.publish("positions", {"symbol": "IBM", "qty": 6})
        assert messages.get(timeout="30s").data == {"symbol": "IBM", "qty": 6}

    assert refused(plain) == set()


def test_a_coordinator_does_its_duties(connect, coordinated, admin, plain):
    publisher, worker = connect("publisher"), connect("worker")
    publisher.publish_many("orders", [{"id": 1, "price": 3, "symbol": "IBM"}, {"id": 2, "price": 4, "symbol": "IBM"}])
    admin.apply(Topic(name="other", retention_count=1))
    publisher.publish_many("other", [{"id": i} for i in range(9)])

    with worker.subscribe("work", max_backlog=1) as messages:
        messages.get(timeout="30s").expire()
        messages.get(timeout="30s").ack(wait=True)
    worker.ack("by-price", filter="/id > 0")

    eventually(lambda: [letter.data["id"] for letter in admin.admin.dead_letters("letters")] == [1])
    eventually(lambda: [row.data for row in worker.sow("totals")] == [{"sum": 7}])
    eventually(lambda: all(age < 5 for age in coordinated.rounds.values()))
    assert refused(plain) == set()


@pytest.mark.usefixtures("coordinated")
def test_a_killed_workers_messages_come_back_by_a_coordinator_of_its_role(connect, admin, plain):
    publisher, worker = connect("publisher"), connect("worker")
    publisher.publish("orders", {"id": 1})
    messages = worker.subscribe("work")
    messages.get(timeout="30s")

    # Its connections are cut, and it may not come back.
    user = re.search(r"worker-\d+", worker.url)[0]
    plain.execute_command("ACL", "SETUSER", user, "off")
    plain.execute_command("CLIENT", "KILL", "USER", user)

    eventually(lambda: admin.admin.queue_stats("work").ready == 1)
    plain.execute_command("ACL", "SETUSER", user, "on")


@pytest.mark.usefixtures("coordinated")
def test_an_admin_defines_checks_repairs_and_redrives(admin, connect, plain):
    publisher, worker = connect("publisher"), connect("worker")
    publisher.publish_many("orders", [{"id": 1}, {"id": 2}])
    with worker.subscribe("work") as messages:
        messages.get(timeout="30s").expire()

    eventually(lambda: len(admin.admin.dead_letters("letters")) == 1)
    assert admin.admin.redrive("letters") == 1
    assert all(each.clean for each in admin.admin.check(repair=True))
    assert admin.admin.trim("orders", age="1d", dry_run=True).removed == 0
    assert admin.admin.history(publisher.publish("orders", {"id": 3})) is not None
    assert {"orders", "failed"} <= admin.admin.topics().keys()
    assert "action:dead-letter-work" in {each.name.partition("@")[0] for each in admin.admin.publishers()}
    assert refused(plain) == set()


def test_links_run_with_a_replicator_at_their_other_end(login, server, instance, plain):
    def there(name):
        return f"{login('replicator', name)}#{name}"

    names = f"{instance}-a", f"{instance}-b"
    carried = {"sync_type": "async", "topics": ["orders", "shared"]}
    shared = [Topic(name="orders"), Queue(name="shared", underlying_topic="orders")]
    with contextlib.ExitStack() as running:
        first, second = (running.enter_context(Client(server.url, instance=name)) for name in names)
        for client, other in ((first, names[1]), (second, names[0])):
            client.apply(*shared, Destination(name="other", addresses=[there(other)], **carried))
            running.enter_context(coordinating(login("coordinator", client.instance), client.instance))
        first.publish("orders", {"id": 1})
        second.publish("orders", {"id": 2})

        # Its own and, by a transfer, the other one's.
        with second.subscribe("shared") as messages:
            found = []
            for _ in range(2):
                message = messages.get(timeout="30s")
                found.append(message.data["id"])
                message.ack(wait=True)
        assert sorted(found) == [1, 2]
        eventually(lambda: [client.admin.queue_stats("shared").depth for client in (first, second)] == [0, 0])
    assert refused(plain) == set()


@pytest.mark.parametrize("role", sorted(ROLES))
def test_no_role_reaches_beyond_its_instance_or_administers_the_server(role, login, plain, instance):
    plain.set("{other}:log:orders", "x")
    address = login(role)

    with contextlib.closing(redis.Redis.from_url(address)) as user:
        for words in (*(line.split() for line in FORBIDDEN), ["SET", "{" + instance + "}x:clock", "1"]):
            with pytest.raises(redis.exceptions.ResponseError, match="permission"):
                user.execute_command(*words)
    plain.delete("{other}:log:orders")


def test_a_worker_reads_logs_and_writes_none(connect, login, instance, plain):
    connect("publisher").publish("orders", {"id": 1})
    before = plain.xrange(key(instance, "log", "orders"))

    with pytest.raises(NotPermitted):
        connect("worker").publish("orders", {"id": 2})
    with contextlib.closing(redis.Redis.from_url(login("worker"))) as user:
        for words in (["XADD", "*", "b", "x"], ["DEL"]):
            with pytest.raises(redis.exceptions.NoPermissionError):
                user.execute_command(words[0], key(instance, "log", "orders"), *words[1:])

    assert plain.xrange(key(instance, "log", "orders")) == before


def test_a_publisher_bound_to_topics_records_in_no_other_and_changes_nothing(connect, admin, store, snapshot):
    publisher = connect("publisher", topics=["orders"])
    publisher.publish("orders", {"id": 1})
    admin.publish("other", {"id": 1})
    before = snapshot(store)

    for publish in (publisher.publish, publisher.delta_publish):
        with pytest.raises(NotPermitted):
            publish("positions", {"symbol": "IBM"})
    with pytest.raises(NotPermitted):
        publisher.publish("other", {"id": 2})

    assert snapshot(store) == before


def test_a_user_without_a_password_cannot_log_in(server, instance, plain):
    found = rules("worker", instance)
    plain.execute_command("ACL", "SETUSER", found.user, *found.words())

    with pytest.raises(AuthenticationFailed):
        Client(f"unix://{found.user}:x@{server.socket}", instance=instance)
    plain.execute_command("ACL", "DELUSER", found.user)


def test_the_line_of_a_file_says_the_same_as_the_command(start_server, instance, tmp_path):
    found = rules("worker", instance, password=PASSWORD)
    (tmp_path / "users.acl").write_text(f"user default on nopass ~* &* +@all\n{found.file_line()}\n")

    server = start_server("valkey", options=["--aclfile", str(tmp_path / "users.acl")])

    with contextlib.closing(server.client()) as client:
        loaded = client.execute_command("ACL", "GETUSER", found.user)
        client.execute_command("ACL", "SETUSER", "again", *found.words())
        assert client.execute_command("ACL", "GETUSER", "again") == loaded


def test_every_command_that_a_script_may_run_is_known(plain):
    commands = {name.upper() for name in plain.command()}

    quoted = {word for name in names() for word in re.findall(r"'([A-Z]+)'", script(name).source)}

    assert quoted & commands == SCRIPTED


def test_roles_name_scripts_that_exist_and_commands_that_the_server_has(plain):
    commands = {name.upper() for name in plain.command()}

    for role in ROLES.values():
        assert role.scripts <= set(names())
        assert {name.partition("|")[0] for name in role.commands} <= commands


def test_only_logs_and_what_coordinators_keep_begin_with_the_letter_that_workers_may_only_read():
    found = {name for name, each in KEYS.items() if each.suffix.startswith(":l")}

    assert found == {"lasting", "limits", "links", "log"}


@pytest.mark.parametrize(
    ("role", "options", "said"),
    [
        ("boss", {}, "allowed are publisher, worker"),
        ("worker", {"topics": ["orders"]}, "bounded by the gateway's entitlements"),
        ("publisher", {"topics": ["or*"]}, "is not a name"),
        ("publisher", {"user": "a b"}, "allowed are 1 to 128"),
        ("publisher", {"password": ""}, "the password is empty"),
    ],
)
def test_what_cannot_be_a_rule_is_refused(role, options, said):
    with pytest.raises(DefinitionError, match=re.escape(said)):
        rules(role, "nyc", **options)


@pytest.mark.slow
@pytest.mark.parametrize(("lacking", "code"), [("", 0), ("XADD", 1)])
def test_a_right_that_roles_lack_fails_a_test_under_roles(tmp_path, lacking, code):
    (tmp_path / "lacking.py").write_text(
        "from ampsq.operations.roles import Role\n"
        "known = Role.commands.fget\n"
        f"Role.commands = property(lambda role: [each for each in known(role) if each != {lacking!r}])\n"
    )
    folder = Path(__file__).parent
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-n", "0", "-p", "lacking", "-p", "under_roles"),
            *(folder.parent / "queues" / "test_subscribing.py", "-k", "test_one_backlog_counts"),
        ],
        env=os.environ | {"PYTHONPATH": f"{tmp_path}:{folder.parent}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )

    assert done.returncode == code, done.stdout + done.stderr
    assert ("the server refused" in done.stdout) is bool(lacking)
