"""Files of `tests/readers`: ten questions a page, each with its key, the raw answers, and in the end nothing missed."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "readers"
PAGES = sorted(path for path in FOLDER.glob("*.md") if path.name != "INDEX.md")
QUESTIONS = 10


def rounds_of(text):
    """The rounds of a page's file: their verdict, the numbers that were missed, and the raw answers."""
    found = []
    for part in re.split(r"^## Round \d+\n", text, flags=re.MULTILINE)[1:]:
        verdict, answers = re.fullmatch(r"\n(.*?)\n\n~~~~text\n(.*?)\n~~~~\n*", part, re.DOTALL).groups()
        missed = re.search(r"Missed: ([\d, ]+|none)\.", verdict)[1]
        found.append(([] if missed == "none" else [int(number) for number in missed.split(", ")], answers))
    return found


def test_the_pages_that_are_measured_are_all_there():
    assert len(PAGES) == 25
    assert all((ROOT / path.name if path.name == "README.md" else ROOT / "docs" / path.name).exists() for path in PAGES)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page_has_ten_questions_with_keys_and_a_last_round_without_a_miss(path):
    text = path.read_text()
    questions = re.findall(r"^(\d+)\. .+\n   Key: .+$", text.split("## Round 1")[0], re.MULTILINE)
    assert questions == [str(number) for number in range(1, QUESTIONS + 1)]
    rounds = rounds_of(text)
    assert rounds
    for missed, answers in rounds:
        assert missed == sorted(set(missed))
        numbers = re.findall(r"^(\d+)\. ", answers, re.MULTILINE)
        assert numbers == [str(number) for number in range(1, QUESTIONS + 1)]
    assert rounds[-1][0] == []
