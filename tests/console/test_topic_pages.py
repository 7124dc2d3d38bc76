"""The pages of topics and publishers: what a log has, for whom it is kept, who reads and publishes, and a replay."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest
from observing import eventually

from ampsq import Action, LocalQueue, Topic, View


def facts(asked, path):
    answer = asked.page(path, accept="application/json")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json"), answer.text
    return json.loads(answer.text)


@pytest.fixture
def topics(client):
    client.apply(
        Topic(name="orders", key=["/id"]),
        Topic(name="kept", retention_count=2),
        LocalQueue(name="work", underlying_topic="kept"),
        View(
            name="totals",
            underlying_topic="orders",
            projection=["/symbol AS /symbol", "COUNT(/id) AS /n"],
            grouping=["/symbol"],
        ),
    )
    return f"/i/{client.instance}/topics"


def test_the_list_has_each_topic_with_its_size_its_queues_and_its_retention(asked, client, topics):
    client.publish_many("kept", [{"id": number} for number in range(3)])

    found = {each["name"]: each for each in facts(asked, topics)["topics"]}

    assert set(found) == {"orders", "kept", "totals"}
    assert (found["kept"]["messages"], found["kept"]["recorded"], found["kept"]["queues"]) == (3, 3, ["work"])
    assert (found["kept"]["retention"], found["totals"]["view"], found["kept"]["view"]) == (
        {"retention_count": 2},
        True,
        False,
    )
    page = asked.page(topics).text
    assert f'href="{topics}/kept">kept</a>' in page
    assert "count 2" in page
    assert "keeps all" in page


def test_the_list_is_searched_and_paged(asked, client, topics):
    client.apply(*(Topic(name=f"t{number:03}") for number in range(60)))

    assert len(facts(asked, topics)["topics"]) == 50
    assert len(facts(asked, f"{topics}?page=2")["topics"]) == 13
    assert [each["name"] for each in facts(asked, f"{topics}?q=T00")["topics"]] == [
        f"t00{number}" for number in range(10)
    ]
    assert "No topic has <code>nothing</code> in its name." in asked.page(f"{topics}?q=nothing").text


def test_a_second_look_knows_how_many_messages_come_in_a_second(asked, client, topics):
    assert facts(asked, f"{topics}/kept")["in_per_second"] is None
    client.publish_many("kept", [{"id": number} for number in range(100)])

    # Two looks that count are half a second apart.
    assert eventually(lambda: facts(asked, f"{topics}/kept")["in_per_second"]) > 10


def test_a_topic_shows_its_last_messages_the_newest_first(asked, client, topics):
    bookmarks = client.publish_many("kept", [{"id": number} for number in range(30)])

    found = facts(asked, f"{topics}/kept")["messages"]

    assert [each["bookmark"] for each in found] == [str(each) for each in bookmarks[:4:-1]]
    assert json.loads(found[0]["body"]) == {"id": 29}
    assert "the newest first" in asked.page(f"{topics}/kept").text


def test_a_replay_begins_at_a_bookmark_or_a_time_and_filters(asked, client, topics):
    bookmarks = client.publish_many("kept", [{"id": number} for number in range(30)], headers={"from": "a <b>"})
    path = f"{topics}/kept"

    def ids(query):
        return [json.loads(each["body"])["id"] for each in facts(asked, f"{path}?{query}&patient=1")["messages"]]

    assert ids(f"from={quote(bookmarks[26])}") == [26, 27, 28, 29]
    assert ids(f"from={quote(f'({bookmarks[26]}:now)')}") == [27, 28, 29]
    assert ids("from=epoch") == list(range(25))
    assert ids("from=2001-01-01T00:00:00Z&limit=3") == [0, 1, 2]
    # As pages show it, too
    assert ids("from=2001-01-01+00:00:00+UTC&limit=3") == [0, 1, 2]
    assert ids(f"filter={quote('/id > 27')}") == [28, 29]
    assert "from=a &lt;b&gt;" in asked.page(f"{path}?from=epoch").text
    assert "Go on behind the last one" in asked.page(f"{path}?from=epoch").text
    assert "No message matches." in asked.page(f"{path}?filter={quote('/id > 99')}").text


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("from=yesterday", "yesterday"),
        (f"filter={quote('/id >')}", "the expression ends too early"),
        ("from=%5B1", "[1"),
    ],
    ids=["no place", "no filter", "no range"],
)
def test_what_is_no_place_and_no_filter_is_said_on_the_page(asked, topics, query, said):
    page = asked.page(f"{topics}/kept?{query}")

    assert page.status == 200
    assert said in page.text.partition('role="alert">')[2].partition("</pre>")[0]


def test_a_replay_leaves_nothing_behind(asked, client, topics, snapshot):
    client.publish("kept", {"id": 1})
    asked.page(f"{topics}/kept")
    before = snapshot(client._store)

    asked.page(f"{topics}/kept?from=epoch")

    assert snapshot(client._store) == before


def test_a_topic_with_a_key_shows_its_records_and_a_view_its_rows(asked, client, topics, coordinate, valkey):
    coordinate(valkey.url)
    client.publish_many("orders", [{"id": 1, "symbol": "IBM"}, {"id": 2, "symbol": "IBM"}])

    records = facts(asked, f"{topics}/orders")["records"]
    rows = eventually(lambda: facts(asked, f"{topics}/totals")["records"])

    assert sorted(json.loads(each["body"])["id"] for each in records) == [1, 2]
    assert json.loads(rows[0]["body"])["symbol"] == "IBM"
    assert "COUNT(/id) AS /n" in asked.page(f"{topics}/totals").text


def test_whom_something_is_kept_for_is_said_in_a_sentence(asked, client, topics, coordinate, valkey):
    client.publish_many("kept", [{"id": number} for number in range(5)])
    client.admin.trim("kept")
    coordinate(valkey.url)

    def sentence():
        said = asked.page(f"{topics}/kept").text.partition('class="sentence">')[2].partition("</p>")[0]
        return "are kept" in said and said

    said = eventually(sentence)

    assert "Messages beyond a count of 2 are removed as soon as nobody needs them." in said
    assert "1 or more beyond that are kept, since <strong>queue work</strong> needs" in said
    assert "which is waiting there" in said


def test_named_publishers_are_listed_and_stand_with_their_topic(asked, client, topics):
    with client.publisher("till-7") as till:
        till.publish("kept", {"id": 1})

        [told] = facts(asked, topics.replace("topics", "publishers"))["publishers"]

        assert (told["name"], told["sequence"], told["bookmark"].partition("~")[0]) == ("till-7", 1, "kept")
        assert "till-7" in asked.page(topics.replace("topics", "publishers")).text
        assert [each["name"] for each in facts(asked, f"{topics}/kept")["publishers"]] == ["till-7"]
        assert facts(asked, f"{topics}/orders")["publishers"] == []


def test_a_topic_that_is_not_there_is_not_found(asked, topics):
    page = asked.page(f"{topics}/nowhere")

    assert page.status == 404
    assert "nowhere" in page.text


def test_a_slash_in_a_name_is_part_of_the_name(asked, client, topics):
    client.apply(Topic(name="eu/orders"), LocalQueue(name="eu/work", underlying_topic="eu/orders"))

    assert facts(asked, f"{topics}/eu/orders")["name"] == "eu/orders"
    assert facts(asked, f"{topics.replace('topics', 'queues')}/eu/work")["name"] == "eu/work"


def test_a_publisher_that_recorded_nothing_has_no_time(asked, client, valkey, topics, coordinate):
    # Given an action all of whose letters were refused: into a topic with a key none goes without it
    client.apply(Action.dead_letter("work", "orders", name="keep"))
    client.publish("kept", "no object, so no /id")
    client.ack("work", option="expire", filter="1 = 1")
    coordinate(valkey.url)
    eventually(lambda: client.admin.failed_events("keep"), within=30)

    # When its publisher is looked at
    [state] = [each for each in client.admin.publishers() if each.name.startswith("action:keep")]
    page = topics.replace("topics", "publishers")
    [told] = [each for each in facts(asked, page)["publishers"] if each["name"].startswith("action:keep")]

    # Then it never recorded anything, in words too
    assert (state.bookmark, state.at, told["at"]) == (None, None, None)
    assert "1970" not in asked.page(page).text
    assert 'data-label="Recorded at">never<' in asked.page(page).text
