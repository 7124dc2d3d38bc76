"""up, worker and coordinator: they stay until they are stopped."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from observing import eventually

from ampsq import Queue
from ampsq.server import embedded

pytestmark = pytest.mark.slow

TASKS = """
import ampsq

def handle(message):
    if message.data == "reject":
        raise ampsq.Reject
    if message.data == "fail" and message.delivery == 1:
        raise ValueError
    print("handled", message.data, flush=True)

async def later(message):
    print(f"later {message.data}\\n", end="", flush=True)

def two(a, b):
    pass

NUMBER = 3
"""


@pytest.fixture
def tasks(defined_process):
    (defined_process.folder / "tasks.py").write_text(TASKS)
    (defined_process.folder / "broken.py").write_text("import not_there")
    return defined_process


def depth(run, queue="work"):
    with run.client() as client:
        return client.admin.queue_stats(queue).depth


# -- up


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_up_keeps_the_embedded_server_until_it_is_stopped(alone, number):
    process = alone.start("up", "--json")
    facts = json.loads(process.stdout.readline())
    assert facts["data_dir"] == str(alone.folder / ".ampsq")
    assert facts["instance"] == "ampsq"
    assert facts["process_id"] == embedded.status(alone.folder / ".ampsq").process_id
    assert alone("publish", "t", "1", "--url", facts["url"]).out.startswith("t~ampsq.")
    assert alone("topics", "--json").json[0]["messages"] == 1
    done = alone.end(process, number)
    assert (done.code, done.out, done.err) == (0, "", "")
    eventually(lambda: embedded.status(alone.folder / ".ampsq") is None, within=40.0)


def test_up_tells_a_person_how_to_go_on(alone):
    process = alone.start("up", "--data-dir", "d")
    said = "".join(iter(process.stdout.readline, "Ctrl-C ends it; the data stays.\n"))
    url = embedded.status(alone.folder / "d").url
    assert f"export AMPSQ_URL={url}" in said
    assert "ampsq queues --data-dir d\n" in said
    assert alone.end(process).code == 0


def test_commands_alone_start_the_server_themselves_and_find_the_data_again(alone):
    first = alone("publish", "t", "1")
    assert "a new, empty server" in first.err
    again = alone("topics", "--json")
    assert again.err == ""
    assert again.json[0]["last"] == first.out.strip()


def test_up_for_a_server_of_ones_own_is_only_a_coordinator(run):
    process = run.start("up", "--json")
    assert json.loads(process.stdout.readline())["instances"] == [run.environment["AMPSQ_INSTANCE"]]
    done = run.end(process)
    assert done.code == 0
    assert "only a coordinator" in done.err
    assert not (run.folder / ".ampsq").exists()


def test_up_without_that_server_fails_at_once(alone):
    assert "Error: redis://localhost:1" in alone("up", "--url", "redis://localhost:1", code=1).err


# -- coordinator


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_coordinator_runs_until_it_is_stopped(run, number):
    process = run.start("coordinator", "--json")
    instance = run.environment["AMPSQ_INSTANCE"]
    assert json.loads(process.stdout.readline())["instances"] == [instance]
    # The server's own coordinator may have the instance, and this one waits then.
    told = (f"caring for instance {instance}", f"instance {instance} has another coordinator")
    while not any(text in line for line in [process.stderr.readline()] for text in told):
        assert process.poll() is None
    done = run.end(process, number)
    assert done.code == 0
    assert "coordinator stopped" in done.err


def test_a_coordinator_may_care_for_several(run):
    process = run.start("coordinator", "--json", "--instance", "one", "--instance", "two")
    assert json.loads(process.stdout.readline())["instances"] == ["one", "two"]
    assert "coordinator started for one, two" in process.stderr.readline()
    assert run.end(process).code == 0


def test_a_coordinator_needs_an_address(alone):
    assert "ampsq up" in alone("coordinator", code=2).err
    assert "allowed are redis://" in alone("coordinator", "--url", "x", code=1).err
    assert "is not a name" in alone("coordinator", "--url", "redis://x", "--instance", "a b", code=1).err


# -- worker


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_handles_messages_until_it_is_stopped(tasks, number):
    tasks.publish(1, "reject", "fail")
    process = tasks.start("worker", "tasks:handle", "--queue", "work", "--json")
    assert [process.stdout.readline() for _ in range(2)] == ["handled 1\n", "handled fail\n"]
    eventually(lambda: depth(tasks) == 0, within=40.0)
    process.send_signal(number)
    out, err = process.communicate(timeout=90)
    assert process.returncode == 0
    assert json.loads(out) == {"processed": 2, "failed": 1, "rejected": 1, "invalid": 0}
    assert "tasks:handle handles 'work': concurrency 1, max_backlog 2" in err
    assert "is cancelled" in err
    assert "stopped: 2 processed, 1 failed, 1 rejected, 0 invalid" in err


def test_several_processes_of_a_coroutine_function(tasks):
    tasks.publish(*range(10))
    options = ["--concurrency", "2", "--processes", "2", "--max-backlog", "3", "--stop-timeout", "5s"]
    process = tasks.start("worker", "tasks:later", "--queue", "work", *options)
    seen = sorted(process.stdout.readline() for _ in range(10))
    assert seen == [f"later {n}\n" for n in range(10)]
    with tasks.client() as client:
        eventually(lambda: client.admin.queue_stats("work").subscriptions == 2, within=40.0)
    done = tasks.end(process)
    assert done.code == 0
    assert done.err.count("concurrency 2, max_backlog 3") == 2
    assert done.err.count("stopped: ") == 2


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_queue_that_leaves_handlers_idle_is_told_once_however_many_processes_there_are(tasks, processes):
    # Given a queue with AMPS's default
    with tasks.client() as client:
        client.apply(Queue(name="narrow", underlying_topic="orders"))
    options = ["--concurrency", "4", "--processes", processes]
    process = tasks.start("worker", "tasks:handle", "--queue", "narrow", *options)
    with tasks.client() as client:
        eventually(lambda: client.admin.queue_stats("narrow").subscriptions == int(processes), within=40.0)
    err = tasks.end(process).err
    assert err.count("whatever its concurrency of 4") == 1
    assert err.count("max_per_subscription_backlog: 8") == 1


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_worker_with_a_filter_handles_what_matches(tasks, processes):
    tasks.publish({"id": 1}, {"id": 2}, {"id": 3})
    process = tasks.start("worker", "tasks:handle", "--queue", "work", "--filter", "/id = 2", "--processes", processes)
    assert process.stdout.readline() == "handled {'id': 2}\n"
    assert tasks.end(process).out == ""
    assert depth(tasks) == 2


def test_a_worker_that_is_traced_calls_its_function_in_the_trace_of_the_publisher(tasks):
    Path(tasks.folder, "spans.py").write_text(
        "from opentelemetry import trace\n"
        "def handle(message):\n"
        "    print(hex(trace.get_current_span().get_span_context().trace_id), flush=True)\n"
    )
    tasks("publish", "orders", "1", "--header", f"traceparent=00-{'ab' * 16}-{'cd' * 8}-01")
    process = tasks.start("worker", "spans:handle", "--queue", "work", "--trace")
    assert process.stdout.readline() == f"0x{'ab' * 16}\n"
    assert tasks.end(process).code == 0


@pytest.mark.parametrize(
    ("function", "code", "text"),
    [
        ("tasks", 2, "as in tasks:handle"),
        ("tasks.handle", 2, "as in tasks:handle"),
        ("tasks.py:handle", 2, "did you mean tasks:handle?"),
        ("taks:handle", 1, "did you mean 'tasks'?"),
        ("no.such:handle", 1, "there is no module 'no'"),
        ("tasks:hanlde", 1, "did you mean 'handle'?"),
        ("tasks:zzz", 1, "it has handle, later, two"),
        ("tasks:two", 1, "cannot be called with one message"),
        ("tasks:NUMBER", 1, "is of type int"),
        ("broken:handle", 1, "broken.py, line 1"),
    ],
)
def test_a_wrong_function_is_explained(tasks, function, code, text):
    assert text in tasks("worker", function, "--queue", "work", code=code).err


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_worker_of_an_unknown_queue_fails(tasks, processes):
    done = tasks("worker", "tasks:handle", "--queue", "nope", "--processes", processes, code=1)
    assert "'nope' is no queue; there are 'other', 'work'" in done.err
    # Nothing was said of handling it before
    assert "handles" not in done.err
    assert "--queue" in tasks("worker", "tasks:handle", code=2).err
