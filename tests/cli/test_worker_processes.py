"""ampsq worker --processes and --reload: processes that are replaced, and that are started again with what changed."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest
from observing import eventually
from programs import PROGRAM

from ampsq import Queue

pytestmark = pytest.mark.slow

TASKS = """
import os
import sys
import time
import ampsq

app = ampsq.App(ampsq.Queue(name="dead"), ampsq.Action.dead_letter("work", "dead"))

def say(*words):
    # In one write, also where Python does not buffer: the processes share a pipe.
    sys.stdout.write(" ".join(map(str, words)) + "\\n")
    sys.stdout.flush()

@app.handler("work", retries=1, time_limit="500ms")
def handle(message):
    if message.data == "stuck":
        time.sleep(600)  # beyond its time limit
    if message.data == "computes":
        while True:
            pass
    if message.data == "slow" and message.delivery == 1:
        time.sleep(2)  # beyond its time limit
    say(message.data, os.getpid())

def take(message):
    if message.data == "first stuck" and message.delivery == 1:
        time.sleep(600)  # until it is killed
    if message.data == "short":
        time.sleep(1)  # the handler's work
    if message.data == "told":
        say("begun")
        time.sleep(1)  # the handler's work
    say(message.data, os.getpid())
"""


@pytest.fixture
def tasks(process):
    (process.folder / "tasks.py").write_text(TASKS)
    return process


def dead_letters(tasks):
    with tasks.client() as client:
        return [(letter.data, letter.consumer_reason) for letter in client.admin.dead_letters("dead")]


@pytest.mark.parametrize("what", ["stuck", "computes"])
@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_process_that_a_handler_keeps_is_replaced_and_the_message_is_a_dead_letter(tasks, what, processes):
    # Given workers, of which the message holds up one, and another one when it comes again
    worker = tasks.start("worker", "tasks:app", "--processes", processes)
    with tasks.client() as client:
        eventually(lambda: "work" in client.admin.queues(), within=60.0)
        client.publish("work", what)
        # Then it is a dead letter, which says why
        eventually(lambda: dead_letters(tasks) == [(what, "handler_time_limit")], within=60.0)
        # And there are as many workers as before, which go on
        client.publish("work", "next")
    assert worker.stdout.readline().startswith("next ")
    with tasks.client() as client:
        eventually(lambda: client.admin.queue_stats("work").subscriptions == int(processes), within=60.0)
    replaced = 0
    while replaced < 2:
        line = worker.stderr.readline()
        assert line
        replaced += line.count(" is replaced by ")
    done = tasks.end(worker)
    assert done.code == 0
    assert " is replaced by " not in done.err


def test_the_other_handlers_of_a_process_that_is_replaced_may_end(tasks):
    with tasks.client() as client:
        client.apply(Queue(name="work", max_per_subscription_backlog=4))
    options = ["--processes", "1", "--concurrency", "2", "--time-limit", "3s"]
    worker = tasks.start("worker", "tasks:take", "--queue", "work", *options)
    with tasks.client() as client:
        eventually(lambda: client.admin.queue_stats("work").subscriptions == 1, within=60.0)
        # Given one that is stuck, and another one that has begun when the process is to be replaced
        client.publish("work", "first stuck")
        eventually(lambda: client.admin.queue_stats("work").leased == 1)
        before = [client.publish("work", "short") for _ in range(4)]
        seen = [worker.stdout.readline().split() for _ in range(5)]
        # Then each was handled once, by one of two processes, and the one that was stuck by the second one
        assert sorted(each[:-1] for each in seen) == [["first", "stuck"], *[["short"]] * 4]
        assert len({each[-1] for each in seen}) == 2
        eventually(lambda: client.admin.queue_stats("work").depth == 0)
        assert client.admin.queue_stats("work").acknowledged == len(before) + 1
    done = tasks.end(worker)
    assert done.code == 0
    assert done.err.count(" is replaced by ") == 1


def test_a_process_that_is_stopped_while_a_handler_is_stuck_ends_well(tasks):
    worker = tasks.start("worker", "tasks:app", "--processes", "2", "--stop-timeout", "20s")
    with tasks.client() as client:
        eventually(lambda: "work" in client.admin.queues(), within=60.0)
        eventually(lambda: client.admin.queue_stats("work").subscriptions == 2, within=60.0)
        client.publish("work", "stuck")
        eventually(lambda: client.admin.queue_stats("work").leased == 1)
    done = tasks.end(worker, signal.SIGTERM)
    assert done.code == 0


def test_a_worker_of_one_process_goes_on_with_a_slot_less(tasks):
    with tasks.client() as client:
        client.apply(Queue(name="work", max_per_subscription_backlog=4))
    worker = tasks.start("worker", "tasks:take", "--queue", "work", "--concurrency", "2", "--time-limit", "1500ms")
    with tasks.client() as client:
        client.publish("work", "first stuck")
        client.publish("work", "short")
        seen = sorted(worker.stdout.readline().split()[:-1] for _ in range(2))
    assert seen == [["first", "stuck"], ["short"]]
    done = tasks.end(worker)
    assert done.code == 0
    assert "a thread cannot be ended" in done.err
    assert "is replaced" not in done.err


def test_ctrl_c_lets_the_handlers_of_all_processes_end(tasks):
    # Given what a terminal does: it interrupts all processes of a group
    with tasks.client() as client:
        client.apply(Queue(name="work", max_per_subscription_backlog=4))
    command = [*PROGRAM, "worker", "tasks:take", "--queue", "work", "--processes", "2", "--max-backlog", "1"]
    options = {"cwd": tasks.folder, "env": tasks.environment, "text": True, "start_new_session": True}
    worker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
    with tasks.client() as client:
        eventually(lambda: client.admin.queue_stats("work").subscriptions == 2, within=60.0)
        client.publish_many("work", ["told", "told"])
        assert [worker.stdout.readline() for _ in range(2)] == ["begun\n", "begun\n"]
        os.killpg(worker.pid, signal.SIGINT)
        out, err = worker.communicate(timeout=60)
        assert client.admin.queue_stats("work").depth == 0
    assert (worker.returncode, out.count("told ")) == (0, 2), err
    assert err.count("stopped: ") == 2


def test_a_change_starts_a_worker_again_with_it_and_one_that_is_broken_waits_for_the_next(tasks):
    # Given a worker that is reloaded
    file = tasks.folder / "tasks.py"
    with tasks.client() as client:
        client.apply(Queue(name="work", max_per_subscription_backlog=4))
    worker = tasks.start("worker", "tasks:take", "--queue", "work", "--reload")
    with tasks.client() as client:
        eventually(lambda: client.admin.queue_stats("work").subscriptions == 1, within=60.0)
        client.publish("work", 1)
        assert worker.stdout.readline().split()[0] == "1"
        # When its file is broken
        file.write_text("no python")
        while "a change starts another one" not in (line := worker.stderr.readline()):
            assert line
        assert client.admin.queue_stats("work").subscriptions == 0
        # And mended
        file.write_text("def take(message):\n    print('new', message.data, flush=True)\n")
        client.publish("work", 2)
        assert worker.stdout.readline() == "new 2\n"
    done = tasks.end(worker)
    assert done.code == 0
    assert "changed: tasks.py; starting another worker" in done.err
