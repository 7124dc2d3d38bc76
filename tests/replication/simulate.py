"""Runs of the simulation by command: many seeds, or one again with its trace.

python tests/replication/simulate.py --seeds 20000 --jobs 2 --deadline 7200
python tests/replication/simulate.py --seeds 2000 --deep 2000 --jobs 2 --deadline 7200
python tests/replication/simulate.py --seed 17
"""

# ruff: noqa: E402, T201  (imports behind a path; a command prints)

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import multiprocessing
import sys
import tempfile
import time
from pathlib import Path

# As a program it finds what pytest finds for tests.
sys.path[:0] = [str(Path(__file__).parents[1])]

from simulated import instances
from simulation import STEPS, Simulation

#: Kinds of servers, one for each instance.
KINDS = ("valkey", "redis", "valkey")
#: Seeds that a process takes at a time, and seconds between two lines of progress.
_AT_ONCE, _EVERY = 20, 10.0


@contextlib.contextmanager
def servers():
    """Private servers, one an instance; gives their URLs."""
    path = Path(__file__).parents[1] / "conftest.py"
    # What it imports beside it.
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location("fixtures", path)
    fixtures = importlib.util.module_from_spec(spec)
    sys.modules["fixtures"] = fixtures
    spec.loader.exec_module(fixtures)
    with tempfile.TemporaryDirectory(prefix="aq-", dir="/tmp") as folder, contextlib.ExitStack() as stack:
        urls = []
        for number, kind in enumerate(KINDS):
            server = fixtures.launch(kind, Path(folder, f"{kind}{number}"))
            stack.callback(server.end)
            urls.append(server.url)
        yield urls


def run_some(seeds, steps, until, deep):
    """Return how many were run until then, and what went wrong, by seed."""
    found, done = [], 0
    if time.monotonic() > until:
        return done, found
    with servers() as urls, instances(urls) as known:
        for seed in seeds:
            if time.monotonic() > until:
                break
            try:
                Simulation(known, seed, steps=steps, deep=deep).run()
            except Exception as error:  # noqa: BLE001  (whatever it is, the seed is to be known)
                found.append((seed, f"{type(error).__name__}: {error}"))
            done += 1
    return done, found


def run_one(seed, steps, deep):
    """With its trace, and once more to see that it is the same."""
    with servers() as urls, instances(urls) as known:
        digests = []
        for trace in (print, None):
            run = Simulation(known, seed, steps=steps, trace=trace, deep=deep)
            try:
                run.run()
            except Exception as error:  # noqa: BLE001  (whatever it is, the trace is wanted)
                if trace:
                    print(f"{type(error).__name__}: {error}")
            digests.append(run.history)
    print(f"history {' and '.join(digests)}: {'the same twice' if len(set(digests)) == 1 else 'DIFFERENT'}")
    return len(set(digests)) == 1


def run_many(first, number, *, jobs, steps, deadline, deep):
    """All seeds, with progress; gives whether none failed and all were run."""
    began = told = time.monotonic()
    done, bad = 0, []
    parts = [range(at, min(at + _AT_ONCE, first + number)) for at in range(first, first + number, _AT_ONCE)]
    with multiprocessing.Pool(jobs) as pool:
        waiting = [pool.apply_async(run_some, (part, steps, began + deadline, deep)) for part in parts]
        for each in waiting:
            count, found = each.get()
            done, bad = done + count, bad + found
            for seed, error in found:
                print(f"seed {seed}: {error}", flush=True)
            if time.monotonic() > told + _EVERY:
                told = time.monotonic()
                print(f"{done} of {number} seeds, {len(bad)} failed, {told - began:.0f} s", flush=True)
    seconds = time.monotonic() - began
    if done < number:
        print(f"the deadline of {deadline:.0f} s is over")
    depth = f", {deep} messages deep" if deep else ""
    found = f"{len(bad)} failed, {seconds:.0f} s, {jobs} processes"
    print(f"{done} of {number} seeds of {steps} steps and the end{depth}, {found}")
    return done == number and not bad


def main():
    parser = argparse.ArgumentParser(description="The simulation of replication on real servers.")
    parser.add_argument("--seed", type=int, help="run this one with its trace, twice")
    parser.add_argument("--seeds", type=int, default=300, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first one")
    parser.add_argument("--steps", type=int, default=STEPS, help="steps of a run before everything is healed")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--deadline", type=float, default=3600.0, help="seconds")
    parser.add_argument("--deep", type=int, default=0, help="messages that wait before it begins; few of them match")
    given = parser.parse_args()
    if given.seed is not None:
        return run_one(given.seed, given.steps, given.deep)
    many = {"jobs": given.jobs, "steps": given.steps, "deadline": given.deadline, "deep": given.deep}
    return run_many(given.first, given.seeds, **many)


if __name__ == "__main__":
    sys.exit(not main())
