"""Checking and rebuilding queues that several instances share: what is owned elsewhere is a place like any other."""

from __future__ import annotations

import contextlib
import json

import pytest
from linked import Linked, handle, take

from ampsq.base.bookmarks import ref_of
from ampsq.protocol.calls import ownership as ownership_calls
from ampsq.protocol.calls import publish as publish_calls
from ampsq.protocol.schema import key


class Damaged:
    """Two instances: a has published 0 to 3, b 4 and 5; what is damaged is a's."""

    def __init__(self, linked):
        self.linked, (self.a, self.b) = linked, linked.join("a", "b")
        self.bookmarks = [self.a.publish("orders", {"id": number}) for number in range(4)]
        self.theirs = [self.b.publish("orders", {"id": number}) for number in (4, 5)]
        linked.carry()
        self.redis = self.a._store.redis
        # All is read, and nobody holds any of it
        for client, number in ((self.a, 4), (self.b, 2)):
            messages, _ = take(client, number, room=10)
            messages.close()

    def key(self, name):
        return key(self.a.instance, name, "work")

    def ref(self, number):
        return ref_of("orders", self.bookmarks[number].id)

    def remote(self):
        return [member.decode() for member in self.redis.zrange(self.key("remote"), 0, -1)]

    def names(self, client=None, **options):
        (found,) = (client or self.a).admin.check("work", **options)
        return {one.name: one.number for one in found.differences}


@pytest.fixture
def pair(_session_servers, instance):
    urls = [_session_servers("valkey").url, _session_servers("redis").url]
    with contextlib.ExitStack() as stack:
        yield Damaged(Linked(stack, instance, urls))


def mended(pair, words):
    """Found, mended, and found no more."""
    assert pair.names() == words
    assert pair.names(repair=True) == words
    assert pair.names() == {}


def test_nothing_is_wrong_with_what_is_owned_elsewhere(pair):
    assert len(pair.remote()) == 2
    assert pair.names() == {}
    assert pair.names(pair.b) == {}


def test_what_is_owned_here_and_waits_for_another_instance_is_ready_again(pair):
    assert handle(pair.a, 1) == [0]
    pair.redis.zrem(pair.key("ready"), pair.ref(1))
    pair.redis.zadd(pair.key("remote"), {pair.ref(1): 0})

    mended(pair, {"remote_but_own": 1})

    assert handle(pair.a, 3) == [1, 2, 3]


def test_what_is_owned_elsewhere_and_could_be_delivered_here_waits_for_its_owner(pair):
    first, second = pair.remote()
    pair.redis.zrem(pair.key("remote"), first)
    pair.redis.zadd(pair.key("ready"), {first: 0})

    mended(pair, {"own_but_remote": 1})

    assert pair.remote() == [first, second]
    assert handle(pair.a, 4) == [0, 1, 2, 3]


def test_what_is_lost_of_another_instance_s_messages_is_where_it_was(pair):
    remote = pair.remote()
    pair.redis.delete(pair.key("remote"))

    mended(pair, {"lost": 2})

    assert pair.remote() == remote


def test_what_is_settled_is_taken_out_of_what_is_owned_elsewhere(pair):
    first, _ = pair.remote()
    handle(pair.b, 1)
    pair.linked.carry()
    pair.redis.zadd(pair.key("remote"), {first: 0})

    mended(pair, {"settled_but_live": 1})


def test_notes_of_owners_that_are_left_are_removed(pair):
    assert handle(pair.a, 1) == [0]
    owner = f"{pair.b.instance}.x 1"
    pair.redis.hset(pair.key("owners"), pair.ref(0), owner)
    pair.redis.hset(pair.key("owners"), ref_of("orders", "5-5"), owner)

    mended(pair, {"owner_left": 2})

    assert not pair.redis.exists(pair.key("owners"))


def test_a_rebuild_finds_what_is_owned_elsewhere(pair):
    remote = pair.remote()
    pair.redis.delete(pair.key("remote"), pair.key("cursors"))

    mended(pair, {"cursor_missing": 1})

    assert pair.remote() == remote
    assert handle(pair.a, 4) == [0, 1, 2, 3]


def test_a_copy_that_is_not_found_by_its_bookmark_is_found_again(pair):
    pair.redis.delete(key(pair.a.instance, "copies", "orders", pair.b.origin))

    mended(pair, {"copy_missing": 2})

    handle(pair.b, 2)
    pair.linked.carry()
    assert pair.remote() == []


def test_what_is_here_beyond_what_is_said_to_be_received_is_not_brought_again(pair):
    received = key(pair.a.instance, "received")
    before = pair.redis.hgetall(received)
    pair.redis.hset(received, f"log orders@{pair.b.origin}", "0-0 -")

    mended(pair, {"received_behind": 2})

    assert pair.redis.hgetall(received) == before
    pair.linked.carry()
    assert sorted(pair.linked.log("a")) == [0, 1, 2, 3, 4, 5]


def test_what_is_told_of_messages_that_are_here_is_done_and_of_those_that_never_come_dropped(pair):
    told = {
        "how": "acknowledged",
        "reason": "",
        "by": "",
        "epoch": "0",
        "source": f"{pair.b.origin}~9-0",
        "path": "b/b",
    }
    for stream_id in (pair.theirs[0].id, "5-5"):
        name = key(pair.a.instance, "deferred", "orders")
        pair.redis.hset(name, f"work {pair.b.origin}~{stream_id}", json.dumps(told))

    mended(pair, {"told_in_vain": 2})

    assert len(pair.remote()) == 1


def test_the_bookmark_that_counts_is_the_lowest(pair):
    doubled = publish_calls.publish("orders", [b'{"id":6}'], [], "p", 1)
    ids = [client._store.call(doubled).first_id for client in (pair.a, pair.b)]
    pair.linked.carry()
    counting = key(pair.b.instance, "counting")
    before = pair.b._store.redis.hgetall(counting)
    assert len(before) == 1
    assert ids[0] in str(before)
    pair.b._store.redis.hset(counting, "orders 5-5", "x.y~4-4")
    pair.b._store.redis.hdel(counting, *before)

    assert pair.names(pair.b) == {"counting_wrong": 2, "remote_but_own": 1}
    assert pair.names(pair.b, repair=True) == {"counting_wrong": 2}

    assert pair.b._store.redis.hgetall(counting) == before
    assert pair.names(pair.b) == {}


def test_requests_of_no_queue_are_removed(pair):
    pair.redis.xadd(
        key(pair.a.instance, "requests"), {"queues": "nobody", "owner": "x.y", "bookmarks": "orders~x.y~1-1"}
    )

    mended(pair, {"request_stray": 1})


@pytest.mark.parametrize("word", ["repair", "rebuild"])
def test_owners_are_those_of_the_journal_s_transfers(pair, word):
    named = str(pair.bookmarks[0]).encode()
    pair.a._store.call(ownership_calls.grant_ownership("work", pair.b.origin, [named], rooms=f"{pair.a.origin} 1"))
    owners = pair.redis.hgetall(pair.key("owners"))
    assert list(owners) == [pair.ref(0).encode()]
    pair.redis.delete(pair.key("owners"))
    found = {"owner_missing": 1, "remote_but_own": 1}
    assert pair.names() == found

    if word == "rebuild":
        pair.redis.delete(pair.key("remote"), pair.key("cursors"))
        pair.a.admin.rebuild("work")
    else:
        assert pair.names(repair=True) == {"owner_missing": 1}

    assert pair.redis.hgetall(pair.key("owners")) == owners
    assert pair.names() == {}
    pair.linked.carry()
    assert handle(pair.a, 3) == [1, 2, 3]
