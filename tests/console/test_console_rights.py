"""The console with the coordinator's role alone: every page is shown and every change made, and nothing is refused."""

from __future__ import annotations

from urllib.parse import quote, urlencode

import pytest
from observing import eventually

from ampsq import Action, Client, Destination, Queue, Topic
from ampsq.console.changes import CHANGES

pytestmark = pytest.mark.default_user(reason="makes its users itself")

#: What is asked for and done without, as in the plugin `under_roles`.
DONE_WITHOUT = {("command", "config|get"), ("command", "client|setinfo"), ("command", "client")}
DEFINITIONS = (
    Topic(name="orders"),
    Topic(name="keyed", key=["/id"]),
    Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=10, filter="/id < 10"),
    Queue(name="letters", underlying_topic="failed"),
    Queue(name="other", underlying_topic="orders", max_per_subscription_backlog=10, filter="/id >= 10"),
    Queue(name="grouped", underlying_topic="tenants", group_by="/g", on_group_failure="stop"),
    Action.dead_letter("work", "failed"),
    Action.dead_letter("other", "keyed", name="keep"),
    Destination(name="ldn-1", addresses=["redis://localhost:1"], sync_type="sync", topics=["orders", "work"]),
)


@pytest.fixture
def admin(login, instance):
    with Client(login("admin"), instance=instance) as client:
        client.apply(*DEFINITIONS)
        yield client


@pytest.fixture
def seeded(admin, coordinate, login):
    """Messages that wait, one that was given up, and events at which an action failed; under a coordinator."""
    marks = admin.publish_many("orders", [{"id": number} for number in range(20)])
    admin.ack("work", option="expire", filter="/id = 0")
    admin.publish_many("tenants", [{"g": "a"}, {"g": "a"}])
    with Client(login("worker"), instance=admin.instance) as worker, worker.subscribe("grouped") as messages:
        messages.get(timeout="30s").expire()
        messages.flush()
    admin.ack("other", option="expire", filter="/id < 13")
    coordinate(login("coordinator"))
    eventually(lambda: len(admin.admin.failed_events("keep")) == 3)
    eventually(lambda: len(admin.admin.dead_letters("letters")) == 1)
    return marks


@pytest.fixture
def plain(plain):
    plain.acl_log_reset()
    return plain


def test_every_page_and_every_change_is_within_the_rights_of_a_coordinator(admin, seeded, serve, login, plain):
    asked = serve(login("coordinator"), [admin.instance])
    root, made = f"/i/{admin.instance}", []

    def change(name, **given):
        question = asked.page(f"{root}/changes/{name}?{urlencode(given)}")
        assert question.status == 200, question.text
        done = asked.change(f"{root}/changes/{name}", **given)
        assert done.status == 303, done.text
        made.append(name)

    with (
        Client(login("worker"), instance=admin.instance) as worker,
        worker.subscribe("work", max_backlog=2) as messages,
    ):
        assert messages.get(timeout="30s").data == {"id": 1}
        for page in ("queues", "queues/work", "dead-letters", "dead-letters/letters", "topics",
                     "topics/orders?from=epoch", "topics/keyed", "publishers", "replication", "actions", "actions/keep",
                     "groups/grouped", "search?q=o", f"search?q={seeded[1].id}", f"search?q={quote(seeded[1])}",
                     f"messages?bookmark={seeded[1]}&queue=work"):  # fmt: skip
            assert asked.page(f"{root}/{page}").status == 200, page
        assert asked.page("/search?q=o").status == 200
        change("release-group", queue="grouped", group="a")
        change("pause-group", queue="grouped", group="a")
        change("resume-group", queue="grouped", group="a")
        change("drop-group", queue="grouped", group="a", reason="of no use")
        change("cancel", queue="work", bookmark=seeded[1])
    change("expire", queue="work", bookmark=seeded[2], reason="of no use")
    change("expire", queue="work", filter="/id = 3")
    change("purge", queue="other")
    # The action fails for these seven, too, before its failed events are retried and dropped
    eventually(lambda: len(admin.admin.failed_events("keep")) == 10)
    change("pause", queue="work")
    change("resume", queue="work")
    change("redrive", queue="letters", filter="1 = 1")
    change("downgrade", destination="ldn-1")
    change("upgrade", destination="ldn-1")
    change("enable-proxied-transfer", queue="work")
    change("disable-proxied-transfer", queue="work")
    change("retry", action="keep")
    change("drop", action="keep")

    assert set(made) == set(CHANGES)
    assert admin.admin.queue_stats("work").expired == 3
    assert not admin.admin.failed_events("keep")
    assert asked("/metrics").status == asked("/healthz").status == 200
    told = {(each["reason"], each["object"], each["context"]) for each in plain.acl_log()}
    assert {each for each in told if each[:2] not in DONE_WITHOUT} == set()
