"""A campaign of faults: one seed decides what happens to servers, processes and connections, and a judge looks.

python tests/faults/campaign.py --seed 1 --seconds 60
python tests/faults/campaign.py --seed 1 --topology pair --keep /tmp/run

In the end, left alone: what a publisher's store took, and what was answered for good, is in every log once; what was
answered without a guarantee is gone only where a loss of power or a fail-over may take it; all is handled and settled;
`check` finds nothing.
"""

# ruff: noqa: E402, T201  (imports behind a path; a command prints)

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import logging
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

# As a program it finds what pytest finds for tests.
sys.path[:0] = [str(Path(__file__).parents[1])]

from campaign_failover import Failover
from campaign_judge import Evidence, Fault, judge, read_log, read_published, read_store
from campaign_pair import Pair
from campaign_plan import TOPOLOGIES, plan
from observing import eventually
from shim import MISSING, compiled

from ampsq.base.errors import AmpsqError

__all__ = ["Campaign", "Failed", "run"]

#: Seconds in which all has to be over once nothing is disturbed any more.
_HEALED = 240.0
#: Seconds in which all processes are at work.
_BEGUN = 90.0
#: Seconds between two looks at what is to end.
_STEP = 0.05
#: Who publishes: role -> how its messages begin, and whether they are recorded in order.
_PUBLISHERS = {"publisher": ("till", True), "teller": ("plain", True), "poster": ("post", False)}


class Failed(Exception):
    """Something is not as it must be; the text says what."""


def conftest():
    """Load the module by which the tests start servers."""
    spec = importlib.util.spec_from_file_location(
        "conftest_of_tests", Path(__file__).resolve().parents[1] / "conftest.py"
    )
    found = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = found
    spec.loader.exec_module(found)
    return found


class Campaign:
    """One run.

    Args:
        folder: for the servers; a short path.
        planned: what `plan` made.
        library: the compiled shim, or None.

    Attributes:
        verdict: what the judge says, once it ran.
        healed: seconds from the last fault until all was handled.
    """

    def __init__(self, folder, planned, library):
        self.plan, self.verdict, self.healed = planned, None, 0.0
        tests = conftest()
        if planned.topology == "pair":
            self.servers = Pair(tests.launch, folder, planned, library)
        else:
            self.servers = Failover(tests.program_of, folder, planned)
        self.faults, self._lasting, self._ended = [], {}, []

    def run(self):
        """Disturb, let it heal, and judge."""
        with contextlib.closing(self):
            self.disturb()
            self.judge(self.evidence())

    def disturb(self):
        """Do what the plan says, and end it; then let the publishers get rid of what they have."""
        self.servers.begin()
        eventually(lambda: all(crew.is_at_work() for crew in self.servers.crews), within=_BEGUN)
        began = time.monotonic()
        for step in self.plan.steps:
            self._watch_until(began + step.at)
            self._begin(step)
        self._watch_until(began + self.plan.seconds)
        self._end_faults(float("inf"))
        self._collect()

    def judge(self, evidence):
        """Give the verdict on what was left behind."""
        self.verdict = judge(evidence, self.faults, self.plan.seconds, self.servers.excuse)
        return self.verdict

    def _watch_until(self, moment):
        while (now := time.monotonic()) < moment:
            self._end_faults(now)
            self.servers.look(self._lasting)
            time.sleep(min(_STEP, max(0.0, moment - time.monotonic())))  # between two looks

    def _begin(self, step):
        target = self.servers.target(step)
        if target in self._lasting:
            # Something else is done to it; that it is hit now is not what the seed wants to know.
            return
        fault = self.servers.fault(step)
        next(fault)
        self._lasting[target] = (time.monotonic() + step.length, fault, self._name(step))

    @staticmethod
    def _name(step):
        kind, _, what = step.fault.partition(" ")
        return f"{kind} {step.process}" if what == "process" else step.fault

    def _end_faults(self, now):
        for target, (until, fault, name) in list(self._lasting.items()):
            if until <= now:
                try:
                    next(fault)
                except StopIteration as ended:
                    self.faults.append(Fault(name, bool(ended.value)))
                del self._lasting[target]

    def _collect(self):
        """Tell the publishers to end, once all of them are at work again, and wait until they did."""
        their = [(crew, role) for crew in self.servers.crews for role in _PUBLISHERS if role in crew.commands]
        begun = time.monotonic()
        eventually(lambda: all(crew.is_at_work(begun) for crew in self.servers.crews), within=_BEGUN)
        for crew, role in their:
            crew.signal(role, signal.SIGTERM)
        for crew, role in their:
            if (code := crew.finish(role)) != 0:
                why = [each["why"] for each in crew.records(role) if "why" in each][-1:]
                self._ended.append(f"{role} {crew.site} was told to end and did not end well: {code} {' '.join(why)}")

    def evidence(self):
        """Wait until all is handled, and gather what the run left behind."""
        healing = time.monotonic()
        waiting, findings = self._settle()
        self.healed = time.monotonic() - healing
        published = [
            read_published(
                name := f"{prefix}-{crew.site}",
                crew.records(role),
                read_store(crew.store, name) if role == "publisher" else (),
                is_ordered=is_ordered,
            )
            for crew in self.servers.crews
            for role, (prefix, is_ordered) in _PUBLISHERS.items()
        ]
        logs = {}
        for crew in self.servers.crews:
            with contextlib.closing(self.servers.plain(crew.site)) as plain:
                logs[crew.site] = read_log(plain, f"campaign-{crew.site}")
        handled = Counter(
            each["body"]
            for crew in self.servers.crews
            for role in ("worker", "cli worker")
            for each in crew.records(role)
            if each["what"] == "handled"
        )
        refused = [
            f"refused for good: {each['why']}"
            for crew in self.servers.crews
            for each in crew.records("publisher")
            if each["what"] == "refused for good"
        ]
        ended = [each for crew in self.servers.crews for each in crew.ended]
        findings += [*refused, *ended, *self.servers.died, *self._ended]
        return Evidence(published, logs, handled, findings, waiting)

    def _settle(self):
        """Wait until all is handled; gives what still waits, and what `check` finds."""
        waiting, findings = {}, []
        for crew in self.servers.crews:
            with self.servers.client(crew.site) as client:

                def left(client=client):
                    self.servers.look(())
                    stats = client.admin.queue_stats("work")
                    return stats.depth + stats.remote

                with contextlib.suppress(AssertionError):
                    eventually(lambda left=left: left() == 0, within=_HEALED)
                waiting[crew.site] = left()
                try:
                    found = client.admin.check()
                except AmpsqError as error:
                    findings.append(f"check at {crew.site}: {error}")
                else:
                    findings += [
                        f"check at {crew.site}: {each}" for each in found if each.differences or each.undecided
                    ]
        return waiting, findings

    def close(self):
        self.servers.end()

    def row(self):
        """The run as a line of the table."""
        planned, verdict = self.plan, self.verdict
        how = f"{planned.program}, {planned.appendfsync}"
        allowed = "; ".join(f"{number} {what}" for what, number in sorted(verdict.allowed.items()) if number)
        oldest = "".join(f"; the oldest {why}: {age:.2f} s" for why, age in sorted(verdict.oldest.items()))
        hit = sum(verdict.faults.values())
        return {
            "seed": planned.seed, "servers": f"{planned.topology} ({how})", "messages": verdict.messages,
            "hit": hit, "in_vain": verdict.in_vain, "bytes": self.servers.lost, "healed": round(self.healed, 1),
            "allowed": allowed + oldest, "wrong": verdict.wrong, "faults": dict(verdict.faults),
            "oldest": verdict.oldest,
            "allowed_by_kind": dict(verdict.allowed), "appendfsync": planned.appendfsync, "topology": planned.topology,
        }  # fmt: skip


def run(seed, seconds, topology=None, keep=None):
    """Make a seed's run in a folder of its own; gives its line of the table."""
    log = logging.getLogger("ampsq")
    with contextlib.ExitStack() as stack:
        # That connections are lost is meant.
        stack.callback(log.setLevel, log.level)
        log.setLevel(logging.CRITICAL)
        folder = keep or stack.enter_context(tempfile.TemporaryDirectory(prefix="aq-", dir="/tmp"))
        Path(folder).mkdir(parents=True, exist_ok=True)
        library = compiled(folder)
        campaign = Campaign(Path(folder), plan(seed, seconds, topology, has_shim=library is not None), library)
        campaign.run()
        return campaign.row()


def said(row):
    """A line of the table as text."""
    kinds = ", ".join(f"{number} {name}" for name, number in sorted(row["faults"].items()))
    lines = [
        f"seed {row['seed']}, {row['servers']}: {row['messages']:,} messages, {row['hit']} faults hit ({kinds})",
        f"  {row['in_vain']} in vain, {row['bytes']:,} bytes lost, handled {row['healed']} s after the last fault",
        f"  allowed: {row['allowed'] or 'nothing'}",
        *(f"  WRONG: {each}" for each in row["wrong"]),
    ]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="decides what happens")
    parser.add_argument("--seconds", type=float, default=60.0, help="for how long there are faults")
    parser.add_argument("--topology", choices=list(TOPOLOGIES), help="instead of what the seed chooses")
    parser.add_argument("--keep", metavar="FOLDER", help="run there, and keep all files; a short path")
    parser.add_argument("--json", action="store_true", help="print the line of the table as JSON")
    parser.add_argument("--plan", action="store_true", help="print the faults of the seed, and end")
    options = parser.parse_args()
    # Told to end, it ends what it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if options.plan:
        for step in plan(options.seed, options.seconds, options.topology).steps:
            print(step)
        return 0
    row = run(options.seed, options.seconds, options.topology, options.keep)
    if options.json:
        print(json.dumps(row))
        return 1 if row["wrong"] else 0
    print(said(row))
    with tempfile.TemporaryDirectory() as folder:
        if compiled(folder) is None:
            print(MISSING)
    return 1 if row["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
