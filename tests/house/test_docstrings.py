"""Docstrings begin with a verb or with the noun that the thing is, so that their first word says what kind of thing."""

import ast
import re
from pathlib import Path

import pytest
from sources import statements, tree_of

ROOT = Path(__file__).parents[2]
PARTS = ("ampsq", "cli", "spark", "bench", "lua", "docs", "examples", "tests")

#: First words of half a sentence: a question without its answer, or a pronoun without its noun.
QUESTIONS = {"what", "whatever", "whether", "how", "where", "when", "who", "whoever", "whom", "whose", "why", "which"}
PRONOUNS = {"that", "those", "these", "it", "its", "he", "she", "they", "them", "their"}


def docstrings(tree):
    """Yield line and docstring of a module, and of its classes, functions and attributes; private ones, too."""
    for node in statements(tree):
        body = getattr(node, "body", None)
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or not body:
            continue
        for before, each in zip([None, *body], body, strict=False):
            is_first = before is None
            follows = isinstance(node, ast.Module | ast.ClassDef) and isinstance(before, ast.Assign | ast.AnnAssign)
            if (is_first or follows) and isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant):
                value = each.value.value
                if isinstance(value, str):
                    yield each.lineno, value


def half_sentences(tree):
    """Return line and first words of the docstrings that begin with a question or a pronoun."""
    found = []
    for line, docstring in docstrings(tree):
        first = re.match(r"\W*([A-Za-z']+)", docstring)
        if first and first[1].lower() in QUESTIONS | PRONOUNS:
            found.append((line, docstring.split("\n")[0]))
    return found


@pytest.mark.parametrize("part", PARTS)
def test_docstrings_begin_with_a_verb_or_a_noun(part):
    found = [
        f"{path.relative_to(ROOT)}:{line}: {words}"
        for path in sorted((ROOT / part).rglob("*.py"))
        for line, words in half_sentences(tree_of(path))
    ]
    assert not found, (
        'begin with a verb ("Return whether ...", "Read ...") or with the noun that it is ("Number of ...", "The '
        'reply of ..."):\n' + "\n".join(found)
    )


@pytest.mark.parametrize(
    "text",
    [
        '"""What it reads."""',
        'class A:\n    """Whether it is."""',
        'async def f():\n    """How many there are."""',
        'class A:\n    x: int = 1\n    """Where it begins."""',
        'def f():\n    """Those of a queue."""',
        'def f():\n    """``Its`` name."""',
    ],
)
def test_half_a_sentence_is_found(text):
    assert len(half_sentences(ast.parse(text))) == 1


@pytest.mark.parametrize(
    "text",
    [
        '"""Messages as text: what it reads."""',
        'def f():\n    """Return whether it is."""',
        'def f():\n    """This call has too much to read."""',
        'def f():\n    x = 1\n    "what a statement is"',
    ],
)
def test_a_verb_or_a_noun_passes(text):
    assert half_sentences(ast.parse(text)) == []
