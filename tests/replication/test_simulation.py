"""The seeds of the simulation that every run of the tests has: 150 histories, each judged after every step."""

from __future__ import annotations

import pytest
from simulate import KINDS
from simulated import instances
from simulation import Simulation

SEEDS, TOGETHER = 150, 25


@pytest.fixture
def servers_of_a_run(start_server):
    """Instances on servers of their own."""
    with instances([start_server(kind).url for kind in KINDS]) as known:
        yield known


@pytest.mark.parametrize("first", range(0, SEEDS, TOGETHER))
def test_no_history_breaks_a_rule(servers_of_a_run, first):
    for seed in range(first, first + TOGETHER):
        run = Simulation(servers_of_a_run, seed)
        try:
            run.run()
        except Exception as error:  # noqa: BLE001  (whatever it is, the seed is to be known)
            pytest.fail(
                f"seed {seed}, {run.shape_name}, step {run.number}: {type(error).__name__}: {error}\n"
                f"Again, with its trace: python tests/replication/simulate.py --seed {seed}"
            )


# A journal that a later incarnation began, at a server whose clock was behind the last one's.
@pytest.mark.parametrize("seed", [19_482])
def test_no_history_that_once_broke_a_rule_does_so_again(servers_of_a_run, seed):
    Simulation(servers_of_a_run, seed).run()


def test_a_seed_is_the_same_history_each_time(servers_of_a_run):
    for seed in (1, 2, 3):
        assert Simulation(servers_of_a_run, seed).run() == Simulation(servers_of_a_run, seed).run()


def test_seeds_have_all_shapes_and_most_of_what_may_happen(servers_of_a_run):
    told, shapes = [], set()
    for seed in range(30):
        run = Simulation(servers_of_a_run, seed, trace=told.append)
        run.run()
        shapes.add(run.shape_name)

    assert shapes == {"pair", "triangle", "chain", "filtered"}
    verbs = {line.split()[1] for line in told}
    assert verbs >= {"publish", "logon", "take", "acknowledged", "cancelled", "link", "cut", "heal", "repeat", "sweep",
                     "request", "assume", "flush", "crash", "clock", "script", "subscribe", "unsubscribe"}  # fmt: skip
    assert any("AMPSQ_STALE_LEASE" in line for line in told)
    assert any("Unavailable" in line for line in told)
    assert any("Gap" in line for line in told)


@pytest.mark.parametrize(
    ("deep", "first", "number"), [(2_000, 0, 4), pytest.param(10_000, 7, 1, marks=pytest.mark.slow)]
)
def test_in_deep_queues_a_free_consumer_whose_filter_few_match_does_not_starve(servers_of_a_run, deep, first, number):
    told = []
    for seed in range(first, first + number):
        Simulation(servers_of_a_run, seed, steps=40, deep=deep, trace=told.append).run()

    assert sum(" fed " in line for line in told) == number
