"""Configurations of AMPS as they are: the documents' examples, every element acted on or named, parts, inclusion."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest
from refusing import refusals

from ampsq import (
    Action,
    AddressSetting,
    ConflatedTopic,
    Destination,
    Do,
    GroupLocalQueue,
    Instance,
    LocalQueue,
    On,
    Queue,
    ReplicatedTopic,
    Topic,
    Transport,
    View,
)
from ampsq.base.errors import DefinitionError
from ampsq.definitions.action_parts import CONDITIONS, STEPS, TRIGGERS
from ampsq.files.amps_elements import ACTED_ON, MODULES, NOT_ACTED_ON, why_not
from ampsq.files.amps_xml import is_amps, read_amps_xml
from ampsq.files.config import load
from ampsq.files.xml_elements import parse_xml

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "tests" / "data" / "documents"
FIX = ReplicatedTopic(name="topic", message_type="fix")
SEVERAL = [
    Queue(
        name=f"ORDERS_{name}", underlying_topic=f"^ORDERS$|^ORDERS_{name}_DIRECT$",
        default_publish_target=f"ORDERS_{name}_DIRECT",
    )
    for name in ("ANALYTICS", "RISK")
]  # fmt: skip
PRIORITY = [Queue(name="OrderPriority", underlying_topic="Orders", priority="/price * /qty")]


def amps(number, other):
    return [
        Instance(name=f"amps-{number}", group="DataCenter-NYC-1"),
        Transport(name="amps-replication"),
        Destination(
            name=f"amps-{other}", group="DataCenter-NYC-1", sync_type="sync", topics=FIX,
            addresses=[f"redis://amps-{other}-server.example.com:{10006 - number if number == 1 else 10004}"],
        ),
    ]  # fmt: skip


MEANT = {
    "ring-size": [Queue(name="myRing", ring_size=3)],
    "default-ring-size": [AddressSetting(match="ring.#", default_ring_size=3, auto_create_queues=True)],
    "transaction-log": [],
    "simple-queue": [Queue(name="WorkToDo", underlying_topic="Work", semantics="at-most-once")],
    "priority": PRIORITY,
    "priority-5.3.4": PRIORITY,
    "unprocessed-queues": [Queue(name="Jobs", max_cancels=3, max_deliveries=10), Queue(name="FailedJobs")],
    "unprocessed-action": [
        Action(
            name="on-expire-Jobs",
            on=On.expire(topic="Jobs"),
            do=Do.publish(topic="FailedJobs", data='{ "message": {{AMPS_DATA}}, "reason": "{{AMPS_REASON}}" }'),
        )
    ],
    "multiple-topics": SEVERAL,
    "multiple-topics-5.3.4": SEVERAL,
    "replication-amps-1": amps(1, 2),
    "replication-amps-2": amps(2, 1),
    "pass-through": [
        Destination(
            name="AMPS2-HKG", sync_type="sync", addresses=["redis://secondaryhost:10010"], pass_through=["^NYC"],
            topics=[ReplicatedTopic(name=name, message_type="fix") for name in ("/rep_topic", "/rep_topic2")],
        )
    ],
    "downgrade": [
        Action(
            name="on-schedule-15s",
            on=On.schedule(every="15s"),
            do=[Do.downgrade_replication(age="60s"), Do.upgrade_replication(age="10s")],
        )
    ],
    "incoming-access": [Transport(name="amps-replication")],
    "outgoing-access": [
        Destination(name="amps-1", sync_type="async", topics=FIX, addresses=["redis://amps-1-server.example.com:10004"])
    ],
    "slow-clients": [
        Transport(
            name="*", message_memory_limit="10GB", message_disk_path="/mnt/fastio/AMPS/offline",
            client_message_age_limit="30s",
        ),
        Transport(name="regular-tcp"),
        Transport(name="low-priority-tcp", client_message_age_limit="15s", client_max_capacity="10%"),
    ],
}  # fmt: skip


@pytest.fixture
def warnings(caplog):
    caplog.set_level(logging.WARNING, "ampsq")
    return lambda: [record.getMessage() for record in caplog.records]


# --- the documents' examples


@pytest.mark.parametrize("name", MEANT)
def test_an_example_of_the_documents_is_taken_as_it_is(name):
    assert load(EXAMPLES / f"{name}.xml") == MEANT[name]


def test_no_example_is_left_out():
    # What has dots in the place of its name is no configuration; below, it is with these.
    assert {path.stem for path in EXAMPLES.glob("*.xml")} == {*MEANT, "exclude-validation"}


def test_the_example_with_dots_for_what_is_needed_is_told_what_that_is_and_right_with_it():
    path = EXAMPLES / "exclude-validation.xml"
    assert [line.split(": ")[2] for line in refusals(path)] == ["name", "sync_type"]
    whole = path.read_text().replace("...", "<Name>hkg</Name><SyncType>sync</SyncType>", 1)
    topic = ReplicatedTopic(name="MyStuff-VIEW", message_type="json", exclude_validation=["replicate", "cascade"])
    assert load(whole) == [Destination(name="hkg", sync_type="sync", topics=topic)]


def walked(element, path=""):
    below = f"{path}/{element.tag}".lstrip("/")
    yield below, element
    for child in element.children:
        yield from walked(child, below)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.xml")), ids=lambda path: path.stem)
def test_every_element_of_the_examples_is_acted_on_or_told_with_a_reason(path, warnings):
    root = parse_xml(path.read_text(), str(path))
    if not is_amps(root):
        load(path)
        assert warnings() == []
        return
    try:
        read_amps_xml(root, path)
    except DefinitionError:
        assert path.stem == "exclude-validation"
    unread = []
    for name, element in walked(root):
        if not element.is_read and not any(name.startswith(f"{other}/") for other in unread):
            assert why_not(f"AMPSConfig/{name}"), f"{path.name}:{element.line}: {name}"
            unread.append(name)
    # Whatever else is told is told of what is acted on.
    texts = [text for text in warnings() if "InetAddr is taken for the server" not in text]
    told = {text.split(" is not acted on; ")[0].split(": ", 1)[1] for text in texts}
    assert told == {"/".join(name.split("/")[-2:]) for name in unread}


# --- all other elements


@pytest.mark.parametrize("around", ACTED_ON)
def test_every_element_that_is_said_to_be_acted_on_is_one_of_a_definition(around):
    kinds = {
        "AMPSConfig": (Instance, Transport), "Transports/Transport": (Transport,), "TransactionLog/Topic": (Topic,),
        "SOW/ConflatedTopic": (ConflatedTopic,), "SOW/Topic": (Topic,), "SOW/Queue": (GroupLocalQueue,),
        "SOW/View": (View,),
        "Replication/Destination": (Destination,), "Destination/Topic": (ReplicatedTopic,),
        "Destination/Transport": (Destination,), "MessageTypes/MessageType": (Topic, Queue),
    }[around]  # fmt: skip
    known = {name for kind in kinds for name in kind.model_fields} | {"type"}
    assert set(ACTED_ON[around].values()) <= known


def test_all_kinds_of_a_sow_are_read(warnings):
    text = """<SOW>
      <Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key><Key>/day</Key><Expiration>1d</Expiration>
        <FileName>./sow/%n.sow</FileName><RecordSize>512</RecordSize></Topic>
      <TopicDefinition><Topic>positions</Topic><MessageType>nvfix</MessageType><Key>/55</Key>
        <Expiration>enabled</Expiration></TopicDefinition>
      <QueueDefinition><Topic>old</Topic><MessageType>json</MessageType></QueueDefinition>
      <LocalQueue><Name>local</Name><MessageType>json</MessageType><UnderlyingTopic>orders</UnderlyingTopic>
        <InitialOwner>amps-1</InitialOwner></LocalQueue>
      <GroupLocalQueue><Name>group</Name><UnderlyingTopic>orders</UnderlyingTopic><InitialOwner>amps-1</InitialOwner>
        <GroupLocalQueueDomain>east</GroupLocalQueueDomain></GroupLocalQueue>
      <View><Name>totals</Name><MessageType>json</MessageType><UnderlyingTopic>local</UnderlyingTopic>
        <Filter>/qty &gt; 0</Filter>
        <Projection><Field>/symbol</Field><Field>SUM(/price * /qty)
           AS /total</Field></Projection>
        <Grouping><Field>/symbol</Field></Grouping></View>
      <View><Name>joined</Name><UnderlyingTopic><Join>[a]./id = [b]./id</Join></UnderlyingTopic></View>
      <ConflatedTopic><Name>slow</Name><UnderlyingTopic>orders</UnderlyingTopic><Interval>250ms</Interval>
        <MessageType>json</MessageType><Filter>/qty &gt; 1</Filter></ConflatedTopic>
    </SOW>"""
    assert load(text) == [
        Topic(name="orders", key=["/id", "/day"], expiration="1d"),
        Topic(name="positions", message_type="nvfix", key="/55"),
        Queue(name="old"),
        LocalQueue(name="local", underlying_topic="orders"),
        GroupLocalQueue(
            name="group", underlying_topic="orders", initial_owner="amps-1", group_local_queue_domain="east"
        ),
        View(
            name="totals", underlying_topic="local", filter="/qty > 0", grouping=["/symbol"],
            projection=["/symbol", "SUM(/price * /qty) AS /total"],
        ),
        ConflatedTopic(name="slow", underlying_topic="orders", interval="250ms", filter="/qty > 1"),
    ]  # fmt: skip
    assert [text.partition("; ")[0] for text in warnings()] == [
        "<text>:3: Topic/FileName is not acted on",
        "<text>:3: Topic/RecordSize is not acted on",
        "<text>:8: LocalQueue/InitialOwner is not acted on",
        "<text>:11: View/MessageType is not acted on",
        "<text>:16: View/UnderlyingTopic/Join is not acted on",
        "<text>:18: ConflatedTopic/MessageType is not acted on",
    ]


def test_every_element_of_a_queue_is_read(warnings):
    given = {
        "UnderlyingTopic": "^a.*", "DefaultPublishTarget": "a", "Filter": "/x = 1", "Semantics": "at-least-once",
        "LeasePeriod": "1m", "Expiration": "1d", "ExpirationModel": "latest", "MaxBacklog": "10k",
        "MaxPerSubscriptionBacklog": "100", "MaxDeliveries": "5", "MaxCancels": "3", "FairnessModel": "fast",
        "Leasing": "strict", "TargetQueueDepth": "2000", "FileBackedMetadata": "enabled", "RecoveryPoint": "now",
        "DeferredAckExpiration": "2d", "MessageType": "msgpack", "Name": "work",
    }  # fmt: skip
    inner = "".join(f"<{tag}>{value}</{tag}>" for tag, value in given.items())
    names = ACTED_ON["SOW/Queue"]
    assert load(f"<Queue>{inner}</Queue>\n") == [Queue(**{names[tag]: value for tag, value in given.items()})]
    assert {*given, "Topic", "Priority", "BarrierExpression", "InitialOwner", "GroupLocalQueueDomain"} == set(names)
    assert warnings() == []


def test_what_the_transaction_log_records_is_recorded_anyway_and_has_its_message_type():
    text = """<AMPSConfig><TransactionLog>
      <Topic><Name>.*</Name><MessageType>json</MessageType></Topic>
      <Topic><Name>fixed</Name><MessageType>fix</MessageType></Topic>
      <Topic><Name>work</Name><MessageType>nvfix</MessageType></Topic>
      <Topic><Name>fixed</Name><MessageType>fix</MessageType></Topic>
    </TransactionLog><SOW><Queue><Name>work</Name><MessageType>nvfix</MessageType></Queue></SOW></AMPSConfig>"""
    assert load(text) == [Topic(name="fixed", message_type="fix"), Queue(name="work", message_type="nvfix")]


def test_an_element_that_nobody_knows_is_told_with_what_was_meant(warnings):
    load("<Queue><Name>a</Name>\n<LeasePerod>5s</LeasePerod>\n<Colour>red</Colour></Queue>")
    assert warnings() == [
        "<text>:2: Queue/LeasePerod is not acted on; did you mean 'LeasePeriod'?",
        "<text>:3: Queue/Colour is not acted on",
    ]


def test_what_the_server_refuses_has_the_line_of_its_element():
    loaded = load("<SOW>\n<Queue>\n<Name>a</Name>\n<Semantics>at-most-once</Semantics></Queue></SOW>")
    error = DefinitionError("Queue 'a': semantics: no")
    error.definition = loaded[0]
    assert loaded.placed(error) == "<text>:4: Queue 'a': semantics: no"


# --- actions


def action(on, do, options=""):
    return f"""<Action><On><Module>{on}</Module><Options>{options}</Options></On>
      <Do><Module>{do}</Module><Options><Message>m</Message></Options></Do></Action>"""


def test_actions_are_named_by_what_sets_them_off_and_the_name_stays_when_they_do_something_else():
    one = action("amps-action-on-publish-message", "amps-action-do-echo-message", "<Topic>^a.*$</Topic>")
    two = action("amps-action-on-connect-client", "amps-action-do-echo-message")
    text = f"<Actions>{one}{one.replace('>m<', '>n<')}{two}</Actions>"
    assert [each.name for each in load(text)] == ["on-publish-a", "on-publish-a-2", "on-connect"]
    named = one.replace("<Action>", "<Action><Name>mine</Name>")
    assert load(named + "\n")[0].name == "mine"


def test_conditions_lists_and_all_options_are_read(warnings):
    text = """<Action>
      <On><Module>amps-action-on-sow-expire-message</Module>
        <Options><Topic>work</Topic><Reason>max_cancels,time_limit</Reason></Options></On>
      <If><Module>amps-action-if-file-system-usage</Module>
        <Options><Path>/</Path><GreaterThan>90%</GreaterThan></Options></If>
      <Do><Module>amps-action-do-extract-values</Module>
        <Options><Value>A=/a</Value><Value>B=/b</Value><MessageType>json</MessageType></Options></Do>
      <Do><Module>amps-action-do-query-sow</Module><Options><Topic>limits</Topic><Filter>/a = '{{A}}'</Filter>
        <CaptureData>L</CaptureData><DefaultData>null</DefaultData><OrderBy>/limit DESC</OrderBy></Options></Do>
    </Action>"""
    (found,) = load(text)
    assert found.elements() == {
        "name": "on-expire-work",
        "on": [{"expire": {"topic": "work", "reason": ["max_cancels", "time_limit"]}}],
        "if": [{"file_system_usage": {"path": "/", "greater_than": 90}}],
        "do": [
            {"extract": {"value": ["A=/a", "B=/b"]}},
            {
                "query": {
                    "topic": "limits", "filter": "/a = '{{A}}'", "capture_data": "L", "default_data": "null",
                    "order_by": ["/limit DESC"],
                }
            },
        ],
    }  # fmt: skip
    assert [text.split("; ")[0] for text in warnings()] == ["<text>:7: Options/MessageType is not acted on"]


def test_a_time_out_goes_by_the_key_of_its_topic_as_in_amps():
    timed = "<Topic>orders</Topic><Duration>5s</Duration><Filter>/status = 'PENDING'</Filter>"
    one = action("amps-action-on-message-condition-timeout", "amps-action-do-echo-message", timed)
    text = (
        f"<AMPSConfig><SOW><Topic><Name>orders</Name><Key>/id</Key></Topic></SOW><Actions>{one}</Actions></AMPSConfig>"
    )
    assert load(text)[1].on[0].key == ("/id",)


def test_an_action_with_a_module_that_there_is_nothing_for_is_left_out_and_told(warnings):
    one = action("amps-action-on-schedule", "amps-action-do-rotate-logs", "<Every>1d</Every>")
    two = action("amps-action-on-my-own", "amps-action-do-echo-message")
    assert load(
        f"<Actions>\n{one}\n{two}\n{action('amps-action-on-connect-client', 'amps-action-do-echo-message')}</Actions>"
    )
    neither = "is not acted on, nor is its action"
    assert warnings() == [
        f"<text>:3: Action/Module: amps-action-do-rotate-logs {neither}; logs go to standard error",
        f"<text>:4: Action/Module: amps-action-on-my-own {neither}; no such module is known",
    ]


def test_a_module_is_acted_on_or_not():
    ours = {kind.module for kinds in (TRIGGERS, STEPS, CONDITIONS) for kind in kinds.values()}
    assert not ours & set(MODULES)


# --- files


def test_files_are_included_in_their_place_with_the_environment_s_values(tmp_path, monkeypatch, warnings):
    monkeypatch.setenv("GROUP", "NYC")
    (tmp_path / "parts").mkdir()
    (tmp_path / "amps.xml").write_text(
        "<AMPSConfig><Name>${NAME:-amps-1}</Name><Group>${GROUP}</Group><MessageDiskPath>${AMPS_CONFIG_DIRECTORY}/off"
        "</MessageDiskPath>\n<SOW><Include>parts/queues.xml</Include></SOW>\n<Include>parts/rest.xml</Include></AMPSConfig>"
    )
    (tmp_path / "parts" / "queues.xml").write_text(
        "<?xml version='1.0'?>\n<Queue><Name>a</Name></Queue>\n<Queue><Name>b</Name><Odd/></Queue>\n"
    )
    (tmp_path / "parts" / "rest.xml").write_text("<AMPSConfig><Include>more.xml</Include></AMPSConfig>")
    (tmp_path / "parts" / "more.xml").write_text("<SOW><Queue><Name>c</Name></Queue></SOW>")
    loaded = load(tmp_path / "amps.xml")
    assert loaded == [
        Instance(name="amps-1", group="NYC"),
        Transport(name="*", message_disk_path=str(tmp_path / "off")),
        *(Queue(name=name) for name in "abc"),
    ]
    assert loaded.place(loaded[-1]) == f"{tmp_path}/parts/more.xml:1"
    assert warnings() == [f"{tmp_path}/parts/queues.xml:3: Queue/Odd is not acted on"]


def test_what_cannot_be_included_is_told_with_its_place(tmp_path):
    path = tmp_path / "amps.xml"
    path.write_text(
        "<AMPSConfig>\n<Include>none.xml</Include>\n<Include>amps.xml</Include>\n<Group>${NO}</Group></AMPSConfig>"
    )
    missing, circle, variable = refusals(path)
    assert missing.startswith(f"{path}:2: Include: {tmp_path}/none.xml: no such file")
    assert circle == f"{path}:3: Include: {path} is a file that this one is included by; allowed: others"
    assert variable.startswith(
        f"{path}:4: Group: ${{NO}}: the environment has no NO; allowed: set it, or give a default"
    )


def test_wrong_elements_are_told_with_their_place():
    text = "<SOW>\n<Queue><Name>a</Name>\n<LeasePeriod>soon</LeasePeriod></Queue>\n"
    text += "<LocalQueue><Name>a</Name></LocalQueue>\n<Queue><Name>a</Name></Queue></SOW>"
    assert [line.partition("; ")[0] for line in refusals(text)] == [
        "<text>:3: Queue 'a': lease_period: 'soon' is not an interval",
        "<text>:5: Queue 'a': defined twice",
    ]


# --- the page


@pytest.mark.parametrize(
    ("around", "twice"),
    [("Queue", "Name"), ("Queue", "MaxDeliveries"), ("View", "Filter"), ("Topic", "Name")],
)
def test_an_element_that_counts_once_is_not_given_twice(around, twice):
    name = "" if twice == "Name" else "<Name>work</Name>\n"
    text = f"<SOW>\n<{around}>\n{name}<{twice}>3</{twice}>\n<{twice}>4</{twice}>\n</{around}>\n</SOW>"
    line = text.splitlines().index(f"<{twice}>4</{twice}>") + 1
    with pytest.raises(DefinitionError, match=rf"amps.xml:{line}: {around}/{twice}: given twice; allowed: once"):
        read_amps_xml(parse_xml(text, "amps.xml"))


def test_the_tables_of_the_page_are_what_is_done():
    page = (ROOT / "docs" / "amps-xml.md").read_text()
    acted = [f"| `{around}/{tag}` | `{name}` |" for around, tags in ACTED_ON.items() for tag, name in tags.items()]
    ours = [
        f"| `{kind.module}` | `{kind.word}` |"
        for kinds in (TRIGGERS, CONDITIONS, STEPS)
        for kind in kinds.values()
        if kind.module.startswith("amps-")
    ]
    others = [f"| `{name}` | {reason} |" for name, reason in {**NOT_ACTED_ON, **MODULES}.items()]
    rows = re.findall(r"^\| `.*\|$", page, re.MULTILINE)
    assert sorted(rows) == sorted(acted + ours + others)
