"""Losses in some runs of the simulation: one server is emptied, or restored from an older state, and begins anew."""

from __future__ import annotations

import random
from typing import NamedTuple

from ampsq.protocol.calls import incarnations as incarnation_calls
from ampsq.protocol.reads.origin import read_origin
from ampsq.replication.selection import Peer


class Loss(NamedTuple):
    """A loss: the server, the step at which it is saved, None where it is emptied, and that at which it is lost."""

    at: str
    saved: int | None
    lost: int


def loss_of(seed, instances):
    """Return the loss of a run; None: none. Decided apart, so that all other runs stay what they are."""
    chance = random.Random(f"loss {seed}")  # noqa: S311
    if chance.random() >= 0.2:
        return None
    at, saved = chance.choice(sorted(instances)), chance.randrange(5, 60)
    return Loss(at, saved if chance.random() < 0.6 else None, saved + chance.randrange(5, 45))


def lose(run):
    """A server comes back with less than it had, as a new incarnation; its clients are gone."""
    at = run.loss.at
    instance = run.instances[at]
    if run.loss.saved is None:
        instance.define("two")
    else:
        instance.restore()
        while instance.run("begin_incarnation", instance.now, "two")[1]:
            pass
    known = instance.store.call(read_origin(at))
    instance.origin, instance.peer = str(known), Peer(at, str(known), instance.group, known.former)
    run.origins[at], run.all_origins = instance.origin, [*run.all_origins, instance.origin]
    instance.flush()
    for name in run.links:
        if at in name:
            run.links[name].close()
            run.links[name] = run.link(name)
    _forget(run, at)
    run.tell("lose", at, "emptied" if run.loss.saved is None else "restored", instance.origin)
    run.judge(at, crashed=True)
    run.durable(at)
    # What it alone had is no more, and what it alone knew may come again.
    others = [name for name in run.instances if name != at]
    run.persisted = {name for name in run.persisted if any(name in run.durable_names[each] for each in run.instances)}
    run.acknowledged = {name for name in run.acknowledged if all(name in run.settled[each] for each in others)}


def _forget(run, at):
    """Forget the clients of an instance, which the new incarnation refused."""
    run.subscriptions = {number: known for number, known in run.subscriptions.items() if known[0] != at}
    run.taken = [each for each in run.taken if each.instance != at]
    run._undurable[at] = []
    for publisher in run.guaranteed:
        if publisher.at == at:
            publisher.session = ""


def go_on(run):
    """Let a new incarnation go on once every link that leads to it has brought all; whether it did."""
    if not has_lost(run):
        return False
    instance = run.instances[run.loss.at]
    word = instance.store.call(incarnation_calls.recovery_word(instance.name))
    if not word:
        return False
    names, values = instance.ask(["HKEYS", instance.key("recovery")], ["HVALS", instance.key("recovery")])
    said = {name.decode() for name, value in zip(names, values, strict=True) if value.decode().startswith(word)}
    if not said >= {f"from {name[0]}" for name in run.links if name[1] == instance.name}:
        return False
    left = instance.run("end_recovery", instance.now, word, "work")
    run.tell("go on", instance.name, left)
    return True


def has_lost(run):
    """Return whether a server came back with less: what it is given back comes late, and is passed on late."""
    return run.loss is not None and run.number >= run.loss.lost
