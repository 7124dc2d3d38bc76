"""Kill upgrades of the dump of format 4 at every kind of moment, by a seed, and see that each ends alike.

    python tests/operations/upgrade_kills.py unix:///tmp/s --seeds 1000

A seed says how much a call does, how many upgraders are killed, before or just after which of their calls, and whether
another one is at work beside. A process that is killed has read no answer to its last call. Afterwards one upgrade is
let go to its end, and all keys are compared with those that an upgrade without a kill leaves.
"""

# ruff: noqa: T201  (a program, which prints)

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import sys
from collections import Counter
from pathlib import Path

import redis

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from data.format4.load import read_dump
from data.format4.upgraded import prepare, upgrade

from ampsq.transport.store import Connection

__all__ = ["main"]

NYC = "format4-nyc"
#: Queues of a call, and about how many calls an upgrade makes then.
LIMITS = {1: 75, 2: 40, 5: 20, 100: 7}
#: All that a server has, key by key, in one call; of the timetable without the times.
CONTENT = """
local commands = {string = {'GET'}, hash = {'HGETALL'}, list = {'LRANGE', 0, -1}, set = {'SMEMBERS'},
  zset = {'ZRANGE', 0, -1, 'WITHSCORES'}, stream = {'XRANGE', '-', '+'}}
local out = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  local kind, parts = redis.call('TYPE', key).ok, {}
  if string.match(key, ':due$') then
    parts = redis.call('ZRANGE', key, 0, -1)
  else
    local found = redis.call(commands[kind][1], key, unpack(commands[kind], 2))
    if kind == 'string' then found = {found} end
    local step = kind == 'hash' and 2 or 1
    for i = 1, #found, step do parts[#parts + 1] = cjson.encode({found[i], step == 2 and found[i + 1] or ''}) end
  end
  if kind == 'hash' or kind == 'set' then table.sort(parts) end
  if kind == 'stream' then parts[#parts + 1] = redis.call('XINFO', 'STREAM', key)[8] end
  out[#out + 1], out[#out + 2] = key, redis.sha1hex(table.concat(parts, '\\n'))
end
return out
"""


def content_of(plain):
    """Return the content of each key, as a digest."""
    found = plain.eval(CONTENT, 0)
    return dict(zip(found[::2], found[1::2], strict=True))


def only(lines, instance):
    """The lines of one instance, as a dump of its own."""
    own = [line for line in lines if line["key"].startswith("{" + instance + "}")]
    return [{"key": "ampsq:instances", "type": "set", "value": [instance]}, *own]


def be_killed_at(number, *, is_sent):
    """Let this process be killed at one of its calls: before it is sent, or just then."""
    send, sent = Connection.send, [0]

    def counted(connection, call, *, whole=False):
        sent[0] += 1
        if sent[0] == number and not is_sent:
            os.kill(os.getpid(), signal.SIGKILL)
        send(connection, call, whole=whole)
        if sent[0] == number:
            os.kill(os.getpid(), signal.SIGKILL)

    Connection.send = counted


def forked(url, limit, number, *, is_sent):
    """Begin an upgrade in a process of its own that will be killed; without a number it is not."""
    if child := os.fork():
        return child
    code = 1
    try:
        if number:
            be_killed_at(number, is_sent=is_sent)
        upgrade(url, NYC, limit=limit)
        code = 0
    finally:
        os._exit(code)


def waited(child):
    """Return how a process ended: ``killed``, ``done``; anything else is a fault."""
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return "killed"
    return "done" if os.waitstatus_to_exitcode(status) == 0 else "failed"


def run_seed(url, seed):
    """The upgraders of one seed, until all are over; gives how they ended."""
    chance = random.Random(seed)  # noqa: S311  (chosen by a seed)
    limit = chance.choice(list(LIMITS))
    ends = Counter()
    for _ in range(chance.randint(1, 3)):
        children = [forked(url, limit, chance.randint(1, LIMITS[limit]), is_sent=chance.random() < 0.6)]
        if chance.random() < 0.3:
            beside = chance.choice([0, chance.randint(1, LIMITS[limit])])
            children.append(forked(url, limit, beside, is_sent=True))
        ends.update(map(waited, children))
    return ends


def main():
    """Run seeds; exit code 1 where one of them ended in another way, or where nothing was killed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="of a server that has nothing else, as redis://localhost:6379")
    parser.add_argument("--seeds", type=int, default=30, help="how many (30)")
    parser.add_argument("--first", type=int, default=1, help="the first one (1)")
    settings = parser.parse_args()
    lines, ends, wrong = only(read_dump(), NYC), Counter(), []
    with contextlib.closing(redis.Redis.from_url(settings.url)) as plain:
        plain.flushall()
        prepare(plain, lines)
        upgrade(settings.url, NYC)
        expected = content_of(plain)
        for seed in range(settings.first, settings.first + settings.seeds):
            plain.flushall()
            prepare(plain, lines)
            plain.script_flush()
            ends += run_seed(settings.url, seed)
            upgrade(settings.url, NYC)
            if content_of(plain) != expected:
                wrong.append(seed)
    print(f"{settings.seeds} seeds: {ends['killed']} upgraders killed, {ends['done']} came to their end before")
    print(f"{ends['failed']} failed; seeds that ended in another way: {wrong}")
    # One that nothing hits proves nothing.
    sys.exit(bool(wrong or ends["failed"] or ends["killed"] < settings.seeds))


if __name__ == "__main__":
    main()
