"""Random histories of a topic with a key against a dict: what is published, merged, deleted, ends, and is trimmed."""

from __future__ import annotations

import itertools
import json
import os
from decimal import Decimal

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from queue_machine import examples, run_machine
from real import Real

from ampsq.base.errors import RecordsBehind
from ampsq.expressions import parse
from ampsq.transport.store import Store

_instances = itertools.count()
IDS = st.sampled_from(["a", "b|c", "\\", 1, 2, 2.5, 12345678901234567890])
LIVES = st.sampled_from([None, None, None, 100, 700])
#: Numbers as they are written, which decoding would not keep, among them.
LEAVES = st.sampled_from(
    [
        "1",
        "-0.0",
        "1e400",
        "0.10000000000000000001",
        "98765432109876543210",
        "null",
        "true",
        '"}{\\"]["',
        '"\\u0041"',
        "[]",
    ]
)
NAMES = st.sampled_from(["x", "y", "\\u0078", "o", 'q\\"', "u\u00e9"])
OBJECTS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(st.tuples(NAMES, inner), max_size=3).map(
            lambda members: "{ " + " , ".join(f'"{name}" :{value}' for name, value in members) + "}"
        ),
        st.lists(inner, max_size=2).map(lambda items: f"[{', '.join(items)}]"),
    ),
    max_leaves=6,
)
MEMBERS = st.lists(st.tuples(NAMES, OBJECTS), max_size=3)


def written(key, members):
    return "{" + ",".join([f'"id": {json.dumps(key)}', *(f'"{name}":{value}' for name, value in members)]) + "}"


def read(text):
    return json.loads(text, parse_float=Decimal)


def merged(base, delta):
    if not isinstance(base, dict) or not isinstance(delta, dict):
        return delta
    return base | {name: merged(base.get(name), value) for name, value in delta.items()}


def key_text(key):
    return str(key)


class RecordMachine(RuleBasedStateMachine):
    """Subclassed with the server's `url`. `model`: key -> content, and when it ends or None."""

    url = ""

    def __init__(self):
        super().__init__()
        self.store = Store(self.url, f"records-{os.getpid()}-{next(_instances)}")
        self.real, self.now, self.model, self.life, self.log_kept = Real(self.store), 1_000, {}, 0, True

    def teardown(self):
        keys = list(self.store.redis.scan_iter(match=self.real.tag + ":*", count=1000))
        if keys:
            self.store.redis.delete(*keys)
        self.store.close()

    def run(self, name, *arguments):
        return self.real.run(name, self.now, *arguments)

    def caught_up(self, name, *arguments):
        """A call that needs the records to be at the log's end."""
        try:
            return self.run(name, *arguments)
        except RecordsBehind:
            while self.real.run("catch_up_records", "t")[0]:
                pass
            return self.run(name, *arguments)

    def version(self):
        return self.real.read(("HGET", ":instance", "catalog"))[0]

    def define_topic(self, keyed):
        paths = f"{parse('/id', 'filter').json}\t/id" if keyed else ""
        self.run("define_topic", self.version(), "t", "{}", self.life, paths, "")

    @initialize(life=st.sampled_from([0, 0, 500]))
    def define(self, life):
        self.life = life
        self.run("open", "i", "one")
        self.define_topic(True)

    def live(self, key):
        found = self.model.get(key_text(key))
        return found if found and (found[1] is None or found[1] > self.now) else None

    def put(self, key, content, life):
        life = life or self.life or None
        self.model[key_text(key)] = (content, None if life is None else self.now + life)

    @rule(messages=st.lists(st.tuples(IDS, MEMBERS), min_size=1, max_size=3), life=LIVES)
    def publish(self, messages, life):
        values = [text for key, members in messages for text in (written(key, members), life or "")]
        self.run("publish", "t", "", "", "be", *values)
        for key, members in messages:
            self.put(key, read(written(key, members)), life)

    @rule(messages=st.lists(st.tuples(IDS, MEMBERS), min_size=1, max_size=3), life=LIVES)
    def delta_publish(self, messages, life):
        values = [text for key, members in messages for text in (written(key, members), life or "")]
        self.caught_up("publish", "t", "", "", "me", *values)
        for number, (key, members) in enumerate(messages):
            same = [each for each, _ in messages[:number] if each == key]
            found = self.model[key_text(key)] if same else self.live(key)
            self.put(key, merged(found[0] if found else {}, read(written(key, members))), life)

    @rule(keys=st.lists(IDS, min_size=1, max_size=3))
    def delete(self, keys):
        there = {key_text(key) for key in keys if self.live(key)}
        reply = self.caught_up("sow_delete", "t", "", "", "", "", "keys", *map(key_text, keys))
        assert reply == ["", len(there), 0]
        for key in there:
            del self.model[key]

    @rule(key=IDS, members=MEMBERS, life=LIVES)
    def write_without_ampsq(self, key, members, life):
        info = self.store.redis.exists(f"{self.real.tag}:log:t")
        last = self.store.redis.xinfo_stream(f"{self.real.tag}:log:t")["last-generated-id"].decode() if info else "0-0"
        ms, sequence = map(int, last.split("-"))
        stream_id = f"{self.now}-0" if self.now > ms else f"{ms}-{sequence + 1}"
        fields = {"b": written(key, members)} | ({"e": life} if life else {})
        self.store.redis.xadd(f"{self.real.tag}:log:t", fields, id=stream_id)
        life = life or self.life or None
        ends = None if life is None else int(stream_id.split("-", maxsplit=1)[0]) + life
        self.model[key_text(key)] = (read(written(key, members)), ends)

    @rule(ms=st.sampled_from([1, 50, 400, 1_000]))
    def time_passes(self, ms):
        self.now += ms

    @rule()
    def sweep(self):
        for _ in range(50):
            if not self.run("sweep")[0]:
                return
        raise AssertionError("the sweep never ends")

    @rule(age=st.sampled_from([0, 0, 300]))
    def trim(self, age):
        before = self.store.redis.xlen(f"{self.real.tag}:log:t")
        self.run("trim_log", self.version(), "t", age, "", "", "0-0", 0, 0)
        self.log_kept = self.log_kept and self.store.redis.xlen(f"{self.real.tag}:log:t") == before

    @rule()
    def make_anew(self):
        """While the log has everything, the records can be made of it."""
        if self.log_kept:
            self.define_topic(False)
            self.define_topic(True)

    @invariant()
    def the_records_are_those_of_the_model(self):
        if not self.real.read(("EXISTS", ":sow:t"))[0]:
            return
        while self.real.run("catch_up_records", "t")[0]:
            pass
        after, *flat = self.run("browse_records", "t", "", "")
        assert after == ""
        found = {}
        for i in range(0, len(flat), 3):
            fields = dict(zip(flat[i + 2][::2], flat[i + 2][1::2], strict=True))
            found[flat[i]] = read(fields["b"])
        live = {key: content for key, (content, ends) in self.model.items() if ends is None or ends > self.now}
        assert found == live


@pytest.mark.timeout(600)
@examples(6, 60)
def test_random_histories_of_records_agree_with_a_dict(valkey, examples):
    run_machine(RecordMachine, valkey.url, examples)
