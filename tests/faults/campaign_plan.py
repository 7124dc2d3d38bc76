"""Plan of a run, from its seed: the kind of servers, how they flush, and which fault comes when, where, how long."""

from __future__ import annotations

import random
from dataclasses import dataclass

__all__ = ["ALONE", "CREWS", "TOPOLOGIES", "Plan", "Step", "plan"]

#: Kind -> how likely a seed chooses it.
TOPOLOGIES = {"pair": 6, "sentinel": 2, "cluster": 2}
#: Fault -> how likely, and seconds that it lasts.
_PAIR = {
    "kill server": (5, 0.1, 2.0),
    "lose power": (5, 0.1, 2.0),
    "kill process": (10, 0.1, 1.0),
    "stop process": (4, 0.3, 4.0),
    "stop server": (2, 0.2, 3.0),
    "close connections": (2, 0.0, 0.0),
    "lose replies": (5, 0.1, 1.0),
    "delay replies": (3, 0.5, 3.0),
    "silence clients": (2, 0.3, 4.0),
    "part instances": (4, 0.5, 5.0),
    "step clock": (4, 0.5, 5.0),
    "fill disk": (3, 0.5, 2.5),
    "fill memory": (3, 0.5, 2.5),
}
_FAILOVER = {
    "kill primary": (4, 0.5, 6.0),
    "stop primary": (2, 2.0, 6.0),
    "kill replica": (3, 0.2, 3.0),
    "stop replica": (1, 0.5, 4.0),
    "planned failover": (3, 0.0, 0.0),
    "kill process": (8, 0.1, 1.0),
    "stop process": (3, 0.3, 4.0),
    "close connections": (2, 0.0, 0.0),
    "fill memory": (2, 0.5, 2.5),
}
_SENTINEL = {**_FAILOVER, "kill sentinel": (2, 0.2, 3.0)}
_FAULTS = {"pair": _PAIR, "sentinel": _SENTINEL, "cluster": _FAILOVER}
#: Where it happens.
_SITES = {"pair": ["a", "b"], "sentinel": ["a"], "cluster": ["a"]}
#: Site -> its processes, and how likely a fault of a process is one of each.
CREWS = {
    "a": {"worker": 3, "publisher": 3, "teller": 2, "coordinator": 3, "gateway": 2, "poster": 1},
    "b": {"cli worker": 3, "publisher": 3, "teller": 2, "coordinator": 3},
}
#: Of the one instance that fails over.
ALONE = {"worker": 3, "cli worker": 2, "publisher": 3, "teller": 2, "coordinator": 3}
#: Seconds between two faults.
_PAUSES = (0.1, 1.3)
#: Seconds by which a clock is put forward or back.
_CLOCK = (0.2, 2.0, 15.0, 60.0)


@dataclass(frozen=True)
class Step:
    """One fault.

    Attributes:
        at: seconds since the beginning.
        fault: its name.
        site: where.
        length: seconds that it lasts.
        amount: what the fault makes of it, 0 to 1.
        process: which one, for faults of processes.
        clock: seconds by which a clock is put forward, or back.
    """

    at: float
    fault: str
    site: str
    length: float
    amount: float
    process: str
    clock: float


@dataclass(frozen=True)
class Plan:
    """The plan of one run.

    Attributes:
        seed: what it was made from.
        seconds: for how long there are faults.
        topology: pair, sentinel or cluster.
        appendfsync: how the servers flush.
        program: valkey or redis.
        steps: the faults, in the order of time.
    """

    seed: int
    seconds: float
    topology: str
    appendfsync: str
    program: str
    steps: tuple[Step, ...]


def _weighed(chance, choices):
    weights = [found[0] if isinstance(found, tuple) else found for found in choices.values()]
    return chance.choices(list(choices), weights)[0]


def plan(seed, seconds, topology=None, *, has_shim=True):
    """Make the plan of a seed: the same one each time.

    Args:
        seed: decides everything.
        seconds: for how long.
        topology: instead of the seed's.
        has_shim: without one no clock is stepped.
    """
    chance = random.Random(seed)  # noqa: S311 - chance is what is wanted
    chosen = _weighed(chance, TOPOLOGIES)
    topology = topology or chosen
    appendfsync = chance.choice(["everysec", "everysec", "always"])
    # Redis 7.0 runs half a transaction again where a loss of power cut its file (docs/publishing.md).
    program = "valkey" if topology == "pair" else chance.choice(["valkey", "redis"])
    faults, steps, at = _FAULTS[topology], [], 1.0
    while (at := at + chance.uniform(*_PAUSES)) < seconds:
        fault, site = _weighed(chance, faults), chance.choice(_SITES[topology])
        steps.append(
            Step(
                at=at,
                fault=fault,
                site=site,
                length=chance.uniform(*faults[fault][1:]),
                amount=chance.random(),
                process=_weighed(chance, CREWS[site] if topology == "pair" else ALONE),
                clock=chance.choice([1, -1]) * chance.choice(_CLOCK) * chance.uniform(0.5, 1.0),
            )
        )
    left_out = set() if has_shim else {"step clock"}
    return Plan(
        seed, seconds, topology, appendfsync, program, tuple(each for each in steps if each.fault not in left_out)
    )
