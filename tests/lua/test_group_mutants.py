"""Faults that the model of groups has to notice: each mutant is the scripts with one fault.

A mutant that all histories agree with says that the model does not look at what that line does.
"""

from __future__ import annotations

import contextlib
from functools import cache
from typing import NamedTuple

import pytest
from group_model import GroupedHistory
from world import World

from ampsq.base.errors import AmpsqError
from ampsq.protocol import scripts
from ampsq.transport.store import Store

pytestmark = pytest.mark.slow

#: Histories in which a mutant must be noticed, and steps of each.
_HISTORIES, _STEPS = 60, 200


class Mutant(NamedTuple):
    """A fault in one line.

    Attributes:
        breaks: what it breaks.
        include: the noun of the include.
        right: a part of the line that is there once.
        wrong: what stands there instead.
        first: the history that is tried first, where few notice it.
    """

    breaks: str
    include: str
    right: str
    wrong: str
    first: int = 1


MUTANTS = (
    Mutant(
        "one more than its concurrency is leased of a group",
        "group_state", "local places = queue.concurrency - state.leased\n",
        "local places = queue.concurrency - state.leased + 1\n",
    ),
    Mutant(
        "what a lease that ended leaves free is not counted",
        "group_state", "if state.leased > 0 then state.leased = state.leased - 1 end", "",
    ),
    Mutant(
        "a message that holds its group holds it for ever",
        "group_state", "if pinned[i] == name and state.held > 0 then state.held = state.held - 1 end", "",
    ),
    Mutant(
        "a failed message does not hold its group",
        "group_state", "return state.held > 0 and queue.on_failure ~= V.pass", "return false",
    ),
    Mutant(
        "a message that was given up stops no group",
        "group_state", "if queue.on_failure == V.stop then stop_groups(queue, stopped, now) end", "",
    ),
    Mutant(
        "a group that is stopped goes on",
        "group_state", "return state.stopped > 0 or state.paused ~= nil", "return state.paused ~= nil",
    ),
    Mutant(
        "a group that is paused goes on",
        "group_state", "return state.stopped > 0 or state.paused ~= nil", "return state.stopped > 0",
    ),
    Mutant(
        "what comes back does not stand before what could go already",
        "group_state", "if not state.before and state.going > 0 then state.before =", "if false then state.before =",
    ),
    Mutant(
        "a released message keeps its place in front of all",
        "group_state", "call('ZADD', K.grouped(queue.name), 0, state.name .. '\\0001' .. ref)",
        "call('ZADD', K.grouped(queue.name), 0, state.name .. '\\0000' .. ref)",
    ),
    Mutant(
        "a delivery takes no token of its group's rate",
        "group_state", "math.max(state.full or now, now) + queue.group_rate.interval",
        "math.max(state.full or now, now)",
    ),
    Mutant(
        "a group that waited for its rate is not woken",
        "group_state", "call_in_batches('ZADD', K.later(queue.name), items)", "",
    ),
    Mutant(
        "groups that a call freed and did not serve stand nowhere",
        "group_state", "if freed then save_groups(queue, freed.states) end", "", 70,
    ),
    Mutant(
        "the next batch of a group does not wait for the last one",
        "group_state", "return state.leased == 0 and queue.batch or 0", "return queue.batch",
    ),
    Mutant(
        "a lapse leaves its group bound",
        "group_state", "if state and state.bound_to == lease.holder then unbind(state) end", "",
    ),
    Mutant(
        "a delivery leaves its group at its turn",
        "group_turns", "round.reached, round.last = math.max(round.reached, turn), round.last + 1\n  return round.last",
        "round.reached, round.last = math.max(round.reached, turn), round.last + 1\n  return turn",
    ),
    Mutant(
        "a group that comes again at once stands in front of others",
        "group_turns", "state.turn = turn and turn > round.reached and turn or next_joining_turn(round)",
        "state.turn = next_joining_turn(round)", 29,
    ),
    Mutant(
        "`fair` takes no account of weights",
        "group_turns", "math.frexp(leased * 1024 / weight)", "math.frexp(leased * 1024)",
    ),
    Mutant(
        "`fair` takes no account of what is leased",
        "group_turns", "if queue.choice == V.round_robin or leased == 0 then return turn end",
        "if true then return turn end",
    ),
    Mutant(
        "messages behind a failed one of their batch stay leased",
        "batch_return", "if batch.place[ref] > place then", "if false then",
    ),
    Mutant(
        "a group that is bound is bound to each that gets a message of it",
        "group_bindings", "state.bound_to, state.bound_until, state.is_bound_anew = subscription.id,",
        "state.bound_until, state.is_bound_anew =",
    ),
    Mutant(
        "a binding has no end",
        "group_bindings", "if state.leased == 0 and state.bound_until <= ms then return unbind(state) end", "",
    ),
    Mutant(
        "what is listed is not counted as waiting",
        "group_lists", "state.listed, state.waiting = had + number, state.waiting + number",
        "state.listed = had + number",
    ),
    Mutant(
        "a message between two pieces of a list is in neither",
        "group_lists", "at, behind, last_text = at + some, behind", "at, behind, last_text = at + some + 1, behind",
    ),
    Mutant(
        "what is listed and left the queue is delivered",
        "listing", "unread[from + i - 1].is_placed = not how", "unread[from + i - 1].is_placed = true",
    ),
    Mutant(
        "what was taken off a list is not noted as delivered",
        "listing", "if item.is_placed then marks[#marks + 1], marks[#marks + 2] = item.ref, V.delivered end", "",
    ),
    Mutant(
        "what is delivered as it is read is not noted where something is listed",
        "listing", "elseif not noted[ref] then", "elseif false then",
    ),
    Mutant(
        "what was noted before the first that is listed stays noted",
        "listing", "    call_in_batches('HDEL', K.ahead(queue.name), passed)\n    if at > 1", "    if at > 1",
    ),
    Mutant(
        "the cursor does not move up to the first that is listed",
        "listing", "if at > 1 then call('HSET', K.cursors(queue.name), queue.topic,",
        "if false then call('HSET', K.cursors(queue.name), queue.topic,",
    ),
    Mutant(
        "what is listed stands in front of what came back",
        "group_state", "if not listed[k] or sorted[i] and sub(sorted[i], 1, -2) < sub(listed[k], 1, -2) then",
        "if not listed[k] then",
    ),
    Mutant(
        "what is listed does not make room for itself among what may go",
        "group_state", "if state.listed < state.waiting then remember_going(queue, state) end", "", 37,
    ),
    Mutant(
        "what is listed and was settled otherwise is not looked for",
        "unleased_settlement", "if ahead[1] then set_listing_form(queue, V.listing_broken) end", "",
    ),
    Mutant(
        "what is scheduled behind what is listed is not looked for",
        "message_times", "if ahead[1] then set_listing_form(queue, V.listing_broken) end", "", 60,
    ),
)  # fmt: skip


@contextlib.contextmanager
def mutated(monkeypatch, mutant):
    """Call scripts with a fault; no server functions, which are those of the release."""
    path = scripts._paths()[1][mutant.include]
    text = scripts._folder().joinpath(*f"{path}.lua".split("/")).read_text()
    assert text.count(mutant.right) == 1, f"lua/{path}.lua has {text.count(mutant.right)} times: {mutant.right}"
    changed, read = scripts._parse(path, text.replace(mutant.right, mutant.wrong)), scripts._read

    @cache
    def script_of(name):
        composed = composed_of(name)
        return scripts.Script(name, composed.sha, composed.only_reads)

    composed_of = cache(scripts.compose)
    with monkeypatch.context() as patch:
        patch.setenv("AMPSQ_FUNCTIONS", "off")
        patch.setattr(scripts, "_read", lambda asked: changed if asked == path else read(asked))
        patch.setattr(scripts, "_composed", composed_of)
        patch.setattr(scripts, "script", script_of)
        yield


def notices(world_of, seed):
    """Return whether a history does not agree, or a script fails."""
    with world_of(seed) as world:
        try:
            history = GroupedHistory(world, seed)
            for _ in range(_STEPS):
                history.step()
            history.drain()
        except (AssertionError, AmpsqError, KeyError):
            return True
    return False


@pytest.mark.parametrize("server", ["valkey"], indirect=True, scope="session")
@pytest.mark.parametrize("mutant", MUTANTS, ids=[each.breaks.replace(" ", "_") for each in MUTANTS])
def test_a_fault_in_what_groups_count_is_noticed_by_the_model(mutant, server, instance, snapshot, monkeypatch):
    @contextlib.contextmanager
    def world_of(seed):
        with contextlib.closing(Store(server.url, f"{instance}-{seed}", retry_timeout=2.0)) as store:
            yield World(store, snapshot)

    with mutated(monkeypatch, mutant):
        seeds = range(mutant.first, mutant.first + _HISTORIES)
        assert any(notices(world_of, seed) for seed in seeds), "no history noticed it"
