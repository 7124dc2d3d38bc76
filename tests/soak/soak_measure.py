"""Measurements of the soak when nothing is under way: every kind of key, the servers, and living processes."""

from __future__ import annotations

import contextlib
import re
import signal
import time
from collections import Counter, defaultdict

from ampsq.protocol.schema import INSTANCES, KEYS

__all__ = ["Look", "keys_of", "kind_of", "measure", "processes_of", "server_of"]

_SIZES = {b"hash": "hlen", b"zset": "zcard", b"stream": "xlen", b"list": "llen", b"set": "scard"}


def _pattern(suffix):
    parts = re.split(r"<[^>]*>", suffix)
    return re.compile(r"\{[^}]*\}" + "(.+)".join(map(re.escape, parts)) + r"\Z", re.DOTALL)


# What has more of a text of its own is tried first: `:s:<subscription>` would match its inbox, too.
_PATTERNS = sorted(
    ((_pattern(each.suffix), name) for name, each in KEYS.items()),
    key=lambda pair: -len(re.sub(r"<[^>]*>", "", KEYS[pair[1]].suffix)),
)


def kind_of(key):
    """The name in the schema of a key of the server; of one that the schema does not know, `unknown`."""
    if key == INSTANCES:
        return "instances"
    return next((name for pattern, name in _PATTERNS if pattern.match(key)), "unknown")


def keys_of(redis):
    """Kind -> Counter of its keys, elements and bytes, of all keys of a server."""
    found = defaultdict(Counter)
    keys = list(redis.scan_iter(count=1000))
    with redis.pipeline(transaction=False) as ask:
        for key in keys:
            ask.type(key)
        types = ask.execute()
        for key, type_ in zip(keys, types, strict=True):
            getattr(ask, _SIZES[type_])(key) if type_ in _SIZES else ask.exists(key)
            ask.memory_usage(key, samples=0)
        answers = ask.execute()
    for key, size, used in zip(keys, answers[::2], answers[1::2], strict=True):
        kind = found[kind_of(key.decode())]
        kind["keys"] += 1
        kind["elements"] += size
        kind["bytes"] += used or 0
    return found


def server_of(host):
    """Return what a server uses beside its keys; its Lua heap is looked at behind a collection, so it is exact."""
    with host.redis() as redis:
        heap = redis.eval("collectgarbage() return collectgarbage('count') * 1024", 0)
        memory, clients = redis.info("memory"), redis.info("clients")
    return {
        "heap": heap,
        "vm": memory["used_memory_vm_eval"],
        "scripts": memory["used_memory_scripts"],
        "clients": clients["connected_clients"],
    }


def processes_of(children):
    """Name -> the least that each of the processes tells of itself in three answers: a call that ends is in some."""
    answers = [_ask(children) for _ in range(3)]
    return {name: {what: min(each[name][what] for each in answers) for what in answers[0][name]} for name in answers[0]}


def _ask(children):
    before = {child.name: len(child.measures()) for child in children}
    silent, deadline = list(children), time.monotonic() + 60.0
    while silent:
        assert time.monotonic() < deadline, f"no answer of {[child.name for child in silent]}"
        # Again and again: Python notices a signal that comes just before its main thread waits with the next one only.
        for child in silent:
            child.process.send_signal(signal.SIGUSR1)
        time.sleep(0.5)  # time to answer
        silent = [child for child in silent if len(child.measures()) <= before[child.name]]
    return {child.name: child.measures()[-1] for child in children}


class Look:
    """All that is seen at one moment.

    Attributes:
        settled: messages that all queues have settled by then.
        lines: (name, unit) -> (whose life it is, value).
    """

    def __init__(self, settled):
        self.settled, self.lines = settled, {}

    def add(self, name, unit, value, life=0):
        self.lines[name, unit] = (life, value)


def measure(settled, hosts, children):
    """Look at everything.

    Args:
        settled: messages that all queues have settled.
        hosts: the servers.
        children: the processes that live as long as the run.
    """
    look = Look(settled)
    total = defaultdict(Counter)
    for host in hosts:
        with host.redis() as redis:
            for kind, counts in keys_of(redis).items():
                total[kind] += counts
    for kind in [*KEYS, "instances", "unknown"]:
        for unit in ("keys", "elements", "bytes"):
            look.add(f"key {kind}", unit, total[kind][unit])
    for host in hosts:
        for name, value in server_of(host).items():
            unit = {"clients": "files"}.get(name, "heap")
            look.add(f"server {host.name}, {name}", unit, value, host.pid)
    with contextlib.suppress(FileNotFoundError):
        for name, told in processes_of(children).items():
            for unit in ("memory", "threads", "files"):
                look.add(f"process {name}", unit, told[unit], told["pid"])
            look.add(f"process {name}, resident", "shown", told["resident"], told["pid"])
    return look
