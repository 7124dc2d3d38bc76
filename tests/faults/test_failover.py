"""Servers that are lost for others: lists of addresses and Sentinel; and what clients are told of it."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest
from draining import KINDS, define, drain
from network import Heard
from observing import eventually

from ampsq import AsyncClient, Client, MemoryPublishStore, Queue
from ampsq.base.errors import NotAPrimary, OtherIncarnation, Unavailable

pytestmark = pytest.mark.slow

#: The password of the Sentinels.
WATCHING = "watching"


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_goes_on_at_the_next_address_that_is_a_primary(kind, start_node, connect):
    # Given a primary and its replica, and a client that knows the replica's address first
    first, second = start_node(kind=kind), start_node(kind=kind)
    second.follow(first)
    client = connect([second.url, first.url], heartbeat="1s", retry_timeout="20s")
    heard = Heard()
    client.add_connection_state_listener(heard)
    assert heard.wait_for("logged_on").address == first.url
    define(client)
    messages = client.subscribe("work", max_backlog=10)
    client.publish_many("orders", range(5))
    assert drain(messages, 5) == list(range(5))
    eventually(lambda: first.ask("WAIT", 1, 1000) == 1)
    # When the primary dies and the replica leads
    first.kill()
    second.lead()
    # Then the client goes on there by itself, its subscription too, and it is told in this order
    client.publish("orders", 5)
    assert drain(messages, 1) == [5]
    heard.wait_for("resubscribed")
    states = heard.states[heard.states.index("disconnected") :]
    assert [state for state in states if state != "disconnected"][:4] == [
        "connected",
        "logged_on",
        "heartbeat_initiated",
        "resubscribed",
    ]
    assert heard.events[-1].address == second.url
    assert heard.wait_for("disconnected").reason
    messages.close()
    client.close()
    assert heard.states[-1] == "shutdown"


def test_a_subscription_that_the_next_server_does_not_know_is_made_again(start_node, connect):
    # Given a replica that has the messages, and neither the subscription nor any script
    first, second = start_node(), start_node()
    second.follow(first)
    client = connect(f"{first.url},{second.url}", heartbeat="1s", retry_timeout="20s")
    heard = Heard()
    client.add_connection_state_listener(heard)
    define(client)
    client.publish_many("orders", range(20))
    messages = client.subscribe("work", max_backlog=4)
    held = [messages.get(30) for _ in range(4)]
    eventually(lambda: first.ask("WAIT", 1, 1000) == 1)
    first.kill()
    second.lead()
    second.ask("SCRIPT", "FLUSH")
    tag = "{" + client.instance + "}"
    second.ask("DEL", f"{tag}:subscriptions", f"{tag}:s:{messages.id}", f"{tag}:s:{messages.id}:inbox")
    former = messages.id
    # When the client goes on
    for message in held:
        message.ack()
    eventually(lambda: client.publish("orders", 20))
    seen = drain(messages, 17)
    # Then it has another subscription there, and everything is handed out; what was held and acknowledged only once
    assert messages.id != former
    assert seen == list(range(4, 21))
    assert heard.wait_for("resubscribed").address == second.url
    assert client.admin.queue_stats("work").depth == 0


def test_topics_are_read_on_and_what_is_kept_is_published_at_the_next_address(start_node, connect):
    # Given a live, a durable and a queue's subscription, and a publisher with a store
    first, second = start_node(), start_node()
    second.follow(first)
    client = connect([first.url, second.url], heartbeat="1s", retry_timeout="20s")
    till = client.publisher("till-1", store=MemoryPublishStore(), persisted="replicas=1")
    heard = Heard()
    client.add_connection_state_listener(heard)
    define(client)
    live = client.subscribe_topic("orders", bookmark="now")
    durable = client.subscribe_topic("orders", bookmark="epoch", sub_id="books")
    messages = client.subscribe("work", max_backlog=10, publisher=till)
    till.publish_many("orders", range(10))
    till.flush(10)
    for each in (live, durable):
        assert [each.get(30).data for _ in range(10)] == list(range(10))
    assert drain(messages, 10) == list(range(10))
    eventually(lambda: first.ask("WAIT", 1, 1000) == 1)
    # When the primary dies while more is published, and its replica leads with a replica of its own
    first.kill()
    till.publish_many("orders", range(10, 20))
    second.lead()
    third = start_node()
    third.follow(second)
    # Then each goes on where it was: nothing is missed or comes twice
    for each in (live, durable):
        assert [each.get(20).data for _ in range(10)] == list(range(10, 20))
        assert each.get(0.2) is None
    assert drain(messages, 10) == list(range(10, 20))
    till.flush(20)
    assert till.last_persisted == 20
    heard.wait_for("publish_replayed")
    for each in (live, durable, messages):
        each.close()


def test_a_server_with_another_origin_is_never_used(start_node, connect, instance):
    # Given two servers that have nothing to do with each other, and an instance of the same name on both
    first, second = start_node(), start_node()
    with Client(second.url, instance=instance) as other:
        define(other)
    client = connect([first.url, second.url], heartbeat="500ms", retry_timeout="1s")
    heard = Heard()
    client.add_connection_state_listener(heard)
    define(client)
    # When the first one is gone, then the client says what is the matter, and writes nothing there
    first.kill()
    with pytest.raises(OtherIncarnation, match="this client works on") as raised:
        client.publish("orders", 1)
    assert first.address in str(raised.value)
    assert second.address in str(raised.value)
    assert not raised.value.may_have_run
    assert second.ask("XLEN", "{" + instance + "}:log:orders") == 0
    # And when it is back, emptied, the client says that too, at once
    first.start()
    client._store.retry_timeout = 60.0
    started = time.monotonic()
    with pytest.raises(OtherIncarnation, match="it was emptied"):
        client.publish("orders", 1)
    assert time.monotonic() - started < 30
    assert heard.states.count("connected") == 1


def test_a_server_that_lost_its_last_messages_is_told(start_node, connect):
    # Given a replica that misses the last messages of its primary
    first, second = start_node(), start_node()
    client = connect([first.url, second.url], heartbeat="1s", retry_timeout="20s")
    define(client)
    client.publish("orders", 0)
    second.follow(first)
    second.ask("REPLICAOF", "NO", "ONE")
    heard = Heard()
    client.add_connection_state_listener(heard)
    client.publish("orders", 1)
    # When it takes over
    first.kill()

    def published():
        # A call that was on its way when the server died may have run: it is not repeated for nobody's publisher.
        with contextlib.suppress(Unavailable):
            return client.publish("orders", 2)

    # Then the client goes on, and says that messages are lost
    assert eventually(published)
    assert "the server lost messages" in heard.wait_for("connected", number=2).reason


def test_a_server_that_restarts_without_its_last_messages_is_told_to_a_publisher_too(start_node, connect):
    # Given a client without subscriptions, on a server whose data is saved once
    node = start_node()
    client = connect(node.url, heartbeat="1s", retry_timeout="20s")
    heard = Heard()
    client.add_connection_state_listener(heard)
    client.publish("orders", 0)
    node.ask("SAVE")
    client.publish("orders", 1)
    # When it comes back from what was saved, before the client has noticed anything
    node.kill()
    node.start()
    client.publish("orders", 2)
    # Then it is told
    assert "the server lost messages" in heard.wait_for("connected", number=2).reason
    assert "disconnected" in heard.states


@pytest.mark.parametrize("kind", KINDS)
def test_a_primary_that_is_demoted_is_left(kind, start_node, connect):
    # Given a client without a publisher's name, so that nothing that may have run is repeated
    first, second = start_node(kind=kind), start_node(kind=kind)
    second.follow(first)
    client = connect([first.url, second.url], heartbeat="1s", retry_timeout="20s")
    define(client)
    messages = client.subscribe("work", max_backlog=10)
    client.publish("orders", 0)
    eventually(lambda: first.ask("WAIT", 1, 1000) == 1)
    # When the two change their roles under it
    second.lead()
    first.follow(second)
    # Then its calls go on at the other one: what is refused was not done
    for number in range(1, 10):
        client.publish("orders", number)
    assert drain(messages, 10) == list(range(10))


def test_a_lone_replica_is_refused_with_its_primary_s_name(start_node, instance):
    first, second = start_node(), start_node()
    second.follow(first)
    with pytest.raises(NotAPrimary, match=f"this is a replica of 127.0.0.1:{first.port}"):
        Client(second.url, instance=instance, retry_timeout="300ms")


@pytest.fixture(params=KINDS)
def watched(request, start_node):
    """A primary, its replica and three Sentinels that watch over them with a password of their own."""
    kind = request.param
    first, second = start_node(kind=kind), start_node(kind=kind)
    second.follow(first)
    rules = [
        f"sentinel monitor main 127.0.0.1 {first.port} 2",
        "sentinel down-after-milliseconds main 500",
        "sentinel failover-timeout main 3000",
        "requirepass watching",
        "sentinel sentinel-pass watching",
    ]
    sentinels = [start_node(kind=kind, sentinel=True, options=rules, password=WATCHING) for _ in range(3)]
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(each.client()) for each in sentinels]
        for client in clients:
            eventually(
                lambda client=client: (
                    (state := client.sentinel_master("main"))["num-slaves"] == 1 and state["num-other-sentinels"] == 2
                ),
                within=40.0,
            )
    return first, second, sentinels


@pytest.mark.slow
def test_sentinels_name_the_primary_and_the_one_that_follows_it(watched, connect):
    first, second, sentinels = watched
    # Given a client that knows the Sentinels, one of which does not live
    sentinels[0].kill()
    hosts = ",".join(each.address for each in sentinels)
    url = f"sentinel://{hosts}/main?sentinel_password=watching"
    client = connect(url, heartbeat="1s", retry_timeout="30s")
    till = client.publisher("till-1")
    heard = Heard()
    client.add_connection_state_listener(heard)
    assert heard.wait_for("connected").address == f"redis://{first.address}/"
    define(client)
    messages = client.subscribe("work", max_backlog=10)
    till.publish_many("orders", range(10))
    assert drain(messages, 10) == list(range(10))
    eventually(lambda: first.ask("WAIT", 1, 1000) == 1)
    # When the primary dies, then the client goes on where the Sentinels say, and nothing is recorded twice
    first.kill()
    for number in range(10, 20):
        till.publish("orders", number)
    assert drain(messages, 10) == list(range(10, 20))
    assert heard.wait_for("resubscribed").address == f"redis://{second.address}/"
    assert client.admin.queue_stats("work").depth == 0


def test_sentinels_are_asked_under_their_own_password(watched, instance):
    _, _, sentinels = watched
    with pytest.raises(Unavailable, match="sentinel_password"):
        Client(f"sentinel://{sentinels[0].address}/main", instance=instance, retry_timeout="300ms")
    with pytest.raises(Unavailable, match="name no primary 'other'") as raised:
        Client(
            f"sentinel://{sentinels[0].address}/other?sentinel_password=watching",
            instance=instance,
            retry_timeout="300ms",
        )
    assert "watching" not in str(raised.value)


def test_the_asyncio_client_fails_over_and_tells_it_in_the_event_loop(start_node, instance):
    first, second = start_node(), start_node()
    second.follow(first)

    async def main():
        told, failing = [], []
        async with AsyncClient(
            [first.url, second.url], instance=instance, heartbeat="1s", retry_timeout="20s"
        ) as client:

            async def listen(event):
                await asyncio.sleep(0)
                told.append((str(event.state), asyncio.get_running_loop() is loop))

            def fail(event):
                failing.append(event)
                raise ValueError

            loop = asyncio.get_running_loop()
            client.add_connection_state_listener(fail)
            client.add_connection_state_listener(listen)
            await client.apply(Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=10))
            async with client.subscribe("work", max_backlog=10) as messages:
                await client.publish("orders", 1)
                message = await messages.get(30)
                await message.ack(wait=True)
                first.ask("WAIT", 1, 1000)
                await asyncio.to_thread(first.kill)
                second.lead()
                await client.publish("orders", 2)
                message = await messages.get(30)
                assert message.data == 2
                await message.ack(wait=True)
                await asyncio.to_thread(eventually, lambda: ("resubscribed", True) in told, within=25.0)
        assert told[-1] == ("shutdown", True)
        assert all(in_loop for _, in_loop in told)
        states = [state for state, _ in told]
        at = states.index("disconnected")
        assert states[:at] == ["connected", "logged_on", "heartbeat_initiated"]
        assert [s for s in states[at:] if s != "disconnected"] == [
            *("connected", "logged_on", "heartbeat_initiated", "resubscribed", "shutdown")
        ]
        assert len(failing) == len(told)

    asyncio.run(main())
