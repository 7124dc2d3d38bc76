"""Questions to the dumped instances, through the public API, answered as plain values of JSON.

It is asked when the dump is made and whenever it was loaded, by whatever release; where the API has another form then,
this file follows, and the answers stay. What depends on the moment of asking is left out, at its place: ages, spans,
rates, the sentences that have such, and what memory costs. Everything else is told as it is.
"""

from __future__ import annotations

import contextlib
from dataclasses import asdict, is_dataclass
from datetime import datetime

from ampsq import Client, RedisBookmarkStore
from ampsq.base.errors import AmpsqError
from ampsq.protocol.calls.jobs import decided, last_epoch
from ampsq.protocol.schema import key
from ampsq.topics.bookmark_store import SubscriptionName

__all__ = ["ask", "plain"]

#: Of a topic with more messages only the first and the last ones are told.
_MOST = 200
_ENDS = 3
#: What depends on the moment of asking, or on the server.
_PASSING = {
    "link": ("connected_for", "seconds_behind", "disconnected_ago"),
    "ownership": ("oldest",),
    "explanation": ("now", "coordinator"),
}


def plain(value):
    """Make plain values of JSON; bytes are text of Latin-1, and what JSON has no form of is its text."""
    for types, make in _PLAIN:
        if isinstance(value, types):
            return make(value)
    return plain(asdict(value)) if is_dataclass(value) else str(value)


_PLAIN = (
    (bytes, lambda value: {"bytes": value.decode("latin-1")}),
    (str, str),
    (datetime, datetime.isoformat),
    (dict, lambda value: {str(name): plain(each) for name, each in value.items()}),
    ((list, tuple), lambda value: [plain(each) for each in value]),
    ((set, frozenset), lambda value: sorted(plain(each) for each in value)),
    ((bool, int, float, type(None)), lambda value: value),
)


def _without(facts, kind):
    return {name: value for name, value in facts.items() if name not in _PASSING[kind]}


# -- what is defined


def definitions(client):
    """Everything that is defined, as `ampsq config export --secrets` writes it."""
    return sorted(
        ([type(each).__name__, plain(each.elements())] for each in client.admin.definitions()),
        key=lambda pair: (pair[0], pair[1].get("name", pair[1].get("match", ""))),
    )


def topics(client):
    """All topics, without what their memory costs."""
    return {
        name: plain({fact: value for fact, value in state.as_dict().items() if fact != "bytes"})
        | {"type": client.admin.message_type(name)}
        for name, state in client.admin.topics().items()
    }


# -- queues and their messages


def _found(messages):
    return [
        {
            "bookmark": plain(each.bookmark), "key": each.key, "topic": each.topic, "body": plain(each.raw),
            "headers": each.headers, "deliveries": each.deliveries,
        }
        for each in messages
    ]  # fmt: skip


def _shortened(rows):
    if len(rows) <= _MOST:
        return rows
    return {"number": len(rows), "first": rows[:_ENDS], "last": rows[-_ENDS:]}


def stats(client):
    """The figures of each queue."""
    return {name: plain(client.admin.queue_stats(name).as_dict()) for name in client.admin.queues()}


def waiting(client):
    """The messages of each queue that are available, in the order of delivery."""
    return {name: _shortened(_found(client.sow(name))) for name in client.admin.queues()}


def explained(client):
    """The head of each queue, and each message in each queue that its topic feeds: where it is, and why."""
    known = {topic: _some(client, topic) for topic in client.admin.topics()}
    found = {}
    for name, queue in client.admin.queues().items():
        bookmarks = [each for topic, some in known.items() if queue.feeds_from(topic) for each in some]
        found[name] = [_explanation(client, name, each) for each in (None, *bookmarks)]
    return found


def _explanation(client, queue, bookmark):
    told = client.admin.explain(queue, bookmark).as_dict()
    return plain({**told, "sentence": None, "facts": _without(told["facts"], "explanation")})


def histories(client):
    """The life of each message of each topic, as far as it is told."""
    bookmarks = [each for topic in client.admin.topics() for each in _some(client, topic)]
    return {each: _history(client, each) for each in bookmarks}


def _some(client, topic):
    """The bookmarks of a topic's messages; of very many the first and the last ones."""
    rows = [row["bookmark"] for row in _messages(client, topic)]
    return rows if len(rows) <= _MOST else rows[:_ENDS] + rows[-_ENDS:]


def _history(client, bookmark):
    told = client.admin.history(bookmark).as_dict()
    # Queues have no order; what happened in several of them at one moment has theirs.
    queues = sorted(({**each, "sentence": None} for each in told["queues"]), key=lambda each: each["queue"])
    first, rest = told["events"][:1], told["events"][1:]
    rest.sort(key=lambda each: (each["at"] is None, each["at"] or 0, each["queue"]))
    return plain({**told, "queues": queues, "events": first + rest})


_LETTER = (
    "bookmark", "queue", "topic", "original", "reasons", "consumer_reason", "deliveries", "cancels", "history",
    "headers", "raw",
)  # fmt: skip


def letters(client):
    """The dead letters of each queue that has some, without their age."""
    found = {}
    for name in client.admin.queues():
        with contextlib.suppress(AmpsqError):
            rows = [{fact: plain(getattr(each, fact)) for fact in _LETTER} for each in client.admin.dead_letters(name)]
            if rows:
                found[name] = rows
    return found


# -- topics and records


def _messages(client, topic):
    with client.subscribe_topic(topic, bookmark="[epoch:now)") as replay:
        return [
            {
                "bookmark": str(message.bookmark),
                "topic": message.topic,
                "body": plain(message.raw),
                "headers": message.headers,
                "at": plain(message.timestamp),
                "type": message.message_type,
                "data": plain(message.data),
            }
            for message in replay
        ]


def replays(client):
    """Each topic from its first message to its last one."""
    return {name: _shortened(_messages(client, name)) for name in client.admin.topics()}


#: Topic, and what is asked of its records.
_QUERIES = (
    ("positions", {"filter": "/qty > 2"}),
    ("positions", {"order_by": "/qty DESC", "top_n": 2, "skip_n": 1}),
    ("positions", {"sow_keys": ["EUR", "USD", "none"]}),
    ("positions", {"filter": "/symbol LIKE '^[EU]'", "order_by": ["/qty", "/symbol DESC"]}),
)


def records(client):
    """The records of each topic with a key, some queries of them, and the rows of each view."""
    keyed = [name for name, state in client.admin.topics().items() if state.key]
    found = {name: _found(client.sow(name)) for name in keyed}
    for topic, asked in _QUERIES:
        if topic in keyed:
            found[f"{topic} {asked}"] = _found(client.sow(topic, **asked))
    for name in keyed:
        # As they were at a message in the middle of the log.
        rows = _messages(client, name)
        if rows:
            place = rows[len(rows) // 2]["bookmark"]
            try:
                found[f"{name} at {place}"] = _found(client.sow(name, bookmark=place))
            except AmpsqError as error:
                found[f"{name} at {place}"] = type(error).__name__
    return found | {name: _found(client.sow(name)) for name in client.admin.views()}


# -- who is there


def publishers(client):
    """Each publisher: its last number and message, and who is logged on."""
    return [plain(each._asdict()) for each in client.admin.publishers()]


def readers(client):
    """The subscriptions to topics that report."""
    return [{**plain(each.as_dict()), "oldest": each.oldest is not None} for each in client.admin.readers()]


def durable(client):
    """Return the place of each durable subscription, by the store that is beside the logs."""
    prefix = key(client.instance, "bookmarks", "")
    names = sorted(each.decode().removeprefix(prefix) for each in client._store.redis.scan_iter(match=f"{prefix}*"))
    found = {}
    for name in names:
        kept = client._store.run(RedisBookmarkStore().load(SubscriptionName(client.instance, name)))
        passed = {f"{topic} {origin}": last for (topic, origin), last in kept.passed.items()}
        found[name] = plain({"floor": kept.floor, "topics": kept.topics, "beyond": kept.beyond, "passed": passed})
    return found


# -- actions, replication, jobs


def actions(client):
    """Each action: how far it has come, and its events that failed."""
    return {
        name: {
            "state": plain(state.as_dict()),
            "failed": [plain(each.as_dict()) for each in client.admin.failed_events(name)],
        }
        for name, state in client.admin.actions().items()
    }


def replication(client):
    """Return the state of replication: links, owners, sync destinations, what a new incarnation waits for."""
    told = client.admin.replication().as_dict()
    links = [_without(each, "link") for each in told["links"]]
    queues = [_without(each, "ownership") for each in told["queues"]]
    sync = {
        name: {"downgraded": state.downgraded, "behind": state.age > 0, "connected": state.is_connected}
        for name, state in client.admin.sync_states().items()
    }
    return plain({**told, "links": links, "queues": queues, "sync": sync})


def jobs(client):
    """Return the progress of each job that writes rows, and which of its attempts count."""
    names = sorted(each.decode() for each in client._store.redis.hkeys(key(client.instance, "jobs")))
    call = client._store.call
    return {
        name: {
            "last": plain(call(last_epoch(client.instance, name))),
            "decided": plain(call(decided(client.instance, name))),
        }
        for name in names
    }


def checked(client):
    """Return the result of checking each queue but one that is being rebuilt: the number looked at, and no fault."""
    rebuilding = client._store.redis.zrange(key(client.instance, "rebuilding"), 0, -1)
    names = [name for name in client.admin.queues() if name.encode() not in rebuilding]
    found = client.admin.check(*names) if names else []
    return {
        each.queue: plain({k: v for k, v in each.as_dict().items() if k not in ("seconds", "queue")}) for each in found
    }


_QUESTIONS = (
    definitions, topics, stats, waiting, explained, histories, letters, replays, records, publishers, readers, durable,
    actions, replication, jobs, checked,
)  # fmt: skip


def ask(url, instance):
    """Ask everything of one instance; nothing is changed by it."""
    with contextlib.closing(Client(url, instance=instance)) as client:
        facts = {"instance": client.instance, "origin": client.origin}
        return facts | {question.__name__: question(client) for question in _QUESTIONS}
