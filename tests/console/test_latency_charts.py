"""The page of a queue shows how long messages took: percentiles over each range, in words, lines and JSON."""

from __future__ import annotations

import json
import re
from html import unescape

import pytest

from ampsq import Queue
from ampsq.base.formatting import duration_text
from ampsq.console.history_charts import draw_latencies
from ampsq.protocol.calls.queue_latencies import Latencies, LatencyBucket
from ampsq.protocol.calls.subscriptions import heartbeat
from ampsq.protocol.limits import HISTORY_BUCKETS, HISTORY_RANGES

LENGTH = HISTORY_RANGES["15m"]
NOW = 1_000 * LENGTH + 5_000


def bucket(ago, *seconds):
    """Measurements of a bucket of time so many before that of now."""
    latencies = Latencies()
    for each in seconds:
        latencies.delivery.add(each)
    return LatencyBucket((1_000 - ago) * LENGTH, latencies)


def points(path):
    """Return the ends of the lines of a path: (x, y, whether a line goes there)."""
    found, y = [], 0.0
    for kind, numbers in re.findall(r"([MLH])([\d.,]+)", path):
        x, _, of = numbers.partition(",")
        y = float(of) if of else y
        found.append((float(x), y, kind != "M"))
    return found


def test_percentiles_are_told_over_the_range_and_drawn_in_each_bucket():
    # when: 3 ms, and later 300 ms
    delivery, handling = draw_latencies([bucket(10, *[0.003] * 10), bucket(9, *[0.3] * 10)], "15m", NOW)
    # then
    assert delivery.samples == 20
    assert delivery.figures["p50"] == "5 ms"
    assert (delivery.bottom, delivery.top) == ("1 ms", "1 s")
    assert delivery.label.startswith("Publish to delivery over the last 15 minutes: p50 5 ms, p95 4")
    assert delivery.label.endswith("by 20 messages that were measured")
    ends = points(delivery.lines["p50"])
    assert [line for *_, line in ends] == [False, True, True, True]
    xs = [x for x, *_ in ends]
    assert xs == sorted(xs)
    assert 240 < xs[0] < xs[-1] < 300
    # the later ones took longer, and what takes longer is further up
    assert ends[0][1] == ends[1][1] > ends[2][1] == ends[3][1]
    assert handling.lines == {}
    assert handling.label == "Delivery to acknowledgement over the last 15 minutes: nothing was measured"
    assert set(handling.figures.values()) == {"–"}  # noqa: RUF001  (a dash, as it is set)


def test_where_nothing_was_measured_there_is_a_gap():
    (delivery, _) = draw_latencies([bucket(HISTORY_BUCKETS - 1, 0.003), bucket(1, 0.003), bucket(0, 0.003)], "15m", NOW)
    ends = points(delivery.lines["p99"])
    assert [line for *_, line in ends] == [False, True, False, True, True, True]
    assert all(0 <= x <= 300 and 0 <= y <= 60 for x, y, _ in ends)
    assert ends[-1][0] == 300


@pytest.mark.parametrize("seconds", [0.0, 0.00002, 0.001, 1.0, 10.0, 3_599.0, 90_000.0])
def test_whatever_it_took_the_line_is_in_the_picture(seconds):
    (delivery, _) = draw_latencies([bucket(3, seconds)], "15m", NOW)
    assert all(0 <= y <= 60 for path in delivery.lines.values() for _, y, _ in points(path))
    assert delivery.label.endswith("by 1 message that was measured")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 ms"), (0.00042, "0.4 ms"), (0.0123, "12 ms"), (0.999, "999 ms"), (1.5, "1.5 s"), (42.4, "42 s"),
        (90.0, "1.5 min"), (3_000.0, "50 min"), (3_600.0, "over 1 h"),
    ],
)  # fmt: skip
def test_a_length_is_told_with_two_digits(seconds, text):
    assert duration_text(seconds) == text


def test_the_page_has_them_for_each_range_and_says_how_many_were_measured(client, asked):
    # given
    client.apply(Queue(name="work", underlying_topic="orders"))
    page = f"/i/{client.instance}/queues/work"
    assert "Clients measure how long messages take" in asked.anew().page(page).text
    client._store.call(heartbeat(30_000, [], "work|1200000 12 1200|250000 7 5"))
    for range_, name in (("15m", "15 minutes"), ("6h", "6 hours"), ("7d", "7 days")):
        # when
        text = unescape(asked.page(f"{page}?range={range_}").text)
        told = json.loads(asked(f"{page}?range={range_}", accept="application/json", cookie=asked.cookie).text)
        # then
        assert f'aria-label="Publish to delivery over the last {name}: p50 7.5 s, p95 9.8 s, p99 9.9 s, by' in text
        assert "Clients measured 1,200 deliveries and 5 acknowledgements" in text
        assert len(re.findall(r'<path class="p\d+" d="M', text)) == 6
        assert told["latencies"]["over"] == range_
        assert told["latencies"]["delivery"] == pytest.approx({"samples": 1200, "p50": 7.5, "p95": 9.75, "p99": 9.95})
        assert told["latencies"]["handling"]["samples"] == 5


def test_one_of_what_was_measured_is_told_as_one(client, asked):
    client.apply(Queue(name="work", underlying_topic="orders"))
    client._store.call(heartbeat(30_000, [], "work|100 12 1|100 7 1"))
    text = unescape(asked.anew().page(f"/i/{client.instance}/queues/work").text)
    assert "Clients measured 1 delivery and 1 acknowledgement: one message" in text
