"""Limits of a message and of a name: refused before anything is sent, with what is allowed."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

import ampsq
from ampsq import Action, Client, Queue, Topic, View
from ampsq.base.errors import DefinitionError
from ampsq.base.limits import DEEPEST, Limits, limits
from ampsq.base.message_types import JSON
from ampsq.base.values import is_name

PAGE = Path(ampsq.__file__).parents[1] / "docs" / "security.md"
SMALL = {
    "AMPSQ_MAX_BODY_SIZE": "1kb",
    "AMPSQ_MAX_JSON_DEPTH": "3",
    "AMPSQ_MAX_HEADERS": "2",
    "AMPSQ_MAX_HEADERS_SIZE": "99",
}


@pytest.fixture
def small(monkeypatch):
    """The limits of a process that was started with these variables."""
    for name, value in SMALL.items():
        monkeypatch.setenv(name, value)
    limits.cache_clear()
    yield
    monkeypatch.undo()
    limits.cache_clear()


@pytest.fixture
def client(valkey, instance):
    with Client(valkey.url, instance=instance) as client:
        client.apply(Topic(name="orders"), Topic(name="positions", key="/symbol"), Queue(name="work"))
        yield client


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    "beyond",
    [
        (b"x" * 1025, {}, "a body of 1,025 bytes; allowed: up to 1,024 (AMPSQ_MAX_BODY_SIZE)"),
        ({"a": "x" * 2000}, {}, "AMPSQ_MAX_BODY_SIZE"),
        ([[[[1]]]], {}, "JSON nested more than 3 deep (AMPSQ_MAX_JSON_DEPTH)"),
        ({"a": [{"b": {}}]}, {}, "AMPSQ_MAX_JSON_DEPTH"),
        (1, {"headers": {"a": "1", "b": "2", "c": "3"}}, "3 headers; allowed: up to 2 (AMPSQ_MAX_HEADERS)"),
        (1, {"headers": {"a": "x" * 100}}, "headers of 108 bytes; allowed: up to 99 (AMPSQ_MAX_HEADERS_SIZE)"),
    ],
)
def test_what_is_beyond_a_limit_is_refused_and_nothing_is_recorded(client, snapshot, beyond, tmp_path):
    message, options, said = beyond
    before = snapshot(client._store)

    for publish in (client.publish, client.delta_publish):
        with pytest.raises(DefinitionError, match=re.escape(said)):
            publish("positions", message, **options)
    with pytest.raises(DefinitionError, match=re.escape(said)):
        client.publish_many("orders", [message], **options)

    assert snapshot(client._store) == before
    store = tmp_path / "p.db"
    with (
        Client(client.url, instance=client.instance) as keeping,
        keeping.publisher("p", store=store) as till,
        pytest.raises(DefinitionError, match=re.escape(said)),
    ):
        till.publish("orders", message, **options)


@pytest.mark.usefixtures("small")
def test_what_is_at_a_limit_is_recorded(client):
    client.publish("orders", b"x" * 1024)
    client.publish("orders", [[["[{[{[{"]]])
    client.publish("orders", b"[" * 9)
    client.publish("orders", 1, headers={"a": "1", "b": "2"})

    assert client.admin.topics()["orders"].messages == 4


def test_data_that_json_can_no_longer_write_are_refused_like_those_beyond_the_limit():
    deep: list = []
    for _ in range(100_000):
        deep = [deep]

    with pytest.raises(DefinitionError, match="cannot be published"):
        JSON.encode(deep)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("AMPSQ_MAX_BODY_SIZE", "much", "AMPSQ_MAX_BODY_SIZE: 'much' is not a size"),
        ("AMPSQ_MAX_HEADERS", "-1", "AMPSQ_MAX_HEADERS: '-1' is not a count"),
        ("AMPSQ_MAX_JSON_DEPTH", "901", f"AMPSQ_MAX_JSON_DEPTH: 901 is too deep; allowed: 0 to {DEEPEST}"),
    ],
)
def test_a_limit_that_is_none_is_refused_by_the_name_of_its_variable(name, value, said):
    with pytest.raises(DefinitionError, match=re.escape(said)):
        Limits.of({name: value})


def test_the_page_names_every_limit_with_its_default():
    page = PAGE.read_text()

    for each in fields(Limits):
        assert f"| `AMPSQ_MAX_{each.name.upper()}` |" in page
    assert "| 64MB |" in page
    assert Limits().body_size == 64 * 2**20


@pytest.mark.parametrize(
    "name", ["", "a b", "a~b", "a@b", "a:b", "a,b", "a|b", "a[b]", "a(b)", "ü", "a\n", "x" * 256, 1]
)
def test_what_is_no_name_enters_nowhere(client, snapshot, name):
    before = snapshot(client._store)
    enters = [
        lambda: client.publish(name, 1),
        lambda: client.publish_many(name, [1]),
        lambda: client.delta_publish(name, {}),
        lambda: client.sow_delete(name, keys=["a"]),
        lambda: client.subscribe_topic("orders", bookmark="now", sub_id=name),
        lambda: Client(client.url, instance=name or 1),
        lambda: client.publisher(name),
        lambda: Topic(name=name),
        lambda: Queue(name=name),
        lambda: View(name=name, underlying_topic="orders", projection=["/a"]),
        lambda: Action(name=name, on={"publish": "orders"}, do={"publish": {"topic": "all", "data": "x"}}),
        lambda: Action.dead_letter("work", name),
    ]

    for enter in enters:
        with pytest.raises(DefinitionError):
            enter()

    assert snapshot(client._store) == before


def test_the_grammar_of_names_on_the_page_is_what_is_checked():
    written = re.search(r"name *= *1\*255\((.+)\)", PAGE.read_text())[1]

    allowed = {each for each in map(chr, range(0x250)) if is_name(each)}

    parts = [part.strip() for part in written.split("/ ")]
    found = {"ALPHA": set(map(chr, [*range(65, 91), *range(97, 123)])), "DIGIT": set("0123456789")}
    assert set().union(*(found.get(part, set(part.strip('"'))) for part in parts)) == allowed
    assert is_name("x" * 255)
    assert not is_name("x" * 256)
