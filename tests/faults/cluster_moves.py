"""Everything that a client can call, on a cluster whose slots are moved and whose primaries are killed.

python tests/faults/cluster_moves.py --seed 1 --seeds 30 --server both
python tests/faults/cluster_moves.py --seed 4 --server redis

A seed decides the instance (and so its slot), what is moved when and where to, whether a primary is killed, and which
calls run meanwhile. Slots are moved atomically on Valkey (`MIGRATESLOTS`), key by key on Redis (`SETSLOT`, `MIGRATE`).

In the end: no call raised for a move; none took longer for it than a second, none longer for a killed primary than six;
every message that a publisher's store took is recorded once; what was answered for good is there; nothing is recorded
twice; all is handled and settled; `check` finds nothing.
"""

# ruff: noqa: E402, T201  (imports behind a path; a command prints)

from __future__ import annotations

import argparse
import contextlib
import json
import random
import statistics
import sys
import tempfile
import time
import uuid
from pathlib import Path

# As a program it finds what pytest finds for tests.
sys.path[:0] = [str(Path(__file__).parents[1])]

from campaign import conftest
from cluster_callers import Callers, define
from cluster_harness import Cluster
from network import Node
from observing import eventually

from ampsq import Client
from ampsq.transport.discovery import slot_of

__all__ = ["FEW", "Harness", "measure", "run", "said"]

#: Seconds that a call may take for a move, and for a killed primary with this node timeout (ms).
_MOVE, _KILL, _NODE_TIMEOUT = 1.0, 6.0, 2000
#: Calls under way at a fault, so few that nothing was shown.
FEW = 10
#: Calls that wait for a replica.
_WAITING_FOR_REPLICA = {"publisher.flush", "async publisher.flush"}
#: Seconds in which all is handled once nothing is disturbed any more.
_HEALED = 60.0
#: Seconds that a move key by key takes at most, where the instance is small: it stands still meanwhile.
_LASTS = 0.4
#: Of the table.
_COLUMNS = (
    *("server", "seeds", "moves", "one takes, s (median)", "kills", "messages", "calls", "calls during a move or kill"),
    *("longest call, move, s", "longest call, kill, s", "longest call, else, s", "seeds with anything wrong"),
)
#: Seconds between faults.
_QUIET = (0.4, 1.0)


class Harness:
    """Three primaries and three replicas of one kind of server, for many seeds.

    Args:
        kind: ``redis`` or ``valkey``.
        folder: for all of it; a short path.
    """

    def __init__(self, kind, folder):
        self.kind, self._nodes, self._stack = kind, [], contextlib.ExitStack()
        program = conftest().program_of(kind)

        def start(*, options=()):
            self._nodes.append(Node(program, Path(folder, f"n{len(self._nodes)}"), options))
            return self._nodes[-1]

        try:
            # An append-only file, so that a node that comes back has its data.
            options = ["--appendonly", "yes", "--cluster-require-full-coverage", "no"]
            self.cluster = Cluster(start, replicas=True, node_timeout=_NODE_TIMEOUT, options=options)
        except BaseException:
            self.close()
            raise

    @property
    def url(self):
        return "cluster://" + ",".join(node.address for node in self._nodes)

    def move(self, slot, rng):
        """Move a slot to one of the other primaries."""
        source = self.cluster.owner(slot)
        target = rng.choice([node for node in self.cluster.primaries() if node is not source])
        if self.kind == "valkey":
            self.cluster.move_at_once(slot, target)
        else:
            self.cluster.move_by_keys(slot, target, rng.randrange(2, 12), rng.uniform(0.0, _LASTS))

    def idle(self, slot):
        """A node that serves no slots, and follows another primary than the slot's."""
        name = self.cluster.owner(slot).ask("CLUSTER", "MYID")
        return next(
            node
            for node in self._nodes
            if (line := next(each for each in node.ask("CLUSTER", "NODES").splitlines() if "myself" in each))
            and "slave" in line
            and name not in line
        )

    def close(self):
        for node in self._nodes:
            if node.process and node.process.poll() is None:
                node.kill()


def run(harness, seed, patience=lambda: 1.0):
    """Run one seed; gives its row.

    Args:
        harness: the cluster, all of whose nodes are well.
        seed: decides.
        patience: gives, once the run is over, how many times as long as promised a call may take: on a machine that
            others keep busy.
    """
    rng = random.Random(seed)  # noqa: S311  (no secret)
    instance = f"moves-{seed}-{rng.randrange(10**6)}-{uuid.uuid4().hex[:4]}"
    faults = ["move"] * rng.randrange(2, 5)
    if seed % 3 == 0:
        faults.insert(rng.randrange(len(faults) + 1), "kill")
    slot, happened = slot_of(instance), []
    with tempfile.TemporaryDirectory(prefix="aq-", dir="/tmp") as folder:
        with Client(harness.url, instance=instance) as client:
            define(client)
        callers = Callers(harness.url, instance, Path(folder), seed, lambda: harness.idle(slot))
        with callers:
            time.sleep(rng.uniform(*_QUIET))  # nothing happens meanwhile
            for fault in faults:
                began = time.monotonic()
                if fault == "move":
                    harness.move(slot, rng)
                    happened.append((fault, began, time.monotonic()))
                else:
                    lost = harness.cluster.lose_primary(slot)
                    # What goes on then: a client may find the new primary a little later.
                    happened.append((fault, began, time.monotonic() + 1.0))
                    time.sleep(rng.uniform(*_QUIET))  # what is lost stays away
                    harness.cluster.bring_back(lost)
                time.sleep(rng.uniform(*_QUIET))  # nothing happens meanwhile
        callers.noted.read_log(harness.url)
        return _row(harness, seed, instance, callers.noted, happened, patience())


def measure(calls, happened, held_up, patience=1.0):
    """Return times of calls during events: stalls, their callers, the number of calls, and the faults.

    Args:
        calls: a `Called` each.
        happened: (``move`` or ``kill``, from, until) each.
        held_up: gives the seconds between two moments in which the machine held all up.
        patience: how many times as long as promised a call may take.
    """
    stalls, longest, disturbed, wrong = {"move": 0.0, "kill": 0.0, "none": 0.0}, {}, 0, []
    usual = {}
    for call in calls:
        if not any(call.began < until and call.began + call.took > began for _, began, until in happened):
            usual.setdefault(call.name, []).append(call.took)
    for call in calls:
        during = [fault for fault, began, until in happened if call.began < until and call.began + call.took > began]
        fault = "kill" if "kill" in during else "move" if during else "none"
        disturbed += bool(during)
        if fault == "kill" and call.name in _WAITING_FOR_REPLICA:
            # The new primary has none until the lost node is back: no measure of how soon calls go on.
            continue
        # What the machine itself held up is no fault of the call's; it is told beside. Some take long by themselves.
        own = call.took - held_up(call.began, call.began + call.took) - statistics.median(usual.get(call.name, [0.0]))
        limit = {"move": _MOVE, "kill": _KILL, "none": float("inf")}[fault]
        if call.took > stalls[fault]:
            stalls[fault], longest[fault] = call.took, call.name
        if own > limit * patience:
            wrong.append(f"{call.name} took {call.took:.2f} s, {own:.2f} s of them for a {fault}")
    if disturbed < FEW:
        wrong.append(f"the run was empty: {disturbed} calls were under way while something was moved or killed")
    return stalls, longest, disturbed, wrong


def _row(harness, seed, instance, noted, happened, patience):  # noqa: PLR0917 - a run has so many parts
    killed = any(fault == "kill" for fault, *_ in happened)
    stalls, longest, disturbed, wrong = measure(noted.calls, happened, noted.held_up, patience)
    wrong += _drain(harness, instance)
    wrong += noted.wrong(killed=killed)
    wrong += [f"{name} was never called, or never came to its end" for name in noted.missing()]
    moves = [until - began for fault, began, until in happened if fault == "move"]
    return {
        "seed": seed, "server": harness.kind, "moves": len(moves), "kills": int(killed),
        "move": round(statistics.median(moves), 3), "calls": len(noted.calls), "disturbed": disturbed,
        "stalls": {fault: round(took, 2) for fault, took in stalls.items()}, "longest": longest,
        "machine": round(noted.held_up_most(), 2), "messages": len(noted.recorded),
        "raised": noted.allowed, "wrong": wrong,
    }  # fmt: skip


def _drain(harness, instance):
    """Return the faults once all that is left is handled."""
    with Client(harness.url, instance=instance, retry_timeout="30s") as client:
        until = time.monotonic() + _HEALED
        with client.subscribe("work", max_backlog=50) as messages:
            while client.admin.queue_stats("work").depth:
                if time.monotonic() > until:
                    return [f"not all is handled: {client.admin.queue_stats('work')}"]
                while (message := messages.get(0.3)) is not None:
                    message.ack()
                messages.flush()
        unclean = [each for each in client.admin.check() if not each.clean or each.undecided]
        return [f"check finds {each}" for each in unclean]


def said(row):
    """A line about a run."""
    well = "; ".join(row["wrong"]) or "well"
    return (
        f"seed {row['seed']} {row['server']}: {row['moves']} moves (median {row['move']} s), {row['kills']} kills, "
        f"{row['calls']} calls, {row['disturbed']} disturbed, {row['messages']} messages, longest call s "
        f"{row['stalls']} {row['longest']}, machine {row['machine']} s, raised {dict(row['raised'])}: {well}"
    )


def table(rows):
    """All runs by kind of server, in Markdown."""
    lines = [
        "| " + " | ".join(_COLUMNS) + " |",
        "|" + "---|" * len(_COLUMNS),
    ]
    for kind in sorted({row["server"] for row in rows}):
        of = [row for row in rows if row["server"] == kind]
        most = {fault: max(row["stalls"][fault] for row in of) for fault in ("move", "kill", "none")}
        cells = [
            kind, len(of), sum(row["moves"] for row in of), round(statistics.median(row["move"] for row in of), 2),
            sum(row["kills"] for row in of),
            *(f"{sum(row[what] for row in of):,}" for what in ("messages", "calls", "disturbed")),
            most["move"], most["kill"], most["none"], sum(bool(row["wrong"]) for row in of),
        ]  # fmt: skip
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many")
    parser.add_argument("--server", choices=("redis", "valkey", "both"), default="both")
    parser.add_argument("--out", type=Path, help="a file for a line of JSON a run")
    options = parser.parse_args()
    rows = []
    for kind in ("valkey", "redis") if options.server == "both" else (options.server,):
        with (
            tempfile.TemporaryDirectory(prefix="aq-", dir="/tmp") as folder,
            contextlib.closing(Harness(kind, folder)) as harness,
        ):
            for seed in range(options.seed, options.seed + options.seeds):
                rows.append(run(harness, seed))
                print(said(rows[-1]), flush=True)
                if options.out:
                    with options.out.open("a") as file:
                        file.write(json.dumps(rows[-1]) + "\n")
                eventually(harness.cluster.is_whole, within=60.0)
    print(f"\n{table(rows)}")
    return 1 if any(row["wrong"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
