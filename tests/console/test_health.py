"""Probes, and access."""

from __future__ import annotations

import pytest
from observing import eventually

from ampsq import LocalQueue
from ampsq.base.errors import DefinitionError
from ampsq.console import parse_where


def test_a_process_that_answers_is_healthy_and_ready_once_its_duties_run(serve, valkey, client):
    ages = {(client.instance, "sweep"): 0.1, (client.instance, "views"): 29.0}
    asked = serve(valkey.url, [client.instance], lambda: ages)

    assert (asked("/healthz").status, asked("/readyz").text) == (200, "ok\n")
    ages[client.instance, "views"] = 31.0
    late = asked("/readyz")
    assert (late.status, late.text) == (503, f"{client.instance}: views is late by 31 s\n")
    assert asked("/healthz").status == 200


def test_where_the_coordinator_is_another_process_its_life_sign_counts(asked, coordinate, valkey, client):
    absent = asked("/readyz")
    coordinate(valkey.url)

    assert (absent.status, absent.text) == (503, f"{client.instance}: no coordinator is at work\n")
    eventually(lambda: asked("/readyz").status == 200)


def test_without_a_server_it_is_healthy_and_not_ready(serve):
    asked = serve("redis://localhost:1", ["nyc-1"])

    assert asked("/healthz").status == 200
    away = asked("/readyz")
    assert away.status == 503
    assert away.text.startswith("the server: ")


def test_a_coordinator_knows_when_its_duties_ran(coordinate, valkey, client):
    coordinator = coordinate(valkey.url)

    rounds = eventually(lambda: len(coordinator.rounds) == 11 and coordinator.rounds)

    assert {instance for instance, _ in rounds} == {client.instance}
    assert max(eventually(lambda: coordinator.rounds).values()) < 10


def test_pages_need_the_token_and_then_the_cookie_and_the_token_stays_in_no_address(asked):
    token = asked.console.access.token

    assert asked("/").status == 401
    assert asked("/?token=wrong").status == 401
    shown = asked(f"/?a=b&token={token}")
    assert (shown.status, shown.headers["location"]) == (303, "/?a=b")
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(shown.headers["set-cookie"].split("; "))
    assert token not in shown.headers["set-cookie"]
    assert asked(f"//evil.example/?token={token}").headers["location"] == "/evil.example/"
    assert asked("/nowhere", cookie=asked.cookie).status == 404


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example:80", "[::1", ""])
def test_names_that_are_none_of_ours_are_refused(asked, host):
    assert asked("/metrics", host=host).status == 421
    assert asked("/", cookie=asked.cookie, host=host).status == 421
    assert asked("/healthz", host=host).status == 200


def test_names_that_were_given_and_addresses_are_ours(serve, valkey, client):
    asked = serve(valkey.url, [client.instance], hosts=("Queues.example",))

    for host in ("queues.example:8080", "localhost", "10.1.2.3:80", "[::1]:80"):
        assert asked("/metrics", host=host).status == 200, host


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("10.0.0.1:80", ("10.0.0.1", 80)),
        (":80", ("127.0.0.1", 80)),
        ("here", ("here", 0)),
        ("[::1]:8", ("::1", 8)),
        ("[::1]", ("::1", 0)),
    ],
)
def test_where_to_serve_is_read(text, where):
    assert parse_where(text) == where


@pytest.mark.parametrize("text", ["a:b", "a:70000", "a:-1"])
def test_where_no_server_can_be_is_refused(text):
    with pytest.raises(DefinitionError, match="allowed are HOST:PORT"):
        parse_where(text)


def test_an_instance_that_is_not_there_is_not_made_by_looking(serve, valkey, instance):
    asked = serve(valkey.url, [instance])

    shown = asked.page(f"/i/{instance}/queues")

    assert (shown.status, "is not on this server" in shown.text) == (400, True)
    assert f'ampsq_up{{ampsq_instance="{instance}"}} 0.0' in asked("/metrics").text
    with valkey.client() as redis:
        assert list(redis.scan_iter(match=f"*{instance}*")) == []


def test_a_new_incarnation_of_an_instance_is_shown_as_soon_as_it_is_there(asked, client):
    client.apply(LocalQueue(name="work", underlying_topic="orders"))
    assert "work" in asked.anew().page(f"/i/{client.instance}/queues").text

    client.admin.begin_incarnation()
    bookmark = client.publish("orders", {"id": 1})

    def shown():
        return str(bookmark) in asked.anew().page(f"/i/{client.instance}/queues/work").text

    eventually(shown, within=40.0)
