"""A short run of `group_kills`, and that its judge notices what must not be."""

from __future__ import annotations

import pytest
from group_judge import Held, judge, too_fast, wrong_workers
from group_kills import run, said


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize(("kind", "seed"), [("valkey", 1), ("redis", 17), ("valkey", 15)])
def test_groups_keep_their_order_and_their_limit_while_everybody_is_killed(server_program, kind, seed, tmp_path):
    row = run(server_program(kind), tmp_path, seed)

    assert not row["wrong"], said(row)
    assert sum(row["kills"].values()) == 7
    # What was dropped, or given up after it failed, is a dead letter: the run has looked for each of them.
    assert row["handled"] + row["given_up"] >= 900


def held(number, start, end, *, is_done=True, worker="a", begins=False):
    return Held("g", number, start, end, is_done, worker=worker, begins=begins)


def test_the_judge_is_content_with_order_and_with_what_comes_again():
    again = [held(0, 1, 2, is_done=False), held(0, 3, 4), held(1, 4, 5)]

    assert judge(again, {"g": 2}, 1, in_order=True) == []


def test_the_judge_lets_a_batch_come_again_whose_worker_died_before_it_said_what_was_done():
    again = [held(0, 1, 2), held(1, 2, 3), held(2, 3, 4, is_done=False), *(held(n, 5 + n, 6 + n) for n in range(3))]

    assert judge(again, {"g": 3}, 1, in_order=True, in_batches=True) == []
    assert judge(again, {"g": 3}, 1, in_order=True) != []


def test_the_judge_lets_just_so_many_messages_go_as_were_dropped():
    one = [held(0, 1, 2), held(2, 3, 4)]
    assert judge(one, {"g": 4}, 1, in_order=True, dropped={"g": 2}) == []
    assert judge(one, {"g": 4}, 1, in_order=True, dropped={"g": 1}) == ["g: 2 messages were never handled: [1, 3]"]
    wrong = [held(1, 1, 2), held(0, 3, 4)]
    assert judge(wrong, {"g": 3}, 1, in_order=True, dropped={"g": 1}) == ["g: message 0 was started after message 1"]


@pytest.mark.parametrize(
    "wrong",
    [
        [held(0, 1, 2), held(1, 2, 3, is_done=False), held(2, 3, 4), held(1, 5, 6)],
        [held(0, 1, 2), held(2, 2, 3), held(1, 3, 4)],
        [held(0, 1, 2), held(1, 3, 5), held(2, 4, 6)],
    ],
)
def test_the_judge_notices_what_a_batch_goes_on_with_behind_one_that_is_not_done(wrong):
    found = judge(wrong, {"g": 3}, 2, in_order=True, in_batches=True)
    assert found == ["g: message 2 was started before 1 was done"]


def test_the_judge_lets_a_group_go_on_behind_a_failure_once_it_was_released():
    one = [held(0, 1, 2, is_done=False), held(1, 4, 5), held(2, 5, 6)]

    assert judge(one, {"g": 3}, 1, in_order=True, releases={"g": [3]}) == []
    too_early = "g: message 1 was started before the stop by 0 was released"
    for releases in ({}, {"g": [0.5, 4.5]}):
        assert judge(one, {"g": 3}, 1, in_order=True, releases=releases) == [too_early]
    again = [*one, held(0, 7, 8)]
    assert "g: a message was delivered twice" in judge(again, {"g": 3}, 1, in_order=True, releases={"g": [3]})


def test_the_judge_is_content_with_a_bound_group_that_moves_when_nothing_of_it_is_in_hands():
    one = [held(0, 1, 2, begins=True), held(1, 2, 3), held(2, 4, 5, worker="b", begins=True), held(3, 5, 6, worker="b")]

    assert wrong_workers(one, 1) == []


def test_the_judge_notices_a_bound_group_in_the_hands_of_two_workers_and_one_that_moves_silently():
    one = [held(0, 1, 3, begins=True), held(1, 2, 4, worker="b")]

    assert wrong_workers(one, 2) == ["g: message 1 was started while another worker had 0"]
    assert wrong_workers(one, 1)[1:] == ["g: message 1 came to another worker, which was not told"]


@pytest.mark.parametrize(
    ("starts", "is_wrong"),
    [
        ([0, 0, 0, 0.1, 0.2, 0.3], False),
        ([0, 5, 5, 5, 5.1], False),
        ([0, 0, 0, 0, 1], True),
        ([0, 9, 9.01, 9.02, 9.03], True),
    ],
)
def test_the_judge_notices_more_than_a_burst_and_a_rate_let_go(starts, is_wrong):
    assert too_fast(starts, 3, 10) is is_wrong


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ([held(0, 1, 2)], "g: 1 messages were never handled: [1]"),
        ([held(0, 1, 2), held(1, 3, 4, is_done=False)], "g: 1 messages were never handled: [1]"),
        ([held(0, 1, 3), held(1, 2, 4)], "g: 2 messages were in hands at a time, of 1"),
        ([held(1, 1, 2), held(0, 3, 4)], "g: message 0 was started after message 1"),
        (
            [held(0, 1, 2, is_done=False), held(1, 3, 4), held(0, 5, 6)],
            "g: message 1 was started before 0 was done",
        ),
    ],
)
def test_the_judge_notices_what_must_not_be(wrong, sentence):
    assert sentence in judge(wrong, {"g": 2}, 1, in_order=True)
