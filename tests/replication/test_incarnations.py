"""Servers that were emptied or restored: a new incarnation, to which others give back what they have of the last."""

from __future__ import annotations

import contextlib
import re

import pytest
from linked import Linked, handle, shared, take
from observing import eventually

from ampsq import replication_calls
from ampsq.errors import DestinationAhead, OtherIncarnation
from ampsq.schema import key
from ampsq.values import Bookmark


class Sites(Linked):
    """Instances whose keys can be put aside, and lost."""

    def keys(self, short):
        redis, name = self.clients[short]._store.redis, self.name(short)
        return redis, list(redis.scan_iter(match="{" + name + "}*", count=1000))

    def copy(self, short):
        """All that the server has of an instance at one moment."""
        redis, names = self.keys(short)
        return {name: redis.dump(name) for name in names}

    def empty(self, short):
        redis, names = self.keys(short)
        redis.delete(*names)

    def restore(self, short, copy):
        self.empty(short)
        redis, _ = self.keys(short)
        for name, content in copy.items():
            redis.restore(name, 0, content)
        return self.open(short)

    def begin(self, short):
        client = self.clients[short]
        return client.begin_incarnation()

    def publish(self, short, *ids):
        return [self.clients[short].publish("orders", {"id": number}) for number in ids]

    def bookmarks(self, short):
        """Whose each entry of a log is, as links tell."""
        found, client = [], self.clients[short]
        (end,) = [link.carried.source for link in self.links() if link.carried.source.name == client.instance][:1]
        for stream_id, fields in client._store.redis.xrange(key(client.instance, "log", "orders")):
            milliseconds, _, number = stream_id.decode().partition("-")
            own = f"{end.origin_at((int(milliseconds), int(number)))}~{stream_id.decode()}"
            found.append("orders~" + fields.get(b"s", own.encode()).decode())
        return found

    def remote(self, short):
        client = self.clients[short]
        return client._store.redis.zcard(key(client.instance, "remote", "work"))

    def assume(self, short, expected, *owners):
        """Own, in the place of owners that are no more, all that there is room for; gives how many."""
        store, number = self.clients[short]._store, 0
        store.call(replication_calls.proxy("work", enabled=True))
        with self.clients[short].subscribe("work", max_backlog=10):

            def ask():
                nonlocal number
                store.call(replication_calls.request("work"))
                number += store.call(replication_calls.assume("work", 1000, owners))[0]
                return number == expected

            eventually(ask)
        store.call(replication_calls.proxy("work", enabled=False))

    def checked(self):
        clients = self.clients.items()
        return {short: {one.name for one in client.check("work")[0].differences} for short, client in clients}


@pytest.fixture
def sites(_session_servers, instance):
    urls = [_session_servers("valkey").url, _session_servers("redis").url]
    with contextlib.ExitStack() as stack:
        yield Sites(stack, instance, urls)


@pytest.fixture(params=["pair", "triangle"])
def joined(sites, request):
    """Two instances, or three, each of which sends everything to all others."""
    names = {"pair": "ab", "triangle": "abc"}[request.param]
    sites.join(*names)
    return sites


def others(sites):
    return [short for short in sites.clients if short != "a"]


def test_an_emptied_server_gets_everything_back_that_others_have(joined):
    published = joined.publish("a", 1, 2, 3)
    joined.publish("b", 4)
    joined.carry()
    before = joined.clients["a"].origin
    joined.empty("a")

    a = joined.open("a", *shared(), *joined.destinations("a", *joined.clients))
    (fresh,) = joined.publish("a", 5)
    joined.carry()

    assert a.origin != before
    assert sorted(joined.log("a")) == [1, 2, 3, 4, 5]
    assert set(map(str, published)) < set(joined.bookmarks("a"))
    for short in others(joined):
        assert sorted(joined.log(short)) == [1, 2, 3, 4, 5]
        assert str(fresh) == joined.bookmarks(short)[-1]


def test_clients_that_were_there_are_told_and_who_began_it_goes_on(sites):
    (a,) = sites.join("a")
    other = Linked(sites._stack, sites._instance, sites._urls).open("a")
    other.publish("orders", {"id": 1})

    origin = a.begin_incarnation()

    with pytest.raises(OtherIncarnation, match=re.escape(origin)):
        other.publish("orders", {"id": 2})
    assert Bookmark(str(a.publish("orders", {"id": 3}))).origin == origin


def test_what_was_lost_since_the_copy_comes_back_and_what_was_there_is_there_once(joined):
    first = joined.publish("a", 1, 2)
    joined.publish("b", 3)
    joined.carry()
    copy = joined.copy("a")
    lost = joined.publish("a", 4, 5)
    joined.publish("b", 6)
    joined.carry()

    joined.restore("a", copy)
    former = joined.clients["a"].origin
    origin = joined.begin("a")
    (fresh,) = joined.publish("a", 7)
    joined.carry()

    assert origin != former
    assert sorted(joined.log("a")) == [1, 2, 3, 4, 5, 6, 7]
    assert [sorted(joined.log(short)) for short in others(joined)] == [[1, 2, 3, 4, 5, 6, 7]] * len(others(joined))
    everywhere = [sorted(joined.bookmarks(short)) for short in joined.clients]
    assert everywhere == [everywhere[0]] * len(everywhere)
    assert set(map(str, [*first, *lost])) < set(everywhere[0])
    assert Bookmark(str(fresh)).origin == origin


def test_the_link_of_a_restored_server_is_refused_until_then_also_when_it_published_since(joined):
    joined.publish("a", 1)
    joined.carry()
    copy = joined.copy("a")
    joined.publish("a", 2, 3)
    joined.carry()
    joined.restore("a", copy)
    with pytest.raises(DestinationAhead, match="begin-incarnation"):
        joined.carry("ab")

    joined.publish("a", 4)
    with pytest.raises(DestinationAhead, match="begin-incarnation"):
        joined.carry("ab")

    joined.begin("a")
    joined.carry()
    assert sorted(joined.log("a")) == [1, 2, 3, 4]
    for short in others(joined):
        assert sorted(joined.log(short)) == [1, 2, 3, 4]


def test_what_the_last_incarnation_owned_is_delivered_by_the_operator_s_word_alone(joined):
    joined.publish("a", 1, 2)
    joined.carry()
    copy = joined.copy("a")
    joined.publish("a", 3)
    assert handle(joined.clients["a"], 2) == [1, 2]
    joined.carry()

    # Given a restored server that has forgotten two acknowledgements
    a = joined.restore("a", copy)
    former = a.origin
    joined.begin("a")
    joined.carry()

    # Then it is told of them, and what is left is owned by nobody
    messages, _ = take(a, 0, room=10)
    with messages:
        joined.publish("a", 4)
        assert messages.get(10).data == {"id": 4}
        assert messages.get(0.2) is None
    assert joined.remote("a") == 1
    joined.assume("a", 1, former)
    assert sorted(handle(a, 2)) == [3, 4]
    joined.carry()
    for short in others(joined):
        assert joined.remote(short) == 0
        assert joined.clients[short].queue_stats("work").depth == 0
    assert not any(joined.checked().values())


def test_what_was_ready_and_leased_before_waits_for_that_word(joined):
    a = joined.clients["a"]
    joined.publish("a", 1, 2, 3)
    messages, _ = take(a, 2)
    former = a.origin

    joined.begin("a")

    messages.close()
    assert joined.remote("a") == 3
    with a.subscribe("work", max_backlog=10) as others_of_it:
        assert others_of_it.get(0.2) is None
    joined.assume("a", 3, former.partition(".")[0])
    assert sorted(handle(a, 3)) == [1, 2, 3]


def test_an_incarnation_after_an_incarnation(joined):
    bookmarks = []
    for number in range(3):
        bookmarks += joined.publish("a", number)
        joined.begin("a")
    bookmarks += joined.publish("a", 3)
    joined.carry()

    for short in joined.clients:
        assert joined.bookmarks(short) == list(map(str, bookmarks))
        assert joined.log(short) == [0, 1, 2, 3]
    assert len({Bookmark(str(each)).origin for each in bookmarks}) == 4


def test_what_was_trimmed_does_not_come_back(joined):
    joined.publish("a", 1, 2)
    joined.carry()
    joined.begin("a")
    joined.assume("a", 2, joined.name("a"))
    assert handle(joined.clients["a"], 2) == [1, 2]
    joined.carry("ab", "ac")
    assert joined.clients["a"].trim("orders").removed == 2

    joined.carry()

    assert joined.log("a") == []


def test_the_same_word_twice_begins_one_incarnation(joined):
    store = joined.clients["a"]._store
    script = replication_calls.script_call("begin_incarnation", ["", "zzz"], list)
    once = store.call(script)

    assert store.call(script) == once
    assert store.redis.hget(key(joined.name("a"), "instance"), "former").count(b" ") == 1
