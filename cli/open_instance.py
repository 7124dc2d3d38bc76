"""Checks of commands before they open an instance: whether a server answers, and whether it has that instance.

A client makes an instance that is not there, which is right for a program that is the first one. Behind a command, a
name that nobody made is a mistyped one: it would read an empty instance, or publish where nobody subscribes.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ampsq.base.errors import Unavailable
from ampsq.base.partitions import asked_partitions, partitions_of
from ampsq.base.suggestions import explain_missing_instance
from ampsq.base.values import parse_name
from ampsq.protocol.reads.instance import instance_state, is_opened
from ampsq.protocol.reads.instances import read_instances
from ampsq.transport.instances import parse_instances
from ampsq.transport.store import Store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampsq.transport.instances import InstanceAddress

__all__ = ["DEFAULT", "Opening", "find_instance", "refuse_new_folder", "refuse_one_instance"]

#: The instance of who names none.
DEFAULT: Final = "ampsq"


class Opening:
    """An instance as it was found before it was opened.

    Attributes:
        instance_address: where it is; None: no server could be reached.
        is_there: whether it has keys.
        others: the instances that the server has.
        unknown: why these are not known; "" where they are.
    """

    def __init__(
        self,
        instance_address: InstanceAddress | None,
        *,
        is_there: bool = False,
        others: Sequence[str] = (),
        unknown: str = "",
    ) -> None:
        self.instance_address, self.is_there, self.others, self.unknown = instance_address, is_there, others, unknown

    def check(self, *, is_named: bool) -> None:
        """Refuse what is not there; the default name begins a server that has none yet.

        Args:
            is_named: whether somebody said the instance's name.

        Raises:
            click.UsageError: it is not there.
        """
        if self.instance_address is not None and not self.is_there and (is_named or not self.is_first):
            where, _, instance = str(self.instance_address).rpartition("#")
            raise _missing(where, instance, self.others, self.unknown)

    @property
    def is_first(self) -> bool:
        """Return whether it would be the first one of its server."""
        return self.instance_address is not None and not self.is_there and not self.others and not self.unknown


def find_instance(url: str, instance: str | None, *, patient: bool = False) -> Opening:
    """Look once: a client waits for a server that is away, a person at a terminal wants to know it.

    Args:
        url: addresses, of which the first that can be reached counts.
        instance: the instance's name; None: the default one.
        patient: find nothing where no server can be reached, instead of refusing it.

    Raises:
        DefinitionError: the name is none. Unavailable: no server can be reached.
    """
    failures: list[Unavailable] = []
    bare, partitions = asked_partitions(url, None)
    instances = parse_instances(bare or "", parse_name(instance or DEFAULT))
    for instance_address in instances:
        # Scripts are not needed for this: it is asked what roles of all kinds may ask.
        with contextlib.closing(Store(instance_address.url, instance_address.instance, retry_timeout=0.0)) as store:
            try:
                state = store.call(instance_state(instance_address.instance))
                is_there = bool(state.partitions) if partitions else store.call(is_opened(instance_address.instance))
            except Unavailable as error:
                failures.append(error)
                continue
            if state.partitions and not partitions:
                raise _partitioned(instance_address.instance, state.partitions)
            if is_there:
                return Opening(instance_address, is_there=True)
            try:
                return Opening(instance_address, others=store.run(read_instances()))
            except Unavailable as error:
                return Opening(instance_address, unknown=str(error))
    if patient:
        return Opening(None)
    raise failures[0] if len(instances) == 1 else Unavailable("; ".join(map(str, failures)))


def refuse_one_instance(command: str, instance: str | None, partitions: int) -> click.UsageError:
    """Return the refusal of a command that works at one instance, where all partitions are asked for."""
    first, *_, last = (each.instance for each in partitions_of(instance or DEFAULT, partitions))
    names = first if first == last else f"{first} ... {last}"
    return click.UsageError(
        f"`{command}` works at one instance, and partitions={partitions} asks for all partitions of "
        f"{instance or DEFAULT!r}; allowed: an address without partitions=, and --instance with one of them: {names}"
    )


def _partitioned(instance: str, partitions: int) -> click.UsageError:
    return click.UsageError(
        f"instance {instance!r} has {partitions} partitions, which hold what it has; allowed: ?partitions={partitions} "
        f"in the address, or --instance with one of them, as in {partitions_of(instance, partitions)[0].instance}"
    )


def refuse_new_folder(instance: str | None, folder: str) -> None:
    """Refuse an instance that was named in a folder that has no data; raises `click.UsageError`."""
    if instance is not None and parse_name(instance) != DEFAULT:
        raise _missing(f"{Path(folder).resolve()}, a folder without data,", instance, ())


def _missing(where: str, instance: str, others: Sequence[str], unknown: str = "") -> click.UsageError:
    missing = explain_missing_instance(instance, others, unknown)
    return click.UsageError(
        f"{where} has {missing}. --instance NAME or AMPSQ_INSTANCE says which; "
        f"`ampsq apply FILE --instance {instance}` makes it"
    )
