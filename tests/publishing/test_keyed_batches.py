"""Batches to topics with a key: the server reads each body, so a call has no more of them than one body may hold."""

from __future__ import annotations

import pytest

from ampsq import Topic
from ampsq.base.message_types import SMALL_BODY, MessageType
from ampsq.protocol.encoding import encode_batches

BODIES = [b'{"id":%d,"text":"%s"}' % (number, b"x" * 4_000) for number in range(40)]


@pytest.mark.parametrize(("key", "most"), [('"key":["/id"],', SMALL_BODY + 5_000), ("", 1_000_000)])
def test_a_call_to_a_topic_with_a_key_has_about_as_much_as_one_body_may_hold(key, most):
    made = list(encode_batches(BODIES, 500, MessageType.of_definition(f'{{{key}"message_type":"json"}}')))
    assert [body for bodies in made for body in bodies] == BODIES
    assert len(made) == (5 if key else 1)
    assert max(sum(map(len, bodies)) for bodies in made) <= most


def test_all_of_a_batch_become_records(either):
    either.apply(Topic(name="prices", key="/id"))
    assert len(either.publish_many("prices", BODIES)) == 40
    assert [record.data["id"] for record in either.sow("prices", order_by="/id")] == list(range(40))
