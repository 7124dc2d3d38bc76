"""Rights of each role, and of none: a matrix, asked of servers of both kinds (`ACL DRYRUN`)."""

from __future__ import annotations

import contextlib

import pytest
import redis

from ampsq import Client, Queue, Topic
from ampsq.base.errors import DefinitionError, NotPermitted
from ampsq.gateway import Gateway, read_rules
from ampsq.gateway.users import Secret
from ampsq.operations.roles import ROLES, rules
from ampsq.protocol.keepalive import keepalive_channel
from ampsq.protocol.request import command, script_call
from ampsq.protocol.schema import KEYS, key
from ampsq.protocol.scripts import names
from ampsq.transport.store import Store

pytestmark = pytest.mark.default_user(reason="makes its users itself, and has them do what their role may not")

#: What each role lacks beside what no role has, a command a line; {0} is the tag of its instance.
LACKS = {
    "publisher": """
        BLMPOP 0 1 {0}:s:s1:inbox LEFT | LPOP {0}:s:s1:inbox | SREM {0}:x x
        XTRIM {0}:log:orders MAXLEN 0 | XDEL {0}:log:orders 1-1 | XSETID {0}:log:orders 1-1
        CONFIG GET appendfsync | SCAN 0 | PUBSUB NUMSUB x | CLIENT KILL ID 1 | SADD ampsq:instances x
        HSET {0}:topics x y | HDEL {0}:queues x | DEL {0}:routes | HSET {0}:actions x y | HDEL {0}:views x
    """,
    "worker": """
        XADD {0}:log:orders * b x | XTRIM {0}:log:orders MAXLEN 0 | XDEL {0}:log:orders 1-1 | DEL {0}:log:orders
        UNLINK {0}:log:orders | RENAME {0}:log:orders {0}:x | XTRIM {0}:x MAXLEN 0 | HSET {0}:links x y
        HSET {0}:topics x y | HDEL {0}:queues x | DEL {0}:routes | HSET {0}:actions x y | HDEL {0}:views x
        SET {0}:lasting x | HSET {0}:limits x y | PERSIST {0}:x | PEXPIRE {0}:x 1
        CONFIG GET appendfsync | SCAN 0 | PUBSUB NUMSUB x | CLIENT KILL ID 1 | SADD ampsq:instances x
    """,
    "gateway": """
        HSET {0}:topics x y | HDEL {0}:queues x | DEL {0}:routes | HSET {0}:actions x y | HDEL {0}:views x
        XTRIM {0}:log:orders MAXLEN 0 | XDEL {0}:log:orders 1-1 | PERSIST {0}:x | PEXPIRE {0}:x 1
        CONFIG GET appendfsync | SCAN 0 | PUBSUB NUMSUB x | CLIENT KILL ID 1 | SADD ampsq:instances x
    """,
    "coordinator": """
        BLMPOP 0 1 {0}:s:s1:inbox LEFT | WAIT 1 1 | XSETID {0}:log:orders 1-1 | PERSIST {0}:x | PEXPIRE {0}:x 1
        CLIENT KILL ID 1 | SADD ampsq:instances x | DEL ampsq:instances
    """,
    "replicator": """
        BLMPOP 0 1 {0}:s:s1:inbox LEFT | LPOP {0}:s:s1:inbox | LPUSH {0}:s:s1:inbox x | SREM {0}:x x | WAIT 1 1
        XTRIM {0}:log:orders MAXLEN 0 | XDEL {0}:log:orders 1-1 | SUBSCRIBE {1}
        SCAN 0 | PUBSUB NUMSUB x | CLIENT KILL ID 1 | SADD ampsq:instances x
    """,
    "admin": """
        BLMPOP 0 1 {0}:s:s1:inbox LEFT | LPUSH {0}:s:s1:inbox x | WAIT 1 1 | PERSIST {0}:x | PEXPIRE {0}:x 1
    """,
}
#: Keys that who does not define does not write: definitions, what actions and views keep, and what others note.
DEFINING = """
    action actions conflated destinations failed lasting limits links overdue queues received recovery retries routes
    settings topics tracked transports view views waits
"""
#: What no role may, at the server or beside its instance.
NOBODY = """
    FLUSHALL | FLUSHDB | KEYS * | CONFIG SET maxmemory 1 | CONFIG REWRITE | SHUTDOWN | DEBUG SLEEP 0 | SAVE | BGSAVE
    BGREWRITEAOF | REPLICAOF NO ONE | FAILOVER | SCRIPT FLUSH | FUNCTION FLUSH | ACL LIST | ACL SETUSER x | CLIENT LIST
    CLIENT KILL ID 1 | MONITOR | SLOWLOG GET | LATENCY RESET | MODULE LIST | SWAPDB 0 1 | MIGRATE h 1 k 0 1
    RESTORE {0}:x 0 x | DUMP {0}:x | COPY {0}:x {0}:y | PUBLISH {1} x | PSUBSCRIBE * | SUBSCRIBE {2} | RANDOMKEY
    GET {3}:clock | SET {3}:clock 1 | XADD {3}:log:orders * b x | XRANGE {3}:log:orders - + | DEL {3}:log:orders
    EVAL x 1 {3} | HGETALL {3}:instance | SET {0}x:clock 1 | GET x | SMEMBERS x
"""
#: And that is nevertheless somebody's.
SOMEBODY = {("admin", "CLIENT KILL ID 1")}


def lines_of(text, instance):
    own, other = (key(name, "clock").partition(":")[0] for name in (instance, "another"))
    filled = text.format(own, keepalive_channel(instance, "c1"), keepalive_channel("another", "c1"), other)
    return [line.strip() for row in filled.splitlines() for line in row.split("|") if line.strip()]


@pytest.fixture
def may(plain, instance):
    """Return a function that tells whether a user with some rules may do something: ``may(rules, "GET x")``."""

    def ask(found, line):
        plain.execute_command("ACL", "SETUSER", found.user, *found.words())
        try:
            return plain.execute_command("ACL", "DRYRUN", found.user, *line.split()) == b"OK"
        except redis.exceptions.ResponseError as error:
            raise AssertionError(f"{line}: {error}") from error
        finally:
            plain.execute_command("ACL", "DELUSER", found.user)

    assert ask(rules("worker", instance), f"GET {key(instance, 'clock')}")
    return ask


@pytest.mark.parametrize("role", ROLES)
def test_a_role_lacks_what_is_not_its_own(role, may, instance, plain):
    there = {name.upper() for name in plain.command()}
    refused = [*lines_of(LACKS[role], instance), *lines_of(NOBODY, instance)]
    asked = [line for line in refused if (role, line) not in SOMEBODY and line.split()[0] in there]

    assert [line for line in asked if may(rules(role, instance), line)] == []
    assert len(asked) > 40


@pytest.mark.parametrize("role", ["publisher", "worker", "gateway"])
def test_who_does_not_define_writes_every_key_but_those_of_definitions(role, may, instance):
    every = {name: key(instance, name, *["x"] * each.suffix.count("<")) for name, each in KEYS.items()}
    found = rules(role, instance)

    lacking = {name for name, where in every.items() if not may(found, f"DEL {where}")}
    assert lacking == {*DEFINING.split(), *(["log"] if role == "worker" else [])}
    assert [name for name, where in every.items() if not may(found, f"EXISTS {where}")] == []


def test_every_role_has_a_row_and_every_script_a_role():
    assert set(LACKS) == set(ROLES)
    assert set().union(*(role.scripts for role in ROLES.values())) == set(names())


def test_scripts_of_others_are_not_in_a_role():
    of = {name: {role for role, each in ROLES.items() if name in each.scripts} for name in names()}

    assert of["take"] == of["subscribe"] == {"worker", "gateway"}
    assert of["settle"] == {"worker", "gateway", "coordinator", "admin"}
    assert of["apply_log"] == of["apply_journal"] == of["grant_messages"] == {"coordinator", "replicator"}
    assert of["trim_log"] == of["trim_journal"] == of["rebuild"] == of["redrive"] == {"coordinator", "admin"}
    assert of["begin_incarnation"] == of["remove_queue"] == of["define_destination"] == {"admin"}
    assert of["stage_rows"] == of["write_rows"] == of["commit_job"] == {"publisher"}
    assert (
        "replicator"
        not in of["discard_unsettled"] | of["downgrade"] | of["assume_ownership"] | of["publish"] | of["settle"]
    )


def test_a_worker_that_sweeps_leaves_the_end_of_a_record_to_who_may_write_its_log(login, instance, server):
    # given: a record that is over, and nobody but a worker who sweeps
    with Client(login("admin"), instance=instance) as admin, contextlib.closing(Store(server.url, instance)) as any_:
        admin.apply(Topic(name="positions", key="/symbol"))
        with Client(login("publisher"), instance=instance) as publisher:
            publisher.publish("positions", {"symbol": "IBM"}, expiration="1h")
        later = (any_.call(command(["TIME"], lambda reply: int(reply[0]))) + 7200) * 1000
        with contextlib.closing(Store(login("worker"), instance)) as worker:
            # when
            worker.call(script_call("sweep", [later], list))
        # then: nothing of it is lost, and a coordinator ends it
        length = any_.redis.xlen(key(instance, "log", "positions"))
        with contextlib.closing(Store(login("coordinator"), instance)) as coordinator:
            coordinator.call(script_call("sweep", [later], list))
        assert any_.redis.xlen(key(instance, "log", "positions")) == length + 1


def test_a_gateway_in_a_coordinator_needs_a_user_of_both_and_says_so(login, instance):
    with Client(login("admin"), instance=instance) as admin:
        admin.apply(Queue(name="work", underlying_topic="orders"))
    one = read_rules(f"users: [{{name: till, secret: '{Secret.of('tea')}'}}]\n")

    with pytest.raises(NotPermitted, match="ampsq acl coordinator --gateway"):
        Gateway(login("coordinator"), instance, one).start()
    for address in (login("coordinator", gateway=True), login("gateway")):
        gateway = Gateway(address, instance, one)
        gateway.start()
        gateway.stop()


def test_a_coordinator_with_a_gateway_has_the_rights_of_both_and_no_others(instance, may):
    found = rules("coordinator", instance, gateway=True)

    assert set(found.commands) == {*ROLES["coordinator"].commands, *ROLES["gateway"].commands}
    assert [line for line in lines_of(NOBODY, instance) if may(found, line)] == []
    with pytest.raises(DefinitionError, match="allowed beside a coordinator"):
        rules("worker", instance, gateway=True)
