"""Address settings: which names they match, which counts, what they make of a queue; and broker.xml."""

from __future__ import annotations

import logging

import pytest

from ampsq import AddressSetting, Queue, Topic
from ampsq.base.errors import DefinitionError
from ampsq.definitions.address_setting import makes_queues, settled_for
from ampsq.files.config import load

# The two pieces of configuration of Artemis's document on ring queues, as they are.
MY_RING = """\
<addresses>
<address name="myRing">
<anycast>
<queue name="myRing" ring-size="3" />
</anycast>
</address>
</addresses>
"""
RINGS = """\
<address-settings>
<address-setting match="ring.#">
<default-ring-size>3</default-ring-size>
</address-setting>
</address-settings>
"""
ADDRESS = '<addresses>\n<address name="a"><anycast><queue name="a" {}/></anycast></address></addresses>'
HINT = "define an action for each queue: dead_letter: {queue: ..., topic: ...}"
BROKER = """\
<?xml version='1.0'?>
<!-- Comments say nothing. -->
<configuration xmlns="urn:activemq" xmlns:xi="http://www.w3.org/2001/XInclude">
  <core xmlns="urn:activemq:core">
    <name>0.0.0.0</name>
    <persistence-enabled>true</persistence-enabled>
    <xi:include href="more.xml"/>
    <address-settings>
      <address-setting match="activemq.management.#">
        <auto-create-queues>false</auto-create-queues>
      </address-setting>
      <address-setting match="#">
        <dead-letter-address>DLQ</dead-letter-address>
        <page-size-bytes>10M</page-size-bytes>
        <max-delivery-attempts>5</max-delivery-attempts>
        <redelivery-delay>5000</redelivery-delay>
        <redelivery-delay-multiplier>1.5</redelivery-delay-multiplier>
        <redelivery-collision-avoidance-factor>0.15</redelivery-collision-avoidance-factor>
        <max-redelivery-delay>50000</max-redelivery-delay>
        <expiry-delay>60000</expiry-delay>
      </address-setting>
      <address-setting match="ring.#">
        <page-size-bytes>10M</page-size-bytes>
        <default-ring-size>100</default-ring-size>
        <max-delivery-attempts>-1</max-delivery-attempts>
        <expiry-delay>-1</expiry-delay>
      </address-setting>
    </address-settings>
    <addresses>
      <address name="news"><multicast/></address>
      <address name="orders">
        <anycast><queue name="work" max-consumers="1"><durable>true</durable></queue></anycast>
      </address>
    </addresses>
  </core>
</configuration>
"""


@pytest.fixture
def warnings(caplog):
    def texts():
        return [record.getMessage() for record in caplog.records if record.name == "ampsq"]

    with caplog.at_level(logging.WARNING, "ampsq"):
        yield texts


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


# -- broker.xml


def setting(inner):
    return f'<address-settings><address-setting match="a">{inner}</address-setting></address-settings>\n'


def test_the_address_of_the_document_is_a_ring_of_three(warnings):
    assert load(MY_RING) == [Queue(name="myRing", ring_size=3)]
    assert warnings() == []


def test_the_address_setting_of_the_document_makes_rings_of_three(warnings):
    assert load(RINGS) == [AddressSetting(match="ring.#", default_ring_size=3, auto_create_queues=True)]
    assert warnings() == []


def test_a_whole_broker_xml_is_read_and_what_is_not_acted_on_is_named_once(tmp_path, warnings):
    path = tmp_path / "broker.xml"
    path.write_text(BROKER)
    assert load(path) == [
        Topic(name="news"),
        AddressSetting(match="activemq.management.#", auto_create_queues=False),
        AddressSetting(
            match="#",
            auto_create_queues=True,
            max_delivery_attempts=5,
            redelivery_delay="5s",
            max_redelivery_delay="50s",
            redelivery_delay_multiplier=1.5,
            redelivery_collision_avoidance_factor=0.15,
            expiry_delay="1m",
        ),
        AddressSetting(
            match="ring.#", auto_create_queues=True, default_ring_size=100, max_delivery_attempts=-1, expiry_delay=-1
        ),
        Queue(name="work", underlying_topic="orders"),
    ]  # fmt: skip
    told = [text.removeprefix(f"{path}:") for text in warnings()]
    assert told == [
        "5: core/name is not acted on",
        "6: core/persistence-enabled is not acted on",
        "7: core/{http://www.w3.org/2001/XInclude}include is not acted on",
        f"13: address-setting/dead-letter-address is not acted on; {HINT}",
        "14: address-setting/page-size-bytes is not acted on",
        "32: queue/@max-consumers is not acted on",
        "32: queue/durable is not acted on",
    ]


@pytest.mark.parametrize(
    ("queue", "settings", "has_groups"),
    [
        ('group-buckets="1024"', "", True),
        ('group-rebalance="true" group-rebalance-pause-dispatch="true"', "", True),
        ('group-first-key="JMSXGroupFirstForConsumer"', "", True),
        # As by default, or none at all.
        ('group-buckets="-1" group-rebalance="false"', "", False),
        ('group-buckets="0" group-rebalance="true"', "", False),
        ("", "<default-group-buckets>64</default-group-buckets>", True),
        ("", "<default-group-rebalance>true</default-group-rebalance>", True),
        ('group-buckets="0"', "<default-group-buckets>64</default-group-buckets>", False),
        ('group-rebalance="true"', "<default-group-buckets>0</default-group-buckets>", False),
    ],
)
@pytest.mark.parametrize("comes_first", ["addresses", "settings"])
def test_a_queue_whose_groups_the_file_says_something_of_has_those_that_publishers_name(
    queue, settings, has_groups, comes_first
):
    parts = [
        f'<addresses><address name="a.b"><multicast><queue name="q" {queue}/></multicast></address></addresses>',
        f'<address-settings><address-setting match="a.#">{settings}</address-setting></address-settings>',
    ]
    found = load(f"<core>{''.join(parts if comes_first == 'addresses' else parts[::-1])}</core>\n")
    (made,) = [each for each in found if isinstance(each, Queue)]
    expected = {"group_concurrency": 1} if has_groups else {}
    assert made == Queue(name="q", underlying_topic="a.b", **expected)


def test_of_settings_that_say_something_of_groups_the_most_specific_one_counts():
    text = """<core><address-settings>
      <address-setting match="#"><default-group-buckets>9</default-group-buckets></address-setting>
      <address-setting match="a.*"><default-group-buckets>0</default-group-buckets></address-setting>
      <address-setting match="a.b"><default-group-rebalance>true</default-group-rebalance></address-setting>
      </address-settings><addresses>
      <address name="x"><anycast><queue name="x"/></anycast></address>
      <address name="a.b"><anycast><queue name="a.b"/></anycast></address>
      <address name="y"><anycast><queue name="y"><group-buckets>0</group-buckets></queue></anycast></address>
    </addresses></core>"""
    queues = [each for each in load(text) if isinstance(each, Queue)]
    assert [(each.name, each.is_grouped) for each in queues] == [("x", True), ("a.b", False), ("y", False)]


def test_what_is_different_about_groups_is_said_once(warnings):
    text = """<core>
      <grouping-handler name="h"><type>LOCAL</type></grouping-handler>
      <address-settings>
      <address-setting match="b"><default-group-buckets>9</default-group-buckets></address-setting>
      <address-setting match="c"><default-group-buckets>9</default-group-buckets></address-setting>
      </address-settings>
      <addresses>
      <address name="a"><anycast><queue name="a" group-first-key="first" group-rebalance="true"/></anycast></address>
      <address name="b"><anycast><queue name="b"/></anycast></address>
      </addresses>
    </core>"""
    load(text)
    expected = [
        "<text>:2: core/grouping-handler is not acted on; ",
        "<text>:4: defaults of groups count for the queues of this file alone: ",
        "<text>:8: a group stays with one consumer in Artemis, ",
        "<text>:8: group-first-key is not acted on: ",
    ]
    assert len(warnings()) == len(expected)
    assert all(told.startswith(begin) for told, begin in zip(warnings(), expected, strict=True))


def test_what_says_nothing_of_making_queues_takes_it_from_the_setting_around_it():
    text = """<address-settings>
      <address-setting match="a.#"><auto-create-queues>false</auto-create-queues></address-setting>
      <address-setting match="a.*"/><address-setting match="*.a"/>
    </address-settings>"""
    assert [(setting.match, setting.auto_create_queues) for setting in load(text)] == [
        ("a.#", False), ("a.*", None), ("*.a", True),
    ]  # fmt: skip


def test_queues_that_would_share_messages_are_told_of(warnings):
    text = """<addresses><address name="a"><anycast><queue name="a"/><queue name="b"/></anycast></address>
      <address name="c"><multicast><queue name="d"/><queue name="e"/></multicast></address></addresses>"""
    assert [(queue.name, queue.underlying_topic) for queue in load(text)] == [
        ("a", "a"), ("b", "a"), ("d", "c"), ("e", "c"),
    ]  # fmt: skip
    assert [text.partition("address ")[2] for text in warnings()] == [
        "'a': its anycast queues share its messages in Artemis; here each gets all of them"
    ]


def test_warnings_come_in_the_order_of_the_file(warnings):
    text = """<core>
      <address-settings>
        <address-setting match="bad match"/>
        <address-setting match="a"><page-size>3</page-size></address-setting>
      </address-settings>
      <journal-type/>
      <addresses><address name="a"><anycast><queue name="a"/><queue name="b"/></anycast></address></addresses>
    </core>"""
    load(text)
    assert [told.split(":")[1] for told in warnings()] == ["3", "4", "6", "7"]


def test_a_match_that_no_name_has_is_named(warnings):
    text = '<address-settings><address-setting match="activemq.management#"/></address-settings>'
    assert load(text + "\n") == []
    (told,) = warnings()
    assert "'activemq.management#'" in told
    assert "not acted on" in told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('<!DOCTYPE a [<!ENTITY b "c">]>\n<addresses/>', "<text>:1: a document type is not read"),
        ('<!DOCTYPE a SYSTEM "file:///etc/passwd">\n<addresses/>', "<text>:1: a document type is not read"),
        ("<addresses>\n&x;</addresses>", "<text>:2: not XML: undefined entity"),
        ("<addresses>\n", "<text>:2: not XML"),
        ("<settings/>\n", "<text>:1: 'settings' is no part of a broker.xml; allowed: configuration, core"),
        ("<addresses>\n<address/></addresses>", "<text>:2: address: name: missing"),
        (
            '<addresses>\n<address name="a"><anycast><queue name="a b"/></anycast></address></addresses>',
            "<text>:2: Queue 'a b': name: 'a b' is not a name",
        ),
        (
            '<addresses>\n<address name="a"><anycast><queue name="a" ring-size="x"/></anycast></address></addresses>',
            "<text>:2: ring-size: 'x' is not known; allowed: a number",
        ),
        (
            ADDRESS.format('group-buckets="-2"'),
            "<text>:2: group-buckets: '-2' is not known; allowed: -1 for no limit, 0 for no groups",
        ),
        (
            ADDRESS.format('ring-size="3" group-buckets="8"'),
            "<text>:2: Queue 'a': ring_size: does not go with",
        ),
        (
            setting("<default-group-rebalance>yes</default-group-rebalance>"),
            "<text>:1: default-group-rebalance: 'yes' is not known; allowed: true or false",
        ),
        (
            setting("\n<auto-create-queues>yes</auto-create-queues>"),
            "<text>:2: auto-create-queues: 'yes' is not known; allowed: true or false",
        ),
        (
            setting("<default-ring-size>0</default-ring-size>"),
            "<text>:1: AddressSetting 'a': default_ring_size: 0 is too small",
        ),
    ],
)
def test_a_wrong_file_is_told_with_its_line(text, told):
    with pytest.raises(DefinitionError) as refusal:
        load(text)
    assert str(refusal.value).startswith(told)
