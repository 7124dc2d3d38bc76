"""Guaranteed publishing: two publishers of one name, and numbers that somebody else used."""

from __future__ import annotations

import contextlib

import pytest

from ampsq import FilePublishStore, MemoryPublishStore
from ampsq.base.errors import NameInUse, NotPersisted, PublishStoreError


def test_a_newer_logon_ends_the_older_publisher(connect, make_store, log_of):
    older = connect().publisher("till-1", store=MemoryPublishStore())
    older.publish("orders", "older")
    older.flush("30s")
    newer = connect().publisher("till-1", store=make_store())
    # When the older one publishes on
    older.publish("orders", "too late")
    with pytest.raises(NameInUse):
        older.flush("5s")
    with pytest.raises(NameInUse):
        older.publish("orders", "never")
    # Then the newer one works on undisturbed
    newer.publish("orders", "newer")
    newer.flush("30s")
    assert log_of("orders") == [(1, '"older"'), (2, '"newer"')]


def test_an_older_publisher_does_not_come_back_by_itself(connect, log_of, valkey):
    older = connect().publisher("till-1", store=MemoryPublishStore())
    older.publish("orders", "older")
    older.flush("30s")
    newer = connect().publisher("till-1", store=MemoryPublishStore())
    newer.publish("orders", "newer")
    # When all connections break, as they do at a fail-over
    with contextlib.closing(valkey.client()) as redis:
        redis.client_kill_filter(_type="normal", skipme=True)
    # Then the older one does not take the name again
    older.publish("orders", "too late")
    with pytest.raises(NameInUse):
        older.flush("5s")
    newer.publish("orders", "newer still")
    newer.flush("30s")
    assert [body for _, body in log_of("orders")] == ['"older"', '"newer"', '"newer still"']


def test_what_another_recorded_and_left_again_is_not_taken_for_what_the_older_one_sends(connect, log_of):
    older = connect().publisher("till-1", store=MemoryPublishStore())
    older.publish("orders", "older")
    older.flush("30s")
    # Given somebody who used the name for one message, and logged off
    other = connect().publisher("till-1", store=MemoryPublishStore())
    other.publish("orders", "other")
    other.close()
    # When the older one gives its next message the same number, then it is not told that it is recorded
    older.publish("orders", "not a duplicate")
    with pytest.raises(NameInUse):
        older.flush("5s")
    assert log_of("orders") == [(1, '"older"'), (2, '"other"')]


def test_closing_tells_what_a_store_in_memory_loses_when_another_took_the_name(connect):
    older = connect().publisher("till-1", store=MemoryPublishStore())
    connect().publisher("till-1", store=MemoryPublishStore())
    # Given a message that was taken, since nobody knew yet that the server would refuse it
    assert older.publish("orders", "too late").sequence == 1
    with pytest.raises(NotPersisted, match="Another client logged on") as told:
        older.close()
    assert (told.value.first, told.value.last) == (1, 1)


def test_who_never_logs_on_is_refused_while_somebody_is(connect):
    guaranteed = connect().publisher("till-1", store=MemoryPublishStore())
    plain = connect().publisher("till-1")
    with pytest.raises(NameInUse):
        plain.publish("orders", 1)
    # And is let in when that one has left in order
    guaranteed.close()
    assert plain.publish("orders", 1).bookmark()


def test_numbers_that_somebody_else_used_are_not_taken_for_our_duplicates(connect, tmp_path, instance):
    # Given a store that holds messages, whose publisher died
    path = tmp_path / "till.db"
    store = FilePublishStore(path)
    store.open(instance, "till-1")
    store.keep(1, "publish", [b"orders", b"b", b"held"])
    store.close()
    # When somebody else used the name meanwhile
    other = connect().publisher("till-1", store=MemoryPublishStore())
    other.publish_many("orders", [1, 2, 3])
    other.close()
    # Then what is held is not dropped as recorded
    with pytest.raises(PublishStoreError, match="somebody else published under this name"):
        connect().publisher("till-1", store=path)
