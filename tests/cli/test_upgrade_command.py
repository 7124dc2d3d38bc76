"""``ampsq upgrade``: what it asks, does and refuses; what a step does is in tests/operations/test_upgrade.py."""

from __future__ import annotations

import contextlib
import re
import shlex
from pathlib import Path

import pytest
import redis
from data.format4.load import load, read_dump, remove
from programs import Called

PAGE = Path(__file__).resolve().parents[2] / "docs" / "upgrading.md"
LDN, NYC, TYO = NAMES = "format4-ldn", "format4-nyc", "format4-tyo"


@pytest.fixture
def plain(served):
    with contextlib.closing(redis.Redis.from_url(served.url)) as client:
        load(client, read_dump())
        yield client
        remove(client, read_dump())


@pytest.fixture
def ampsq(folder, served, plain):  # noqa: ARG001  (there is nothing to be upgraded without it)
    with contextlib.closing(Called(folder, served.url, None)) as program:
        yield program


def formats(plain):
    return [plain.hget("{" + name + "}:instance", "format") for name in NAMES]


def test_all_instances_of_the_server_are_upgraded(ampsq, plain):
    assert ampsq("upgrade", "--dry-run").out.splitlines() == [f"{name}: format 4, to be upgraded" for name in NAMES]
    assert formats(plain) == [b"4"] * 3
    done = ampsq("upgrade", "--yes")
    assert done.out.splitlines() == [f"{name}: upgraded from format 4 to 5" for name in NAMES]
    assert formats(plain) == [b"5"] * 3
    assert ampsq("upgrade").out.splitlines() == [f"{name}: format 5, nothing to do" for name in NAMES]
    checked = ampsq("check", "--json", "--instance", LDN).json
    assert [found["queue"] for found in checked if not found["clean"]] == []


def test_the_named_instance_is_upgraded_alone(ampsq, plain):
    assert ampsq("upgrade", "--instance", NYC, "--yes", "--json").json == [
        {"instance": NYC, "found": "4", "format": "5"}
    ]
    assert formats(plain) == [b"4", b"5", b"4"]


def test_an_upgrade_that_was_interrupted_goes_on(ampsq, plain):
    plain.hset("{format4-nyc}:instance", mapping={"format": "4>5", "upgrade": "1 big"})
    assert ampsq("upgrade", "--instance", NYC, "--dry-run").out == f"{NYC}: format 4>5, to be upgraded\n"
    assert ampsq("upgrade", "--instance", NYC, "--yes").out == f"{NYC}: upgraded from format 4 to 5\n"
    # What was done before is not done again.
    assert not plain.hexists("{format4-nyc}:q:best:filters", "resort")
    assert plain.hexists("{format4-nyc}:q:steps:filters", "resort")


def test_nothing_is_done_where_nobody_can_be_asked(ampsq, plain):
    done = ampsq("upgrade", code=3)
    assert "3 instances would be upgraded to format 5" in done.err
    assert "nobody can be asked here; allowed: --yes, or --dry-run" in done.err
    assert formats(plain) == [b"4"] * 3


@pytest.mark.parametrize(
    ("found", "said"), [("3", "it is too old for one step"), ("7", "a later release wrote it"), ("x", "in format x")]
)
def test_where_one_cannot_be_upgraded_none_is_and_a_sentence_says_which(ampsq, plain, found, said):
    plain.hset("{format4-tyo}:instance", "format", found)
    done = ampsq("upgrade", "--yes", code=1)
    assert done.err.startswith(f"Error: {TYO}: ")
    assert said in done.err
    assert done.err.endswith("; nothing was changed\n")
    assert formats(plain) == [b"4", b"4", found.encode()]


def test_an_instance_that_is_not_there_is_named_with_those_that_are(ampsq, plain):
    done = ampsq("upgrade", "--instance", "format4-nyk", code=2)
    assert "has no instance 'format4-nyk'" in done.err
    assert NYC in done.err
    assert not plain.exists("{format4-nyk}:instance")
    assert "is not a name" in ampsq("upgrade", "--instance", "no name", code=1).err
    assert "No such option" in ampsq("upgrade", "--force", code=2).err


def test_other_commands_name_it(ampsq):
    done = ampsq("queues", "--instance", NYC, code=1)
    assert "stored in format 4, and this ampsq reads 5: `ampsq upgrade` turns it into that" in done.err
    found = {each["check"]: each for each in ampsq("doctor", "--instance", NYC, "--json", code=1).json}["format"]
    assert found["mend"].startswith(f"ampsq upgrade --instance {NYC} ")


def test_the_commands_of_the_page_work_in_their_order(folder, served, plain):
    (commands,) = re.findall(r"```console\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    with contextlib.closing(Called(folder, served.url, LDN)) as program:
        for line in commands.splitlines():
            assert program(*shlex.split(line, comments=True)[1:]).code == 0
    assert formats(plain) == [b"5", b"4", b"4"]
