"""A plugin of pytest under which the tests' servers let in users of roles alone: `make roles`.

Every server that a test starts begins with its default user off. Whoever calls it is the user of a role, made with the
rules that `ampsq acl` prints for the instance:

- what a client does, by the method that is called: publishing as *publisher*, subscribing, settling, querying and
  looking as *worker*, everything else as *admin*; so one client of a test is several users. What publishes under a name
  is *publisher*. A client is opened in the role of its first concern, and makes a new instance as *admin*;
- signs of life and what readers report as *worker*; the threads of a guaranteed publisher as *publisher*, with a
  worker's rights beside, since acknowledgements of leases are kept and sent there too;
- a gateway as *gateway*;
- coordinators as *coordinator*; a link there as *coordinator* at its own end and as *replicator* at the other; what
  publishers and workers use first is made at once, as by a coordinator that is at work;
- calls that a test makes itself, past all clients: a script in turn as each role that has it, a command as *admin*,
  a wait at an inbox as *worker*;
- what a test looks at with redis-py's own clients as a user of tests, with all rights.

A test fails where the server refused its users anything but what is done without (`DONE_WITHOUT`). What needs the
default user is marked, ``default_user(reason=...)``, and left out here.
"""
# Long: one plugin of pytest: each part of a run under roles knows the others.

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import inspect
import itertools
import os
import sys
import threading
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
import redis
import redis.asyncio
import rights
from guarded import PASSWORD, SERVERS, TESTS, Guarded, behind

import ampsq
from ampsq.client.async_connection import AsyncClientConnection
from ampsq.client.connection import ClientConnection
from ampsq.coordinator import main, rebuilds
from ampsq.coordinator.instance_duties import InstanceDuties
from ampsq.coordinator.server_watch import ServerWatch
from ampsq.coordinator.wanted_names import WantedNames
from ampsq.gateway import Gateway
from ampsq.operations.roles import ROLES
from ampsq.protocol.schema import INSTANCES, key
from ampsq.protocol.scripts import names, script
from ampsq.publishing.guaranteed import GuaranteedPublisher
from ampsq.queues.async_subscription import AsyncManagedSubscription, Subscribing
from ampsq.queues.heartbeat import Keepalive
from ampsq.queues.subscription import ManagedSubscription
from ampsq.records.async_subscription import AsyncManagedRecordSubscription
from ampsq.records.subscription import ManagedRecordSubscription
from ampsq.replication.durability_gate import DurabilityGate
from ampsq.replication.link import Link
from ampsq.replication.link_runner import LinkRunner
from ampsq.server import embedded
from ampsq.topics.async_subscription import AsyncManagedTopicSubscription
from ampsq.topics.reader_reports import Reporting
from ampsq.topics.subscription import ManagedTopicSubscription
from ampsq.transport.async_pipeline import AsyncPipeline
from ampsq.transport.async_store import AsyncConnectionPool, AsyncStore
from ampsq.transport.failover import Failover
from ampsq.transport.pipeline import Pipeline
from ampsq.transport.shared_keepalive import SharedKeepalive
from ampsq.transport.store import ConnectionPool, Store
from ampsq.views.async_subscription import AsyncManagedRowSubscription
from ampsq.views.subscription import ManagedRowSubscription

#: Where to keep which rights were used (`rights`); None: nowhere.
RIGHTS = os.environ.get("AMPSQ_RIGHTS")
#: What is asked for and done without: settings of the server, and telling it the name of redis-py.
DONE_WITHOUT = {("command", "config|get"), ("command", "client|setinfo"), ("command", "client")}

PUBLISHES = {"delta_publish", "publish", "publish_many", "publisher", "sow_delete"}
SUBSCRIBES = {"ack", "aggregate", "sow", "sow_and_subscribe", "subscribe", "subscribe_topic"}
LOOKS = {"close", "definitions", "explain", "history", "publishers", "queue_stats", "queues", "topics", "views"}
#: What clients hand out, all in the role of a worker.
HANDED_OUT = (
    *("Subscription", "AsyncSubscription", "TopicSubscription", "AsyncTopicSubscription", "RecordSubscription"),
    *("AsyncRecordSubscription", "RowSubscription", "AsyncRowSubscription"),
    *("Message", "AsyncMessage", "TopicMessage", "AsyncTopicMessage", "Worker"),
)
#: What those work on.
MANAGED = (
    *(ManagedSubscription, AsyncManagedSubscription),
    *(ManagedTopicSubscription, AsyncManagedTopicSubscription, ManagedRecordSubscription),
    *(AsyncManagedRecordSubscription, ManagedRowSubscription, AsyncManagedRowSubscription),
)
#: What publishes under a name, and what that gives.
PUBLISHERS = "Publisher", "AsyncPublisher", "Receipt", "AsyncReceipt", "DeletionReceipt", "AsyncDeletionReceipt"
#: What an iteration over a subscription calls.
_ITERATING = {"__next__", "_fetch"}
#: Scripts -> those roles that may run them whole: a worker's sweep leaves to others what it may not write.
_HAVE = {
    name: [role for role, each in ROLES.items() if name in each.scripts and (name != "sweep" or each.writes_logs)]
    for name in names()
}
_turns = {script(name).sha: itertools.cycle(roles) for name, roles in _HAVE.items()}

#: The role of what runs now, or what tells it of the lines that are used; None: the test itself calls.
_acting = contextvars.ContextVar("acting", default=None)
#: The role of connections that are made now, whoever uses them later.
_making = contextvars.ContextVar("making", default=None)
#: Whether a role is tried by a test itself, which does not show that the role needs what is called.
_trying = contextvars.ContextVar("trying", default=False)


# --- who calls


@contextlib.contextmanager
def _set(variable, value):
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


async def _awaiting(variable, value, awaitable):
    with _set(variable, value):
        return await awaitable


def _within(variable, value, function):
    """The function, within which a variable has a value (or what `value` gives for its object)."""

    def known(arguments):
        return value(arguments[0]) if callable(value) else value

    @functools.wraps(function)
    def called(*arguments, **options):
        found = known(arguments)
        with _set(variable, found):
            given = function(*arguments, **options)
        return _awaiting(variable, found, given) if inspect.iscoroutine(given) else given

    return called


def _as(owner, role, methods=None, variable=_acting):
    """Let methods of a class, by default all that it has itself and are public, run in a role."""
    assert not (missing := (methods or set()) - vars(owner).keys()), f"{owner.__name__} has no {missing}"
    for name, function in list(vars(owner).items()):
        is_wanted = name in methods if methods is not None else not name.startswith("_") or name in _ITERATING
        if is_wanted and inspect.isfunction(function) and not inspect.isasyncgenfunction(function):
            setattr(owner, name, _within(variable, role, function))


def _public(kind):
    """The public functions of a class and of those that it is made of."""
    for owner in kind.__mro__[:-1]:
        for name, function in list(vars(owner).items()):
            if not name.startswith("_") and inspect.isfunction(function):
                yield owner, name


def _of_client(name):
    if name in PUBLISHES:
        return "publisher"
    if name in SUBSCRIBES:
        return "worker"
    if name in LOOKS:
        return "worker"
    return "admin"


def _opening(connection):
    """Return the role that opens an instance: an administrator's, where it is not there yet."""
    for home in connection.instances:
        known = behind(home.url)
        if known is not None:
            with contextlib.suppress(redis.RedisError, OSError), contextlib.closing(known.plain()) as plain:
                if plain.exists(key(home.instance, "instance")) and plain.sismember(INSTANCES, home.instance):
                    return "worker"
    return "admin"


def _clients_in_roles():
    seen = set()
    for kind in (ampsq.Client, ampsq.AsyncClient, ampsq.Admin, ampsq.AsyncAdmin):
        for owner, name in _public(kind):
            if (owner, name) not in seen and name not in {"add_connection_state_listener", "connect"}:
                seen.add((owner, name))
                _as(owner, _of_client(name), {name})
    for kind in (ClientConnection, AsyncClientConnection):
        _as(kind, "worker", {"fail_over"})
    return seen


def _in_roles():
    """Let everything that calls a server do so in its role."""
    seen = _clients_in_roles()
    _as(ClientConnection, _opening, {"_begin"})
    _as(AsyncClientConnection, _opening, {"_begin"})
    for kind in (*(getattr(ampsq, name) for name in HANDED_OUT), *MANAGED):
        for owner in kind.__mro__[:-1]:
            if owner.__module__.startswith("ampsq") and owner not in seen:
                seen.add(owner)
                _as(owner, "worker")
    for name in PUBLISHERS:
        _as(getattr(ampsq, name), "publisher")
    plainly = Subscribing.__init__
    Subscribing.__init__ = lambda self, making, to: plainly(self, _awaiting(_acting, "worker", making), to)
    for kind in (Keepalive, Reporting, Failover):
        _as(kind, "worker")
    for kind in (Keepalive, Reporting):
        _as(kind, "worker", {"__init__"}, _making)
    _as(GuaranteedPublisher, "publisher+worker", {"__init__", "check_resume_at", "resume_at"}, _making)
    for variable in (_acting, _making):
        _as(main.Coordinator, "coordinator", {"run", "_follow"}, variable)
        _as(ServerWatch, "coordinator", {"_loop"}, variable)
        _as(InstanceDuties, "coordinator", {"do_round"}, variable)
    _as(Gateway, "gateway", {"start"}, _making)
    rebuilds._take_over = _within(_making, "coordinator", rebuilds._take_over)
    _as(LinkRunner, "coordinator", {"run"}, _making)
    _as(LinkRunner, "replicator", {"_reach"}, _making)
    _as(Link, _ends, variable=_acting)
    _as(DurabilityGate, "coordinator")


def _ends(link):
    return lambda lines: "replicator" if lines is link._destination._connections else "coordinator"


# --- connections


def _role_of(lines):
    acting = _acting.get()
    return lines._forced or (acting(lines) if callable(acting) else acting) or "admin"


def _counting(line, role):
    """Say for which role counts what is sent on a line."""
    if inspect.iscoroutine(line):
        return _counting_later(line, role)
    line.raw.counts_for = role
    return line


async def _counting_later(line, role):
    return _counting(await line, role)


def _several(kind):
    """Let the connections of a store be those of several users, one pool each."""
    plainly, pooled, taken, closed = kind.__init__, kind.pool, kind.take, kind.close

    def begin(self, route, pools=None):
        plainly(self, route, pools)
        self._forced, self._roles, self._role, self._instance = _making.get(), {}, TESTS, route.instance

    def of_role(self, instance):
        role = _role_of(self)
        found = self._roles.get((role, instance))
        if found is None:
            found = self._roles[role, instance] = kind(self.route)
            found._role, found._instance = role, instance
        return found

    def take(self, key):
        place = self.route.current
        # A server on a port has no users of ours: there everything is on the same connections, as without roles.
        is_guarded = place is None or behind(place.url) is not None
        # A store may be on another instance than its route was made for.
        chosen = of_role(self, key[1:-1]) if self._role == TESTS and is_guarded else self
        counts = self._forced or (_acting.get() is not None and not _trying.get())
        return _counting(taken(chosen, key), chosen._role if counts else "")

    def as_its_user(self, place, pool):
        known = behind(place.url)
        # An address with a user of its own keeps it.
        if known is not None and pool.connection_kwargs.get("username", TESTS) == TESTS:
            user = TESTS if self._role == TESTS else known.user(self._role, self._instance)
            pool.connection_kwargs |= {"username": user, "password": PASSWORD}
        return pool

    def pool_of(self, place):
        pool = pooled(self, place)

        async def later():
            return as_its_user(self, place, await pool)

        return later() if inspect.iscoroutine(pool) else as_its_user(self, place, pool)

    kind.__init__, kind.pool, kind.take = begin, pool_of, take
    return closed


def _pools():
    close = _several(ConnectionPool)

    def close_all(self):
        for each in list(self._roles.values()):
            close(each)
        close(self)

    ConnectionPool.close = close_all
    close_async = _several(AsyncConnectionPool)

    async def close_all_async(self):
        for each in list(self._roles.values()):
            await close_async(each)
        await close_async(self)

    AsyncConnectionPool.close = close_all_async


def _shared_keepalives():
    """The connection by which clients show that they live is that of a worker of their instance."""
    plainly = SharedKeepalive.join.__func__

    @functools.wraps(plainly)
    def join(cls, url, heartbeat, client):
        known, parts = behind(url), urlsplit(url)
        if known is not None and parts.username in {None, TESTS}:
            user = quote(known.user("worker", client.instance), safe="")
            url = parts._replace(netloc=f"{user}:{PASSWORD}@").geturl()
        return plainly(cls, url, heartbeat, client)

    SharedKeepalive.join = classmethod(join)


def _own_calls(kind):
    """A call that a test makes itself comes in turn from each role that has its script."""
    plainly = kind.call

    @functools.wraps(plainly)
    def call(self, call):
        at_inbox = call.script is None and call.arguments[0] == "BLMPOP"
        if _acting.get() is not None or self._connections._forced or (call.script is None and not at_inbox):
            return plainly(self, call)
        role = "worker" if at_inbox else next(_turns.get(call.script.sha, itertools.repeat("admin")))
        with _set(_acting, role), _set(_trying, True):
            given = plainly(self, call)
        return _awaiting(_trying, True, _awaiting(_acting, role, given)) if inspect.iscoroutine(given) else given

    kind.call = call


def _own_posts(kind):
    """The same of a call that a test posts itself: the first one's role is that of the pipeline's connection."""
    plainly = kind.post

    @functools.wraps(plainly)
    def post(self, call):
        if _acting.get() is not None or call.script is None:
            return plainly(self, call)
        role = next(_turns.get(call.script.sha, itertools.repeat("admin")))
        with _set(_acting, role):
            given = plainly(self, call)
        return _awaiting(_acting, role, given) if inspect.iscoroutine(given) else given

    kind.post = post


def _first_uses(kind):
    """Make at once what is first used by somebody who may not define it, as if a coordinator were at work."""
    plainly = kind.call

    def made(self):
        return asyncio.to_thread(_make_wanted, self) if kind is AsyncStore else _make_wanted(self)

    @functools.wraps(plainly)
    def call(self, call):
        given = plainly(self, call)
        if call.script is None or call.script.name != "want_name":
            return given
        return _made_behind(given, made(self)) if inspect.iscoroutine(given) else given and (made(self) or given)

    kind.call = call


async def _made_behind(asking, making):
    given = await asking
    if given:
        await making
    else:
        making.close()
    return given


def _make_wanted(store):
    with _set(_making, "coordinator"), contextlib.closing(Store(store.route.current.url, store.instance)) as own:
        WantedNames().run_once(own)


def _look_ins(kind):
    """A connection of redis-py's own to such a server is that of the tests' user."""
    plainly = kind.on_connect_check_health

    @functools.wraps(plainly)
    def on_connect(self, *arguments, **options):
        if getattr(self, "path", None) in SERVERS and not self.username and not self.password:
            self.username, self.password = TESTS, PASSWORD
        return plainly(self, *arguments, **options)

    kind.on_connect_check_health = on_connect


def _threads():
    """A thread acts for whom it was started by."""
    plainly = threading.Thread.start

    @functools.wraps(plainly)
    def start(self):
        run, context = self.run, contextvars.copy_context()
        self.run = lambda: context.run(run)
        plainly(self)

    threading.Thread.start = start


# --- servers


def _url(server):
    """The address as tests and the processes that they start know it: with the tests' user, where there is one."""
    user = f"{TESTS}:{PASSWORD}@" if str(server.socket) in SERVERS else ""
    return f"unix://{user}{server.socket}"


def _launching(plainly):
    """Start a server whose default user is off."""

    @functools.wraps(plainly)
    def launch(kind, directory, *, appendonly=False, options=()):
        if any(option in {"--aclfile", "--requirepass"} for option in options):
            return plainly(kind, directory, appendonly=appendonly, options=options)
        directory.mkdir(parents=True, exist_ok=True)
        users = directory / "users.acl"
        if not users.exists():
            # Off, but with its rights: Redis 7.0 loads its append-only file with these.
            users.write_text(f"user default off ~* &* +@all\nuser {TESTS} on >{PASSWORD} ~* &* +@all\n")
        SERVERS.setdefault(str(directory / "s"), Guarded(directory / "s", keeps=appendonly))
        # As a replica, it is the tests' user at its primary.
        options = [*options, "--masteruser", TESTS, "--masterauth", PASSWORD, "--aclfile", str(users)]
        return plainly(kind, directory, appendonly=appendonly, options=options)

    return launch


def _acquiring(plainly):
    """Know an embedded server, whose default user stays, since those who start and end it have no other one."""

    @functools.wraps(plainly)
    def acquire(*arguments, **options):
        server = plainly(*arguments, **options)
        path = urlsplit(server.url).path
        with contextlib.closing(redis.Redis(unix_socket_path=path, username="default", password=TESTS)) as client:
            client.execute_command("ACL", "SETUSER", TESTS, "on", f">{PASSWORD}", "~*", "&*", "+@all")
        SERVERS[path] = Guarded(path, keeps=False)
        return server

    return acquire


def _relaying(kind):
    """A relay leads to the server behind it, and its users go with it to another one."""
    plainly, moved = kind.__init__, kind.move

    @functools.wraps(plainly)
    def begin(self, path, upstream):
        plainly(self, path, upstream)
        if str(upstream) in SERVERS:
            SERVERS[str(path)] = SERVERS[str(upstream)]

    @functools.wraps(moved)
    def move(self, upstream):
        if str(upstream) in SERVERS:
            SERVERS[str(upstream)].take_over(SERVERS[str(self.path)])
            SERVERS[str(self.path)] = SERVERS[str(upstream)]
        return moved(self, upstream)

    kind.__init__, kind.move = begin, move


def pytest_configure(config):
    here = Path(__file__).parent
    for plugin in config.pluginmanager.get_plugins():
        if getattr(plugin, "__file__", None) == str(here / "conftest.py"):
            plugin.launch = _launching(plugin.launch)
            plugin.Server.url = property(_url)
    embedded.acquire = _acquiring(embedded.acquire)
    _threads()
    _pools()
    _shared_keepalives()
    for kind in (Store, AsyncStore):
        _own_calls(kind)
        _first_uses(kind)
    for kind in (Pipeline, AsyncPipeline):
        _own_posts(kind)
    for kind in (redis.connection.AbstractConnection, redis.asyncio.connection.AbstractConnection):
        _look_ins(kind)
    _in_roles()
    if RIGHTS:
        rights.noting()


def pytest_sessionfinish():
    if RIGHTS:
        rights.write(RIGHTS)


def pytest_collection_modifyitems(config, items):
    left = [item for item in items if item.get_closest_marker("default_user")]
    for item in left:
        assert item.get_closest_marker("default_user").kwargs.get("reason"), f"{item.nodeid}: why the default user?"
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if item not in left]
    # A module of the tests of faults, where these were collected.
    if "proxy" in sys.modules:
        _relaying(sys.modules["proxy"].Proxy)


@pytest.fixture(autouse=True)
def _nothing_is_refused():
    """Fail a test whose roles' users the server refused something."""
    _refused()
    yield
    refused = sorted(each for each in _refused() if each[1:3] not in DONE_WITHOUT)
    assert not refused, f"the server refused {refused}"


def _refused():
    """Return what servers refused since they were last asked; one that is gone is forgotten."""
    refused = set()
    for path, known in list(SERVERS.items()):
        try:
            refused |= known.refused()
        except (redis.RedisError, OSError):
            del SERVERS[path]
    return refused
