"""Names and addresses of a configuration of AMPS, as they are here: AMPS has fewer rules for both."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["SCHEMES", "address_name", "inet_addresses", "is_of_server", "numbered", "safe_name"]

SCHEMES: Final = {"amps-replication": "redis://", "amps-replication-secure": "rediss://"}
"""By the type of a destination's transport, what an address begins with."""

_NOT_OF_NAMES: Final = re.compile(r"[^A-Za-z0-9_./-]+")
_SCHEME: Final = re.compile(r"[a-z+]+://")
_PORT: Final = re.compile(r":?([0-9]{1,5})(#.*)?")
_BETWEEN: Final = re.compile(r"[\s,;]+")
#: The longest name that is made of a text, so that a number may follow.
_LONGEST: Final = 240


def safe_name(text: str) -> str:
    """The name that is most like a text, with a hyphen for what names do not have; may be empty."""
    return _NOT_OF_NAMES.sub("-", text.strip()).strip("-")[:_LONGEST]


def numbered(name: str, taken: Collection[str]) -> str:
    """A name, with a number behind it where it is taken: ``NYC``, ``NYC-2``."""
    free = (each for each in (name, *(f"{name}-{number}" for number in range(2, len(taken) + 2))) if each not in taken)
    return next(free)


def is_of_server(text: str) -> bool:
    """Say whether an address was written for ampsq, with a scheme or an instance's name, rather than for AMPS."""
    return _SCHEME.match(text.strip()) is not None or "#" in text


def inet_addresses(text: str, type: str) -> list[str]:  # noqa: A002
    """The addresses that an ``InetAddr`` of a destination stands for.

    Args:
        text: ``host:port`` of the server of the instance there, its name behind ``#`` if that is not the destination's;
            a port alone, which is of this machine; several with commas between; or a whole address, which stays as it
            is.
        type: of the transport; ``amps-replication-secure`` is TLS.
    """
    if _SCHEME.match(text.strip()):
        return [text]
    scheme = SCHEMES.get(type, "redis://")
    return [scheme + _PORT.sub(r"localhost:\1\2", part) if _PORT.fullmatch(part) else scheme + part
            for part in _BETWEEN.split(text.strip()) if part]  # fmt: skip


def address_name(address: str) -> str:
    """Name a destination without a name and a group: by its first address, without credentials."""
    return safe_name(_SCHEME.sub("", address).rpartition("@")[2].partition("#")[0])
