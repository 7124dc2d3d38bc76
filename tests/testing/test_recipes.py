"""The recipes of docs/recipes.md, run as their readers run them: each in a folder of its own, by pytest."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cases import first_ones

PAGE = Path(__file__).parents[2] / "docs" / "recipes.md"
#: The packages that a recipe needs; their warnings are not ours.
NEEDS = {"FastAPI": "fastapi", "Django": "django", "Sentry": "sentry_sdk", "structlog": "structlog"}
#: Recipes that skip themselves where their server is not, with how they say so.
SKIPS = {"An outbox in PostgreSQL": "POSTGRES_URL"}


def recipes():
    """The recipes of the page: title -> file's name -> text."""
    found = {}
    for section in PAGE.read_text().split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        found[title] = {
            name: f"# {name}\n{block}" for name, block in re.findall(r"```python\n# (\S+)\n(.*?)```", text, re.DOTALL)
        }
    return found


def test_the_page_lists_each_of_its_recipes():
    listed = re.findall(r"^\| \[(.*?)\]", PAGE.read_text(), re.MULTILINE)

    assert listed == list(recipes())
    assert NEEDS.keys() | SKIPS.keys() <= set(listed)


@first_ones("server", ["memory", "embedded"], 1)
@first_ones("title", recipes(), 3)
def test_a_recipe_does_what_its_test_says(title, server, tmp_path):
    if title in NEEDS and os.environ.get("AMPSQ_FORBID_SKIPS") != "1":
        pytest.importorskip(NEEDS[title])
    for name, text in recipes()[title].items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", f"--ampsq-server={server}"),
        str(tmp_path),
    ]

    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "AMPSQ_URL": ""},
    )

    is_skipped = title in SKIPS and SKIPS[title] not in os.environ
    # pytest's 5: no test was run.
    assert done.returncode == (5 if is_skipped else 0), done.stdout + done.stderr
    assert ("1 skipped" if is_skipped else "1 passed") in done.stdout
