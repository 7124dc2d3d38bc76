"""Connections of a process: drivers and workers of Spark live through many tasks."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from ampsq.base.addresses import redacted
from ampsq.base.partitions import partitions_of
from ampsq.protocol.reads.instance import is_opened
from ampsq.transport.server_pools import ServerPools
from ampsq.transport.store import Store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampsq.base.partitions import Partition

__all__ = ["SparkInstance", "choose", "opened_store", "store_of"]

_lock = threading.Lock()
_stores: dict[tuple[int, SparkInstance, float], Store] = {}
# Of each process: connections that the partitions of an instance share, so that it has about one to each server.
_shared: dict[int, ServerPools] = {}
_opened: set[tuple[int, SparkInstance]] = set()


class SparkInstance(NamedTuple):
    """An instance, and where it is.

    Attributes:
        url: an address or several of one server, as `Client` takes them.
        instance: its name.
        partition: which partition of an instance it is; None: none.
    """

    url: str
    instance: str
    partition: Partition | None = None

    def __str__(self) -> str:
        return f"{self.instance} at {redacted(self.url)}"

    def __repr__(self) -> str:
        # Texts of errors and logs show it: never the password.
        return f"<instance {self}>"


def store_of(address: SparkInstance, retry_timeout: float) -> Store:
    """The store of this process for an instance; it stays open for the tasks that come.

    Args:
        address: the instance.
        retry_timeout: seconds for which a call that may be repeated is, while the server is away.
    """
    name = (os.getpid(), address, retry_timeout)
    with _lock:
        if name not in _stores:
            shared = _shared.setdefault(os.getpid(), ServerPools()) if address.partition is not None else None
            _stores[name] = Store(address.url, address.instance, retry_timeout=retry_timeout, pools=shared)
        return _stores[name]


def opened_store(address: SparkInstance, retry_timeout: float) -> Store:
    """The store of an instance that is made ready for use; for the driver.

    A process opens an instance once, and again where it is not there any more: a stream asks for it at every
    micro-batch, and again at its commit.

    Args:
        address: the instance.
        retry_timeout: as of `store_of`.

    Raises:
        Unavailable: there is no server. ServerUnsuitable: it is too old, or would lose messages.
    """
    from ampsq.client.client import Client  # noqa: PLC0415 - workers do without

    store, opening = store_of(address, retry_timeout), (os.getpid(), address)
    is_there = opening in _opened and store.call(is_opened(address.instance))
    if not is_there and (whole := address.partition) is not None:
        # All of them, and what was half defined is finished; another number is refused.
        with Client(address.url, instance=whole.name, partitions=whole.total, retry_timeout=retry_timeout):
            _opened.update(
                (os.getpid(), SparkInstance(address.url, each.instance, each))
                for each in partitions_of(whole.name, whole.total)
            )
    elif not is_there:
        with Client(address.url, instance=address.instance, retry_timeout=retry_timeout):
            _opened.add(opening)
    return store


def choose(row_key: bytes | None, partition: int, addresses: Sequence[SparkInstance]) -> int:
    """Choose the instance of a row among several: by its key, or, without a key, by its partition."""
    if len(addresses) == 1:
        return 0
    return (partition if row_key is None else crc32(row_key)) % len(addresses)
