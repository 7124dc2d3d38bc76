"""Random publishes over topics and random places in them, against a list in Python."""

from __future__ import annotations

import contextlib
import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ampsq import Client, MemoryBookmarkStore, Topic
from ampsq.base.errors import DefinitionError

TOPICS = ("a", "b", "c")
_numbers = itertools.count(1)

publishes = st.lists(st.tuples(st.sampled_from(TOPICS), st.integers(1, 40)), max_size=12)
places = st.one_of(st.sampled_from(["epoch", "now"]), st.integers(0, 400))
ranges = st.lists(st.tuples(st.sampled_from("[("), places, places, st.sampled_from("])")), min_size=1, max_size=3)
patterns = st.sampled_from(["a", "^[ab]$", "^[abc]$", "c|b"])


class World:
    """An instance, and everything that was published there in order: topic, number, bookmark."""

    def __init__(self, client, runs):
        self.client, self.all = client, []
        client.apply(*(Topic(name=topic) for topic in TOPICS))
        self.publish(runs)

    def publish(self, runs):
        for topic, number in runs:
            numbers = range(len(self.all), len(self.all) + number)
            marks = self.client.publish_many(topic, numbers)
            self.all += zip([topic] * number, numbers, marks, strict=True)

    def text(self, place):
        """A place as a subscription takes it; numbers beyond the end mean the end."""
        if isinstance(place, str):
            return place
        return self.all[place][2] if place < len(self.all) else "now"

    def index(self, place, behind):
        """Return how many messages are before it."""
        if place == "epoch":
            return 0
        if place == "now" or place >= len(self.all):
            return len(self.all)
        return place + behind

    def is_reversed(self, start, end):
        """Return whether a range between two places ends before it begins, whatever comes."""
        start, end = ("now" if self.text(place) == "now" else place for place in (start, end))
        if end == "epoch":
            return start != "epoch"
        return isinstance(start, int) and isinstance(end, int) and start > end

    def matching(self, pattern, indexes):
        wanted = {"a": "a", "^[ab]$": "ab", "^[abc]$": "abc", "c|b": "bc"}[pattern]
        return [number for topic, number, _ in self.all if topic in wanted and number in indexes]


@contextlib.contextmanager
def made(server, runs):
    with Client(server.url, instance=f"replay-model-{next(_numbers)}") as client:
        yield World(client, runs)


RANDOM = settings(max_examples=60, suppress_health_check=list(HealthCheck))


@pytest.mark.timeout(600)
@RANDOM
@given(runs=publishes, asked=ranges, pattern=patterns)
def test_random_ranges_give_what_a_list_gives(valkey, runs, asked, pattern):
    with made(valkey, runs) as world:
        texts = [f"{opens}{world.text(start)}:{world.text(end)}{closes}" for opens, start, end, closes in asked]
        if any(world.is_reversed(start, end) for _, start, end, _ in asked):
            with pytest.raises(DefinitionError, match="ends before it begins"):
                world.client.subscribe_topic(pattern, bookmark=texts)
            return
        expected = set()
        for opens, start, end, closes in asked:
            expected.update(range(world.index(start, opens == "("), world.index(end, closes == "]")))
        with world.client.subscribe_topic(pattern, bookmark=texts) as messages:
            assert [message.data for message in messages] == world.matching(pattern, expected)


@pytest.mark.timeout(600)
@RANDOM
@given(runs=publishes, later=publishes, starts=st.lists(places, min_size=1, max_size=3), pattern=patterns)
def test_random_starts_give_what_a_list_gives_and_then_what_comes(valkey, runs, later, starts, pattern):
    with made(valkey, runs) as world:
        first = min(world.index(start, True) for start in starts)
        with world.client.subscribe_topic(pattern, bookmark=[world.text(start) for start in starts]) as messages:
            world.publish(later)
            expected = world.matching(pattern, set(range(first, len(world.all))))
            assert [messages.get("30s").data for _ in expected] == expected
            assert messages.get(0) is None


@pytest.mark.timeout(600)
@RANDOM
@given(runs=publishes, steps=st.lists(st.lists(st.booleans(), max_size=60), max_size=5), pattern=patterns)
def test_random_lives_of_a_durable_subscription_handle_each_message_once(valkey, runs, steps, pattern):
    # Given lives of a subscription that handle some of what they get, and are lost
    with made(valkey, runs) as world:
        left, store = world.matching(pattern, set(range(len(world.all)))), MemoryBookmarkStore()
        for handles in steps:
            messages = world.client.subscribe_topic(
                pattern, bookmark="most_recent", sub_id="audit", bookmark_store=store, auto_ack=False
            )
            # Then each life gets what is left, in order
            got = [messages.get("30s") for _ in itertools.islice(left, len(handles))]
            assert [message.data for message in got] == left[: len(got)]
            for message, handled in reversed(list(zip(got, handles, strict=False))):
                if handled:
                    message.ack(wait=True)
                    left.remove(message.data)
