"""Refusals that users meet early say what was wrong and what to write instead; one test for each that once did not."""

from __future__ import annotations

import asyncio
import operator

import pytest
import redis

from ampsq import AsyncClient, Client, FilePublishStore, MemoryPublishStore, Queue, SqliteBookmarkStore, Topic
from ampsq.base.errors import DefinitionError, NotPermitted, SlotKeyTaken
from ampsq.files.config import load


def nested(depth):
    made = []
    for _ in range(depth):
        made = [made]
    return made


@pytest.mark.parametrize("method", ["admin.remove", "apply", "admin.plan"])
def test_what_is_no_definition_is_refused_with_those_that_are(either, method):
    with pytest.raises(
        DefinitionError, match=r"'q' is not a definition; allowed: Instance, .* as in Queue\(name='work'\)"
    ):
        operator.attrgetter(method)(either)("q")


def test_an_administrative_call_of_the_client_itself_is_refused_with_where_it_is(either):
    with pytest.raises(AttributeError, match=r"'Client' .* 'queue_stats'; its admin has it: \.admin\.queue_stats$"):
        _ = either.queue_stats
    with pytest.raises(AttributeError, match=r"^'Client' object has no attribute 'nothing'$"):
        _ = either.nothing


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize(
    ("argument", "where"),
    [
        ("publisher", r"client\.publisher\(NAME\) opens one"),
        ("publish_store", r"client\.publisher\(NAME, store=\.\.\.\) has it, as `store`"),
        ("persisted", r"client\.publisher\(NAME, store=\.\.\., persisted=\.\.\.\) has it"),
        ("ack_conflation", r"client\.publisher\(NAME, store=\.\.\., ack_conflation=\.\.\.\) has it"),
        ("on_failed_write", r"client\.publisher\(NAME, store=\.\.\., on_failed_write=\.\.\.\) has it"),
        ("on_persisted", r"client\.publisher\(NAME, store=\.\.\., on_persisted=\.\.\.\) has it"),
        (
            "hearbeat",
            (
                "allowed: url, instance, partitions, ack_timeout, retry_timeout, heartbeat, data_dir, appendfsync, "
                "transport"
            ),
        ),
    ],
)
def test_what_the_constructor_does_not_have_is_refused_with_the_call_that_has_it(kind, argument, where):
    with pytest.raises(TypeError, match=rf"^{kind.__name__}\(\) has no argument '{argument}'; {where}"):
        kind("redis://127.0.0.1:1", **{argument: "x"})


@pytest.mark.parametrize("store", [FilePublishStore, SqliteBookmarkStore])
@pytest.mark.parametrize("path", ["a\ud800", "a\0b", 7])
def test_a_path_that_no_file_can_have_is_refused(store, path):
    with pytest.raises(DefinitionError, match=r"path: .* is no path; allowed: the path of a file"):
        store(path)


@pytest.mark.parametrize("headers", [[1], "x", {"a": 1}])
def test_headers_are_a_dict_of_texts(either, headers):
    with pytest.raises(DefinitionError, match=r"headers=.*allowed is a dict of texts, as in \{'lang': 'en'\}"):
        either.publish("orders", 1, headers=headers)


@pytest.mark.parametrize("keys", [nested(100_000), ["\ud800"]])
def test_keys_that_no_server_can_be_asked_for_are_refused(either, keys):
    either.apply(Topic(name="prices", key="/id"))
    with pytest.raises(DefinitionError, match=r"keys: .*allowed:"):
        either.sow_delete("prices", keys=keys)


@pytest.mark.parametrize("method", ["pause_queue", "trim", "queue_stats", "rebuild", "explain"])
def test_a_name_of_another_type_is_refused(either, method):
    with pytest.raises(DefinitionError, match=r"\{1: 2\}.* allowed: a"):
        getattr(either.admin, method)({1: 2})


@pytest.mark.parametrize("chosen", [{"bookmarks": "till|5"}, {"filter": "/id > 1"}])
def test_a_queue_of_another_type_is_refused_where_messages_are_settled(either, chosen):
    with pytest.raises(DefinitionError, match="queue: 1 is not a text; allowed: a text"):
        either.ack(1, **chosen)


@pytest.mark.parametrize(
    ("argument", "advice"),
    [("priority", r"Queue\(name='work', priority='/priority'\)"), ("ttl", "expiration"), ("wish", "allowed: headers")],
)
def test_an_argument_that_publishing_lacks_is_refused_with_where_it_is_said(either, argument, advice):
    with pytest.raises(TypeError, match=rf"^publish\(\) has no argument '{argument}'; .*{advice}"):
        either.publish("orders", 1, **{argument: 3})


@pytest.mark.parametrize(
    ("element", "advice"), [("topic", "did you mean 'underlying_topic'"), ("dead_letter", r"see Action\.dead_letter")]
)
def test_an_element_that_people_try_is_refused_with_the_one_they_mean(element, advice):
    with pytest.raises(DefinitionError, match=advice):
        Queue(name="work", **{element: "orders"})


def test_a_subscription_in_the_making_says_how_it_is_made(valkey, instance):
    async def scene():
        async with AsyncClient(valkey.url, instance=instance) as client:
            await client.apply(Queue(name="work"))
            making = client.subscribe("work")
            with pytest.raises(AttributeError, match="await it, or enter it with `async with`"):
                await making.get()
            with pytest.raises(TypeError, match=r"`async for message in await client\.subscribe"):
                async for _ in making:
                    pass
            # Whoever only looked may still await it, also after a look for what it does not have
            assert not hasattr(making, "_repr_html_")
            async with making as messages:
                assert await messages.get(0.01) is None

    asyncio.run(scene())


@pytest.mark.default_user(reason="makes a user of its own, with few rights")
def test_what_a_user_may_not_do_names_the_script_and_no_place_in_it(start_server, instance):
    server = start_server("valkey")
    with Client(server.url, instance=instance) as client:
        client.publish("orders", 1)
    connection = redis.Redis.from_url(server.url)
    connection.execute_command(*["ACL", "SETUSER", "few", "on", ">few", "~*", "&*", "+@all", "-xadd"])
    connection.close()
    url = server.url.replace("unix://", "unix://few:few@").replace("redis://", "redis://few:few@")
    with Client(url, instance=instance) as client, pytest.raises(NotPermitted) as refused:
        client.publish("orders", 2)
    assert "user_script" not in str(refused.value)
    assert "(publish); allow it to the user of this address" in str(refused.value)


def test_a_configuration_of_elements_within_each_other_without_end_is_refused(tmp_path):
    path = tmp_path / "deep.xml"
    path.write_text(f"<AMPSConfig>{'<a>' * 20_000}{'</a>' * 20_000}</AMPSConfig>")
    with pytest.raises(DefinitionError, match=r"deep\.xml:1: more than 100 elements within each other"):
        load(path)


def test_an_instance_beside_whose_keys_somebody_made_one_of_the_bare_name_is_not_opened(client):
    url, name = client._store.url, client.instance
    client._store.redis.set(f"{{{name}}}", "of another program")

    async def opened():
        async with AsyncClient(url, instance=name):
            pass

    for refused in (lambda: Client(url, instance=name), lambda: asyncio.run(opened())):
        with pytest.raises(SlotKeyTaken, match=r"^The server has a key named '\{.*\}', and .* rename or remove it$"):
            refused()
    client._store.redis.delete(f"{{{name}}}")
    with Client(url, instance=name):
        pass


@pytest.mark.parametrize("call", ["subscribe", "subscribe_topic"])
@pytest.mark.parametrize(("name", "sign"), [("my orders", "' '"), ("orders.#", "'#'"), ("orders,returns", "','")])
def test_a_name_that_nothing_can_have_is_refused_and_not_waited_for(either, call, name, sign):
    with pytest.raises(DefinitionError, match=rf"'{name}' is not a name, .* since {sign} is in no name; allowed: "):
        getattr(either, call)(name)


@pytest.mark.parametrize("call", ["subscribe", "subscribe_topic"])
def test_a_regular_expression_that_no_name_can_match_is_refused_and_not_waited_for(either, call):
    with pytest.raises(
        DefinitionError, match=r"'\$\(x\)' is not a name, and as a regular expression it matches none; "
    ):
        getattr(either, call)("$(x)")


@pytest.mark.parametrize("call", ["subscribe", "subscribe_topic"])
@pytest.mark.parametrize("name", ["^my orders|later$", "ü?later", "[ ]*later"])
def test_a_regular_expression_that_may_match_later_is_waited_for(either, call, name):
    getattr(either, call)(name).close()


@pytest.mark.parametrize("call", ["subscribe", "subscribe_topic"])
@pytest.mark.parametrize("handler", [operator.add, lambda: None])
def test_a_handler_that_does_not_take_one_message_is_refused_at_once(either, call, handler):
    either.apply(Topic(name="orders"), Queue(name="work", underlying_topic="orders"))
    with pytest.raises(
        DefinitionError, match=r"cannot be called with one message: .*; allowed is a function that takes"
    ):
        getattr(either, call)("work" if call == "subscribe" else "orders", on_message=handler)


@pytest.mark.parametrize("one", ["abc", b"abc", bytearray(b"abc"), memoryview(b"abc"), {"a": 1}, 7, None])
@pytest.mark.parametrize("options", [{}, {"deduplication_id": str, "within": "1m"}])
def test_one_message_where_many_are_expected_is_refused_and_not_taken_apart(either, one, options):
    with pytest.raises(
        DefinitionError, match=r"^messages=.*: allowed is a list or another iterable of messages; one: "
    ):
        either.publish_many("orders", one, **options)

    assert "orders" not in either.admin.topics()


@pytest.mark.parametrize("store", [None, MemoryPublishStore])
def test_a_publisher_takes_no_text_apart_either(client, store):
    kept = {} if store is None else {"store": store()}
    with client.publisher("till-4", **kept) as publisher, pytest.raises(DefinitionError, match=r"^messages='abc': "):
        publisher.publish_many("orders", "abc")

    assert "orders" not in client.admin.topics()


@pytest.mark.parametrize("argument", ["delay", "expiration", "within"])
def test_an_interval_of_a_publish_is_refused_with_its_argument(either, argument):
    with pytest.raises(DefinitionError, match=rf"^{argument}='soon' is not an interval; allowed: a number of seconds"):
        either.publish("orders", {}, deduplication_id="order-1", **{argument: "soon"})


@pytest.mark.parametrize("argument", ["retry_timeout", "ack_timeout", "heartbeat"])
def test_an_interval_of_a_client_is_refused_with_its_argument(argument):
    with pytest.raises(DefinitionError, match=rf"^{argument}='soon' is not an interval"):
        Client("redis://127.0.0.1:1", **{argument: "soon"})


@pytest.mark.parametrize("data", [b"{}", {}])
def test_publishing_to_no_topic_says_what_a_topic_is(either, data):
    with pytest.raises(DefinitionError, match=r"^nothing is not a text; allowed: 1 to 255 of the characters"):
        either.publish(None, data)
