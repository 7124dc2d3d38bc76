"""A first publish to a name that is nearly another one's."""

from __future__ import annotations

import logging

import pytest

from ampsq import Queue, Topic
from ampsq.base.suggestions import misspelt


@pytest.mark.parametrize("wrong", ["ordres", "order", "oders", "Orders", "ordersx", "xorders", "odrres"])
def test_a_letter_or_two_make_a_name_a_misspelling_of_another(wrong):
    assert misspelt(wrong, ["trades", "orders"]) == "orders"


@pytest.mark.parametrize(
    ("name", "other"), [("orders-1", "orders-2"), ("x", "y"), ("trades", "orders"), ("sredro", "orders")]
)
def test_other_names_are_not(name, other):
    assert misspelt(name, [other]) is None


def test_a_first_publish_warns_that_a_topic_was_made_whose_name_may_be_misspelt(either, caplog):
    # Given a topic and a queue
    either.apply(Topic(name="orders"), Queue(name="invoices"))
    # When somebody publishes to a name that is nearly the topic's
    with caplog.at_level(logging.WARNING, "ampsq"):
        either.publish("ordres", 1)
        either.publish("invioces", 1)
        either.publish("payments", 1)
        either.publish("ordres", 2)
    # Then both are made, and a warning names what was meant, once
    told = [record.getMessage() for record in caplog.records if "did you mean" in record.getMessage()]
    assert told == [
        "topic 'ordres' is new, and was made; did you mean 'orders', which was there?",
        "topic 'invioces' is new, and was made; did you mean 'invoices', which was there?",
    ]
    assert {"ordres", "invioces", "payments"} <= set(either.admin.topics())
