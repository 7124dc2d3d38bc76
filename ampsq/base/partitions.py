"""Partitions of an instance: their number, the names that put them evenly on the slots of a cluster, which has a key.

Partition i of N is an instance of its own, ``<name>.<i>-<xyz>``. The three letters at the end put it in the middle of
the i-th of N equal ranges of slots, on any cluster and for ever: nothing has to be looked up to find it.
"""

from __future__ import annotations

import os
import re
import zlib
from binascii import crc_hqx
from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import product
from typing import Final, NamedTuple

from ampsq.base.errors import DefinitionError
from ampsq.base.values import parse_name, shown

__all__ = [
    "LAYOUT",
    "MOST_PARTITIONS",
    "Partition",
    "asked_partitions",
    "check_key_function",
    "name_request",
    "partition_of_key",
    "partition_of_text",
    "partitions_of",
    "patterns_of_partitions",
    "refuse_partitions",
    "request_of_all",
]

#: Version of the rule by which partitions are named and keys find theirs; stored with each partition.
LAYOUT: Final = 1
#: Partitions of an instance at most.
MOST_PARTITIONS: Final = 1_024
#: Characters of the name of an instance that has partitions, whose names are longer, at most.
_LONGEST_NAME: Final = 240
_SLOTS: Final = 16_384
_LETTERS: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"
_ZERO: Final = ord("0")
_OPTION: Final = re.compile(r"([?&])partitions=([^&#,]*)(&?)")


class Partition(NamedTuple):
    """One partition of an instance.

    Attributes:
        name: of the instance that has partitions.
        number: of this one, from 0.
        total: how many there are.
        instance: the name of this one, which is an instance of its own.
    """

    name: str
    number: int
    total: int
    instance: str

    def __str__(self) -> str:
        return f"partition {self.number} of the {self.total} of {self.name!r}"

    @classmethod
    def register(cls, name: str, total: int) -> Partition:
        """Return where it is kept how many partitions an instance has: at its own name, which holds nothing else."""
        return cls(name, -1, total, name)

    @classmethod
    def stored(cls, text: str, instance: str) -> Partition | None:
        """Return the partition that an instance is, as `text` has it; None where that is "", since it is none."""
        if not text:
            return None
        name, number, total, *_ = text.split(" ")
        return cls(name, int(number), int(total), instance)

    @property
    def is_register(self) -> bool:
        """Return whether it is no partition, and has their number alone."""
        return self.number < 0

    @property
    def text(self) -> str:
        """The partition as it is stored with it: name, number, how many there are, version of the rule."""
        return f"{self.name} {self.number} {self.total} {LAYOUT}"


@cache
def _endings() -> dict[int, bytes]:
    """Return by what three letters change the slot of a text that ends with ``000``: the first letters that do so."""
    # CRC16 is linear: the change by three letters is that by each of them, put together.
    changes = [
        [(crc_hqx(bytes((0,) * place + (letter ^ _ZERO,) + (0,) * (2 - place)), 0) % _SLOTS) for letter in _LETTERS]
        for place in range(3)
    ]
    found: dict[int, bytes] = {}
    for (one, first), (two, second), (three, third) in product(*(zip(each, _LETTERS, strict=True) for each in changes)):
        found.setdefault(one ^ two ^ three, bytes((first, second, third)))
    return found


def _name_in_range(start: str, middle: int, last: int) -> str:
    """Return the name with this beginning whose slot is the middle of a range, else the next one up in the range."""
    bare = crc_hqx(start.encode() + bytes((_ZERO,) * 3), 0) % _SLOTS
    endings = _endings()
    # Of any eight neighbours some three letters give one (a test counts), and no range has fewer.
    slot = next(slot for slot in range(middle, last + 1) if bare ^ slot in endings)
    return start + endings[bare ^ slot].decode()


# By type, too: True is 1.
@lru_cache(maxsize=64, typed=True)
def partitions_of(name: str, count: int) -> tuple[Partition, ...]:
    """Return all partitions of an instance.

    Args:
        name: of the instance, at most 240 characters.
        count: how many it has, 1 to 1,024.

    Raises:
        DefinitionError: there are no such partitions.
    """
    parse_name(name)
    if len(name) > _LONGEST_NAME:
        raise DefinitionError(
            f"instance {shown(name)}: the name of an instance with partitions has at most {_LONGEST_NAME} characters, "
            "since those of its partitions are longer; choose a shorter one"
        )
    return tuple(_partition(name, number, _checked(count)) for number in range(_checked(count)))


def patterns_of_partitions(name: str, count: int) -> tuple[str, ...]:
    """Return glob patterns of the names of all partitions of an instance: one for each number of digits, most first.

    Raises:
        DefinitionError: there are no such partitions.
    """
    most = len(str(partitions_of(name, count)[-1].number))
    return tuple(f"{name}.{'[0-9]' * digits}-???" for digits in range(most, 0, -1))


def _partition(name: str, number: int, count: int) -> Partition:
    first, behind = number * _SLOTS // count, (number + 1) * _SLOTS // count
    middle = first + _SLOTS // 2 // count
    return Partition(name, number, count, _name_in_range(f"{name}.{number}-", middle, behind - 1))


def partition_of_key(key: str, count: int) -> int:
    """Return which of so many partitions has the messages of a key.

    Raises:
        DefinitionError: the key is no text.
    """
    if not isinstance(key, str):
        raise DefinitionError(f"key={shown(key)}: allowed is a text, by which the partition is chosen")
    return partition_of_text(key.encode("utf-8", "surrogatepass"), count)


def partition_of_text(text: bytes, count: int) -> int:
    """Return the same of a key that is encoded."""
    return zlib.crc32(text) % count


def asked_partitions(
    url: str | Sequence[str] | None, partitions: int | None
) -> tuple[str | Sequence[str] | None, int | None]:
    """Return an address without its ``partitions=``, and how many partitions are asked for; None: it has none.

    Args:
        url: an address, or several; None: ``AMPSQ_URL``.
        partitions: how many are asked for beside the address.

    Raises:
        DefinitionError: it is no such number, or two of them are said.
    """
    if (url is None or url == "") and "partitions=" in (given := os.environ.get("AMPSQ_URL", "")):
        url = given
    said: set[int] = set()
    if url is not None:
        # What is neither is no address: whoever reads it says so.
        texts = [url] if isinstance(url, str) else list(url) if isinstance(url, Sequence) else []
        for at in range(len(texts)):
            # Of two that follow each other, only the first one has a mark before it that is its own.
            while isinstance(texts[at], str) and (found := list(_OPTION.finditer(texts[at]))):
                said |= {_number(match[2]) for match in found}
                texts[at] = _OPTION.sub(_without, texts[at])
        if said:
            url = texts[0] if isinstance(url, str) else texts
    if partitions is not None:
        said.add(_checked(partitions))
    if len(said) > 1:
        raise DefinitionError(f"partitions={' and '.join(map(str, sorted(said)))}: an instance has one number of them")
    return url, next(iter(said), None)


def _without(match: re.Match[str]) -> str:
    return match[1] if match[3] else ""


def _number(text: str) -> int:
    return _checked(int(text) if text.isdecimal() and text.isascii() else text)


def _checked(count: object) -> int:
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MOST_PARTITIONS:
        raise DefinitionError(f"partitions={shown(count)}: allowed is a whole number from 1 to {MOST_PARTITIONS:,}")
    return count


def refuse_partitions(kind: str, url: str | Sequence[str] | None, partitions: int | None) -> None:
    """Refuse partitions for a kind of client that has none.

    Raises:
        DefinitionError: they are asked for.
    """
    _, count = asked_partitions(url, partitions)
    if count is not None:
        raise DefinitionError(
            f"{kind} works at one instance, and partitions={count} asks for all partitions of one; allowed: Client or "
            f"AsyncClient, or {kind} at one of them, whose names are Client(...).partitions"
        )


def check_key_function(function: object) -> None:
    """Refuse what gives no key of each message.

    Raises:
        DefinitionError: it cannot be called.
    """
    if function is not None and not callable(function):
        raise DefinitionError(f"key={shown(function)}: allowed is a function that gives the key of a message, a text")


def name_request(request: str, of_all: str) -> str:
    """Name a request to one partition that is a part of one to all: what tells its parts from those of others."""
    return f"{request}.{of_all}"


def request_of_all(request: str) -> str:
    """Return what all parts of a request to all partitions have in common; "" of a request to one instance."""
    return request.rpartition("/")[2].partition(".")[2]
