"""Names of the house: none means two things, and those that were given up for the field's terms do not come back."""

import ast
import collections
import re
from pathlib import Path

import pytest
from cases import for_each
from sources import tree_of

ROOT = Path(__file__).parents[2]
PARTS = ("ampsq", "cli", "spark", "bench")

#: What was given up -> what is said instead. Keys and fields that servers hold keep their names.
DICTIONARY = {
    "holding": "LeaseTable, leases",
    "held": "leases",
    "presence": "Keepalive",
    "beat": "heartbeat",
    "wish": "SubscriptionSpec, or SubscribeRequest as it travels",
    "wanted": "SubscriptionSpec, or what is waited for by its own name",
    "manner": "ConnectionOptions",
    "attached": "InstanceConnection",
    "home": "InstanceAddress",
    "homes": "instances",
    "line": "Connection",
    "lines": "ConnectionPool",
    "channel": "Pipeline; a channel of pub/sub by what it is for, as keepalive_channel",
    "pinned_channel": "PinnedPipeline",
    "patience": "retry_timeout",
    "doubt": "outcome_unknown",
    "in_doubt": "outcome_unknown",
    "elsewhere": "prepare_failover",
    "leave": "suspend, or what is given up by its own name",
    "move": "resume_at",
    "vectors": "VersionVector",
    "bearings": "VersionVector",
    "scene": "InstanceContext",
    "gate": "DurabilityGate",
    "judge": "Recheck, recheck",
    "judging": "recheck",
    "look": "Snapshot, or read_ and what is read",
    "look_at": "read_ and what is read",
    "letter": "dead_letter",
    "letters": "dead_letters",
    "happen": "emit_event",
    "heard": "has_listeners",
    "is_heard": "has_listeners",
    "told": "notify, reported, or the thing's own name",
    "said": "notify, reported, or the thing's own name",
    "written": "formatting, or the thing's own name",
    "unknown": "suggestions",
    "taught": "with_suggestions",
    "notice": "scan_foreign_entries",
    "place": "LogPosition, ServerAddress, FilePosition, or the position of what it is",
    "places": "positions of what they are",
    "whereabouts": "what it finds",
    "standing": "what it counts",
    "limbs": "what they are parts of",
    "enough": "what is bounded",
    "heads": "what they begin",
    "forgotten": "what is removed",
}


def modules():
    return [path for part in PARTS for path in sorted((ROOT / part).rglob("*.py"))]


def plain(name):
    """A name as the dictionary has it: `AsyncLine` and `_Line` are `line`, `PinnedChannel` is `pinned_channel`."""
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.strip("_")).lower()
    return snake.removeprefix("async_")


def definitions(tree, kinds):
    """The classes or functions of a module's top level, those under a condition too."""
    found, rest = [], list(tree.body)
    while rest:
        node = rest.pop(0)
        if isinstance(node, kinds):
            found.append(node.name)
        elif isinstance(node, ast.If | ast.Try | ast.With):
            rest += [each for each in ast.iter_child_nodes(node) if isinstance(each, ast.stmt | ast.ExceptHandler)]
        elif isinstance(node, ast.ExceptHandler):
            rest += node.body
    return found


def twice(sources):
    """Public class -> the files that define one of this name, where several do."""
    files = collections.defaultdict(list)
    for path, tree in sources:
        for name in definitions(tree, ast.ClassDef):
            if not name.startswith("_"):
                files[name].append(path)
    return {name: paths for name, paths in files.items() if len(paths) > 1}


def given_up(path, tree):
    """Of the names of a module, its classes and its public functions those that the dictionary has."""
    functions = definitions(tree, (ast.FunctionDef, ast.AsyncFunctionDef))
    names = [
        Path(path).stem,
        *definitions(tree, ast.ClassDef),
        *(each for each in functions if not each.startswith("_")),
    ]
    return [name for name in names if plain(name) in DICTIONARY]


def test_no_public_class_has_the_name_of_another():
    sources = [(str(path.relative_to(ROOT)), tree_of(path)) for path in modules()]
    found = twice(sources)
    assert not found, "\n".join(
        f"class {name} is in {' and in '.join(paths)}: say in each name what the thing is; a name that users import "
        "from ampsq stays, and the other one gets another"
        for name, paths in sorted(found.items())
    )


@pytest.mark.parametrize("part", PARTS)
def test_names_that_were_given_up_do_not_come_back(part):
    found = [
        f"{path.relative_to(ROOT)}: {name}: say {DICTIONARY[plain(name)]} (docs: the words of the house)"
        for path in modules()
        if path.relative_to(ROOT).parts[0] == part
        for name in given_up(path, tree_of(path))
    ]
    assert not found, "\n".join(found)


def test_two_classes_of_one_name_are_found():
    texts = [("a.py", "class Place: ..."), ("b.py", "if True:\n    class Place: ..."), ("c.py", "class _Place: ...")]
    sources = [(path, ast.parse(text)) for path, text in texts]
    assert twice(sources) == {"Place": ["a.py", "b.py"]}


def test_nested_classes_and_private_ones_may_share_a_name():
    texts = [("a.py", "class On:\n    class Timer: ..."), ("b.py", "class Do:\n    class Timer: ...")]
    sources = [(path, ast.parse(text)) for path, text in texts]
    assert twice(sources) == {}


def test_a_name_of_the_dictionary_is_found_as_module_class_and_function():
    text = "class AsyncLine: 1\nclass _Said: 1\ndef look(): 1\nasync def taught(): 1\ndef _told(): 1\ndef offline(): 1"
    assert given_up("ampsq/transport/lines.py", ast.parse(text)) == ["lines", "AsyncLine", "_Said", "look", "taught"]


@pytest.mark.parametrize(
    "topic",
    [
        "lease",
        "subscription",
        "publish",
        "acknowledge",
        "dead_letters",
        "failover",
        "retention",
        "heartbeat",
        "ownership",
    ],
)
def test_what_people_search_for_is_in_the_name_of_a_file(topic):
    names = [path.stem for path in (ROOT / "ampsq").rglob("*.py")]
    assert any(topic in name for name in names), (
        f"no file of ampsq/ is named for {topic!r}: name the one in which it is done so that a search finds it"
    )


def bound_twice(body, inside=""):
    """The names that a module or a class binds more than once, other than by overloads, setters and conditions."""
    bound = collections.Counter()
    for node in body:
        if isinstance(node, ast.Assign):
            bound.update(target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            bound[node.target.id] += 1
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            marks = " ".join(map(ast.unparse, node.decorator_list))
            bound[node.name] += not re.search(r"\boverload\b|\.setter\b|\.deleter\b", marks)
            if isinstance(node, ast.ClassDef):
                yield from bound_twice(node.body, f"{inside}{node.name}.")
    yield from (f"{inside}{name}" for name, number in bound.items() if number > 1)


@for_each("path", modules)
def test_no_name_of_a_module_or_a_class_is_bound_twice(path):
    """A second binding takes the first one's place in silence, as a rename may make one."""
    assert list(bound_twice(tree_of(path).body)) == []
