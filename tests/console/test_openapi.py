"""The OpenAPI document: it names what is served, and the JSON of every page is what it says."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest
from jsonschema import Draft202012Validator
from observing import eventually

from ampsq import Action, Client, Destination, LocalQueue, Queue, Topic, View
from ampsq.base.partitions import partitions_of
from ampsq.console.openapi import pages_document
from ampsq.console.page_table import PAGES

TURNED = "\N{RIGHT-TO-LEFT OVERRIDE}gnp.exe"


def closed(schema):
    """A schema that refuses what it does not name: more members than are documented are a fault here."""
    if isinstance(schema, dict):
        made = {name: closed(each) for name, each in schema.items()}
        if "properties" in made and "additionalProperties" not in made:
            made["additionalProperties"] = False
        return made
    return [closed(each) for each in schema] if isinstance(schema, list) else schema


def as_documented(page, status, value):
    """Check a value against what the document says that a page answers."""
    document = pages_document()
    answer = document["paths"][page.documented_path]["get"]["responses"][str(status)]
    schema = answer["content"]["application/json"]["schema"]
    components = closed(document["components"])
    # A definition has elements of its own kind.
    components["schemas"]["DefinitionFacts"]["additionalProperties"] = True
    Draft202012Validator({**schema, "components": components}).validate(value)


@pytest.fixture
def world(client, valkey, coordinate):
    """Something of everything."""
    client.apply(
        Topic(name="orders", key=["/id"]),
        Topic(name="kept", retention_count=2),
        Topic(name="failed"),
        Topic(name="keyed", key=["/id"]),
        LocalQueue(name="a/b", underlying_topic="kept", max_per_subscription_backlog=2, record_deliveries=True),
        LocalQueue(name="letters", underlying_topic="failed"),
        LocalQueue(name="grouped", underlying_topic="grouped-orders", group_by="/g", on_group_failure="stop"),
        Queue(name="shared", underlying_topic="orders"),
        View(name="totals", underlying_topic="orders", projection=["/s AS /s", "COUNT(/id) AS /n"], grouping=["/s"]),
        Action.dead_letter("a/b", "failed"),
        Destination(name="ldn-1", addresses=["redis://localhost:1"], sync_type="sync", topics=["orders", "shared"]),
    )
    marks = client.publish_many("kept", [{"id": number} for number in range(4)], headers={"from": TURNED})
    client.publish("kept", b"\xff\x00")
    client.publish("kept", b'{"half": "\\ud800"}')
    client.publish_many("orders", [{"id": number, "s": "IBM"} for number in range(3)])
    client.publish_many("grouped-orders", [{"g": each} for each in "aab"])
    client.ack("a/b", option="expire", filter="/id = 0", reason="of no use")
    coordinator = coordinate(valkey.url)
    eventually(lambda: client.admin.dead_letters("letters"), within=30)
    client.apply(Action.dead_letter("a/b", "keyed", name="keep"))
    client.ack("a/b", option="expire", filter="/id = 3")
    eventually(lambda: client.admin.failed_events("keep"), within=30)
    # What is being tried again is not listed.
    coordinator.stop()
    with (
        Client(valkey.url, partitions=2, instance=f"{client.instance}-w") as whole,
        client.publisher("till") as publisher,
        client.subscribe("a/b", max_backlog=2, filter="/id > 0") as held,
        client.subscribe("grouped", max_backlog=2) as grouped,
    ):
        whole.apply(Queue(name="work", underlying_topic="jobs"))
        publisher.publish("orders", {"id": 9})
        publisher.flush(timeout="30s")
        assert held.get(timeout="30s") is not None
        grouped.get(timeout="30s").expire()
        grouped.flush()
        yield client, marks


def addresses(client, marks):
    """Page -> addresses of it, each as many facts as there are kinds of."""
    of, mark = f"/i/{client.instance}", quote(str(marks[1]), safe="")
    return {
        "overview": ["/", "/?page=7"],
        "search_all": ["/search", "/search?q=e"],
        "search": [f"{of}/search?q=o", f"{of}/search?q={mark}", f"{of}/search?q={marks[1].id}"],
        "queues": [f"{of}/queues", f"{of}/queues?q=sha&sort=depth"],
        "queue": [f"{of}/queues/{each}" for each in ("a%2Fb", "a%2Fb?filter=/id+>", "shared?range=7d", "letters")],
        "partitioned_queues": [f"/p/{client.instance}-w/queues"],
        "partitioned_queue": [f"/p/{client.instance}-w/queues/work"],
        "groups": [f"{of}/groups/grouped?limit=1", f"{of}/groups/grouped", f"{of}/groups/letters"],
        "topics": [f"{of}/topics"],
        "topic": [f"{of}/topics/{each}" for each in ("orders", "totals", "kept?from=epoch", "kept?from=never")],
        "publishers": [f"{of}/publishers"],
        "message": [f"{of}/messages?bookmark={mark}{each}" for each in ("", "&queue=a%2Fb")],
        "letter_queues": [f"{of}/dead-letters"],
        "dead_letters": [f"{of}/dead-letters/letters{each}" for each in ("", "?filter=/id+>")],
        "replication": [f"{of}/replication"],
        "actions": [f"{of}/actions"],
        "action": [f"{of}/actions/keep"],
        "question": [
            f"{of}/changes/pause?queue=letters",
            f"{of}/changes/expire?queue=letters&filter=1+%3D+1",
            f"{of}/changes/release-group?queue=grouped&group=a",
            f"{of}/changes/downgrade?destination=ldn-1",
        ],
    }


def test_the_json_of_every_page_is_what_the_document_says(world, serve, valkey):
    client, marks = world
    asked = serve(valkey.url, [client.instance, *(each.instance for each in partitions_of(f"{client.instance}-w", 2))])
    pages = addresses(client, marks)
    assert set(pages) == {page.name for page in PAGES}

    def faults():
        found = json.loads(asked.page("/", accept="application/json").text)
        return [fault for each in found["instances"] for fault in each["faults"]]

    # The overview has findings once the instance was examined.
    eventually(faults, within=60)
    facts = {}
    for page in PAGES:
        for address in pages[page.name]:
            answer = asked.page(address, accept="application/json")
            assert answer.status == 200, (address, answer.text)
            assert answer.headers["vary"] == "accept"
            found = json.loads(answer.text)
            as_documented(page, 200, found)
            facts[address.removeprefix(f"/i/{client.instance}")] = found
    # The facts were there: what is empty everywhere shows nothing of a schema.
    assert any(each["faults"] for each in facts["/"]["instances"])
    assert facts["/queues/a%2Fb"]["subscriptions"][0]["leased"] == 2
    assert {"base64": "/wA="} in [each["body"] for each in facts["/queues/a%2Fb"]["messages"]["waiting"]]
    assert [each["group"] for each in facts["/groups/grouped"]["groups"]] == ["a", "b"]
    assert facts["/groups/grouped"]["groups"][0]["stopped"].endswith("+00:00")
    assert facts["/dead-letters/letters"]["letters"][0]["consumer_reason"] == "of no use"
    assert facts["/replication"]["links"][0]["destination"] == "ldn-1"
    assert facts["/actions/keep"]["events"][0]["error"]
    assert facts["/topics/totals"]["definition"]["kind"] == "View"
    assert facts["/topics/kept?from=epoch"]["messages"][0]["headers"] == {"from": TURNED}
    assert "till" in [each["name"] for each in facts["/publishers"]["publishers"]]


def test_refusals_are_what_the_document_says(asked, client):
    pages = {page.name: page for page in PAGES}
    of = f"/i/{client.instance}"
    for name, status, address in (
        ("queue", 404, f"{of}/queues/none"),
        ("groups", 404, f"{of}/groups/none"),
        ("topic", 404, f"{of}/topics/none"),
        ("dead_letters", 404, f"{of}/dead-letters/none"),
        ("message", 400, f"{of}/messages?bookmark=none"),
        ("action", 400, f"{of}/actions/none"),
        ("question", 400, f"{of}/changes/none"),
        ("queues", 400, "/i/none/queues"),
    ):
        answer = asked.page(address, accept="application/json")
        assert answer.status == status, (address, answer.text)
        as_documented(pages[name], status, json.loads(answer.text))


def test_a_server_that_is_away_is_answered_as_the_document_says(serve, start_server, client):
    server = start_server("valkey")
    with Client(server.url, instance=client.instance):
        pass
    asked = serve(server.url, [client.instance])
    server.end()
    answer = asked.page(f"/i/{client.instance}/topics", accept="application/json")
    assert answer.status == 503
    as_documented(next(page for page in PAGES if page.name == "topics"), 503, json.loads(answer.text))


def test_the_document_names_exactly_what_is_served(asked):
    served = set()
    for route in asked.console._server.config.app.routes:
        methods = getattr(route, "methods", None)
        # What is streamed is a page's own, and what is posted, too; files are no pages.
        if methods and "GET" in methods and not route.path.endswith("/events"):
            served.add(route.path.replace(":path}", "}"))
    assert set(pages_document()["paths"]) == served


def test_the_document_is_one_that_validators_take_and_is_served_to_who_has_the_token(asked):
    document = pages_document()
    for schema in document["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
        assert all("description" in member for member in schema["properties"].values()), schema
    for path, found in document["paths"].items():
        parts = {each["name"] for each in found["get"].get("parameters", ()) if each["in"] == "path"}
        assert parts == {part.partition("}")[0] for part in path.split("{")[1:]}, path
    # Each reference leads somewhere.
    text = json.dumps(document)
    for name in text.split("#/components/schemas/")[1:]:
        assert name.partition('"')[0] in document["components"]["schemas"]
    bearer = {"authorization": f"Bearer {asked.console.access.token}"}
    assert json.loads(asked("/openapi.json", **bearer).text) == document
    assert asked("/openapi.json").status == 401
