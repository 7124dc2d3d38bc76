"""The table of all pages: address, what it shows, what its JSON has; routes and the OpenAPI document come from it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ampsq.console.action_facts import ActionPageFacts, ActionsFacts
from ampsq.console.facts import Facts, OverviewFacts, QuestionFacts, SearchFacts
from ampsq.console.message_facts import LetterQueuesFacts, LettersFacts, MessageFacts
from ampsq.console.queue_facts import (
    GroupsFacts,
    PartitionedQueueFacts,
    PartitionedQueuesFacts,
    QueuePageFacts,
    QueuesFacts,
)
from ampsq.console.replication_facts import ReplicationFacts
from ampsq.console.topic_facts import PublishersFacts, TopicPageFacts, TopicsFacts

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["PAGES", "PageEntry", "page_named"]

_OF: Final = "/i/{instance}"
#: Of an instance with partitions, each of which is an instance with pages of its own, too.
_OF_ALL: Final = "/p/{whole}"
_LIST: Final = {"q": "What their names have.", "sort": "name, depth, available, leased, delayed or oldest."}
_FILTER: Final = "An expression; only messages that match."
_LIMIT: Final = "How many messages at most, 1 to 500; by default 25."
_PATIENT: Final = "Look for up to 20 seconds in place of 1.5, whatever its value is."
_NUMBER: Final = "Number of the page, from 1; one beyond the last is the last one."


@dataclass(frozen=True, slots=True)
class PageEntry:
    """A page.

    Attributes:
        name: its name.
        path: its address; a part in braces is a name, and `{name:path}` one that may have slashes.
        shows: what it shows, one sentence.
        facts: what its JSON has.
        query: parameter of its address -> what that does.
    """

    name: str
    path: str
    shows: str
    facts: type[Facts]
    query: Mapping[str, str] = field(default_factory=dict)

    @property
    def documented_path(self) -> str:
        """Return the address as OpenAPI has it."""
        return re.sub(r":path}", "}", self.path)

    @property
    def parts(self) -> list[str]:
        """Return the names of the address's parts."""
        return re.findall(r"{(\w+)(?::path)?}", self.path)


PAGES: Final = (
    PageEntry("overview", "/", "All instances with what is wrong with them.", OverviewFacts, {"page": _NUMBER}),
    PageEntry(
        "search_all", "/search", "What matches a text, in all instances.", SearchFacts,
        {"q": "A part of a name, or a message's bookmark or ID."},
    ),
    PageEntry(
        "search", f"{_OF}/search", "What matches a text, in one instance.", SearchFacts,
        {"q": "A part of a name, or a message's bookmark or ID."},
    ),
    PageEntry(
        "queues", f"{_OF}/queues", "Queues with their figures, 50 a page.", QueuesFacts,
        {**_LIST, "page": _NUMBER},
    ),
    PageEntry(
        "partitioned_queues", f"{_OF_ALL}/queues", "Queues of an instance with partitions, summed up, 50 a page.",
        PartitionedQueuesFacts, {**_LIST, "page": _NUMBER},
    ),
    PageEntry(
        "partitioned_queue", f"{_OF_ALL}/queues/{{queue:path}}",
        "A queue of an instance with partitions: its sums, and its figures in each partition.", PartitionedQueueFacts,
    ),
    PageEntry(
        "queue", f"{_OF}/queues/{{queue:path}}", "A queue with its figures, subscriptions and messages.",
        QueuePageFacts,
        {"filter": _FILTER, "limit": _LIMIT, "range": "15m, 6h or 7d: of its former figures.", "patient": _PATIENT},
    ),
    PageEntry(
        "groups", f"{_OF}/groups/{{queue:path}}", "Groups of a queue: which stand still, and of which most waits.",
        GroupsFacts, {"limit": "How many groups at most, 1 to 500; by default 25."},
    ),
    PageEntry(
        "topics", f"{_OF}/topics", "Topics with their size and retention, 50 a page.", TopicsFacts,
        {"q": "What their names have.", "page": _NUMBER},
    ),
    PageEntry(
        "topic", f"{_OF}/topics/{{topic:path}}", "A topic with its readers, publishers, records and messages.",
        TopicPageFacts,
        {
            "from": "Replay from here: a bookmark, a time, epoch, or a range, as in [A:B).", "filter": _FILTER,
            "limit": _LIMIT, "patient": _PATIENT,
        },
    ),
    PageEntry("publishers", f"{_OF}/publishers", "Publishers that have a name.", PublishersFacts),
    PageEntry(
        "message", f"{_OF}/messages", "A message with its body and its history.", MessageFacts,
        {"bookmark": "The message; it must be there.", "queue": "The queue in which it is explained."},
    ),
    PageEntry("letter_queues", f"{_OF}/dead-letters", "Queues of dead letters.", LetterQueuesFacts),
    PageEntry(
        "dead_letters", f"{_OF}/dead-letters/{{queue:path}}", "Dead letters of a queue.", LettersFacts,
        {"filter": _FILTER, "limit": _LIMIT},
    ),
    PageEntry("replication", f"{_OF}/replication", "Links, and who owns what.", ReplicationFacts),
    PageEntry("actions", f"{_OF}/actions", "Actions with what they have done.", ActionsFacts),
    PageEntry("action", f"{_OF}/actions/{{action:path}}", "An action with what it failed at.", ActionPageFacts),
    PageEntry(
        "question", f"{_OF}/changes/{{change}}", "What a change would do; JSON makes none.", QuestionFacts,
        {
            "queue": "The queue that it is about; the change says which of these it needs.",
            "bookmark": "The message that it is about.", "filter": _FILTER, "destination": "The destination.",
            "action": "The action.", "event": "The number of a failed event.", "group": "The group of the queue.",
        },
    ),
)  # fmt: skip


def page_named(name: str) -> PageEntry:
    """Return the page of this name."""
    return next(each for each in PAGES if each.name == name)
