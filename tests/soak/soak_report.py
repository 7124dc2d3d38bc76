"""Report of a run of the soak: legs, faults, growth, and what is wrong."""

from __future__ import annotations

import json
from collections import Counter
from types import SimpleNamespace

from observing import eventually
from soak_judge import (
    CAPPED,
    KILLS,
    LIMITS,
    MEMORY_LIMITS,
    MESSAGES,
    REPLICAS_BEHIND,
    REWRITES,
    Leg,
    account,
    growth_table,
    judge_capped,
    judge_growth,
    needed,
    table,
)
from soak_ledger import Consumed, Published
from soak_world import CONSUMED, TOPICS, is_alert, is_barrier, is_rejected, launcher

from ampsq import Client

__all__ = ["Report"]


class Report:
    """Judges a run whose servers and processes are still there.

    Args:
        soak: the run.
        seconds: for how long it was to go on; what has to go through goes by that.
        lasted: for how long it did.
    """

    def __init__(self, soak, seconds, lasted):
        self._soak, self._seconds, self.lasted = soak, seconds, lasted
        self.looks, self.findings, self.legs, self.notes = soak.looks, [], [], []
        names = [name for names in TOPICS.values() for name in names]
        self._published = {name: Published(soak.folder, name) for name in names}
        self._told = {name: each.all_told() for name, each in self._published.items()}
        self._attempted = {name: each.next for name, each in self._published.items()}

    def account(self):
        """Look at all that was written down and at the servers; fills `legs` and `findings`."""
        self._publishers()
        recorded = self._queues()
        self._topics(recorded)
        self._figures(recorded)
        self._alerts(recorded)
        self._records()
        self._faults()
        self._check()
        self.growth = list(self._growth())
        self.findings += [each.finding for each in self.growth if each.finding]
        self.findings += [leg.finding for leg in self.legs if leg.finding]

    def _leg(self, name, through):
        self.legs.append(Leg(name, through, needed(MESSAGES, self._seconds)))

    def _publishers(self):
        names = {
            "plain": "publisher, plain", "guaranteed": "publisher, store in a file", "tasks": "publisher, asyncio",
            "kept": "publisher, asyncio, store, fsync", "here": "publisher, asyncio, replicated",
            "there": "publisher, other instance, fsync", "spark": "Spark's writer",
        }  # fmt: skip
        for by, name in names.items():
            if by != "spark" or self._soak.has_spark:
                self._leg(name, len(self._told[by]))
        self._leg("changes of records", self._lines("changed"))

    def _lines(self, name):
        path = self._soak.folder / name
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def _consumed(self, name):
        path = self._soak.folder / "consumed" / name
        return Consumed(path.read_text().splitlines() if path.exists() else ())

    def _of(self, topic):
        return {by: self._told[by] for by in TOPICS[topic]}

    def _account(self, name, topic, consumed, wanted):
        found = account(self._of(topic), self._attempted, consumed, wanted)
        self.findings += [f"{name}: {each}" for each in found]

    def _queues(self):
        """Each queue against its publishers; gives what was recorded of each topic, as its consumers saw it."""
        titles = {
            "main": "Worker", "ranked": "priority, acknowledged one by one", "chosen": "filters, asyncio",
            "days": "barriers", "cli": "ampsq worker", "shared": "queue of two instances", "spark": "rows of Spark",
        }  # fmt: skip
        recorded = {}
        for name, (topic, wanted) in CONSUMED.items():
            consumed = self._consumed(name)
            self._account(name, topic, consumed, wanted)
            if name != "spark" or self._soak.has_spark:
                self._leg(titles[name], len(consumed.handled))
            self.notes.append(f"{name}: {consumed.again} came again")
            recorded[name] = set(consumed.handled)
        self._leg("queue of two instances, at the other", len(self._consumed("shared-soak-b").handled))
        barriers = self._consumed("barriers")
        self._account("barriers", "sales", barriers, is_barrier)
        self.notes.append(f"{len(barriers.handled)} barriers")
        recorded["days"] |= set(barriers.handled)
        letters = self._consumed("letters")
        self._leg("dead letters", len(letters.handled))
        if set(letters.handled) != {each for each in recorded["main"] if is_rejected(each[1])}:
            self.findings.append("dead letters: they are not those of the messages that were given up")
        self.findings += [f"dead letters: {each} twice" for each, at in letters.handled.items() if len(at) > 1]
        for one in ("ranked", "days", "cli"):
            if recorded[one] != recorded["main"]:
                self.findings.append(f"{one}: other messages than main: {sorted(recorded[one] ^ recorded['main'])[:5]}")
        return recorded

    def _topics(self, recorded):
        titles = {"topic-live": "topic, live, asyncio", "topic-file": "topic, durable in a file",
                  "topic-server": "topic, durable on the server"}  # fmt: skip
        for name, title in titles.items():
            consumed = self._consumed(name)
            self._account(name, "sales", consumed, lambda _by, _number: True)
            self._leg(title, len(consumed.handled))
            if missing := recorded["main"] - set(consumed.handled):
                self.findings.append(f"{name}: {len(missing)} recorded messages are missing, as {sorted(missing)[:5]}")

    def _figures(self, recorded):
        """Check that the queues' counts are what their consumers wrote down."""
        total = len(recorded["main"])
        with Client(self._soak.here.url, instance=self._soak.here.name) as client:
            stats = {name: client.admin.queue_stats(name) for name in client.admin.queues()}
        with Client(self._soak.there.url, instance=self._soak.there.name) as client:
            other = client.admin.queue_stats("shared")
        wanted = {
            "main": ("acknowledged", "expired", total), "ranked": ("acknowledged", "expired", total),
            "chosen": ("acknowledged", "filtered", total), "cli": ("acknowledged", "expired", total),
            "ring": ("acknowledged", "evicted", total), "quick": ("expired", "missing", total),
            "letters": ("acknowledged", "expired", stats["main"].expired),
            "spark": ("acknowledged", "expired", len(recorded["spark"])),
        }  # fmt: skip
        for name, (one, two, number) in wanted.items():
            if getattr(stats[name], one) + getattr(stats[name], two) != number:
                found = {each: getattr(stats[name], each) for each in (one, two)}
                self.findings.append(f"{name}: settled {found}, and there were {number:,}")
        for name, each in (("here", stats["shared"]), ("there", other)):
            if each.acknowledged != len(recorded["shared"]):
                self.findings.append(f"shared, {name}: {each.acknowledged:,} settled of {len(recorded['shared']):,}")
        self._leg("ring", stats["ring"].acknowledged + stats["ring"].evicted)
        self._leg("expiration", stats["quick"].expired)
        self._leg("rows of a view", self._lines("consumed/view"))

    def _alerts(self, recorded):
        came = Counter()
        for body in self._soak.hook.calls:
            order = json.loads(body)
            came[order["by"], order["n"]] += 1
        wanted = {each for each in recorded["main"] if is_alert(each[1])}
        if set(came) != wanted:
            self.findings.append(f"webhooks: {len(wanted - set(came))} are missing, {len(set(came) - wanted)} too many")
        self._leg("webhooks", len(came))

    def _records(self):
        self._leg("subscription to records", self._lines("consumed/records"))
        self._leg("queue of changes", self._lines("consumed/changes"))

        def is_alike():
            with Client(self._soak.here.url, instance=self._soak.here.name) as client:
                records = {record.key: record.data for record in client.sow("shelves")}
            return records == json.loads((self._soak.folder / "records").read_text())

        try:
            eventually(is_alike, within=20.0)
        except AssertionError:
            self.findings.append("shelves: the subscriber's records are not those of the topic")

    def _faults(self):
        soak = self._soak
        refused = self._lines("refused")
        under_load = [each for each in soak.rewrites if each[0] and each[1] > 0]
        self.faults = [
            Leg("kills that hit", len(soak.kills), needed(KILLS, self._seconds)),
            Leg("append-only file rewritten under load", len(under_load), needed(REWRITES, self._seconds)),
            Leg("memory limit reached and left", len(soak.limits), needed(MEMORY_LIMITS, self._seconds)),
            Leg("replica stopped and behind", len([each for each in soak.behind if each > 0]),
                needed(REPLICAS_BEHIND, self._seconds)),
        ]  # fmt: skip
        self.findings += [each.finding for each in self.faults if each.finding]
        self.notes += [
            "killed: " + ", ".join(f"{n} {who}" for who, n in Counter(name for name, _ in soak.kills).items()),
            f"{refused} publishes refused by a full server; the replica was behind by {soak.behind} bytes",
        ]

    def _check(self):
        for host in (self._soak.here, self._soak.there):
            with Client(host.url, instance=host.name, retry_timeout="60s") as client:
                for checked in client.admin.check():
                    if checked.differences or checked.undecided:
                        self.findings.append(f"check of {host.name}: {checked}")

    def _growth(self):
        """Each line that was ever anything, of its last life."""
        # Caches fill, scripts are used for the first time and servers die in the first third.
        counted = self.looks[len(self.looks) // 3 :]
        for name, unit in counted[-1].lines:
            if unit not in LIMITS:
                continue
            points = [(look.settled, look.lines[name, unit]) for look in counted if (name, unit) in look.lines]
            life = points[-1][1][0]
            line = [(settled, value) for settled, (whose, value) in points if whose == life]
            if any(value for _, value in line):
                yield self._line(name, unit, line)

    def _line(self, name, unit, line):
        kind = name.removeprefix("key ")
        if kind in CAPPED and unit != "keys":
            keys = self.looks[-1].lines[name, "keys"][1]
            elements = self.looks[-1].lines[name, "elements"][1]
            return judge_capped(name, unit, line, elements, CAPPED[kind] * keys)
        return judge_growth(name, unit, line)

    def compare_replica(self):
        """Once nothing changes any more, the replica has every key that its server has, and the same in it."""
        soak = self._soak
        with soak.here.redis() as redis, soak.replica.redis() as copy:

            def is_level():
                ours, theirs = redis.info("replication"), copy.info("replication")
                return (
                    theirs["master_link_status"] == "up" and theirs["slave_repl_offset"] == ours["master_repl_offset"]
                )

            eventually(is_level, within=60.0)
            read = launcher().snapshot_of
            one, two = (read(SimpleNamespace(instance=soak.here.name, redis=each)) for each in (redis, copy))
            if one != two:
                differing = [name for name in one.keys() | two.keys() if one.get(name) != two.get(name)]
                self.findings.append(f"replica: other contents than its server in {sorted(differing)[:5]}")

    def text(self):
        """All tables, and what is wrong."""
        legs = table(["leg", "went through", "needed"], [(each.name, each.through, each.need) for each in self.legs])
        faults = table(["fault", "times", "needed"], [(each.name, each.through, each.need) for each in self.faults])
        settled = self.looks[-1].settled
        growth = growth_table(self.growth)
        head = f"{self.lasted:.0f} s, {settled:,} messages settled, {len(self.looks)} looks"
        wrong = "\n".join(f"WRONG: {each}" for each in self.findings) or "nothing lost, doubled or grown"
        return "\n\n".join([head, legs, faults, growth, "\n".join(self.notes), wrong])
