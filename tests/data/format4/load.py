"""Instances as text: every key in a line of JSON, read from any server and loaded into any other.

There is no payload of DUMP in it, which servers of other versions refuse. Bytes are text of Latin-1, a letter a byte.
Lines are sorted by key, and what has no order of its own is sorted, too, so that the same content is the same text.
"""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

__all__ = ["DUMP", "SAID", "dumped", "load", "read_dump", "remove", "said", "write_dump"]

DUMP = Path(__file__).with_name("instance.jsonl.gz")
SAID = Path(__file__).with_name("said.json.gz")

#: The one key outside of the instances: which there are. Of it the dump has those that it is of.
_INSTANCES = "ampsq:instances"


def _text(value):
    return value.decode("latin-1")


def _pairs(flat):
    return list(zip(flat[::2], flat[1::2], strict=True))


def _score(value):
    """A score as text: the shortest one that is this double, whatever the server writes."""
    number = float(value)
    return str(int(number)) if number.is_integer() and abs(number) < 2**53 else repr(number)


def _zset(client, key):
    # As a plain command: redis-py would make floats of the scores.
    flat = client.execute_command("ZRANGE", key, 0, -1, "WITHSCORES")
    pairs = flat if flat and isinstance(flat[0], (tuple, list)) else _pairs(flat)
    return sorted([_text(member), _score(score)] for member, score in pairs)


def _stream(client, key):
    facts = client.xinfo_stream(key)
    groups = []
    for group in client.xinfo_groups(key):
        held = group["pending"], group["consumers"]
        assert held == (0, 0), f"{key}: what consumers of a group hold is not kept"
        groups.append([_text(group["name"]), _text(group["last-delivered-id"]), group["entries-read"]])
    rows = client.execute_command("XRANGE", key, "-", "+")
    entries = [[_text(row[0]), [_text(text) for text in _flat(row[1])]] for row in rows]
    return {
        "entries": entries,
        "last": _text(facts["last-generated-id"]),
        "added": facts["entries-added"],
        "deleted": _text(facts["max-deleted-entry-id"]),
        "groups": sorted(groups),
    }


def _flat(fields):
    """The fields of an entry in their order, some of which may be there twice."""
    return [text for pair in fields.items() for text in pair] if isinstance(fields, dict) else list(fields)


_READ = {
    "string": lambda client, key: _text(client.get(key)),
    "hash": lambda client, key: sorted([_text(k), _text(v)] for k, v in client.hgetall(key).items()),
    "list": lambda client, key: [_text(value) for value in client.lrange(key, 0, -1)],
    "set": lambda client, key: sorted(_text(value) for value in client.smembers(key)),
    "zset": _zset,
    "stream": _stream,
}


def _line(client, key, instances):
    kind = _text(client.type(key))
    value = _READ[kind](client, key)
    if key == _INSTANCES.encode():
        value = [name for name in value if name in instances]
    line = {"key": _text(key), "type": kind, "value": value}
    expires_at = client.execute_command("PEXPIRETIME", key)
    return line | ({"expires_at": expires_at} if expires_at >= 0 else {})


def dumped(client, instances):
    """Read all keys of instances, and the set of instances as far as it has these: a line each, as Python has it."""
    keys = {key for name in instances for key in client.scan_iter(match="{" + name + "}:*", count=1000)}
    return [_line(client, key, instances) for key in sorted({*keys, _INSTANCES.encode()})]


def write_dump(lines, path=DUMP):
    """Write lines as a file whose bytes depend on them alone."""
    text = "".join(json.dumps(line, sort_keys=True, separators=(",", ":")) + "\n" for line in lines)
    _write(path, text.encode())


def read_dump(path=DUMP):
    """Read the lines of a file."""
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).decode().splitlines()]


def write_said(answers, path=SAID):
    """Write what the public API says, as a file whose bytes depend on that alone."""
    _write(path, (json.dumps(answers, sort_keys=True, indent=1) + "\n").encode())


def said(path=SAID):
    """Read what the public API said: instance -> question -> answer."""
    return json.loads(gzip.decompress(path.read_bytes()))


def _write(path, data):
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=0) as file:
        file.write(data)
    path.write_bytes(packed.getvalue())


def _bytes(text):
    return text.encode("latin-1")


def _load_stream(pipe, key, value):
    if not value["entries"]:
        # An empty stream is made by a group that goes again.
        pipe.execute_command("XGROUP", "CREATE", key, "none", "0", "MKSTREAM")
        pipe.execute_command("XGROUP", "DESTROY", key, "none")
    for entry, fields in value["entries"]:
        pipe.execute_command("XADD", key, entry, *map(_bytes, fields))
    ids = ("ENTRIESADDED", value["added"], "MAXDELETEDID", value["deleted"])
    pipe.execute_command("XSETID", key, value["last"], *ids)
    for name, last, read in value["groups"]:
        known = [] if read is None else ["ENTRIESREAD", read]
        pipe.execute_command("XGROUP", "CREATE", key, _bytes(name), last, *known)


def _load_value(pipe, key, kind, value):
    if kind == "string":
        pipe.set(key, _bytes(value))
    elif kind == "hash":
        pipe.execute_command("HSET", key, *(_bytes(text) for pair in value for text in pair))
    elif kind == "list":
        pipe.execute_command("RPUSH", key, *map(_bytes, value))
    elif kind == "set":
        pipe.execute_command("SADD", key, *map(_bytes, value))
    elif kind == "zset":
        pipe.execute_command("ZADD", key, *(text for member, score in value for text in (score, _bytes(member))))
    else:
        _load_stream(pipe, key, value)


def load(client, lines=None):
    """Load what a dump has, by default ours, in the place of whatever its instances had; other keys stay."""
    lines = read_dump() if lines is None else lines
    remove(client, lines)
    with client.pipeline(transaction=False) as pipe:
        for line in lines:
            key = _bytes(line["key"])
            _load_value(pipe, key, line["type"], line["value"])
            if "expires_at" in line:
                pipe.execute_command("PEXPIREAT", key, line["expires_at"])
        pipe.execute()


def instances_of(lines):
    """The names of the instances that a dump is of."""
    return next(line["value"] for line in lines if line["key"] == _INSTANCES)


def remove(client, lines=None):
    """Remove the instances of a dump, by default ours, with every key that they have by now; other keys stay."""
    names = instances_of(read_dump() if lines is None else lines)
    for name in names:
        for key in list(client.scan_iter(match="{" + name + "}:*", count=1000)):
            client.delete(key)
    client.srem(_INSTANCES, *names)
