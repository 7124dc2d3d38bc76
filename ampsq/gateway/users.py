"""Users: their names and secrets, of which the gateway knows hashes alone."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import os
import re
import secrets
from collections import OrderedDict
from dataclasses import dataclass, field
from math import ceil
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import DefinitionError
from ampsq.gateway.failed_logins import Failures
from ampsq.gateway.json_messages import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Secret", "Users"]

_WRITTEN: Final = re.compile(r"scrypt:(\d{1,2}):(\d{1,2}):(\d{1,2}):([A-Za-z0-9_-]+=*):([A-Za-z0-9_-]+=*)")
_ALLOWED: Final = "what `ampsq gateway --hash` prints of it, as in scrypt:15:8:1:SALT:HASH"
#: Logarithm of the work, size of a block, lanes: 32 MiB and about a tenth of a second.
_WORK: Final = (15, 8, 1)
_MOST_WORK: Final = 20
_SALT: Final = 16
_LENGTH: Final = 32
#: Headers whose answer is remembered, so that not every request of a user costs a tenth of a second.
_REMEMBERED: Final = 1_024
#: Hashes made at once: guessing shall cost those who guess, and not all others.
_AT_ONCE: Final = 2
#: Characters of a header that is looked at.
_LONGEST: Final = 1_024


@dataclass(frozen=True, slots=True)
class Secret:
    """The hash of a secret."""

    work: tuple[int, int, int]
    salt: bytes = field(repr=False)
    hash: bytes = field(repr=False)

    @classmethod
    def of(cls, text: str) -> Secret:
        """Hash a secret with a new salt."""
        salt = os.urandom(_SALT)
        return cls(_WORK, salt, _scrypt(text, salt, _WORK))

    @classmethod
    def parse(cls, text: object) -> Secret:
        """Read what `str` wrote.

        Raises:
            DefinitionError: it is no such text. The text is not shown, since it may be the secret itself.
        """
        found = _WRITTEN.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            raise DefinitionError(f"it is no hash of a secret; allowed: {_ALLOWED}")
        logarithm, block, lanes = (int(found[part]) for part in (1, 2, 3))
        if not 1 <= logarithm <= _MOST_WORK or not 1 <= block <= _WORK[1] or not 1 <= lanes <= _WORK[1]:
            raise DefinitionError(f"it asks for more work than anybody may cause; allowed: {_ALLOWED}")
        try:
            salt, hashed = (base64.urlsafe_b64decode(found[part]) for part in (4, 5))
        except binascii.Error:
            raise DefinitionError(f"it is cut short; allowed: {_ALLOWED}") from None
        return cls((logarithm, block, lanes), salt, hashed)

    def __str__(self) -> str:
        salt, hashed = (base64.urlsafe_b64encode(part).decode() for part in (self.salt, self.hash))
        return ":".join(("scrypt", *map(str, self.work), salt, hashed))

    def is_of(self, text: str) -> bool:
        """Return whether it is the hash of this secret; takes about a tenth of a second."""
        return hmac.compare_digest(_scrypt(text, self.salt, self.work), self.hash)


def _scrypt(text: str, salt: bytes, work: tuple[int, int, int]) -> bytes:
    logarithm, block, lanes = work
    memory = 256 * block * (2**logarithm + lanes)
    return hashlib.scrypt(text.encode(), salt=salt, n=2**logarithm, r=block, p=lanes, maxmem=memory, dklen=_LENGTH)


class Users:
    """The users of a gateway, by name.

    Args:
        known: name -> hash of the secret.
    """

    def __init__(self, known: Mapping[str, Secret]) -> None:
        self.adopt(known)
        self._key = os.urandom(_LENGTH)
        self._failures = Failures()
        self._turns = asyncio.Semaphore(_AT_ONCE)

    def adopt(self, known: Mapping[str, Secret]) -> None:
        """Go by these users from here on; nothing is remembered of those of before."""
        self._known = dict(known)
        # Compared with in place of a user who is not there, so that names cannot be found out by the time it takes.
        work = next(iter(self._known.values())).work if self._known else _WORK
        self._nobody = Secret(work, os.urandom(_SALT), secrets.token_bytes(_LENGTH))
        self._right: OrderedDict[bytes, str] = OrderedDict()

    async def who(self, header: str, address: str = "") -> str | None:
        """The user whom an ``Authorization`` header proves, with ``Basic`` or ``Bearer NAME:SECRET``; None: nobody.

        Raises:
            Problem: this address has tried too often what was wrong. Who is remembered is let in all the same.
        """
        given = _given(header)
        if given is None:
            return None
        # What is remembered is worth nothing to whoever reads this process's memory later.
        digest = hmac.digest(self._key, header.encode("utf-8", "surrogatepass"), "sha256")
        if digest in self._right:
            self._right.move_to_end(digest)
            return self._right[digest]
        name, secret = given
        # Spent before it is known, so that many at once are not more than one after the other.
        if wait := self._failures.spend(address):
            raise Problem(429, "TooManyFailures", "names and secrets were wrong too often; try again later", ceil(wait))
        expected = self._known.get(name, self._nobody)
        async with self._turns:
            is_right = await asyncio.to_thread(expected.is_of, secret)
        # Other users may have been adopted meanwhile.
        if not is_right or self._known.get(name) != expected:
            return None
        self._failures.give_back(address)
        self._right[digest] = name
        while len(self._right) > _REMEMBERED:
            self._right.popitem(last=False)
        return name


def _given(header: str) -> tuple[str, str] | None:
    kind, _, text = header[:_LONGEST].partition(" ")
    if kind.lower() == "basic":
        try:
            text = base64.b64decode(text.strip(), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            return None
    elif kind.lower() != "bearer":
        return None
    name, colon, secret = text.strip().partition(":")
    return (name, secret) if colon and name and secret else None
