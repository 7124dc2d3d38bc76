"""Transports: their limits, in Python, in YAML and in a configuration file of AMPS."""

from __future__ import annotations

import logging

import pytest

from ampsq import Transport
from ampsq.base.errors import DefinitionError
from ampsq.files.config import load

#: The example of the chapter on slow clients, whole.
EXAMPLE = """<AMPSConfig>
    ...


    <MessageMemoryLimit>10GB</MessageMemoryLimit>
    <MessageDiskPath>/mnt/fastio/AMPS/offline</MessageDiskPath>
    <ClientMessageAgeLimit>30s</ClientMessageAgeLimit>

    ...

    <Transports>
        <!-- This transport shares the 10GB MessageMemoryLimit
            defined for the instance. -->
        <Transport>
            <Name>regular-tcp</Name>
            <Type>tcp</Type>
            <InetAddr>9007</InetAddr>
        </Transport>
        <Transport>
            <Name>low-priority-tcp</Name>
            <Type>tcp</Type>
            <InetAddr>9010</InetAddr>
            <MessageType>bson</MessageType>
            <ClientMessageAgeLimit>15s</ClientMessageAgeLimit>
            <ClientMaxCapacity>10%</ClientMaxCapacity>
        </Transport>
    </Transports>
</AMPSConfig>
"""
CONNECTIONS = "clients connect to the server, whose configuration says where it listens"
MEANT = [
    Transport(
        name="*", message_memory_limit="10GB", message_disk_path="/mnt/fastio/AMPS/offline", client_message_age_limit=30
    ),
    Transport(name="regular-tcp"),
    Transport(name="low-priority-tcp", client_message_age_limit="15s", client_max_capacity=10),
]


def test_the_example_of_the_chapter_is_read_and_what_is_not_acted_on_is_named(caplog):
    with caplog.at_level(logging.WARNING, "ampsq"):
        assert load(EXAMPLE) == MEANT
    assert [record.getMessage() for record in caplog.records] == [
        f"<text>:16: Transport/Type is not acted on; {CONNECTIONS}",
        f"<text>:17: Transport/InetAddr is not acted on; {CONNECTIONS}",
        "<text>:23: Transport/MessageType is not acted on; each topic has its type, and a client may use topics of any",
    ]


def test_a_head_before_the_root_is_no_hindrance():
    text = "<?xml version='1.0'?>\n<!-- ours -->\n<AMPSConfig><MessageDiskLimit>1MB</MessageDiskLimit></AMPSConfig>"
    assert load(text) == [Transport(name="*", message_disk_limit=2**20)]


def test_yaml_has_the_same_elements_at_its_top_and_by_transport():
    found = load(
        "message_memory_limit: 10GB\nmessage_disk_path: /mnt/fastio/AMPS/offline\nclient_message_age_limit: 30s\n"
        "transports:\n"
        "  - name: regular-tcp\n"
        "  - name: low-priority-tcp\n    client_message_age_limit: 15s\n    client_max_capacity: 10%\n"
    )
    assert found == MEANT
    assert found.lines["Transport", "*"]["client_message_age_limit"] == 3


def test_the_instance_may_be_a_transport_of_the_list_and_not_both():
    assert load("transports:\n  - {name: '*', message_disk_limit: 1MB}\n") == load("message_disk_limit: 1MB\n")
    with pytest.raises(DefinitionError, match="<text>:3: Transport '\\*': defined twice, first at line 1"):
        load("message_disk_limit: 1MB\ntransports:\n  - {name: '*', message_disk_limit: 2MB}\n")


@pytest.mark.parametrize(
    ("element", "value", "allowed"),
    [
        ("name", "a b", "allowed: '\\*', the instance, or 1 to 255"),
        ("message_memory_limit", "1KB", "64KB or more"),
        ("message_disk_limit", "much", "is not a size"),
        ("message_disk_path", "spool", "an absolute path"),
        ("client_max_capacity", "0%", "1% to 100%"),
        ("client_max_capacity", "101", "1% to 100%"),
        ("client_message_age_limit", "10ms", "1s or longer"),
    ],
)
def test_a_wrong_value_is_refused_with_what_is_allowed(element, value, allowed):
    with pytest.raises(DefinitionError, match=allowed) as refused:
        Transport(**{"name": "low", element: value})
    assert f"{element}: " in str(refused.value)
    # And in files at its line
    if element != "name":
        with pytest.raises(DefinitionError, match=f"<text>:2: {element}: "):
            load(f"queues:\n{element}: {value}\n")


def test_wrong_values_of_an_amps_file_are_named_with_their_place():
    with pytest.raises(DefinitionError, match=r"<text>:3: Transport 'low': client_max_capacity: .*1% to 100%"):
        load(EXAMPLE.split("\n", maxsplit=1)[0] + "\n<Transports>\n<Transport><Name>low</Name><ClientMaxCapacity>0%"
             "</ClientMaxCapacity></Transport></Transports></AMPSConfig>")  # fmt: skip


def test_limits_are_told_as_the_scripts_take_them():
    assert [each.limits for each in MEANT] == ["10737418240 - - 30000", "- - - -", "- - 10 15000"]
    assert Transport.from_json(MEANT[2].to_json()) == MEANT[2]
