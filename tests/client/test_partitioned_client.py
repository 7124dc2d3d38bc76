"""Clients of all partitions of an instance, on one server, which needs no cluster: it runs the same code."""

# Long: one scene, a client of all partitions, with each of its calls.

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import threading

import pytest
from observing import eventually
from partitioned import TOTAL, WORK, client_of_partitions, key_of, messages_of, origin_of

from ampsq import (
    Action,
    Admin,
    AsyncClient,
    Client,
    Destination,
    Do,
    GroupLocalQueue,
    Instance,
    On,
    Queue,
    Topic,
    View,
)
from ampsq.base.errors import (
    AmpsqError,
    CatalogChanged,
    Closed,
    DefinitionError,
    QueueInUse,
    StaleDefinitions,
    UnknownQueue,
)
from ampsq.base.partitions import partition_of_key, partitions_of
from ampsq.catalog.partitioned import Intent
from ampsq.client.partitioned_admin import PartitionedAdmin
from ampsq.client.partitioned_client import PartitionedClient

client = client_of_partitions


def definitions_by_partition(server, client):
    found = []
    for name in client.partitions:
        with Client(server.url, instance=name) as one:
            found.append([each for each in one.admin.definitions() if not isinstance(each, Instance)])
    return found


# -- names and numbers


def test_the_address_or_an_argument_says_how_many_there_are(server, instance):
    with Client(f"{server.url}?partitions=4", instance=instance) as client:
        assert isinstance(client, PartitionedClient)
        assert client.partitions == tuple(each.instance for each in partitions_of(instance, TOTAL))
        assert (client.instance, client.server.kind) == (instance, client.clients[0].server.kind)
        assert "partitions" not in client.url
        with Client(server.url, instance=instance, partitions=4) as other:
            assert other.partitions == client.partitions
        with Client(server.url, instance=client.partitions[2]) as one:
            assert one.partitions == ()


@pytest.mark.parametrize("total", [1, 2, 8])
def test_another_number_is_refused(connect_partitions, total):
    connect_partitions()

    with pytest.raises(
        DefinitionError, match=f"has 4 partitions, and {total} are asked for.*never changes.*partitions=4"
    ):
        connect_partitions(partitions=total)


def test_a_client_that_forgot_the_partitions_is_told(connect_partitions, server, instance):
    connect_partitions()

    with pytest.raises(DefinitionError, match=r"has 4 partitions.*allowed: partitions=4 beside the address"):
        Client(server.url, instance=instance)


def test_a_number_that_is_said_several_times_is_one(server, instance):
    with Client(f"{server.url}?partitions=4&partitions=4", instance=instance) as client:
        assert len(client.partitions) == TOTAL
    with pytest.raises(DefinitionError, match="partitions=4 and 8: an instance has one number of them"):
        Client(f"{server.url}?partitions=4&partitions=8", instance=instance)


@pytest.mark.parametrize("address", [5, ["redis://h", 5], {}])
def test_what_is_no_address_is_refused(address):
    with pytest.raises(DefinitionError, match="allowed is a text or a list of texts"):
        Client(address)


def test_an_instance_that_is_there_gets_no_partitions(server, instance, connect_partitions):
    with Client(server.url, instance=instance):
        pass

    with pytest.raises(DefinitionError, match=r"has no partitions.*allowed: another name"):
        connect_partitions()


def test_a_partition_has_no_partitions(connect_partitions, server):
    client = connect_partitions()
    one, name = client.partitions[2], client.instance

    with pytest.raises(DefinitionError, match=rf"'{one}' is partition 2 of the 4 of '{name}'.*allowed: '{name}' with"):
        Client(server.url, instance=one, partitions=TOTAL)


def test_a_name_of_a_partition_that_another_instance_has_is_refused(server, instance, connect_partitions):
    taken = partitions_of(instance, TOTAL)[2].instance
    with Client(server.url, instance=taken):
        pass

    with pytest.raises(
        DefinitionError, match=f"instance '{taken}' is an instance of its own, not partition 2 of the 4"
    ):
        connect_partitions()


def test_an_address_of_another_instance_to_go_on_at_is_refused(server, instance):
    with pytest.raises(DefinitionError, match="no other one to go on at yet"):
        Client(f"{server.url}?partitions=4#{instance},{server.url}#other")


def test_a_client_of_another_kind_has_one_partition(server, instance):
    class OwnClient(Client):
        pass

    with pytest.raises(DefinitionError, match="OwnClient works at one instance, and partitions=4"):
        OwnClient(server.url, instance=instance, partitions=4)


# -- publishing


def test_messages_of_a_key_are_in_its_partition_in_their_order(client):
    client.apply(WORK)

    bookmarks = client.publish_many("orders", messages_of(20, 10), key=key_of)
    one = client.publish("orders", {"key": "k3", "number": 1_000}, key="k3")

    partitions = client.partitions
    assert [origin_of(each) for each in bookmarks] == [
        partitions[partition_of_key(f"k{number % 20}", TOTAL)] for number in range(200)
    ]
    assert origin_of(one) == partitions[partition_of_key("k3", TOTAL)]
    assert len({origin_of(each) for each in bookmarks}) == TOTAL


def test_messages_without_a_key_go_to_the_partitions_in_turn(client):
    single = [client.publish("orders", number) for number in range(8)]
    many = client.publish_many("orders", range(40), batch=10)

    assert [origin_of(each) for each in single] == [*client.partitions, *client.partitions]
    assert [origin_of(each) for each in many] == [name for name in client.partitions for _ in range(10)]


def test_a_group_and_a_deduplication_id_choose_a_partition(client):
    grouped = {origin_of(client.publish("orders", number, group="g7")) for number in range(5)}
    first, again = (client.publish("orders", {"n": 1}, deduplication_id="invoice-17") for _ in range(2))
    many = client.publish_many("orders", [1, 2, 1, 2, 2], deduplication_id=str)

    assert grouped == {client.partitions[partition_of_key("g7", TOTAL)]}
    assert first == again
    assert many[0] == many[2]
    assert many[1] == many[3] == many[4]


def test_the_name_of_the_instance_may_be_in_the_address(server, instance, monkeypatch):
    for address in (f"{server.url}?partitions=4#{instance}", f"{server.url}#{instance}?partitions=4"):
        with Client(address, instance="another") as client:
            assert (client.instance, len(client.partitions)) == (instance, TOTAL)
            assert all(each.startswith(f"{instance}.") for each in client.partitions)
    monkeypatch.setenv("AMPSQ_URL", f"{server.url}#{instance}")
    with Client(partitions=TOTAL) as client:
        assert client.clients[1].instance == client.partitions[1]
    with pytest.raises(DefinitionError, match=r"of the instances a, b, and one with partitions .*; allowed: "):
        Client(f"{server.url}?partitions=4#a,{server.url}#b")


def test_a_plan_says_what_comes_of_a_definition_that_only_some_partitions_have(client):
    # Given a client that died when the first partition had it
    made_so(client, begun(client, Topic(name="orders")), [0])

    plans = [one.admin.plan(Topic(name="orders"))[0].outcome for one in client.clients]
    (planned,) = client.admin.plan(Topic(name="orders"))

    assert (plans, planned.outcome) == (["unchanged", "new", "new", "new"], "new")


def test_one_instance_takes_a_key_too_so_that_only_the_address_changes(server, instance):
    with Client(server.url, instance=instance) as client:
        client.publish("orders", 1, key="k")
        assert len(client.publish_many("orders", [1, 2], key=str)) == 2
        with pytest.raises(DefinitionError, match="key: 17 is not a text"):
            client.publish("orders", 1, key=17)
        with pytest.raises(DefinitionError, match="key='k': allowed is a function"):
            client.publish_many("orders", [1], key="k")


@pytest.mark.parametrize(
    ("arguments", "options", "told"),
    [
        ((["a"],), {"key": "k"}, "key='k': allowed is a function"),
        ((["a"],), {"key": lambda _: 17}, "key=17: allowed is a text"),
        ((["a"],), {"batch": 0}, "batch=0: allowed is a whole number"),
        (({"a": 1},), {}, "allowed is a list or another iterable of messages"),
        (("abc",), {}, "messages='abc': allowed is a list or another iterable of messages; one: publish"),
        (("abc",), {"key": str}, "messages='abc': allowed is a list or another iterable of messages; one: publish"),
        ((["a"],), {"batch": True}, "batch=True: allowed is a whole number"),
        ((["a"],), {"within": "1m"}, "allowed only with a deduplication_id"),
    ],
)
def test_arguments_that_are_none_are_refused_before_anything_is_recorded(client, arguments, options, told):
    with pytest.raises(DefinitionError, match=told):
        client.publish_many("orders", *arguments, **options)

    assert all("orders" not in one.admin.topics() for one in client.clients)


def test_an_argument_that_publishing_does_not_have_is_told(client):
    with pytest.raises(TypeError, match=r"publish\(\) has no argument 'keys'"):
        client.publish("orders", 1, keys="k")


# -- definitions


def test_definitions_are_those_of_all_partitions(client, server):
    assert [outcome for _, outcome in client.apply(Topic(name="orders"), WORK)] == ["new", "new"]
    assert [outcome for _, outcome in client.apply(Topic(name="orders"), WORK)] == ["unchanged", "unchanged"]
    changed = Queue(**{**WORK.elements(), "max_deliveries": 3})
    assert [outcome for _, outcome in client.apply(changed)] == ["changed"]

    found = definitions_by_partition(server, client)
    assert found == [found[0]] * TOTAL
    assert client.admin.definitions() == found[0]
    assert client.admin.queues()["work"].max_deliveries == 3
    assert [each.outcome for each in client.admin.plan(WORK)] == ["changed"]
    assert client.admin.message_type("orders") == "json"
    assert client.admin.address_settings() == {}

    client.admin.remove(changed)
    assert client.admin.queues() == {}
    assert [len(each) for each in definitions_by_partition(server, client)] == [1] * TOTAL


def test_a_queue_is_paused_in_all_partitions(client):
    client.apply(WORK)

    assert client.admin.pause_queue("work")
    assert not client.admin.pause_queue("work")
    assert all(one.admin.queues()["work"].paused for one in client.clients)
    assert client.admin.resume_queue("work")
    with pytest.raises(UnknownQueue):
        client.admin.pause_queue("works")


def test_nothing_is_defined_anywhere_where_one_partition_refuses(client, server):
    client.apply(WORK)
    with (
        Client(server.url, instance=client.partitions[3]) as one,
        one.subscribe("work"),
        pytest.raises(QueueInUse),
    ):
        client.admin.remove(WORK)
    assert all("work" in one.admin.queues() for one in client.clients)
    assert client.clients[0]._store.run(Intent.read(client.partitions[0])).is_done


def begun(client, *definitions, removed=()):
    first = client.clients[0]
    intent = first._store.run(Intent.read(first.instance))
    return first._store.run(intent.begin(definitions, removed))


def made_so(client, intent, partitions):
    for one in [client.clients[number] for number in partitions]:
        one._store.run(one._session.make_so(intent))


@pytest.mark.parametrize("done", range(TOTAL + 1))
@pytest.mark.parametrize("by", ["opening", "defining"])
def test_what_a_client_left_half_defined_is_finished_by_the_next_one(client, connect_partitions, server, done, by):
    client.apply(Topic(name="orders"), Queue(name="old", underlying_topic="orders"))
    later = connect_partitions()
    # Given a client that died when some of the partitions had it
    made_so(client, begun(client, WORK, removed=[Queue(name="old", underlying_topic="orders")]), range(done))

    if by == "opening":
        connect_partitions()
    else:
        later.apply(Topic(name="letters"))

    found = definitions_by_partition(server, later)
    assert found == [found[0]] * TOTAL
    assert {each.name for each in found[0] if isinstance(each, Queue)} == {"work"}


@pytest.mark.parametrize("done", range(TOTAL))
def test_a_client_that_was_held_up_does_not_bring_back_what_was_changed_meanwhile(client, connect_partitions, done):
    client.apply(Topic(name="orders"), WORK)
    other = connect_partitions()
    changed = Queue(**{**WORK.elements(), "max_deliveries": 3})
    held_up = begun(client, changed)
    made_so(client, held_up, range(done))
    other.apply(Queue(**{**WORK.elements(), "max_deliveries": 7}))

    # When it goes on
    with pytest.raises(StaleDefinitions):
        made_so(client, held_up, range(done, TOTAL))
    client._carry_out(held_up)

    assert [one.admin.queues()["work"].max_deliveries for one in client.clients] == [7] * TOTAL
    assert client.clients[0]._store.run(Intent.read(client.partitions[0])).is_done


def go_on(client, flow, step):
    while True:
        step = flow.send(client._store.call(step))


def test_one_that_read_the_catalog_before_a_later_version_was_noted_defines_nothing(client):
    client.apply(Topic(name="orders"), WORK)
    older = begun(client, Queue(**{**WORK.elements(), "max_deliveries": 3}))
    last = client.clients[3]
    flow = last._session.make_so(older)
    # Given a client whose next call would define the queue
    step = flow.send(None)
    while "define_queue" not in str(getattr(step.script, "name", "")):
        step = flow.send(last._store.call(step))
    # When a later version is noted
    newer = older._replace(version=older.version + 1, definitions=[])
    last._store.run(last._session.make_so(newer))

    # Then it is refused, reads again and sees that it is too late
    with pytest.raises(CatalogChanged) as refused:
        last._store.call(step)
    step = flow.throw(refused.value)
    with pytest.raises(StaleDefinitions):
        go_on(last, flow, step)
    assert last.admin.queues()["work"].max_deliveries == 0


def test_clients_that_define_at_once_leave_partitions_that_are_equal(client, connect_partitions, server):
    client.apply(Topic(name="orders"), WORK)
    clients, failures = [connect_partitions() for _ in range(3)], []

    def define(one, number):
        try:
            for turn in range(3):
                one.apply(
                    Queue(**{**WORK.elements(), "max_deliveries": 10 * number + turn}), Topic(name=f"t{number}-{turn}")
                )
        except AmpsqError as failure:
            failures.append(failure)

    threads = [threading.Thread(target=define, args=(one, number)) for number, one in enumerate(clients, 1)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    assert failures == []
    found = definitions_by_partition(server, client)
    assert found == [found[0]] * TOTAL
    assert len([each for each in found[0] if isinstance(each, Topic)]) == 10


def test_what_one_partition_refuses_for_good_does_not_stop_what_is_defined_next(client, caplog):
    client.apply(Topic(name="orders"), WORK)
    made_so(client, begun(client, Topic(name="letters", message_type="msgpack")), [0])
    client.clients[2].publish("letters", 1)

    client.apply(Topic(name="parcels"))

    assert "version 2 of what is defined is not in all" in caplog.text
    assert all("parcels" in one.admin.topics() for one in client.clients)


def test_what_is_badly_configured_at_a_server_is_logged_once_for_all_of_its_partitions(server, instance, caplog):
    with Client(server.url, instance=instance, partitions=TOTAL):
        pass

    async def open_it():
        async with AsyncClient(server.url, instance=instance, partitions=TOTAL):
            pass

    asyncio.run(open_it())

    said = [record.getMessage() for record in caplog.records if "no append-only file" in record.getMessage()]
    # Once a client.
    assert len(said) == 2
    assert all(f" at {server.url}: " in text for text in said)


def test_one_partition_alone_is_not_defined(client, server):
    client.apply(WORK)
    with Client(server.url, instance=client.partitions[1]) as one:
        for call in (
            lambda: one.apply(Topic(name="x")),
            lambda: one.admin.remove(WORK),
            lambda: one.admin.pause_queue("work"),
        ):
            with pytest.raises(
                DefinitionError, match=r"is partition 1 of the 4 .* which all have the same definitions"
            ):
                call()
        # What is used first is made where it is used.
        one.publish("letters", 1)


@pytest.mark.parametrize(
    ("definition", "told"),
    [
        (Queue(name="w", underlying_topic="t", barrier_expression="/end = 1"), "a barrier would hold one partition"),
        (
            Queue(name="w", underlying_topic="t", group_by="/g", group_affinity="30s"),
            "a consumer has room in a partition only while it visits that",
        ),
        (GroupLocalQueue(name="g", initial_owner="other"), "shares no queues with others yet"),
        (
            View(name="v", underlying_topic="t", projection=["COUNT(*) AS /n"]),
            "has Topic, Queue, AddressSetting and Action",
        ),
        (Instance(topics="defined"), "has Topic, Queue, AddressSetting and Action"),
        (Destination(name="d", topics="t", sync_type="sync"), "has Topic, Queue, AddressSetting and Action"),
        (
            Action(name="a", on=On.schedule(every="1h"), do=Do.publish(topic="t", data="1")),
            "'schedule' would set it off in each partition",
        ),
    ],
)
def test_what_partitions_cannot_have_is_refused_with_what_helps(client, definition, told):
    for call in (client.apply, client.admin.plan, client.admin.remove):
        with pytest.raises(DefinitionError, match=f"{told}.*allowed: "):
            call(definition)


# -- what is merged


def test_dead_letters_of_all_partitions_are_seen_and_put_back(client):
    failed = Queue(name="failed", underlying_topic="letters", max_per_subscription_backlog=50)
    client.apply(Queue(**{**WORK.elements(), "max_deliveries": 1}), failed, Action.dead_letter("work", "letters"))
    bookmarks = client.publish_many("orders", messages_of(12, 1), key=key_of)

    with contextlib.ExitStack() as stack:
        from ampsq.coordinator import Coordinator  # noqa: PLC0415

        coordinator = Coordinator(client.url, list(client.partitions))
        thread = threading.Thread(target=coordinator.run)
        thread.start()
        stack.callback(thread.join)
        stack.callback(coordinator.stop)
        assert client.ack("work", bookmarks[:6], "expire") == 6
        assert client.ack("work", ",".join(bookmarks[6:8]), "expire") == 2
        eventually(lambda: len(client.admin.dead_letters("failed")) == 8, within=20.0)

    letters = client.admin.dead_letters("failed")
    times = [int(letter.bookmark.id.split("-")[0]) for letter in letters]
    assert times == sorted(times)
    assert len({origin_of(letter.bookmark) for letter in letters}) > 1
    named = [letter.bookmark for letter in letters]
    assert [letter.bookmark for letter in client.admin.dead_letters("failed", top_n=3)] == named[:3]
    assert [letter.bookmark for letter in client.admin.dead_letters("failed", bookmarks=named[3:4])] == named[3:4]

    assert client.admin.redrive("failed", bookmarks=[letters[0].bookmark]) == 1
    seen = []
    redriven = client.admin.redrive("failed", progress=seen.append)
    assert (int(redriven), redriven.targets, redriven.refused) == (7, {"work": 7}, 0)
    # Progress is that of all partitions.
    assert (seen[-1].done, seen[-1].refused, seen[-1].total) == (7, 0, 7)
    assert [each.done for each in seen] == sorted(each.done for each in seen)
    assert client.admin.queue_stats("work").depth == 12


def test_a_message_is_found_by_its_bookmark_wherever_it_is(client):
    client.apply(WORK)
    bookmark = client.publish_many("orders", messages_of(20, 1), key=key_of)[7]

    assert client.admin.explain("work", bookmark).queue == "work"
    assert client.admin.history(bookmark).bookmark == bookmark
    assert client.ack("work", filter="/number < 5") == 5
    assert client.ack("work", filter="/number < 7", dry_run=True) == 2
    assert client.ack("work", bookmark) == 1
    assert client.admin.queue_stats("work").depth == 14
    nexts = [each.admin.explain("work").bookmark for each in client.clients]
    oldest = min((each for each in nexts if each is not None), key=lambda each: tuple(map(int, each.id.split("-"))))
    assert client.admin.explain("work").bookmark == oldest
    with pytest.raises(DefinitionError, match="is of instance 'elsewhere', which is no partition here"):
        client.ack("work", "orders~elsewhere.abc~1-0")
    with pytest.raises(DefinitionError, match="ack needs bookmarks or a filter"):
        client.ack("work")


def test_all_partitions_are_checked(client):
    client.apply(WORK)
    client.publish_many("orders", messages_of(20, 1), key=key_of)

    reports = client.admin.check("work")

    assert len(reports) == TOTAL
    assert all(report.clean for report in reports)
    assert sum(report.messages for report in reports) == 20


def test_a_group_is_released_in_all_partitions_of_a_queue_that_has_groups(client):
    client.apply(WORK, Queue(name="mail", group_by="/customer"))

    assert client.admin.release_group("mail", "none") is False
    with pytest.raises(DefinitionError, match="has no groups"):
        client.admin.release_group("work", "none")


def test_a_queue_is_rebuilt_in_all_partitions(client):
    client.apply(WORK)
    client.publish_many("orders", messages_of(20, 2), key=key_of)
    with client.subscribe("work", max_backlog=9) as subscription:
        subscription.get("5s").ack()

    rebuilt = client.admin.rebuild("work")

    assert (rebuilt.queue, rebuilt.messages, rebuilt.settled) == ("work", 40, 1)
    assert client.admin.queue_stats("work").depth == 39
    with pytest.raises(UnknownQueue):
        client.admin.rebuild("works")


def test_a_group_is_paused_resumed_and_dropped_in_all_partitions(client):
    client.apply(Queue(name="mail", underlying_topic="letters", group_by="/g", max_per_subscription_backlog=9))
    client.publish_many("letters", [{"g": "a", "n": n} for n in range(20)], key=lambda message: str(message["n"]))

    assert client.admin.pause_group("mail", "a") is True
    assert client.admin.pause_group("mail", "a") is False
    assert client.admin.resume_group("mail", "a") is True
    assert client.admin.resume_group("mail", "a") is False
    assert client.admin.drop_group("mail", "a", dry_run=True) == 20
    assert client.admin.drop_group("mail", "a", reason="void") == 20
    assert client.admin.queue_stats("mail").depth == 0


def test_each_call_is_merged_or_refused_with_what_helps(client):
    """No call of a client goes to one partition alone without saying so."""
    own = {name for name in vars(PartitionedClient) if not name.startswith("_")}
    calls = {name for name, value in vars(Client).items() if callable(value) and not name.startswith("_")}
    assert calls <= own
    with pytest.raises(DefinitionError, match="aggregate is not there for an instance with partitions yet; allowed: "):
        client.aggregate("work")
    calls = {name for name, value in vars(Admin).items() if callable(value) and not name.startswith("_")}
    assert calls <= set(vars(PartitionedAdmin))
    with pytest.raises(DefinitionError, match=r"admin\.replication is not there"):
        client.admin.replication()
    with pytest.raises(DefinitionError, match="origin is not there"):
        _ = client.origin
    with pytest.raises(AttributeError, match=r"its admin has it: \.admin\.queue_stats"):
        _ = client.queue_stats
    with pytest.raises(AttributeError):
        _ = client.nothing


def test_topics_and_publishers_of_all_partitions_are_read(client):
    client.apply(WORK)
    bookmarks = client.publish_many("orders", messages_of(20, 5), key=key_of)
    with client.publisher("till") as till:
        till.publish("orders", {"key": "k3"}, key="k3")

    topic = client.admin.topics()["orders"]
    assert (topic.messages, topic.recorded, topic.queues) == (101, 101, ("work",))
    assert topic.first.id == min(bookmarks, key=lambda each: tuple(map(int, each.id.split("-")))).id
    assert topic.bytes == sum(one.admin.topics()["orders"].bytes for one in client.clients)
    assert [(each.name, each.sequence) for each in client.admin.publishers()] == [("till", 1)]


def test_a_listener_hears_of_the_connections_of_all_partitions(client):
    events = []

    client.add_connection_state_listener(events.append)
    eventually(lambda: len(events) >= TOTAL, within=5.0)
    client.remove_connection_state_listener(events.append)


# -- asyncio


def test_an_asyncio_client_does_the_same(server, instance):
    asyncio.run(_do_the_same(server, instance))


async def _do_the_same(server, instance):
    async with AsyncClient(f"{server.url}?partitions=4", instance=instance) as client:
        assert len(client.partitions) == TOTAL
        await client.apply(Topic(name="orders"), WORK)
        bookmarks = await client.publish_many("orders", messages_of(20, 50), key=key_of)
        assert len({origin_of(each) for each in bookmarks}) == TOTAL
        assert origin_of(await client.publish("orders", {"key": "k3", "number": -1}, key="k3")) in client.partitions

        by_key = {}
        async with client.subscribe("work", max_backlog=80) as subscription:
            async with asyncio.timeout(30):
                for _ in range(1_001):
                    message = await subscription.get()
                    by_key.setdefault(message.data["key"], []).append(message.data["number"])
                    await message.ack()
            assert await subscription.get(0) is None
            assert repr(subscription).startswith("<AsyncPartitionedSubscription ")
        assert by_key.pop("k3") == [*range(3, 1_000, 20), -1]
        assert by_key == {f"k{key}": list(range(key, 1_000, 20)) for key in range(20) if key != 3}
        assert (await client.admin.queue_stats("work")).acknowledged == 1_001
        assert all(report.clean for report in await client.admin.check())
        assert await client.ack("work", filter="/number > 0") == 0
        assert await client.admin.pause_queue("work")
        await client.admin.remove(WORK)
        assert await client.admin.queues() == {}
        with pytest.raises(DefinitionError, match="aggregate is not there"):
            client.aggregate("work", ["COUNT(*) AS /n"])
    with pytest.raises(Closed):
        await client.publish("orders", 1)


@pytest.mark.parametrize("address", ["memory://partitioned?partitions=3", None])
def test_servers_that_a_program_begins_by_itself_have_partitions_and_a_coordinator_for_them(monkeypatch, address):
    monkeypatch.delenv("AMPSQ_URL", raising=False)
    monkeypatch.delenv("AMPSQ_INSTANCE", raising=False)
    with tempfile.TemporaryDirectory(prefix="aq-", dir="/tmp") as folder:
        options = {} if address else {"partitions": 3, "data_dir": folder}
        with Client(address, **options) as client:
            client.apply(Queue(name="work", underlying_topic="orders"), Queue(name="dead", underlying_topic="dead"))
            client.apply(Action.dead_letter("work", "dead"))
            bookmarks = client.publish_many("orders", messages_of(6, 1), key=key_of)
            assert client.ack("work", bookmarks, "expire") == 6
            eventually(lambda: len(client.admin.dead_letters("dead")) == 6, within=60.0)
