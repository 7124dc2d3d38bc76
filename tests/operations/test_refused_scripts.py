"""Every script, called as a user of every role: what the server refuses has changed no key.

Real work (`every_script`) is done by a user with all rights. Before each of its calls, users of all roles make the same
call, of a script that is their role's or of another one, with the arguments that are about to succeed. Where the server
lets one do it, all keys are put back as they were; where it refuses, no key may differ: a server rolls nothing back.
"""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict

import pytest
import redis
from every_script import WORK, Work

from ampsq import Client, Queue
from ampsq.base.errors import NotPermitted
from ampsq.operations.roles import ROLES, SCRIPTED, rules
from ampsq.protocol.request import Post, script_call
from ampsq.protocol.schema import KEYS, key
from ampsq.protocol.script_rights import ADMINISTERING, CONSUMING, GUARDED_COMMANDS, GUARDED_KEYS, OPTIONAL_COMMANDS
from ampsq.protocol.scripts import names
from ampsq.transport.errors import translate_error
from ampsq.transport.store import Store

pytestmark = pytest.mark.default_user(reason="makes its users itself, and has them do what their role may not")

PASSWORD = "secret"  # noqa: S105 - of this test alone
#: Calls of one script that each role makes before its work; most scripts have fewer.
TRIED = 400
#: Who calls, beside each role: a publisher that may record in one topic only.
BOUND = "publisher of orders"
READ = {
    "string": lambda plain, key: plain.get(key),
    "hash": lambda plain, key: plain.hgetall(key),
    "list": lambda plain, key: plain.lrange(key, 0, -1),
    "set": lambda plain, key: plain.smembers(key),
    "zset": lambda plain, key: plain.zrange(key, 0, -1, withscores=True),
    "stream": lambda plain, key: (plain.xinfo_stream(key)["last-generated-id"], plain.xrange(key)),
}


class Trying(Store):
    """A store that lets users of roles make every call first."""

    def __init__(self, server, instance):
        super().__init__(server.url, instance)
        self.tries = defaultdict(lambda: defaultdict(int))
        self.refused, self.allowed, self.faults = defaultdict(set), defaultdict(set), []
        self._plain, self._users, self._alone = server.client(), {}, threading.RLock()
        for who in (*ROLES, BOUND):
            role, topics = who.partition(" of ")[0], who.partition(" of ")[2].split()
            found = rules(role, instance, user=f"{instance}-{who.replace(' ', '-')}", password=PASSWORD, topics=topics)
            self._plain.execute_command("ACL", "SETUSER", found.user, *found.words())
            self._users[who] = redis.Redis(
                unix_socket_path=str(server.socket), username=found.user, password=PASSWORD, protocol=2
            )

    def call(self, call):
        # Actions have threads of their own for what takes long: nothing may change while keys are put back.
        with self._alone:
            self._try(call)
            return super().call(call)

    def _step(self, step):
        if not isinstance(step, Post):
            return super()._step(step)
        with self._alone:
            self._try(step.call)
            return super()._step(step)

    def close(self):
        super().close()
        for user in self._users.values():
            self._plain.acl_deluser(user.get_connection_kwargs()["username"])
            user.close()
        self._plain.close()

    def _try(self, call):
        if call.script is None:
            return
        name, before = call.script.name, None
        for who, user in self._users.items():
            if self.tries[name][who] >= TRIED:
                continue
            self.tries[name][who] += 1
            before = before or self._dumped()
            try:
                user.eval(call.script.source, 1, self.key, *call.arguments)
                self.allowed[name].add(who)
            except redis.ResponseError as error:
                # Another error is the script's own: it says so before it writes.
                if isinstance(translate_error(error, call, ""), NotPermitted):
                    self.refused[name].add(who)
                    self.faults += [f"{name}: {who}: {key}" for key in self._put_back(before)]
                    continue
            self._put_back(before)

    def _dumped(self):
        """Every key -> its value as the server dumps it, and the ms that it has left."""
        keys = sorted(self._plain.scan_iter(match=self.key + "*", count=10_000))
        with self._plain.pipeline(transaction=False) as ask:
            for key in keys:
                ask.dump(key).pttl(key)
            told = ask.execute()
        return dict(zip(keys, zip(told[::2], told[1::2], strict=True), strict=True))

    def _put_back(self, before):
        """Make all keys what they were; gives those that were not."""
        after, changed = self._dumped(), []
        for name in sorted(before.keys() | after.keys()):
            was, now = before.get(name, (None, 0)), after.get(name, (None, 0))
            if was[0] == now[0] and (was[1] > 0) == (now[1] > 0):
                continue
            if was[0] is None:
                self._plain.delete(name)
            else:
                self._plain.restore(name, max(was[1], 0), was[0], replace=True)
            # A table that is being moved into a larger one may come in another order.
            if was[0] is None or now[0] is None or self._read(was[0]) != self._read(now[0]):
                changed.append(name.decode())
        return changed

    def _read(self, dumped):
        """Return a dumped value, without its order where it has none."""
        scratch = f"scratch-of-{self.instance}"
        self._plain.restore(scratch, 0, dumped, replace=True)
        kind = self._plain.type(scratch).decode()
        try:
            return READ[kind](self._plain, scratch)
        finally:
            self._plain.delete(scratch)


@pytest.fixture
def store(server, instance):
    with contextlib.closing(Trying(server, instance)) as trying:
        yield trying


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_what_a_role_is_refused_has_changed_no_key(store):
    work = Work(store)
    for part in WORK:
        part(work)

    assert store.faults == [], "\n".join(sorted(set(store.faults)))
    who = {*ROLES, BOUND}
    assert {name for name in names() if store.tries[name].keys() != who} == set(), "no work makes these run: add some"
    # A role may run all that it has; what a worker's sweep leaves to others is another test's.
    own = {(name, role) for role, each in ROLES.items() for name in each.scripts}
    assert {pair for pair in own if pair[1] in store.refused[pair[0]]} == set()
    # And what is not its own it may not: who publishes or consumes administers nothing, and a publisher takes nothing.
    others = {(name, role) for role in ("publisher", "worker", "gateway") for name in ADMINISTERING}
    others |= {(name, "publisher") for name in CONSUMING}
    assert {
        (name, role) for name, role in others if role in store.allowed[name] or role not in store.refused[name]
    } == set()


def test_scripts_ask_for_what_some_role_lacks_and_for_nothing_else(server, instance):
    commands, suffixes = set(), set()
    plain = [each.suffix for each in KEYS.values() if "<" not in each.suffix]
    with contextlib.closing(server.client()) as client:
        for role, does in ROLES.items():
            commands |= SCRIPTED - {name.partition("|")[0] for name in does.commands}
            found = rules(role, instance, user=f"{instance}-{role}")
            client.execute_command("ACL", "SETUSER", found.user, *found.words())
            suffixes |= {
                each
                for each in plain
                if client.execute_command(
                    "ACL", "DRYRUN", found.user, "DEL", key(instance, "clock").replace(":clock", each)
                )
                != b"OK"
            }
            client.acl_deluser(found.user)

    assert (set(GUARDED_COMMANDS), GUARDED_KEYS) == (commands - OPTIONAL_COMMANDS, suffixes)
    assert commands >= OPTIONAL_COMMANDS


def test_whose_each_script_is_follows_from_the_roles():
    publisher, worker, gateway = (ROLES[role].scripts for role in ("publisher", "worker", "gateway"))

    assert set(names()) - publisher - worker - gateway == ADMINISTERING
    assert worker - publisher == CONSUMING


@pytest.mark.parametrize("role", [role for role in ROLES if role != "admin"])
def test_a_new_incarnation_that_is_refused_holds_nothing(role, login, instance, server):
    with Client(login("admin"), instance=instance) as admin:
        admin.apply(Queue(name="work", underlying_topic="orders"))
        admin.publish("orders", {"id": 1})

    with contextlib.closing(Store(login(role), instance)) as store, pytest.raises(NotPermitted):
        store.call(script_call("begin_incarnation", ["", "0"], list))

    with Client(server.url, instance=instance) as client, client.subscribe("work") as messages:
        assert messages.get(timeout="5s").data == {"id": 1}
