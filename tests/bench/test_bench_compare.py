"""``python -m ampsq.bench.compare`` runs what it is told to run, and says of a figure that it has fallen if it has."""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from ampsq.bench import checkouts
from ampsq.bench.checkouts import RunFailed, laid_out
from ampsq.bench.compare import compare

pytestmark = pytest.mark.slow

GIT = shutil.which("git") or "git"
ROOT = Path(__file__).parents[2]
PARTS = ("ampsq", "bench", "cli", "lua", "spark")
#: A checkout whose benchmark takes no time: its rate is what the folder's file says, one line a run, the last for good.
PROGRAM = """
import json, pathlib, sys
rates = pathlib.Path({rates!r})
lines = rates.read_text().split()
rates.write_text("\\n".join(lines[1:] or lines))
print("arguments", sys.argv[1:], file=sys.stderr)
{extra}
print(json.dumps({{"publish": {{"per_second": float(lines[0]), "raw_per_second": 7}}, "server": {{"kind": "valkey"}}}}))
"""
#: Gives a package from a folder, wherever else it is.
FINDER = """
import sys
from importlib.machinery import PathFinder

class First:
    def find_spec(name, path=None, target=None):
        return PathFinder.find_spec(name, [{first!r}]) if name == "ampsq" else None

sys.meta_path.insert(0, First)
"""
#: Keeps a file locked, and does not listen.
STUBBORN = """
import fcntl, signal, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
file = open(sys.argv[1], "w")
fcntl.flock(file, fcntl.LOCK_EX)
file.write("locked")
file.flush()
time.sleep(600)  # until it is killed
"""


def checkout(folder, rates, extra=""):
    """Write a small checkout; gives its folder."""
    (folder / "ampsq").mkdir(parents=True)
    (folder / "ampsq" / "__init__.py").write_text("")
    (folder / "program").mkdir()
    (folder / "program" / "__init__.py").write_text("")
    (folder / "pyproject.toml").write_text(
        '[tool.setuptools.package-dir]\n"ampsq" = "ampsq"\n"ampsq.cli" = "program"\n',
    )
    (folder / "rates").write_text("\n".join(map(str, rates)))
    (folder / "program" / "__main__.py").write_text(PROGRAM.format(rates=str(folder / "rates"), extra=extra))
    return folder


def compared(*arguments):
    return CliRunner().invoke(compare, [str(argument) for argument in arguments])


def git(folder, *arguments):
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run([GIT, *who, *arguments], cwd=folder, check=True, capture_output=True, timeout=60)


# --- checkouts


@pytest.fixture
def copy(tmp_path):
    """A copy of this checkout, with marks of its own."""
    folder = tmp_path / "copy"
    for part in PARTS:
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    with (folder / "ampsq" / "__init__.py").open("a") as file:
        file.write('\nMARK = "of the copy"\n')
    return folder


def test_a_run_imports_its_own_checkout_and_nothing_of_the_one_that_is_installed(copy, tmp_path):
    # Given a copy that lacks what this checkout has
    (copy / "bench" / "raw.py").unlink()
    shutil.rmtree(copy / "ampsq" / "console")

    # When it is laid out, and then changed
    found = laid_out(str(copy), tmp_path / "out")
    (copy / "ampsq" / "__init__.py").write_text("")
    program = (
        "import ampsq, ampsq.bench.verdicts, ampsq.cli.main, ampsq.lua, ampsq.spark, importlib.util, sys\n"
        "print(ampsq.MARK)\n"
        "print(*{module.__file__ for name, module in sys.modules.items() if name.startswith('ampsq')}, sep='\\n')\n"
        "print(importlib.util.find_spec('ampsq.bench.raw'), importlib.util.find_spec('ampsq.console'))\n"
    )
    mark, *files, lacking = found.run(["-c", program], 60).splitlines()
    nested = found.run(["-c", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {program!r}])"], 60)

    # Then runs see it as it was, and so do processes that they start
    assert mark == "of the copy"
    assert len(files) > 10
    assert all(Path(file).is_relative_to(tmp_path / "out") for file in files)
    assert lacking == "None None"
    assert nested.splitlines()[0] == mark
    assert sorted(nested.splitlines()[1:-1]) == sorted(files)


def test_a_checkout_that_something_else_hides_is_refused(tmp_path):
    # Given what finds a module before Python looks at its path
    first = tmp_path / "first"
    (first / "ampsq").mkdir(parents=True)
    (first / "ampsq" / "__init__.py").write_text("")
    found = laid_out(str(checkout(tmp_path / "one", [1])), tmp_path / "out")
    found.verify(["ampsq", "ampsq.cli"])
    (found.folder / "sitecustomize.py").write_text(FINDER.format(first=str(first)))

    with pytest.raises(RunFailed, match=r"ampsq would be imported from .*first.*, not from its own checkout"):
        found.verify(["ampsq"])


def test_revisions_are_extracted_whole_from_anywhere_in_the_repository(tmp_path, monkeypatch):
    # Given a commit, another one, and what is in no commit
    folder = checkout(tmp_path / "project", [1])
    for number in (1, 2):
        (folder / "ampsq" / "__init__.py").write_text(f"NUMBER = {number}\n")
        if number == 1:
            git(folder, "init", "--quiet")
        git(folder, "add", ".")
        git(folder, "commit", "--quiet", "-m", f"Number {number}")
    (folder / "ampsq" / "__init__.py").write_text("NUMBER = 3\n")

    # When
    monkeypatch.chdir(folder / "program")
    found = [laid_out(given, tmp_path / f"out{at}") for at, given in enumerate(("HEAD~1", "HEAD", ".."))]

    # Then
    printed = [each.run(["-c", "import ampsq; print(ampsq.NUMBER)"], 60).strip() for each in found]
    assert printed == ["1", "2", "3"]
    assert [each.title.partition(" ")[2] for each in found[:2]] == ["Number 1", "Number 2"]
    assert found[2].title == str(folder)


# --- the command


def test_a_slower_commit_makes_the_command_fail_and_names_the_figure(tmp_path):
    old = checkout(tmp_path / "a", [100])
    new = checkout(tmp_path / "b", [80])

    done = compared(old, new, "--part", "raw", "--rounds", "2", "--json", tmp_path / "figures.json")

    assert done.exit_code == 1, done.output
    assert "fallen: publish.per_second" in done.stdout
    assert "not compared: publish.raw_per_second" in done.stdout
    told = json.loads((tmp_path / "figures.json").read_text())
    assert (told["fallen"], told["old"]) == (["publish.per_second"], str(old))
    assert told["figures"]["publish.per_second"]["values"] == {"old": [100] * 2, "new": [80] * 2, "again": [100] * 2}


def test_each_side_is_first_in_turn_and_equal_ones_pass(tmp_path):
    one = checkout(tmp_path / "a", range(1, 13))

    done = compared(one, one, "--part", "raw", "--rounds", "4", "--json", tmp_path / "figures.json")

    assert done.exit_code == 0, done.output
    assert "fallen: none" in done.stdout
    values = json.loads((tmp_path / "figures.json").read_text())["figures"]["publish.per_second"]["values"]
    assert values == {"old": [1, 6, 8, 10], "new": [2, 4, 9, 11], "again": [3, 5, 7, 12]}


def test_options_are_handed_on_and_a_server_of_the_environment_is_not(tmp_path, monkeypatch):
    monkeypatch.setenv("AMPSQ_URL", "redis://localhost:1")
    extra = "import os; raise SystemExit(os.environ.get('AMPSQ_URL', 'no address'))"
    one = checkout(tmp_path / "a", [1], extra)

    quick = compared(one, one, "--part", "kinds")
    whole = compared(one, one, "--part", "kinds", "--whole", "--url", "redis://localhost:2")

    assert "arguments ['bench', '--json', '--part', 'kinds', '--quick']\n  no address" in quick.stderr
    assert "['bench', '--json', '--part', 'kinds', '--url', 'redis://localhost:2']\n  no address" in whole.stderr


def test_a_run_that_fails_is_told_with_its_last_words(tmp_path):
    one = checkout(tmp_path / "a", [1])
    two = checkout(tmp_path / "b", [1], "raise ValueError('no room left')")

    done = compared(one, two, "--part", "raw", "--rounds", "1")

    assert done.exit_code == 3
    assert "-m ampsq.cli bench --json --part raw --quick ended with 1; its last words:" in done.stderr
    assert done.stderr.endswith("ValueError: no room left\n")


def test_a_run_that_prints_something_else_is_told(tmp_path):
    one = checkout(tmp_path / "a", [1], "print('hello')")

    done = compared(one, one, "--part", "raw")

    assert done.exit_code == 3
    assert "part raw printed no JSON: 'hello" in done.stderr


def test_a_run_that_hangs_is_ended_with_all_that_it_started(tmp_path, monkeypatch):
    # Given one that starts a process, and waits
    monkeypatch.setattr(checkouts, "_GRACE", 1.0)
    held = tmp_path / "held"
    extra = f"import subprocess\nsubprocess.run([sys.executable, '-c', {STUBBORN!r}, {str(held)!r}])"
    one = checkout(tmp_path / "a", [1], extra)

    # When
    done = compared(one, one, "--part", "raw", "--deadline", "6")

    # Then
    assert done.exit_code == 3
    assert "was not done after 6 s" in done.stderr
    with held.open() as file:
        assert file.read() == "locked"
        until = time.monotonic() + 30
        while not taken(file):
            assert time.monotonic() < until
            time.sleep(0.05)  # between two looks


def taken(file):
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["no-such-branch", "."], "no-such-branch: neither a revision of the git repository here nor a folder"),
        (["--help-me", "."], "No such option"),
        (["--", "--output=x", "."], "--output=x: neither a revision"),
        ([".", ".", "--part", "speed"], "'speed' is not one of"),
        ([".", ".", "--rounds", "0"], "--rounds"),
        ([".", ".", "--json", "no/such/folder/x"], "there is no folder"),
        (["."], "Missing argument 'NEW'"),
    ],
)
def test_what_cannot_be_measured_is_said_in_a_sentence(arguments, text, tmp_path, monkeypatch):
    folder = checkout(tmp_path / "project", [1])
    git(folder, "init", "--quiet")
    monkeypatch.chdir(folder)

    done = compared(*arguments)

    assert done.exit_code == 2
    assert text in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("project", "text"),
    [
        ("[tool]", "its folders are not those that its pyproject.toml tells"),
        ('[tool.setuptools.package-dir]\n"ampsq" = "ampsq"', "names no folder of ampsq.cli"),
        ('[tool.setuptools.package-dir]\n"ampsq.cli" = "elsewhere"', "its folders are not those"),
    ],
)
def test_a_folder_that_is_no_checkout_of_ours_is_said_to_be_none(project, text, tmp_path):
    folder = checkout(tmp_path / "project", [1])
    (folder / "pyproject.toml").write_text(project)

    done = compared(folder, folder)

    assert done.exit_code == 2
    assert text in " ".join(done.stderr.split())


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_this_checkout_is_measured_beside_itself(tmp_path):
    done = compared(ROOT, ROOT, "--part", "redrive", "--rounds", "1", "--json", tmp_path / "figures.json")

    # One round may find that a figure has fallen: what is compared is this machine with itself.
    assert done.exit_code in {0, 1}, done.output
    told = json.loads((tmp_path / "figures.json").read_text())
    assert told["without_verdict"] == {"not compared": ["redrive.letters"]}
    assert told["figures"].keys() >= {"redrive.per_second", "redrive.server_us", "redrive.longest_call_ms"}
