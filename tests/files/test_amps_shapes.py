"""Configurations of AMPS in the shapes that people have: taken as they are, with a reason for what has no effect."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from ampsq import Action, Destination, Do, If, Instance, On, Queue, ReplicatedTopic, Topic, Transport, View
from ampsq.base.errors import DefinitionError
from ampsq.files.config import load

FILES = Path(__file__).resolve().parents[1] / "data" / "amps"
ORDERS = [ReplicatedTopic(name="orders", message_type="json")]
MEANT = {
    "quickstart": [
        Instance(name="Javascript-QuickStart-Demo", label="Javascript QuickStart Demo"),
        Transport(name="any-tcp", client_message_age_limit="30s"),
        Topic(name="orders", key="/id"),
        Topic(name="documents", message_type="binary"),
        Topic(name="quotes", message_type="nvfix", field_separator="|", key="/symbol"),
        Topic(name="pictures", message_type="binary"),
    ],
    "replicated": [
        Instance(name="amps-1", group="New-York"),
        Transport(name="replication"),
        Destination(
            name="New-York", group="New-York", sync_type="sync", topics=ORDERS, addresses=["redis://localhost:9009"]
        ),
        Destination(
            name="New-York-2", group="New-York", sync_type="async", topics=ORDERS,
            addresses=["rediss://london-1:9009", "rediss://london-2:9009", "rediss://london-3:9009#amps-3"],
        ),
        Destination(
            name="tokyo-1-9009", sync_type="async", addresses=["redis://tokyo-1:9009"],
            topics=[ReplicatedTopic(name="pictures", message_type="binary")],
        ),
        Destination(
            name="paris-1", sync_type="async", topics=ORDERS, addresses=["rediss://link:secret@paris-1:6380#paris-1"]
        ),
    ],
    "older": [
        Instance(name="amps-old"),
        Topic(name="ORDERS", message_type="nvfix", key=["/55", "/109"]),
        Topic(name="TRADES", message_type="binary"),
        Topic(name="CUSTOMERS", key="/id"),
        View(name="TOTALS", underlying_topic="ORDERS", projection=["/55", "COUNT(/109) AS /n"], grouping=["/55"]),
    ],
    "maintained": [
        Instance(name="amps-kept"),
        Topic(name="quotes", key="/symbol"),
        Topic(name="orders", key="/id"),
        Topic(name="pictures", message_type="binary"),
        Queue(name="work"),
        Action(name="on-schedule-30-20", on=On.schedule(cron="30 20 * * *"), do=Do.delete(topic="quotes")),
        Action(
            name="on-schedule-20-30", on=On.schedule(every="20:30"),
            do=Do.delete(
                topic="orders",
                filter="/status IN ('filled', 'cancelled') AND LAST_UPDATED() < ({{AMPS_UNIX_TIMESTAMP}} - 86400)",
            ),
        ),
        Action(
            name="on-schedule-/15-8-18-1-15-jan-jun-MON-FRI", on=On.schedule(cron="*/15 8-18 1,15 jan-jun MON-FRI"),
            do=[Do.query(topic="orders", filter="/status = 'open'"), Do.echo(message="{{AMPS_DATA}}")],
        ),
        Action(
            name="on-expire-work", on=On.expire(topic="work"),
            if_=[If.condition(condition="/qty > 1"), If.condition(condition="/qty > 5")],
            do=[
                Do.echo(message="{{AMPS_DATA}}"),
                Do.translate(data="{{AMPS_REASON}}", value="WHY", default="late"),
            ],
        ),
    ],
    "opaque": [
        Topic(name="trades", message_type="binary"),
        Topic(name="notes"),
        Topic(name="frames", message_type="binary"),
        Queue(name="jobs", message_type="binary", lease_period="30s", recovery_point="now"),
        Action(name="on-publish-trades", on=On.publish(topic="trades"), do=Do.publish(topic="all-trades")),
    ],
}  # fmt: skip

NAMED = "here; a name has 1 to 255 of the characters A-Z a-z 0-9 _ . / -"
UNREAD = "is 'binary' here: bodies that expressions cannot read"
NO_RECORDS = "its bodies cannot be read, so that the topic keeps no records"
LINE_UP = "where the instance there has another name, say it behind # in InetAddr, as in redis://HOST:6379#amps-2"
SERVER = "that is another one than AMPS, and to say which, write its whole address, as in redis://HOST:6379#INSTANCE"
TAKEN = "Transport/InetAddr is taken for the server of the instance there"
NEITHER = "is not acted on, nor is its action"
FILE = "is not acted on; the server's append-only file persists everything; its folder and fsync are the server's"
MEMORY = "is not acted on; records are in the server's memory, which has nothing to set here"


MISSING = "no such file; allowed: a path from the file's own folder; nothing depends on it here"
OF_LOG = "it is for AMPS's log; an action is named by what sets it off, or by a Name of its own"
NO_QUEUE = "it is no queue; `sow_and_subscribe` tells of what leaves records and views"
BY_NAME = "an event is raised by its name, not by a variable"
CONTAINER = "a topic has its own definition, so that the topic is left out"


def variable(name):
    wish = f"allowed: set it, or give a default, as in ${{{name}:-...}}; $${{{name}}} is that text itself"
    return f"${{{name}}}: the environment has no {name}; {wish}; nothing depends on it here"


TOLD = {
    "quickstart": {
        4: [f"AMPSConfig/Name: 'Javascript QuickStart Demo' is 'Javascript-QuickStart-Demo' {NAMED}"],
        8: [f"Admin/FileName: {variable('DEMO_FOLDER')}"],
        15: ["MessageType/MessageType is not acted on; bodies of that type are not read here"],
        28: [f"Transport/Name: 'any tcp' is 'any-tcp' {NAMED}"],
        45: [
            f"Topic/FileName {FILE}",
            f"Topic/FileName: {variable('DEMO_FOLDER')}",
        ],
        49: [f"Topic/MessageType: 'compositejjjbl' {UNREAD}"],
        50: [f"Topic/Key is not acted on; {NO_RECORDS}"],
        51: ["Topic/Expiration is not acted on; a topic without a key keeps no records that could expire"],
        61: [f"Topic/MessageType: 'bson' {UNREAD}"],
        67: [f"Target/FileName: {variable('DEMO_FOLDER')}"],
        70: [f"Logging/Include: {variable('DEMO_FOLDER')}"],
        71: [f"Logging/Include: {FILES}/not-there.xml: {MISSING}"],
    },
    "replicated": {
        4: [f"AMPSConfig/Group: 'New York' is 'New-York' {NAMED}"],
        9: [f"Destination without Name is 'New-York', by its group; {LINE_UP}"],
        10: [f"Destination/Group: 'New York' is 'New-York' {NAMED}"],
        13: [f"{TAKEN}: redis://localhost:9009; {SERVER}"],
        15: [f"Destination without Name is 'New-York-2', by its group; {LINE_UP}"],
        21: [f"{TAKEN}: rediss://london-1:9009, rediss://london-2:9009; {SERVER}"],
        25: [f"Destination without Name is 'tokyo-1-9009', by its address; {LINE_UP}"],
        27: [f"Topic/MessageType: 'protobuf' {UNREAD}"],
        28: [f"{TAKEN}: redis://tokyo-1:9009; {SERVER}"],
        31: [f"Destination/Name: 'paris 1' is 'paris-1' {NAMED}"],
    },
    "older": {
        5: [
            f"TransactionLog/JournalDirectory {FILE}",
            f"TransactionLog/JournalDirectory: {variable('JOURNALS')}",
        ],
        15: [f"TopicDefinition/RecordSize {MEMORY}"],
        18: [f"TopicDefinition/MessageType: 'xml' {UNREAD}"],
        20: [f"TopicDefinition/Key is not acted on; {NO_RECORDS}"],
        27: [f"ViewDefinition/FileName {FILE}"],
        36: [f"TopicDefinition/SlabSize {MEMORY}"],
    },
    "maintained": {
        14: [f"Options/Name is not acted on; {OF_LOG}"],
        49: [f"Action/Topic: pictures {NEITHER}; the topic has no key here, and so no records"],
        55: [
            f"Action/Module: amps-action-do-compress-files {NEITHER}; files are not touched; `execute` runs a program"
        ],
        60: [f"Action/Topic: orders {NEITHER}; {NO_QUEUE}"],
        66: [f"Action/Module: amps-action-do-execute-event {NEITHER}; {BY_NAME}"],
        77: ["Action/If behind a Do: all conditions are looked at before anything is done"],
    },
    "opaque": {
        6: ["View over 'trades' is not acted on; expressions cannot read the bodies of that"],
        10: ["ConflatedTopic over 'trades' is not acted on; expressions cannot read the bodies of that"],
        11: ["ConflatedTopic over 'notes' is not acted on; that has no key by which changes are gathered"],
        15: ["Queue with Filter is not acted on; expressions cannot read its bodies, which are protobuf"],
        16: ["LocalQueue with Priority is not acted on; expressions cannot read its bodies, which are struct"],
        19: ["View over 'large-jobs' is not acted on; that is left out, too"],
        24: ["Topic/Expiration is not acted on; a topic without a key keeps no records that could expire"],
        26: [f"SOW/Topic with Pattern is not acted on; {CONTAINER}"],
        30: [f"Topic/MessageType: 'bflat' {UNREAD}"],
        35: [f"Action/Topic: large-jobs {NEITHER}; that is left out, too"],
        41: [f"Action/Topic: trades {NEITHER}; expressions cannot read its bodies"],
    },
}


@pytest.fixture
def warnings(caplog, monkeypatch):
    caplog.set_level(logging.WARNING, "ampsq")
    for name in ("DEMO_FOLDER", "JOURNALS", "LOG_FOLDER"):
        monkeypatch.delenv(name, raising=False)
    return lambda: [record.getMessage() for record in caplog.records]


def refusal(text):
    with pytest.raises(DefinitionError) as caught:
        load(text)
    return str(caught.value)


@pytest.mark.parametrize("name", MEANT)
def test_a_file_is_taken_as_it_is_and_tells_what_has_no_effect(name, warnings):
    path = FILES / f"{name}.xml"
    assert load(path) == MEANT[name]
    told = warnings()
    for line, texts in TOLD[name].items():
        assert [text for text in told if text.startswith(f"{path}:{line}: ")] == [
            f"{path}:{line}: {text}" for text in texts
        ]
    # What is not acted on has a reason, whatever it is
    assert [text for text in told if text.endswith("is not acted on")] == []
    assert "secret" not in "".join(told)


def test_no_file_is_left_out():
    assert {path.stem for path in FILES.glob("*.xml")} == MEANT.keys() == TOLD.keys()


@pytest.mark.parametrize("name", MEANT)
def test_a_file_is_applied_as_it_is(name, client):
    definitions = [each for each in load(FILES / f"{name}.xml") if not isinstance(each, Instance)]
    client.apply(*definitions)
    assert {(type(each), each.name) for each in definitions} <= {
        (type(each), each.name) for each in client.admin.definitions()
    }


def test_what_is_acted_on_needs_its_variables(warnings, monkeypatch):
    text = """<SOW>
      <Queue><Name>work</Name><LeasePeriod>${LEASE}</LeasePeriod><MaxCancels>many</MaxCancels></Queue>
      <Topic><Name>orders</Name><FileName>${SOW}</FileName><Key>/id</Key></Topic>
    </SOW>"""
    assert refusal(text).startswith("<text>:2: LeasePeriod: ${LEASE}: the environment has no LEASE; allowed: set it")
    assert warnings() == []
    monkeypatch.setenv("LEASE", "5s")
    assert refusal(text).startswith("<text>:2: Queue 'work': max_cancels: 'many' is not a count")
    assert load(text.replace("many", "3"))[1] == Queue(name="work", lease_period="5s", max_cancels=3)


def test_a_variable_that_is_none_is_told_where_it_has_no_effect_too(warnings):
    assert load("<SOW><Topic><Name>a</Name>\n<FileName>${1}</FileName></Topic></SOW>") == [Topic(name="a")]
    assert warnings()[1].startswith("<text>:2: Topic/FileName: '${1}' is no variable; allowed: ${NAME}")


def test_an_action_that_is_left_out_needs_no_variables(warnings):
    text = """<Action><On><Module>amps-action-on-signal</Module><Options><Signal>${SIGNAL}</Signal></Options></On>
      <Do><Module>amps-action-do-echo-message</Module><Options><Message>m</Message></Options></Do></Action>\n"""
    assert load(text) == []
    assert len(warnings()) == 1


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("9009", "redis://localhost:9009"),
        (":9009", "redis://localhost:9009"),
        ("9009#amps-2", "redis://localhost:9009#amps-2"),
        (" london : 9009 ".replace(" : ", ":"), "redis://london:9009"),
        ("[::1]:9009", "redis://[::1]:9009"),
    ],
)
def test_addresses_are_meant_as_amps_means_them(text, address):
    (found,) = load(
        f"""<Destination><Group>NYC</Group><SyncType>sync</SyncType><Topic><Name>a</Name></Topic>
        <Transport><InetAddr>{text}</InetAddr></Transport></Destination>"""
    )
    assert [each.text for each in found.addresses] == [address]
    assert found.name == "NYC"


def test_a_destination_of_which_nothing_is_known_is_refused():
    text = "<Destination><SyncType>sync</SyncType><Topic><Name>a</Name></Topic></Destination>\n"
    assert refusal(text).startswith("<text>:1: Destination without a name: name: missing")


def test_a_password_of_an_address_is_not_told(warnings):
    load(
        """<Destination><Name>nyc</Name><SyncType>sync</SyncType><Topic><Name>a</Name></Topic>
        <Transport><InetAddr>link:secret@nyc:6379</InetAddr></Transport></Destination>"""
    )
    assert len(warnings()) == 1
    assert "secret" not in warnings()[0]


@pytest.mark.parametrize(
    ("type_of", "what"), [("jsn", "'jsn' is not known; allowed: 'json'"), ("", "'' is not known; allowed: 'json'")]
)
def test_a_message_type_that_nobody_knows_is_refused(type_of, what):
    text = f"<SOW><Topic><Name>a</Name><MessageType>{type_of}</MessageType></Topic></SOW>"
    assert f"<text>:1: Topic 'a': message_type: {what}" in refusal(f"{text}\n")


def test_a_type_that_the_file_defines_stands_for_its_module(warnings):
    text = """<AMPSConfig><MessageTypes>
      <MessageType><Name>last</Name><Module>json</Module>
        <EarlyTerminationOptimization>false</EarlyTerminationOptimization></MessageType>
      <MessageType><Name>fix-semicolon</Name><Module>fix</Module><FieldSeparator>59</FieldSeparator></MessageType>
      <MessageType><Name>people</Name><Module>protobuf</Module><ProtoPath>p;/protos</ProtoPath>
        <ProtoFile>p/person.proto</ProtoFile><Type>People.Message</Type></MessageType>
      <MessageType><Name>ours</Name><Module>our-module</Module></MessageType>
    </MessageTypes><TransactionLog>
      <Topic><Name>a</Name><MessageType>last</MessageType></Topic>
      <Topic><Name>b</Name><MessageType>fix-semicolon</MessageType></Topic>
      <Topic><Name>c</Name><MessageType>people</MessageType></Topic>
      <Topic><Name>d</Name><MessageType>ours</MessageType></Topic>
      <Topic><Name>.*</Name><MessageType>ours</MessageType></Topic>
    </TransactionLog></AMPSConfig>"""
    assert load(text) == [
        Topic(name="b", message_type="fix", field_separator=";"),
        Topic(name="c", message_type="binary"),
        Topic(name="d", message_type="binary"),
    ]
    assert [text for text in warnings() if text.endswith("is not acted on")] == []


def test_one_schedule_has_one_timetable():
    text = """<Action><On><Module>amps-action-on-schedule</Module>
      <Options><Every>1h</Every><Crontab>* * * * *</Crontab></Options></On>
      <Do><Module>amps-action-do-echo-message</Module><Options><Message>m</Message></Options></Do></Action>\n"""
    assert "schedule: cron: goes with no every; allowed: one of both" in refusal(text)
    wrong = text.replace("<Every>1h</Every>", "").replace("* * * * *", "61 * * * *")
    assert "schedule: cron: '61 * * * *': minute: '61' is none; allowed: five fields" in refusal(wrong)


def test_whatever_amps_documents_is_acted_on_or_has_a_reason_and_the_rest_is_applied(warnings, client):
    loaded = load(FILES.parent / "amps-documented.xml")
    told = [text.split(": ", 1)[1] for text in warnings()]
    assert len([text for text in told if " is not acted on; " in text]) > 60
    assert [text for text in told if text.endswith("is not acted on")] == []
    # What has no state here that an action could be about
    assert [text.partition("; ")[2] for text in told if NEITHER in text] == [
        "it is no queue; deliveries of queues alone are recorded",
        "it records nothing: its underlying topic does",
        "it records nothing: its underlying topic does",
    ]
    assert f"Options/Event: 'two words' is 'two-words' {NAMED}" in told
    client.apply(*(each for each in loaded if not isinstance(each, Instance)))
    assert sorted(client.admin.actions()) == sorted(each.name for each in loaded if isinstance(each, Action))
    assert {"on-timeout-customers", "on-event-two-words", "on-schedule-3s"} <= client.admin.actions().keys()


def test_a_view_or_a_conflated_topic_has_nothing_to_delete(warnings):
    text = """<AMPSConfig><SOW><Topic><Name>a</Name><Key>/id</Key></Topic><Queue><Name>work</Name></Queue>
      <View><Name>rows</Name><UnderlyingTopic>a</UnderlyingTopic>
      <Projection><Field>COUNT(/id) AS /n</Field></Projection></View></SOW><Actions><Action>
      <On><Module>amps-action-on-schedule</Module><Options><Every>1h</Every></Options></On>
      <Do><Module>amps-action-do-delete-sow</Module><Options><Topic>rows</Topic></Options></Do></Action>
      </Actions></AMPSConfig>"""
    assert [type(each) for each in load(text)] == [Topic, Queue, View]
    assert f"<text>:5: Action/Topic: rows {NEITHER}; it is no topic: what it shows is its topic's" in warnings()
    # What the file does not have may be at the server
    assert isinstance(load(text.replace("<Topic>rows<", "<Topic>others<"))[3], Action)
    assert isinstance(load(text.replace("<Topic>rows<", "<Topic>work<"))[3], Action)
