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
from ampsq.bench.compare import compare, judged, table
from ampsq.bench.verdicts import Better, direction, flattened, quotient, verdict

pytestmark = pytest.mark.slow

GIT = shutil.which("git") or "git"
ROOT = Path(__file__).parents[2]
PARTS = ("ampsq", "bench", "cli", "lua", "spark")
#: What `ampsq bench --quick --json` printed, all parts in one object.
RECORDED = json.loads((ROOT / "tests" / "data" / "bench.json").read_text())
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
time.sleep(600)
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


# --- figures


def test_figures_are_all_numbers_by_their_names():
    given = {"publish.ratio": 2, "publish": {"ratio": 2, "ratios": [1, 3.5]}, "server": {"kind": "x"}, "right": True}

    assert flattened(given) == {"publish.ratio": 2, "publish.ratios.0": 1, "publish.ratios.1": 3.5}


def test_every_figure_that_the_benchmark_printed_has_a_direction():
    figures = flattened(RECORDED)

    assert len(figures) > 180
    assert [name for name in figures if direction(name) is None] == []


@pytest.mark.parametrize(
    ("name", "better"),
    [
        ("publish.ratio", Better.MORE),
        ("publish.cpu_ratio", Better.MORE),
        ("publish.ratios.2", Better.NOT_COMPARED),
        ("publish.per_second", Better.MORE),
        ("publish.raw_per_second", Better.NOT_COMPARED),
        ("consume.backlog_500.ratio", Better.MORE),
        ("latency.p50_ratio", Better.LESS),
        ("latency.p99_us", Better.LESS),
        ("latency.p99_raw_us", Better.NOT_COMPARED),
        ("memory.bytes_per_leased", Better.LESS),
        ("growth.idle_subscriptions_1000.take_and_ack_us", Better.LESS),
        ("server_cpu_us_per_message", Better.LESS),
        ("kinds.rates.filtered.publish_ratio", Better.MORE),
        ("kinds.rates.depth.plain_server_us", Better.LESS),
        ("kinds.memory.two_filters_that_match", Better.LESS),
        ("kinds.ahead.1000", Better.LESS),
        ("kinds.filters.30", Better.LESS),
        ("publishing.file, fsync; memory.single_ratio", Better.MORE),
        ("replay.rates.server_us", Better.LESS),
        ("replay.latency.file.p99_ratio", Better.LESS),
        ("expiry.queue.messages", Better.NOT_COMPARED),
        ("expiry.queue.calls_over_10_ms", Better.LESS),
        ("redrive.letters", Better.NOT_COMPARED),
        ("redrive.p999_call_ms", Better.LESS),
        ("rebuild.messages", Better.NOT_COMPARED),
        ("rebuild.rebuild.seconds", Better.LESS),
        ("gateway.publish_directly_per_second", Better.MORE),
        ("gateway.latency.p50_us", Better.LESS),
        ("replication.rates.ratio_beside_link", Better.MORE),
        ("replication.rates.source_us_of_the_link", Better.LESS),
        ("replication.recovery.outage_s", Better.NOT_COMPARED),
        ("replication.recovery.caught_up_after_s", Better.LESS),
        ("replication.takeover.held", Better.NOT_COMPARED),
        ("replication.takeover.first_ms", Better.LESS),
        ("something.new", None),
    ],
)
def test_directions(name, better):
    assert direction(name) == better


@pytest.mark.parametrize(
    ("new", "old", "better", "ratio"),
    [
        (90, 100, Better.MORE, 0.9),
        (90, 100, Better.LESS, 100 / 90),
        (0, 0, Better.LESS, 1),
        (2, 0, Better.LESS, 0.001),
        (0, 2, Better.LESS, 1000),
        (0, 2, Better.MORE, 0.001),
        (2, 0, Better.MORE, 1000),
    ],
)
def test_a_ratio_is_less_than_one_where_the_new_figure_is_worse(new, old, better, ratio):
    assert quotient(new, old, better) == pytest.approx(ratio)


# --- verdicts


def test_a_figure_has_fallen_that_is_worse_than_parent_against_parent_shows():
    found = verdict("publish.per_second", Better.MORE, [100, 101, 99], [90, 91, 89], [101, 99, 100])

    assert found.fallen
    assert found.word == "FALLEN"
    assert found.ratio == pytest.approx(0.9)
    assert found.lowest == pytest.approx(99 / 101)


def test_a_figure_has_not_fallen_above_ninety_five_hundredths_however_steady_it_is():
    found = verdict("publish.per_second", Better.MORE, [100, 100, 100], [96, 96, 96], [100, 100, 100])

    assert (found.fallen, found.word) == (False, "")
    assert not verdict("x_us", Better.LESS, [100], [105.2], [100]).fallen
    assert verdict("x_us", Better.LESS, [100], [105.3], [100]).fallen


@pytest.mark.parametrize("again", [[100, 100, 88], [100, 100, 113]])
def test_a_figure_is_noisy_where_the_parent_beside_itself_is_as_low_whichever_run_is_called_the_second(again):
    found = verdict("publish.per_second", Better.MORE, [100, 100, 100], [90, 90, 90], again)

    assert (found.fallen, found.word) == (False, "noisy")


def test_a_median_of_parent_against_parent_counts_also_where_no_round_is_as_low():
    # Given rounds that are alike, from different levels, so that medians come from different rounds
    old, again = [50, 100, 120], [55, 90, 125]

    found = verdict("publish.per_second", Better.MORE, old, [45, 91, 115], again)

    assert found.parent_ratio == 0.9
    assert (found.ratio, found.fallen) == (0.91, False)


def test_less_is_better_for_times_and_a_gain_is_said():
    found = verdict("latency.p50_us", Better.LESS, [100, 100], [50, 50], [100, 101])

    assert (found.ratio, found.word) == (2, "better")


def test_figures_that_cannot_be_compared_are_named():
    old = {"publish.per_second": 1, "gone_us": 1, "x.raw_per_second": 1, "odd": 1}
    new = {"publish.per_second": 1, "come_us": 1, "x.raw_per_second": 1, "odd": 1}
    values = {
        "old": [old | {"sometimes_us": 1}, old],
        "new": [new | {"sometimes_us": 1}, new],
        "again": [old, old],
    }

    verdicts, others = judged(values)

    assert [each.name for each in verdicts] == ["publish.per_second"]
    assert others == {
        "only the old one has": ["gone_us"],
        "only the new one has": ["come_us"],
        "not in every run": ["sometimes_us"],
        "not compared": ["x.raw_per_second"],
        "which way is better is not known": ["odd"],
    }


def test_the_table_of_all_figures_fits_a_hundred_columns():
    figures = flattened(RECORDED)
    worse = {name: value * 200 for name, value in figures.items()}
    verdicts, _ = judged({"old": [figures], "new": [worse], "again": [figures]})

    lines = list(table(verdicts))

    assert max(map(len, lines)) <= 100
    assert (lines.count("publish"), lines.count("latency")) == (1, 1)
    assert any(line.startswith("publishing.file, fsync; memory") for line in lines)
    assert any(line.split()[-1] == "FALLEN" for line in lines)


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
            time.sleep(0.05)


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
