"""The judge of what workers had in their hands while they, their coordinator and their server were killed."""

from __future__ import annotations

import itertools
from collections import defaultdict

__all__ = ["Held", "judge", "too_fast", "wrong_workers"]


class Held:
    """One message in the hands of one worker.

    Attributes:
        group, number: the message: its group, and its place there.
        start, end: when its handler started and ended, or its worker died.
        is_done: the handler ended, and did not cancel it.
        worker: who had it.
        begins: whether it was told that its group was not bound to it before.
    """

    def __init__(self, group, number, start, end, is_done, *, worker="worker", begins=False):
        self.group, self.number, self.start, self.end, self.is_done = group, number, start, end, is_done
        self.worker, self.begins = worker, begins


def _too_early(of):
    """Return messages of a group in batches that were started before each one ahead of them was done, with that one.

    Those of a batch whose worker died before it sent its acknowledgements come again, in their order.
    """
    done, found = {}, []
    for each in sorted(of, key=lambda each: each.start):
        ahead = next((n for n in range(each.number) if done.get(n, float("inf")) > each.start), None)
        if ahead is not None:
            found.append((each.number, ahead))
        if each.is_done:
            done[each.number] = min(each.end, done.get(each.number, each.end))
    return found


def too_fast(starts, most, each_second):
    """Say whether more was begun in some time than a rate lets go: `most` at once, and so many each second."""
    # Of all windows from one start to another: the most that any had beyond what the rate gave in it.
    ahead, worst = float("-inf"), 0.0
    for number, at in enumerate(sorted(starts)):
        ahead = max(ahead, at * each_second - number)
        worst = max(worst, number + 1 - at * each_second + ahead)
    return worst > most


def wrong_workers(held, concurrency):
    """Say where a bound group was in the hands of two workers, or came to another one that was not told so."""
    wrong, by_group = [], defaultdict(list)
    for each in sorted(held, key=lambda each: each.start):
        by_group[each.group].append(each)
    for group, of in by_group.items():
        for earlier, later in itertools.combinations(of, 2):
            if later.start < earlier.end and later.worker != earlier.worker:
                wrong.append(f"{group}: message {later.number} was started while another worker had {earlier.number}")
        if concurrency > 1:
            # What is begun first is not always what was delivered first.
            continue
        for earlier, later in itertools.pairwise([None, *of]):
            if (earlier is None or later.worker != earlier.worker) and not later.begins:
                wrong.append(f"{group}: message {later.number} came to another worker, which was not told")
    return wrong


def judge(held, published, concurrency, *, in_order, in_batches=False, dropped=None, releases=None):
    """Say what is wrong: a list of sentences.

    Args:
        held: what workers had in their hands.
        published: group -> number of its messages.
        concurrency: of each group.
        in_order: each message starts only once the one ahead of it in its group was settled.
        in_batches: one worker has several messages of a group, which it handles in their order.
        dropped: group -> how many messages of it were dropped, which nobody handles to the end. Of such a group one
            that was dropped after it failed lets the next one start.
        releases: group -> when it was let go on; of a queue whose failures stop groups, which delivers each message
            once. None: failures stop none.
    """
    wrong, dropped = [], dropped or {}
    by_group = defaultdict(list)
    for each in held:
        by_group[each.group].append(each)
    for group, number in published.items():
        of = sorted(by_group[group], key=lambda each: each.start)
        found, is_whole = [], group not in dropped
        missing = set(range(number)) - {each.number for each in of if each.is_done}
        if releases is None and len(missing) > dropped.get(group, 0):
            found.append(f"{len(missing)} messages were never handled: {sorted(missing)[:5]}")
        ends = [(each.start, 1) for each in of] + [(each.end, -1) for each in of]
        most = max(itertools.accumulate(step for _, step in sorted(ends)), default=0)
        if most > concurrency:
            found.append(f"{most} messages were in hands at a time, of {concurrency}")
        if releases is not None:
            found += _wrong_of_stops(of, releases.get(group, ()), in_order and is_whole, in_batches)
        elif in_batches and is_whole:
            found += [f"message {n} was started before {ahead} was done" for n, ahead in _too_early(of)]
        if in_order and not in_batches:
            found += _wrong_order(of, may_go_on=releases is not None or not is_whole)
        wrong += [f"{group}: {each}" for each in found]
    return wrong


def _wrong_order(of, may_go_on):
    """Say what was started in another order. may_go_on: also where what was before it is not done."""
    found = []
    for earlier, later in itertools.pairwise(of):
        if later.number < earlier.number:
            found.append(f"message {later.number} was started after message {earlier.number}")
        elif later.number > earlier.number and not earlier.is_done and not may_go_on:
            found.append(f"message {later.number} was started before {earlier.number} was done")
    return found


def _wrong_of_stops(of, releases, in_order, in_batches):
    """Say what is wrong in a group that failures stop, where each message is delivered once."""
    found = []
    # Of a batch whose worker died before it sent its acknowledgements, those behind the first one come again.
    if not in_batches and len(of) > len({each.number for each in of}):
        found.append("a message was delivered twice")
    for earlier, later in itertools.pairwise(of) if in_order else ():
        if not earlier.is_done and not any(earlier.end <= at <= later.start for at in releases):
            found.append(f"message {later.number} was started before the stop by {earlier.number} was released")
    return found
