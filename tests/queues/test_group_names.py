"""Names of groups that anybody may have given: one name each everywhere, and commands that say it as shells read it."""

from __future__ import annotations

import hashlib
import json
import subprocess

import pytest

from ampsq import Queue
from ampsq.base.errors import DefinitionError


def defined(client, **elements):
    client.apply(
        Queue(name="work", underlying_topic="orders", group_by="/customer", max_per_subscription_backlog=9, **elements)
    )


def order(customer, number):
    return {"customer": customer, "n": number}


def taken(subscription, timeout=0.2):
    """All that is given now."""
    found = []
    while message := subscription.get(timeout):
        found.append(message)
    return found


@pytest.mark.parametrize(
    ("said", "name"),
    [
        (b"x" * 255, "x" * 255),
        ("Müller 東京 👩 \ud7ff\ue000".encode(), "Müller 東京 👩 \ud7ff\ue000"),
        *[
            (said, f"#{hashlib.sha1(said, usedforsecurity=False).hexdigest()}")
            for said in (
                b"x" * 256, b"a\0b", b"M\xfcller", b"M\xf6ller", b"\xed\xa0\x80", b"\xc0\xaf", b"\xe0\x80\xaf",
                b"\xf4\x90\x80\x80",
            )
        ],
        (b"", "a"),
    ],
)  # fmt: skip
def test_somebody_elses_group_has_one_name_everywhere(client, said, name):
    defined(client, on_group_failure="stop", max_deliveries=1)
    client.publish("orders", order("a", 1), group="other")
    log = f"{{{client.instance}}}:log:orders"
    for _ in range(2):
        client._store.redis.xadd(log, {"b": json.dumps(order("a", 2)), "g": said})
    with client.subscribe("work", max_backlog=5) as subscription:
        _, message = taken(subscription)
        assert message.group == name
        message.expire()
        subscription.flush()
        (stopped,) = (state for state in client.admin.groups("work").groups if state.stopped)
        assert (stopped.group, stopped.waiting) == (name, 1)
        # By what somebody said, too, as a program may have it from its arguments.
        given = said.decode(errors="surrogateescape") or name
        assert client.admin.pause_group("work", given)
        assert client.admin.resume_group("work", name)
        assert client.admin.release_group("work", given)
        assert [each.group for each in taken(subscription)] == [name]


@pytest.mark.parametrize("group", ["alice", "it's $(touch x)", "a b", "`id`", "back\\slash", "line\nend\t'\x1b", "-x"])
def test_a_command_that_is_told_names_the_group_as_a_shell_reads_it(client, group):
    defined(client)
    bookmark = client.publish("orders", order("a", 1), group=group)
    client.admin.pause_group("work", group)
    with client.subscribe("work") as subscription:
        assert taken(subscription, 0.05) == []
        sentence = client.admin.explain("work", bookmark).sentence
    word = sentence.partition(" --resume ")[2].removesuffix(" lets it go on.")
    # bash, since $'...' is none of POSIX before 2024
    read = subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True, check=True, timeout=20)  # noqa: S607
    assert read.stdout.decode() == group
    assert "\n" not in sentence


@pytest.mark.parametrize("group", [5, b"x", "x" * 256, "a\0b"])
def test_a_message_of_the_test_kit_has_a_group_that_can_be_published(group):
    from ampsq.testing import message  # noqa: PLC0415

    with pytest.raises(DefinitionError, match="group="):
        message({"n": 1}, group=group)
