"""Persistence with sync destinations: they have it, or are downgraded. Links are stepped by hand."""

from __future__ import annotations

import contextlib
import json
import re
import threading

import pytest
from observing import eventually

from ampsq import Action, Client, Destination, Do, MemoryPublishStore, On, Queue, Topic
from ampsq.base.errors import DefinitionError, NotPersisted
from ampsq.coordinator.actions import Actions
from ampsq.protocol.schema import key
from ampsq.replication.downgrade import downgrade_late, upgrade_prompt
from ampsq.replication.link_directions import make_link
from ampsq.replication.link_ends import read_peer

ALWAYS = ["--appendfsync", "always"]


class Pair:
    """An instance `a` that replicates to `b`, and the link between them."""

    def __init__(self, stack, urls, prefix):
        self._stack, self._urls, self._prefix = stack, urls, prefix
        self.a, self.b = (self.client(each) for each in "ab")
        for each in (self.a, self.b):
            each.apply(Topic(name="orders"), Topic(name="local"), Queue(name="work", underlying_topic="orders"))
        self._opened = None

    def client(self, short, **options):
        url = self._urls["ab".index(short)]
        return self._stack.enter_context(Client(url, instance=f"{self._prefix}-{short}", **options))

    def publisher(self, client=None, **options):
        till = (client or self.client("a")).publisher("till", store=MemoryPublishStore(), **options)
        # What a destination that never comes back holds is given up.
        self._stack.callback(lambda: self.a.admin.remove_destination("b"))
        return till

    def destination(self, **elements):
        address = f"{self._urls[1]}#{self._prefix}-b"
        given = {"name": "b", "sync_type": "sync", "topics": ["orders", "work"], "addresses": [address]} | elements
        self.a.apply(Destination(**given))

    def link(self):
        """A link that was opened just now."""
        definition = self.a.admin.destinations()["b"]
        self._opened = make_link(read_peer(self.a._store), read_peer(self.b._store), definition)
        self._opened.open()
        return self._opened

    def catch_up(self):
        """Step the link until it is idle, and what it brought is acknowledged."""
        link = self._opened or self.link()
        for _ in range(200):
            if link.step().is_idle:
                return
        raise AssertionError("the link never comes to rest")

    def says(self, **state):
        """Report as the link does, as a coordinator that runs it writes it."""
        redis = self.a._store.redis
        now = redis.time()[0] * 1000
        redis.hset(
            key(self.a.instance, "links"), "out b", json.dumps({"state": "connected", "at": now, "reason": ""} | state)
        )

    def run(self, flow):
        return self.a._store.run(flow)


@pytest.fixture
def pair(_session_servers, instance):
    with contextlib.ExitStack() as stack:
        yield Pair(stack, [_session_servers("valkey").url, _session_servers("redis").url], instance)


@pytest.fixture
def durable_pair(start_server, instance):
    servers = [start_server("valkey", appendonly=True, options=ALWAYS) for _ in range(2)]
    with contextlib.ExitStack() as stack:
        yield Pair(stack, [server.url for server in servers], instance)


def test_a_message_is_persisted_when_the_sync_destination_has_it(pair):
    pair.destination()
    pair.link()
    till = pair.publisher()

    sequence = till.publish("orders", 1).sequence
    with pytest.raises(NotPersisted):
        till.flush("300ms")
    pair.catch_up()
    till.flush("30s")

    assert till.last_persisted == sequence
    assert pair.b._store.redis.xlen(key(pair.b.instance, "log", "orders")) == 1


def test_who_waits_is_told_which_destination_it_waits_for_since_when_and_why(pair):
    pair.destination()
    pair.says(state="waiting", reason="nobody listens there")
    till = pair.publisher()
    till.publish("orders", 1)

    with pytest.raises(NotPersisted) as told:
        till.flush("2.5s")

    assert re.search(
        r"sync destination 'b' has not acknowledged it: its oldest message waits for \d+\.\d s; its link is"
        " waiting: nobody listens there",
        str(told.value),
    )


@pytest.mark.parametrize("timeout", ["300ms", "1s"])
def test_a_flush_names_the_destination_also_when_its_time_is_over_at_once(pair, timeout):
    pair.destination()
    pair.destination(name="c", addresses=["redis://nobody.invalid:1#c"])
    till = pair.publisher()
    till.publish("orders", 1)

    with pytest.raises(NotPersisted, match=r"sync destination 'b'.*sync destination 'c'") as told:
        till.flush(timeout)

    assert "sync destination 'b'" in told.value.why
    pair.a.admin.remove_destination("c")


@pytest.mark.parametrize("what", ["sow_delete", "delta_publish"])
def test_deletions_and_changes_of_records_wait_too(pair, what):
    for each in (pair.a, pair.b):
        each.apply(Topic(name="prices", key="/id"))
    pair.destination(topics=["prices"])
    till = pair.publisher()
    pair.a.publish("prices", {"id": 1, "x": 1})
    pair.link()
    pair.catch_up()

    getattr(till, what)("prices", data={"id": 1, "x": 2})
    with pytest.raises(NotPersisted):
        till.flush("300ms")
    pair.catch_up()

    till.flush("30s")


def test_an_acknowledgement_of_a_queue_waits_until_the_destination_knows_it(pair):
    pair.destination()
    for each in (pair.a, pair.b):
        each.publish("local", 0)
    pair.a.publish("orders", 1)
    pair.link()
    pair.catch_up()
    client = pair.client("a")
    till = pair.publisher(client)

    with client.subscribe("work", publisher=till) as messages:
        messages.get(30).ack(wait=True)
        with pytest.raises(NotPersisted, match="1 acknowledgements"):
            till.flush("300ms")
        pair.catch_up()
        till.flush("30s")


def test_an_async_destination_is_not_waited_for(pair):
    pair.destination(sync_type="async")
    till = pair.publisher()

    till.publish("orders", 1)

    till.flush("30s")


def test_a_topic_that_the_destination_does_not_carry_is_not_waited_for(pair):
    pair.destination()
    pair.link()
    till = pair.publisher()

    till.publish("local", 1)

    till.flush("30s")


def test_all_sync_destinations_are_waited_for(pair):
    pair.destination()
    pair.destination(name="c", addresses=["redis://nobody.invalid:1#c"])
    till = pair.publisher()
    till.publish("orders", 1)
    # A publisher with a name sends beside its caller, and a link that finds nothing is at rest.
    eventually(lambda: pair.a._store.redis.xlen(key(pair.a.instance, "log", "orders")) == 1, 10)
    pair.catch_up()

    with pytest.raises(NotPersisted, match="sync destination 'c'"):
        till.flush("2.5s")
    pair.a.admin.remove_destination("c")

    till.flush("30s")


def test_a_downgrade_lets_go_at_once_of_what_waited(pair, monkeypatch):
    # Given a publisher that looks again by itself only after a minute
    monkeypatch.setattr("ampsq.publishing.session.WAIT_MS", 60_000)
    pair.destination()
    pair.link()
    told = threading.Event()
    till = pair.publisher(on_persisted=lambda _: told.set())
    till.publish("orders", 1)
    assert not told.wait(0.5)

    assert pair.a.admin.downgrade_replication("b")

    assert told.wait(30), "it was waited for to the end of a round"
    till.publish("orders", 2)
    till.flush("30s")


def test_an_upgraded_destination_is_waited_for_again(pair):
    pair.destination()
    pair.link()
    till = pair.publisher()
    pair.a.admin.downgrade_replication("b")
    till.publish("orders", 1)
    till.flush("30s")

    assert pair.a.admin.upgrade_replication("b")
    assert not pair.a.admin.upgrade_replication("b")
    till.publish("orders", 2)

    with pytest.raises(NotPersisted):
        till.flush("300ms")


def test_a_destination_that_is_not_sync_is_neither_downgraded_nor_upgraded(pair):
    pair.destination(sync_type="async")

    for change in (pair.a.admin.downgrade_replication, pair.a.admin.upgrade_replication):
        with pytest.raises(DefinitionError, match="'b' is configured as async"):
            change("b")
        with pytest.raises(DefinitionError, match="'c' is not there; there are: b"):
            change("c")


def test_what_a_session_before_recorded_and_nobody_confirmed_is_waited_for(pair):
    pair.destination()
    pair.link()
    store = MemoryPublishStore()
    till = pair.client("a", retry_timeout="1s").publisher("till", store=store)
    till.publish("orders", 1)
    eventually(lambda: pair.a.admin.publishers() and pair.a.admin.publishers()[0].sequence == 1)

    work = till._core.guaranteed._work
    work.end_session(work.session, _lost())
    with pytest.raises(NotPersisted):
        till.flush("300ms")
    pair.catch_up()

    till.flush("30s")


def _lost():
    from ampsq.base.errors import Unavailable  # noqa: PLC0415

    return Unavailable("the connection broke")


@pytest.mark.default_user(reason="no coordinator notes how the server flushes")
def test_a_fully_durable_subscription_waits_for_the_sync_destination(durable_pair):
    pair = durable_pair
    pair.destination()
    pair.link()
    pair.a.publish("orders", 1)
    pair.a.publish("local", 2)

    with (
        pair.a.subscribe_topic("orders", bookmark="epoch", fully_durable=True) as messages,
        pair.a.subscribe_topic("local", bookmark="epoch", fully_durable=True) as others,
    ):
        assert others.get(30).data == 2
        assert messages.get(0.5) is None
        pair.catch_up()
        assert messages.get(30).data == 1
        pair.a.publish("orders", 3)
        assert messages.get(0.5) is None
        pair.a.admin.downgrade_replication("b")
        assert messages.get(30).data == 3


# --- by age


def age(pair):
    return pair.a.admin.sync_states()["b"].age


def test_the_age_is_that_of_the_oldest_message_without_acknowledgement(pair):
    pair.destination()
    assert age(pair) == 0
    first = pair.a.publish("orders", 1)
    # Also where no link has ever been.
    eventually(lambda: age(pair) > 0)
    redis = pair.a._store.redis
    seconds, _ = redis.time()
    assert age(pair) <= seconds * 1000 + 1000 - int(first.split("~")[-1].partition("-")[0])

    pair.catch_up()

    assert age(pair) == 0


def test_a_destination_that_has_everything_is_never_late_however_long_it_is_silent(pair):
    pair.destination()
    pair.a.publish("orders", 1)
    pair.catch_up()

    assert pair.run(downgrade_late(pair.a.instance, 0, 0)) == []


def test_what_came_from_the_destination_does_not_make_it_late(pair):
    pair.destination()
    pair.catch_up()
    pair.b.apply(
        Destination(name="a", sync_type="async", topics=["orders"], addresses=[f"{pair._urls[0]}#{pair.a.instance}"])
    )
    back = make_link(read_peer(pair.b._store), read_peer(pair.a._store), pair.b.admin.destinations()["a"])
    for number in range(60):
        pair.b.publish("orders", number)
    while not back.step().is_idle:
        pass

    assert pair.a._store.redis.xlen(key(pair.a.instance, "log", "orders")) == 60
    assert age(pair) == 0


def test_a_late_destination_is_downgraded_and_upgraded_when_it_has_caught_up(pair):
    pair.destination()
    pair.link()
    pair.says()
    pair.a.publish("orders", 1)
    eventually(lambda: age(pair) > 50)

    assert pair.run(downgrade_late(pair.a.instance, 50, 0)) == ["b"]
    assert pair.a.admin.sync_states()["b"].downgraded is not None
    assert pair.run(downgrade_late(pair.a.instance, 50, 0)) == []
    assert pair.run(upgrade_prompt(pair.a.instance, 25, 0)) == []
    pair.catch_up()
    assert pair.run(upgrade_prompt(pair.a.instance, 25, 0)) == ["b"]
    assert pair.a.admin.sync_states()["b"].downgraded is None


def test_between_both_ages_nothing_changes(pair):
    pair.destination()
    pair.link()
    pair.says()
    pair.a.publish("orders", 1)
    eventually(lambda: age(pair) > 50)

    # Half way from the one to the other, whether it is waited for or not.
    for _ in range(2):
        assert pair.run(downgrade_late(pair.a.instance, 3_600_000, 0)) == []
        assert pair.run(upgrade_prompt(pair.a.instance, 50, 0)) == []
        pair.a.admin.downgrade_replication("b")


def test_a_destination_whose_link_is_down_is_not_upgraded(pair):
    pair.destination()
    pair.link()
    pair.a.admin.downgrade_replication("b")

    assert pair.run(upgrade_prompt(pair.a.instance, 1000, 0)) == []
    pair.says(state="waiting")
    assert pair.run(upgrade_prompt(pair.a.instance, 1000, 0)) == []
    pair.says(at=1)
    assert pair.run(upgrade_prompt(pair.a.instance, 1000, 0)) == []
    pair.says()
    assert pair.run(upgrade_prompt(pair.a.instance, 1000, 0)) == ["b"]


def test_within_the_grace_period_nothing_is_done(pair):
    pair.destination()
    pair.a.publish("orders", 1)
    eventually(lambda: age(pair) > 1)

    assert pair.run(downgrade_late(pair.a.instance, 1, 10**12)) == []
    assert pair.run(downgrade_late(pair.a.instance, 1, 0)) == ["b"]


def test_actions_downgrade_and_upgrade_on_a_schedule_and_are_told_of_it(pair):
    pair.destination()
    pair.link()
    pair.says(group="LDN", instance="b")
    pair.a.apply(
        Topic(name="told"),
        Action(
            name="watch",
            on=On.schedule(every="1s"),
            do=[
                {"amps-action-do-downgrade-replication": {"age": "50ms"}},
                Do.upgrade_replication(age="25ms"),
            ],
        ),
        Action(
            name="tell",
            on=[On.downgrade_replication(), {"amps-action-on-upgrade-replication": {}}],
            do=Do.publish(topic="told", data="{{AMPS_REPLICATION_TRANSPORT_NAME}} {{AMPS_REPLICATION_GROUP_NAME}}"),
        ),
    )
    duty = Actions()

    def is_downgraded():
        duty.run_once(pair.a._store)
        return pair.a.admin.sync_states()["b"].downgraded is not None

    pair.link()
    pair.a.publish("orders", 1)
    eventually(is_downgraded, 5)
    pair.catch_up()
    pair.says(group="LDN", instance="b")
    eventually(lambda: not is_downgraded(), 5)
    duty.run_once(pair.a._store)

    log = pair.a._store.redis.xrange(key(pair.a.instance, "log", "told"))
    assert [fields[b"b"] for _, fields in log] == [b"b LDN", b"b LDN"]
