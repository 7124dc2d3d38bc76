"""The commands of a client's keepalive to a server, on a connection of its own that stays subscribed to a channel."""

from __future__ import annotations

from typing import Final

from ampsq.protocol.schema import keepalive_channel

__all__ = ["HEARTBEAT", "attach"]

#: Asks whether the server is there, on a connection that is subscribed.
HEARTBEAT: Final = ("PING",)


def attach(instance: str, client: str) -> tuple[str, str]:
    """Say that a client is there, for as long as the connection stands."""
    return "SUBSCRIBE", keepalive_channel(instance, client)
