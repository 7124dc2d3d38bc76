"""The scripts without one of their guards: the simulation, or a scene, notices each."""

from __future__ import annotations

import guard_scenes as scenes
import incarnation_scenes as anew
import pytest
from invariants import Violation
from simulate import KINDS
from simulated import instances
from simulation import Simulation
from unguarded import Guard, without

from ampsq.base.errors import AmpsqError

pytestmark = pytest.mark.slow

#: Seeds of which one at least has to notice.
SEEDS = 40

IS_GRANTED = "if place == 'ready' or place == 'sorted' then"
GUARDS = {
    "a token decides whose acknowledgement it is": Guard(
        "leases/lib/settlement",
        "if token ~= '' and token ~= lease.token then",
        "if false then",
    ),
    "what is settled is not settled again": Guard(
        "leases/lib/unleased_settlement",
        "  if where == 'settled' then return E.ALREADY_ACKED end\n",
    ),
    "who does not own a message does not settle it": Guard(
        "leases/lib/unleased_settlement",
        "  if where == V.remote then return E.OWNED_ELSEWHERE end\n",
    ),
    "also where nobody has read it": Guard(
        "leases/lib/unleased_settlement",
        "  if where == 'waiting' and is_remote(queue, ref, entry[2]) then return E.OWNED_ELSEWHERE end\n",
    ),
    "a transfer counts with a higher epoch": Guard(
        "replication/lib/journal_entries",
        "and is_later_transfer(known[i], epochs[i], by) then",
        "then",
        scene=scenes.a_transfer_of_a_lower_epoch_is_passed_over,
    ),
    "what is settled changes owner no more": Guard(
        "replication/lib/journal_entries",
        "if where[ref] and where[ref] ~= 'settled' and is_later_transfer",
        "if where[ref] and is_later_transfer",
        scene=scenes.a_settled_message_changes_owner_no_more,
    ),
    "a transfer takes a message out of where it waits": Guard(
        "replication/lib/journal_entries",
        "    move_to_remote(queue, changed, where)\n",
        scene=scenes.a_transfer_takes_a_message_out_of_ready,
    ),
    "what is told of a message that waits unread is noted": Guard(
        "leases/lib/unleased_settlement",
        "  call_in_batches('HSET', K.ahead(queue.name), ahead)\n",
    ),
    "of a log, what is at or below `received` is passed over": Guard(
        "replication/apply_log",
        "or order_of(id) > last\n",
        "or true\n",
    ),
    "of a journal, what is at or below `received` is passed over": Guard(
        "replication/apply_journal",
        "local is_further = order_of(id) > order_of(complete[origin])",
        "local is_further = true",
        scene=scenes.a_journal_that_comes_again_is_passed_over,
    ),
    "of a log, what begins behind what is here is refused": Guard(
        "replication/apply_log",
        "check_start(stream, run.origin, run.start, reached)",
    ),
    "of a journal, what begins behind what is here is refused": Guard(
        "replication/apply_journal",
        "check_start(stream, origin, start, (received_of(stream, origin)))",
        scene=scenes.a_journal_begins_where_it_was_received,
    ),
    "a message that was sent twice is recorded once": Guard(
        "replication/apply_log",
        "  if is_numbered then parts = double_publications().split_doubles(topic, run, missing) end\n",
    ),
    "what was sent twice is looked for in the whole log": Guard(
        "replication/lib/publication_search",
        "if search.from == '-' and not is_spent(0.5) then",
        "if true then",
        scene=scenes.a_message_that_was_sent_twice_is_found_however_deep_it_lies,
    ),
    "what a publisher left out may still come": Guard(
        "publishers/logon",
        "if leaves_out or ",
        "if ",
        scene=scenes.numbers_that_a_publisher_left_out_are_recorded_when_they_come,
    ),
    "every bookmark of a message is passed on": Guard(
        "replication/lib/double_publications",
        "  call('XADD', K.same(topic), next_id(now), F.here, here, F.source, source, F.path, run.path)\n",
        scene=scenes.a_message_that_is_here_under_two_bookmarks_is_told_under_both,
    ),
    "of several bookmarks the lowest counts": Guard(
        "replication/lib/double_publications",
        "    call('HSET', K.counting(), topic .. ' ' .. here, source)\n",
    ),
    "a lower bookmark voids transfers": Guard(
        "replication/lib/double_publications",
        "    void_transfers(topic, routed, here, now)\n",
    ),
    "a transfer under a bookmark that does not count is passed over": Guard(
        "replication/apply_journal",
        "if ref and (entry.how ~= V.transferred or is_counting_bookmark(topic, here, origin .. '~' .. id)) then",
        "if ref then",
        scene=scenes.a_bookmark_that_does_not_count_transfers_nothing,
    ),
    "a number that is recorded is not recorded again": Guard(
        "publishers/lib/publisher_sequences",
        "for i = 1, math.min(last - first + 1, count) do known[i] = '' end",
    ),
    "no number is left out": Guard(
        "publishers/lib/publisher_sequences",
        "if first > last + 1 then",
        "if false then",
        first=100,
    ),
    "what is told of a message that is to come waits": Guard(
        "replication/apply_journal",
        "      defer_entry(queue_name, topic, origin .. '~' .. id, entry, entry.epochs[i], ms + period)\n",
        scene=scenes.what_is_told_before_its_message_comes_is_done_then,
    ),
    "what waits is told when the message comes": Guard(
        "replication/apply_log",
        "      deferred_apply().apply_deferred(topic, routes[topic], run.origin, known, ms)\n",
        scene=scenes.what_is_told_before_its_message_comes_is_done_then,
    ),
    "what waits for a message that was passed over is dropped": Guard(
        "replication/apply_log",
        "    if call('EXISTS', K.deferred(topic)) == 1 then drop_deferred_up_to(topic, run.origin, run.upto) end\n",
        scene=scenes.what_will_not_come_is_not_waited_for,
    ),
    "who does not own a message does not deliver it": Guard(
        "queues/lib/message_life",
        "  if not was_read and is_remote(queue, ref, fields) then return V.remote, nil end\n",
    ),
    "a grant takes the message from here": Guard(
        "ownership/grant_messages",
        "  move_to_remote(queue, refs, where)\n",
    ),
    "what is leased is not granted": Guard(
        "ownership/grant_messages",
        IS_GRANTED,
        IS_GRANTED.replace(" then", " or place == 'leased' then"),
        scene=scenes.what_is_leased_is_not_granted,
    ),
    "what is owned elsewhere is not granted": Guard(
        "ownership/grant_messages",
        IS_GRANTED,
        IS_GRANTED.replace(" then", " or place == V.remote then"),
    ),
    "a grant has a higher epoch": Guard(
        "ownership/grant_messages",
        "or 0) + 1)",
        "or 0) + 0)",
    ),
    "no more is granted than there was room for": Guard(
        "ownership/grant_messages",
        "  if #refs == room then break end\n",
        scene=scenes.an_instance_is_granted_as_many_as_it_has_room_for,
    ),
    "what was granted and was not known there yet counts": Guard(
        "ownership/grant_messages",
        "room = unheard and room - unheard or 0",
        "room = unheard and room or 0",
        scene=scenes.what_was_granted_and_not_heard_of_takes_room,
    ),
    "who asked before it had heard what it has heard since is granted nothing": Guard(
        "ownership/lib/unheard_grants",
        "  if order_of(reached) < order_of(last) and order_of(last) >= trimmed then return nil end\n",
        scene=scenes.who_asked_before_it_heard_what_it_heard_later_is_too_late,
    ),
    "what comes back goes to `remote` where another owns it": Guard(
        "leases/lib/lease_return",
        "  if queue.owner then refs, leases = keep_own(queue, refs, leases) end\n",
        scene=scenes.what_comes_back_is_its_owner_s,
    ),
    "links see what is durable only": Guard(),
    "a new incarnation delivers nothing before it has recovered": Guard(
        "delivery/lib/dispatch",
        "  if queue.recovering then return {}, false end\n",
        scene=anew.a_new_incarnation_delivers_nothing,
    ),
    "nor does it give anything away": Guard(
        "ownership/grant_messages",
        " or queue.recovering then",
        " then",
        scene=anew.it_gives_nothing_away,
    ),
    "it owns by its name what the last one owned": Guard(
        "queues/lib/message_owner",
        " or is_former_incarnation(owner)\n",
        "\n",
        scene=anew.it_owns_what_the_last_one_owned,
    ),
    "leases of the last incarnation are void": Guard(
        "instance/begin_incarnation",
        "  if queue and queue.recovering then more = void_leases(queue) end\n",
        scene=anew.leases_of_the_last_one_are_void,
    ),
    "nothing is taken that was read of an incarnation that is over": Guard(
        "bookmarks/lib/received_positions",
        "  if not open_hops[hop] then fail(E.INCARNATION_OVER, {origin = hop}) end\n",
        scene=anew.nothing_is_taken_that_was_read_of_the_last_one,
    ),
    "of an incarnation that it does not know it is told first": Guard(
        "bookmarks/lib/received_positions",
        "  if is_former_incarnation(origin) and not is_known_incarnation(origin) then fail(E.INCARNATION_OVER, {origin "
        "= origin}) end\n",
        scene=anew.one_that_is_not_known_is_told_first,
    ),
    "an incarnation that is over has no more messages": Guard(
        "instance/end_recovery",
        "      pass_on_end(topic, origin, '', ms)\n",
        scene=anew.the_last_one_ends_for_all,
    ),
    "and that is passed on": Guard(
        "replication/apply_log",
        "    if run.upto == V.last_id then pass_on_end(topic, run.origin, run.path, ms) end\n",
        scene=anew.the_last_one_ends_for_all,
    ),
}


@pytest.fixture
def servers_of_a_run(start_server):
    """Instances on servers of their own."""
    with instances([start_server(kind).url for kind in KINDS]) as known:
        yield known


def notice(known, guard, seeds):
    """Return what the first of these seeds, or the scene, says without a guard, and the seed; None for nothing."""
    with without(guard):
        for seed in [None] if guard.scene else seeds:
            try:
                if guard.scene:
                    guard.scene(known)
                else:
                    Simulation(known, seed, gated=bool(guard.file)).run()
            except (Violation, AmpsqError) as error:
                return seed, error
    return None


@pytest.mark.parametrize("name", GUARDS)
def test_a_guard_that_is_missing_is_noticed(servers_of_a_run, name):
    guard = GUARDS[name]

    found = notice(servers_of_a_run, guard, range(guard.first, guard.first + SEEDS))

    assert found, f"{SEEDS} seeds from {guard.first} on do not notice that this is missing: {name}"


@pytest.mark.parametrize("name", [name for name, guard in GUARDS.items() if guard.scene])
def test_a_scene_passes_where_nothing_is_missing(servers_of_a_run, name):
    GUARDS[name].scene(servers_of_a_run)
