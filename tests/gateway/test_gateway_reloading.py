"""Rules that change while a gateway serves: what is allowed from then on, and what becomes of what is open."""

from __future__ import annotations

import asyncio
import logging
import os
from dataclasses import replace

import httpx
import pytest
from gateway_scene import RULES, Asking, client_of_kind, hashed, refusal
from observing import eventually
from websockets.exceptions import ConnectionClosed

from ampsq.gateway import Gateway, read_rules
from ampsq.gateway import rules_reload as reloading
from ampsq.gateway.rules import marks_of
from ampsq.gateway.rules_reload import RulesFile

pytestmark = pytest.mark.slow

#: Seconds that everything has on a crowded machine.
WITHIN = 30


client = client_of_kind


@pytest.fixture
def file(tmp_path):
    (tmp_path / "gateway.yaml").write_text(RULES)
    return tmp_path / "gateway.yaml"


@pytest.fixture
def gateway(client, file):
    gateway = Gateway(client.url, client.instance, read_rules(file), file=file)
    gateway.start()
    yield gateway
    gateway.stop()


def write(file, text):
    """As who is careful does it: the old one or the new one is there, and nothing between."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)


@pytest.mark.parametrize("kind", ["valkey", "redis"])
def test_a_right_that_is_taken_away_ends_what_is_open_and_gives_back_what_it_held(audit, desk, client, file):
    audit.publish("orders", {"region": "EU", "id": 1})
    with desk.open("/v1/subscribe", queue="work") as mine, audit.open("/v1/subscribe", topic="orders") as other:
        assert [mine.get()["type"] for _ in range(2)] == ["subscribed", "message"]

        write(file, RULES.replace("name: work, rights: read", "name: elsewhere, rights: read"))

        assert mine.get(WITHIN)["error"] == "NotEntitled"
        with pytest.raises(ConnectionClosed):
            mine.get(WITHIN)
        assert eventually(lambda: client.admin.queue_stats("work").leased == 0, WITHIN)
        # Whose rights are as they were goes on.
        audit.publish("orders", {"region": "EU", "id": 2})
        assert other.get(WITHIN)["data"]["id"] == 2
    assert refusal(desk.get("/v1/sow", name="work")) == (403, "NotEntitled")


def test_another_filter_ends_what_is_open_under_the_one_before(audit, desk, file):
    with desk.open("/v1/subscribe", topic="orders") as mine:
        write(
            file,
            RULES.replace("name: orders, rights: read, read_filter: \"/region = 'EU'\"", "name: orders, rights: read"),
        )

        assert mine.get(WITHIN)["error"] == "EntitlementChanged"
    audit.publish("orders", {"region": "US", "id": 2})
    with desk.open("/v1/subscribe", topic="orders", bookmark="epoch") as mine:
        assert mine.get(WITHIN)["data"]["id"] == 2


def test_events_end_with_the_reason(audit, desk, file):
    where = {"topic": "orders", "bookmark": "epoch"}
    audit.publish("orders", {"region": "EU"})
    with httpx.stream("GET", desk.base + "/v1/events", params=where, auth=desk.auth, timeout=WITHIN) as answer:
        lines = answer.iter_lines()
        assert next(line for line in lines if line.startswith("event:")) == "event: message"

        write(file, RULES.replace("name: orders, rights: read", "name: elsewhere, rights: read"))

        assert next(line for line in lines if line.startswith("event:")) == "event: error"


def test_who_has_another_secret_is_not_known_by_the_former_one(desk, file):
    assert desk.get("/v1/sow", name="work").status_code == 200
    with desk.open("/v1/subscribe", queue="work") as mine:
        mine.get()
        write(file, RULES.replace(hashed("tea"), hashed("coffee")))

        assert mine.get(WITHIN)["error"] == "NotAuthenticated"
    assert refusal(desk.get("/v1/sow", name="work")) == (401, "NotAuthenticated")
    desk.auth = ("desk", "coffee")
    assert desk.get("/v1/sow", name="work").status_code == 200


def test_a_file_that_is_wrong_is_refused_whole_and_told_once(desk, file, caplog):
    caplog.set_level(logging.INFO, "ampsq.gateway")
    with desk.open("/v1/subscribe", queue="work") as mine:
        mine.get()
        write(file, RULES.replace("rights: write", "rights: wrote"))

        said = eventually(lambda: [each.message for each in caplog.records if "is refused" in each.message], WITHIN)
        assert "the rules of before stay" in said[0]
        assert "gateway.yaml:8: entitlements: rights: 'wrote'" in said[0]
        assert "scrypt" not in said[0]
        file.unlink()
        eventually(lambda: any("cannot be read" in each.message for each in caplog.records), WITHIN)
        write(file, RULES + "gateway: {max_backlog: 7}\n")
        eventually(lambda: any("is read again" in each.message for each in caplog.records), WITHIN)
        with pytest.raises(TimeoutError):
            mine.get(0.1)
    assert sum("is refused" in each.message for each in caplog.records) == 2


def test_a_file_that_is_included_counts_too_and_it_is_read_when_asked(client, file):
    file.with_name("more.yaml").write_text(RULES)
    file.write_text("include: more.yaml\n")
    rules = read_rules(file)
    assert {each.name for each in rules.files} == {"gateway.yaml", "more.yaml"}
    assert marks_of(rules.files) == rules.marks
    gateway = Gateway(client.url, client.instance, rules, file=file)
    gateway.start()
    try:
        desk = Asking(gateway, "desk")
        # Of the same length and time: only who is asked to reads it.
        before = file.with_name("more.yaml").stat()
        text = RULES.replace(hashed("tea"), hashed("tee"))
        with file.with_name("more.yaml").open("r+") as more:
            more.write(text)
        os.utime(file.with_name("more.yaml"), ns=(before.st_atime_ns, before.st_mtime_ns))
        gateway.reload()
        eventually(lambda: desk.get("/v1/sow", name="work").status_code == 401, WITHIN)
    finally:
        gateway.stop()


def test_a_file_is_read_when_it_has_changed_and_stays_as_it_is(file, monkeypatch):
    rules, adopted = read_rules(file), []
    looks, seen = [rules.marks, "half", "done", "done", "done", "more"], []

    def look(_):
        seen.append(looks.pop(0))
        return seen[-1]

    monkeypatch.setattr(reloading, "marks_of", look)
    monkeypatch.setattr(reloading, "read_rules", lambda _: replace(rules, marks=seen[-1]))

    # It ends with what there is to see.
    with pytest.raises(IndexError):
        asyncio.run(RulesFile(file, rules, lambda new: adopted.append(new.marks), look=0.001).follow())

    assert adopted == ["done"]


def test_rules_bound_what_comes_from_then_on(audit, file):
    write(file, RULES + "gateway: {max_request_size: 1kb, max_streams: 0}\n")

    eventually(lambda: audit.post("/v1/publish", topic="orders", data="x" * 2000).status_code == 413, WITHIN)
    assert refusal(audit.get("/v1/events", topic="orders")) == (429, "TooManyStreams")
