"""Links that coordinators run: found by their definitions, through failures, in both directions."""

from __future__ import annotations

import contextlib
import json
import threading

import pytest
from observing import eventually
from sites import World, shared, to

from ampsq import Instance
from ampsq.base.errors import TopicNotDefined
from ampsq.operations.doctor.instance_facts import read_instance_facts, read_repeated_facts
from ampsq.operations.doctor.instance_rules import RULES
from ampsq.protocol.schema import key
from ampsq.replication.link_runner import LinkRunner

LISTENS = "refused, nobody listens there: start the server, or correct the address"


def test_a_message_published_at_one_instance_is_delivered_at_another_that_has_room(world):
    a = world.site("a", *shared(), to(world, "b"))
    b = world.site("b", *shared(), to(world, "a"))

    a.publish("orders", {"id": 1})

    with b.subscribe("work") as messages:
        message = messages.get(30)
        assert message.data == {"id": 1}
        message.ack()
    eventually(lambda: a.admin.queue_stats("work").acknowledged == 1)


def test_a_destination_without_address_is_served_by_the_link_of_the_other_side(world):
    a = world.site("a", *shared(), to(world, "b", name=world.name("b"), addresses=[]))
    b = world.site("b", *shared(), to(world, "a"))

    a.publish("orders", {"id": 1})

    with b.subscribe("work") as messages:
        message = messages.get(30)
        assert message.data == {"id": 1}
        message.ack()
    eventually(lambda: a.admin.queue_stats("work").acknowledged == 1)


def test_the_next_address_is_taken_where_the_first_does_not_answer(world):
    addresses = [f"unix:///tmp/nobody-is-here#{world.name('c')}", world.address("b")]
    a = world.site("a", *shared(), to(world, "b", addresses=addresses, reconnect_timeout="1s"))
    b = world.site("b", *shared(), to(world, "a"))

    a.publish("orders", {"id": 1})

    eventually(lambda: b.admin.queue_stats("work").topics, 30)
    state = eventually(
        lambda: (found := world.link_of("a", "out to-b")) and found["state"] == "connected" and found, 10
    )
    assert state["instance"] == world.name("b")


def test_a_link_to_an_instance_of_another_group_is_refused_and_says_so(world):
    world.site("b", Instance(group="London"), *shared(), to(world, "a"), coordinated=False)
    world.site("a", *shared(), to(world, "b", group="NewYork"))

    state = eventually(lambda: (found := world.link_of("a", "out to-b")) and found["state"] == "refused" and found, 30)

    assert "'London'" in state["reason"]
    assert "NewYork" in state["reason"]


def test_a_refused_link_is_seen_at_both_ends_until_it_is_mended(world):
    # given
    b = world.site("b", Instance(group="London"), *shared(), to(world, "a"))
    a = world.site("a", *shared(), to(world, "b", group="NewYork"))

    def incoming():
        return {link.instance: link for link in b.admin.replication().links if link.direction == "in"}.get(a.instance)

    # then
    there = eventually(lambda: (found := incoming()) is not None and found.state == "refused" and found, 30)
    assert ("'London'" in there.reason, there.destination) == (True, "to-b")
    findings = [each for rule in RULES for each in rule(*facts_of(b)) if each.subject == f"link {a.instance}"]
    assert [(each.well, "is refused" in each.text) for each in findings] == [(False, True)]
    # when
    a.apply(to(world, "b", group="London"))
    # then
    eventually(lambda: incoming().state == "connected", 30)


def facts_of(client):
    """Facts for the doctor's rules, twice."""
    store = client._store
    with store.pipeline() as pipeline:
        before = store.run(read_repeated_facts(client.instance, pipeline))
        return before, store.run(read_instance_facts(client.instance, client.origin, pipeline))


def test_a_link_that_is_defined_later_brings_what_was_published_before(world):
    a = world.site("a", *shared())
    b = world.site("b", *shared(), to(world, "a"))
    a.publish_many("orders", [{"id": number} for number in range(1200)])

    a.apply(to(world, "b"))

    log = key(world.name("b"), "log", "orders")
    eventually(lambda: b._store.redis.xlen(log) == 1200, 30)


def test_a_new_topic_that_matches_a_destination_s_pattern_is_carried(world):
    prices = {"name": "^prices\\.", "exclude_validation": "replicate,cascade"}
    a = world.site("a", to(world, "b", topics=[prices]))
    b = world.site("b", coordinated=False)

    a.publish("prices.eur", {"x": 1})
    a.publish("orders", {"x": 2})

    eventually(lambda: b._store.redis.xlen(key(world.name("b"), "log", "prices.eur")) == 1, 30)
    assert not b._store.redis.exists(key(world.name("b"), "log", "orders"))


def test_a_lost_owner_is_stood_in_for_by_the_operator_s_word_alone_and_all_is_settled_when_it_is_back(
    start_server, instance
):
    lost, kept = start_server("valkey", appendonly=True, options=["--appendfsync", "always"]), start_server("redis")
    with contextlib.ExitStack() as stack:
        world = World(stack, [lost.url, kept.url], instance)
        a = world.site("a", *shared(), to(world, "b"))
        b = world.site("b", *shared(), to(world, "a"))
        a.publish_many("orders", [{"id": number} for number in range(4)])
        redis, links = b._store.redis, key(b.instance, "links")
        # Given an owner that is gone, and has been silent for a while,
        eventually(lambda: redis.xlen(key(b.instance, "log", "orders")) == 4, 30)
        world.leave("a")
        a.close()
        lost.process.kill()
        lost.process.wait()
        said = json.loads(redis.hget(links, f"in {a.instance}"))
        redis.hset(links, f"in {a.instance}", json.dumps(said | {"at": said["at"] - 6_000}))
        with b.subscribe("work", max_backlog=10) as messages:
            # when somebody is free elsewhere, it waits,
            eventually(lambda: redis.hexists(key(b.instance, "queue", "work"), "requested"), 30)
            assert b.admin.queue_stats("work").remote == 4
            # until an operator lets that instance deliver them.
            b.admin.enable_proxied_transfer("work")
            taken = [messages.get(30) for _ in range(4)]
            assert [message.data["id"] for message in taken] == [0, 1, 2, 3]
            for message in taken[:3]:
                message.ack()
            # When the owner comes back, without consumers, it hears of it all,
            start_server("valkey", appendonly=True, options=["--appendfsync", "always"], data_dir=lost.directory)
            a = world.site("a")
            eventually(lambda: _has_everything(a) and _has_everything(b), 30)
            b.admin.disable_proxied_transfer("work")
            assert (a.admin.queue_stats("work").acknowledged, a.admin.queue_stats("work").remote) == (3, 1)
            taken[3].ack()
            eventually(lambda: a.admin.queue_stats("work").acknowledged == 4, 30)
        # and delivers what is published then, and nothing else.
        a.publish("orders", {"id": 4})
        with a.subscribe("work") as messages:
            message = messages.get(30)
            assert message.data == {"id": 4}
            message.ack()
        for client in (a, b):
            eventually(lambda client=client: (stats := client.admin.queue_stats("work")).depth == stats.remote == 0, 30)


def test_owners_that_are_heard_of_are_not_stood_in_for(world):
    a = world.site("a", *shared(), to(world, "b"))
    b = world.site("b", *shared(), to(world, "a"))
    b.admin.enable_proxied_transfer("work")

    a.publish("orders", {"id": 1})

    with b.subscribe("work") as messages:
        message = messages.get(30)
        # The owner gave it: it has not learnt of it from here.
        assert a.admin.queue_stats("work").transferred_out == 1
        message.ack()
    eventually(lambda: a.admin.queue_stats("work").acknowledged == 1, 30)


def _has_everything(client):
    links = client.admin.replication().links
    return all(link.state == "connected" and not link.behind for link in links) and len(links) == 2


def test_a_new_incarnation_recovers_by_itself_once_its_peer_has_a_coordinator(world):
    a = world.site("a", *shared(), to(world, "b"))
    world.site("b", *shared(), to(world, "a"), coordinated=False)
    a.publish("orders", {"id": 1})

    a.admin.begin_incarnation()

    with a.subscribe("work") as messages:
        assert messages.get(0.5) is None
        assert a.admin.replication().recovery.waits_for == ("to-b",)
        world.coordinate("b")
        assert messages.get(20).data == {"id": 1}
        assert a.admin.replication().recovery is None


def test_the_reason_of_a_link_that_waits_names_each_address_once(world):
    here = [f"redis://localhost:1#{world.name('b')}", f"redis://u:hidden@localhost:2#{world.name('c')}"]
    world.site("a", *shared(), to(world, "b", addresses=here, reconnect_timeout="1s"))

    state = eventually(lambda: (found := world.link_of("a", "out to-b")) and LISTENS in found["reason"] and found, 30)

    assert state["state"] == "waiting"
    assert state["reason"] == (
        f"redis://localhost:1#{world.name('b')}: {LISTENS}; redis://***@localhost:2#{world.name('c')}: {LISTENS}"
    )


def test_a_run_whose_destination_was_removed_meanwhile_notes_nothing_for_it(world):
    a = world.site("a", *shared(), coordinated=False)
    stopping = StopsAfterOne()

    LinkRunner(world.address("a").partition("#")[0], a.instance, to(world, "b"), stopping).run()

    assert a._store.redis.hkeys(key(a.instance, "keepers")) == []
    assert a._store.redis.hkeys(key(a.instance, "links")) == []


class StopsAfterOne(threading.Event):
    """Is set by the first wait for it: a run that failed or was refused is not begun again."""

    def wait(self, timeout=None):  # noqa: ARG002
        self.set()
        return True


def test_a_link_brings_topics_that_an_instance_of_defined_topics_alone_does_not_have(world):
    prices = {"name": "^prices", "exclude_validation": ["replicate", "cascade"]}
    b = world.site("b", Instance(topics="defined"))
    a = world.site("a", to(world, "b", topics=[prices]), coordinated=False)
    a.publish("prices-eu", {"id": 1})

    world.coordinate("a")

    eventually(lambda: "prices-eu" in b.admin.topics() and b.admin.topics()["prices-eu"].messages == 1, 30)
    # What came is there for everybody, and nothing else is
    b.publish("prices-eu", {"id": 2})
    with pytest.raises(TopicNotDefined, match="did you mean 'prices-eu'"):
        b.publish("prices-us", {"id": 3})
