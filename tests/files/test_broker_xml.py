"""Artemis's broker.xml: what becomes definitions, what is said of the rest, and what is refused."""

from __future__ import annotations

import logging

import pytest

from ampsq import AddressSetting, Queue, Topic
from ampsq.base.errors import DefinitionError
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


def test_of_two_settings_of_one_match_the_first_counts_as_in_artemis(warnings):
    text = RINGS.replace(
        "</address-settings>",
        '<address-setting match="ring.#">\n<default-ring-size>4</default-ring-size>\n</address-setting>\n'
        '<address-setting match="ring.a">\n<default-ring-size>5</default-ring-size>\n</address-setting>\n'
        "</address-settings>",
    )

    assert [(each.name, each.default_ring_size) for each in load(text)] == [("ring.#", 3), ("ring.a", 5)]
    assert warnings() == ["<text>:5: address-setting 'ring.#' is not acted on: that of line 2 counts, as in Artemis"]


def test_two_queues_of_one_name_are_refused_and_two_addresses_are_one_topic():
    twice = (
        '<addresses>\n<address name="{}"/>\n<address name="b">{}</address>\n<address name="b">{}</address></addresses>'
    )
    queue = '<multicast><queue name="z"/></multicast>'

    assert [each.name for each in load(twice.format("a", "", ""))] == ["a", "b"]
    with pytest.raises(
        DefinitionError, match=r"^<text>:4: Queue 'z': defined twice, first at line 3; allowed: once in a file$"
    ):
        load(twice.format("a", queue, queue))
