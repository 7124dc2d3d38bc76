"""Checking and rebuilding queues that several instances share: what is owned elsewhere is a place like any other."""

from __future__ import annotations

import contextlib

import pytest
from linked import Linked, handle, take

from ampsq.schema import key
from ampsq.values import ref_of


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
        (found,) = (client or self.a).check("work", **options)
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
