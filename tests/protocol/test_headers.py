"""Headers that somebody else wrote: what is no JSON object of texts is shown as it is, and breaks nothing."""

from __future__ import annotations

import pytest

from ampsq import Client, LocalQueue, Topic
from ampsq.protocol.encoding import UNREADABLE, encode_headers, read_headers
from ampsq.protocol.schema import FIELDS, key


@pytest.mark.parametrize("headers", [{}, {"a": "b"}, {"a": "", "\u202e": "\U0001f600"}])
def test_headers_are_read_as_they_were_written(headers):
    assert read_headers(encode_headers(headers)) == headers


@pytest.mark.parametrize("field", [b"garbage", b"[1]", b'{"a": 1}', b'{"a": {"b": "c"}}', b"\xff", b"[" * 100_000])
def test_what_is_no_object_of_texts_is_told_as_it_is(field):
    assert read_headers(field) == {UNREADABLE: field.decode(errors="backslashreplace")}


def test_a_foreign_entry_with_such_headers_is_looked_at_and_delivered(client: Client):
    client.apply(
        Topic(name="orders"), LocalQueue(name="work", underlying_topic="orders", max_per_subscription_backlog=2)
    )
    client.publish("orders", 1)
    store = client._store
    entry = {FIELDS["body"]: "2", FIELDS["headers"]: "garbage"}
    store.redis.xadd(key(client.instance, "log", "orders"), entry)

    [_, found] = client.sow("work")

    assert found.headers == {UNREADABLE: "garbage"}
    [published] = client.admin.history(found.bookmark).events
    assert published.details["headers"] == {UNREADABLE: "garbage"}
    with client.subscribe("work", max_backlog=2) as messages:
        delivered = [messages.get(timeout="30s") for _ in range(2)]
        assert [each.headers for each in delivered] == [{}, {UNREADABLE: "garbage"}]
