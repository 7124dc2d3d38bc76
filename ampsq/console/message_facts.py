"""The facts of a message's life and of dead letters, as the JSON of their pages has them."""

from __future__ import annotations

from ampsq.console.facts import Body, Facts, Seconds, Text, Values
from ampsq.console.queue_facts import ExplanationFacts

__all__ = [
    "LetterFacts",
    "LetterQueueFacts",
    "LetterQueuesFacts",
    "LettersFacts",
    "MessageEventFacts",
    "MessageFacts",
    "MessageStateFacts",
]


class MessageEventFacts(Facts):
    """A thing that happened to a message.

    Attributes:
        at: ms since 1970 by the server's clock; null where nobody wrote it down.
        queue: in which queue; "" for what happened to the message itself.
        event: a word that stays, as `published` or `delivered`.
        by: the subscription or publisher; "" where it is not known.
        details: what else is known.
    """

    at: int | None
    queue: Text
    event: Text
    by: Text
    details: Values


class MessageStateFacts(Facts):
    """The state of a message in one queue.

    Attributes:
        queue: the queue.
        state: a word that stays.
        sentence: why, for people; the text may change.
    """

    queue: Text
    state: Text
    sentence: Text


class MessageFacts(Facts):
    """A message.

    Attributes:
        bookmark: its name.
        recorded: whether this instance's log has it.
        events: what happened to it, the earliest first.
        queues: where it is in each queue that its topic feeds.
        body: its text, JSON over several lines, cut where it is very long; null where the log does not have it.
        bytes: length of the body.
        headers: those that it was published with.
        explained: why it is where it is in the queue that was asked for; null where none was.
    """

    bookmark: Text
    recorded: bool
    events: list[MessageEventFacts]
    queues: list[MessageStateFacts]
    body: Text | None
    bytes: int
    headers: dict[Text, Text]
    explained: ExplanationFacts | None


class LetterQueueFacts(Facts):
    """A queue of dead letters.

    Attributes:
        queue: its name.
        letters: messages in it.
        oldest: age of the oldest one, seconds; null where there is none.
    """

    queue: Text
    letters: int
    oldest: float | None


class LetterQueuesFacts(Facts):
    """Queues of dead letters.

    Attributes:
        queues: those over topics that actions publish to.
    """

    queues: list[LetterQueueFacts]


class LetterFacts(Facts):
    """A dead letter.

    Attributes:
        bookmark: its name.
        original: the message that was given up.
        queue: the queue that gave it up.
        topic: the topic that it came from.
        reasons: why it was given up.
        consumer_reason: what the consumer said of it; "" where it said nothing.
        deliveries: how often it was delivered.
        group: its group; null where it is of none.
        headers: those that it was published with.
        age: seconds since it was given up.
        body: its text, or `{"base64": ...}`.
    """

    bookmark: Text
    original: Text | None
    queue: Text
    topic: Text
    reasons: list[Text]
    consumer_reason: Text
    deliveries: int
    group: Text | None
    headers: dict[Text, Text]
    age: Seconds
    body: Body


class LettersFacts(Facts):
    """Dead letters of a queue.

    Attributes:
        letters: those that match the filter, the oldest first.
        more: whether there are more.
        wrong: what is wrong with the filter; "" otherwise.
    """

    letters: list[LetterFacts]
    more: bool
    wrong: Text
