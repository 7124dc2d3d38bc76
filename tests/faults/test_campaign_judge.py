"""The judge of campaigns finds what is planted: a message lost, one doubled, a run in which little happened."""

from __future__ import annotations

import contextlib
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from campaign import Campaign
from campaign_judge import PROMISED, Answered, Evidence, Fault, judge, read_published, read_store
from campaign_plan import Plan, plan

from ampsq import FilePublishStore
from ampsq.protocol.schema import key

#: Enough of everything for ten seconds.
SECONDS = 10
FAULTS = [Fault("kill server", True), Fault("kill worker", True), Fault("kill worker", True)]


def never(at):
    del at


@pytest.fixture
def evidence():
    """A run in which all went well: 100 messages with a guarantee, 100 without, at both instances."""
    took = {"what": "took", "at": 50.0, "first": 0, "last": 99}
    with_guarantee = read_published("till-a", [{**took, "what": "means"}, took], is_ordered=True)
    means = [{"what": "means", "at": 40.0, "first": number, "last": number} for number in range(102)]
    answers = [{"what": "answered", "at": 50.0 + number / 10, "number": number} for number in range(100)]
    ends = [{"what": "refused", "at": 61.0, "number": 100}, {"what": "unknown", "at": 61.0, "number": 101}]
    without = read_published("plain-a", [*means, *answers, *ends], is_ordered=True)
    log = [f"{name} {number}" for number in range(100) for name in ("till-a", "plain-a")]
    return Evidence([with_guarantee, without], {"a": log, "b": list(log)}, Counter(log))


def judged(evidence, faults=FAULTS, excuse=never):
    return judge(evidence, faults, SECONDS, excuse)


def test_a_run_in_which_all_went_well_is_well(evidence):
    verdict = judged(evidence)
    assert verdict.wrong == []
    assert (verdict.messages, sum(verdict.faults.values())) == (200, 3)
    assert verdict.allowed == Counter(
        {
            "outcome unknown to a publisher that was killed, or whose reply was lost": 1,
            "handled again": 0,
        }
    )


def lose(evidence):
    for log in evidence.logs.values():
        log.remove("till-a 7")


def lose_a_plain_one(evidence):
    for log in evidence.logs.values():
        log.remove("plain-a 7")


def double(evidence):
    evidence.logs["b"].append("till-a 99")


def double_a_plain_one(evidence):
    evidence.logs["a"].append("plain-a 99")


def turn(evidence):
    log = evidence.logs["a"]
    log.insert(0, log.pop(log.index("till-a 7")))


def keep_from_the_other(evidence):
    evidence.logs["b"].remove("plain-a 7")


def settle_unhandled(evidence):
    del evidence.handled["till-a 7"]


def record_what_was_refused(evidence):
    for log in evidence.logs.values():
        log.append("plain-a 100")
    evidence.handled["plain-a 100"] = 1


def record_what_nobody_published(evidence):
    evidence.logs["a"].append("stranger 1")


def leave_one(evidence):
    evidence.waiting["b"] = 1


def find_something(evidence):
    evidence.findings.append("check at a: a difference")


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (lose, "1 of till-a LOST at a: till-a 7"),
        (lose_a_plain_one, "1 of plain-a LOST at b: plain-a 7"),
        (double, "1 recorded more than once at b: till-a 99"),
        (double_a_plain_one, "1 recorded more than once at a: plain-a 99"),
        (turn, "out of order at a"),
        (keep_from_the_other, "1 not at every instance: plain-a 7"),
        (settle_unhandled, "1 settled and handled by nobody: till-a 7"),
        (record_what_was_refused, "1 of plain-a recorded at a, though refused: plain-a 100"),
        (record_what_nobody_published, "1 recorded that nobody published: stranger 1"),
        (leave_one, "1 never settled at b"),
        (find_something, "check at a: a difference"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_what_is_wrong_is_found(evidence, plant, said):
    plant(evidence)
    assert any(said in each for each in judged(evidence).wrong), judged(evidence).wrong


@pytest.mark.parametrize(
    ("faults", "messages", "said"),
    [
        ([], 100, "0 faults that hit in 10 s"),
        ([Fault("kill server", False)] * 30, 100, "0 faults that hit in 10 s"),
        (FAULTS, 10, "20 messages in 10 s, and 150 are the least"),
    ],
    ids=["no faults", "faults in vain", "few messages"],
)
def test_an_empty_run_shows_nothing(evidence, faults, messages, said):
    for log in evidence.logs.values():
        del log[2 * messages :]
    assert any(f"an empty run: {said}" in each for each in judged(evidence, faults).wrong)


def test_a_run_of_one_kind_of_faults_is_empty(evidence):
    verdict = judge(evidence, [Fault("kill worker", True)] * 100, 60, never)
    assert "an empty run: 1 kinds of faults that hit in 60 s, and 6 are the least" in verdict.wrong


def test_what_a_loss_of_power_may_take_is_counted_apart_from_what_it_may_not(evidence):
    # Given a loss of power at 52.0, and messages lost whose answers were 1.9 s, 2.1 s and no time before it
    evidence.published[1].answered["plain-a 2"] = Answered(49.9, for_good=False)
    for log in evidence.logs.values():
        for number in (1, 2, 20):
            log.remove(f"plain-a {number}")
        log.remove("till-a 20")

    def excuse(at):
        return ("lost with the power", 52.0 - at) if 0 <= 52.0 - at <= PROMISED else None

    # When it is judged
    verdict = judged(evidence, excuse=excuse)
    # Then two of them are allowed, and neither the older one nor the one with a guarantee is
    assert verdict.allowed["answered without a guarantee, lost with the power"] == 2
    assert verdict.oldest == {"lost with the power": pytest.approx(1.9)}
    assert [each for each in verdict.wrong if "at a" in each] == [
        "1 of till-a LOST at a: till-a 20",
        "1 of plain-a LOST at a: plain-a 2",
    ]


def test_a_call_of_unknown_outcome_may_come_late_and_one_that_was_answered_may_not(evidence):
    for log in evidence.logs.values():
        log.insert(5, "plain-a 101")
    evidence.handled["plain-a 101"] = 1
    assert judged(evidence).wrong == []
    evidence.logs["a"].remove("plain-a 99")
    evidence.logs["a"].insert(5, "plain-a 99")
    assert any("of plain-a out of order at a" in each for each in judged(evidence).wrong)


def test_what_is_still_in_a_publishers_store_is_late_and_not_lost(evidence, tmp_path, instance):
    # Given a store with a message that its publisher could not send, and one that is in no log and no store
    path = tmp_path / "store.db"
    lose(evidence)
    for log in evidence.logs.values():
        log.remove("till-a 8")
    store = FilePublishStore(path)
    store.open(instance, "till-a")
    store.keep(1, "publish", [b"orders", b'"till-a 7"'])
    store.close()
    # When the judge looks into it
    evidence.published[0].stored = read_store(path, "till-a")
    wrong = [each for each in judged(evidence).wrong if "at a" in each]
    # Then it says the one, and not the other
    assert wrong == [
        "1 of till-a not at a, but still in the publisher's store, too late: till-a 7",
        "1 of till-a LOST at a: till-a 8",
    ]


def test_a_process_that_was_killed_leaves_unknown_what_it_had_begun():
    records = [
        {"what": "means", "at": 1.0, "first": 0, "last": 7},
        {"what": "took", "at": 1.1, "first": 0, "last": 7},
        {"what": "means", "at": 1.2, "first": 8, "last": 15},
    ]
    published = read_published("till-a", records)
    assert len(published.answered) == 8
    assert published.unknown == {f"till-a {number}" for number in range(8, 16)}


def test_a_seed_is_one_plan():
    assert plan(5, 60) == plan(5, 60)
    assert plan(5, 60) != plan(6, 60)
    assert {plan(seed, 60).topology for seed in range(1, 30)} == {"pair", "sentinel", "cluster"}
    assert not any(step.fault == "step clock" for step in plan(5, 60, "pair", has_shim=False).steps)


@pytest.mark.slow
def test_what_is_planted_into_a_server_s_log_is_found():
    # Given two instances that worked for a second, undisturbed
    with tempfile.TemporaryDirectory(prefix="aq-", dir="/tmp") as folder:
        campaign = Campaign(Path(folder), Plan(0, 1, "pair", "everysec", "valkey", ()), None)
        with contextlib.closing(campaign):
            campaign.disturb()
            # When one message is taken from a log and another one is written once more
            with contextlib.closing(campaign.servers.plain("a")) as redis:
                log = key("campaign-a", "log", "orders")
                entries = [each for each in redis.xrange(log) if each[1][b"b"].startswith(b'"till-a')]
                redis.xdel(log, entries[3][0])
                redis.xadd(log, entries[5][1])
            wrong = campaign.judge(campaign.evidence()).wrong
    # Then both are found, and that nothing was disturbed
    lost, doubled = (entries[number][1][b"b"].decode().strip('"') for number in (3, 5))
    assert any(f"1 of till-a LOST at a: {lost}" in each for each in wrong), wrong
    assert any("recorded more than once at a" in each and doubled in each for each in wrong), wrong
    assert any("an empty run: 0 faults that hit" in each for each in wrong), wrong
