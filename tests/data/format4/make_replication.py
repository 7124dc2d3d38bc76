"""Three instances that replicate: New York and London share queues, and Tokyo recovers after it lost what it had."""

from __future__ import annotations

import time

from making import FAR, eventually

from ampsq import Destination, GroupLocalQueue, Instance, Queue, ReplicatedTopic, Topic
from ampsq.coordinator.retention import Retention
from ampsq.replication import recovering, replication_calls, running
from ampsq.replication.incarnations import new_incarnation

__all__ = ["fill_replication"]

#: Who journaled what has not come yet: an instance of which this dump has nothing else.
_UNKNOWN = "format4-syd.one"
#: Of these only London has a part.
_PARTS = ReplicatedTopic(name="parts", filter="/part = 1")


def fill_replication(nyc, ldn, tyo):
    """All of this module's."""
    define(nyc, ldn, tyo)
    twice(nyc, ldn)
    carry(nyc, ldn, tyo)
    transferred(nyc, ldn, tyo)
    trimmed(nyc, ldn, tyo)
    on_disk(ldn)
    begin_anew(nyc, ldn, tyo)
    under_way(nyc, ldn)


def _destination(source, target, sync_type, *more, **options):
    # Nobody answers there: links are made by hand, here and in tests.
    address = f"redis://127.0.0.1:9#{target.instance}"
    return Destination(
        name=target.instance,
        sync_type=sync_type,
        topics=["deals", "deals-work", "deals-ours", "notes", *more],
        addresses=[address, f"rediss://user:secret%23{source.instance}@127.0.0.1:9/1#{target.instance}"],
        **options,
    )


def define(nyc, ldn, tyo):
    """Define the topics and queues that all three have, and the destinations of each."""
    shared = [
        Topic(name="deals"),
        Topic(name="notes", retention_count=5),
        Topic(name="parts"),
        Queue(
            name="deals-work",
            underlying_topic="deals",
            max_per_subscription_backlog=20,
            lease_period=FAR,
            deferred_ack_expiration=FAR,
        ),
        GroupLocalQueue(
            name="deals-ours",
            underlying_topic="deals",
            initial_owner=nyc.instance,
            group_local_queue_domain="floor",
            max_per_subscription_backlog=3,
            lease_period=FAR,
        ),
    ]
    for site in (nyc, ldn, tyo):
        site.client.apply(*shared)
    nyc.client.apply(
        Instance(group="NYC"),
        _destination(nyc, ldn, "sync", _PARTS, group="LDN", ack_conflation_interval="10ms"),
        _destination(nyc, tyo, "async", pass_through=["^LDN$"]),
        Destination(
            name="format4-backup",
            sync_type="sync",
            topics="notes",
            addresses=["redis://keeper:pass@127.0.0.1:9#format4-backup"],
        ),
    )
    ldn.client.apply(
        Instance(group="LDN"),
        _destination(ldn, nyc, "async", group="NYC", pass_through=[".*"]),
        _destination(ldn, tyo, "async"),
    )
    tyo.client.apply(_destination(tyo, nyc, "async"), _destination(tyo, ldn, "async"))
    nyc.client.downgrade_replication("format4-backup")


def twice(nyc, ldn):
    """A publisher that failed over: the same numbers at both."""
    for site, numbers in ((nyc, (1, 2, 3)), (ldn, (2, 3, 4))):
        till = site.connect(publisher="till-9")
        for number in numbers:
            till.publish("deals", {"till": 9, "number": number}, sequence=number)


def _directions(*sites, only=()):
    ends = {site.instance: site.end for site in sites}
    for source in sites:
        for text in ends[source.instance].catalog.destinations.values():
            definition = Destination.from_json(text)
            target = ends.get(definition.name)
            if target is None or (only and (source.instance, definition.name) not in only):
                continue
            state = running.State(
                definition.name,
                source.instance,
                instance=definition.name,
                group=target.peer.group,
                address=f"redis://127.0.0.1:9#{definition.name}",
                sync_type=definition.sync_type,
            )
            yield running._Direction(ends[source.instance], target, definition, state)


def carry(*sites, only=(), ask=None):
    """Open the links between instances, ask if somebody is to, and step them until nothing moves any more."""
    directions = list(_directions(*sites, only=only))
    try:
        for direction in directions:
            direction.link.open()
        if ask is not None:
            ask.store.call(replication_calls.request("deals-work"))
        for _ in range(60):
            moved = []
            for direction in directions:
                before = direction.state.messages, direction.state.told, direction.state.requests
                direction.step(0.0)
                moved.append(before != (direction.state.messages, direction.state.told, direction.state.requests))
            if not any(moved):
                break
        else:
            raise AssertionError("the links never come to rest")
        for direction in directions:
            direction.report("dump")
    finally:
        for direction in directions:
            direction.link.close()


def transferred(nyc, ldn, tyo):
    """Messages that went to London, some of which are settled there, and some of which came to New York."""
    nyc.client.publish_many("deals", ({"from": "nyc", "id": number} for number in range(12)), headers={"desk": "3"})
    ldn.client.publish_many("deals", ({"from": "ldn", "id": number} for number in range(6)))
    nyc.client.publish_many("parts", ({"part": number % 2, "id": number} for number in range(6)))
    carry(nyc, ldn, tyo)
    there = ldn.subscribe("deals-work", max_backlog=12)
    # Messages are asked for when they have been here for a moment.
    time.sleep(0.2)

    def asked():
        carry(nyc, ldn, tyo, ask=ldn)
        return ldn.client.queue_stats("deals-work").transferred_in >= 3

    eventually(asked)
    found = ldn.take(there, 9)
    for message in found[:4]:
        message.ack(wait=True)
    found[4].cancel(0, reason="not in London")
    found[5].expire(reason="void")
    for message in found[6:]:
        message.cancel(0)
    ldn.keep(there, 2)
    ours = nyc.subscribe("deals-ours", max_backlog=3)
    taken = nyc.take(ours, 2)
    taken[0].ack(wait=True)
    taken[1].expire(reason="no")
    nyc.keep(ours, 1)
    carry(nyc, ldn, tyo)
    tyo.client.enable_proxied_transfer("deals-work")


def trimmed(nyc, ldn, tyo):
    """Logs of copies that lost their first ones, here and there."""
    nyc.client.publish_many("notes", ({"id": number} for number in range(12)))
    ldn.client.publish_many("notes", ({"id": number} for number in range(100, 104)))
    carry(nyc, ldn, tyo)
    nyc.store.call(replication_calls.report_sent("format4-backup", {"log notes": "0-0"}))
    for site in (ldn, tyo):
        duty = Retention()
        eventually(
            lambda duty=duty, site=site: (
                duty.run_once(site.store) >= 0 and site.client.topics()["notes"]["messages"] <= 5
            )
        )


def on_disk(site):
    """Durable subscriptions that wait for the disk or a replica, where no sync destination is to be waited for."""
    site.client.publish_many("audit", ({"n": number} for number in range(4)))
    safe = site.client.subscribe("audit", bookmark="epoch", sub_id="on-disk", fully_durable=True)
    assert [safe.get(10).data["n"] for _ in range(3)] == [0, 1, 2]
    # There is no replica: what was read is marked, and waits.
    safer = site.client.subscribe("audit", bookmark="epoch", sub_id="on-replica", fully_durable="replicas=1")
    assert safer.get(1) is None


def begin_anew(nyc, ldn, tyo):
    """Tokyo begins a new incarnation: it has heard of New York since then, and not of London."""
    tyo.client.publish("deals", {"from": "tyo", "id": 1})
    carry(nyc, ldn, tyo)
    tyo.store.run(new_incarnation())
    tyo.client = tyo.connect()
    carry(nyc, ldn, tyo, only={(nyc.instance, tyo.instance), (tyo.instance, nyc.instance)})
    tyo.client.publish("deals", {"from": "tyo", "id": 2})
    assert tyo.client.replication().recovery is not None
    nyc.store.call(recovering.close(nyc.instance, ["format4-syd.zero"]))


def under_way(nyc, ldn):
    """Leave messages, settlements, requests and early reports that links have not carried yet."""
    ldn.client.publish_many("deals", ({"from": "ldn", "id": number} for number in range(6, 9)))
    nyc.client.publish_many("deals", ({"from": "nyc", "id": number} for number in range(12, 20)))
    carry(nyc, ldn, only={(nyc.instance, ldn.instance)})
    nyc.subscribe("deals-work", max_backlog=1)
    time.sleep(0.2)
    ldn.subscribe("deals-work", max_backlog=5)
    ldn.store.call(replication_calls.request("deals-work"))
    nyc.store.call(replication_calls.mark())
    told = replication_calls.Told(
        b"%s~7-0" % _UNKNOWN.encode(),
        b"%s/SYD" % _UNKNOWN.encode(),
        (b"acknowledged", b"", b"s00000009", b"", b"", b"", b""),
        [b"deals~%s~5-0" % _UNKNOWN.encode(), b"deals~%s~6-0" % _UNKNOWN.encode()],
    )
    path = f"{_UNKNOWN}/SYD"
    assert nyc.store.call(replication_calls.apply_journal("deals-work", f"{_UNKNOWN} 0-0", [(told, path)]))[1] == 2
