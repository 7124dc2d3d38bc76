"""Bodies that are more than expressions read: what becomes of them in topics with a key, queues and views."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest
from observing import eventually

from ampsq import AsyncClient, Queue, Topic, View
from ampsq.base.errors import DefinitionError, UnreadBody
from ampsq.definitions.instance import Instance
from ampsq.expressions import Document
from ampsq.files.config import load
from ampsq.views.rows import Rows

LIMIT = 65_536
LARGE = json.dumps({"id": 1, "n": 1, "s": "x" * LIMIT}).encode()
COSTLY = b'{"id":2,"n":1,"l":[' + b"1," * 31_000 + b"1]}"
SMALL = {"id": 3, "n": 1}


@pytest.fixture
def limited(client):
    client.apply(Instance(expression_limit="64KB"))
    return client


@pytest.mark.parametrize(("body", "beyond"), [(LARGE, "limit"), (COSTLY, "steps")])
def test_a_topic_with_a_key_refuses_what_is_not_read(limited, body, beyond):
    limited.apply(Topic(name="orders", key="/id"))
    with pytest.raises(UnreadBody) as refusal:
        limited.publish_many("orders", [SMALL, body])
    assert refusal.value.detail == {"topic": "orders", "message": 1, "beyond": beyond, "bytes": len(body)}
    assert limited.sow("orders") == []
    with pytest.raises(UnreadBody):
        limited.sow_delete("orders", data=body)


def test_a_change_is_refused_that_would_make_a_record_larger_than_the_limit(limited):
    limited.apply(Topic(name="orders", key="/id"))
    half = "x" * 40_000
    limited.publish("orders", {"id": 1, "a": half})
    with pytest.raises(UnreadBody) as refusal:
        limited.delta_publish("orders", {"id": 1, "b": half})
    assert refusal.value.detail["beyond"] == "limit"
    limited.delta_publish("orders", {"id": 1, "a": "y", "b": half})
    assert [len(message.raw) for message in limited.sow("orders")] == [
        len(json.dumps({"id": 1, "a": "y", "b": half})) - 5
    ]


def test_a_change_of_many_escapes_is_not_merged(client):
    client.apply(Topic(name="orders", key="/id"))
    client.publish("orders", b'{"id":1,"s":"' + b"\\n" * 21_000 + b'"}')
    with pytest.raises(UnreadBody) as refusal:
        client.delta_publish("orders", {"id": 1, "b": 1})
    assert refusal.value.detail["beyond"] == "steps"


@pytest.mark.parametrize("body", [LARGE, COSTLY])
def test_no_filter_matches_what_is_not_read_its_priority_is_the_lowest_and_it_is_no_barrier(limited, body):
    limited.apply(
        Queue(name="plain", underlying_topic="orders", max_per_subscription_backlog=9),
        Queue(name="chosen", underlying_topic="orders", filter="/n = 1", max_per_subscription_backlog=9),
        Queue(name="urgent", underlying_topic="orders", priority="/n", max_per_subscription_backlog=9),
        Queue(name="day", underlying_topic="orders", barrier_expression="/n = 1", max_per_subscription_backlog=9),
    )
    limited.publish_many("orders", [body, {"n": 0}])
    small = json.dumps({"n": 0}, separators=(",", ":")).encode()

    assert [message.raw for message in limited.sow("plain", "/n >= 0")] == [small]
    assert limited.ack("plain", filter="/n = 1") == 0
    with limited.subscribe("chosen", max_backlog=9) as messages:
        assert messages.get(timeout=0.5) is None
    with limited.subscribe("urgent", max_backlog=9) as messages:
        assert [messages.get(timeout=30).raw for _ in range(2)] == [small, body]
    with limited.subscribe("day", max_backlog=9) as messages:
        assert [messages.get(timeout=30).raw for _ in range(2)] == [body, small]
    with limited.subscribe("plain", max_backlog=9, filter="/n = 1 OR /n IS NULL") as messages:
        assert messages.get(timeout=0.5) is None


def test_a_topic_says_more_than_its_instance(limited):
    limited.apply(Topic(name="orders", expression_limit="1MB"), Queue(name="work", underlying_topic="orders"))
    limited.publish("orders", LARGE)
    assert [message.raw for message in limited.sow("work", "/n = 1")] == [LARGE]
    limited.apply(Topic(name="orders"))
    assert limited.sow("work", "/n = 1") == []


def test_the_elements_are_kept_shown_and_taken_back(client):
    assert client.apply(Instance(expression_limit="2MB"))[0][1] == "changed"
    assert client.apply(Instance(expression_limit="2MB"))[0][1] == "unchanged"
    assert client.apply(Topic(name="orders", expression_limit="64KB"))[0][1] == "new"
    found = {type(each).__name__: each.expression_limit for each in client.admin.definitions()[:2]}
    assert found == {"Instance": 2 << 20, "Topic": 64 << 10}
    assert client.apply(Instance(group="NYC"))[0][1] == "changed"
    assert client.admin.definitions()[0].expression_limit is None


def test_files_have_the_elements_too(tmp_path):
    file = tmp_path / "ampsq.yaml"
    file.write_text("expression_limit: 2MB\ntopics: [{name: orders, expression_limit: 64KB}]\n")
    assert load(file) == [Instance(expression_limit=2 << 20), Topic(name="orders", expression_limit=64 << 10)]


@pytest.mark.parametrize("make", [Instance, lambda **elements: Topic(name="orders", **elements)])
def test_a_limit_below_what_is_always_read_is_refused(make):
    with pytest.raises(DefinitionError, match="expression_limit: '31KB' is too small; allowed: 32KB or more"):
        make(expression_limit="31KB")


def test_rows_leave_out_what_is_not_read_and_count_it():
    rows = Rows(View(name="v", underlying_topic="t", projection=["COUNT(*) AS /count"]))
    rows.add(b"1", Document(COSTLY))
    rows.add(b"2", Document(b'{"n":1}'))
    rows.add(b"3", Document(COSTLY), for_good=True)
    assert (rows.row(()), rows.left_out) == ({"count": 1}, 2)
    rows.remove(b"1")
    assert rows.left_out == 1
    rows.add(b"1", Document(COSTLY))
    rows.keep_only({b"2"})
    assert (rows.row(()), rows.left_out) == ({"count": 1}, 1)


@pytest.mark.parametrize("under", ["orders", "work"])
def test_a_view_leaves_out_what_is_larger_than_its_topics_limit(limited, under):
    limited.apply(
        Topic(name="orders", expression_limit="128KB"),
        Queue(name="work", underlying_topic="orders"),
        View(name="totals", underlying_topic=under, projection=["COUNT(*) AS /count"]),
    )
    larger = json.dumps({"n": 1, "s": "x" * 2 * LIMIT}).encode()
    limited.publish_many("orders", [LARGE, larger, SMALL])
    assert eventually(lambda: limited.sow("totals")[0].data["count"] == 2)


def _warnings(caplog):
    return [record.getMessage() for record in caplog.records if "expression_limit" in record.getMessage()]


def test_publishing_what_is_not_read_is_warned_of_once_a_topic(limited, caplog):
    caplog.set_level(logging.WARNING)
    limited.publish("orders", b"x" * LIMIT)
    assert _warnings(caplog) == []
    limited.publish("orders", LARGE)
    limited.publish_many("orders", [LARGE] * 3, batch=1)
    limited.publish_many("fills", [b"small", LARGE], batch=1)
    first, second = _warnings(caplog)
    assert first.startswith("orders: a body of 65,562 bytes is larger than its expression_limit of 65,536")
    assert second.startswith("fills: ")


def test_an_asyncio_client_warns_too(limited, caplog):
    caplog.set_level(logging.WARNING)

    async def publish():
        async with AsyncClient(limited.url, instance=limited.instance) as client:
            await client.publish("orders", LARGE)
            await client.publish_many("fills", [LARGE])

    asyncio.run(publish())
    assert [text.partition(":")[0] for text in _warnings(caplog)] == ["orders", "fills"]
