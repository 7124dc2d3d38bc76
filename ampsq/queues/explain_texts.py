"""The sentences of explanations."""
# Long: one table: the texts of all reasons for which a message is where it is.

from __future__ import annotations

import shlex
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from ampsq.base.formatting import count_text, printable, printable_line, span_text, time_text
from ampsq.protocol.reads.journals import REDRIVEN, RETENTION
from ampsq.queues.explain_snapshot import client_of, filter_of
from ampsq.queues.history_texts import reasons_text
from ampsq.queues.returns import last_reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ampsq.base.values import Rate
    from ampsq.protocol.reads.message_names import LocatedMessage
    from ampsq.queues.explain_snapshot import ExplainedSubscription, Snapshot

__all__ = ["REASONS", "SEARCH_TIME", "absence_of", "sentence_of"]

#: Seconds for which the journal is searched.
SEARCH_TIME: Final = 2.0
_ALL: Final = "none"
_SILENT: Final = "no sign of life for long"
#: What to do where none is at work.
_HELP: Final = "ampsq coordinator starts one; idle subscriptions help out"
#: Most subscriptions and filters that a sentence names; `facts` has all that were looked at.
_NAMED: Final = 5

#: Reason -> sentence. The words in braces are the methods of `_Words`.
REASONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        # leased
        "leased": (
            "The message is leased to {holder} as delivery {delivery}, {picked_up}{progress}; {lease}{back}{removed}."
        ),
        "unacknowledged": (
            "The message was delivered to {holder} at most once, so that it never comes back, {picked_up}{progress}; "
            "only the acknowledgement is awaited, which makes room for the next message."
        ),
        "lapsed": (
            "The lease of {holder} on the message, delivery {delivery}, lapsed {overdue} ago, and the message waits to "
            "be taken back{coordinator}."
        ),
        "holder_gone": (
            "The message is leased as delivery {delivery} to subscription {holder_id}, which has ended, and waits to "
            "be taken back{coordinator}."
        ),
        # delayed
        "delayed": "The message came back and is ready again in {left}, at {due}{back}{removed}.",
        "delay_over": (
            "The message came back, its delay was over {overdue} ago, and it waits to be made ready{coordinator}{back}."
        ),
        # scheduled
        "scheduled": "The message was published for later and is ready in {left}, at {due}{removed}.",
        "schedule_over": (
            "The message was published for later, was due {overdue} ago, and waits to be made ready{coordinator}."
        ),
        # its life is over
        "over": (
            "The message's life was over {over} ago, and it expires at the next pass, at the latest when the queue "
            "comes to it{coordinator}."
        ),
        # in the queue and not delivered
        "removed": (
            "The message was removed from the log of topic {topic} by somebody else; the queue settles it as missing "
            "when it comes to it."
        ),
        "behind_barrier": ("{message} waits behind the barrier {barrier}, which waits {barrier_for}{back}."),
        "barrier": "{message} is a barrier and waits {barrier_for}{back}.",
        "barrier_unsubscribed": (
            "{message} is a barrier with nothing unsettled before it, and waits for a first subscription{back}."
        ),
        "barrier_next": (
            "{message} is a barrier with nothing unsettled before it, and is sent to {subscriptions} at the next "
            "dispatch{coordinator}{back}."
        ),
        "beyond_depth": (
            "{message} stays unread because the queue keeps {depth} active at most (target_queue_depth): {active} "
            "active, and {before}{back}."
        ),
        "rebuilding": (
            "{message} waits because the queue is being rebuilt from log and journal, and reads nothing until that is "
            "done{back}."
        ),
        "recovering": (
            "{message} waits because this instance is a new incarnation and holds the queue until it has what others "
            "have of the last one: ampsq replication says for whom it waits{back}."
        ),
        "queue_paused": "{message} waits because the queue is paused: it delivers nothing until it is resumed{back}.",
        "no_subscription": "{message} waits because nobody is subscribed to the queue; {before}{back}.",
        "queue_full": (
            "{message} waits because the queue's max_backlog of {backlog} is reached: {leased}, held by {holders}; "
            "{before}{back}."
        ),
        "group_paused": (
            "{nameless} waits because its group {group} was paused {group_paused} ago{group_paused_by}: ampsq groups "
            "{queue} --resume {group_word} lets it go on{back}."
        ),
        "group_stopped": (
            "{nameless} waits because its group {group} was stopped {stopped} ago, when a message of it was given up: "
            "ampsq groups {queue} --release {group_word} lets it go on{back}."
        ),
        "group_held": (
            "{nameless} waits because a message of its group {group} failed, and holds it until it is settled{back}."
        ),
        "group_full": (
            "{nameless} waits because its group {group} has {group_leased} leased{group_holders}; {group_before}{back}."
        ),
        "group_bound": (
            "{nameless} waits because its group {group} is bound to subscription {group_bound}, which has no room, "
            "{group_bound_until}; {group_moves}{back}."
        ),
        "group_rated": (
            "{nameless} waits because {group_rate} of its group {group} may be delivered; next in {group_rate_wait}; "
            "{group_before}{back}."
        ),
        "rated": (
            "{message} waits because queue {queue_name} may deliver {rate}; next in {rate_wait}; {before}{back}."
        ),
        "no_filter_matches": ("{message} waits because it {matches_none}{not_json}: {filters}{cut}{back}."),
        "bell_rang": (
            "{message} waits until it is fetched by {rung}, whose backlog is one over all partitions of an instance, "
            "and who was told that messages wait here{cut}; {before}{back}."
        ),
        "backlogs_full": (
            "{message} waits because the backlogs of all subscriptions are full: {full}{cut}; {before}{back}."
        ),
        "matching_full": (
            "{message} waits because, of {subscriptions}, only those with a full backlog have a filter that it "
            "matches: {full}{cut}; {before}{back}."
        ),
        "resorting": (
            "{message} waits because the queue's priority or barrier expression was changed: {unsorted} still to be "
            "judged anew before anything is delivered{coordinator}{back}."
        ),
        "sorting": (
            "{message} waits because the queue {reads_first} and delivers nothing before it has read everything: "
            "{unsorted} still to be read{coordinator}{back}."
        ),
        "indexing": (
            "{message} waits while the index of a new filter is being built, {free_filters}, which nobody with room "
            "can do without{coordinator}{back}."
        ),
        "in_line": "{message} waits in line: {before}, and there is room for {room}{coordinator}{back}.",
        "next": "{message} is about to be delivered: {before}, and {free} {has_room}{coordinator}{back}.",
        # not in the queue
        "kept_out": "The message {never_enters} the queue: the queue's filter {filter} does not match it{not_json_it}.",
        "kept_out_before": (
            "The message never entered the queue: the filter that the queue had when it read it did not match it; "
            "today's {today}."
        ),
        "before_start": "The message lies before the recovery point of the queue, and never was in it.",
        "addressed_elsewhere": "The message is for the queue {addressed} alone.",
        "other_topic": "The message is not of this queue, which is fed by {fed_by} and not by topic {topic}.",
        "no_message": (
            "There is no such message: the log of topic {topic}, which {log_end}, does not have it; it never was "
            "recorded, or it was removed: by the retention, or by somebody else."
        ),
        # settled
        "acknowledged": "The message{acknowledged}.",
        "expired": "The message expired at {settled} because {why}{told}, after {counts}{ahead}.",
        "evicted": "The message was evicted at {settled} because {why}.",
        "delivered": "The message was settled when it was delivered, at {settled}, since the queue is at-most-once.",
        "barrier_sent": (
            "The message was a barrier and was sent at {settled} to all subscriptions whose filter it matched."
        ),
        "missing": "{missed}.",
        "beyond_journal": "The message is settled{ahead}, but the journal does not tell how or when: it {journal}.",
        "unfound": (
            "The message is settled{ahead}, but how and when was not found in {search_time}: the search came back to "
            "{reached}, and the journal begins earlier."
        ),
        # nothing waits, or nothing was found
        "passed_over": (
            "All unread messages up to this one, the last that one look reaches, are settled already or will never "
            "enter the queue, and nothing else waits in it."
        ),
        "empty": "Nothing waits in the queue: {leased}, {delayed}{next_due}, and all else is settled.",
        # other instances
        "owned_elsewhere": "{message} is owned elsewhere, by instance {owner}, which delivers it{transfer}{removed}.",
        "not_here": "The message is not here: {absence}.",
    }
)

#: Reasons whose sentence says what is due.
_WAITS_ITSELF: Final = frozenset(("lapsed", "holder_gone", "delay_over", "schedule_over", "over"))
_CAUSES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "cancelled": "it was cancelled",
        "lapsed": "its lease lapsed",
        "disconnected": "its subscription ended",
    }
)


def _are(number: int, word: str) -> str:
    return f"{count_text(number, word)} {'is' if number == 1 else 'are'}" if number else f"no {word} is"


def _times(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number, f"{number} times")


def _listed(texts: Sequence[str]) -> str:
    """Some texts as one, cut where they are many."""
    if len(texts) > _NAMED:
        return ", ".join(texts[:_NAMED]) + f" and {len(texts) - _NAMED:,} more"
    return " and ".join(filter(None, (", ".join(texts[:-1]), texts[-1]))) if texts else "nobody"


def _rate_words(rate: Rate | None) -> str:
    """A rate as people say it, as in ``10 a second``."""
    if rate is None:
        return ""
    words = {"s": "a second", "min": "a minute", "m": "a minute", "h": "an hour", "d": "a day"}
    return f"{rate.count:,} {words.get(rate.unit, f'in {rate.unit}')}"


class _Words:
    """The words in the braces of `REASONS`; only those that a sentence has are looked up."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def __getitem__(self, name: str) -> str:
        word: Callable[[], str] = getattr(self, name)
        return word()

    # -- the message

    def nameless(self) -> str:
        """Return the message without its group, which the sentence names."""
        if not self._snapshot.is_head:
            return "The message"
        return "The oldest unread message" if self._snapshot.has_no_rank else "The next message"

    def message(self) -> str:
        snapshot, word = self._snapshot, self.nameless()
        if snapshot.text("group"):
            return f"{word}, of group {self.group()},"
        if not snapshot.text("priority"):
            return word
        return (
            f"{word}, of the lowest priority,"
            if snapshot.priority is None
            else f"{word}, of priority {snapshot.priority},"
        )

    def topic(self) -> str:
        return repr(self._snapshot.topic)

    def back(self) -> str:
        if self._snapshot.attempts is None:
            return ""
        deliveries, cancels, cause = self._snapshot.attempts
        definition = self._snapshot.definition
        texts = [f"delivered {_times(deliveries)}" + _at_most(definition.max_deliveries)]
        if cancels:
            texts.append(f"cancelled {_times(cancels)}" + _at_most(definition.max_cancels))
        last = f"last because {_CAUSES.get(cause, cause)}{self.said()}"
        return f"; it came back before, {' and '.join(texts)}, {last}"

    def said(self) -> str:
        """Return the consumer's reason for its last return; of an earlier one, if the last has none."""
        returns = self._snapshot.returns
        said = last_reason(returns)
        if not said:
            return ""
        return f" ({said})" if returns[-1].consumer_reason else f"; before that a consumer said: {said}"

    def removed(self) -> str:
        return "" if self._snapshot.recorded else "; somebody removed it from its log meanwhile"

    def before(self) -> str:
        if self._snapshot.is_in_turn:
            line, own = (self._snapshot.number(f"group_{name}") for name in ("line", "before"))
            turns = "the turn of one other group" if line == 1 else f"the turns of {line:,} other groups"
            of_own = f"{count_text(own, 'message')} of its own group"
            return f"{turns} and {of_own} come before it"
        if self._snapshot.has_no_rank:
            return f"what comes before it is known when everything is read: {self.unsorted()} still to be read"
        number = self._snapshot.before
        some = "at least " if self._snapshot.flag("at_least") else ""
        if not number:
            return "nothing comes before it" if not some else "too many messages to count come before it"
        return f"{some}{count_text(number, 'message')} {'comes' if number == 1 else 'come'} before it"

    # -- its lease, its delay

    def holder_id(self) -> str:
        return self._snapshot.lease[0]

    def holder(self) -> str:
        tree = self._snapshot.text("tree")
        filtered = f" with filter {filter_of(tree)}" if tree else ""
        silent = f" ({_SILENT})" if self._snapshot.flag("silent") else ""
        return f"subscription {self._snapshot.lease[0]} of {client_of(self._snapshot.text('client'))}{filtered}{silent}"

    def delivery(self) -> str:
        return f"{self._snapshot.lease[1]}{_at_most(self._snapshot.definition.max_deliveries)}"

    def picked_up(self) -> str:
        return "still in its inbox" if self._snapshot.flag("unseen") else "picked up"

    def progress(self) -> str:
        report = self._snapshot.report
        if report is None:
            return ""
        said = f" ({report.text})" if report.text else ""
        return f", {report.done:.3g} of it done{said}, as it said {span_text(self._snapshot.now - report.at)} ago"

    def lease(self) -> str:
        deadline = self._snapshot.lease[2]
        if not deadline:
            return "the lease never lapses"
        return f"the lease lapses in {span_text(deadline - self._snapshot.now)}, at {time_text(deadline)}"

    def overdue(self) -> str:
        due = self._snapshot.lease[2] if self._snapshot.where == "leased" else self._snapshot.number("due")
        return span_text(self._snapshot.now - due)

    def over(self) -> str:
        return span_text(self._snapshot.now - self._snapshot.number("ends"))

    def addressed(self) -> str:
        return repr(self._snapshot.text("addressed"))

    def left(self) -> str:
        return span_text(self._snapshot.number("due") - self._snapshot.now)

    def due(self) -> str:
        return time_text(self._snapshot.number("due"))

    def coordinator(self) -> str:
        if self._snapshot.attended is None:
            return ""
        due = "" if self._snapshot.reason() in _WAITS_ITSELF else "; a dispatch is due"
        if self._snapshot.attended:
            return f"{due}, which a coordinator is about to do"
        return f"{due}, but no coordinator seems to be at work ({_HELP})"

    # -- the queue

    def barrier(self) -> str:
        return str(self._snapshot.bookmark_of(self._snapshot.text("barrier")))

    def barrier_for(self) -> str:
        snapshot = self._snapshot
        told = "barrier_before" if snapshot.text("barrier_before") else "before"
        is_read = snapshot.where == "held" or (snapshot.text("barrier") and told == "before")
        waiting = snapshot.number("ready") + snapshot.number("sorted") if is_read else snapshot.number(told)
        texts = []
        if snapshot.number("leased"):
            texts.append(f"{snapshot.number('leased'):,} leased (to {self.holders()})")
        texts += [
            f"{number:,} {word}"
            for number, word in ((snapshot.number("delayed"), "delayed"), (waiting, "waiting"))
            if number
        ]
        if texts:
            return f"until all before it is settled: {', '.join(texts)}"
        return "for the next dispatch" if snapshot.number("subscriptions") else "for a first subscription"

    def holders(self) -> str:
        return _listed([f"{name} ({count})" for name, count in sorted(self._snapshot.holders.items())])

    def group(self) -> str:
        return repr(printable(self._snapshot.text("group")))

    def group_word(self) -> str:
        """The group as a shell takes it, whatever its publisher wrote: commands are copied."""
        return _shell_word(self._snapshot.text("group"))

    def queue(self) -> str:
        return self._snapshot.definition.name

    def queue_name(self) -> str:
        return repr(self._snapshot.definition.name)

    def stopped(self) -> str:
        return span_text(max(self._snapshot.now - self._snapshot.number("group_stopped"), 0))

    def group_paused(self) -> str:
        return span_text(max(self._snapshot.now - self._snapshot.number("group_paused"), 0))

    def group_paused_by(self) -> str:
        by = self._snapshot.text("group_paused_by")
        return f" by {client_of(by)}" if by else ""

    def group_leased(self) -> str:
        leased, definition = self._snapshot.number("group_leased"), self._snapshot.definition
        if (definition.group_batch or 1) > 1:
            return f"{count_text(leased, 'message')} of a batch"
        return f"{leased:,} of {definition.group_concurrency or 1:,}"

    def group_holders(self) -> str:
        now, holders = self._snapshot.now, self._snapshot.group_holders
        if (self._snapshot.definition.group_batch or 1) > 1:
            # All of a batch has one.
            holders = holders[:1]
        told = [f"{name} for {span_text(max(now - since, 0))}" for name, since in holders]
        return f", by {_listed(told)}" if told else ""

    def group_bound(self) -> str:
        return self._snapshot.group_bound[0] if self._snapshot.group_bound else ""

    def group_bound_until(self) -> str:
        until = self._snapshot.group_bound[1] if self._snapshot.group_bound else 0
        if until > self._snapshot.now:
            return f"for {span_text(until - self._snapshot.now)} more"
        return "until nothing of it is leased"

    def group_moves(self) -> str:
        leased = self._snapshot.number("group_leased")
        if leased:
            return f"{_are(leased, 'message')} leased of it, so that it goes to no other one"
        return "it goes to another one that finds nothing else to take"

    def group_before(self) -> str:
        others = max(self._snapshot.number("group_waiting") - (self._snapshot.where == "sorted"), 0)
        return f"{_are(others, 'other message')} waiting in it"

    def rate(self) -> str:
        return _rate_words(self._snapshot.definition.rate)

    def rate_wait(self) -> str:
        return span_text(self._snapshot.number("rate_wait"))

    def group_rate(self) -> str:
        return _rate_words(self._snapshot.definition.group_rate)

    def group_rate_wait(self) -> str:
        return span_text(self._snapshot.number("group_rate_wait"))

    def reads_first(self) -> str:
        return "has priorities" if self._snapshot.definition.priority else "lets its groups take turns"

    def depth(self) -> str:
        return count_text(self._snapshot.definition.target_queue_depth or 0, "message")

    def active(self) -> str:
        return f"{self._snapshot.active:,} {'is' if self._snapshot.active == 1 else 'are'}"

    def backlog(self) -> str:
        return f"{self._snapshot.definition.max_backlog:,}"

    def leased(self) -> str:
        return f"{_are(self._snapshot.number('leased'), 'message')} leased"

    def delayed(self) -> str:
        scheduled = self._snapshot.number("scheduled")
        later = f", {_are(scheduled, 'message')} scheduled" if scheduled else ""
        return f"{_are(self._snapshot.number('delayed'), 'message')} delayed{later}"

    def next_due(self) -> str:
        snapshot = self._snapshot
        if not snapshot.next_due:
            return ""
        if not snapshot.next_due_is_exact:
            return f" (not due before {time_text(snapshot.next_due)})"
        first = "" if snapshot.number("delayed") + snapshot.number("scheduled") == 1 else "the first "
        if snapshot.next_due <= snapshot.now:
            return f" ({first}due since {time_text(snapshot.next_due)})"
        return f" ({first}due in {span_text(snapshot.next_due - snapshot.now)}, at {time_text(snapshot.next_due)})"

    def unsorted(self) -> str:
        return _are(
            self._snapshot.unsorted() or self._snapshot.number("ready") + self._snapshot.number("sorted"), "message"
        )

    def subscriptions(self) -> str:
        number = self._snapshot.number("subscriptions")
        return "the one subscription" if number == 1 else f"the {number:,} subscriptions"

    def matches_none(self) -> str:
        is_one = self._snapshot.number("subscriptions") == 1
        return (
            f"{'does not match the filter of' if is_one else 'matches none of the filters of'} {self.subscriptions()}"
        )

    def cut(self) -> str:
        seen = len(self._snapshot.subscriptions)
        return f" (only {seen:,} were looked at)" if seen < self._snapshot.number("subscriptions") else ""

    def full(self) -> str:
        return _listed(
            [
                f"{each.id} of {each.client} ({_backlog_of(each)})"
                for each in self._snapshot.subscriptions
                if each.matches
            ]
        )

    def rung(self) -> str:
        subscriptions = [each for each in self._snapshot.subscriptions if each.matches and each.has_bell]
        return _listed([f"{each.id} of {each.client} ({_backlog_of(each)} here)" for each in subscriptions])

    def filters(self) -> str:
        known = self._snapshot.filters
        names = sorted({each.filter for each in self._snapshot.subscriptions} - {_ALL})
        return _listed(sorted(str(known[name].text) for name in names if name in known))

    def free_filters(self) -> str:
        return _listed(sorted(str(each.text) for each in self._snapshot.free_filters))

    def not_json(self) -> str:
        if beyond := self._beyond():
            return f", since its body of {beyond}"
        return ", since its body is not JSON" if self._snapshot.flag("json") is False else ""

    def not_json_it(self) -> str:
        if beyond := self._beyond():
            return f", whose body of {beyond}"
        return ", whose body is not JSON" if self._snapshot.flag("json") is False else ""

    def _beyond(self) -> str:
        """Of a body that expressions do not read, how large it is and why."""
        size, limit = (f"{self._snapshot.number(name):,}" for name in ("body_bytes", "body_limit"))
        match self._snapshot.text("beyond"):
            case "limit":
                return f"{size} bytes is larger than the topic's expression_limit of {limit}"
            case "steps":
                return f"{size} bytes takes more steps to read than an expression may take"
        return ""

    def room(self) -> str:
        return f"{self._snapshot.room:,}"

    def free(self) -> str:
        free = self._snapshot.free
        return _listed([f"{each.id} of {each.client}" for each in free]) if free else "a subscription"

    def has_room(self) -> str:
        return "have room" if len(self._snapshot.free) > 1 else "has room"

    # -- what is not in the queue

    def filter(self) -> str:
        return str(self._snapshot.definition.filter)

    def never_enters(self) -> str:
        return "never entered" if self._snapshot.where == "settled" else "is unread and will never enter"

    def today(self) -> str:
        text = self._snapshot.definition.filter
        return f"is {text}" if text else "lets everything in"

    def fed_by(self) -> str:
        definition = self._snapshot.definition
        kind = "the topics that match" if definition.is_pattern else "topic"
        return f"{kind} {definition.underlying_topic!r}"

    def log_end(self) -> str:
        last = self._snapshot.text("last")
        return f"ends at {last}" if last else "is empty"

    # -- what other instances have

    def owner(self) -> str:
        return self._snapshot.text("owner") or "unknown"

    def transfer(self) -> str:
        """Describe the way in which this instance gets it."""
        snapshot = self._snapshot
        if not snapshot.number("subscriptions"):
            return "; nobody is subscribed to the queue here, so that this instance does not ask for it"
        granted = "which makes it this instance's as soon as nobody there can take it"
        if snapshot.number("asked"):
            ago = span_text(max(snapshot.now - snapshot.number("asked"), 0))
            return f"; this instance asked for it {ago} ago, {granted}"
        return (
            "; where it waits longer than usual, and a subscription here has room and a filter that it matches, this "
            f"instance asks for it, {granted}"
        )

    # -- what is settled

    def settled(self) -> str:
        return time_text(self._snapshot.found.at)

    def acknowledged(self) -> str:
        if self._snapshot.found.why == REDRIVEN:
            return f", a dead letter, was redriven at {self.settled()}"
        return f" was acknowledged at {self.settled()}{self.ahead()}{self.told()}"

    def told(self) -> str:
        said = self._snapshot.found.consumer_reason
        return f" ({said})" if said else ""

    def ahead(self) -> str:
        return ", by bookmark, before the queue has come to read it" if self._snapshot.text("ahead") else ""

    def missed(self) -> str:
        if self._snapshot.found.why == RETENTION:
            return (
                f"The queue lost the message at {self.settled()}: it was beyond the retention of topic {self.topic()}"
            )
        return (
            f"The message was removed from the log of topic {self.topic()} by somebody else, which the queue found at "
            f"{self.settled()}"
        )

    def why(self) -> str:
        return reasons_text(self._snapshot.found.why.split(","))

    def counts(self) -> str:
        found = self._snapshot.found
        deliveries = "1 delivery" if found.deliveries == 1 else f"{found.deliveries} deliveries"
        return f"{deliveries} and {count_text(found.cancels, 'cancel')}"

    def journal(self) -> str:
        at = self._snapshot.found.at
        return f"does not reach back that far, but only to {time_text(at)}" if at else "is empty"

    def search_time(self) -> str:
        return span_text(int(SEARCH_TIME * 1000))

    def reached(self) -> str:
        return time_text(self._snapshot.found.at)


def absence_of(named: LocatedMessage) -> str:
    """The sentence of a message that is not here."""
    return REASONS["not_here"].format(absence=named.absence)


def sentence_of(snapshot: Snapshot, reason: str) -> str:
    """The sentence of a reason, in the words of what was seen."""
    return REASONS[reason].format_map(_Words(snapshot))


def _backlog_of(subscription: ExplainedSubscription) -> str:
    """Describe how full it is, and its peculiarities."""
    if not subscription.max:
        return "asks for none"
    text = f"{subscription.leased} of {subscription.max}"
    if subscription.queues > 1:
        text += f" over {subscription.queues:,} queues"
    return f"{text}, {_SILENT}" if subscription.silent else text


def _shell_word(text: str) -> str:
    line = printable_line(text)
    if line == text:
        return shlex.quote(text)
    # Shells read the escapes of a text in $'...' back.
    quoted = printable_line(text.replace("\\", "\\\\").replace("'", "\\'"))
    return f"$'{quoted}'"


def _at_most(limit: int) -> str:
    return f" of at most {limit}" if limit else ""
