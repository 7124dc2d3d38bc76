"""A queue with groups, driven at random, and a model of it that says which message is the next one at any time.

The server is asked what it gave and what came back; the model says whether it might. `check_groups` compares what the
scripts count with what is leased and waits, after each step.
"""
# Long: all that may happen in a history, each with what the model says of it.

# Long: a history and the model that it is held against are one: what may go follows from all that happened.

from __future__ import annotations

import math
import random

from grouped import bindings, check_groups, drop, grouping, groups_of, paused_groups, put, read_to
from world import ref as ref_of

from ampsq.protocol.schema import LEASES_ANCHOR

#: Microseconds from one message to the next, and bursts.
RATES = ((1_000, 1), (20_000, 1), (333_333.333333, 2), (50_000, 4), (900_000, 3))
GROUPS = ([None], ["a"], ["a", "b", "c"], ["a", "b", "c", None], [f"g{i}" for i in range(12)])


class Message:
    """A message of the model: its group, where it is, how often it was delivered, whether it holds its group."""

    def __init__(self, place, group):
        self.ref, self.group, self.state = place, group, "waiting"
        self.deliveries, self.is_failed, self.lease, self.holder = 0, False, None, None
        self.is_read = self.is_scheduled = False
        # The messages that were delivered with it, itself among them, in their order.
        self.batch = [self]

    @property
    def is_placed(self):
        """Return whether it surely has its place: the queue has read it, and it never came back."""
        return self.is_read and not self.is_scheduled and self.deliveries == 0


class GroupedHistory:
    """One history of a queue `work` over `orders`."""

    def __init__(self, world, seed):
        self.world, self.random = world, random.Random(seed)  # noqa: S311
        self.concurrency = self.random.choice([1, 1, 1, 2, 5])
        self.failure = self.random.choice(["hold", "pass", "stop"])
        self.limit = self.random.choice([0, 0, 2, 3])
        self.redelivery = self.random.choice([0, 0, 700])
        self.lease = self.random.choice([0, 3_000])
        self.choice = self.random.choice(["first", "round_robin", "fair", "fair"])
        self.groups = self.random.choice(GROUPS)
        # Names in both alphabetical orders stand for the same groups, so that no name helps.
        if self.random.random() < 0.5:
            self.groups = [group and f"{chr(122 - place)}{group}" for place, group in enumerate(self.groups)]
        self.weights = {group: self.random.choice([1, 1, 2, 3, 10, 1000]) for group in self.groups}
        # Deliveries so far; of each group at which it was served last, and since which it is there.
        self.served, self.last_served, self.present_since = 0, {}, {}
        # Microseconds from one message to the next, and bursts, of the queue and of each group; None: no rate. Most
        # of the histories have neither, and are as they were before there were rates.
        rates = random.Random(f"rates {seed}")  # noqa: S311
        self.rate, self.group_rate = (rates.choice(RATES) if rates.random() < 0.7 else None for _ in range(2))
        if rates.random() < 0.5:
            self.rate = self.group_rate = None
        # How many of a group may be delivered together; None: each by itself. Half of the histories have no batches.
        self.batches = random.Random(f"batches {seed}")  # noqa: S311
        self.has_batches, self.batch = self.batches.random() < 0.5, None
        self.choose_batch()
        # For how long, ms, a delivery binds its group to its subscription; None: it does not. Half of the histories do.
        self.affinities = random.Random(f"affinity {seed}")  # noqa: S311
        self.has_affinity, self.affinity = self.affinities.random() < 0.5, None
        self.choose_affinity()
        # Of each group to whom it is bound, and until when.
        self.bound = {}
        # Of each subscription how many more it may be leased.
        self.rooms = {}
        # Of each bucket of tokens when it is full again, microseconds.
        self.full = {}
        # As the server has them: a group keeps its weight while something of it waits, also from another definition.
        self.known_weights = {}
        # Messages that came due while another definition was followed in several steps.
        self.came_due = []
        # Whether groups are being put in the order of another choice.
        self.is_changing = False
        self.messages, self.stopped, self.paused, self.number = {}, set(), set(), 0
        self.acknowledged, self.subscriptions = [], []
        self.define()
        for _ in range(3):
            self.subscriptions.append(world.subscribe("work", asked=self.random.choice([1, 2, 5, 50])))

    def choose_batch(self):
        is_allowed = self.has_batches and self.concurrency == 1 and self.failure != "pass"
        self.batch = self.batches.choice([None, 2, 3, 10]) if is_allowed else None

    def choose_affinity(self):
        self.affinity = self.affinities.choice([None, 40, 900, 3_000, 20_000]) if self.has_affinity else None

    def define(self):
        policy = {"redelivery": self.redelivery, "longest": 7_000} if self.redelivery else None
        self.world.queue(
            "work", "orders", grouping=grouping(
                self.concurrency, self.failure, choice=self.choice, weight="/w" if self.choice == "fair" else None,
                batch=self.batch, affinity=self.affinity,
            ), lease=self.lease, policy=policy,
            deliveries=self.limit, rated=self.rated(),
        )  # fmt: skip

    def rated(self):
        if not self.rate and not self.group_rate:
            return ""
        return " ".join("0 0" if rate is None else f"{rate[0]} {rate[1]}" for rate in (self.rate, self.group_rate))

    # what the model says

    def tokens(self, group):
        """Return how many messages its rate lets go now, of a group, or of the queue ("")."""
        rate = self.group_rate if group else self.rate
        if rate is None:
            return math.inf
        step, burst = rate
        left = self.full.get(group, 0) - self.world.now * 1_000
        return burst if left <= 0 else max(burst - math.ceil(left / step - 1e-6), 0)

    def pay(self, group, number=1):
        """A delivery takes a token of the queue's rate, and one of its group's; what is given back gives them back."""
        for of, rate in (("", self.rate), (group, self.group_rate)):
            if rate and of is not None and number > 0:
                self.full[of] = max(self.full.get(of, 0), self.world.now * 1_000) + rate[0]
            elif rate and of is not None:
                self.full[of] = self.full.get(of, 0) - rate[0]

    def leased_of(self, group):
        return [m for m in self.messages.values() if m.group == group and m.state == "leased"]

    def may_go(self, without=()):
        """The messages that may be given now, the oldest first; not those that are not there yet."""
        found, waiting = [], {}
        if not self.tokens(""):
            return []
        for message in sorted(self.messages.values(), key=self.place):
            if message.state == "waiting" and message not in without:
                waiting.setdefault(message.group, []).append(message)
        for group, messages in waiting.items():
            if group is None:
                found += messages
                continue
            if group in self.stopped or group in self.paused:
                continue
            failed = [m for m in self.messages.values() if m.group == group and m.is_failed]
            first = [m for m in messages if m.is_failed] if failed else messages
            most = min(self.concurrency - len(self.leased_of(group)), self.tokens(group))
            found += first[: max(min(most, 1) if self.is_alone else most, 0)]
        return sorted(found, key=self.place)

    @property
    def is_alone(self):
        """Return whether only the first message of each group may go."""
        return self.choice != "first" or self.batch or self.affinity

    def bound_to(self, group):
        """Return the subscription that a group is bound to; None: to none."""
        subscription, until = self.bound.get(group, (None, 0))
        if subscription is not None and until <= self.world.now and not self.leased_of(group):
            del self.bound[group]
            return None
        return subscription

    def for_whom_has_room(self, messages):
        """Of messages that may go those that somebody has room for, and those that may leave a full subscription."""
        wanted = [m for m in messages if self.rooms.get(self.bound_to(m.group), 1) > 0]
        return wanted, [m for m in messages if m not in wanted and not self.leased_of(m.group)]

    def note_binding(self, message, holder, value, *, follows):
        """A delivery binds its group, and says whether that was bound to its holder before."""
        group, is_first = message.group, not follows
        begins = bool(self.affinity) and group is not None and is_first and self.bound_to(group) != holder
        assert ("b" in value[5:]) == begins, (message.ref, group, value, self.bound.get(group))
        if self.affinity and group is not None:
            self.bound[group] = holder, self.world.now + self.affinity

    def may_follow(self, message, before):
        """Return whether a message may be the next one of the batch of the one that was delivered before it."""
        if not self.batch or before is None or before.group is None or before.group != message.group:
            return False
        return len(before.batch) < self.batch and self.tokens("") > 0 and self.tokens(message.group) > 0

    def next_of_group(self, group):
        """The message of a group that is the next one, whatever is leased of it."""
        of = [m for m in self.messages.values() if m.group == group]
        waiting = sorted((m for m in of if m.state == "waiting"), key=self.place)
        return next(iter([m for m in waiting if m.is_failed] if any(m.is_failed for m in of) else waiting), None)

    def share(self, message):
        """The share of its group in what is leased."""
        if self.choice != "fair" or message.group is None:
            return 0
        return len(self.leased_of(message.group)) / self.known_weights.get(message.group, self.weights[message.group])

    def check_turn(self, message, allowed):
        """Check that no group is served again while another with an equal share waits that was there before."""
        least = min(map(self.share, allowed))
        assert self.share(message) <= least * 1.004, (message.group, self.share(message), least)
        before = self.last_served.get(message.group, -1) if message.group is not None else -1
        for other in allowed:
            tenant = other.ref if other.group is None else other.group
            if tenant == message.group or self.share(other) != self.share(message):
                continue
            waits_since = max(self.present_since[tenant], self.last_served.get(tenant, -1))
            assert waits_since >= before, (message.group, before, tenant, waits_since)
        if message.group is not None:
            self.last_served[message.group] = self.served
        self.served += 1

    def note_presence(self, group, *, anew=False):
        """Note since which delivery something of a group has been there without a break, as far as that is certain."""
        if group is None:
            return
        messages = [m for m in self.messages.values() if m.group == group]
        is_there = (
            group in self.stopped
            or group in self.paused
            or any(m.state == "leased" or m.is_failed or (m.state == "waiting" and m.is_placed) for m in messages)
        )
        if anew or not is_there or group not in self.present_since:
            self.present_since[group] = self.served

    def place(self, message):
        """In their order of arrival; what was scheduled comes before all that is unread when its time has come."""
        return not message.is_read and not message.is_scheduled, message.ref

    def take_back(self, messages, *, counted, delayed):
        """Leases ended without settling the messages: what is behind the first ones in their batches comes back, too.

        It counts for the first one of a batch that is leased alone, which may have been begun.

        Args:
            messages: those that are named.
            counted: of one of them, whether its delivery counts.
            delayed: of one of them, whether it waits.
        """
        for batch in {id(m.batch): m.batch for m in messages}.values():
            leased = [m for m in batch if m.state == "leased" and m.batch is batch]
            first = min(leased.index(m) for m in messages if m.batch is batch)
            for place, message in enumerate(leased[first:], first):
                self.come_back(
                    message, counted=counted(message) and not place, delayed=delayed(message) and not place,
                    is_behind=place > 0,
                )  # fmt: skip

    def come_back(self, message, *, counted, delayed, is_behind=False):
        """A lease ended without settling the message."""
        message.lease = None
        if not counted:
            self.pay(message.group, -1)
        before = message.deliveries
        if counted and self.limit and before >= self.limit:
            self.give_up(message)
            self.note_presence(message.group)
            return
        message.state = "delayed" if delayed else "waiting"
        self.note_presence(message.group, anew=True)
        self.present_since[message.ref] = self.served
        if not counted:
            message.deliveries -= 1
        can_hold = self.failure != "pass" and message.group is not None and not is_behind
        message.is_failed = can_hold and (counted or before > 1)

    def give_up(self, message):
        message.state, message.is_failed = "settled", False
        if self.failure == "stop" and message.group is not None:
            self.stopped.add(message.group)

    def settle(self, message):
        message.state, message.is_failed, message.lease = "settled", False, None
        self.note_presence(message.group)

    # what the server says

    def leases(self):
        state = self.world.state().get(":q:work:leases", {})
        return {ref: value.split("\n")[0].split(" ") for ref, value in state.items() if ref != LEASES_ANCHOR}

    def observe(self, *, is_exact=True):
        """Check what was leased since: in the order of tokens each is the oldest that may go."""
        with self.world.unchanged():
            self._observe(is_exact=is_exact)

    def _observe(self, *, is_exact):
        leases = self.leases()
        self.known_weights = {group: (*state, 1, 1)[6] for group, state in groups_of(self.world).items()}
        fresh = sorted((int(value[0]), ref) for ref, value in leases.items() if value[0] != self.messages[ref].lease)
        self.rooms = self.rooms_before(leases, fresh)
        last = (0, "", None)
        for token, ref in fresh:
            message, allowed, holder = self.messages[ref], self.may_go(), leases[ref][1]
            follows = last[:2] == (token - 1, holder) and self.may_follow(message, last[2])
            message.batch = last[2].batch if follows else []
            message.batch.append(message)
            last = (token, holder, message)
            if follows:
                assert message is self.next_of_group(message.group), (ref, message.group)
            else:
                if message not in allowed:
                    # What came due in the same steps came after it.
                    allowed = self.may_go(without=self.came_due)
                if self.affinity and not self.for_whom_has_room(allowed)[0]:
                    # What a full subscription has to give up is looked for once all that was unread has its place.
                    self.note_cursor()
                    allowed = self.may_go()
                assert message in allowed, (ref, message.state, message.group, [m.ref for m in allowed])
                allowed = self.check_seat(message, allowed, holder, is_exact=is_exact)
            if follows:
                pass
            elif self.is_changing:
                self.served += 1
            elif self.choice != "first":
                self.check_turn(message, allowed)
            elif is_exact:
                assert message is allowed[0], (ref, message.group, allowed[0].ref, allowed[0].group)
            self.note_binding(message, holder, leases[ref], follows=follows)
            self.rooms[holder], message.holder = self.rooms[holder] - 1, holder
            message.state, message.lease = "leased", str(token)
            message.deliveries += 1
            self.pay(message.group)
            assert message.deliveries == int(leases[ref][2])
            assert message.group is None or len(self.leased_of(message.group)) <= max(self.concurrency, self.batch or 0)
        assert {m.ref for m in self.messages.values() if m.state == "leased"} == set(leases)
        counts = {"concurrency": self.concurrency, "failure": self.failure, "choice": self.choice, "batch": self.batch}
        check_groups(self.world, **counts, group_rate=self.group_rate, affinity=self.affinity)
        found = bindings(self.world)
        assert {group: found[group] for group in {*self.bound} if self.bound_to(group)} == self.bound, (
            found,
            self.bound,
        )
        assert {g for g, state in groups_of(self.world).items() if state[4]} == self.stopped
        assert {*paused_groups(self.world)} == self.paused

    def rooms_before(self, leases, fresh):
        """Return how much room each subscription had before these deliveries."""
        state = self.world.state()
        rooms = {id_: int(state[f":s:{id_}"]["max"]) - int(state[f":s:{id_}"]["leased"]) for id_ in self.subscriptions}
        for _, ref in fresh:
            rooms[leases[ref][1]] = rooms.get(leases[ref][1], 0) + 1
        return rooms

    def check_seat(self, message, allowed, holder, *, is_exact):
        """Check that a message went to whom its group is bound, if that has room; gives what might have gone."""
        wanted, movable = self.for_whom_has_room(allowed)
        if message in wanted or not is_exact:
            assert self.bound_to(message.group) in (None, holder) or not is_exact, (message.ref, message.group, holder)
            return wanted if message in wanted else allowed
        # A full one gives up what it has nothing of, where there is nothing else.
        assert not wanted, (message.ref, message.group, [(m.ref, m.group) for m in wanted], self.rooms, self.bound)
        assert message in movable, (message.ref, message.group, self.bound)
        return movable

    def note_cursor(self):
        cursor = read_to(self.world)
        for message in self.messages.values():
            message.is_read = message.is_read or message.ref <= ref_of(cursor)

    def note_read(self):
        state = self.world.state()
        self.note_cursor()
        for message in self.messages.values():
            is_unplaced = not message.is_read or message.ref in state.get(":q:work:ready", {})
            if self.rate and message.state == "waiting" and is_unplaced:
                # While the rate lets nothing go, nothing is placed: what has no place now has no turn before now.
                self.present_since[message.ref] = self.served
                self.note_presence(message.group)

    def has_room(self):
        state = self.world.state()
        return [id_ for id_ in self.subscriptions if int(state[f":s:{id_}"]["leased"]) < int(state[f":s:{id_}"]["max"])]

    # what happens

    def step(self):
        self.world.now += 1
        self.note_read()
        getattr(self, self.random.choice(self.kinds))()
        self.observe()
        if self.may_go() and self.has_room():
            # Whoever is free takes.
            taker = self.random.choice(self.has_room())
            self.note_read()
            self.world.take(taker, 50)
            self.observe()
            self.rooms = self.rooms_before({}, [])
            wanted, movable = self.for_whom_has_room(self.may_go())
            left = [*wanted, *movable]
            # A call moves so many messages, those among them that it picks up from the inbox: the rest is the sweep's.
            is_deferred = self.world.state().get(":due", {}).get("dispatch work", math.inf) <= self.world.now
            is_served = not left or is_deferred or taker not in self.has_room()
            assert is_served, ("stuck", [(m.ref, m.group) for m in left])

    kinds = (
        *("publish", "publish", "publish_later", "take", "take", "settle_some", "settle_some", "settle_some"),
        *("administer", "pass_time", "leave", "redefine", "release", "pause", "drop"),
    )

    def publish(self, **when):
        pairs = []
        for _ in range(self.random.randint(1, 8)):
            self.number += 1
            group = self.random.choice(self.groups)
            pairs.append((group, self.number, self.weights[group]))
        self.note(put(self.world, *pairs, **when), pairs, "scheduled" if when else "waiting")

    def note(self, refs, pairs, state):
        for ref, (group, *_) in zip(refs, pairs, strict=True):
            self.messages[ref] = Message(ref, group)
            self.messages[ref].state, self.messages[ref].is_scheduled = state, state == "scheduled"
            self.note_presence(group)
            self.present_since[ref] = self.served

    def publish_later(self):
        self.publish(due=f"+{self.random.choice([100, 900, 4_000]) + self.number % 97}")

    def pick_leased(self):
        leased = sorted((m for m in self.messages.values() if m.state == "leased"), key=lambda m: m.ref)
        return self.random.sample(leased, self.random.randint(0, len(leased)))

    def items(self, messages):
        return {"work": [(m.ref, m.lease) for m in messages]} if messages else {}

    def take(self):
        done = self.pick_leased()
        items = self.items(done)
        for message in done:
            self.settle(message)
            self.acknowledged.append(message)
        self.world.take(self.random.choice(self.subscriptions), self.random.choice([0, 1, 2, 50]), items)

    def settle_one(self, verb, messages):
        items = self.items(messages)
        period = self.random.choice([-1, 0, 0, 900 + self.number % 89]) if verb == "cancelled" else 0
        if verb in ("acknowledged", "expired"):
            for message in messages:
                self.settle(message)
            if verb == "expired":
                self.expire(messages)
        else:
            is_later = period > 0 or (period == -1 and self.redelivery > 0)
            self.take_back(messages, counted=lambda _: verb == "cancelled", delayed=lambda _: is_later)
        if items:
            assert self.world.settle(verb, items, period) == {}

    def expire(self, messages):
        """Messages are given up; where that stops their groups, what is behind them in their batches comes back."""
        for message in messages:
            self.give_up(message)
            behind = message.batch[message.batch.index(message) + 1 :] if self.failure == "stop" else []
            for each in behind:
                if each.state == "leased" and each.batch is message.batch:
                    self.come_back(each, counted=False, delayed=False, is_behind=True)

    def settle_some(self):
        verb = self.random.choice(["acknowledged", "acknowledged", "cancelled", "cancelled", "expired", "given_back"])
        self.settle_one(verb, self.pick_leased())

    def administer(self):
        """Somebody settles messages that nobody holds, by their bookmarks."""
        waiting = sorted(m.ref for m in self.messages.values() if m.state in ("waiting", "delayed", "scheduled"))
        chosen = self.random.sample(waiting, min(len(waiting), 2))
        if chosen:
            assert self.world.settle("acknowledged", {"work": [(ref, "") for ref in chosen]}) == {}
        for ref in chosen:
            self.settle(self.messages[ref])

    def pass_time(self):
        end = self.world.now + self.random.choice([20, 300, 2_000, 9_000])
        for _ in range(200):
            uncollected = self.uncollected()
            self.note_read()
            more, wait = self.world.sweep()
            self.follow_time(uncollected)
            if not more and (wait < 0 or self.world.now + wait > end):
                break
            self.world.now += max(wait, 0)
        self.world.now = max(self.world.now, end)

    def uncollected(self):
        """Tokens of what was pushed and nobody picked up: that counts for nothing."""
        return {message.token for id_ in self.subscriptions for message in self.world.inbox(id_)}

    def follow_time(self, uncollected):
        """Take over what the sweep did: leases that lapsed, and messages whose time came."""
        with self.world.unchanged():
            self._follow_time(uncollected)

    def _follow_time(self, uncollected):
        leases, due = self.leases(), self.world.state().get(":due", {})
        kinds, lapsed = set(), []
        for message in self.messages.values():
            if message.state == "leased" and leases.get(message.ref, [""])[0] != message.lease:
                kinds.add("lapsed")
                lapsed.append(message)
            elif message.state in ("delayed", "scheduled"):
                kind = "ready" if message.state == "delayed" else "scheduled"
                if f"{kind} work {message.ref}" not in due:
                    kinds.add("due")
                    message.state = "waiting"
                    self.note_presence(message.group)
                    self.present_since[message.ref] = self.served
        tokens = {message.ref: message.lease for message in lapsed}
        for message in lapsed:
            if tokens[message.ref] not in uncollected and self.bound_to(message.group) == message.holder:
                self.bound.pop(message.group, None)
        self.take_back(
            lapsed,
            counted=lambda message: tokens[message.ref] not in uncollected,
            delayed=lambda message: tokens[message.ref] not in uncollected and self.redelivery > 0,
        )
        self.observe(is_exact=len(kinds) < 2)

    def leave(self):
        """A consumer is gone; what it had not collected counts for nothing, the rest comes back with the sweep."""
        if self.random.random() < 0.6:
            return
        gone = self.random.choice(self.subscriptions)
        inbox = {message.token for message in self.world.inbox(gone)}
        back = [m for m in self.messages.values() if m.state == "leased" and m.lease in inbox]
        self.take_back(back, counted=lambda _: False, delayed=lambda _: False)
        self.world.unsubscribe(gone)
        self.subscriptions.remove(gone)
        self.bound = {group: binding for group, binding in self.bound.items() if binding[0] != gone}
        self.subscriptions.append(self.world.subscribe("work", asked=self.random.choice([1, 2, 5, 50])))

    def redefine(self):
        """Another concurrency, or another policy; all that follows from it is done with the sweep."""
        if self.random.random() < 0.7:
            return
        # What those who are gone held comes back first: in one sweep with the change either might come first.
        uncollected = self.uncollected()
        self.world.sweep_all()
        self.follow_time(uncollected)
        self.concurrency = self.random.choice([1, 2, 5])
        # What holds its group stands before all others of it, also by `pass` later, which is not modelled.
        if not any(message.is_failed for message in self.messages.values()):
            self.failure = self.random.choice(["hold", "pass", "stop"])
        self.choose_batch()
        self.choose_affinity()
        most = self.world.now + (self.affinity or 0)
        self.bound = {g: (who, min(until, most)) for g, (who, until) in self.bound.items() if self.affinity}
        former, self.choice = self.choice, self.random.choice(["first", "round_robin", "fair"])
        self.is_changing = former != self.choice
        self.define()
        uncollected = self.uncollected()
        scheduled = [m for m in self.messages.values() if m.state in ("delayed", "scheduled")]
        self.world.sweep_all()
        self.came_due = scheduled
        self.follow_time(uncollected)
        self.came_due = []
        if self.is_changing:
            self.is_changing, self.last_served = False, {}
            self.present_since = dict.fromkeys(self.present_since, self.served)

    def release(self):
        bound = sorted(group for group in {*self.bound} if self.bound_to(group))
        bound = [self.affinities.choice(bound)] if bound and self.affinities.random() < 0.3 else []
        for group in sorted({*self.stopped, *bound}):
            waits = self.tokens(group) == 0 and groups_of(self.world)[group][2] > 0
            _, stopped, waited, *unbound = self.world.run("release_group", self.world.now, "work", group)
            assert (stopped > 0, waited) == (group in self.stopped, waits)
            assert unbound == ([1] if self.bound_to(group) else [])
            self.bound.pop(group, None)
            self.stopped.discard(group)
            if waits:
                # It may have its whole burst again.
                self.full.pop(group, None)
            for message in self.messages.values():
                if message.group == group:
                    message.is_failed = False

    def pause(self):
        """Somebody pauses a group, of which there may be nothing, or lets it go on."""
        group = self.random.choice(self.groups)
        if group is None or (group not in self.paused and self.random.random() < 0.5):
            return
        is_paused = group not in self.paused
        assert self.world.run("pause_group", self.world.now, "work", group, int(is_paused), "nora") == 1
        assert self.world.run("pause_group", self.world.now, "work", group, int(is_paused), "nora") == 0
        self.note_presence(group)
        (self.paused.add if is_paused else self.paused.discard)(group)
        self.note_presence(group)

    def drop(self):
        """Somebody drops what waits of a group: unread, with its place, or until its delay is over."""
        group = self.random.choice(self.groups)
        if group is None or self.random.random() < 0.7:
            return
        gone = [m for m in self.messages.values() if m.group == group and m.state in ("waiting", "delayed")]
        counted = drop(self.world, group, only_count=True)
        assert counted == len(gone), (group, counted, [(m.ref, m.state) for m in gone])
        assert drop(self.world, group) == len(gone)
        for message in gone:
            self.settle(message)

    def drain(self):
        """In the end everything is delivered, and of the groups nothing is left."""
        for _ in range(3 * len(self.messages) + 20):
            self.world.now += 10_000
            self.pass_time()
            self.release()
            for group in sorted(self.paused):
                self.world.run("pause_group", self.world.now, "work", group, 0, "")
            self.paused = set()
            self.settle_one("acknowledged", [m for m in self.messages.values() if m.state == "leased"])
            self.observe()
            for id_ in self.subscriptions:
                self.note_read()
                self.world.take(id_, 50)
                self.observe()
            if all(m.state == "settled" for m in self.messages.values()):
                break
        assert [m.ref for m in self.messages.values() if m.state != "settled"] == []
        if self.affinity:
            self.world.now += self.affinity + 1
            self.world.sweep_all()
        state = self.world.state()
        assert groups_of(self.world) == {}
        assert not [
            name
            for name in (
                ":q:work:grouped",
                ":q:work:listed",
                ":q:work:ahead",
                ":q:work:pinned",
                ":q:work:sorted:none",
                ":q:work:ready",
            )
            if name in state
        ]
        assert "listed" not in state[":q:work"]
        assert not [name for name in state if name.startswith((":q:work:going:", ":q:work:lines", ":q:work:bound"))]
        assert "affinity work" not in state.get(":due", {})
        assert list(state[":q:work:going"]) == [LEASES_ANCHOR]
        assert self.rate or self.group_rate or ":q:work:turns" not in state
        # When all buckets are full again, nothing is left of them, and nobody is woken any more.
        self.world.now += 60_000
        self.world.sweep_all()
        state = self.world.state()
        assert not [name for name in (":q:work:rates", ":q:work:later") if name in state]
        assert "rates work" not in state.get(":due", {})
        assert ":q:work:turns" not in state
