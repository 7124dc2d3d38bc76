"""SIGTERM ends each of our processes within 5 seconds, whatever its server does; who waits for one waits quietly."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from observing import eventually, is_cared_for
from programs import PROGRAM

from ampsq import Client, Queue, Topic, Transport
from ampsq.base.shutdown import end_process_within
from ampsq.gateway.users import Secret
from ampsq.server.embedded import acquire, status
from ampsq.transport.store import Store

pytestmark = pytest.mark.slow

#: Seconds from SIGTERM to the end, as promised.
PROMISED = 5.0
INSTANCES = 60
#: How a server goes away: it dies, or it hangs and its connections stay.
AWAY = [signal.SIGKILL, signal.SIGSTOP]

RULES = f"""
users:
  - {{name: desk, secret: "{Secret.of("tea")}"}}
entitlements:
  - {{user: desk, name: work, rights: read}}
"""
TASKS = """
import time

def handle(message):
    print("begun", flush=True)
    time.sleep(float(message.data))  # the handler's work, in seconds
    print("ended", flush=True)

async def later(message):
    handle(message)
"""


class Started:
    """A program of ours, and what it says."""

    def __init__(self, folder, *arguments, **environment):
        self.out, self.err = (Path(folder, f"{os.urandom(4).hex()}.{name}") for name in ("out", "err"))
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("AMPSQ_")}
        with self.out.open("w") as out, self.err.open("w") as err:
            self.process = subprocess.Popen(
                arguments, cwd=folder, env=inherited | environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err
            )

    def says(self, text, times=1):
        """Wait until it has said something."""
        eventually(lambda: self.said.count(text) >= times or self.process.poll() is not None, within=60.0)
        assert self.process.poll() is None, self.said

    @property
    def said(self):
        return self.out.read_text() + self.err.read_text()

    @property
    def warnings(self):
        return [line for line in self.err.read_text().splitlines() if " WARNING " in line or " ERROR " in line]

    def share(self, seconds):
        """Return the share of a core that it takes for so long."""
        before, began = self._worked(), time.monotonic()
        time.sleep(seconds)  # what it works meanwhile is measured
        return (self._worked() - before) / (time.monotonic() - began)

    def _worked(self):
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def terminated(self, within=PROMISED):
        """Seconds from SIGTERM to its end; fails where that is later."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(within)
        except subprocess.TimeoutExpired:
            pytest.fail(f"it has not ended within {within:g} s:\n{self.said}")
        assert "Traceback" not in self.said
        return time.monotonic() - began

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory(prefix="aq-", dir="/tmp") as path:
        Path(path, "tasks.py").write_text(TASKS)
        Path(path, "gateway.yaml").write_text(RULES)
        yield path


@pytest.fixture
def start(folder):
    """Start the program: ``start("coordinator", "--url", ...)``; it is killed with the test."""
    with contextlib.ExitStack() as stack:

        def started(*arguments, program=PROGRAM, **environment):
            found = Started(folder, *program, *arguments, **environment)
            stack.callback(found.end)
            return found

        yield started


@pytest.fixture
def lost_server(start_server):
    """A server that goes away: ``lost_server.lose(number)``; whatever it does, it ends with the test."""
    server = start_server("valkey", appendonly=True)
    server.lose = server.process.send_signal
    yield server
    with contextlib.suppress(ProcessLookupError):
        server.process.kill()
    server.process.wait()


@pytest.fixture
def instances(lost_server):
    """The names of many instances of the server."""
    names = [f"i{number:02}" for number in range(INSTANCES)]
    for name in names:
        with Client(lost_server.url, instance=name):
            pass
    return names


@pytest.fixture
def work(lost_server):
    """A queue, and who publishes to it."""
    with contextlib.closing(Client(lost_server.url, instance="one", retry_timeout="1s")) as client:
        client.apply(Queue(name="work"))
        yield client


def attended_by(url, name):
    with contextlib.closing(Store(url, name)) as store:
        return is_cared_for(store.redis, name, within=60.0)


def has_ended(process_id):
    """Return whether a process has ended, also where nobody has asked for its exit code yet."""
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def cared_for(server, names):
    with contextlib.closing(server.client()) as plain:
        return is_cared_for(plain, *names, within=60.0)


# -- a coordinator


@pytest.mark.parametrize("away", AWAY)
def test_a_coordinator_of_many_instances_waits_quietly_and_ends_in_time(lost_server, instances, start, away):
    # Given a coordinator whose server has been away for a while
    started = start("coordinator", "--url", lost_server.url)
    assert cared_for(lost_server, instances)
    lost_server.lose(away)
    started.says("the server is away")
    # Then, once each instance has seen it, it does next to nothing, and has said it once for all instances and duties
    # Each instance sees it once, 3 s of a core together: longer on a machine that does other work too.
    eventually(lambda: started.share(4.0) < 0.1, within=90.0)
    assert len(started.warnings) == 1, started.warnings
    # And it ends in time
    started.terminated()
    assert started.process.returncode == 0


@pytest.mark.parametrize("away", AWAY)
@pytest.mark.parametrize("after", [0.0, 0.5])
def test_a_coordinator_that_is_told_to_end_while_its_server_goes_ends_in_time(
    lost_server, instances, start, away, after
):
    started = start("coordinator", "--url", lost_server.url)
    assert cared_for(lost_server, instances)

    lost_server.lose(away)
    time.sleep(after)  # it notices, or does not yet

    started.terminated()
    assert started.process.returncode == 0
    assert "coordinator stopped" in started.said


def test_a_coordinator_of_a_server_that_was_never_there_ends_in_time(start):
    started = start("coordinator", "--url", "redis://127.0.0.1:1")
    started.says("the server is away")
    started.terminated()
    assert len(started.warnings) == 1


def test_the_program_that_the_embedded_server_starts_ends_in_time(lost_server, instances, start):
    program = [sys.executable, "-m", "ampsq.coordinator"]
    started = start("--url", lost_server.url, program=program)
    assert cared_for(lost_server, instances)
    lost_server.lose(signal.SIGSTOP)
    started.terminated()
    assert started.process.returncode == 0


def test_all_instances_go_on_when_their_server_is_back(lost_server, instances, start, start_server):
    # Given a coordinator whose server died
    started = start("coordinator", "--url", lost_server.url)
    assert cared_for(lost_server, instances)
    lost_server.lose(signal.SIGKILL)
    started.says("the server is away")
    # When it is started again
    server = start_server("valkey", appendonly=True, data_dir=lost_server.directory)
    # Then it cares for all of them, and has said so once
    assert cared_for(server, instances)
    assert started.said.count("the server is away") == started.said.count("the server is back") == 1
    started.terminated()


# -- clients


def test_a_client_of_several_instances_closes_soon_though_it_asks_a_server_that_hangs(lost_server):
    # Given a client that looks each second whether it has to go on at another instance
    client = Client(f"{lost_server.url}#one,{lost_server.url}#two")
    # When its server hangs, so that it waits for an answer
    lost_server.lose(signal.SIGSTOP)
    time.sleep(1.5)  # its look is sent, and not answered
    # Then closing takes no longer than that it is known to hang
    began = time.monotonic()
    client.close()
    assert time.monotonic() - began < 3.0


def test_what_reports_of_readers_ends_soon_though_it_asks_a_server_that_hangs(lost_server):
    # Given a client with limits, which reports each second
    client = Client(lost_server.url, instance="one")
    client.apply(Transport(name="*", client_message_age_limit="1h"), Topic(name="orders"))
    client.subscribe_topic("orders").get("10ms")
    # When its server hangs, so that it waits for an answer
    lost_server.lose(signal.SIGSTOP)
    time.sleep(1.5)  # its report is sent, and not answered
    # Then it ends all the same
    began = time.monotonic()
    client._connection.parts.reporting.stop()
    assert time.monotonic() - began < 3.0
    client.close()


# -- workers


@pytest.mark.parametrize("away", AWAY)
@pytest.mark.parametrize("function", ["tasks:handle", "tasks:later"])
def test_an_idle_worker_ends_in_time(lost_server, work, start, away, function):
    started = start("worker", function, "--queue", "work", "--url", lost_server.url, "--instance", work.instance)
    eventually(lambda: work.admin.queue_stats("work").subscriptions == 1, within=60.0)
    lost_server.lose(away)
    time.sleep(0.5)  # it notices
    started.terminated()
    assert started.process.returncode == 0


def test_worker_processes_end_in_time(lost_server, work, start):
    options = ["--url", lost_server.url, "--instance", work.instance, "--processes", "2"]
    started = start("worker", "tasks:handle", "--queue", "work", *options)
    eventually(lambda: work.admin.queue_stats("work").subscriptions == 2, within=60.0)
    lost_server.lose(signal.SIGSTOP)
    started.terminated()
    assert started.process.returncode == 0


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_running_handler_may_end_although_the_server_is_away(lost_server, work, start, concurrency):
    # Given a handler that runs, and a server that hangs
    options = ["--url", lost_server.url, "--instance", work.instance, "--concurrency", str(concurrency)]
    started = start("worker", "tasks:handle", "--queue", "work", *options)
    work.publish("work", 6)
    started.says("begun")
    lost_server.lose(signal.SIGSTOP)
    # When it is told to end, then the handler ends, and the process within 5 s after that
    took = started.terminated(within=6.0 + PROMISED)
    assert took > 4.0
    assert "ended" in started.said


def test_a_handler_has_its_stop_timeout_and_no_more(lost_server, work, start):
    options = ["--url", lost_server.url, "--instance", work.instance, "--stop-timeout", "1s"]
    started = start("worker", "tasks:handle", "--queue", "work", *options)
    work.publish("work", 60)
    started.says("begun")
    lost_server.lose(signal.SIGSTOP)
    started.terminated(within=1.0 + PROMISED)
    assert "1 handlers still run at the stop deadline" in started.said


# -- gateway, and commands


@pytest.mark.parametrize("away", AWAY)
def test_a_gateway_ends_in_time(lost_server, work, start, away):
    options = ["--url", lost_server.url, "--instance", work.instance, "--config", "gateway.yaml"]
    started = start("gateway", *options, "--listen", "127.0.0.1:0")
    started.says("gateway  http")
    lost_server.lose(away)
    time.sleep(0.5)  # it notices
    started.terminated()
    assert started.process.returncode == 0


@pytest.mark.parametrize("away", AWAY)
def test_a_coordinator_with_gateway_and_console_ends_in_time(lost_server, work, start, away):
    options = ["--url", lost_server.url, "--instance", work.instance, "--gateway-config", "gateway.yaml"]
    started = start("coordinator", *options, "--gateway", "127.0.0.1:0", "--console")
    started.says("console  http")
    assert cared_for(lost_server, [work.instance])
    lost_server.lose(away)
    time.sleep(0.5)  # it notices
    started.terminated()
    assert started.process.returncode == 0


@pytest.mark.parametrize("away", AWAY)
def test_a_command_that_reads_ends_in_time(lost_server, work, start, away):
    started = start("subscribe", "work", "--url", lost_server.url, "--instance", work.instance)
    eventually(lambda: work.admin.queue_stats("work").subscriptions == 1, within=60.0)
    lost_server.lose(away)
    time.sleep(0.5)  # it notices
    started.terminated()
    assert started.process.returncode == 128 + signal.SIGTERM


def test_a_command_that_waits_for_its_server_ends_in_time(lost_server, work, start):
    lost_server.lose(signal.SIGSTOP)
    started = start("publish", "work", "1", "--url", lost_server.url, "--instance", work.instance)
    time.sleep(2.0)  # it has started, and waits
    assert started.process.poll() is None
    started.terminated()


def test_an_embedded_server_that_hangs_is_ended_in_time(folder):
    # Given an embedded server with a coordinator, which hangs
    with acquire(Path(folder, "d")) as server:
        with Client(server.url):
            pass
        assert attended_by(server.url, "ampsq")
        keeper = status(Path(folder, "d")).supervisor_process_id
        os.kill(server.process_id, signal.SIGSTOP)
        # When its supervisor is told to stop
        began = time.monotonic()
        os.kill(keeper, signal.SIGTERM)
        # Then it ends in time, and the server with it
        eventually(lambda: has_ended(keeper), within=20.0)
        assert time.monotonic() - began < PROMISED
        assert has_ended(server.process_id)


# -- the last resort


def test_what_does_not_end_by_itself_is_ended(folder, start):
    # Given a program that does not end when it is told to
    Path(folder, "stays.py").write_text(
        "import signal, threading, logging\n"
        f"from {end_process_within.__module__} import end_process_within\n"
        "logging.basicConfig()\n"
        "signal.signal(signal.SIGTERM, lambda *_: end_process_within(1.0, 7))\n"
        "print('here', flush=True)\n"
        "while True: threading.Event().wait()\n"
    )
    started = start("stays.py", program=[sys.executable])
    started.says("here")
    # Then it is ended at its time, and says that
    assert started.terminated() > 0.9
    assert started.process.returncode == 7
    assert "not ended within 1 s" in started.said
