"""Calls of the Python API on pages: each call is there, and each of its arguments by name."""

import ast
import inspect
import re
from pathlib import Path

import pytest
from cli_reference import commands

import ampsq
from ampsq import Admin, AsyncClient, Client, Message, ReplicatedTopic
from ampsq.definitions.definition import CheckedModel
from ampsq.topics.subscription_spec import ReplayOptions

ROOT = Path(__file__).resolve().parents[2]
#: The reference is written from the code; decisions and answers of readers say what was so when they were made.
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "docs" / "measured" / "reference-tasks.md"]
COMING = [ROOT / "docs" / "coming-from-amps.md", ROOT / "docs" / "coming-from-others.md"]
COMMANDS = {path for path, _ in commands()}


def written_in(text):
    """The trees of a page's Python: its programs, and what stands as code in its sentences."""
    programs = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    for code in [*programs, *in_sentences(text)]:
        try:
            yield ast.parse(code)
        except SyntaxError:
            # A command, a name with a dash, an expression of filters
            assert code not in programs, code


def in_sentences(text):
    without_blocks = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    return [code.replace("\\|", "|") for code in re.findall(r"`([^`\n]+)`", without_blocks)]


def owner_of(node):
    """The class that a page's name stands for: `client`, `client.admin`, `message`."""
    if isinstance(node, ast.Name):
        return {"client": Client, "message": Message, "On": ampsq.On, "Do": ampsq.Do, "If": ampsq.If}.get(node.id)
    is_admin = isinstance(node, ast.Attribute) and node.attr == "admin" and owner_of(node.value) is Client
    return Admin if is_admin else None


def arguments_of(function):
    if isinstance(function, type) and issubclass(function, CheckedModel):
        return set(function.model_fields)
    names = {name for name, each in inspect.signature(function).parameters.items() if each.kind is not each.VAR_KEYWORD}
    return names | set(ReplayOptions.__annotations__ if function.__name__ == "subscribe_topic" else ())


def called(node):
    """Return the public call that a call makes; None where it is something else."""
    is_exported = isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) == "ampsq"
    if isinstance(node.func, ast.Attribute) and not is_exported:
        owner = owner_of(node.func.value)
        return getattr(owner, node.func.attr, None) if owner is not None else None
    name = node.func.attr if is_exported else node.func.id if isinstance(node.func, ast.Name) else ""
    found = getattr(ampsq, name) if name in ampsq.__all__ else None
    # Errors take what they say
    return None if inspect.isclass(found) and issubclass(found, Exception) else found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_call_that_a_page_names_is_there(page):
    wrong = []
    for tree in written_in(page.read_text()):
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                owner = owner_of(node.value)
                # An attribute of messages that only topics' have is none of queues'
                if owner is not None and not hasattr(owner, node.attr) and not hasattr(ampsq.TopicMessage, node.attr):
                    wrong.append(ast.unparse(node))
            elif isinstance(node, ast.Call) and (function := called(node)) is not None:
                given = {keyword.arg for keyword in node.keywords if keyword.arg is not None}
                if given - arguments_of(function):
                    wrong.append(ast.unparse(node))

    assert wrong == []


def test_a_call_that_is_not_there_or_has_another_argument_is_seen():
    owners = [owner_of(ast.parse(text).body[0].value) for text in ("client", "client.admin", "message", "other")]
    assert owners == [Client, Admin, Message, None]
    calls = [called(ast.parse(text).body[0].value) for text in ("ampsq.Client()", "Client()", "client.ack()", "f()")]
    assert calls == [Client, Client, Client.ack, None]
    assert not hasattr(Client, "queue_stats")
    assert "publisher" not in arguments_of(Client)
    assert "sub_id" in arguments_of(Client.subscribe_topic)
    assert arguments_of(Client.publish) == arguments_of(AsyncClient.publish)
    assert "filter" in arguments_of(ReplicatedTopic)


@pytest.mark.parametrize("page", COMING, ids=lambda page: page.stem)
def test_calls_that_newcomers_read_of_are_written_in_full(page):
    """`client.publish(...)`, never `publish(...)`; commands with the words that they have."""
    here = "\n".join(
        line.split(" | ", 1)[1] if line.startswith("| ") else line for line in page.read_text().splitlines()
    )
    for code in in_sentences(here):
        if code.startswith("ampsq "):
            words = [word for word in code.split()[1:] if re.fullmatch(r"[a-z-]+", word) and not word.startswith("-")]
            assert any(" ".join(words[:number]) in COMMANDS for number in (1, 2)), code
        elif found := re.match(r"(\w+)\(", code):
            assert found[1] in ampsq.__all__, code
