"""The way to a server whatever its state: a replica, one that loads, one that refuses nearly everything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampsq.base.errors import NotPermitted, Unavailable
from ampsq.protocol.reads.server import ask_role
from ampsq.transport.instances import parse_instances
from ampsq.transport.route import Route
from ampsq.transport.store import Store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redis.typing import EncodableT

__all__ = ["open_any_server"]


class _AnyServer(Route):
    """A route whose connections ask nothing at first, so that no answer speaks against a server."""

    def questions(self) -> list[tuple[EncodableT, ...]]:
        """None."""
        return []


def open_any_server(url: str | Sequence[str], instance: str) -> Store:
    """A store at the first server that can be used, or else at the first one that answers.

    Args:
        url: addresses, as a client takes them.
        instance: the name of the instance, where an address has none.

    Raises:
        Unavailable: none of them answers. DefinitionError: an address or a name is wrong.
    """
    instances, failures = parse_instances(url, instance), list[Unavailable]()
    for kind in (Route, _AnyServer):
        for instance_address in instances:
            store = Store(
                kind(instance_address.url, instance_address.instance), instance_address.instance, retry_timeout=0.0
            )
            try:
                store.call(ask_role())
            except NotPermitted:
                return store
            except Unavailable as error:
                store.close()
                failures.append(error)
            else:
                return store
    raise failures[0] if len(instances) == 1 else Unavailable("; ".join(map(str, failures[: len(instances)])))
