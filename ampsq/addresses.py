"""What an address may look like, and how it is shown to people."""

from __future__ import annotations

import re

import redis

from ampsq.errors import DefinitionError

__all__ = ["check_address", "redacted"]


def check_address(url: str) -> None:
    """Refuse what is no address.

    Raises:
        DefinitionError: it has another scheme, or cannot be read.
    """
    if not url.startswith(("redis://", "rediss://", "unix://")):
        raise DefinitionError(
            f"address {redacted(url)!r}: allowed are redis://HOST:PORT/DB, rediss://... and unix:///PATH"
        )
    try:
        redis.connection.parse_url(url)
    except ValueError as error:
        raise DefinitionError(f"address {redacted(url)!r}: {error}; allowed is redis://HOST:PORT/DB") from error


def redacted(url: str) -> str:
    """The address without its password, for texts that people and logs see."""
    return re.sub(r"(//[^/@:]*):[^@]*@", r"\1:***@", url)
