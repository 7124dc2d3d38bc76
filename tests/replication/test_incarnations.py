"""Servers that were emptied or restored: a new incarnation, to which others give back what they have of the last."""

from __future__ import annotations

import contextlib
import re
import time

import pytest
from linked import Linked, handle, shared, take

from ampsq import GroupLocalQueue, Queue, Topic
from ampsq.base.bookmarks import Bookmark
from ampsq.base.errors import DefinitionError, DestinationAhead, IncarnationOver, OtherIncarnation, StaleLease
from ampsq.protocol.calls import ownership as ownership_calls
from ampsq.protocol.calls import replication as replication_calls
from ampsq.protocol.schema import VALUES, key


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
        return client.admin.begin_incarnation()

    def publish(self, short, *ids):
        return [self.clients[short].publish("orders", {"id": number}) for number in ids]

    def bookmarks(self, short):
        """Return the bookmark of each entry of a log, as links tell."""
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

    def names_waited_for(self, short):
        """For whom an instance waits that recovers, in short."""
        recovery = self.clients[short].admin.replication().recovery
        return "".join(name[-1] for name in recovery.waits_for) if recovery else ""

    def deferred(self, short):
        client = self.clients[short]
        return client._store.redis.hlen(key(client.instance, "deferred", "orders"))

    def checked(self):
        clients = self.clients.items()
        return {short: {one.name for one in client.admin.check("work")[0].differences} for short, client in clients}


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


def links_row(origin, how, bookmark):
    """Return a row that an incarnation journaled, as a link brings it."""
    told = replication_calls.JournalRow(
        f"{origin}~9999999999999-0".encode(), b"", (how.encode(), *[b""] * 6), [bookmark.encode()]
    )
    return told, f"{origin}/g"


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

    origin = a.admin.begin_incarnation()

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


def test_a_restored_server_delivers_nothing_until_it_knows_what_was_settled_since(joined):
    joined.publish("a", 1, 2)
    joined.carry()
    copy = joined.copy("a")
    joined.publish("a", 3)
    assert handle(joined.clients["a"], 2) == [1, 2]
    joined.carry()

    # Given a restored server that has forgotten two acknowledgements
    a = joined.restore("a", copy)
    joined.begin("a")
    joined.publish("a", 4)
    recovery = a.admin.replication().recovery
    assert recovery.queues == ("work",)
    assert recovery.waits_for == tuple(joined.name(short) for short in others(joined))

    # Then it delivers nothing before it was told of them, and gives nothing away
    messages, _ = take(a, 0, room=10)
    with messages:
        assert messages.get(0.2) is None
        joined.carry()
        assert sorted(messages.get(30).data["id"] for _ in range(2)) == [3, 4]
        assert messages.get(0.2) is None
        assert a.admin.replication().recovery is None
    assert sorted(handle(a, 2)) == [3, 4]
    joined.carry()
    for short in others(joined):
        assert joined.remote(short) == 0
        assert joined.clients[short].admin.queue_stats("work").depth == 0
    assert not any(joined.checked().values())


def test_leases_of_the_last_incarnation_are_void(joined):
    a = joined.clients["a"]
    joined.publish("a", 1, 2, 3)
    messages, found = take(a, 2)

    joined.begin("a")

    with pytest.raises(StaleLease):
        found[0].ack(wait=True)
    messages.close()
    with a.subscribe("work", max_backlog=10) as others_of_it:
        assert others_of_it.get(0.2) is None
    joined.carry()
    assert handle(a, 3) == [1, 2, 3]
    assert not any(joined.checked().values())


def test_nothing_is_given_away_before_it_recovered(joined):
    a, b = joined.clients["a"], joined.clients["b"]
    (bookmark,) = joined.publish("a", 1)
    joined.carry()
    joined.begin("a")
    granted = ownership_calls.grant_ownership("work", b.origin, [str(bookmark).encode()], rooms=f"{a.origin} 1")

    assert a._store.call(granted) == (0, False)

    joined.carry()
    assert a._store.call(granted) == (1, False)


@pytest.mark.parametrize("loss", ["emptied", "restored"])
def test_a_group_local_queue_s_owner_delivers_nothing_again_that_it_acknowledged(sites, loss):
    a, b = sites.join("a", "b", kind=GroupLocalQueue, initial_owner=sites.name("a"))
    b.publish("orders", {"id": 1})
    b.publish("orders", {"id": 2})
    sites.carry("ba")
    copy = sites.copy("a")
    assert handle(a, 1) == [1]
    sites.carry()

    if loss == "emptied":
        sites.empty("a")
        a = sites.open(
            "a", *shared(kind=GroupLocalQueue, initial_owner=sites.name("a")), *sites.destinations("a", "a", "b")
        )
    else:
        a = sites.restore("a", copy)
        sites.begin("a")

    with a.subscribe("work", max_backlog=10) as messages:
        sites.carry()
        assert messages.get(30).data["id"] == 2
        assert messages.get(0.2) is None
    assert a.admin.replication().recovery is None


def test_a_peer_that_is_gone_is_left_out_by_the_operator_s_word(sites):
    a, _, _ = sites.join("a", "b", "c")
    sites.publish("a", 1)
    sites.carry()
    sites.begin("a")
    sites.carry("ab", "ba")
    assert sites.names_waited_for("a") == "c"
    with pytest.raises(DefinitionError, match="there are"):
        a.admin.recover_without("nobody")

    recovery = a.admin.recover_without(sites.name("c"))

    assert recovery is None
    assert handle(a, 1) == [1]
    # And it is told later, all the same
    sites.carry()
    assert sites.remote("c") == 0


def test_who_recovers_itself_is_no_help(sites):
    sites.join("a", "b")
    sites.begin("a")
    sites.begin("b")

    sites.carry()

    assert (sites.names_waited_for("a"), sites.names_waited_for("b")) == ("b", "a")
    sites.clients["a"].admin.recover_without(sites.name("b"))
    sites.carry()
    assert (sites.names_waited_for("a"), sites.names_waited_for("b")) == ("", "")


def test_nothing_is_taken_that_was_read_of_an_incarnation_that_is_over(joined):
    (link,) = joined.links("ab")
    link.open()
    joined.publish("a", 1)
    joined.begin("a")
    joined.carry()

    with pytest.raises(IncarnationOver, match=re.escape(link.carried.source.origin)):
        link.step()
    with pytest.raises(IncarnationOver):
        link.open()
    link.close()


def test_what_is_told_of_a_lost_message_is_not_waited_for(joined):
    joined.publish("a", 1)
    joined.carry()
    former = joined.clients["a"].origin
    # Given that b was told of a message that a lost before anybody had it
    row = links_row(former, "acknowledged", f"orders~{former}~9999999999999-0")
    joined.clients["b"]._store.call(replication_calls.apply_journal("work", "", [row]))
    assert joined.deferred("b") == 1

    joined.begin("a")
    joined.carry()

    assert joined.deferred("b") == 0
    for short in others(joined):
        received = joined.clients[short]._store.call(replication_calls.read_received(joined.name(short)))
        assert received[f"log orders@{former}"][0] == VALUES["last_id"]


def test_an_instance_without_peers_goes_on_at_once(sites):
    (a,) = sites.join("a")
    sites.publish("a", 1)

    sites.begin("a")

    assert handle(a, 1) == [1]
    assert a.admin.replication().recovery is None


def test_a_queue_that_is_shared_with_nobody_is_not_held(sites):
    a, _ = sites.join("a", "b")
    a.apply(Queue(name="own", underlying_topic="orders"))
    sites.publish("a", 1)

    sites.begin("a")

    with a.subscribe("own") as messages:
        assert messages.get(30).data["id"] == 1
    assert a.admin.replication().recovery.queues == ("work",)


def test_a_queue_that_is_defined_anew_knows_first_what_others_settled(sites):
    a, b = sites.join("a", "b")
    (bookmark,) = sites.publish("a", 1)
    sites.carry()
    a._store.call(ownership_calls.grant_ownership("work", b.origin, [str(bookmark).encode()], rooms=f"{a.origin} 1"))
    sites.carry()
    assert handle(b, 1) == [1]
    sites.carry()
    sites.empty("a")
    sites.open("a", Topic(name="orders", retention_age="0s"), *sites.destinations("a", "a", "b"))
    sites.carry("ba")
    assert sites.log("a") == [1]

    a = sites.open("a", *shared(), *sites.destinations("a", "a", "b"))

    with a.subscribe("work") as messages:
        assert messages.get(0.2) is None
        sites.carry()
        assert messages.get(0.2) is None
    assert a.admin.replication().recovery is None


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
    joined.carry()
    assert handle(joined.clients["a"], 2) == [1, 2]
    joined.carry("ab", "ac")
    assert joined.clients["a"].admin.trim("orders").removed == 2

    joined.carry()

    assert joined.log("a") == []


@pytest.mark.parametrize("defined", ["before", "after"])
def test_a_journal_begins_above_what_the_last_incarnation_recorded_though_the_clock_is_behind_it(sites, defined):
    # Given an instance that recorded something an hour ahead of its server's clock
    (a,) = sites.join("a")
    store, ahead = a._store, int(time.time() * 1000) + 3_600_000
    queue = Queue(name="later", underlying_topic="later")
    if defined == "before":
        a.apply(queue)
    store.redis.set(key(a.instance, "clock"), f"{ahead}-5")
    # When a new incarnation begins
    a.admin.begin_incarnation()
    if defined == "after":
        a.apply(queue)
    # Then what it journals first gets an ID above those
    journal = store.redis.xinfo_stream(key(a.instance, "journal", "later"))
    assert journal["length"] == 0
    assert tuple(map(int, journal["last-generated-id"].split(b"-"))) >= (ahead, 5)


@pytest.mark.default_user(reason="counts on one connection for all that an instance is called for")
def test_the_same_word_twice_begins_one_incarnation(joined):
    store = joined.clients["a"]._store
    script = replication_calls.script_call("begin_incarnation", ["", "zzz"], list)
    once = store.call(script)

    assert store.call(script) == once
    assert store.redis.hget(key(joined.name("a"), "instance"), "former").count(b" ") == 1
