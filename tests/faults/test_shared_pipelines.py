"""Calls to several instances on one connection: each is answered by itself, whatever becomes of those beside it."""

from __future__ import annotations

import pytest

from ampsq.base.errors import FormatMismatch, Unavailable
from ampsq.protocol.calls.publish import publish
from ampsq.protocol.request import command
from ampsq.transport.server_pools import ServerPools
from ampsq.transport.shared_pipelines import SharedPipelines
from ampsq.transport.store import Store


@pytest.fixture
def stores(server, instance):
    """Stores of three instances that share their connections and were used before."""
    pools = ServerPools()
    made = [Store(server.url, f"{instance}-{number}", pools=pools) for number in range(3)]
    for each in made:
        each.call(command(["PING"], bytes))
    yield made
    for each in made:
        each.close()
    pools.close()


@pytest.fixture
def pipelines():
    made = SharedPipelines()
    yield made
    made.close()


def push(store, value):
    """A call that is not repeatable: it adds a value to a list of its store's."""
    call = command(["RPUSH", f"{store.key}:list", value], int)
    call.repeatable = False
    return call


def pool(store):
    return store._connections.used[1]


def test_calls_of_several_instances_are_answered_in_order_on_one_connection(stores, pipelines):
    for store in stores:
        for _ in range(2):
            assert pipelines.post(store, command(["ECHO", store.instance], bytes.decode))
    assert len(pool(stores[0])._in_use_connections) == 1

    answers = [pipelines.collect() for _ in range(6)]

    assert answers == [store.instance for store in stores for _ in range(2)]
    pipelines.close()
    assert not pool(stores[0])._in_use_connections
    assert len(pool(stores[0]).known) == 1


def test_what_a_server_refuses_is_made_again_by_itself_and_the_others_stay_in_flight(stores, pipelines, plain):
    plain.script_flush()
    unknown = publish("orders", [b"1"], [], "", 0)

    assert pipelines.post(stores[0], push(stores[0], "before"))
    assert pipelines.post(stores[1], unknown)
    assert pipelines.post(stores[2], push(stores[2], "behind"))

    assert pipelines.collect() == 1
    # The server does not know the script; sent with its text it says that there is no such instance yet.
    with pytest.raises(FormatMismatch, match="nobody opened it yet"):
        pipelines.collect()
    assert pipelines.collect() == 1
    assert plain.lrange(f"{stores[2].key}:list", 0, -1) == [b"behind"]


def test_of_a_connection_that_breaks_nobody_knows_what_ran_and_the_next_call_is_made_by_itself(
    stores, pipelines, plain
):
    held_back = command(["BLPOP", f"{stores[0].key}:nothing", 30], bytes)
    assert pipelines.post(stores[0], held_back)
    assert pipelines.post(stores[1], push(stores[1], "two"))
    plain.client_kill_filter(_type="normal", skipme=True)

    for _ in range(2):
        with pytest.raises(Unavailable) as raised:
            pipelines.collect()
        assert raised.value.may_have_run
    assert stores[0].route.current is None
    assert not pipelines.post(stores[0], push(stores[0], "three"))
    pipelines.close()
    assert [store.call(push(store, "four")) for store in stores] == [1, 1, 1]
    assert pipelines.post(stores[0], push(stores[0], "five"))
    assert pipelines.collect() == 2
    assert not plain.lrange(f"{stores[1].key}:list", 1, -1)


def test_an_instance_for_which_the_connection_was_not_lent_yet_is_not_sent_to(stores, pipelines, server, instance):
    assert pipelines.post(stores[0], command(["PING"], bytes))
    new = Store(server.url, f"{instance}-new", pools=stores[0]._connections._pools)
    new.route.find()

    assert not pipelines.post(new, push(new, "early"))

    assert pipelines.collect() == b"PONG"
    pipelines.close()
    assert new.call(push(new, "late")) == 1
    assert pipelines.post(new, push(new, "later"))
    assert pipelines.collect() == 2


def test_connections_whose_replies_nobody_read_are_not_used_again(stores, pipelines):
    assert pipelines.post(stores[0], push(stores[0], "unread"))
    pipelines.close()

    assert stores[0].call(command(["ECHO", "mine"], bytes)) == b"mine"
    assert not pool(stores[0])._in_use_connections
