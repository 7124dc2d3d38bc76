"""`ampsq functions`, `ampsq acl server`, and what the doctor says of functions."""

from __future__ import annotations

import shlex

import pytest

from ampsq.operations.doctor import server_rules
from ampsq.operations.doctor.server_facts import ServerFacts
from ampsq.operations.functions import FunctionState, functions_at
from ampsq.protocol.functions import HOT, library
from ampsq.protocol.reads.functions import delete_library
from ampsq.protocol.request import command

OTHER = "ampsq_take_00000000000000000000"


@pytest.fixture(scope="module", autouse=True)
def _coordinator_without_functions():
    """Let the coordinator of this file's server load none, which it would do at any time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AMPSQ_FUNCTIONS", "off")
        yield


@pytest.fixture
def functions(defined):
    """The command, on a server that has no functions of ours before and after."""

    def clear(client):
        found = client._store.run(functions_at())
        ours = {library().name for each in found if each.verb and each.state != "missing"}
        for name in ours | {each.name for each in found if not each.verb}:
            client._store.call(delete_library(name))

    with defined.client() as client:
        clear(client)
        yield defined
        clear(client)


def load_text(client, name, *, replace=False):
    words = ["FUNCTION", "LOAD", *(["REPLACE"] if replace else [])]
    text = f"#!lua name={name}\nredis.register_function('{name}', function() return 1 end)\n"
    client._store.call(command([*words, text], bool))


def states(run, *words):
    return {each["verb"] or each["name"]: each["state"] for each in run("functions", *words, "--json").json}


def test_functions_are_loaded_listed_and_those_of_other_releases_removed(functions):
    # Given a server with a function of another release
    with functions.client() as client:
        load_text(client, OTHER)
    assert states(functions, "list") == {**dict.fromkeys(HOT, "missing"), OTHER: "other"}

    # When ours are loaded, once and once more
    assert states(functions, "load") == dict.fromkeys(HOT, "loaded")
    assert states(functions, "load") == dict.fromkeys(HOT, "here")

    # Then both are there, until the others are removed
    assert states(functions, "list") == {**dict.fromkeys(HOT, "here"), OTHER: "other"}
    assert f"{OTHER} is removed" in functions("functions", "remove").out
    assert "no functions of other releases" in functions("functions", "remove").err
    assert states(functions, "list") == dict.fromkeys(HOT, "here")
    assert library().functions["take"] in functions("functions", "list").out


def test_a_text_of_somebody_elses_is_told_by_the_doctor_and_replaced(functions):
    name = library().name
    functions("functions", "load")
    with functions.client() as client:
        load_text(client, name, replace=True)

    def told(code):
        found = functions("doctor", "--interval", "0.1s", "--json", code=code).json
        return {each["text"]: each for each in found if each["check"] == "functions"}

    wrong = told(1)[f"the library {name} has another text than this release's"]
    assert not wrong["well"]
    assert "ampsq functions load" in wrong["mend"]
    assert states(functions, "load")["settle"] == "loaded again"
    assert [each["well"] for each in told(0).values()] == [True]


@pytest.mark.parametrize(
    ("switch", "missing"), [("on", [f"1 of {len(HOT)} server functions are missing: scripts"]), ("off", [])]
)
def test_missing_functions_are_told_where_this_process_would_call_them(monkeypatch, switch, missing):
    monkeypatch.setenv("AMPSQ_FUNCTIONS", switch)
    states = [FunctionState(library().functions[verb], verb, "here" if verb != "take" else "missing") for verb in HOT]
    facts = ServerFacts(0, 0.0, 0.0, 0, {}, {}, (), "", tuple(states))

    found = list(server_rules.functions(facts))

    assert [each for each in found if not each.well] == []
    *others, last = [each.text for each in found]
    assert [each.partition(" are sent")[0] for each in others] == missing
    assert last == f"{len(HOT) - 1} server functions"


def test_the_operator_that_acl_prints_loads_functions_and_reads_nothing(functions):
    (functions.folder / "secret").write_text("operator\n")
    line = functions("acl", "server", "--user", "operator-7", "--password-file", "secret").out

    with functions.client() as client:
        client._store.call(command(shlex.split(line), bool))
        try:
            mine = client.url.replace("unix://", "unix://operator-7:operator@")
            assert {each["state"] for each in functions("functions", "load", "--url", mine, "--json").json} == {
                "loaded"
            }
            assert "operator-7" not in functions("queues", "--url", mine, code=1).out
        finally:
            client._store.call(command(["ACL", "DELUSER", "operator-7"], bool))
    assert "--topic and --gateway" in functions("acl", "server", "--topic", "orders", code=2).err
