"""Publishers that are guaranteed, actions, jobs that write rows, and a queue that is being rebuilt."""

from __future__ import annotations

import time

from making import eventually

from ampsq import Action, Do, MemoryPublishStore, On, Queue, Topic
from ampsq.administration import action_calls
from ampsq.checking import check_calls
from ampsq.coordinator.actions import Actions, Powers
from ampsq.definitions.action_parts import If
from ampsq.publishing import publish_calls
from ampsq.spark.job_calls import Staged, Written, commit_job, finish_job, record_stage, stage_rows, write_rows

__all__ = ["fill_others"]

_DAY = 86_400_000
#: Nobody answers there.
_NOWHERE = "http://127.0.0.1:9/"


def fill_others(site):
    """All of this module's."""
    publishers(site)
    actions(site)
    jobs(site)
    rebuilding(site)


def publishers(site):
    """Named publishers: with numbers of their own, with gaps, logged on, logged off."""
    site.client.apply(Topic(name="sold"))
    till = site.connect(publisher="till-1")
    for number in (1, 2, 5):
        till.publish("sold", {"number": number}, sequence=number)
    # Recorded once, whatever is sent again.
    till.publish("sold", {"number": 5}, sequence=5)
    # What it published waits for a sync destination when the dump is made.
    guaranteed = site.connect(publisher="till-2", publish_store=MemoryPublishStore(), patience="1s")
    for number in range(4):
        guaranteed.publish("sold", {"guaranteed": number})
    eventually(lambda: {each.name: each.sequence for each in site.client.publishers()}.get("till-2") == 4)
    session = site.store.call(publish_calls.logon("till-3", "nyc-till", 1, None)).session
    for first in (1, 3):
        site.store.call(
            publish_calls.publish_logged_on("till-3", session, first, ["sold", "b", f'{{"n":{first}}}', "{}"])
        )
    site.store.call(publish_calls.logoff("till-3", session))
    site.store.call(publish_calls.logon("till-4", "nyc-till", 7, 6))


def actions(site):
    """Actions: done, failed and tried again, tracked and told, counted, raised."""
    client = site.client
    client.apply(
        Queue(name="jobs", underlying_topic="tasks", max_per_subscription_backlog=10),
        Action(name="copy", on=On.publish(topic="tasks"), do=[Do.increment(key="copies"), Do.publish(topic="copies")]),
        Action(
            name="hook",
            on=On.expire(topic="jobs"),
            if_=If.condition(condition="/id > 0"),
            do=[Do.publish(topic="hooked"), Do.webhook(url=f"{_NOWHERE}x")],
        ),
        Action(
            name="late",
            on=On.timeout(topic="tasks", key=["/id"], duration="1s", filter="/id < 3"),
            do=Do.publish(topic="alarms"),
        ),
        Action(
            name="patient",
            on=On.timeout(topic="tasks", key=["/id"], duration="30000d", filter="/id < 2"),
            do=Do.publish(topic="alarms"),
        ),
        Action(
            name="who",
            on=[On.connect(), On.disconnect(), On.subscribe(topic="^jobs$"), On.unsubscribe()],
            do=Do.publish(topic="comings", data="{{AMPS_CLIENT_NAME}}"),
        ),
        Action(name="heard", on=On.event(event="lost"), do=Do.event(event="found", data="{{AMPS_DATA}}!")),
        Action(name="nightly", on=On.schedule(every="00:32Z"), do=Do.echo(message="night")),
        Action(name="sent", on=On.deliver(topic="jobs"), do=Do.publish(topic="sent-on", data="{{AMPS_TOPIC}}")),
        Action(name="rates-seen", on=On.publish(topic="^rates-"), do=Do.increment(key="rates")),
    )
    duty = Actions(Powers(webhooks=(_NOWHERE,)))
    duty.run_once(site.store)
    sent = client.publish_many("tasks", ({"id": number} for number in range(5)))
    guest = site.connect()
    site.store.call(action_calls.happen("event", "somebody", "lost", b"\xfflost"))
    client.ack("jobs", [sent[3], sent[4]], "expire", reason="not ours")
    subscription = site.subscribe("jobs", max_backlog=2)
    site.keep(subscription, 2)
    eventually(lambda: _is_done(duty, site))
    # Messages whose time is over, not told yet: this is the first half of what a coordinator does about them.
    client.publish_many("tasks", ({"id": number} for number in (-1, -2)))
    client.publish_many("rates-eur", ({"n": number} for number in (20, 21)))
    eventually(lambda: _is_tracked(duty, site))
    time.sleep(1.1)
    assert site.store.call(action_calls.overdue("late")) == 2
    assert guest.origin


def _is_done(duty, site):
    duty.run_once(site.store)
    topics, states = site.client.topics(), site.client.actions()
    counts = {name: facts["messages"] for name, facts in topics.items()}
    return (
        states["hook"].failed == 2
        and counts.get("copies") == 5
        and counts.get("alarms") == 3
        and counts.get("hooked") == 2
        and states["heard"].done >= 1
        and states["sent"].done == 2
    )


def _is_tracked(duty, site):
    duty.run_once(site.store)
    return site.client.topics()["copies"]["messages"] == 7 and site.client.actions()["rates-seen"].done == 2


def jobs(site):
    """Jobs of Spark: rows written in sequence; rows put aside, decided, half recorded; a job that is done."""
    store = site.store
    site.client.apply(Topic(name="rows"))
    for partition in (0, 1):
        made = write_rows(
            "sequence", partition, 3, Written(0, 0), topic="rows", checksum=7 + partition, values=[b"1", b"2", b"3"]
        )
        assert store.call(made) == Written(3, 7 + partition)
    for lane in (f"{site.instance}/0", f"{site.instance}/1"):
        for attempt, number in (("first", 700), ("second", 2)):
            values = [b'{"row":%d}' % each for each in range(number)]
            length = 0
            for first in range(0, number, 350):
                part = values[first : first + 350]
                call = stage_rows("staged", lane, attempt, length, 30_000 * _DAY, topic="rows", shape="b", values=part)
                length = store.call(call)
    lanes = [Staged(f"{site.instance}/0", "first", 700), Staged(f"{site.instance}/1", "second", 2)]
    assert store.call(commit_job("staged", 5, lanes)).epoch == 5
    left = store.call(record_stage("staged", 5, lanes[0].lane))
    assert left > 0, "the lane is to be recorded in part"
    values = [b'["EUR",1]', b'{"k":"v"}', "Größe".encode(), b""]
    store.call(
        stage_rows("done", f"{site.instance}/0", "only", 0, 30_000 * _DAY, topic="rows", shape="bh", values=values)
    )
    store.call(commit_job("done", 1, [Staged(f"{site.instance}/0", "only", 2)]))
    store.call(record_stage("done", 1, f"{site.instance}/0"))
    assert store.call(finish_job("done", 1, [f"{site.instance}/0"])) == 0


def rebuilding(site):
    """A queue whose rebuild was begun, and whoever did it is gone: somebody else begins it anew."""
    client, store = site.client, site.store
    client.apply(Queue(name="mending", underlying_topic="mending", max_per_subscription_backlog=5))
    client.publish_many("mending", ({"n": number} for number in range(5)))
    end = str(store.redis.xinfo_stream("{" + site.instance + "}:log:mending")["last-generated-id"], "ascii")
    store.call(check_calls.pause_queue("mending", "somebody", 1, [("mending", "0-0 0")], changed=False))
    page = store.call(check_calls.check_log("mending", "mending", "0-0", end))
    refs = [(ref, 0) for ref in page.refs[:3]]
    store.call(check_calls.rebuild("mending", "somebody", 1, "0-0", page.refs[-1], refs))
