"""The functions and files that publish, get and ack run through: as many as recorded, and listed in docs/design.md.

`python tests/house/test_call_path.py --write` writes the numbers and the lists anew; it refuses higher numbers without
`--rise`, which is for a commit that says why.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import ratchet

TABLE = Path(__file__).with_name("call_path.json")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "design.md"
BEGIN, END = "<!-- call path -->\n", "<!-- /call path -->\n"
WRITE = "python tests/house/test_call_path.py --write"


@cache
def printed(*options):
    """Return the tool's output, in a process of its own: there nothing is cached or changed by other tests."""
    program = [sys.executable, Path(__file__).with_name("call_path.py"), *options]
    return subprocess.run(program, capture_output=True, text=True, timeout=120, check=True).stdout


def operations(*options):
    return json.loads(printed("--json", *options))


def counted_now():
    both = {"": operations(), " asyncio": operations("--asyncio")}
    return {
        operation + client: {figure: each[figure] for figure in ("functions", "files")}
        for client, found in both.items()
        for operation, each in found.items()
    }


def with_lists(page, lists):
    before, _, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert end, f"{PAGE.name} has no {BEGIN.strip()} ... {END.strip()}"
    return f"{before}{BEGIN}\n{lists}\n{END}{after}"


def test_publish_get_and_ack_run_through_no_more_functions_and_files():
    # Now and then the clock adds something, as a look whether a coordinator is at work: then it is traced again.
    for _ in range(3):
        risen, fallen = ratchet.changes(ratchet.read(TABLE), counted_now())
        if not risen:
            break
        printed.cache_clear()

    assert risen == [], f"numbers rise only in a commit whose message says why: {WRITE} --rise"
    assert fallen == [], f"good; lower them in {TABLE.name}: {WRITE}"


def test_the_page_on_the_design_lists_the_functions_that_are_called():
    page = PAGE.read_text()

    for _ in range(3):
        listed = with_lists(page, printed("--markdown"))
        if page == listed:
            break
        printed.cache_clear()
    assert page == listed, f"the lists are written anew by: {WRITE}"


@pytest.mark.parametrize("client", [(), ("--asyncio",)])
def test_a_path_begins_with_the_call_and_leads_to_the_connection(client):
    found = operations(*client)

    for operation in ("publish", "get", "ack"):
        path = found[operation]["path"]
        assert path[0]["name"].endswith(f".{operation}")
        assert path[0]["summary"]
        assert all(each["caller"] is None or path[each["caller"]]["depth"] == each["depth"] - 1 for each in path)
        assert len({(each["file"], each["name"]) for each in path}) == len(path) == found[operation]["functions"]
        assert len({each["file"] for each in path}) == found[operation]["files"]
        assert {each["file"].split("/")[1] for each in path} >= {"protocol", "transport"}


@pytest.mark.slow
def test_some_operations_are_printed_as_all_are():
    every = printed().split("\n\n")

    assert printed("get").rstrip() == every[1]
    assert printed("publish", "ack").rstrip().split("\n\n") == [every[0], every[2]]
    assert every[3].startswith("get and ack together: ")


if __name__ == "__main__":
    ratchet.asked(TABLE, counted_now())
    PAGE.write_text(with_lists(PAGE.read_text(), printed("--markdown")))
