"""Releases: the published wheel is the tested one, and the changelog is cut where a version begins."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import matrix
import pytest
import releasing

ROOT = Path(__file__).parents[2]
LINES = matrix.read()
TESTED = {line["what"] for line in LINES if line["tested"]}
CHANGELOG = """# Changelog

All notable changes.

## Unreleased

### Added

- Queues.

## 0.1.0 - 2026-01-02

- The first.
"""


def test_every_python_and_server_has_its_line_with_what_was_tested_or_why_not():
    assert [line["what"] for line in LINES] == [*(f"Python {each}" for each in matrix.PYTHONS), *matrix.SERVERS]
    assert [line for line in LINES if bool(line["tested"]) == bool(line["untested"])] == []
    # Nothing that was there and failed is written down as if it had not been tried
    assert [line for line in LINES if line["version"] and not line["tested"]] == []


def test_the_page_has_the_table_that_was_written_down():
    # `python tests/matrix.py --table` writes it
    assert f"{matrix.BEGIN}\n{matrix.table(LINES)}\n{matrix.END}" in matrix.PAGE.read_text()


def test_the_package_names_the_pythons_that_were_tested():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    named = [each.removeprefix("Programming Language :: ") for each in project["classifiers"] if ":: Python ::" in each]
    tested = [f"Python :: {each}" for each in matrix.PYTHONS if f"Python {each}" in TESTED]

    assert named == tested
    assert project["requires-python"] == f">={matrix.PYTHONS[0]}"


@pytest.mark.parametrize("page", ["README.md", "docs/releasing.md"])
def test_pages_name_no_server_or_python_older_than_those_that_were_tested(page):
    text = (ROOT / page).read_text()

    oldest = {}
    for kind, number in re.findall(r"\b(Redis|Valkey|Python) (\d+(?:\.\d+)?)(?:\.\d+)*", text):
        oldest[kind] = min(oldest.get(kind, (99,)), tuple(map(int, number.split("."))))

    for kind, least in oldest.items():
        assert f"{kind} {'.'.join(map(str, least))}" in TESTED


def test_a_version_gets_what_is_unreleased():
    cut = releasing.cut(CHANGELOG, "0.2.0", "2026-11-23")

    assert releasing.section(cut, "0.2.0") == "### Added\n\n- Queues."
    assert releasing.section(cut, "0.1.0") == "- The first."
    assert releasing.section(cut, "0.3.0") == ""
    assert cut.count("\n## Unreleased\n") == 1
    assert cut.replace("\n\n## 0.2.0 - 2026-11-23\n", "\n") == CHANGELOG


@pytest.mark.parametrize("name", ["2", "v0.2.0", "0.2", "0.1.0", "0.2.0-rc1"])
def test_what_is_no_new_version_is_refused(name):
    with pytest.raises(SystemExit, match=re.escape(name)):
        releasing.cut(CHANGELOG, name, "2026-11-23")


def test_nothing_to_release_is_refused():
    with pytest.raises(SystemExit, match="nothing under"):
        releasing.cut(releasing.cut(CHANGELOG, "0.2.0", "2026-11-23"), "0.3.0", "2026-11-24")


def test_what_packs_an_sdist_leaves_nothing_of_the_machine(tmp_path):
    # Given the same files, packed at two times by two users in another order
    packed = []
    for number, names in enumerate((("a", "b"), ("b", "a"))):
        archive = tmp_path / f"{number}.tar.gz"
        with releasing.tarfile.open(archive, "w:gz") as made:
            for name in names:
                (tmp_path / name).write_text(name)
                member = made.gettarinfo(tmp_path / name, name)
                member.mtime, member.uid, member.uname = 1_000 + number, number, f"user{number}"
                with (tmp_path / name).open("rb") as file:
                    made.addfile(member, file)
        packed.append(archive)

    # Then what is published of them is the same
    first, second = (releasing.plain(each, 1_700_000_000) for each in packed)
    assert first == second
    assert packed[0].read_bytes() != packed[1].read_bytes()
