"""The app: handlers registered by decorator define their queues, and one process runs them together."""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading

import pytest
from observing import eventually

from ampsq import App, Client, Queue
from ampsq.base.errors import DefinitionError, UnknownQueue
from ampsq.operations.roles import rules

_numbers = itertools.count()


@contextlib.contextmanager
def running(app, client):
    """An app in a thread, which is stopped at the end; what it raised is raised."""
    # pytest parses what is imported late, which Python 3.11 cannot do in two threads at once ("AST constructor
    # recursion depth mismatch"): what this thread and that of the app use is imported before.
    client.apply()
    client.admin.plan()
    with client.subscribe("(?!)"):
        pass
    failures = []

    def run():
        try:
            app.run(client=client)
        except BaseException as error:  # noqa: BLE001 - raised below
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        app.stop()
        thread.join(60.0)
        # Also where the test has failed: this may be why.
        assert not thread.is_alive()
        if failures:
            raise failures[0]


def test_a_handler_says_in_plain_words_how_its_queue_redelivers():
    app = App()

    @app.handler("orders", retries=5, backoff="1s..5m", time_limit="30s", concurrency=8)
    def handle(message):
        pass

    app.handler("plain", backoff="5s")(handle)
    app.handler("as it is .*")(handle)

    assert app.definitions == [
        Queue(
            name="orders",
            max_per_subscription_backlog=16,
            max_deliveries=6,
            redelivery_delay="1s",
            redelivery_delay_multiplier=2,
            max_redelivery_delay="5m",
        ),
        Queue(name="plain", max_per_subscription_backlog=2, redelivery_delay="5s"),
    ]
    assert app.queues == ["orders", "plain", "as it is .*"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"retries": -1}, "retries=-1: allowed is a whole number from 0 on"),
        ({"backoff": "soon"}, "redelivery_delay"),
        ({"backoff": "5m..1s"}, "max_redelivery_delay"),
        ({"backoff": 5}, "allowed is a text"),
        ({"concurrency": 0}, "concurrency=0: allowed is a whole number from 1 on"),
    ],
)
def test_what_a_handler_cannot_say_is_refused_where_it_is_said(options, text):
    with pytest.raises(DefinitionError, match=text) as refused:
        App().handler("orders", **options)
    assert "@app.handler('orders')" in str(refused.value)


def test_a_queue_has_one_handler_and_one_definition():
    app = App(Queue(name="orders"))
    with pytest.raises(DefinitionError, match="the app has a definition of this queue"):
        app.handler("orders", retries=1)
    app.handler("orders")(print)
    with pytest.raises(DefinitionError, match="has a handler"):
        app.handler("orders")
    with pytest.raises(DefinitionError, match="no definition"):
        App("orders")


def test_functions_and_coroutine_functions_run_together_and_what_fails_is_tried_again_as_often_as_said(client):
    # Given an app with one of each kind, whose queues nobody defined
    app, seen, failed = App(), [], []

    @app.handler("orders", retries=1, concurrency=2)
    def handle(message):
        if message.data == "bad":
            failed.append(message.delivery)
            raise ValueError(message.data)
        seen.append(message.data)

    @app.handler("letters", retries=1)
    async def send(message):
        seen.append(message.data)

    with running(app, client):
        eventually(lambda: {"orders", "letters"} <= client.admin.queues().keys(), within=60.0)
        # When messages come
        for topic, data in (("orders", "good"), ("orders", "bad"), ("letters", "hello")):
            client.publish(topic, data)
        # Then each has its handler, and what failed is tried once more and expires
        eventually(lambda: sorted(seen) == ["good", "hello"], within=60.0)
        eventually(lambda: client.admin.queue_stats("orders").depth == 0, within=60.0)
    assert failed == [1, 2]


def test_a_handler_that_says_nothing_of_its_queue_leaves_it_as_it_is(client):
    client.apply(Queue(name="work", lease_period="7s", max_per_subscription_backlog=5))
    app, seen = App(), []
    app.handler("work")(lambda message: seen.append(message.data))
    client.publish("work", 1)
    with running(app, client):
        eventually(lambda: seen == [1], within=60.0)
    assert client.admin.queues()["work"].lease_period == 7000


def test_an_unknown_queue_ends_the_app_and_so_does_an_app_without_handlers(client):
    app = App(Queue(name="work"))
    app.handler("work")(print)
    app.handler("nothing")(print)
    with pytest.raises(UnknownQueue, match="nothing"):
        app.run(client=client)
    with pytest.raises(DefinitionError, match="no handler"):
        App().run(client=client)


def test_where_its_user_may_not_define_the_app_says_what_differs_and_handles_messages(valkey, client, caplog):
    # Given a queue that is not as the app says, and a user in the role of a worker
    client.apply(Queue(name="work", max_per_subscription_backlog=5))
    found = rules("worker", client.instance, user=f"app-{next(_numbers)}", password="secret")  # noqa: S106
    with contextlib.closing(valkey.client()) as plain:
        plain.execute_command("ACL", "SETUSER", found.user, *found.words())
    app, seen = App(), []
    app.handler("work", retries=3)(lambda message: seen.append(message.data))
    client.publish("work", 1)
    # When it runs
    url = f"unix://{found.user}:secret@{valkey.socket}"
    with (
        caplog.at_level(logging.WARNING, "ampsq.worker"),
        Client(url, instance=client.instance) as worker,
        running(app, worker),
    ):
        eventually(lambda: seen == [1], within=60.0)
    # Then nothing was changed, and the difference is said
    assert "this user may not define" in caplog.text
    assert "max_deliveries 0 -> 4" in caplog.text
    assert client.admin.queues()["work"].max_deliveries == 0


def test_an_app_defines_where_the_messages_go_that_a_handler_gives_up():
    app = App(Queue(name="given"))
    app.handler("orders", retries=1, dead_letters="dead")(print)
    app.handler("letters", dead_letters="dead")(print)
    app.handler("others", dead_letters="given")(print)

    assert [(type(each).__name__, each.name) for each in app.definitions] == [
        ("Queue", "given"),
        ("Queue", "orders"),
        ("Queue", "dead"),
        ("Action", "dead-letter-orders"),
        ("Action", "dead-letter-letters"),
        ("Action", "dead-letter-others"),
    ]


@pytest.mark.parametrize(
    ("queue", "dead_letters", "text"),
    [
        ("orders", "orders", "allowed is another queue than its own"),
        ("orders.*", "dead", "not for a regular expression; give the app an Action.dead_letter for each queue"),
        ("orders", "a b", "@app.handler('orders'): dead_letters='a b': "),
        ("orders", 3, "@app.handler('orders'): dead_letters=3: "),
        ("orders", "", "@app.handler('orders'): dead_letters='': "),
    ],
)
def test_dead_letters_that_cannot_be_are_explained(queue, dead_letters, text):
    app = App()

    with pytest.raises(DefinitionError) as refused:
        app.handler(queue, retries=1 if queue == "orders" else None, dead_letters=dead_letters)

    assert text in str(refused.value)
    assert app.definitions == []


@pytest.mark.parametrize(
    ("use", "text"),
    [
        (lambda app: app.handler(print), "allowed is the name of a queue, in parentheses before the function"),
        (lambda app: app.handler(None), "@app.handler(nothing): allowed is the name of a queue"),
        (
            lambda app: app.handler("orders")("tasks.handle"),
            "'tasks.handle' is no function; allowed is one of a message",
        ),
        (lambda app: app.handler("orders", retries=True), "retries=True: allowed is a whole number from 0 on"),
    ],
)
def test_a_decorator_that_is_used_in_a_wrong_way_is_explained_where_it_stands(use, text):
    app = App()

    with pytest.raises(DefinitionError) as refused:
        use(app)

    assert text in str(refused.value)
    assert (app.queues, app.definitions) == ([], [])
