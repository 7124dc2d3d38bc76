"""Instances that a driver has opened: once a process, and again where they are gone."""

from __future__ import annotations

import contextlib
import os

import pytest

from ampsq.base.errors import Unavailable
from ampsq.base.partitions import partitions_of
from ampsq.protocol.reads.server import ping
from ampsq.protocol.schema import key
from ampsq.spark.stores import SparkInstance, opened_store, store_of

pytestmark = pytest.mark.slow


@pytest.fixture
def address(valkey, instance):
    return SparkInstance(valkey.url, instance)


def openings(caplog):
    """Return how often the fault of the server was told: the fixture's has no append-only file."""
    return sum("no append-only file" in record.getMessage() for record in caplog.records)


def origin(store):
    return store.redis.hget(key(store.instance, "instance"), "origin")


def test_an_instance_is_opened_once_however_often_it_is_asked_for(address, caplog):
    stores = {id(opened_store(address, retry_timeout)) for retry_timeout in (60.0, 60.0, 60.0, 5.0)}
    assert openings(caplog) == 1
    assert len(stores) == 2, "a store for each patience, opened or not"


def test_an_instance_that_is_gone_is_opened_anew(address, caplog):
    store = opened_store(address, 60.0)
    first = origin(store)
    store.redis.delete(key(address.instance, "instance"))

    assert opened_store(address, 60.0) is store
    assert openings(caplog) == 2
    assert origin(store) not in (None, first)


def test_another_instance_of_the_same_server_is_opened_too(address, caplog):
    opened_store(address, 60.0)
    other = opened_store(address._replace(instance=f"{address.instance}-b"), 60.0)
    assert openings(caplog) == 2
    assert origin(other)


def test_partitions_of_an_instance_share_their_connections_and_other_instances_do_not(valkey, instance):
    def more_by(addresses):
        with contextlib.closing(valkey.client()) as plain:
            before = len(plain.client_list())
            for address in addresses:
                store_of(address, 61.0).call(ping())
            return len(plain.client_list()) - before

    partitions = [SparkInstance(valkey.url, each.instance, each) for each in partitions_of(instance, 16)]
    assert more_by(partitions) <= 1
    assert more_by([SparkInstance(valkey.url, f"{instance}-{number}") for number in range(4)]) == 4


def test_a_process_that_was_forked_opens_on_its_own(address, caplog, monkeypatch):
    opened_store(address, 60.0)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    opened_store(address, 60.0)
    assert openings(caplog) == 2


def test_what_could_not_be_opened_is_tried_again(start_server, instance, caplog):
    server = start_server()
    address = SparkInstance(server.url, instance)
    server.end()
    with pytest.raises(Unavailable):
        opened_store(address, 0.2)

    start_server(data_dir=server.directory)
    opened_store(address, 0.2)
    assert openings(caplog) == 1
    assert origin(store_of(address, 0.2))
