"""The scripts on a server, and what they speak in."""

from __future__ import annotations

from ampsq.protocol.request import script_call


class Real:
    """One instance."""

    def __init__(self, store):
        self.store, self.tag = store, "{" + store.instance + "}"
        # One for all reads: it is empty again after each, and making one costs redis-py more than a read.
        self._pipe = store.redis.pipeline(transaction=False)

    def run(self, name, *arguments):
        return self.store.call(script_call(name, list(arguments), decoded))

    def read(self, *commands):
        """Many reads in one go; keys without the tag."""
        for command, suffix, *arguments in commands:
            self._pipe.execute_command(command, self.tag + suffix, *arguments)
        return self._pipe.execute()


def decoded(reply):
    if isinstance(reply, bytes):
        return reply.decode()
    return [decoded(part) for part in reply] if isinstance(reply, list) else reply


def texts(mapping):
    return {key.decode(): value.decode() for key, value in mapping.items()}


def grouped(items):
    groups = {}
    for name, ref, token in items:
        groups.setdefault(name, []).append((ref, token))
    return groups


def flat(groups):
    out = []
    for name, pairs in groups.items():
        out += [name, len(pairs), *(ref for ref, _ in pairs), *(token or "" for _, token in pairs)]
    return out


def pairs_of(reply):
    return list(zip(reply[::2], reply[1::2], strict=True))


def messages_of(elements):
    heads = [head.split("\n")[0].split(" ") for head in elements[::2]]
    return [(name, ref, int(token)) for name, token, _, _, _, ref in heads]
