"""Words of tests of queues with groups: bodies of a group, and what the queue's keys say of its groups."""

from __future__ import annotations

import json
import math
import re

from world import ref

from ampsq.expressions import parse
from ampsq.protocol.limits import LISTED_PIECE, LONGEST_GROUP
from ampsq.protocol.schema import COUNTED_SINCE, LEASES_ANCHOR

ANCHOR = "." * (LONGEST_GROUP + 1)


def grouping(concurrency=1, failure="hold", by="/g", choice="first", *, weight=None, batch=None, affinity=None):
    """Arguments of define_queue."""
    concurrency = f"{concurrency}/{batch}" if batch else concurrency
    concurrency = f"{concurrency}~{affinity}" if affinity else concurrency
    weights = f"\n{parse(weight, 'weight').json}" if weight else ""
    return f"{concurrency} {failure} {choice} {parse(by, 'group').json if by else ''}{weights}"


def body(group, number, weight=None):
    said = {"n": number} if weight is None else {"n": number, "w": weight}
    return json.dumps(said if group is None else {"g": group} | said)


def put(world, *pairs, **when):
    """Publish messages, each of a group and a number, and a weight where one is given; gives their refs."""
    reply = world.publish("orders", *[body(*pair) for pair in pairs], **when)
    milliseconds, _, sequence = reply[2].partition("-")
    return [ref(f"{milliseconds}-{int(sequence) + i}") for i in range(len(pairs))]


def numbers(messages):
    return [json.loads(message.body)["n"] for message in messages]


def groups_of(world, queue="work"):
    """Of each group how many are leased, may go, wait, failed; when it was stopped; its turn and weight."""
    found = world.state().get(f":q:{queue}:groups", {})
    return {
        name: [int(part) for part in value.split("\n")[0].split(" ")] for name, value in found.items() if name != ANCHOR
    }


def paused_groups(world, queue="work"):
    """Of each group that is paused since when, ms, and by whom."""
    found = world.state().get(f":q:{queue}:groups", {})
    pauses = {name: re.search(r"\np(\d+) ([^\n]*)", value) for name, value in found.items()}
    return {name: (int(pause[1]), pause[2]) for name, pause in pauses.items() if pause}


def drop(world, group, queue="work", *, only_count=False, reason=""):
    """Let all of a group that waits leave its queue, part by part; gives how many left."""
    until, number = "18446744073709551615-18446744073709551615", 0
    for source, begin in (("placed", ""), ("returned", ""), ("log orders", cursor_of(world, queue))):
        after = begin
        while True:
            after, done = world.run(
                "drop_group", world.now, queue, group, source, after, until, int(only_count), reason
            )
            number += done
            if not after:
                break
    return number


def lists_of(world, queue="work"):
    """Of each group the refs that are listed, in their order."""
    state, lists = world.state(), {}
    pieces, listing = dict(state.get(f":q:{queue}:listed", {})), state[f":q:{queue}"].get("listed", "").split(" ")[0]
    for name, value in state.get(f":q:{queue}:groups", {}).items():
        found = re.search(r"\nl(\d+) (\d+) ([\d.]+) (.+)$", value)
        if found and found[1] == listing:
            first, number, last = map(int, found[3].split(".") if found[3] != "0" else "000")
            parts = [pieces.pop(f"{name}\x00{at}").split(" ") for at in range(first, first + number)]
            assert [len(part) for part in parts] == [LISTED_PIECE] * (number - 1) + [last] * (number > 0), (name, value)
            topic = state[f":q:{queue}"]["listed"].rpartition("/")[2]
            lists[name] = [f"{stem}/{topic}" for part in [found[4].split(" "), *parts] for stem in part]
            assert len(lists[name]) == int(found[2]) > 0, (name, value, parts)
            assert lists[name] == sorted({*lists[name]}), (name, value, parts)
    assert not pieces, pieces
    return lists


def void_lists(world, queue="work"):
    """Of each group whose list is of a former listing how many it says: whoever loads the group passes over them."""
    state = world.state()
    listing = state[f":q:{queue}"].get("listed", "").split(" ")[0]
    found = state.get(f":q:{queue}:groups", {})
    lists = {name: re.search(r"\nl(\d+) (\d+) ", value) for name, value in found.items()}
    return {name: int(list_[2]) for name, list_ in lists.items() if list_ and list_[1] != listing}


def listing_of(world, queue="work"):
    """Return where the cursor is, and up to where the log is looked through behind it, None where it is not."""
    found = re.fullmatch(r"\d+ (\S+) (\d+) (\d+) (\d+) ([012]) (\S+)", world.state()[f":q:{queue}"].get("listed", ""))
    assert found is None or found[6] == ref(found[1])
    return ref(cursor_of(world, queue)), found and found[6]


def read_to(world, queue="work"):
    """Return the ID up to which the queue has read or listed what its log has."""
    listed = world.state()[f":q:{queue}"].get("listed", "0 0-0").split(" ")[1]
    return max(listed, cursor_of(world, queue), key=ref)


def check_lists(world, lists, body_group, queue="work"):
    """Check what is listed against the log: it is unread, and all that is unread and was looked through is listed.

    Args:
        world: where.
        lists: as `lists_of` gives them.
        body_group: gives the group of an entry's fields, "" of one without.
        queue: whose.
    """
    state = world.state()
    cursor, last = listing_of(world, queue)
    ahead, log = state.get(f":q:{queue}:ahead", {}), state.get(":log:orders", [])
    entries = {ref(place): fields for place, fields in log}
    unread = {place: body_group(fields) for place, fields in entries.items() if place > cursor and place not in ahead}
    listed = {place: group for place, group in unread.items() if last is not None and place <= last}
    assert "" not in listed.values(), listed
    valid = {place: group for group, refs in lists.items() for place in refs if place in listed}
    assert valid == listed, (valid, listed, cursor, last)
    # Whatever else knows of a message beyond the cursor: it is noted, so that nobody reads it again.
    known = [*state.get(f":q:{queue}:leases", {}), *state.get(f":q:{queue}:ready", {})]
    known += [*state.get(f":q:{queue}:sorted:none", {}), *state.get(f":q:{queue}:pinned", {})]
    assert not [place for place in known if place != LEASES_ANCHOR and place in unread]
    assert all(place > cursor for place in ahead), (cursor, ahead)
    text = state[f":q:{queue}"].get("listed")
    if text:
        assert cursor < last, (cursor, last)
        places = sorted(entries)
        count = int(state[f":q:{queue}:cursors"]["orders"].split(" ")[1])
        assert int(text.split(" ")[2]) - count == len([place for place in places if cursor < place <= last])
        assert int(text.split(" ")[3]) >= len(listed), (text, listed)
        is_whole = text.split(" ")[5] == "0"
        assert not is_whole or not [place for refs in lists.values() for place in refs if place in ahead], (text, ahead)
    return listed


def cursor_of(world, queue="work"):
    return world.state().get(f":q:{queue}:cursors", {}).get("orders", "0-0 0").split(" ")[0]


def going(world, queue="work"):
    """Messages that may go, in their order: ref and group."""
    return [place_of(member) for member in sorted(all_going(world, queue)) if member != LEASES_ANCHOR]


def place_of(member):
    """Return the ref and the group of a member of what may go; a tab between them says that it is listed."""
    return tuple(re.split("[ \t]", member, maxsplit=1))


def all_going(world, queue="work"):
    """Members of what may go, bound to subscriptions or not, each with its place."""
    state, lines = world.state(), lines_of(world, queue)
    found = [state.get(f":q:{queue}:going", {}), *(state[f":q:{queue}:going:{name}"] for name in lines)]
    assert len({member for each in found for member in each}) == sum(map(len, found)), found
    return {member: score for each in found for member, score in each.items()}


def lines_of(world, queue="work"):
    """Names of the lines of what is bound to subscriptions."""
    begin = f":q:{queue}:going:"
    return [name.removeprefix(begin) for name in world.state() if name.startswith(begin)]


def bindings(world, queue="work"):
    """Of each group that is bound to whom, and until when, ms."""
    found = world.state().get(f":q:{queue}:groups", {})
    said = {name: re.search(r"\ns(\S+) (\d+)", value) for name, value in found.items()}
    return {name: (binding[1], int(binding[2])) for name, binding in said.items() if binding}


def check_bindings(world, states, queue="work"):
    """Check in which line each group stands, who has lines, and that it is noted until when each is bound."""
    state, bound = world.state(), bindings(world, queue)
    for group, (n, *_) in states.items():
        line = "" if group not in bound else f":{bound[group][0]}{'+' if n else ''}"
        for key, members in state.items():
            if key.startswith(f":q:{queue}:going") and key != f":q:{queue}:going{line}":
                assert not [member for member in members if place_of(member)[-1] == group], (group, key, line)
    lines = {name: 0 for name in lines_of(world, queue) if not name.endswith("+")}
    lines |= {name[:-1]: 1 for name in lines_of(world, queue) if name.endswith("+") and name[:-1] not in lines}
    assert state.get(f":q:{queue}:lines", {}) == lines
    noted = state.get(f":q:{queue}:bound", {})
    assert {group: until for group, (_, until) in bound.items() if until > world.now} == {
        group: until for group, until in noted.items() if until > world.now
    }
    # What is over by now ends with the next look, if nothing of it is leased.
    assert all(states[group][0] or group in noted for group in bound), (bound, noted)
    assert {*noted} <= {*bound}
    assert not noted or f"affinity {queue}" in state.get(":due", {})


def line(world, queue="work"):
    """Groups that may go where they take turns, in their order, each with its place; "" of a message without one."""
    found = all_going(world, queue)
    ordered = sorted((score, member) for member, score in found.items() if member != LEASES_ANCHOR)
    return [(place_of(member)[1], score) for score, member in ordered]


def place_in_line(choice, leased, weight, turn):
    """The score of a group: its share of what is leased in 13 bits, then its turn in 40."""
    if choice == "round_robin" or leased == 0:
        return turn
    fraction, exponent = math.frexp(leased * 1024 / weight)
    return (exponent * 256 + math.floor((fraction - 0.5) * 512)) * 2**40 + turn


def check_turns(world, states, queue, choice):
    """Check the places of groups that take turns, and which turns are kept."""
    state = world.state()
    last, _, reached = map(int, state.get(f":q:{queue}", {}).get("round", "0 0 0").split(" "))
    places = {group: score for group, score in line(world, queue) if group}
    for group, (n, k, _, _, _, turn, weight) in states.items():
        assert 0 < turn <= last, (group, states[group], last)
        if k:
            assert places[group] == place_in_line(choice, n, weight, turn), (group, states[group])
    kept = state.get(f":q:{queue}:turns", {})
    assert not {*kept} & {*states}
    assert all(0 < turn <= last for turn in kept.values()), (kept, reached, last)


def tokens_of(world, group, rate, queue="work"):
    """Return how many messages of a group, "" for the queue, a rate lets go now: microseconds of one, and the burst."""
    step, burst = rate
    full = world.state().get(f":q:{queue}:rates", {}).get(group)
    now = (world.now - COUNTED_SINCE) * 1_000
    return burst if full is None or full <= now else max(burst - math.ceil((full - now) / step - 1e-6), 0)


def is_due(world, group, queue="work"):
    """Return whether a group waits for its rate, and that let it go by now: it is looked at next."""
    at = world.state().get(f":q:{queue}:later", {}).get(group)
    return at is not None and at <= (world.now - COUNTED_SINCE) * 1_000


def allowed_by_rate(world, state, queue, most, rate):
    """Return how many of a group may go that could by all else; one that has to wait is noted, to be looked at then."""
    group, going_now, waiting = state
    tokens = tokens_of(world, group, rate, queue)
    if is_due(world, group, queue):
        assert going_now <= min(tokens, most), (group, going_now, tokens)
        return going_now
    if tokens < min(most, rate[1], len(waiting)):
        found = world.state()
        assert group in found[f":q:{queue}:later"], group
        assert f"rates {queue}" in found[":due"]
    return min(tokens, most)


def group_of_entry(fields):
    """Return the group of a message of these tests; "" without."""
    return json.loads(fields["b"]).get("g") or ""


def check_batches(world, queue, leased):
    """Check that each batch that is kept is one of a group of which something is leased, all of it from that batch."""
    for group, text in world.state().get(f":q:{queue}:batches", {}).items():
        first, last, *refs = text.split(" ")
        tokens = leased.get(group, {})
        assert tokens, (group, text)
        of_batch = [ref for ref, token in tokens.items() if int(first) <= token <= int(last)]
        assert [ref for ref in refs if ref in of_batch] == sorted(of_batch, key=tokens.get), (text, tokens)


def waiting_of(world, queue):
    """Of each group what waits in it: `0` of what failed, else `1`, its ref, a space or, where it is listed, a tab."""
    waiting, lists = {}, lists_of(world, queue)
    for member in world.state().get(f":q:{queue}:grouped", {}):
        group, _, ref = member.partition("\x00")
        waiting.setdefault(group, []).append(f"{ref} ")
    for group, refs in lists.items():
        # Before what has its place under the same ref: there it is passed over.
        waiting.setdefault(group, []).extend(f"1{ref}\t" for ref in refs)
    check_lists(world, lists, group_of_entry, queue)
    return waiting


def check_groups(  # noqa: C901  (each number of a group is compared with what it counts)
    world, queue="work", concurrency=1, failure="hold", choice="first", *, group_rate=None, batch=None, affinity=None
):
    """Return whether the counts of groups are those of what is leased and waits, and what may go follows from them."""
    state = world.state()
    leases = {ref: value for ref, value in state.get(f":q:{queue}:leases", {}).items() if ref != LEASES_ANCHOR}
    placed = state.get(f":q:{queue}:sorted:none", {})
    pinned = state.get(f":q:{queue}:pinned", {})
    leased, failed, tokens = {}, {}, {}
    for place, value in leases.items():
        _, _, group = value.partition("\n")
        if group:
            leased[group] = leased.get(group, 0) + 1
            tokens.setdefault(group, {})[place] = int(value.split(" ")[0])
    check_batches(world, queue, tokens)
    for group in pinned.values():
        failed[group] = failed.get(group, 0) + 1
    waiting = waiting_of(world, queue)
    states, paused = groups_of(world, queue), paused_groups(world, queue)
    allowed, void = set(), void_lists(world, queue)
    for group, number in void.items():
        states[group][2] -= number
    for group in {*leased, *waiting, *failed, *states}:
        is_kept = group in paused or group in bindings(world, queue) or group in void
        assert any(states[group][index] for index in (0, 2, 3, 4)) or is_kept, (group, states[group])
        n, k, w, h, stopped = states[group][:5]
        assert n == leased.get(group, 0), (group, states[group], leased)
        assert w == len(waiting.get(group, ())), (group, states[group], waiting)
        assert h == failed.get(group, 0), (group, states[group], failed)
        refs = sorted(waiting.get(group, ()))
        most = 0 if stopped or group in paused else max(concurrency - n, 0)
        if choice != "first" or batch or affinity:
            most = min(most, 1)
        if h and failure != "pass":
            refs = [ref for ref in refs if ref[0] == "0"]
        if group_rate:
            most = allowed_by_rate(world, (group, k, refs), queue, most, group_rate)
        if group in void:
            continue
        assert k == len(refs[:most]), (group, states[group], refs)
        allowed |= {f"{ref[1:]}{group}" for ref in refs[:most]}
    if choice != "first":
        check_turns(world, states, queue, choice)
    check_bindings(world, states, queue)
    found = going(world, queue)
    members = {member for member in all_going(world, queue) if member != LEASES_ANCHOR and place_of(member)[1]}
    members = {member for member in members if place_of(member)[1] not in void}
    assert members == allowed, members ^ allowed
    # What is placed is in its group, or in none and may go.
    assert set(placed) <= {ref[1:-1] for refs in waiting.values() for ref in refs if ref[-1] == " "} | {
        ref for ref, group in found if not group
    }
