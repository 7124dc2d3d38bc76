"""Actions through deaths, doubled calls and several coordinators: each publish is made exactly once."""
# Long: one scene of actions, which survives each fault in turn.

from __future__ import annotations

import contextlib
import itertools
import json

import pytest
from mortal import Died, Mortal, die
from observing import eventually

from ampsq import Action, Client, ConflatedTopic, Do, Instance, On, Queue, Topic
from ampsq.base.errors import ServerFull, Unavailable
from ampsq.coordinator.actions import Actions, OutsidePermissions
from ampsq.protocol.schema import key
from ampsq.transport.store import Store

_numbers = itertools.count(1)


@pytest.fixture
def fresh(valkey):
    """An instance of its own each time: a client, and stores of coordinators."""
    opened = []

    def make():
        client = Client(valkey.url, instance=f"engine-{next(_numbers)}-{id(opened)}")
        stores = [Store(valkey.url, client.instance, retry_timeout=0.0) for _ in range(2)]
        opened.append((client, stores))
        return client, *stores

    yield make
    for client, stores in opened:
        client.close()
        for store in stores:
            store.close()


def quiet(store, rounds=3):
    duty = Actions()
    for _ in range(rounds):
        while not duty.run_once(store):
            pass


def log_of(store, topic):
    return [fields[b"b"].decode() for _, fields in store.redis.xrange(key(store.instance, "log", topic))]


def due_now(store):
    """Let everything that failed be due."""
    for retries in store.redis.scan_iter(key(store.instance, "retries", "*"), count=1_000):
        for member in store.redis.zrange(retries, 0, -1):
            store.redis.zadd(retries, {member: 0})


def begin(client, store):
    """Three messages that expired: the second one's topic cannot be published to yet."""
    client.apply(
        Queue(name="work"),
        Action(
            name="route",
            on=On.expire(topic="work"),
            do=[
                Do.extract(value="TO=/to"),
                Do.increment(key="seen", value="COUNT"),
                Do.publish(topic="{{TO}}", data="{{AMPS_DATA}}"),
                Do.publish(topic="all", data="{{TO}}"),
            ],
        ),
    )
    store.redis.set(key(store.instance, "log", "broken"), "planted")
    client.ack("work", client.publish_many("work", [{"to": "good", "n": n} for n in range(2)]), "expire")
    client.ack("work", [client.publish("work", {"to": "broken"})], "expire")
    client.ack("work", [client.publish("work", {"to": "good", "n": 2})], "expire")


def mend(store):
    log = key(store.instance, "log", "broken")
    if store.redis.type(log) == b"string":
        store.redis.delete(log)
    due_now(store)


def check(client, store):
    assert [json.loads(body)["n"] for body in log_of(store, "good")] == [0, 1, 2]
    assert len(log_of(store, "broken")) == 1
    assert sorted(log_of(store, "all")) == ["broken", "good", "good", "good"]
    assert store.redis.hget(key(store.instance, "counters"), "seen") == b"4"
    assert client.admin.failed_events("route") == []
    assert client.admin.actions()["route"].waiting == 0
    assert not store.redis.exists(key(store.instance, "retries", "route"))


def test_without_any_fault_all_is_as_it_should_be(fresh):
    client, store, _ = fresh()
    begin(client, store)
    quiet(store)
    (event,) = client.admin.failed_events("route")
    assert (event.what, event.step, event.tries, event.source) == ("publish", 2, 1, "expire work")
    assert json.loads(event.variables["AMPS_DATA"]) == {"to": "broken"}
    state = client.admin.actions()["route"]
    assert (state.done, state.failed, state.error) == (3, 1, event.error)
    mend(store)
    quiet(store)
    check(client, store)
    assert client.admin.actions()["route"].done == 4


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("stage", ["first", "retry"])
def test_a_coordinator_may_die_at_any_call(fresh, stage, after):
    for at in itertools.count():
        client, store, other = fresh()
        begin(client, store)
        if stage == "retry":
            quiet(store)
            mend(store)
        with Mortal(store, at, die, after=after) as mortal:
            try:
                quiet(store)
            except Died:
                pass
            else:
                assert mortal.made <= at
                return
        # Another one goes on
        quiet(other)
        mend(other)
        quiet(other)
        check(client, other)


@pytest.mark.parametrize("stage", ["first", "retry"])
def test_a_coordinator_may_overtake_another_at_any_call(fresh, stage):
    for at in itertools.count():
        client, store, other = fresh()
        begin(client, store)
        if stage == "retry":
            quiet(store)
            mend(store)

        def overtake(other=other):
            quiet(other)
            mend(other)
            quiet(other)

        with Mortal(store, at, overtake) as mortal:
            quiet(store)
            if mortal.made <= at:
                return
        mend(store)
        quiet(store)
        check(client, store)


def test_every_call_may_be_made_twice(fresh):
    client, store, _ = fresh()
    begin(client, store)
    once = store.call

    def twice(call):
        if call.repeatable:
            once(call)
            call.repeated = True
        return once(call)

    store.call = twice
    quiet(store, rounds=6)
    mend(store)
    quiet(store, rounds=6)
    mend(store)
    quiet(store, rounds=6)
    store.call = once
    check(client, store)


def test_one_that_dies_in_the_middle_of_overtaking_does_no_harm(fresh):
    # Given one coordinator that stands at a call, while another one goes on from there and dies at one of its own
    for at, then in itertools.product(range(2, 30, 3), range(1, 34, 4)):
        client, store, other = fresh()
        begin(client, store)

        def overtake_and_die(other=other, then=then):
            with Mortal(other, then, die, after=bool(then % 2)), contextlib.suppress(Died):
                quiet(other)

        with Mortal(store, at, overtake_and_die):
            quiet(store)
        mend(store)
        quiet(store)
        mend(store)
        quiet(store)
        check(client, store)


def test_what_fails_for_one_coordinator_and_not_for_another_is_done_once(fresh, monkeypatch):
    # Given a step that only one of two coordinators may make
    client, store, other = fresh()
    client.apply(
        Queue(name="work"),
        Action(
            name="a",
            on={"expire": "work"},
            do=[Do.execute(command="true"), Do.publish(topic="x"), Do.publish(topic="y")],
        ),
    )
    monkeypatch.setattr("ampsq.coordinator.actions.duty.Actions._holds", lambda *_: True)
    monkeypatch.setattr("ampsq.coordinator.actions.webhooks.OutsidePermissions.wait_for", lambda *_: False)
    client.ack("work", client.publish_many("work", ["one", "two"]), "expire")
    able = Actions(OutsidePermissions(commands=True))
    unable = Actions()
    unable._left_at["a"] = -60.0
    made = []

    def dies_before_advancing():
        # When the able one has made all steps and dies before it moves on
        with Mortal(other, 0, lambda: None) as watched:
            call = watched._call
            other.call = lambda c: die() if c.script is not None and c.script.name == "advance_action" else call(c)
            with pytest.raises(Died):
                able.run_once(other)
        made.append(1)

    with Mortal(store, 5, dies_before_advancing):
        for _ in range(3):
            unable.run_once(store)
    assert made
    due_now(store)
    able._retry_at.clear()
    for _ in range(3):
        able.run_once(store)
    assert sorted(json.loads(text)["message"] for text in log_of(store, "x")) == ["one", "two"]
    assert sorted(json.loads(text)["message"] for text in log_of(store, "y")) == ["one", "two"]


def test_a_full_server_is_waited_for(fresh):
    client, store, _ = fresh()
    begin(client, store)
    once = store.call

    def full(call):
        if call.script is not None and call.script.name == "publish":
            raise ServerFull("no room")
        return once(call)

    store.call = full
    duty = Actions()
    for _ in range(3):
        duty.run_once(store)
    store.call = once
    # Nothing is set aside, and it is seen why it waits
    state = client.admin.actions()["route"]
    assert (state.done, state.failed, state.error) == (0, 0, "no room")
    quiet(store)
    mend(store)
    quiet(store)
    check(client, store)


def test_a_server_that_is_away_ends_the_round(fresh):
    client, store, _ = fresh()
    begin(client, store)

    def away():
        raise Unavailable("gone")

    with Mortal(store, 6, away, after=True), pytest.raises(Unavailable):
        quiet(store)
    quiet(store)
    mend(store)
    quiet(store)
    check(client, store)


def test_later_tries_come_later_and_later_and_end_when_they_are_dropped(fresh):
    client, store, _ = fresh()
    begin(client, store)
    quiet(store)
    waits = []
    for _ in range(4):
        due_now(store)
        quiet(store, rounds=1)
        (event,) = client.admin.failed_events("route")
        waits.append((event.tries, store.redis.zscore(key(store.instance, "retries", "route"), b"1")))
    assert [tries for tries, _ in waits] == [2, 3, 4, 5]
    gaps = [later[1] - sooner[1] for sooner, later in itertools.pairwise(waits)]
    assert gaps[0] > 3_000
    assert gaps == sorted(gaps)
    assert client.admin.drop_failed("route", 7) == 0
    assert client.admin.drop_failed("route") == 1
    mend(store)
    quiet(store)
    assert log_of(store, "broken") == []
    assert sorted(log_of(store, "all")) == ["good", "good", "good"]


def test_an_action_with_too_many_failed_events_waits_and_others_do_not(fresh, monkeypatch):
    client, store, _ = fresh()
    begin(client, store)
    client.apply(Topic(name="orders"), Action(name="other", on={"publish": "orders"}, do=Do.publish(topic="copy")))
    failed = key(store.instance, "failed", "route")
    store.redis.hset(failed, mapping={f"{1_000_000 + n}": "1 {}" for n in range(10_000)})
    client.publish("orders", 1)
    quiet(store, rounds=1)
    assert log_of(store, "copy") == ["1"]
    assert len(log_of(store, "good")) == 2
    assert "10000 events failed already" in client.admin.actions()["route"].error
    store.redis.delete(failed)
    monkeypatch.undo()
    quiet(store)
    mend(store)
    quiet(store)
    check(client, store)


def test_an_action_may_fail_for_hundreds_of_events_in_a_row(fresh):
    client, store, _ = fresh()
    client.apply(Topic(name="orders"), Action(name="copy", on={"publish": "orders"}, do=Do.publish(topic="target")))
    log = key(store.instance, "log", "target")
    store.redis.set(log, "planted")
    client.publish_many("orders", range(250))
    quiet(store)
    assert client.admin.actions()["copy"].failed == 250
    store.redis.delete(log)
    client.publish_many("orders", range(250, 400))
    quiet(store)
    assert log_of(store, "target") == [str(n) for n in range(250, 400)]
    due_now(store)
    quiet(store, rounds=10)
    assert sorted(map(int, log_of(store, "target"))) == list(range(400))
    assert client.admin.actions()["copy"].failed == 0


def test_a_definition_that_gets_another_first_step_doubles_nothing(fresh):
    # Given a coordinator that published and died before it moved on
    client, store, _ = fresh()
    client.apply(Topic(name="orders"), Action(name="a", on={"publish": "orders"}, do=[Do.publish(topic="x")]))
    client.publish_many("orders", [1, 2])
    call = store.call
    store.call = lambda c: die() if c.script is not None and c.script.name == "advance_action" else call(c)
    with pytest.raises(Died):
        quiet(store)
    store.call = call
    # When another step is put before it
    client.apply(
        Action(name="a", on={"publish": "orders"}, do=[Do.publish(topic="y"), Do.publish(topic="x")]),
    )
    client.publish("orders", 3)
    quiet(store)
    assert log_of(store, "x") == ["1", "2", "3"]
    assert log_of(store, "y") == ["1", "2", "3"]


def test_what_a_trigger_missed_while_it_was_gone_is_not_done_later(fresh):
    client, store, _ = fresh()
    with_copy = Action(name="a", on=[{"publish": "orders"}, {"publish": "others"}], do=Do.publish(topic="x"))
    client.apply(Topic(name="orders"), Topic(name="others"), with_copy)
    client.publish("orders", 1)
    quiet(store)
    client.apply(Action(name="a", on={"publish": "others"}, do=Do.publish(topic="x")))
    client.publish("orders", 2)
    quiet(store)
    client.apply(with_copy)
    client.publish("orders", 3)
    quiet(store)
    assert log_of(store, "x") == ["1", "3"]


def test_a_step_that_takes_long_holds_up_nothing_else_and_is_made_once(fresh, tmp_path):
    # Given an action that runs a program for each message, which takes its time, and two coordinators that may
    client, store, other = fresh()
    out = tmp_path / "out"
    go = tmp_path / "go"
    slow = Do.execute(command=f"sh -c 'until [ -e {go} ]; do sleep 0.05; done; cat >> {out}; echo >> {out}'")
    client.apply(
        Topic(name="orders"),
        Action(name="slow", on={"publish": "orders"}, do=[slow, Do.publish(topic="ran")]),
        Action(name="quick", on={"publish": "orders"}, do=Do.publish(topic="copy")),
    )
    client.publish_many("orders", [1, 2, 3])
    duties = [(Actions(OutsidePermissions(commands=True)), each) for each in (store, other)]
    # When both work, the other action is done at once
    for duty, each in duties:
        duty.run_once(each)
    assert log_of(store, "copy") == ["1", "2", "3"]
    assert not out.exists()
    go.touch()

    # And the slow one in its time, by one of them
    def ran():
        for duty, each in duties:
            duty.run_once(each)
        return len(log_of(store, "ran")) == 3

    eventually(ran, within=60.0)
    assert out.read_text() == "1\n2\n3\n"
    eventually(lambda: not any(thread.is_alive() for duty, _ in duties for thread in duty._apart.values()))


def test_an_event_whose_topic_cannot_be_made_is_kept_however_often_it_is_tried(fresh):
    # Given an action whose topics the messages name, one of which is the name of another thing
    client, store, _ = fresh()
    client.apply(
        Topic(name="orders", key="/to"),
        ConflatedTopic(name="slowly", underlying_topic="orders"),
        Action(
            name="route",
            on=On.publish(topic="orders"),
            do=[Do.extract(value="TO=/to"), Do.publish(topic="{{TO}}", data="{{TO}}")],
        ),
    )
    client.publish("orders", {"to": "slowly"})
    # When it is tried again and again
    for _ in range(3):
        quiet(store)
        due_now(store)
    quiet(store)
    (event,) = client.admin.failed_events("route")
    assert (event.what, event.step, event.tries) == ("publish", 1, 4)
    # Then it is done once that is mended
    client.admin.remove(ConflatedTopic(name="slowly", underlying_topic="orders"))
    due_now(store)
    quiet(store)
    assert log_of(store, "slowly") == ["slowly"]
    assert client.admin.failed_events("route") == []


def test_what_an_action_may_not_publish_to_is_kept_until_it_may(fresh):
    # Given an instance that takes defined topics alone, and an action whose topics the messages name
    client, store, _ = fresh()
    client.apply(
        Instance(topics="defined"),
        Topic(name="orders"),
        Topic(name="region-eu"),
        Action(
            name="route",
            on=On.publish(topic="orders"),
            do=[Do.extract(value="TO=/to"), Do.publish(topic="region-{{TO}}", data="{{TO}}")],
        ),
    )
    client.publish_many("orders", [{"to": "eu"}, {"to": "us"}, {"to": "eu"}])
    # When the topic of one of them is none, however often it is tried
    for _ in range(3):
        quiet(store)
        due_now(store)
    quiet(store)
    # Then that event is set aside with the sentence, and the others are done
    (event,) = client.admin.failed_events("route")
    assert (event.what, event.tries) == ("publish", 4)
    assert event.error.startswith(
        "'region-us' is not defined, and this instance takes messages for defined topics alone"
    )
    assert "did you mean 'region-eu'?" in event.error
    assert log_of(store, "region-eu") == ["eu", "eu"]
    assert "region-us" not in client.admin.topics()
    # And it is done once the topic is defined
    client.apply(Topic(name="region-us"))
    due_now(store)
    quiet(store)
    assert log_of(store, "region-us") == ["us"]
    assert client.admin.failed_events("route") == []
