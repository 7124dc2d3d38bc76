"""A configuration file's values from the environment, the files that it includes, and what it says of itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from refusing import refusals

from ampsq import GroupLocalQueue, Instance, Queue, Topic
from ampsq.base.errors import DefinitionError
from ampsq.files.config import load
from ampsq.files.config_text import render_config
from ampsq.files.environment import substitute


@pytest.fixture
def write(tmp_path):
    def write(**files):
        for name, text in files.items():
            path = tmp_path / f"{name.replace('__', '/')}.yaml"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        return tmp_path / "main.yaml"

    return write


# --- the environment


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${A}", "one"),
        ("a ${A} and ${B}", "a one and ${A}"),
        ("${C:-}", ""),
        ("${C:-two}${EMPTY:-three}", "twothree"),
        ("${A:-two}", "one"),
        ("${EMPTY}", ""),
        ("$${A} $$ $A", "${A} $$ $A"),
        ("{{AMPS_DATA}}", "{{AMPS_DATA}}"),
    ],
)
def test_variables_are_put_in_once_and_a_default_stands_in_for_what_is_empty(text, value):
    assert substitute(text, {"A": "one", "B": "${A}", "EMPTY": ""}) == value


@pytest.mark.parametrize("text", ["${}", "${1A}", "${A", "${A-b}", "${ A }"])
def test_what_only_begins_like_a_variable_is_refused(text):
    with pytest.raises(DefinitionError, match=r"is no variable; allowed: \$\{NAME\}, \$\{NAME:-default\}, or \$\$\{"):
        substitute(text, {"A": "one"})


def test_values_of_a_file_come_from_the_environment_and_keys_do_not(monkeypatch):
    monkeypatch.setenv("LEASE", "30s")
    monkeypatch.setenv("TRICKY", "a: [b]\nqueues: []")
    text = (
        "queues:\n  - name: ${QUEUE:-work}\n    lease_period: ${LEASE}\n    max_backlog: ${BACKLOG:-}\n"
        "    filter: /a = '$${LEASE}'\n  - &a {name: next, lease_period: '${LEASE}'}\n  - {<<: *a, name: last}\n"
    )
    work, following, last = load(text)
    assert work == Queue(name="work", lease_period="30s", filter="/a = '${LEASE}'")
    assert (following.lease_period, last.lease_period) == (30_000, 30_000)
    # A value stays one, whatever it holds
    assert "name: 'a: [b]\\nqueues: []' is not a name" in refusals("queues:\n  - name: ${TRICKY}\n")[0]
    assert refusals("queues:\n  - ${LEASE}: 30s\n    name: work\n")[0].startswith(
        "<text>:2: Queue 'work': ${LEASE}: no"
    )


def test_a_variable_that_is_missing_is_named_with_its_line():
    missing = "the environment has no NOWHERE; allowed: set it, or give a default, as in ${NOWHERE:-...}"
    text = (
        "queues:\n  - name: work\n    lease_period: ${NOWHERE}\n"
        "    filter: >\n      /a = 1\n      AND /b = '${NOWHERE}'\n"
    )
    assert [line.partition("; $${")[0] for line in refusals(text)] == [
        f"<text>:3: ${{NOWHERE}}: {missing}",
        f"<text>:6: ${{NOWHERE}}: {missing}",
    ]


def test_what_a_missing_variable_leaves_open_is_told_once_and_what_else_is_wrong_beside_it():
    lines = refusals(
        "queues:\n  - {name: '${NOWHERE}', lease_perod: 1s}\n"
        "destinations:\n  - {name: far, sync_type: async, topics: [orders], addresses: ['${NOWHERE}']}\n"
        "actions:\n  - {name: copy, on: {publish: '${NOWHERE}'}, do: {publish: b}}\n"
    )
    assert [line.partition(" has no ")[0].partition("; ")[0] for line in lines] == [
        "<text>:2: ${NOWHERE}: the environment",
        "<text>:2: Queue without a name: lease_perod: no such element",
        "<text>:4: ${NOWHERE}: the environment",
        "<text>:6: ${NOWHERE}: the environment",
    ]


def test_what_is_wrong_with_one_thing_that_stands_for_a_list_of_it_has_its_place():
    (line,) = refusals("topics: [{name: t}]\nactions:\n  - name: a\n    on: connect\n    do: {publish: {topic: t}}\n")
    assert line.startswith("<text>:5: Action 'a': do[0]: publish: data: missing")


def test_a_variable_in_brackets_is_to_be_quoted():
    (line,) = refusals("queues: [{name: ${A}}]\n")
    assert 'within brackets put a variable in quotes, as in {name: "${NAME}"}' in line


# --- included files


def test_files_are_included_by_list_and_by_pattern_from_the_folder_of_each(write):
    main = write(
        main="include: [topics.yaml, queues/*.yaml]\nname: nyc-1\nqueues:\n  - name: last\n",
        topics="group: NYC\ntopics:\n  - name: orders\n",
        queues__b="queues:\n  - name: b\n",
        queues__a="include: ../more.yaml\nqueues:\n  - name: a\n",
        more="queues:\n  - name: more\n",
    )
    loaded = load(main)
    assert loaded == [
        Instance(name="nyc-1", group="NYC"),
        Topic(name="orders"),
        *(Queue(name=name) for name in ("more", "a", "b", "last")),
    ]
    assert loaded.place(Queue(name="a")) == f"{main.parent}/queues/a.yaml:3"
    assert loaded.place(Queue(name="last")) == f"{main}:4"


def test_a_file_that_two_files_include_counts_once(write):
    main = write(
        main="include: [a.yaml, b.yaml]\n", a="include: c.yaml\n", b="include: c.yaml\n", c="topics: [{name: t}]"
    )
    assert load(main) == [Topic(name="t")]


def test_a_path_comes_from_the_environment_too(write, monkeypatch):
    main = write(main="include: ${STAGE:-test}.yaml\n", test="topics: [{name: t}]\n", live="topics: [{name: l}]\n")
    assert load(main) == [Topic(name="t")]
    monkeypatch.setenv("STAGE", "live")
    assert load(main) == [Topic(name="l")]


def test_faults_of_all_files_are_told_with_their_places_and_a_definition_is_in_one(write):
    main = write(
        main="include: [a.yaml, none.yaml, 'x*.yaml', {b: c}]\nname: b\nqueues:\n  - name: work\n    lease_perod: 3\n"
        "  - name: twice\n",
        a="name: a\nqueues:\n  - name: twice\n  - name: w\n    max_backlog: 0\n",
    )
    folder, there = main.parent, "of such, from the file's own folder"
    assert [line.partition("; allowed")[0] for line in refusals(main)] == [
        f"{main}:1: include: 'x*.yaml' matches no file",
        f"{main}:1: include: {folder}/none.yaml: no such file",
        f"{main}:1: include: {{'b': 'c'}}: allowed: a path, a pattern as in conf.d/*.yaml, or a list {there}",
        f"{main}:2: name: given twice, first at {folder}/a.yaml:1",
        f"{main}:5: Queue 'work': lease_perod: no such element; did you mean 'lease_period'?",
        f"{main}:6: Queue 'twice': defined twice, first at {folder}/a.yaml:3",
        f"{folder}/a.yaml:5: Queue 'w': max_backlog: '0' is too small",
    ]


def test_a_circle_of_files_is_refused(write):
    main = write(main="include: a.yaml\n", a="include: b.yaml\n", b="include: main.yaml\ntopics: [{name: t}]\n")
    assert refusals(main) == [
        f"{main.parent}/b.yaml:1: include: {main} is a file that this one is included by; allowed: others"
    ]


def test_an_included_file_that_is_no_yaml_is_named(write):
    main = write(main="include: a.yaml\n", a="queues: [\n")
    assert refusals(main)[0].startswith(f"{main.parent}/a.yaml:2: not YAML: ")
    # Nor is XML
    write(a="<AMPSConfig/>")
    assert "a.yaml" in refusals(main)[0]


# --- what a file says of itself


def test_a_file_says_for_which_server_it_is_and_the_domain_of_its_queues():
    loaded = load(
        "url: redis://nyc:6379\ndomain: ny\ngroup_local_queues:\n  - {name: a, initial_owner: x}\n"
        "  - {name: b, initial_owner: x, group_local_queue_domain: other}\n"
    )
    assert loaded.url == "redis://nyc:6379"
    assert loaded == [
        GroupLocalQueue(name="a", initial_owner="x", group_local_queue_domain="ny"),
        GroupLocalQueue(name="b", initial_owner="x", group_local_queue_domain="other"),
    ]
    assert load("topics: [{name: t}]\n").url is None


def test_an_address_and_a_domain_that_are_none_are_refused_without_a_password():
    found = refusals("url: http://me:s3cret@x\ndomain: a b\ntopics:\n")
    assert found[0].startswith("<text>:1: url: ")
    assert found[1].startswith("<text>:2: domain: 'a b' is not a name")
    assert "s3cret" not in "".join(found)


# --- the instance


def test_the_section_of_the_instance_has_its_elements_and_those_at_the_top_are_the_same():
    alone = load("instance: {topics: defined}\n")
    assert alone == [Instance(topics="defined")]
    assert alone.place(alone[0], "topics") == "<text>:1"

    both = load("name: nyc\ninstance:\n  topics: ${MODE:-defined}\n  group: NYC\ntopics:\n  - name: orders\n")
    assert both == [Instance(name="nyc", group="NYC", topics="defined"), Topic(name="orders")]
    assert both.place(both[0], "topics") == "<text>:3"
    assert load("instance:\ntopics: [{name: t}]\n") == [Topic(name="t")]


@pytest.mark.parametrize("instance", [Instance(topics="defined"), Instance(name="nyc", label="x", topics="defined")])
def test_what_an_instance_takes_is_written_and_read_again(instance):
    text = render_config([instance, Topic(name="orders")])

    assert "instance:\n  topics: defined\n" in text
    assert load(str(text)) == [instance, Topic(name="orders")]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "topics: defined\n",
            (
                "<text>:1: topics: 'defined' is not a list; allowed: a list of definitions; which ones the instance "
                "takes is another thing, as in instance: {topics: defined}"
            ),
        ),
        ("instance: nyc\n", "<text>:1: instance: 'nyc' is not a mapping; allowed: its elements, as in topics: defined"),
        (
            "instance: [nyc]\n",
            "<text>:1: instance: ['nyc'] is not a mapping; allowed: its elements, as in topics: defined",
        ),
        ("instance:\n  topic: defined\n", "<text>:2: instance: topic: no such element; did you mean 'topics'?"),
        ("instance:\n  topics: some\n", "<text>:2: topics: 'some' is not known; allowed: 'any' or 'defined'"),
        ("name: a\ninstance: {name: b}\n", "<text>:2: name: given twice, first at line 1; allowed: once"),
        ("instance: {label: b}\nlabel: a\n", "<text>:2: label: given twice, first at line 1; allowed: once"),
        ("instances: {}\n", "<text>:1: instances: no such section; did you mean 'instance'?"),
    ],
)
def test_what_is_wrong_with_what_is_said_of_the_instance_has_its_place(text, told):
    assert refusals(text) == [told]


def test_the_instance_is_told_of_in_one_of_several_files(write):
    path = write(main="include: a.yaml\ninstance: {topics: defined}\n", a="instance: {topics: any, group: NYC}\n")

    (told,) = refusals(path)
    assert told.startswith(f"{path}:2: topics: given twice, first at ")


@pytest.mark.parametrize("name", ["main.yaml", "main.xml"])
def test_a_device_that_never_ends_is_refused_and_fills_no_memory(tmp_path, name):
    including = (
        "include: /dev/zero" if name.endswith("yaml") else "<AMPSConfig><Include>/dev/zero</Include></AMPSConfig>"
    )
    (tmp_path / name).write_text(including)

    for path in (tmp_path / name, Path("/dev/zero")):
        with pytest.raises(
            DefinitionError, match=r"/dev/zero:? cannot be read as a UTF-8 text file: it is larger than 64MB"
        ):
            load(path)
