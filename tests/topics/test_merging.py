"""Pages of several logs become one order, whatever the pages had and whatever came between them."""

from __future__ import annotations

from bisect import bisect_right

from hypothesis import given
from hypothesis import strategies as st

from ampsq.base.log_positions import FIRST, LogSpan
from ampsq.topics.merge import MergedLog, Merging

TOPICS = ("a", "b", "c")
#: Between two pages: which topics something is recorded in, one ID after the other.
RECORDED = st.lists(st.lists(st.sampled_from(TOPICS), max_size=12), min_size=1, max_size=12)


def entry(number):
    return [b"%d-0" % number, [b"b", b"x"]]


def read(merging, kept, last):
    """One page, as a server gives it at this moment."""
    request = merging.next_page((last, 2**64 - 1))
    found = {}
    for log in request.logs:
        behind = kept[log.topic][bisect_right(kept[log.topic], log.cursor[0]) :]
        if behind:
            found[log.name] = [entry(number) for number in behind[: request.count]]
    return [(topic, int(name.split(b"-")[0])) for topic, name, _ in merging.take(request, found)]


def over(topics, spans):
    merging = Merging()
    for topic in topics:
        merging.logs[topic] = MergedLog(topic, topic.encode(), None, FIRST, FIRST)
        merging.logs[topic].begin(spans)
    merging.begin()
    return merging


@given(recorded=RECORDED)
def test_everything_is_handed_on_once_in_the_order_of_its_ids(recorded):
    kept, everything, given_out = {topic: [] for topic in TOPICS}, [], []
    merging = over(TOPICS, [LogSpan(FIRST, None)])

    for some in recorded:
        for topic in some:
            everything.append((topic, len(everything) + 1))
            kept[topic].append(len(everything))
        given_out += read(merging, kept, len(everything))

    while len(given_out) < len(everything):
        before = len(given_out) + sum(log.count for log in merging.logs.values())
        given_out += read(merging, kept, len(everything))
        assert len(given_out) + sum(log.count for log in merging.logs.values()) > before, "a page brought nothing"
    assert given_out == everything


@given(recorded=RECORDED, first=st.integers(0, 30), length=st.integers(1, 30))
def test_of_a_range_that_is_over_everything_is_handed_on_and_nothing_else(recorded, first, length):
    kept, everything = {topic: [] for topic in TOPICS}, []
    for topic in (topic for some in recorded for topic in some):
        everything.append((topic, len(everything) + 1))
        kept[topic].append(len(everything))
    merging = over(TOPICS, [LogSpan((first, 0), (first + length, 0))])

    given_out, past = [], len(everything) + first + length
    for _ in range(len(everything) + 2):
        given_out += read(merging, kept, past)

    assert given_out == [each for each in everything if first < each[1] <= first + length]
    assert merging.is_read
