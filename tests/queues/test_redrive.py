"""Dead letters are put back: into the queue they came from, once, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
import base64
import threading
import time

import pytest
from letters import define, die_in_two_queues, letter_body, settled
from observing import eventually
from scene import pick_up, settle_all

from ampsq import AsyncClient, Client, Queue
from ampsq.base.errors import DefinitionError, ServerFull
from ampsq.queues.redrive import REDRIVEN_FROM, RedriveProgress

# -- putting back


def test_a_message_goes_back_to_the_queue_it_came_from_and_to_no_other_of_its_topic(client, died):
    # Given a message that both queues had, and one gave up
    died([{"id": 1}])
    assert [message.data for message in settled(client, "audit")] == [{"id": 1}]
    # When it is put back
    result = client.admin.redrive("dead")
    # Then that one has it again, and the other has nothing
    assert (result, result.targets, result.refused) == (1, {"work": 1}, 0)
    (message,) = settled(client, "work")
    assert (message.data, message.topic, message.delivery) == ({"id": 1}, "orders", 1)
    assert settled(client, "audit") == []
    # And what comes later goes to both
    client.publish("orders", {"id": 2})
    assert [message.data for message in settled(client, "audit")] == [{"id": 2}]
    assert [message.data for message in settled(client, "work")] == [{"id": 2}]


def test_bodies_come_back_to_the_byte_with_their_headers_and_where_they_come_from(client, died):
    bodies = [
        b'{"id" : 1.50, "big": 12345678901234567890123}', b'"text"', b"\x00\xff no json", b"NaN", b"12", b"null",
        b'{"base64": "AP8="}', b'{"base64":1}', '{"ü": "\\u00fc \\ud83d\\ude00"}'.encode(), b"", b"[1,\n2]",
    ]  # fmt: skip
    letters = died(bodies, headers={"trace": "ü"})
    assert [letter.raw for letter in letters] == bodies
    assert client.admin.redrive("dead") == len(bodies)
    messages = settled(client, "work")
    assert [message.raw for message in messages] == bodies
    assert [message.headers for message in messages] == [
        {"trace": "ü", REDRIVEN_FROM: letter.bookmark} for letter in letters
    ]


@pytest.mark.parametrize(
    ("group", "name"),
    [
        (b"alice", "alice"),
        (b"\xc3\xbc \n", "ü \n"),
        # No UTF-8: it is named by its SHA-1.
        (b"\xff", "#85e53271e14006f0265921d02d4d736cdc580b0b"),
    ],
)
def test_what_a_publisher_said_of_the_group_comes_back_with_the_message(client, died, redis, group, name):
    # Given a queue in which only publishers say groups, and two messages of one, of which the first is given up
    groups = {"group_concurrency": 1, "max_cancels": 1, "max_per_subscription_backlog": 9}
    client.apply(Queue(name="work", underlying_topic="orders", **groups))
    died([{"id": 0}])
    log = f"{{{client.instance}}}:log:orders"
    for number in (1, 2):
        redis.xadd(log, {"b": b'{"id": %d}' % number, "g": group})
    with client.subscribe("work", max_backlog=5) as messages:
        (first,) = pick_up(messages, 1)
        first.expire()
    eventually(lambda: client.admin.queue_stats("dead").depth == 2)
    letters = client.admin.dead_letters("dead")
    assert [letter.group for letter in letters] == [None, group.decode(errors="replace")]
    # When it is put back
    assert client.admin.redrive("dead", bookmarks=letters[1].bookmark) == 1
    # Then it is of its group again, as its newest message, and waits for the one before it
    with client.subscribe("work", max_backlog=5) as messages:
        (second,) = pick_up(messages, 1)
        assert (second.data, messages.get(0.1)) == ({"id": 2}, None)
        second.ack(wait=True)
        (again,) = pick_up(messages, 1)
        assert (again.data, again.group) == ({"id": 1}, name)
        again.ack(wait=True)


def test_a_letter_is_put_back_once_and_may_die_again(client, died):
    (letter,) = died([1])
    assert client.admin.redrive("dead", bookmarks=letter.bookmark) == 1
    again = client.admin.redrive("dead", bookmarks=[letter.bookmark])
    assert (again, again.refused) == (0, 1)
    assert "settled" in again.refusals[0].reason
    assert client.admin.redrive("dead") == 0
    with client.subscribe("work") as messages:
        pick_up(messages, 1)[0].cancel()
    eventually(lambda: len(client.admin.dead_letters("dead")) == 1)
    (other,) = client.admin.dead_letters("dead")
    assert (other.headers[REDRIVEN_FROM], other.deliveries) == (letter.bookmark, 1)
    assert other.original != letter.original


def test_what_dies_again_while_letters_are_put_back_stays_a_letter(client, died):
    # Given a worker that gives everything up at once
    died(range(30))
    with client.subscribe("work", on_message=lambda message: message.cancel()):
        # When all are put back, slowly
        assert client.admin.redrive("dead", rate=100) == 30
        eventually(lambda: client.admin.queue_stats("dead").acknowledged == 30)
        eventually(lambda: client.admin.queue_stats("dead").depth == 30)
    assert sorted(letter.data for letter in client.admin.dead_letters("dead")) == list(range(30))


def test_the_journal_says_that_a_letter_was_put_back(client, died, journal):
    (letter,) = died([1])
    client.admin.redrive("dead")
    assert journal.entries("dead") == [("acknowledged", "redriven", letter.bookmark)]


def test_only_what_is_chosen_is_put_back(client, died):
    died([{"n": number} for number in range(10)])
    assert client.admin.redrive("dead", "/message/n >= 5", source="work", reason="max_cancels") == 5
    assert [letter.data["n"] for letter in client.admin.dead_letters("dead")] == list(range(5))
    assert client.admin.redrive("dead", source="audit") == 0
    assert [message.data["n"] for message in settled(client, "work")] == list(range(5, 10))


def test_a_dry_run_tells_what_would_go_where_and_does_nothing(client, died, snapshot, valkey_store):
    die_in_two_queues(client, died)
    before = snapshot(valkey_store)
    result = client.admin.redrive("dead", dry_run=True)
    assert (result, result.targets) == (4, {"audit": 2, "work": 2})
    after = snapshot(valkey_store)
    assert {k: v for k, v in after.items() if k != ":instance"} == {k: v for k, v in before.items() if k != ":instance"}


def test_letters_of_several_queues_each_go_home(client, died):
    die_in_two_queues(client, died)
    assert client.admin.redrive("dead").targets == {"audit": 2, "work": 2}
    assert sorted(message.data for message in settled(client, "work")) == [1, 2]
    assert sorted(message.data for message in settled(client, "audit")) == [1, 2]


def test_letters_may_go_to_another_queue_of_the_topic_or_of_another(client, died):
    client.apply(Queue(name="repair", underlying_topic="repairs", max_per_subscription_backlog=500))
    letters = died([1, 2])
    assert client.admin.redrive("dead", bookmarks=letters[0].bookmark, to="repair").targets == {"repair": 1}
    assert client.admin.redrive("dead", to="audit").targets == {"audit": 1}
    (message,) = settled(client, "repair")
    assert (message.data, message.topic) == (1, "repairs")
    assert settled(client, "work") == []
    assert [message.data for message in settled(client, "audit")] == [1, 2, 2]


def test_what_a_subscription_holds_stays_with_it(client, died):
    died([1, 2])
    with client.subscribe("dead") as messages:
        (held,) = pick_up(messages, 1)
        assert client.admin.redrive("dead") == 1
        named = client.admin.redrive("dead", bookmarks=held.bookmark)
        assert (named, named.refused) == (0, 1)
        held.ack(wait=True)
    assert [message.data for message in settled(client, "work")] == [2]


def test_what_cannot_be_put_back_is_told_and_the_others_go_on(client, died):
    died([1])
    client.apply(Queue(name="picky", underlying_topic="orders", filter="/n > 5", max_per_subscription_backlog=9))
    strange = {
        b"\x00": "its body is no JSON object",
        b'{"queue": "work"}': "it has no topic",
        letter_body("gone"): "the queue 'gone' is gone",
        letter_body("dead", "letters"): "by this queue itself",
        letter_body("work", "elsewhere"): "the topic 'elsewhere' does not feed the queue 'work' any more",
        letter_body("picky", body=b'{"n":1}'): "the filter of the queue 'picky' does not let it in",
        letter_body(lost=True, body=b"null"): "gone from its log",
    }
    bookmarks = [client.publish("letters", body) for body in strange]
    client.publish("letters", letter_body("picky", body=b'{"n":6}'))
    for dry_run in (True, False):
        result = client.admin.redrive("dead", dry_run=dry_run)
        assert (result, result.targets, result.refused) == (2, {"picky": 1, "work": 1}, len(strange))
        assert [refusal.bookmark for refusal in result.refusals] == bookmarks
        for refusal, text in zip(result.refusals, strange.values(), strict=True):
            assert text in refusal.reason
    # And those stay where they are
    assert client.admin.queue_stats("dead").depth == len(strange)


@pytest.mark.parametrize("headers", ["[1]", "no JSON", '{"a":1}', "5"])
def test_a_letter_with_headers_of_somebody_else_s_making_stays(client, valkey, headers):
    define(client)
    client.publish("letters", letter_body())
    with valkey.client() as redis:
        redis.xadd("{" + client.instance + "}:log:letters", {"b": letter_body(), "h": headers})
    result = client.admin.redrive("dead")
    assert (result, result.refused) == (1, 1)
    assert "headers" in result.refusals[0].reason


@pytest.mark.usefixtures("coordinator")
def test_a_message_that_the_log_had_lost_when_it_died_is_no_message(client, valkey):
    define(client, lease_period="100ms")
    bookmark = client.publish("orders", 1)
    with client.subscribe("work") as messages, valkey.client() as redis:
        (message,) = pick_up(messages, 1)
        redis.xdel("{" + client.instance + "}:log:orders", bookmark.id)
        message.cancel()
        eventually(lambda: client.admin.queue_stats("dead").depth == 1)
    result = client.admin.redrive("dead")
    assert (result, result.refused) == (0, 1)
    assert "gone from its log" in result.refusals[0].reason


def test_bodies_are_edited_on_the_way_or_left(client, died):
    died([{"n": number} for number in range(4)])

    def edit(letter):
        match letter.data["n"]:
            case 0:
                return {"n": 10, "mended": True}
            case 1:
                return None
            case 2:
                return b"bytes"
        raise ValueError("no idea")

    result = client.admin.redrive("dead", edit=edit)
    assert (result, result.refused) == (2, 1)
    assert "no idea" in result.refusals[0].reason
    assert [message.data for message in settled(client, "work")] == [{"n": 10, "mended": True}, b"bytes"]
    assert [letter.data["n"] for letter in client.admin.dead_letters("dead")] == [1, 3]


def test_a_full_server_refuses_and_everything_stays(start_server, instance):
    server = start_server()
    with Client(server.url, instance=instance) as client, server.client() as redis:
        define(client)
        client.publish("letters", letter_body())
        client.admin.redrive("dead", dry_run=True)
        redis.config_set("maxmemory", 1)
        with pytest.raises(ServerFull):
            client.admin.redrive("dead")
        assert client.admin.queue_stats("dead").depth == 1
        redis.config_set("maxmemory", 0)
        assert client.admin.redrive("dead") == 1
        assert len(settled(client, "work")) == 1


def test_thousands_go_back_each_once_in_bounded_calls(client):
    define(client)
    client.publish_many("letters", [letter_body(body=b"%d" % number) for number in range(3_000)], batch=500)
    assert client.admin.redrive("dead") == 3_000
    assert client.admin.redrive("dead") == 0
    with client.subscribe("work", max_backlog=500) as messages:
        assert settle_all(messages) == list(range(3_000))
    assert settled(client, "audit") == []


def test_large_bodies_go_in_small_batches(client):
    define(client)
    bodies = [b'"' + bytes([97 + number]) * 300_000 + b'"' for number in range(8)]
    client.publish_many("letters", [letter_body(body=body) for body in bodies])
    assert client.admin.redrive("dead") == 8
    assert [message.raw for message in settled(client, "work")] == bodies


# -- pace, progress, stopping


def test_the_rate_holds_and_is_even(client):
    define(client)
    client.publish_many("letters", [letter_body(body=b"%d" % number) for number in range(60)])
    seen = []
    started = time.monotonic()
    assert client.admin.redrive(
        "dead", rate="100/s", progress=lambda at: seen.append((time.monotonic() - started, at.done))
    )
    took = time.monotonic() - started
    assert 0.45 < took < 20
    assert all(done <= 100 * at + 11 for at, done in seen)


@pytest.mark.parametrize("rate", [0, -1, "fast", "10/x", True, float("inf"), "0/s"])
def test_a_rate_that_is_none_is_explained(client, rate):
    define(client)
    with pytest.raises(DefinitionError, match="100/s"):
        client.admin.redrive("dead", rate=rate)


def test_progress_counts_up_to_the_total(client):
    define(client)
    client.publish_many("letters", [letter_body(body=b"%d" % number) for number in range(600)])
    client.publish("letters", "no letter")
    seen: list[RedriveProgress] = []
    assert client.admin.redrive("dead", progress=seen.append) == 600
    assert seen[-1] == RedriveProgress(600, 1, 601)
    assert [at.done for at in seen] == sorted(at.done for at in seen)
    assert len({at.done for at in seen}) >= 3


def test_whoever_watches_may_stop_it_and_knows_the_count(client):
    define(client)
    client.publish_many("letters", [letter_body(body=b"%d" % number) for number in range(2_000)], batch=500)
    seen = []

    def watch(progress):
        seen.append(progress.done)
        if progress.done >= 500:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        client.admin.redrive("dead", progress=watch)
    assert 500 <= seen[-1] < 2_000
    assert client.admin.queue_stats("dead").depth == 2_000 - seen[-1]
    # And the rest goes back when it is done again
    assert client.admin.redrive("dead") == 2_000 - seen[-1]
    with client.subscribe("work", max_backlog=500) as messages:
        assert settle_all(messages) == list(range(2_000))


# -- at once


def test_two_at_once_put_each_back_once_and_count_truly(client, connect):
    define(client)
    number = 4_000
    client.publish_many("letters", [letter_body(body=b"%d" % n) for n in range(number)], batch=500)
    others, results = [connect() for _ in range(3)], []

    def run(other):
        results.append(other.admin.redrive("dead"))

    threads = [threading.Thread(target=run, args=(other,)) for other in others]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(results) == number
    assert all(result.refused == 0 for result in results)
    with client.subscribe("work", max_backlog=500) as messages:
        assert sorted(settle_all(messages)) == list(range(number))


def test_the_asynchronous_client_does_the_same(valkey, instance, client):
    define(client)
    client.publish_many("letters", [letter_body(body=b"%d" % number) for number in range(30)])
    client.publish("letters", letter_body(body=b'{"base64":"%s"}' % base64.b64encode(b"\x00")))

    async def scenario():
        seen = []
        async with AsyncClient(valkey.url, instance=instance) as other:
            letters = await other.admin.dead_letters("dead", top_n=2)
            assert [letter.data for letter in letters] == [0, 1]
            named = await other.admin.dead_letters("dead", bookmarks=letters[0].bookmark)
            assert named[0].data == 0
            assert await other.admin.redrive("dead", dry_run=True) == 31
            assert await other.admin.redrive("dead", rate=200, progress=seen.append) == 31
        assert seen[-1] == RedriveProgress(31, 0, 31)

    asyncio.run(scenario())
    messages = settled(client, "work")
    assert [message.data for message in messages] == [*range(30), b"\x00"]


# -- beside queues of other kinds


@pytest.mark.parametrize("elements", [{"ring_size": 3}, {"priority": "/n"}, {"barrier_expression": "/end = 1"}])
@pytest.mark.usefixtures("coordinator")
def test_other_queues_of_the_topic_keep_what_they_have(client, elements):
    # Given another queue over the topic, with three messages
    client.apply(
        Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=500),
        Queue(name="other", underlying_topic="orders", max_per_subscription_backlog=500, **elements),
        Queue(name="dead", underlying_topic="letters"),
    )
    client.publish_many("orders", [{"n": 1}, {"n": 2}, {"n": 3}])
    # When five others are put back into the first queue
    client.publish_many("letters", [letter_body(body=b'{"n":9}')] * 5)
    assert client.admin.redrive("dead") == 5
    # Then it still has its three, looked at and delivered
    assert sorted(message.data["n"] for message in client.sow("other")) == [1, 2, 3]
    assert sorted(message.data["n"] for message in settled(client, "other")) == [1, 2, 3]
    assert sorted(message.data["n"] for message in client.sow("work")) == [1, 2, 3, 9, 9, 9, 9, 9]
    assert len(settled(client, "work")) == 8
    assert client.admin.queue_stats("other").depth == 0


@pytest.mark.parametrize(
    "elements",
    [{"priority": "/n"}, {"barrier_expression": "/end = 1"}, {"filter": "/n > 0"}, {"semantics": "at-most-once"}],
)
@pytest.mark.usefixtures("coordinator")
def test_queues_of_every_kind_get_their_messages_back(client, elements):
    if "semantics" in elements:
        elements = {**elements, "allow_redelivery_after_crash": True}
    client.apply(
        Queue(
            name="work",
            underlying_topic="^in/",
            default_publish_target="in/a",
            max_per_subscription_backlog=9,
            **elements,
        ),
        Queue(name="dead", underlying_topic="letters"),
    )
    client.publish("in/b", {"n": 1})
    client.publish("letters", letter_body(topic="in/b", body=b'{"n":2}'))
    with client.subscribe("work", max_backlog=9) as messages:
        pick_up(messages, 1)[0].ack(wait=True)
        assert client.admin.redrive("dead") == 1
        (message,) = pick_up(messages, 1)
        assert (message.data, message.topic) == ({"n": 2}, "in/b")
        message.ack(wait=True)


def test_a_ring_that_is_full_takes_what_is_put_back_and_gives_up_its_oldest(client):
    client.apply(
        Queue(name="work", underlying_topic="orders", ring_size=2, max_per_subscription_backlog=9),
        Queue(name="dead", underlying_topic="letters"),
    )
    client.publish_many("orders", [1, 2])
    client.publish("letters", letter_body(body=b"3"))
    assert client.admin.redrive("dead") == 1
    assert [message.data for message in settled(client, "work")] == [2, 3]
