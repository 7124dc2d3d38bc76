"""Rows of jobs as the scripts take them, and what is recorded of them."""

from __future__ import annotations

FIRST, SECOND, THIRD = "1000-0", "1000-1", "1000-2"


def write(world, *bodies, partition=0, epoch=1, rows=0, before=0, after=7, topic="orders", shape="b"):
    head = (world.now, topic, "job", partition, epoch, rows, before, after, shape)
    reply, checksum = world.run("write_rows", *head, *bodies)
    return reply, int(checksum or 0)


def entry(stream_id, sequence, body, **more):
    return (stream_id, {"b": body, **more, "p": "job/0", "n": str(sequence)})


def bodies(world, topic="orders"):
    return [fields["b"] for _, fields in world.state().get(f":log:{topic}", [])]
