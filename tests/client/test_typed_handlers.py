"""Handlers that ask for data of a type are given validated data; what does not fit is handed back, and not for ever."""

from __future__ import annotations

import dataclasses
import functools
import logging
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import pydantic
import pytest
from observing import eventually
from scene import define_work as define
from test_worker import AWAITED, Running
from typing_extensions import TypedDict

import ampsq
from ampsq import Action, AsyncMessage, AsyncWorker, InvalidMessage, Message, Queue, Worker
from ampsq.base.errors import DefinitionError
from ampsq.client.typed_handlers import as_handler, is_typed

if TYPE_CHECKING:
    from somewhere import Unknown

KINDS = ["thread", *AWAITED]


class Order(pydantic.BaseModel):
    id: UUID
    price: Decimal
    at: datetime


@dataclasses.dataclass
class Trade:
    symbol: str
    qty: int


class Row(TypedDict):
    symbol: str
    qty: int


ORDER = Order(id=UUID(int=7), price=Decimal("12.50"), at=datetime(2026, 11, 24, tzinfo=UTC))


@pytest.fixture
def start(valkey, client):
    """Start a worker with a handler of one of `KINDS`; all are stopped with the test."""
    started = []

    def start(handler, kind="thread", **options):
        make = AsyncWorker if kind == "asyncio" else Worker
        started.append(Running(make(handler, "work", url=valkey.url, instance=client.instance, **options)))
        return started[-1]

    yield start
    for running in started:
        running.stop()


# --- what handlers are given


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("annotation", "data"), [(Order, ORDER), (Trade, Trade("IBM", 5)), (Row, {"symbol": "IBM", "qty": 5})]
)
def test_a_handler_gets_data_of_the_type_that_it_asks_for(client, start, kind, annotation, data):
    define(client)
    seen = []

    if kind == "thread":

        def handle(data):
            seen.append(data)

    else:

        async def handle(data):
            seen.append(data)

    handle.__annotations__["data"] = annotation
    running = start(handle, kind)
    client.publish("work", data)
    eventually(lambda: running.worker.processed == 1)
    assert seen == [data]


@pytest.mark.parametrize("kind", KINDS)
def test_a_second_parameter_gets_the_message(client, start, kind):
    define(client)
    seen = []

    if kind == "thread":

        def handle(trade: Trade, message: Message):
            seen.append((trade, message.delivery, type(message)))

    else:

        async def handle(trade: Trade, message: AsyncMessage):
            seen.append((trade, message.delivery, type(message)))

    start(handle, kind)
    client.publish("work", Trade("IBM", 1))
    eventually(lambda: seen)
    assert seen == [(Trade("IBM", 1), 1, Message if kind == "thread" else AsyncMessage)]


@pytest.mark.parametrize("kind", AWAITED)
def test_a_coroutine_function_gets_the_asyncio_message_and_may_settle_it(client, journal, start, kind):
    define(client)

    async def handle(message):
        assert isinstance(message, AsyncMessage)
        await message.expire(reason="no customer")

    start(handle, kind)
    bookmark = client.publish("work", 1)
    eventually(lambda: client.admin.queue_stats("work").depth == 0)
    assert journal.entries("work") == [("expired", "forced_expire", bookmark)]


@pytest.mark.parametrize(
    ("message_type", "body"), [("msgpack", Trade("IBM", 5)), ("nvfix", {"symbol": "IBM", "qty": "5"})]
)
def test_other_message_types_are_validated_too(client, start, message_type, body):
    define(client, message_type=message_type)
    seen = []

    def handle(trade: Trade):
        seen.append(trade)

    start(handle)
    client.publish("work", body)
    eventually(lambda: seen == [Trade("IBM", 5)])


# --- how a signature is read


class Service:
    def method(self, trade: Trade, message: Message):
        return trade, message

    def __call__(self, trade: Trade):
        return trade


def untyped(message):
    return message


def by_alias(message: ampsq.Message):
    return message


def either_message(message: Message | AsyncMessage):
    return message


def anything(message: Any):
    return message


def with_keyword(trade: Trade, *, message: Message, session: object = None):
    assert session is None
    return trade, message


def with_default(trade: Trade, session: object = None):
    assert session is None
    return trade


def named_otherwise(trade: Annotated[Trade, "noted"], envelope):
    return trade, envelope


def bound(session, trade: Trade):
    assert session == "session"
    return trade


class Delivered:
    """The parts of a message that validation asks for."""

    message_type, raw = "json", b'{"symbol":"IBM","qty":5}'


TRADE = Trade("IBM", 5)


@pytest.mark.parametrize("handler", [untyped, by_alias, either_message, anything, print, lambda message: message])
def test_a_handler_of_a_message_is_called_as_it_is(handler):
    assert as_handler(handler) is handler


@pytest.mark.parametrize(
    ("handler", "has_message"),
    [
        (Service().method, True),
        (Service(), False),
        (with_keyword, True),
        (with_default, False),
        (named_otherwise, True),
        (functools.partial(bound, "session"), False),
    ],
)
def test_a_typed_handler_may_be_any_kind_of_function(handler, has_message):
    message = Delivered()

    called = as_handler(handler)

    assert is_typed(called)
    assert called(message) == ((TRADE, message) if has_message else TRADE)


def test_names_of_the_function_around_it_are_found():
    class Here(pydantic.BaseModel):
        symbol: str

    def handle(data: Here):
        return data, Here

    assert as_handler(handle)(Delivered())[0] == Here(symbol="IBM")


def needs_more(trade: Trade, message: Message, session):
    pass


def unresolved(data: Unknown):
    pass


class Opaque:
    pass


def opaque(data: Opaque):
    pass


@pytest.mark.parametrize(
    ("handler", "reason"),
    [
        (needs_more, "needs session, which nobody gives it"),
        (lambda message, other: (message, other), "needs other, which nobody gives it"),
        (unresolved, "the type of 'data', 'Unknown', cannot be resolved: .*not under TYPE_CHECKING alone"),
        (opaque, "data of type Opaque cannot be validated"),
        ("work", "allowed is a function"),
    ],
)
def test_a_handler_that_cannot_be_called_is_refused_before_any_message(handler, reason):
    with pytest.raises(DefinitionError, match=reason):
        Worker(handler, "work")


@pytest.mark.parametrize(("option", "value"), [("on_invalid", "drop"), ("time_limit", "0s"), ("hooks", [print])])
def test_an_option_that_is_none_is_refused(option, value):
    with pytest.raises(DefinitionError, match=rf"{option}="):
        Worker(untyped, "work", **{option: value})


def test_an_asyncio_worker_needs_a_coroutine_function():
    with pytest.raises(DefinitionError, match="a coroutine function, `async def`; for a plain function Worker"):
        AsyncWorker(untyped, "work")


# --- what does not fit


def trade_handler(kind, seen):
    if kind == "thread":

        def handle(trade: Trade):
            seen.append(trade)

    else:

        async def handle(trade: Trade):
            seen.append(trade)

    return handle


@pytest.mark.parametrize("kind", KINDS)
def test_what_does_not_fit_is_cancelled_with_what_is_wrong_and_the_back_off_of_its_queue(
    client, start, start_coordinator, kind
):
    # Given a queue that gives a message up after two deliveries, and a worker with a long delay of its own
    start_coordinator()
    define(client, max_deliveries=2, redelivery_delay="100ms")
    client.apply(Queue(name="dead"), Action.dead_letter("work", "dead"))
    seen = []
    running = start(trade_handler(kind, seen), kind, cancel_delay="1h")
    # When what comes does not fit, is no JSON, and fits
    client.publish("work", {"symbol": "IBM", "qty": "many"})
    client.publish("work", b"{")
    client.publish("work", Trade("IBM", 5))
    # Then the handler has seen the last one alone, and the others are dead letters that name what was wrong
    eventually(lambda: client.admin.queue_stats("dead").depth == 2)
    reasons = {letter.consumer_reason for letter in client.admin.dead_letters("dead")}
    assert any("not a valid Trade: qty: Input should be a valid integer" in reason for reason in reasons), reasons
    assert any("not a valid Trade: Invalid JSON" in reason for reason in reasons), reasons
    assert not any("many" in reason for reason in reasons)
    assert seen == [Trade("IBM", 5)]
    assert (running.worker.processed, running.worker.invalid, running.worker.failed) == (1, 4, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_after_twenty_in_a_row_a_worker_takes_no_more_and_says_so(client, start, caplog, kind):
    # Given a worker whose type is wrong, and a queue that gives a message up at its first cancel
    define(client, max_cancels=1)
    running = start(trade_handler(kind, []), kind)
    # When many messages come
    client.publish_many("work", [{"other": n} for n in range(100)])
    eventually(lambda: running.worker.halted)
    # Then it has given up 20 of them, another worker may have the rest, and the log says why
    with client.subscribe("work", max_backlog=100) as messages:
        left = [messages.get(timeout="10s") for _ in range(80)]
    assert all(each.delivery == 1 for each in left)
    assert running.worker.invalid == 20
    (told,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert "20 messages in a row do not fit" in told.getMessage()
    assert "symbol: Field required" in told.getMessage()
    assert running.thread.is_alive()


@pytest.mark.parametrize("kind", KINDS)
def test_one_that_fits_begins_the_count_anew_and_one_that_comes_again_counts_once(client, start, kind):
    # Given one message that never fits and comes again at once, and others between which one fits
    define(client)
    seen = []
    running = start(trade_handler(kind, seen), kind)
    client.publish("work", {"never": "fits"})
    eventually(lambda: running.worker.invalid > 40)
    client.apply(Queue(name="work", max_per_subscription_backlog=100, max_deliveries=1))
    eventually(lambda: client.admin.queue_stats("work").depth == 0)
    client.publish("work", Trade("IBM", 0))
    # When 38 do not fit, with one that fits in the middle
    client.publish_many("work", [{"n": n} for n in range(19)])
    client.publish("work", Trade("IBM", 1))
    client.publish_many("work", [{"n": n} for n in range(19)])
    eventually(lambda: client.admin.queue_stats("work").depth == 0)
    # Then the worker still works
    client.publish("work", Trade("IBM", 2))
    eventually(lambda: [trade.qty for trade in seen] == [0, 1, 2])
    assert running.worker.halted is None


@pytest.mark.parametrize("kind", KINDS)
def test_on_invalid_expire_makes_dead_letters_at_once_and_goes_on(client, start, kind):
    define(client)
    running = start(trade_handler(kind, []), kind, on_invalid="expire")
    client.publish_many("work", [{"n": n} for n in range(30)])
    eventually(lambda: client.admin.queue_stats("work").depth == 0)
    eventually(lambda: running.worker.invalid == 30)
    assert running.worker.halted is None


def test_a_barrier_that_does_not_fit_is_not_counted_and_hides_nothing(client, start):
    define(client, barrier_expression="/end = 1")
    seen = []
    running = start(trade_handler("thread", seen))
    eventually(lambda: client.admin.queue_stats("work").subscriptions == 1)
    client.publish_many("work", [{"end": 1}, Trade("IBM", 1)])
    eventually(lambda: seen == [Trade("IBM", 1)])
    assert running.worker.halted is None


def test_a_validation_error_of_the_handler_s_own_is_a_failure_like_any_other(client, start):
    define(client, max_cancels=1)

    def handle(trade: Trade):
        Order.model_validate({"id": trade.qty})

    running = start(handle)
    client.publish("work", Trade("IBM", 1))
    eventually(lambda: running.worker.failed == 1)
    assert running.worker.invalid == 0


def test_an_invalid_message_names_some_of_many_faults_and_no_value():
    class Wide(pydantic.BaseModel):
        a: int
        b: int
        c: int
        d: int
        e: int
        f: int
        g: int

    with pytest.raises(pydantic.ValidationError) as caught:
        Wide.model_validate(dict.fromkeys("abcdefg", "secret"))
    told = InvalidMessage("Wide", caught.value)
    assert str(told).startswith("not a valid Wide: a: Input should be a valid integer")
    assert str(told).endswith("; and 2 more")
    assert "secret" not in str(told)
    assert told.error is caught.value
