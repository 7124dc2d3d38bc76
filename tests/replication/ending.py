"""How a run of the simulation ends: everything is healed, read and settled; then nothing may be left."""

from __future__ import annotations

from typing import NamedTuple

import losing
from invariants import Violation, believers, judge_grants, judge_settlements

from ampsq.operations.check.queue import check
from ampsq.protocol.schema import DEFERRED_PERIOD

#: Rounds of all links within which a healed world comes to rest, and rounds in which all is settled then.
REST, SETTLED = 60, 40


def finish(run):
    """Heal everything, let all come to rest, have every message settled, and judge what is left."""
    run.cut.clear()
    for link in run.links.values():
        link.close()
    for each in run.instances.values():
        each.skew = 0
    run.now += 20_000
    _come_to_rest(run)
    _judge_rest(run)
    where = run.random.choice([*run.instances]) if not run.shape.filtered and run.random.random() < 0.4 else ""
    # A crash may have brought some back that had ended.
    for instance in run.instances.values():
        for by in instance.ask(["ZRANGE", instance.key("subscriptions"), 0, -1])[0]:
            instance.run("unsubscribe", instance.now, by)
    run.subscriptions.clear()
    run.taken = []
    for at in where or run.instances:
        run.subscribe(at, backlog=5)
    for _ in range(SETTLED):
        run.now += 60_000
        if _settle_some(run):
            break
    else:
        raise Violation(f"never settled: {_unsettled(run)}")
    _judge_end(run)


def _come_to_rest(run):
    for _ in range(REST):
        moved = False
        for name in run.instances:
            run.flush(name)
        for name in run.links:
            step = run.step(name)
            moved = moved or step is None or step.messages > 0 or step.journal_rows > 0 or not step.is_idle
        for name in run.instances:
            run.judge(name)
        run.judge_all()
        if not losing.go_on(run) and not moved:
            return
    raise Violation("the links never come to rest")


def _judge_grants(run):
    """A new incarnation is another origin: what was granted to the last one says nothing of it."""
    if not run.loss:
        for instance in run.instances.values():
            judge_grants(instance, run.asked)


def _judge_rest(run):
    """Healed, and everything read: the same messages everywhere, and one owner of each."""
    for name, view in run.views.items():
        wanted = {
            entry.name
            for other in run.views.values()
            for entry in other.entries
            if run.passes(entry.origin, run.instances[name], entry.kind)
        }
        if view.names != wanted:
            raise Violation(f"{name} has not {sorted(wanted - view.names)}, has more {sorted(view.names - wanted)}")
    if missing := {name for name in run.persisted if all(name not in view.names for view in run.views.values())}:
        raise Violation(f"{sorted(missing)} were persisted, and are nowhere")
    for name, found in believers(run.views, run.all_origins, run.owner).items():
        if len([place for _, place in found if place == "ready"]) > 1:
            raise Violation(f"{name} has several owners at rest: {found}")


def _settle_some(run):
    for at in run.instances:
        run.sweep_all(at)
        run.request(at)
    _come_to_rest(run)
    for at, by in [*run.subscriptions.values()]:
        for _ in range(20):
            if not run.take_of(at, by):
                break
            for message in [each for each in run.taken if each.by == by and each.instance == at]:
                run.settle(message, "acknowledged")
            run.taken = []
        run.judge(at)
    _come_to_rest(run)
    return not _unsettled(run)


def _unsettled(run):
    return {
        (at, name): place for at, view in run.views.items() for name, place in view.places.items()
        if place != "settled"
    }  # fmt: skip


def _judge_end(run):
    _judge_grants(run)
    run.now += DEFERRED_PERIOD
    for name in run.instances:
        run.sweep_all(name)
        run.judge(name)
    for name, view in run.views.items():
        instance = run.instances[name]
        if any(view.left.values()):
            raise Violation(f"{name} has something left: {view.left}")
        judge_settlements(instance, view)
        place = _Place(instance.name, instance.origin)
        for checked in instance.store.run(check(place)):
            if not checked.clean or checked.undecided:
                raise Violation(f"check of {name}: {checked.differences} {checked.undecided}")
    run.tell("end", *(len(view.entries) for view in run.views.values()))


class _Place(NamedTuple):
    instance: str
    origin: str
