import json
import os
import re
import shutil
import signal
import subprocess
import sys

import pytest
import redis
from observing import eventually

from ampsq.cli import demo_run, demo_world
from ampsq.cli.demo_check import check_outcome
from ampsq.cli.demo_crew import Deadline, DemoFailed, DemoProcess, DemoRecord
from ampsq.cli.demo_evidence import Evidence, Journal
from ampsq.cli.demo_worker import Spec

pytestmark = pytest.mark.slow

NEVER_LEFT = 521


def run_demo(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "ampsq.cli", "demo", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
        env={name: value for name, value in os.environ.items() if not name.startswith("AMPSQ_")},
    )


def figures_of(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_file_holds_all_flights_of_january():
    flights = [json.loads(flight) for flight in demo_world.flights(demo_world.ALL)]
    assert len(flights) == demo_world.ALL
    assert sum(flight["dep_time"] is None for flight in flights) == NEVER_LEFT
    assert not any(flight["dep_time"] and flight["dep_delay"] is None for flight in flights)


def test_each_day_ends_with_a_message_behind_its_last_flight():
    published = [said for _, said in demo_world.messages(2000)]
    days = [said.get("end_of_day") or demo_world.day_of(said) for said in published]
    assert days == sorted(days)
    ends = [at for at, said in enumerate(published) if "end_of_day" in said]
    assert [days[at] for at in ends] == sorted(set(days)) == ["2013-01-01", "2013-01-02", "2013-01-03"]
    assert [at + 1 for at in ends] == [at for at in range(1, len(days)) if days[at] != days[at - 1]] + [len(days)]
    assert len(published) == 2000 + len(ends)


@pytest.mark.slow
def test_every_flight_of_january_is_accounted_for(tmp_path):
    figures = figures_of(run_demo("--json", "--data-dir", str(tmp_path / "d")))
    assert figures.pop("seconds") > 0
    assert figures.pop("redelivered") > 0
    assert figures == {
        "published": demo_world.ALL,
        "acknowledged": demo_world.ALL - NEVER_LEFT,
        "dead_lettered": NEVER_LEFT,
        "lost": 0,
        "acknowledged_twice": 0,
        "killed_workers": 1,
        "barriers": 31,
    }


def test_first_flights_alone_have_a_middle_to_kill_a_worker_in(tmp_path):
    done = run_demo("--json", "--flights", "2000", "--data-dir", str(tmp_path / "d"))
    figures = figures_of(done)
    assert figures["published"] == figures["acknowledged"] + figures["dead_lettered"] == 2000
    assert figures["dead_lettered"] == 12
    assert (figures["lost"], figures["acknowledged_twice"], figures["killed_workers"]) == (0, 0, 1)
    assert figures["barriers"] == 3
    assert figures["redelivered"] > 0
    assert "was killed with SIGKILL" in done.stderr
    records = next((tmp_path / "d").glob("demo-*"))
    assert len(list(records.glob("worker-*.records"))) == 4


def test_server_of_the_users_own_is_left_as_it_was(valkey):
    with redis.Redis(unix_socket_path=str(valkey.socket)) as server:
        before = set(server.keys())
        done = run_demo("--flights", "500", "--url", valkey.url)
        assert done.returncode == 0, done.stderr
        assert set(server.keys()) - before <= {b"ampsq:instances"}
        assert not [name for name in server.smembers("ampsq:instances") if name.startswith(b"demo-")]
    for words in (
        "500 flights",
        "a barrier, 1 in all",
        "Day by day",
        "every one accounted for",
        "worker-3 was killed",
        "Where to go next",
    ):
        assert words in " ".join(done.stdout.split())


def test_interrupted_demo_leaves_no_process_and_no_data(tmp_path):
    command = [sys.executable, "-m", "ampsq.cli", "demo"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    demo = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    for line in demo.stderr:
        if "published" in line:
            break
    children = children_of(demo.pid)
    assert len(children) >= 4
    demo.send_signal(signal.SIGTERM)
    demo.communicate(timeout=90)
    assert demo.returncode == 128 + signal.SIGTERM
    assert not processes().keys() & set(children)
    assert not list(tmp_path.iterdir())


def processes():
    """Process -> its parent, of all that live."""
    command = [shutil.which("ps"), "-eo", "pid=,ppid=,stat="]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in listed.splitlines()]
    return {int(process): int(parent) for process, parent, state in rows if not state.startswith("Z")}


def children_of(process):
    return [child for child, parent in processes().items() if parent == process]


def test_children_end_soon_after_their_parent_was_killed(tmp_path):
    command = [sys.executable, "-m", "ampsq.cli", "demo", "--data-dir", str(tmp_path / "d")]
    demo = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    for line in demo.stderr:
        if "published" in line:
            break
    children = children_of(demo.pid)
    demo.kill()
    demo.communicate()
    eventually(lambda: not processes().keys() & set(children), within=40.0)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--flights", "3"], 2, "500<=x<=27004"),
        (["--flights", "many"], 2, "'many' is not a valid integer"),
        (["--url", "redis://localhost", "--data-dir", "d"], 2, "give one of them"),
        (["--url", "localhost"], 1, "allowed are redis://"),
        (["--url", "redis://localhost:1"], 1, "redis://localhost:1"),
        (["surplus"], 2, "unexpected extra argument"),
    ],
)
def test_bad_input_is_refused_with_what_is_allowed(arguments, code, words):
    done = run_demo(*arguments)
    assert done.returncode == code
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_options_before_the_name_count_too():
    done = subprocess.run(
        [sys.executable, "-m", "ampsq.cli", "--url", "localhost", "demo"],
        capture_output=True, text=True, check=False, timeout=90,
    )  # fmt: skip
    assert (done.returncode, "allowed are redis://" in done.stderr) == (1, True)


def test_deadline_says_what_was_awaited(tmp_path):
    with (
        demo_world.find_site(None, tmp_path / "d", keep=True) as place,
        pytest.raises(DemoFailed, match=r"longer than 1\.5 s.* waited for .*--flights 2000"),
    ):
        demo_run.run(place, 27_004, Deadline(1.5), lambda _: None)


def test_worker_that_ends_by_itself_is_told_with_its_last_words(tmp_path):
    child = DemoProcess("worker-1", Spec("no such role", "", "", ""), tmp_path)
    child.process.wait()
    with pytest.raises(DemoFailed, match=r"(?s)worker-1 ended by itself with exit code 1.*KeyError: 'no such role'"):
        child.read_records()
    child.ask_to_end()
    child.end()


# -- judging


def journal_of(*entries):
    """Made of texts as in ``acknowledged ab``."""
    journal = Journal("q", "o")
    for how, bookmarks in map(str.split, entries):
        journal.note(how, bookmarks)
    return journal


FIRST_DAY = ("acknowledged a", "expired n", "barrier x")
SECOND_DAY = ("acknowledged b", "barrier y")
BARRIERS = {"x": "2013-01-01", "y": "2013-01-02"}


def barrier(bookmark, delivery=0):
    return DemoRecord(bookmark, delivery, "barrier")


def workers(**changes):
    """`v`, which was killed and had picked up `b`, `w`, which got it then, and `u`, which got no flight."""
    return {
        "v": [DemoRecord("a", 1, "handled", "UA", 10), barrier("x")],
        "w": [*(DemoRecord("n", delivery, "cancelled") for delivery in (1, 2, 3)), barrier("x"),
              DemoRecord("b", 2, "handled", "UA", 20), barrier("y")],
        "u": [barrier("x"), barrier("y")],
        **changes,
    }  # fmt: skip


def evidence(**changes):
    """Two flights that left, `a` and, a day later, `b`, and one that did not, `n`; `x` and `y` end the days."""
    flights = {
        "a": {"dep_time": 1, "carrier": "UA", "year": 2013, "month": 1, "day": 1},
        "n": NEVER_LEFT_FLIGHT,
        "b": {"dep_time": 2, "carrier": "UA", "year": 2013, "month": 1, "day": 2},
    }
    usual = {
        "flights": flights,
        "barriers": BARRIERS,
        "delays": journal_of(*FIRST_DAY, *SECOND_DAY),
        "workers": workers(),
        "letters": [letter()],
        "board": journal_of("acknowledged anb"),
        "board_records": [DemoRecord(bookmark, 1, "handled") for bookmark in "abn"],
        "max_cancels": 3,
        "killed": {"v": 1},
    }
    return Evidence(**{**usual, **changes})


NEVER_LEFT_FLIGHT = {"dep_time": None, "carrier": "AA", "year": 2013, "month": 1, "day": 1}


def letter(**changes):
    return {"bookmark": "n", "reason": "max_cancels", "cancels": 3, "message": NEVER_LEFT_FLIGHT, **changes}


def test_good_run_is_judged_good():
    outcome = check_outcome(evidence())
    assert outcome.failures == []
    assert (outcome.published, outcome.acknowledged, outcome.dead_lettered, outcome.barriers) == (3, 2, 1, 2)
    assert (outcome.lost, outcome.acknowledged_twice, outcome.redelivered, outcome.board) == (0, 0, 1, 3)
    assert [(delay.carrier, delay.flights, delay.mean) for delay in outcome.delays] == [("UA", 2, 15.0)]
    assert [(day.date, day.flights, day.mean) for day in outcome.days] == [("2013-01-01", 1, 10), ("2013-01-02", 1, 20)]


def test_flight_that_was_handled_twice_counts_once_in_the_delays():
    outcome = check_outcome(evidence(workers=workers(v=[*workers()["v"], DemoRecord("b", 1, "handled", "UA", 20)])))
    assert (outcome.failures, outcome.handled_twice, outcome.delays[0].flights) == ([], 1, 2)


def test_cancelled_flight_of_the_killed_worker_counts_as_redelivered():
    outcome = check_outcome(evidence(workers=workers(v=[DemoRecord("n", 4, "cancelled"), *workers()["v"]])))
    assert (outcome.failures, outcome.redelivered) == ([], 2)


def test_killed_worker_may_have_one_barrier_on_its_way():
    assert check_outcome(evidence(workers=workers(v=workers()["v"][:1]))).failures == []


@pytest.mark.parametrize(
    ("changes", "figure", "number", "words"),
    [
        ({"delays": journal_of(*FIRST_DAY, "barrier y")}, "lost", 1, "lost: .*: b"),
        ({"workers": workers(v=[barrier("x")])}, "lost", 1, "lost: .*: a"),
        ({"letters": []}, "lost", 1, "lost: .*: n"),
        ({"letters": [letter(), letter()]}, "lost", 1, "lost: .*: n"),
        ({"delays": journal_of("acknowledged a", *FIRST_DAY, *SECOND_DAY)}, "acknowledged_twice", 1, "more than once"),
        ({"delays": journal_of(*FIRST_DAY, "expired b", *SECOND_DAY)}, "acknowledged_twice", 1, "more than once"),
        ({"letters": [letter(reason="forced_expire")]}, "lost", 0, "right reason"),
        ({"letters": [letter(message={"dep_time": 5})]}, "lost", 0, "original message"),
        ({"letters": [letter(), letter(bookmark="a")]}, "dead_lettered", 2, "should not be"),
        ({"board": journal_of("acknowledged ab")}, "board", 2, "by the second queue: n"),
        ({"board": journal_of("acknowledged aabn")}, "board", 2, "by the second queue: a"),
        ({"board_records": evidence().board_records[1:]}, "board", 3, "by the second queue: a"),
        ({"killed": {}}, "killed", 0, "0 workers were killed"),
        ({"workers": workers(w=[*workers()["w"][:4], DemoRecord("b", 1, "handled"), barrier("y")])},
         "redelivered", 0, "nothing came back"),
        ({"delays": journal_of(*FIRST_DAY, "acknowledged b")}, "barriers", 1, "1 ends of a day not sent .*: y"),
        ({"delays": journal_of(*FIRST_DAY, "barrier x", *SECOND_DAY)}, "barriers", 1, "ends of a day not sent .*: x"),
        ({"delays": journal_of(*FIRST_DAY, "acknowledged by", "barrier y")}, "barriers", 1, "not sent .*: y"),
        ({"delays": journal_of(*FIRST_DAY, "barrier z", *SECOND_DAY)}, "barriers", 2, "which they are not: z"),
        ({"delays": journal_of("acknowledged a", "barrier x", "expired n", *SECOND_DAY)},
         "barriers", 2, "not settled, by the journal, between .*: n"),
        ({"delays": journal_of("acknowledged ab", "expired n", "barrier x", "barrier y")},
         "barriers", 2, "not settled, by the journal, between .*: b"),
        ({"delays": journal_of(*FIRST_DAY, "barrier y", "acknowledged b")},
         "barriers", 2, "not settled, by the journal, between .*: b"),
        ({"workers": workers(u=[barrier("x")])}, "barriers", 2, "u recorded 1 barriers instead of the first 2"),
        ({"workers": workers(u=[barrier("x"), *workers()["u"]])}, "barriers", 2, "u recorded 3 barriers"),
        ({"workers": workers(u=workers()["u"][::-1])}, "barriers", 2, "u recorded 2 barriers"),
        ({"workers": workers(u=[barrier("x", 1), barrier("y")])}, "barriers", 2, "u recorded 1 barriers"),
        ({"workers": workers(v=[*workers()["v"], barrier("y")])}, "barriers", 2, "v recorded 2 .* the first 1,"),
        ({"killed": {"v": 3}}, "barriers", 2, "v recorded 1 barriers"),
        ({"workers": workers(w=[*workers()["w"][:3], workers()["w"][4], barrier("x"), barrier("y")])},
         "barriers", 2, "handled by w outside of the barriers that it received: b"),
        ({"workers": workers(v=workers()["v"][::-1])}, "barriers", 2, "handled by v outside .*: a"),
        ({"board": journal_of("acknowledged anbx")}, "board", 4, "on the board, whose filter .*: x"),
        ({"board_records": [*evidence().board_records, DemoRecord("y", 1, "handled")]}, "board", 3, "board, .*: y"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told(changes, figure, number, words):
    outcome = check_outcome(evidence(**changes))
    assert getattr(outcome, figure) == number
    assert any(re.search(words, failure) for failure in outcome.failures), outcome.failures
