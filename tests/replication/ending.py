"""End of a run of the simulation: everything is healed, read and settled; then nothing may be left."""

from __future__ import annotations

from typing import NamedTuple

import losing
from invariants import Violation, believers, judge_copies, judge_grants, judge_settlements
from simulated import QUEUE

from ampsq.operations.check.queue import check
from ampsq.protocol.limits import DEFERRED_PERIOD

#: Rounds of all links within which a healed world comes to rest, and rounds in which all is settled then.
REST, SETTLED = 60, 40
#: Rounds in which a free consumer of a deep queue gets something: a quarter of a second each.
PATIENCE = 4


def finish(run):
    """Heal everything, let all come to rest, have every message settled, and judge what is left."""
    run.cut.clear()
    for link in run.links.values():
        link.close()
    for each in run.instances.values():
        each.skew = 0
    run.now += 20_000
    come_to_rest(run)
    _judge_rest(run)
    where = run.random.choice([*run.instances]) if not run.shape.filtered and run.random.random() < 0.4 else ""
    # A crash may have brought some back that had ended.
    for instance in run.instances.values():
        for by in instance.ask(["ZRANGE", instance.key("subscriptions"), 0, -1])[0]:
            instance.run("unsubscribe", instance.now, by)
    run.subscriptions.clear()
    run.taken = []
    if run.deep:
        for name, instance in run.instances.items():
            judge_copies(instance, run.views[name])
        _judge_starving(run)
        _settle_the_rest(run)
    for at in where or run.instances:
        run.subscribe(at, backlog=5, filtered=False)
    for _ in range(SETTLED):
        run.now += 60_000
        if _settle_some(run):
            break
    else:
        raise Violation(f"never settled: {_unsettled(run)}")
    _judge_end(run)


def come_to_rest(run):
    """Step all links until nothing moves any more."""
    for _ in range(REST):
        moved = False
        for name in run.instances:
            run.flush(name)
        for name in run.links:
            step = run.step(name)
            moved = moved or step is None or bool(step.messages or step.journal_rows or step.requests)
            moved = moved or not step.is_idle
        is_over = not losing.go_on(run) and not moved
        # Of a deep queue each look is a long one.
        if is_over or not run.deep:
            for name in run.instances:
                run.judge(name)
            run.judge_all()
        if is_over:
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


def _judge_starving(run):
    """A consumer that is free, anywhere, and whose filter few match, gets all of those, however deep they lie."""
    at = run.random.choice([*run.instances])
    run.subscribe(at, backlog=5, filtered=True)
    ((by, (_, subscription)),) = run.subscriptions.items()
    patience = PATIENCE
    while patience:
        left = _matching(run, at)
        if not left:
            break
        run.now += 250
        for each in run.instances:
            run.sweep_all(each)
        run.request(at)
        come_to_rest(run)
        found = run.take_of(at, subscription)
        patience = PATIENCE if found else patience - 1
        for message in run.taken:
            run.settle(message, "acknowledged")
        run.taken = []
        run.judge(at)
    if left:
        raise Violation(f"a free consumer of {at} starves: {sorted(left)} wait")
    run.tell("fed", at)
    run.instances[at].run("unsubscribe", run.instances[at].now, subscription)
    del run.subscriptions[by]


def _matching(run, at):
    """Return the messages that an instance has, that match, and that are not settled."""
    view = run.views[at]
    return {entry.name for entry in view.entries if entry.kind == 1 and view.places[entry.name] != "settled"}


def _settle_the_rest(run):
    """Somebody settles the many by their bookmarks, where they are owned."""
    for name, instance in run.instances.items():
        run.sweep_all(name)
        run.judge(name)
        view = run.views[name]
        places = view.places
        refs = [entry.ref for entry in view.entries if entry.publisher == "d" and places[entry.name] != "settled"]
        for first in range(0, len(refs), 200):
            some = refs[first : first + 200]
            instance.run("settle", instance.now, "acknowledged", 0, "", QUEUE, len(some), *some, *[""] * len(some))
    come_to_rest(run)


def _settle_some(run):
    for at in run.instances:
        run.sweep_all(at)
        run.request(at)
    come_to_rest(run)
    for at, by in [*run.subscriptions.values()]:
        for _ in range(20):
            if not run.take_of(at, by):
                break
            for message in [each for each in run.taken if each.by == by and each.instance == at]:
                run.settle(message, "acknowledged")
            run.taken = []
        run.judge(at)
    come_to_rest(run)
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
