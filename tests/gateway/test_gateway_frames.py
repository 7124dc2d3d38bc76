"""The frames of a gateway's WebSockets: their document, and acknowledgements that are done together."""

from __future__ import annotations

import asyncio
import copy
import json
from types import SimpleNamespace

import httpx
import pytest
from gateway_scene import frames_of
from jsonschema import Draft202012Validator
from pydantic_asyncapi.v3 import AsyncAPI
from starlette.websockets import WebSocketDisconnect, WebSocketState

from ampsq.base.errors import StaleLease, Unavailable
from ampsq.gateway.acknowledgements import LeasedStream
from ampsq.gateway.asyncapi import frames_document
from ampsq.gateway.streams import Streams

#: Seconds that everything has on a crowded machine.
WITHIN = 30


# -- the document


def references(value):
    if isinstance(value, dict):
        yield from ([value["$ref"]] if "$ref" in value else [])
        for each in value.values():
            yield from references(each)
    elif isinstance(value, list):
        for each in value:
            yield from references(each)


def test_the_document_is_one_of_asyncapi_and_all_that_it_names_is_there():
    text = frames_document()
    whole = copy.deepcopy(text)
    for operation in whole["operations"].values():
        # Which the specification leaves out where the channel has it, and the library wants
        operation.get("reply", {})["address"] = {"description": "", "location": "$message.payload#/id"}

    read = AsyncAPI.model_validate(whole)

    assert set(read.channels) == {"queue", "topic", "durable", "records"}
    for name, operation in text["operations"].items():
        assert operation["action"] == ("send" if name.startswith("tell_") else "receive")
    for schema in text["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    found = list(references(text))
    assert found
    for reference in found:
        place = text
        for part in reference.removeprefix("#/").split("/"):
            place = place[part]


def test_it_is_served_and_the_other_document_leads_to_it(gateway):
    answers = [httpx.get(gateway.address + path, timeout=WITHIN) for path in ("/asyncapi.json", "/openapi.json")]

    assert answers[0].json() == frames_document()
    assert answers[1].json()["externalDocs"]["url"] == "/asyncapi.json"


@pytest.mark.parametrize(
    ("order", "is_one"),
    [
        ({"do": "ack", "id": 1}, True),
        ({"do": "cancel", "id": 1, "delay": "1h", "reason": "not now"}, True),
        ({"do": "expire", "id": 1, "reason": None}, True),
        ({"do": "extend", "id": 1, "period": 30}, True),
        ({"do": "ack", "id": True}, False),
        ({"do": "ack", "id": "1"}, False),
        ({"do": "ack", "id": 1, "delay": "5s"}, False),
        ({"do": "extend", "id": 1}, False),
    ],
)
def test_what_the_document_says_is_what_is_done(audit, client, order, is_one):
    assert frames_of("order_queue").is_valid(order) is is_one
    client.publish("orders", 1)
    with audit.open("/v1/subscribe", queue="work") as mine:
        assert [mine.get(WITHIN)["type"] for _ in range(2)] == ["subscribed", "message"]
        assert mine.ask(**order)["type"] == ("settled" if is_one else "error")


# -- acknowledgements together


class Spoken:
    """A socket on which everything was said before anybody listens."""

    def __init__(self, orders):
        self.frames = [{"type": "websocket.receive", "text": json.dumps(order)} for order in orders]
        self.frames.append({"type": "websocket.disconnect"})

    async def receive(self):
        return self.frames.pop(0)


class Acknowledging:
    """A subscription that notes which messages are acknowledged together; some are refused."""

    def __init__(self, refused=(), failure=None):
        self.calls, self.refused, self.failure = [], refused, failure

    async def acknowledge_all(self, messages):
        self.calls.append(messages)
        if self.failure is not None:
            raise self.failure
        return [StaleLease(ref=each) if each in self.refused else None for each in messages]


def answers_to(orders, subscription, held):
    told = []

    async def send(facts):
        told.append((facts.get("error", facts["type"]), facts["id"]))

    leases = LeasedStream(Spoken(orders), send, subscription, subscription.acknowledge_all)
    leases._held = {number: f"m{number}" for number in held}
    with pytest.raises(WebSocketDisconnect):
        asyncio.run(leases.take_orders())
    return told


def test_acknowledgements_that_wait_are_done_in_one_call_and_answered_one_by_one_in_their_order():
    subscription = Acknowledging(refused=["m2"])

    told = answers_to([{"do": "ack", "id": each} for each in (3, 2, 9, 3, 1)], subscription, held=(1, 2, 3))

    assert subscription.calls == [["m3", "m2", "m1"]]
    assert told == [("settled", 3), ("StaleLease", 2), ("DefinitionError", 9), ("DefinitionError", 3), ("settled", 1)]


def test_what_is_said_between_acknowledgements_keeps_its_place():
    subscription = Acknowledging()

    said = [{"do": "ack", "id": 1}, {"do": "expire", "id": 9}, {"do": "ack", "id": 2}, {"do": "ack", "id": 3}, "?"]
    told = answers_to(said, subscription, held=(1, 2, 3))

    assert subscription.calls == [["m1"], ["m2", "m3"]]
    assert told == [("settled", 1), ("DefinitionError", 9), ("settled", 2), ("settled", 3), ("DefinitionError", None)]


def test_a_call_that_fails_is_told_to_each():
    orders = [{"do": "ack", "id": each} for each in (1, 2)]

    told = answers_to(orders, Acknowledging(failure=Unavailable("away")), held=(1, 2))

    assert told == [("Unavailable", 1), ("Unavailable", 2)]


def test_many_acknowledgements_at_once_are_done_and_those_that_come_late_are_refused(audit, client):
    audit.publish("orders", *range(10))
    with audit.open("/v1/subscribe", queue="work", max_backlog=10) as mine:
        messages = [mine.get(WITHIN) for _ in range(11)][1:]
        client.ack("work", [messages[4]["bookmark"]])
        for message in messages:
            mine.say(do="ack", id=message["id"])
        told = [mine.get(WITHIN) for _ in messages]

    assert [each["id"] for each in told] == [message["id"] for message in messages]
    assert [each["type"] for each in told] == ["settled"] * 4 + ["error"] + ["settled"] * 5
    assert told[4]["error"] == "AlreadyAcked"
    assert client.admin.queue_stats("work").acknowledged == 10


class Left:
    """A socket whose subscriber has gone, which a frame before has found; or one that fails for another reason."""

    def __init__(self, state):
        self.application_state = state

    async def send_text(self, _):
        raise RuntimeError("a frame behind the last one")


def test_who_has_gone_is_no_fault_of_the_gateway_s_whichever_of_its_frames_finds_it():
    desk = SimpleNamespace(rules=SimpleNamespace(bounds=SimpleNamespace(send_timeout=WITHIN)))
    with pytest.raises(WebSocketDisconnect):
        asyncio.run(Streams(desk)._send(Left(WebSocketState.DISCONNECTED), {}))
    with pytest.raises(RuntimeError, match="behind the last one"):
        asyncio.run(Streams(desk)._send(Left(WebSocketState.CONNECTED), {}))
