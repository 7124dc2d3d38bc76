"""Address settings: which names they match, which counts, what they make of a queue."""

from __future__ import annotations

import pytest

from ampsq import AddressSetting, Queue
from ampsq.base.errors import DefinitionError
from ampsq.definitions.address_setting import makes_queues, settled_for
from ampsq.files.config import load

# -- which names


@pytest.mark.parametrize(
    ("match", "names", "others"),
    [
        # Artemis's own examples
        (
            "news.europe.#",
            ["news.europe", "news.europe.sport", "news.europe.politics", "news.europe.politics.regional"],
            ["news.usa", "news.usa.sport", "entertainment"],
        ),
        ("news.*", ["news.europe", "news.usa"], ["news.europe.sport", "news", "news.europe.politics.regional"]),
        ("news.*.sport", ["news.europe.sport", "news.usa.sport"], ["news.europe.politics", "news.sport"]),
        # and others
        ("ring.#", ["ring", "ring.a"], ["rings", "rings.a", "a.ring"]),
        ("#", ["a", "a.b", "a-b/c"], []),
        ("*", ["a"], ["a.b"]),
        ("#.a.#.b", ["a.b", "x.a.y.z.b", "a.b.b"], ["a", "b.a", "a.b.c"]),
        ("a.b", ["a.b"], ["a", "a.b.c", "a-b"]),
        ("a..b", ["a..b"], ["a.b"]),
    ],
)
def test_a_match_matches_words(match, names, others):
    setting = AddressSetting(match=match)
    assert [name for name in names if not setting.matches(name)] == []
    assert [name for name in others if setting.matches(name)] == []


@pytest.mark.parametrize("match", ["", "a b", "a#", "a*.b", "$sys", 5, None, "ä", "x" * 256])
def test_what_matches_nothing_is_refused(match):
    with pytest.raises(DefinitionError, match=r"match: .*as in 'ring\.#'"):
        AddressSetting(match=match)


def test_a_setting_is_explained_by_its_match():
    with pytest.raises(DefinitionError, match=r"AddressSetting 'ring\.#': default_ring_size: 0 is too small"):
        AddressSetting(match="ring.#", default_ring_size=0)
    with pytest.raises(
        DefinitionError, match=r"-2 is not a count; allowed: a whole number from 0 .*, or -1 for no limit"
    ):
        AddressSetting(match="ring.#", max_delivery_attempts=-2)
    with pytest.raises(DefinitionError, match="did you mean 'default_ring_size'"):
        AddressSetting(match="ring.#", default_ring_siz=3)


def test_a_setting_comes_back_from_what_was_stored():
    setting = AddressSetting(
        match="ring.#", default_ring_size=-1, auto_create_queues=False, redelivery_delay="0s", expiry_delay=-1,
        max_delivery_attempts=0, max_redelivery_delay="1m",
    )  # fmt: skip
    again = AddressSetting.from_json(setting.to_json())
    assert again == setting
    assert (again.match, again.default_ring_size, again.auto_create_queues, again.expiry_delay) == (
        "ring.#",
        -1,
        False,
        -1,
    )
    assert AddressSetting.from_json(AddressSetting(match="a").to_json()) == AddressSetting(match="a")


# -- which counts


def sized(match, size):
    return AddressSetting(match=match, default_ring_size=size)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a.b", 1), ("a.x", 2), ("c.b", 3), ("a.x.y", 4), ("x.y.z", 6), ("a", 4), ("x", 6), ("a.b.c", 5)],
)
def test_the_most_specific_match_counts(name, expected):
    settings = [sized("#", 6), sized("a.#", 4), sized("a.b.#", 5), sized("*.b", 3), sized("a.*", 2), sized("a.b", 1)]
    for order in (settings, settings[::-1]):
        assert settled_for(Queue(name=name), order).ring_size == expected


def test_each_element_counts_of_the_most_specific_setting_that_gives_it():
    settings = [
        AddressSetting(match="#", max_delivery_attempts=10, redelivery_delay="5s", expiry_delay="1h"),
        AddressSetting(match="ring.#", default_ring_size=3, max_delivery_attempts=-1),
        AddressSetting(match="ring.a", expiry_delay=-1),
    ]

    def elements(name):
        return settled_for(Queue(name=name), settings).elements()

    assert elements("x") == {"name": "x", "max_deliveries": 10, "redelivery_delay": "5s", "expiration": "1h"}
    assert elements("ring.b") == {"name": "ring.b", "ring_size": 3, "redelivery_delay": "5s", "expiration": "1h"}
    assert elements("ring.a") == {"name": "ring.a", "ring_size": 3, "redelivery_delay": "5s"}


def test_what_the_queue_says_counts_more():
    settings = [
        AddressSetting(
            match="#", default_ring_size=3, max_delivery_attempts=10, redelivery_delay="5s", max_redelivery_delay="9s",
            expiry_delay="1h", redelivery_delay_multiplier=2, redelivery_collision_avoidance_factor=0.5,
        )
    ]  # fmt: skip
    own = Queue(
        name="q", ring_size=7, max_deliveries=2, redelivery_delay="1s", max_redelivery_delay="2s", expiration="5s",
        redelivery_delay_multiplier=3, redelivery_collision_avoidance_factor=0.1,
    )  # fmt: skip
    assert settled_for(own, settings) == own
    assert settled_for(Queue(name="q", ring_size=-1), settings).ring_size == -1
    assert settled_for(Queue(name="q", redelivery_delay="1m"), settings).max_redelivery_delay == 60_000
    assert settled_for(Queue(name="q", max_redelivery_delay="2s"), settings).redelivery_delay == 2_000


def test_without_a_match_a_queue_is_as_it_is():
    queue = Queue(name="q", underlying_topic="orders")
    assert settled_for(queue, [sized("q", 3), sized("q.#", 3)]) is queue
    assert settled_for(queue, []) is queue


def test_the_topic_s_name_counts_and_of_several_topics_that_of_the_target():
    assert settled_for(Queue(name="q", underlying_topic="orders"), [sized("orders", 3)]).ring_size == 3
    wide = Queue(name="q", underlying_topic="^in/", default_publish_target="in/nyc")
    assert settled_for(wide, [sized("in/nyc", 3)]).ring_size == 3


def test_queues_with_priorities_or_barriers_are_no_rings():
    settings = [AddressSetting(match="#", default_ring_size=3, max_delivery_attempts=2)]
    for elements in ({"priority": "/p"}, {"barrier_expression": "/end = 1"}):
        settled = settled_for(Queue(name="q", **elements), settings)
        assert (settled.ring_size, settled.max_deliveries) == (None, 2)


def test_queues_are_made_where_the_most_specific_word_on_it_is_yes():
    settings = [
        AddressSetting(match="#", auto_create_queues=True),
        AddressSetting(match="a.#", auto_create_queues=False),
    ]
    assert makes_queues(settings, "b")
    assert not makes_queues(settings, "a.b")
    assert not makes_queues([sized("#", 3)], "b")


# -- files


def test_settings_stand_in_a_file_before_the_queues():
    text = """
queues:
  - name: ring.a
address_settings:
  - match: ring.#
    default_ring_size: -1
    auto_create_queues: true
    redelivery_delay: 500ms
    redelivery_delay_multiplier: 2.5
    redelivery_collision_avoidance_factor: 0.5
    max_redelivery_delay: 10s
    max_delivery_attempts: -1
    expiry_delay: 1h
  - match: "#"
    default_ring_size: 10k
"""
    ring, every, queue = load(text)
    assert ring.elements() == {
        "name": "ring.#", "default_ring_size": -1, "auto_create_queues": True, "redelivery_delay": "500ms",
        "redelivery_delay_multiplier": 2.5, "redelivery_collision_avoidance_factor": 0.5, "max_redelivery_delay": "10s",
        "max_delivery_attempts": -1, "expiry_delay": "1h",
    }  # fmt: skip
    assert (every.match, every.default_ring_size) == ("#", 10_000)
    assert queue == Queue(name="ring.a")


def test_a_wrong_setting_of_a_file_is_told_with_its_line():
    text = "address_settings:\n  - match: a b\n  - default_ring_size: 3\n  - match: a\n    default_ring_size: 0\n"
    with pytest.raises(DefinitionError) as refusal:
        load(text)
    lines = str(refusal.value).splitlines()
    assert [line.split(": ")[0:3] for line in lines] == [
        ["<text>:2", "AddressSetting 'a b'", "match"],
        ["<text>:3", "AddressSetting without a name", "match"],
        ["<text>:5", "AddressSetting 'a'", "default_ring_size"],
    ]
