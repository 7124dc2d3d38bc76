"""The seeds of the simulation that every run of all tests has: 150 histories, each judged after every step.

`make test` has the first 30 of them, with the test that counts what happens.
"""

from __future__ import annotations

import pytest
from cases import first_ones
from simulate import KINDS
from simulated import instances
from simulation import Simulation

SEEDS, TOGETHER = 150, 25


@pytest.fixture
def servers_of_a_run(start_server):
    """Instances on servers of their own."""
    with instances([start_server(kind).url for kind in KINDS]) as known:
        yield known


@pytest.mark.slow
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


# A journal that a later incarnation began, at a server whose clock was behind the last one's. Messages that a publisher
# sent to two instances, with more behind them in the log of one than a call looks at. Few messages of an incarnation
# that is over, among many of others.
@first_ones(("seed", "deep"), [(19_482, 0), (1_223, 2_000), (1_835, 2_000)], 1)
def test_no_history_that_once_broke_a_rule_does_so_again(servers_of_a_run, seed, deep):
    Simulation(servers_of_a_run, seed, deep=deep).run()


@first_ones(("seed", "deep"), [(1, 0), (2, 0), (1_223, 1_000)], 1)
def test_a_seed_is_the_same_history_each_time(servers_of_a_run, seed, deep):
    former = Simulation(servers_of_a_run, seed, deep=deep).run()
    assert Simulation(servers_of_a_run, seed, deep=deep).run() == former


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("deep", "first", "number"),
    [(2_000, 0, 1), (2_000, 1, 3), (10_000, 7, 1)],
)
def test_in_deep_queues_a_free_consumer_whose_filter_few_match_does_not_starve(servers_of_a_run, deep, first, number):
    told = []
    for seed in range(first, first + number):
        Simulation(servers_of_a_run, seed, steps=40, deep=deep, trace=told.append).run()

    assert sum(" fed " in line for line in told) == number
