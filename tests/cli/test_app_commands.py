"""apply and worker with an app."""

from __future__ import annotations

import signal

import pytest
from observing import eventually

TASKS = """
import ampsq

app = ampsq.App()

@app.handler("orders", retries=5, backoff="1s..5m", time_limit="30s", concurrency=8)
def handle(message):
    print("order", message.data, flush=True)

@app.handler("letters", retries=0)
async def send(message):
    print("letter", message.data, flush=True)

def plain(message):
    pass

empty = ampsq.App()
"""


@pytest.fixture
def tasks(run):
    # A module's name of the test's own: commands run in this process, which keeps modules.
    name = f"tasks_{run.environment['AMPSQ_INSTANCE']}"
    (run.folder / f"{name}.py").write_text(TASKS)
    return name


def test_apply_defines_the_queues_of_an_app(run, tasks):
    said = run("apply", f"{tasks}:app", "--yes").out
    assert "+ queue orders\n" in said
    assert "    max_deliveries: 6\n" in said
    assert said.endswith("2 new, 0 unchanged\n")
    assert "nothing to do: 2 definitions" in run("apply", f"{tasks}:app").out


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["apply", "{}:plain"], 1, "is of type function; allowed is an ampsq.App"),
        (["apply", "{}:ap"], 1, "did you mean 'app'?"),
        (["apply", "not_there:app"], 1, "there is no module 'not_there'"),
        (["worker", "{}:ap"], 1, "did you mean 'app'?"),
        (["worker", "not_there:app"], 1, "there is no module 'not_there'"),
        (["worker", "{}:empty"], 1, "the app has no handler"),
        (["worker", "{}:plain"], 2, "--queue QUEUE says whose messages it handles"),
        (["worker", "{}:app", "--queue", "orders"], 2, "--queue is for a function"),
        (["worker", "{}:app", "--concurrency", "2"], 2, "--concurrency is for a function"),
    ],
)
def test_what_is_no_app_is_explained(run, tasks, arguments, code, text):
    assert text in run(*(each.format(tasks) for each in arguments), code=code).err


@pytest.mark.slow
@pytest.mark.parametrize(("number", "processes"), [(signal.SIGTERM, 1), (signal.SIGINT, 1), (signal.SIGTERM, 2)])
def test_worker_defines_the_queues_of_an_app_and_handles_their_messages_until_stopped(run, tasks, number, processes):
    process = run.start("worker", f"{tasks}:app", "--processes", str(processes))
    with run.client() as client:
        eventually(lambda: {"orders", "letters"} <= client.admin.queues().keys(), within=60.0)
        for queue in ("orders", "letters"):
            eventually(lambda queue=queue: client.admin.queue_stats(queue).subscriptions == processes, within=60.0)
        # One after the other: lines that handlers print at the same time may run into each other.
        client.publish("orders", 1)
        assert process.stdout.readline() == "order 1\n"
        client.publish("letters", 1)
        assert process.stdout.readline() == "letter 1\n"
    done = run.end(process, number)
    assert done.code == 0
    assert done.err.count("defined: ") == 2
    assert done.err.count("handles 'orders': concurrency 8, max_backlog 16") == processes
    assert done.err.count("stopped: ") == processes
