"""Durable subscriptions: what was handled is written down, in order or not, and whoever comes back goes on there."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading

import pytest
from observing import eventually
from scene import data_of, pick_up, rest_of

from ampsq import AsyncClient, MemoryBookmarkStore, RedisBookmarkStore, SqliteBookmarkStore, Topic
from ampsq.base.errors import DefinitionError, NameInUse, Unavailable, UnknownTopic
from ampsq.protocol.schema import key

KINDS = ["memory", "file", "redis"]


@pytest.fixture(params=KINDS)
def bookmark_store(request, tmp_path):
    return {
        "memory": MemoryBookmarkStore,
        "file": lambda: SqliteBookmarkStore(tmp_path / "places"),
        "redis": RedisBookmarkStore,
    }[request.param]()


@pytest.fixture
def durable(client, bookmark_store):
    """Subscribe to the topics a and b under a name."""
    client.apply(Topic(name="a"), Topic(name="b"))

    def subscribe(sub_id="audit", name="^[ab]$", **options):
        return client.subscribe_topic(name, sub_id=sub_id, bookmark_store=bookmark_store, **options)

    return subscribe


def publish(client, numbers):
    """Numbers to both topics in turn; gives their bookmarks."""
    return [client.publish("ab"[number % 2], number) for number in numbers]


def test_who_comes_back_goes_on_behind_what_was_handled(client, durable):
    # Given ten messages, of which four were handed out, and the fifth was asked for
    publish(client, range(10))
    with durable() as messages:
        assert data_of(pick_up(messages, 5)) == [0, 1, 2, 3, 4]
    # When the subscription is made again, then what was not surely handled comes, and the rest
    with durable() as messages:
        assert data_of(rest_of(messages)) == [4, 5, 6, 7, 8, 9]
    # And everything is handled by then
    with durable() as messages:
        assert not rest_of(messages)
        # Also what was published while it was away comes
    publish(client, [10, 11])
    with durable() as messages:
        assert data_of(rest_of(messages)) == [10, 11]


def test_what_was_handled_out_of_turn_does_not_come_again_and_nothing_is_passed_over(client, durable):
    publish(client, range(8))
    # Given messages that were handled in another order than they came
    with durable(auto_ack=False) as messages:
        got = pick_up(messages, 8)
        for place in (5, 2, 7):
            got[place].ack()
    # Then the others come again, in order
    with durable(auto_ack=False) as messages:
        again = pick_up(messages, 5)
        assert data_of(again) == [0, 1, 3, 4, 6]
        assert not rest_of(messages)
        again[0].ack(wait=True)
        again[4].ack(wait=True)
    with durable(auto_ack=False) as messages:
        again = pick_up(messages, 3)
        assert data_of(again) == [1, 3, 4]
        for message in again:
            message.ack()
    with durable(auto_ack=False) as messages:
        assert not rest_of(messages)


def test_an_acknowledgement_that_waits_is_written_down_at_once(client, durable):
    publish(client, range(3))
    messages = durable(auto_ack=False)
    for message in pick_up(messages, 2):
        message.ack(wait=True)
    # When it is not closed, but lost, then another one of its name goes on there
    with durable(auto_ack=False) as others:
        assert data_of(rest_of(others)) == [2]


def test_an_iteration_handles_what_it_goes_past(client, durable):
    publish(client, range(6))
    with durable() as messages:
        for message in messages:
            if message.data == 3:
                break
    with durable() as messages:
        assert data_of(rest_of(messages)) == [3, 4, 5]


def test_a_handler_that_fails_has_not_handled_its_message(client, durable):
    # Given a handler that fails at one message
    publish(client, range(6))
    seen = []

    def handle(message):
        seen.append(message.data)
        if message.data == 2:
            raise ValueError("not this one")

    with durable(on_message=handle) as messages:
        eventually(lambda: len(seen) == 6)
        eventually(lambda: messages.flush() is None)
    # Then that one comes again, and none beside it but the one under way at the end
    with durable() as messages:
        assert 2 in data_of(rest_of(messages)) != [0, 1, 2, 3, 4, 5]


def test_what_a_filter_leaves_out_is_passed_and_not_read_again(client, durable):
    # Given a subscription whose filter matches nothing of much, and that has looked at all of it
    publish(client, range(1000))
    with durable(filter="/x = 1", bookmark="[most_recent:now]") as messages:
        assert list(messages) == []
        assert messages.completed
    # When it comes back without a filter, then only what is new comes
    publish(client, [1000])
    with durable() as messages:
        assert data_of(rest_of(messages)) == [1000]


def test_subscriptions_do_not_disturb_each_other(client, durable):
    publish(client, range(4))
    with durable("one") as one, durable("two") as two:
        assert data_of(pick_up(one, 3)) == [0, 1, 2]
        assert data_of(pick_up(two, 1)) == [0]
    with durable("one") as one, durable("two") as two:
        assert data_of(pick_up(one, 1)) == [2]
        assert data_of(pick_up(two, 1)) == [0]


def test_another_place_makes_a_subscription_begin_there(client, durable):
    marks = publish(client, range(6))
    with durable() as messages:
        assert len(rest_of(messages)) == 6
    with durable(bookmark=marks[2]) as messages:
        assert data_of(pick_up(messages, 2)) == [3, 4]
    # Then it goes on from there
    with durable() as messages:
        assert data_of(rest_of(messages)) == [4, 5]


def test_a_topic_that_came_while_it_was_away_is_read_from_its_beginning(client, durable):
    publish(client, range(2))
    with durable(name="^[abc]$") as messages:
        assert len(rest_of(messages)) == 2
    client.publish("c", "new")
    with durable(name="^[abc]$") as messages:
        assert data_of(rest_of(messages)) == ["new"]


def test_a_range_of_what_is_not_handled_ends(client, durable):
    publish(client, range(4))
    with durable() as messages:
        assert len(pick_up(messages, 3)) == 3
    with durable(bookmark="[most_recent:now]") as messages:
        assert [message.data for message in messages] == [2, 3]
        assert messages.completed
    with durable(bookmark="[most_recent:now]") as messages:
        assert [message.data for message in messages] == []


def test_threads_that_share_a_subscription_handle_each_their_own(client, durable):
    # Given many messages and four threads, of which one stops with its message unhandled
    publish(client, range(200))
    seen, lock = [], threading.Lock()
    with durable() as messages:

        def work(number):
            while (message := messages.get(0.2)) is not None:
                with lock:
                    seen.append(message.data)
                if number == 0:
                    left.append(message.data)
                    return

        left = []
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(seen) == list(range(200))
    with durable() as messages:
        assert data_of(rest_of(messages)) == left


def test_a_second_one_of_the_name_ends_the_first_which_writes_nothing_any_more(client, durable, redis):
    # Given a subscription that has handled three messages
    publish(client, range(10))
    first = durable(auto_ack=False)
    held = pick_up(first, 6)
    for message in held[:3]:
        message.ack(wait=True)
    # When another client subscribes under its name, which goes on there and comes further
    second = durable(auto_ack=False)
    others = pick_up(second, 5)
    assert data_of(others) == [3, 4, 5, 6, 7]
    for message in others:
        message.ack(wait=True)
    # Then the first one is told so, where it writes down, where it asks, and ever after
    with pytest.raises(NameInUse, match=r"sub_id 'audit'.*each its own sub_id"):
        held[3].ack(wait=True)
    for _ in range(2):
        with pytest.raises(NameInUse):
            first.get(0.1)
    with pytest.raises(NameInUse):
        next(iter(first))
    # And its end neither moves the place nor lets go of what the second one needs
    first.close()
    assert redis.hget(key(client.instance, "holds", "b"), "replay audit") is not None
    second.close()
    with durable() as third:
        assert data_of(rest_of(third)) == [8, 9]


def test_one_that_only_waits_notices_within_seconds_that_another_has_its_name(client, durable):
    # Given a subscription that waits for messages in a thread
    found = []
    first = durable()

    def wait():
        try:
            first.get("20s")
        except NameInUse as error:
            found.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    # When another one of its name begins
    with durable():
        waiting.join(30)
    assert len(found) == 1
    assert found[0].detail == {"subscription": "audit", "by": client._session.client}


def test_a_handler_s_subscription_ends_when_another_has_its_name(client, durable, caplog):
    seen = []
    with durable(on_message=lambda message: seen.append(message.data)):
        publish(client, range(4))
        eventually(lambda: len(seen) == 4)
        with durable() as second:
            # Then it ends, told in the log, and takes nothing more
            eventually(lambda: "ended this one" in caplog.text)
            publish(client, [4, 5])
            assert data_of(rest_of(second))[-2:] == [4, 5]
    assert seen == [0, 1, 2, 3]


def test_one_that_is_refused_leaves_the_one_of_its_name_alone(client, durable):
    publish(client, range(4))
    with durable(auto_ack=False) as messages:
        got = pick_up(messages, 2)
        with pytest.raises(UnknownTopic):
            durable(name="elsewhere", bookmark="[epoch:now]")
        got[0].ack(wait=True)
        assert data_of(pick_up(messages, 2)) == [2, 3]


def test_an_awaited_one_ends_too_when_another_has_its_name(valkey, instance):
    async def scenario():
        async with AsyncClient(valkey.url, instance=instance) as client:
            await client.apply(Topic(name="a"))
            await client.publish_many("a", range(3))
            first = await client.subscribe_topic("a", sub_id="s", auto_ack=False)
            message = await first.get("30s")
            async with client.subscribe_topic("a", sub_id="s") as second:
                assert (await second.get("30s")).data == 0
                with pytest.raises(NameInUse):
                    await message.ack(wait=True)
                with pytest.raises(NameInUse):
                    await first.get("5s")

    asyncio.run(scenario())


def test_a_file_that_is_no_store_is_refused(tmp_path):
    file = tmp_path / "text"
    file.write_text("no database at all, " * 100)
    with pytest.raises(DefinitionError, match="bookmark store"):
        SqliteBookmarkStore(file)
    with pytest.raises(DefinitionError, match="bookmark store"):
        SqliteBookmarkStore(tmp_path / "no" / "folder")


def test_a_file_that_is_damaged_later_is_told_as_what_it_is(client, tmp_path):
    client.apply(Topic(name="a"))
    store = SqliteBookmarkStore(tmp_path / "places")
    store.close()
    with pytest.raises(Unavailable, match=r"bookmark store '.*places': .*closed"):
        client.subscribe_topic("a", sub_id="s", bookmark_store=store)
    # Given a file whose pages are overwritten behind the first one
    content = (tmp_path / "places").read_bytes()
    (tmp_path / "places").write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
    with pytest.raises(Unavailable, match=r"bookmark store '.*places': .*malformed"):
        client.subscribe_topic("a", sub_id="s", bookmark_store=SqliteBookmarkStore(tmp_path / "places"))


def test_a_file_is_shared_by_stores(client, tmp_path):
    client.apply(Topic(name="a"))
    client.publish_many("a", range(4))
    path = tmp_path / "places"
    for store, expected in ((SqliteBookmarkStore(path), [0, 1]), (SqliteBookmarkStore(path), [1, 2])):
        with client.subscribe_topic("a", sub_id="s", bookmark_store=store) as messages:
            assert data_of(pick_up(messages, 2)) == expected
        store.close()


def test_an_event_loop_goes_on_while_another_process_holds_the_file(valkey, instance, tmp_path):
    async def scenario():
        store = SqliteBookmarkStore(tmp_path / "places")
        async with AsyncClient(valkey.url, instance=instance) as client:
            await client.apply(Topic(name="a"))
            await client.publish_many("a", range(3))
            async with client.subscribe_topic("a", sub_id="s", bookmark_store=store) as messages:
                await (await messages.get("30s")).ack()
                # Given another process that is writing
                with contextlib.closing(sqlite3.connect(tmp_path / "places", isolation_level=None)) as other:
                    other.execute("BEGIN IMMEDIATE")
                    written = asyncio.create_task(messages.flush())
                    # When what was handled is to be written down, then the loop lets it end
                    await asyncio.sleep(0.3)
                    assert not written.done()
                    other.execute("ROLLBACK")
                    await written
            async with client.subscribe_topic("a", sub_id="s", bookmark_store=store) as messages:
                assert (await messages.get("30s")).data == 1

    asyncio.run(scenario())
