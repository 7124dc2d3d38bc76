"""Destinations and the instance: in Python, in YAML and in a configuration file of AMPS; and no password is shown."""

from __future__ import annotations

import logging

import pytest
from refusing import refusal

from ampsq import Destination, Instance, ReplicatedTopic, Transport
from ampsq.base.errors import DefinitionError
from ampsq.base.message_types import JSON, MessageType
from ampsq.base.values import Interval
from ampsq.definitions.destination import Address
from ampsq.definitions.queue import GroupLocalQueue, LocalQueue, Queue
from ampsq.files.config import load

SECRET = "rediss://amps:s3cret@nyc-2:6379/1?ssl_ca_certs=/etc/ca.pem#nyc-2"  # noqa: S105

#: The first example of the chapter, and what the others add to it.
EXAMPLE = """<AMPSConfig>
    <Name>amps-1</Name>
    <Group>DataCenter-NYC-1</Group>
    ...
    <Transports>
        <Transport>
            <Name>amps-replication</Name>
            <Type>amps-replication</Type>
            <InetAddr>10004</InetAddr>
        </Transport>
    </Transports>
    <Replication>
        <Destination>
            <Topic>
                <MessageType>fix</MessageType>
                <Name>topic</Name>
            </Topic>
            <Name>amps-2</Name>
            <Group>DataCenter-NYC-1</Group>
            <SyncType>sync</SyncType>
            <Transport>
                <InetAddr>amps-2-server.example.com:10005</InetAddr>
                <Type>amps-replication</Type>
            </Transport>
        </Destination>
    </Replication>
    ...
</AMPSConfig>
"""
#: The one of passing on, and of checks that are left out.
PASSING = """<AMPSConfig><Replication><Destination>
  <Name>AMPS2-HKG</Name>
  <Transport>
    <Name>amps-replication</Name>
    <Type>amps-replication-secure</Type>
    <InetAddr>secondaryhost:10010#hkg-2</InetAddr>
    <InetAddr>redis://third</InetAddr>
    <ReconnectTimeout>5s</ReconnectTimeout>
    <Authenticator><Module>amps-default-authenticator-module</Module></Authenticator>
  </Transport>
  <Topic><Name>/rep_topic</Name><MessageType>fix</MessageType></Topic>
  <Topic>
    <MessageType>json</MessageType><Name>MyStuff.*</Name><Filter>/a > 1</Filter>
    <ExcludeValidation>replicate,cascade</ExcludeValidation>
  </Topic>
  <SyncType>sync</SyncType>
  <PassThrough>^NYC</PassThrough>
  <PassThrough>LDN</PassThrough>
  <Compression>true</Compression>
  <AckConflationInterval>100ms</AckConflationInterval>
</Destination></Replication></AMPSConfig>
"""
AUTHENTICATOR = (
    "Transport/Authenticator is not acted on; give the credentials in InetAddr, as in rediss://user:password@host:port"
)
CONNECTIONS = "clients connect to the server, whose configuration says where it listens"
TAKEN = "Transport/InetAddr is taken for the server of the instance there"
SERVER = "that is another one than AMPS, and to say which, write its whole address, as in redis://HOST:6379#INSTANCE"
COMPRESSION = (
    "Destination/Compression is not acted on; a link is a connection of the server's protocol, which has no compression"
)


def destination(**elements):
    return Destination(**{"name": "nyc-2", "sync_type": "sync", "topics": ["orders"], **elements})


# --- elements


def test_a_destination_is_as_by_default():
    made = destination()
    assert made.topics == (ReplicatedTopic(name="orders"),)
    assert (made.group, made.addresses, made.pass_through, made.peers) == (None, (), (), ())
    assert (made.reconnect_timeout, made.ack_conflation_interval) == (Interval.parse("10s"), Interval(0))
    assert made.to_json() == '{"name":"nyc-2","sync_type":"sync","topics":[{"name":"orders"}]}'


def test_topics_are_names_mappings_or_themselves_and_one_may_stand_alone():
    topic = ReplicatedTopic(name="orders", exclude_validation="cascade, replicate")
    assert topic.exclude_validation == ("replicate", "cascade")
    given = {"name": "orders", "exclude_validation": ["cascade", "replicate"]}
    assert destination(topics=[topic]) == destination(topics=given) == destination(topics=(given,))


def test_what_is_stored_is_read_back_with_its_passwords():
    made = destination(
        group="NYC", topics=[{"name": "o.*", "message_type": "json", "filter": "/a = 1"}, "work"], addresses=[SECRET],
        reconnect_timeout="1m", pass_through=["^NYC"], compression="zlib", ack_conflation_interval="1s",
    )  # fmt: skip
    assert Destination.from_json(made.to_json()) == made
    assert "s3cret" in made.to_json()
    assert made.peers == ((SECRET.removesuffix("#nyc-2"), "nyc-2"),)


@pytest.mark.parametrize(
    ("elements", "text"),
    [
        ({"sync_type": None}, "sync_type: missing; allowed: 'sync' or 'async'"),
        ({"sync_type": "both"}, "sync_type: 'both' is not known; allowed: 'sync' or 'async'"),
        ({"topics": None}, "topics: missing; allowed: at least one"),
        ({"topics": []}, "topics: missing; allowed: at least one"),
        ({"topics": ["a", "("]}, r"topics[1]: name: '(' is not a regular expression"),
        ({"topics": [3]}, "topics[0]: 3 is no topic; allowed: its elements"),
        ({"topics": ["a", "a"]}, "topics: 'a' is there twice; allowed: once"),
        ({"topics": [{"name": "a", "filtr": "/a"}]}, "topics[0]: filtr: no such element; did you mean 'filter'?"),
        ({"topics": [{"filter": "/a"}]}, "topics[0]: name: missing"),
        ({"topics": [{"name": "a", "filter": "UNIX_TIMESTAMP() > 1"}]}, "topics[0]: filter: 'UNIX_TIMESTAMP"),
        (
            {"topics": [{"name": "a", "filter": "/a", "message_type": "binary"}]},
            "topics[0]: filter: reads the body, and message_type 'binary'",
        ),
        (
            {"topics": [{"name": "a", "exclude_validation": "cascade,queue"}]},
            "topics[0]: exclude_validation: 'queue' cannot be left out",
        ),
        ({"topics": [{"name": "a", "exclude_validation": ["queue_underlying"]}]}, "'queue_underlying' cannot be"),
        (
            {"topics": [{"name": "a", "exclude_validation": ["casade"]}]},
            "'casade' is no check; allowed: txlog, replicate, sow, cascade, keys, replicate_filter, queue_passthrough",
        ),
        ({"pass_through": ["("]}, r"pass_through: '(' is not a regular expression (missing ), unterminated subpattern"),
        ({"pass_through": 3}, "pass_through: 3 is not a list"),
        ({"group": "a b"}, "group: 'a b' is not a name"),
        ({"reconnect_timeout": "soon"}, "reconnect_timeout: 'soon' is not an interval"),
        ({"adresses": []}, "adresses: no such element; did you mean 'addresses'?"),
    ],
)
def test_a_wrong_element_is_refused_with_what_is_allowed(elements, text):
    given = {"name": "nyc-2", "sync_type": "sync", "topics": ["orders"], **elements}
    assert text in refusal(Destination, **given)


def test_all_faults_are_told_at_once():
    text = refusal(Destination, name="nyc-2", topics=["(", ")"], addresses=["nyc", "redis://a"], group="!")
    assert text.startswith("Destination 'nyc-2' has 5 faults:")
    assert all(part in text for part in ("sync_type: ", "topics[0]: ", "topics[1]: ", "addresses[0]: ", "group: "))


# --- addresses


def test_an_address_names_a_server_and_an_instance_by_default_that_of_the_destination():
    made = destination(addresses=["redis://one", "redis://two:6380/3#nyc-3", "sentinel://a,b/primary#x"])
    assert made.peers == (
        ("redis://one", "nyc-2"), ("redis://two:6380/3", "nyc-3"), ("sentinel://a,b/primary", "x"),
    )  # fmt: skip


@pytest.mark.parametrize(
    "address",
    [
        "nyc-2:6379", "http://nyc", "redis://one,redis://two", "", "redis://one#a b", "redis://one#", 3, None, ["a"],
        "redis://me:s3cret@one:port", "redis://me:s3c#ret@one", "redis://me:s3/cret@one#!", "http://me:s3cret@one",
        "redis://a,redis://me:s3cret@b", "redis://one?password=s3cret#,",
    ],
)  # fmt: skip
def test_an_address_that_cannot_be_read_is_refused_and_no_password_told(address):
    if address == "redis://one#":
        # Nothing behind the sign is no name.
        assert "is no instance's name" in refusal(
            Destination, name="n", sync_type="sync", topics="o", addresses=address
        )
        return
    text = refusal(Destination, name="n", sync_type="sync", topics="o", addresses=[address])
    assert "addresses[0]: " in text
    assert "the URL of a server (redis://, " in text or "a list with one an item" in text
    assert "s3c" not in text


def test_nothing_that_is_shown_has_a_password():
    made = destination(addresses=[SECRET, "redis://one?password=s3cret"])
    changed = made.changes_from(destination())
    for text in (repr(made), str(made), str(changed), str(made.addresses[0]), repr(Address.parse(SECRET))):
        assert "s3cret" not in text
        assert "amps:***@nyc-2" in text or "***@nyc-2" in text
    assert changed["addresses"][0] == []


# --- who is meant


def test_the_first_topic_that_matches_a_name_and_type_counts():
    made = destination(
        topics=[{"name": "orders", "message_type": "fix"}, {"name": "^ord", "filter": "/a = 1"}, {"name": ".*"}]
    )
    first, second, third = made.topics
    assert made.topic_for("orders", MessageType("fix")) is first
    assert made.topic_for("orders", JSON) is second
    assert made.topic_for("returns", JSON) is third
    assert destination().topic_for("orders-1", JSON) is None


def test_a_link_leads_to_the_instances_of_its_addresses_or_to_the_one_of_its_name_or_group():
    listed = destination(name="Chicago", group="Chicago", addresses=["redis://a#chi-1", "redis://b#chi-2"])
    assert [listed.leads_to(name, "Chicago") for name in ("chi-1", "chi-2", "chi-3", "Chicago")] == [1, 1, 0, 0]
    waiting = destination(group="NYC")
    assert [waiting.leads_to(*peer) for peer in (("nyc-2", "x"), ("nyc-3", "NYC"), ("nyc-3", "x"))] == [1, 1, 0]
    assert not destination().leads_to("nyc-3", "nyc-2")


def test_groups_are_passed_by_regular_expressions_found_anywhere():
    made = destination(pass_through=["^NYC", "LDN$"])
    assert [made.passes(group) for group in ("NYC", "NYC-1", "A-LDN", "LDN-1", "HKG")] == [1, 1, 1, 0, 0]
    assert not destination().passes("NYC")
    # As an example of AMPS has it: every group but one
    assert [destination(pass_through=["^((?!HKG).)*$"]).passes(group) for group in ("NYC", "HKG-1")] == [1, 0]


# --- the instance


def test_an_instance_has_a_group_and_is_itself_by_default():
    assert Instance().to_json() == '{"name":"*"}'
    assert Instance.from_json(Instance(group="NYC").to_json()) == Instance(group="NYC")
    assert Instance(label=" First of New York ").label == "First of New York"
    for label in ("", " ", "a\nb", "x" * 256, 5):
        assert "is no label; allowed: a text of up to 255 characters" in refusal(Instance, label=label)
    assert refusal(Instance, group="N Y").startswith("Instance: group: 'N Y' is not a name")
    assert refusal(Instance, name="nyc 1").startswith("Instance 'nyc 1': name: 'nyc 1' is no instance's name")


# --- files


def test_yaml_has_the_instance_at_its_top_and_a_section_for_each_kind():
    found = load("""\
name: nyc-1
group: NYC
message_disk_limit: 1MB
destinations:
  - name: nyc-2
    sync_type: sync
    group: NYC
    topics:
      - orders
      - {name: work, exclude_validation: [cascade, replicate]}
      - name: ^ret
        filter: /a > 1
        exclude_validation: replicate, cascade
    addresses: [redis://nyc-2:6379#nyc-2, rediss://me:s3cret@nyc-3]
    pass_through: [^LDN]
queues: [{name: work, underlying_topic: orders}]
local_queues: [{name: audit, underlying_topic: orders}]
group_local_queues: [{name: local, underlying_topic: orders, initial_owner: nyc-1, group_local_queue_domain: US}]
""")
    checks = ("replicate", "cascade")
    assert found == [
        Instance(name="nyc-1", group="NYC"),
        Transport(name="*", message_disk_limit="1MB"),
        Queue(name="work", underlying_topic="orders"),
        LocalQueue(name="audit", underlying_topic="orders"),
        GroupLocalQueue(
            name="local", underlying_topic="orders", initial_owner="nyc-1", group_local_queue_domain="US"
        ),
        Destination(
            name="nyc-2", sync_type="sync", group="NYC",
            topics=[
                "orders",
                ReplicatedTopic(name="work", exclude_validation=checks),
                ReplicatedTopic(name="^ret", filter="/a > 1", exclude_validation=checks),
            ],
            addresses=["redis://nyc-2:6379#nyc-2", "rediss://me:s3cret@nyc-3"], pass_through=["^LDN"],
        ),
    ]  # fmt: skip


def test_faults_of_a_file_have_their_lines_and_no_passwords():
    with pytest.raises(DefinitionError) as refused:
        load("""\
group: N Y
destinations:
  - name: nyc-2
    topics:
      - orders
      - name: (
    addresses:
      - http://me:s3cret@one
queues: [{name: work}]
local_queues:
  - name: work
""")
    lines = str(refused.value).splitlines()
    starts = [
        "<text>:1: group: 'N Y' is not a name",
        "<text>:3: Destination 'nyc-2': sync_type: missing",
        "<text>:6: Destination 'nyc-2': topics[1]: name: '(' is not a regular expression",
        "<text>:8: Destination 'nyc-2': addresses[0]: 'http://***@one' cannot be read",
        "<text>:11: LocalQueue 'work': defined twice, first at line 9",
    ]
    assert [line[: len(start)] for line, start in zip(lines, starts, strict=True)] == starts


def test_the_example_of_the_chapter_is_read_as_it_is(caplog):
    with caplog.at_level(logging.WARNING, "ampsq"):
        found = load(EXAMPLE)
    assert found == [
        Instance(name="amps-1", group="DataCenter-NYC-1"),
        Transport(name="amps-replication"),
        Destination(
            name="amps-2", group="DataCenter-NYC-1", sync_type="sync",
            topics=[ReplicatedTopic(name="topic", message_type="fix")],
            addresses=["redis://amps-2-server.example.com:10005"],
        ),
    ]  # fmt: skip
    # A server's address takes the place of AMPS's own; what the server listens to is its own matter
    assert [record.getMessage() for record in caplog.records] == [
        f"<text>:8: Transport/Type is not acted on; {CONNECTIONS}",
        f"<text>:9: Transport/InetAddr is not acted on; {CONNECTIONS}",
        f"<text>:22: {TAKEN}: redis://amps-2-server.example.com:10005; {SERVER}",
    ]


def test_all_elements_of_a_destination_of_amps_are_acted_on_or_named(caplog):
    with caplog.at_level(logging.WARNING, "ampsq"):
        (found,) = load(PASSING)
    assert found == Destination(
        name="AMPS2-HKG", sync_type="sync",
        topics=[
            ReplicatedTopic(name="/rep_topic", message_type="fix"),
            ReplicatedTopic(
                name="MyStuff.*", message_type="json", filter="/a > 1", exclude_validation=["replicate", "cascade"]
            ),
        ],
        addresses=["rediss://secondaryhost:10010#hkg-2", "redis://third"], reconnect_timeout="5s",
        pass_through=["^NYC", "LDN"], compression="true", ack_conflation_interval="100ms",
    )  # fmt: skip
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        "<text>:4: Transport/Name is not acted on; a link needs none",
        f"<text>:9: {AUTHENTICATOR}",
        f"<text>:19: {COMPRESSION}",
    ]


def test_wrong_destinations_of_amps_are_named_with_their_place():
    text = PASSING.replace("<SyncType>sync</SyncType>", "").replace("amps-replication-secure", "tcp")
    with pytest.raises(DefinitionError) as refused:
        load(text)
    destination, transport = str(refused.value).splitlines()
    assert destination == "<text>:1: Destination 'AMPS2-HKG': sync_type: missing; allowed: 'sync' or 'async'"
    assert transport.startswith("<text>:3: Destination: Transport: Type: 'tcp' is not known; allowed: amps-replication")
