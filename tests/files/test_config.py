from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from refusing import refusals

from ampsq.base.errors import DefinitionError
from ampsq.definitions.action import Action
from ampsq.definitions.queue import Queue, Topic, View
from ampsq.files.config import load

FILE = """\
views:
  - name: open
    underlying_topic: work
    filter: /qty > 0
    projection: [/symbol, SUM(/price * /qty) AS /value]
    grouping: [/symbol]
actions:
  - dead_letter: {queue: work, topic: dead}
  - name: late
    on: {expire: {topic: work, reason: [time_limit]}}
    do: {publish: late}
queues:
  - name: work
    underlying_topic: orders
    lease_period: 30s
    max_per_subscription_backlog: 100
topics:
  - name: orders
"""

DEFINITIONS = [
    Topic(name="orders"),
    Queue(name="work", underlying_topic="orders", lease_period="30s", max_per_subscription_backlog=100),
    View(
        name="open",
        underlying_topic="work",
        filter="/qty > 0",
        projection=["/symbol", "SUM(/price * /qty) AS /value"],
        grouping=["/symbol"],
    ),
    Action.dead_letter("work", "dead"),
    Action.dead_letter("work", "late", name="late", reasons=("time_limit",)),
]


def test_a_text_gives_topics_then_queues_then_views_then_actions():
    assert load(FILE) == DEFINITIONS


def test_a_file_is_read_by_path_or_by_its_name(tmp_path):
    path = tmp_path / "queues.yaml"
    path.write_text(FILE)
    assert load(path) == load(str(path)) == DEFINITIONS


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    assert refusals(tmp_path / "none.yaml")[0].endswith(f"{tmp_path}/none.yaml: no such file")
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    assert refusals(binary)[0].startswith(f"{binary}: cannot be read as a UTF-8 text file")


def test_words_that_yaml_takes_for_something_else_stay_words():
    topics = load("topics: [{name: on}, {name: no}, {name: 2024}, {name: 2024-01-01}, {name: 1_0}, {name: 'null'}]")
    assert [topic.name for topic in topics] == ["on", "no", "2024", "2024-01-01", "1_0", "null"]


def test_nothing_after_a_colon_is_the_default():
    assert load("queues:\n - name: work\n   max_backlog:\n   lease_period: ~\nactions:\n") == [Queue(name="work")]


def test_switches_and_numbers_are_read_from_their_text():
    (queue,) = load("queues: [{name: w, allow_redelivery_after_crash: yes, max_backlog: 10k, lease_period: 5}]")
    assert queue == Queue(name="w", allow_redelivery_after_crash=True, max_backlog=10_000, lease_period=5)


def test_expressions_are_read_as_they_stand():
    text = """
queues:
  - name: a
    filter: /country IN ('US', 'UK') AND /note != "it's"
    priority: -/age * 10
  - name: b
    filter: >
      /a = 1
      AND /b LIKE '^[a-z]+'
    barrier_expression: "'end' = /type"
    underlying_topic: open
views:
  - name: open
    underlying_topic: [orders, trades]
    projection:
      - COUNT(*) AS /n
      - "[/unit price] AS /price"
    grouping: ["[/unit price]"]
"""
    a, b, view = load(text)
    assert (a.filter, a.priority) == ("""/country IN ('US', 'UK') AND /note != "it's\"""", "-/age * 10")
    assert b.filter.split() == ["/a", "=", "1", "AND", "/b", "LIKE", "'^[a-z]+'"]
    assert (b.barrier_expression, b.underlying_topic) == ("'end' = /type", "open")
    assert view.projection == ("COUNT(*) AS /n", "[/unit price] AS /price")


def test_faults_of_expressions_have_the_line_of_their_text():
    lines = refusals("""\
queues:
  - name: w
    filter: /a >
    priority: /b
    barrier_expression: /c = 1
    target_queue_depth: 5
views:
  - name: v
    underlying_topic: w
    projection:
      - COUNT(*) AS /n
      - /a
      - SUM(/qty
    grouping: [/b,
      c]
  - name: u
    projection: /a
    projection[0]: /a
""")
    assert [re.sub(r"(column \d+|missing|does not go with \w+|is \w+ \w+).*", r"\1", line) for line in lines] == [
        "<text>:3: Queue 'w': filter: '/a >': column 5",
        "<text>:5: Queue 'w': barrier_expression: does not go with priority",
        "<text>:6: Queue 'w': target_queue_depth: '5' is too small",
        "<text>:6: Queue 'w': target_queue_depth: does not go with barrier_expression",
        "<text>:6: Queue 'w': target_queue_depth: does not go with priority",
        "<text>:13: View 'v': projection[2]: 'SUM(/qty': column 9",
        "<text>:15: View 'v': grouping[1]: 'c' is not an",
        "<text>:16: View 'u': underlying_topic: missing",
        "<text>:17: View 'u': projection: '/a' is not a",
        "<text>:18: View 'u': projection[0]: no such element; did you mean 'projection'?",
    ]


def test_the_document_s_view_is_one():
    page = (Path(__file__).parents[2] / "docs" / "queues.md").read_text()
    (views,) = (load(text) for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "best-trades" in text)
    assert [view.feeds_from("best-trades") for view in views] == [True]


def test_anchors_and_merges_share_elements_wherever_the_sections_stand():
    text = """
queues:
  - &base {name: a, lease_period: 30s}
  - &next {<<: *base, name: b, max_backlog: 5}
  - {<<: *next, name: c}
"""
    assert load(text) == [
        Queue(name="a", lease_period="30s"),
        Queue(name="b", lease_period="30s", max_backlog=5),
        Queue(name="c", lease_period="30s", max_backlog=5),
    ]


def test_every_fault_of_a_file_is_listed_with_its_line(tmp_path):
    path = tmp_path / "queues.yaml"
    path.write_text("""\
topics: [{name: a}, {name: a}, b]
queus: []
queues:
  - name: w
    LeasePeriod: 5s
    lease_perod: 5s
    max_backlog: 0
    max_backlog: 3
  - name: [a, b]
    underlying_topic: ^x
    leasing: {a: b}
actions:
  - dead_letter: {queue: w}
  - dead_letter: {queue: w, topic: x}
    name: z
  - dead_letter: 5
  - name: parts
    on:
      - expire: {topc: w}
      - scedule: 4h
    do:
      - publish: a b
      - transfer
    iff: 3
""")
    lines = refusals(path)
    assert all(line.startswith(f"{path}:") for line in lines)
    name = "allowed: 1 to 255 of the characters A-Z a-z 0-9 _ . / -"
    pattern = (
        "underlying_topic '^x' is a regular expression, since it has characters that no name has; "
        "allowed: the name of one topic that it matches"
    )
    alone = "Action: dead_letter: stands alone and has elements; allowed: dead_letter: {queue: work, topic: dead}"
    assert [line.removeprefix(f"{path}:") for line in lines] == [
        "1: Topic 'a': defined twice, first at line 1; allowed: once in a file",
        "1: Topic: 'b' is not a definition; allowed: elements, as in name: work",
        "2: queus: no such section; did you mean 'queues'?",
        "5: Queue 'w': LeasePeriod: no such element; it is written 'lease_period' here",
        "6: Queue 'w': lease_perod: no such element; did you mean 'lease_period'?",
        "8: max_backlog: given twice, first at line 7; allowed: once",
        "9: Queue ['a', 'b']: default_publish_target: missing; " + pattern,
        f"9: Queue ['a', 'b']: name: ['a', 'b'] is not a text; {name}",
        "11: Queue ['a', 'b']: leasing: {'a': 'b'} is not known; allowed: 'strict' or 'sublet'",
        f"13: Action 'dead-letter-w': topic: missing; {name}",
        f"14: {alone}",
        f"16: {alone}",
        "19: Action 'parts': on[0]: expire: topc: no such element; did you mean 'topic'?",
        "19: Action 'parts': on[0]: expire: topic: missing; the queue",
        "20: Action 'parts': on[1]: 'scedule': no such word; did you mean 'schedule'?",
        f"22: Action 'parts': do[0]: publish: topic: 'a b' is not a name; {name}",
        "23: Action 'parts': do[1]: 'transfer': no such word; did you mean 'translate'?",
        "24: Action 'parts': iff: no such element; did you mean 'if'?",
    ]


@pytest.mark.parametrize("text", ["\n", "# nothing\n", "a text\n", "- name: work\n", "&a [*a]\n", "3\n"])
def test_a_file_without_sections_is_refused(text):
    (line,) = refusals(text)
    assert line.startswith(
        "<text>:1: the file has no definitions; allowed: the sections transports, topics, address_settings, queues, "
    )


def test_a_section_that_is_no_list_is_refused():
    assert refusals("queues: {name: work}") == [
        "<text>:1: queues: {'name': 'work'} is not a list; allowed: a list of definitions"
    ]


@pytest.mark.parametrize(
    "text",
    [
        "queues: [",
        "a: b: c",
        "\tqueues: []\n",
        "a: \x00",
        "--- {}\n--- {}\n",
        "queues:\n - <<: 5\n",
        "[" * 3_000 + "\n",
    ],
)
def test_what_is_not_yaml_is_refused(text):
    (line,) = refusals(text)
    assert line.startswith("<text>:")
    assert "not YAML: " in line


@pytest.mark.parametrize(
    "text", ["? [queues]\n: []\n", "queues:\n - ? {a: b}\n   : c\n", "queues:\n - &a {name: *a}\n"]
)
def test_odd_but_valid_yaml_is_refused_and_nothing_else(text):
    assert refusals(text)


@pytest.mark.parametrize("filter_", ["'x' = /a", "/a = 'x: y'", "[/a b] = 1"])
def test_an_expression_that_is_no_yaml_is_to_be_quoted(filter_):
    (line,) = refusals(f"queues:\n  - name: a\n    filter: {filter_}\n")
    assert "put the whole expression in double quotes" in line
    assert load(f'queues:\n  - name: a\n    filter: "{filter_}"\n')


def test_a_misspelt_element_is_answered_with_the_likeliest_one_alone():
    assert refusals("actions:\n  - dead_leter: {queue: a, topic: b}\n") == [
        "<text>:2: Action: dead_leter: no such element; did you mean 'dead_letter'?"
    ]
    assert refusals("queues: [{name: a, lease: 3s}]") == [
        "<text>:1: Queue 'a': lease: no such element; did you mean 'lease_period'?"
    ]


def test_an_empty_expression_is_to_be_left_out():
    (line,) = refusals("queues: [{name: a, filter: ''}]")
    assert line.endswith("or leave it out")


def test_tags_make_no_objects():
    assert load("topics: [{name: !!python/name:os.system a}]\n") == [Topic(name="a")]


def test_without_pyyaml_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert refusals(FILE) == ["reading YAML needs PyYAML: pip install 'ampsq[cli]'"]


# -- what files say by mistake


def test_a_match_that_is_a_comment_for_yaml_gets_a_hint_to_quote_it():
    (told,) = refusals("address_settings:\n  - match: #\n    default_ring_size: 3\n")
    assert told.startswith("<text>:2: AddressSetting without a name: match: missing; allowed: words")
    assert told.endswith("; for YAML a comment begins at the #: put the value in quotes, as in match: '#'")
    (told,) = refusals("address_settings:\n  - {match: #.news, default_ring_size: 3}\n")
    assert told.endswith("; for YAML a comment begins at the #: put the value in quotes, as in match: '#.news'")
    assert "comment" not in refusals("address_settings:\n  - match:\n    default_ring_size: 3\n")[0]


def test_an_address_setting_without_an_element_is_refused_unless_it_names_what_it_takes_back():
    (told,) = refusals("address_settings:\n  - match: ring.x\n")
    assert told.startswith(
        "<text>:2: AddressSetting 'ring.x': match: says nothing; allowed: with default_ring_size, auto_create_queues, "
    )
    (setting,) = load("address_settings:\n  - match: ring.x\n    default_ring_size:\n")
    assert setting.elements() == {"name": "ring.x"}


def test_an_error_about_a_definition_gets_its_place_in_the_file():
    loaded = load("queues:\n  - name: work\n    lease_period: 30s\n")
    error = DefinitionError("Queue 'work': lease_period: no\nQueue 'work': filter: no")
    assert loaded.placed(error) == str(error)
    error.definition = loaded[0]
    assert loaded.placed(error) == "<text>:3: Queue 'work': lease_period: no\n<text>:2: Queue 'work': filter: no"
    error = DefinitionError("'wrok' is no queue")
    error.definition = loaded[0]
    assert loaded.placed(error) == "<text>:2: Queue 'work': 'wrok' is no queue"
    error.definition = Queue(name="other")
    assert loaded.placed(error) == "'wrok' is no queue"
