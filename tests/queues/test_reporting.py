"""Progress: what the holder of a message says of it, which renews its lease and is shown as long as it holds it."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from observing import eventually
from scene import pick_up

from ampsq import AsyncMessage, Message, Queue, Worker
from ampsq.base.errors import AlreadyAcked, DefinitionError, StaleLease
from ampsq.protocol.limits import REASON_LENGTH
from ampsq.queues.returns import read_report, report_text
from ampsq.testing import message as message_of


def define(client, **elements):
    client.apply(Queue(name="work", **elements))


def test_a_report_renews_the_lease_and_is_shown(either):
    # Given a message that is held
    define(either, lease_period="30s")
    bookmark = either.publish("work", 1)
    with either.subscribe("work") as messages:
        message = pick_up(messages, 1)[0]
        before = either.admin.explain("work", bookmark).facts["lease"]
        assert "progress" not in before
        time.sleep(0.01)  # so that the later deadline is another one
        # When its holder says how far it is
        message.report(0.4, "page 40 of 100")
        # Then explain shows the report, and the lease ends later
        found = either.admin.explain("work", bookmark)
        lease = found.facts["lease"]
        assert lease["until"] > before["until"]
        assert lease["progress"]["done"] == 0.4
        assert lease["progress"]["text"] == "page 40 of 100"
        assert before["until"] - 30_000 <= lease["progress"]["at"] <= found.facts["now"]
        assert ", picked up, 0.4 of it done (page 40 of 100), as it said " in found.sentence
        # And the last report counts
        message.report(1)
        found = either.admin.explain("work", bookmark)
        assert (found.facts["lease"]["progress"]["done"], found.facts["lease"]["progress"]["text"]) == (1.0, "")
        assert ", picked up, 1 of it done, as it said " in found.sentence


def test_a_report_of_what_is_settled_or_lost_is_refused(client, start_coordinator):
    # Given a message that is settled, and one whose lease lapsed
    define(client, lease_period="200ms", max_per_subscription_backlog=2)
    start_coordinator()
    client.publish_many("work", list("ab"))
    with client.subscribe("work", max_backlog=2) as messages:
        settled, lost = pick_up(messages, 2)
        settled.ack(wait=True)
        again = messages.get("20s")
        assert (again.data, again.delivery) == ("b", 2)
        # When their first holder reports
        with pytest.raises(AlreadyAcked):
            settled.report(0.5)
        with pytest.raises(StaleLease):
            lost.report(0.5)
        # Then nothing is shown
        lease = client.admin.explain("work", again.bookmark).facts.get("lease", {})
        assert "progress" not in lease


@pytest.mark.parametrize("done", [-0.1, 1.1, float("nan"), float("inf"), "0.4", None, True])
def test_what_is_no_part_is_refused_with_what_is_allowed(done):
    with pytest.raises(DefinitionError, match="from 0 to 1"):
        message_of(1).report(done)


@pytest.mark.parametrize(
    ("text", "said"), [("two\nlines", "one line"), ("x" * (REASON_LENGTH + 1), "at most"), (7, "one line")]
)
def test_a_text_that_is_no_line_or_too_long_is_refused(text, said):
    with pytest.raises(DefinitionError, match=f"text=.*{said}"):
        message_of(1).report(0.4, text)


@pytest.mark.parametrize("text", ["", "page 40 of 100", "é 飛行機 ✈", "x" * REASON_LENGTH])
@pytest.mark.parametrize("done", [0, 1, 0.25, 1 / 3])
def test_a_report_is_read_as_it_was_written(done, text):
    found = read_report(f"1700 {report_text(done, text)}")

    assert (found.at, found.text) == (1700, text)
    assert found.done == pytest.approx(done, abs=1e-6)


def test_a_message_of_the_test_kit_notes_reports():
    message = message_of({"pages": 2})

    message.report(0.5, "page 1")
    message.report(1)
    message.ack()

    assert message.reports == [(0.5, "page 1"), (1, "")]
    with pytest.raises(AlreadyAcked):
        message.report(1)


@pytest.mark.parametrize("kind", ["thread", "coroutine"])
def test_a_handler_of_a_worker_reports(client, valkey, kind):
    # Given a handler that says how far it is and goes on
    define(client)
    bookmark = client.publish("work", 1)
    is_over = threading.Event()

    def report(message: Message) -> None:
        message.report(0.5, "half")
        assert is_over.wait(60)

    async def report_awaited(message: AsyncMessage) -> None:
        await message.report(0.5, "half")
        assert await asyncio.to_thread(is_over.wait, 60)

    def told():
        return client.admin.explain("work", bookmark).facts.get("lease", {}).get("progress", {}).get("text")

    # When a worker runs it
    handler = report if kind == "thread" else report_awaited
    worker = Worker(handler, "work", url=valkey.url, instance=client.instance)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        # Then it is shown while it runs, and gone once it is done
        eventually(lambda: told() == "half")
        is_over.set()
        eventually(lambda: client.admin.explain("work", bookmark).state == "settled")
        assert told() is None
    finally:
        is_over.set()
        worker.stop()
        thread.join(60)
