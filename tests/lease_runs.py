"""Leases in runs, spelled out: what tests read of a server reads the same whatever the form of its leases."""

from __future__ import annotations

from ampsq.protocol.schema import FIELDS


def expanded(elements):
    """Heads and bodies in turn, one head a message."""
    found, at = [], 0
    while at < len(elements):
        first, feed, rest = elements[at].partition("\n")
        queue, token, delivery, deadline, kind, refs = first.split(" ", 5)
        for number, ref in enumerate(refs.split()):
            at += 1
            found += [f"{queue} {int(token) + number} {delivery} {deadline} {kind} {ref}{feed}{rest}", elements[at]]
        at += 1
    return found


def runs_of(members, refs):
    """Of each run: the token of its first message, its holder, its refs, which are leased in it, and how.

    `members`, `refs`: what `runs` and `run_refs` of a queue hold.
    """
    found = []
    for member in members:
        # A space stands before those of which the messages are not neighbours in the log.
        topic, order, token, count, holder, ends = member.removeprefix(" ").split(" ", 5)
        names = refs[token].split()
        mask = refs.get(f"{token} m", "0" * int(count))
        assert (len(names), len(mask), names[0]) == (int(count), int(count), f"{order}/{topic}")
        assert len({len(part) for part in _parts(refs[token], int(count))}) == 1
        assert "0" in mask
        found.append((int(token), holder, names, [each == "0" for each in mask], ends))
    assert len(refs) == sum(1 + (f"{token} m" in refs) for token, *_ in found)
    return found


def _parts(text, count):
    width = (len(text) + 1) // count
    return [text[first : first + width - 1] for first in range(0, len(text), width)]


def spelled_out(leases, members, refs):
    """Return what `leases` would hold if there were no runs, by what three keys of a queue hold."""
    found = dict(leases)
    for token, holder, names, held, ends in runs_of(members, refs):
        for number, ref in enumerate(names):
            if held[number]:
                assert ref not in leases
                found[ref] = f"{token + number} {holder} 1 {ends}"
    return found


def pushed(fields):
    """Return what `leases` would hold of what a queue's open run holds: ref -> lease. `fields`: the queue's."""
    if FIELDS["open_run"] not in fields:
        return {}
    holder, _, _, _, period, _, _, _, number, *messages = fields[FIELDS["open_run"]].split(" ")
    refs, tokens, deadlines = messages[::3], messages[1::3], messages[2::3]
    assert int(number) == len(refs) == len(set(refs)) == len(deadlines)
    return {
        ref: f"{token} {holder} 1 {deadline} {period}"
        for ref, token, deadline in zip(refs, tokens, deadlines, strict=True)
    }


def without_runs(state):
    """The keys of an instance, by their suffixes, as if there were no runs, and no hints to open ones."""
    if ":instance" in state:
        state[":instance"] = {
            field: each for field, each in state[":instance"].items() if not field.startswith("open ")
        }
    for name, fields in list(state.items()):
        if name.startswith(":q:") and isinstance(fields, dict) and FIELDS["open_run"] in fields:
            leases = pushed(fields)
            assert not leases.keys() & state.get(f"{name}:leases", {}).keys()
            if leases:
                state[f"{name}:leases"] = state.get(f"{name}:leases", {}) | leases
            state[name] = {field: each for field, each in fields.items() if field != FIELDS["open_run"]}
    for name in [each for each in state if each.endswith(":runs")]:
        queue = name.removesuffix(":runs")
        members, refs = state.pop(name), state.pop(f"{queue}:run_refs")
        leases = state.get(f"{queue}:leases", {})
        state[f"{queue}:leases"] = spelled_out(leases, members, refs)
        number = int(state[queue][FIELDS["in_runs"]])
        assert number == sum(sum(held) for *_, held, _ in runs_of(members, refs))
    for name, value in state.items():
        if name.startswith(":q:") and isinstance(value, dict) and FIELDS["in_runs"] in value:
            state[name] = {field: each for field, each in value.items() if field != FIELDS["in_runs"]}
    return state


def in_runs(groups, by, found):
    """Turn groups of acknowledgements, as scripts take them, into those of runs, where `by` was given runs.

    `groups`: queue -> (ref, token) of each. `found`: queue -> its `runs_of`.
    """
    out = []
    for queue, items in groups.items():
        left = list(items)
        for token, holder, names, *_ in found[queue] if holder_is(by, found[queue]) else ():
            mine = [
                item
                for item in left
                if holder == by and item[0] in names and int(item[1]) == token + names.index(item[0])
            ]
            places = [names.index(ref) + 1 for ref, _ in mine]
            if mine:
                left = [item for item in left if item not in mine]
                whole = sorted(places) == list(range(1, len(names) + 1))
                parts = "" if whole else "".join(f" {place} {place}" for place in places)
                out += [queue, "run", f"{names[0]} {token}{parts}"]
        if left:
            out += [queue, len(left), *(ref for ref, _ in left), *(token for _, token in left)]
    return out


def holder_is(by, found):
    """Return whether a subscription holds any run."""
    return any(holder == by for _, holder, *_ in found)
