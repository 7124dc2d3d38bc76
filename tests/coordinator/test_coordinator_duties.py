"""The coordinator's duties, a round at a time: what one does when it dies, is told otherwise, or comes late."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace

import pytest
from mortal import Died, die

from ampsq import Action, Client, Queue
from ampsq.base.bookmarks import Bookmark
from ampsq.coordinator.actions import Actions
from ampsq.coordinator.flush_settings import FlushSettings
from ampsq.coordinator.lost_clients import LostClients
from ampsq.protocol.calls import actions as action_calls
from ampsq.protocol.calls import duties as duty_calls
from ampsq.protocol.calls import publish as publish_calls
from ampsq.protocol.calls import subscriptions as subscription_calls
from ampsq.protocol.limits import BYTES
from ampsq.protocol.reads.clock import exact_server_time
from ampsq.protocol.reads.server import flush_facts, flush_note
from ampsq.protocol.schema import key

LONG = 3_600.0


# -- dead letters


def dies_before_advancing(monkeypatch, store):
    """One round that ends between a publish and the cursor's move."""
    with monkeypatch.context() as patch:
        patch.setattr(action_calls, "advance", die)
        with pytest.raises(Died):
            Actions().run_once(store)


def letters(store, topic):
    """Return the original of each letter recorded there, in order."""
    entries = store.redis.xrange(key(store.instance, "log", topic))
    return [json.loads(fields[b"b"])["message"] for _, fields in entries]


def expire(client, queue, *bodies):
    client.ack(queue, client.publish_many(queue, bodies), "expire")


def cancel(client, queue):
    with client.subscribe(queue) as messages:
        messages.get(30).cancel()


@pytest.mark.parametrize("changed", [["forced_expire"], ["max_cancels"], None])
def test_reasons_that_change_between_publish_and_advance_lose_no_letter(store, client, monkeypatch, changed):
    # Given a message that expired, whose letter was published by a coordinator that died before it moved on
    reasons = ["forced_expire"] if changed == ["max_cancels"] else ["max_cancels"]
    client.apply(Queue(name="work", max_cancels=1), Action.dead_letter("work", "dead", reasons=reasons))
    if reasons == ["max_cancels"]:
        client.publish("work", "one")
        cancel(client, "work")
    else:
        expire(client, "work", "one")
    dies_before_advancing(monkeypatch, store)
    assert letters(store, "dead") == ["one"]
    # When the action's reasons change, and another message expires
    client.apply(Action.dead_letter("work", "dead", reasons=changed))
    if changed == ["max_cancels"]:
        client.publish("work", "two")
        cancel(client, "work")
    else:
        expire(client, "work", "two")
    for _ in range(3):
        Actions().run_once(store)
    # Then each has one letter
    assert letters(store, "dead") == ["one", "two"]


def test_coordinators_that_know_different_reasons_number_letters_alike(store, client, monkeypatch):
    # Given a coordinator that still knows the action's former reasons, which want less
    client.apply(Queue(name="work", max_cancels=1), Action.dead_letter("work", "dead", reasons=["max_cancels"]))
    former = Actions()
    known = former._definitions.read(store)
    monkeypatch.setattr(former._definitions, "read", lambda _: known)
    client.apply(Action.dead_letter("work", "dead"))
    # When both act on what expires, in turn
    for number in range(3):
        expire(client, "work", f"forced {number}")
        (former if number == 1 else Actions()).run_once(store)
        client.publish("work", f"cancelled {number}")
        cancel(client, "work")
        (Actions() if number == 1 else former).run_once(store)
    # Then what the newer one saw, or both want, has one letter each
    assert letters(store, "dead") == ["forced 0", "cancelled 0", "cancelled 1", "forced 2", "cancelled 2"]


def test_an_action_that_fails_holds_up_no_other_and_loses_nothing(store, client):
    # Given an action whose topic's log is no stream
    client.apply(
        Queue(name="one"), Queue(name="two"), Action.dead_letter("one", "dead-1"), Action.dead_letter("two", "dead-2")
    )
    log = key(store.instance, "log", "dead-1")
    store.redis.set(log, "planted")
    expire(client, "one", "A")
    expire(client, "two", "B")
    # When a round is made, the other action does its work
    duty = Actions()
    duty.run_once(store)
    assert letters(store, "dead-2") == ["B"]
    # And the failed event is set aside and not tried again at once; later ones of its action pass it
    retries = key(store.instance, "retries", "dead-letter-one")
    assert store.redis.zrange(retries, 0, -1) == [b"1"]
    store.redis.delete(log)
    duty.run_once(store)
    assert not store.redis.exists(log)
    expire(client, "one", "C")
    duty.run_once(store)
    assert letters(store, "dead-1") == ["C"]
    # And when its time has come it is published, once
    store.redis.zadd(retries, {"1": 1})
    for _ in range(3):
        duty.run_once(store)
    assert not store.redis.exists(retries)
    assert (letters(store, "dead-1"), letters(store, "dead-2")) == (["C", "A"], ["B"])


def test_letters_of_one_entry_are_cut_by_bytes_and_stay_one_each(store, client, monkeypatch):
    # Given 25 large messages that expired together
    client.apply(Queue(name="work"), Action.dead_letter("work", "dead"))
    expire(client, "work", *(str(number) + "x" * 100_000 for number in range(25)))
    publish, sizes = publish_calls.publish, []

    def recorded(topic, bodies, headers, publisher, sequence):
        sizes.append(len(bodies))
        if len(sizes) == 2:
            assert sum(map(len, bodies[:-1])) < BYTES
        return publish(topic, bodies, headers, publisher, sequence)

    # When a coordinator dies after their letters, and in the middle of them, and another one goes on
    monkeypatch.setattr(publish_calls, "publish", recorded)
    dies_before_advancing(monkeypatch, store)
    assert sizes == [10, 10, 5]
    sizes.clear()
    Actions().run_once(store)
    # Then the calls were small, and there is one letter of each
    assert sizes == [10, 10, 5]
    assert [letter.rstrip("x") for letter in letters(store, "dead")] == [str(number) for number in range(25)]


def test_a_coordinator_that_dies_among_the_letters_of_one_entry_leaves_one_each(store, client, monkeypatch):
    client.apply(Queue(name="work"), Action.dead_letter("work", "dead"))
    expire(client, "work", *(str(number) + "x" * 100_000 for number in range(25)))
    publish, made = publish_calls.publish, []
    with monkeypatch.context() as patch:
        patch.setattr(publish_calls, "publish", lambda *a: die() if made else made.append(1) or publish(*a))
        with pytest.raises(Died):
            Actions().run_once(store)
    assert len(letters(store, "dead")) == 10
    Actions().run_once(store)
    assert [letter.rstrip("x") for letter in letters(store, "dead")] == [str(number) for number in range(25)]


def test_a_foreign_entry_with_a_field_like_our_headers_makes_a_letter_without_any(store, client):
    # Given somebody else's entry, one of whose fields has the name of our headers
    client.apply(Queue(name="work"), Queue(name="dead"), Action.dead_letter("work", "dead"))
    client.publish("work", "ours")
    found = store.redis.xadd(key(store.instance, "log", "work"), {"h": "12:30", "temp": "5"}).decode()
    # When it expires
    client.ack("work", [Bookmark.of("work", client.origin, found)], "expire")
    Actions().run_once(store)
    # Then its letter can be read
    with client.subscribe("dead") as dead:
        letter = dead.get(30)
        assert letter.headers == {}
        assert letter.data["message"] == {"h": "12:30", "temp": "5"}


# -- absence


@pytest.fixture
def ghost(store, client):
    """Subscribe in the name of a client that does not listen: ``ghost(patience)``; gives the subscription."""
    client.apply(Queue(name="work"))
    number = iter(range(1, 100))
    return lambda retry_timeout=60_000: store.call(
        subscription_calls.subscribe(
            f"ghost/{next(number)}", subscription_calls.SubscribeRequest(1, None, "", ["work"], None), retry_timeout
        )
    )[0]


@pytest.fixture
def there(store):
    """The subscriptions that exist."""
    return lambda: {name.decode() for name in store.redis.zrange(key(store.instance, "subscriptions"), 0, -1)}


def look(duty, store, times):
    for _ in range(times):
        duty.run_once(store)


def test_those_that_a_new_server_s_first_look_finds_have_time_to_come_back(store, ghost, there):
    # Given a server that was started less than the grace ago, and a coordinator that starts beside it
    early, silent = ghost(), ghost(retry_timeout=-1)
    duty = LostClients(grace=LONG)
    look(duty, store, 4)
    # Then neither absence nor silence counts
    assert there() == {early, silent}
    # But it does for those that come after that: two looks for the absent, one for the silent
    late, late_and_silent = ghost(), ghost(retry_timeout=-1)
    look(duty, store, 1)
    assert there() == {early, silent, late}
    assert late_and_silent not in there()
    look(duty, store, 1)
    assert there() == {early, silent}
    # And when the grace is over, for all
    duty._trusted_from = 0.0
    look(duty, store, 1)
    assert there() == {early}
    look(duty, store, 1)
    assert there() == set()


def test_a_coordinator_that_starts_long_after_the_server_gives_no_grace(store, ghost, there):
    early, _ = ghost(), ghost(retry_timeout=-1)
    duty = LostClients(grace=0.0)
    look(duty, store, 1)
    assert there() == {early}
    look(duty, store, 1)
    assert there() == set()


def test_who_listens_stays_whatever_the_grace(store, client, there):
    client.apply(Queue(name="work"))
    with client.subscribe("work") as messages:
        look(LostClients(grace=0.0), store, 4)
        assert there() == {messages.id}


@pytest.mark.parametrize(("jump", "graced"), [(60.0, True), (-60.0, True), (2.0, False)])
def test_a_jump_of_the_server_s_clock_gives_time_to_come_back(  # noqa: PLR0917  (fixtures and the two of a case)
    store, ghost, there, monkeypatch, jump, graced
):
    # Given a coordinator past every grace, and a subscription that it has seen once
    duty = LostClients(grace=LONG)
    look(duty, store, 1)
    duty._trusted_from = 0.0
    look(duty, store, 1)
    seen = ghost(retry_timeout=30_000)
    look(duty, store, 1)
    # When the server's clock jumps
    ask = store.call
    time = exact_server_time()
    later = replace(time, read=lambda reply: time.read(reply) + jump * 1000)
    monkeypatch.setattr(store, "call", lambda call: ask(later if call.arguments == ["TIME"] else call))
    look(duty, store, 4)
    # Then nothing counts for those that were there, but for who comes later; a little drift is no jump
    assert there() == ({seen} if graced else set())
    ghost()
    look(duty, store, 2)
    assert there() == ({seen} if graced else set())


def test_a_server_that_comes_back_gives_grace_to_those_that_were_there(start_server):
    # Given a coordinator without any grace left, and a client that needs a while to come back
    server = start_server("valkey", appendonly=True)
    with contextlib.ExitStack() as stack:
        client = Client(server.url, instance="graced", retry_timeout="200ms")
        stack.callback(client.close)
        client.apply(Queue(name="work"))
        store = client._store
        found = store.call(
            subscription_calls.subscribe("ghost/1", subscription_calls.SubscribeRequest(1, None, "", ["work"], None), 1)
        )[0]
        duty = LostClients(grace=LONG)
        look(duty, store, 1)
        duty._trusted_from = 0.0
        # When the server dies and starts again
        server.process.kill()
        server.process.wait()
        start_server("valkey", appendonly=True, data_dir=server.directory)
        # Then the silence and the absence of that while count for nothing
        look(duty, store, 4)
        assert store.redis.zrange(key("graced", "subscriptions"), 0, -1) == [found.encode()]


# -- how the server flushes


def test_until_when_a_server_flushes_nothing_is_noted_and_no_later_coordinator_takes_it_back(client, instance):
    store = client._store

    def note(run, held_until):
        store.call(duty_calls.note_flushing(run, "everysec", "no", held_until))
        return store.call(flush_note(instance))

    FlushSettings().run_once(store)
    found = store.call(flush_note(instance))
    run = store.call(flush_facts()).run
    assert (found.run, found.held_until) == (run, 0.0)
    assert note(run, 5_000).held_until == 5.0
    # A coordinator that did not see it knows no less
    assert note(run, 0).held_until == note(run, 4_000).held_until == 5.0
    assert note(run, 10_000).held_until == 10.0
    # Another process of the server has begun since
    assert note("another", 0).held_until == 0.0
