"""Options as Spark hands them over: texts under names without case; checked on the driver, before a job starts."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Annotated, Any, Final, Self

from pydantic import BeforeValidator, Field

from ampsq.base.addresses import parse_endpoints
from ampsq.base.errors import DefinitionError
from ampsq.base.partitions import asked_partitions, partitions_of
from ampsq.base.values import Interval, parse_name
from ampsq.definitions.definition import CheckedModel, Fault, report
from ampsq.spark.stores import SparkInstance

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["Milliseconds", "Options", "Whole"]

#: Spark's own options, which every source gets.
_OF_SPARK = frozenset({"path", "checkpointlocation", "queryname"})


def _milliseconds(value: Any) -> int:
    return int(Interval.parse(value))


def _whole(value: Any) -> int:
    if isinstance(value, int):
        return value
    if not re.fullmatch(r"[0-9]{1,12}", str(value)) or int(value) < 1:
        raise ValueError(f"{value!r} is no whole number; allowed: 1 or more")
    return int(value)


#: An interval, ``30s``, as ms.
Milliseconds = Annotated[int, BeforeValidator(_milliseconds)]
#: A whole number, 1 or more.
Whole = Annotated[int, BeforeValidator(_whole)]


#: What an address asks for of partitions.
_PARTITIONS: Final = re.compile(r"[?]partitions=[^&#,]*|&partitions=[^&#,]*")


class Options(CheckedModel):
    """The options of every reader and writer.

    Attributes:
        url: the server's address or addresses, as `Client` takes them; default ``AMPSQ_URL``. For several instances on
            servers of their own, as many addresses with spaces between. With ``?partitions=64`` all partitions of the
            instance.
        instance: the instance, default ``AMPSQ_INSTANCE``, else ``ampsq``; several, with commas between, share a
            topic's rows by their key.
        retry_timeout: how long a call is repeated while the server cannot be reached; default 60s. Then the task fails.

    Raises:
        DefinitionError: an option is wrong; the text lists every fault, and what is allowed.
    """

    url: Annotated[str, Field(repr=False)] = ""
    instance: str = "ampsq"
    retry_timeout: Milliseconds = 60_000

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self:
        """Read what Spark hands over."""
        fields = {field.replace("_", ""): field for field in cls.model_fields}
        given: dict[str, Any] = {}
        for name, value in options.items():
            lower = name.lower()
            if lower in fields:
                given[fields[lower]] = value
            elif lower not in _OF_SPARK:
                given[name] = value
        given.setdefault("url", os.environ.get("AMPSQ_URL", ""))
        given.setdefault("instance", os.environ.get("AMPSQ_INSTANCE") or "ampsq")
        faults = cls.faults(given)
        if faults:
            raise DefinitionError(report('format("ampsq")', [_in_camel_case(fault, cls) for fault in faults]))
        return cls(**given)

    @property
    def addresses(self) -> tuple[SparkInstance, ...]:
        """The instances, each with its address, in the order of their names.

        Which one a key belongs to, and which one decides, is thus no matter of how they were written down. The
        partitions of one instance are in the order of their numbers, by which a client finds those of keys.
        """
        bare, total = asked_partitions(self.url, None)
        if total is not None:
            return tuple(SparkInstance(str(bare), each.instance, each) for each in partitions_of(self.instance, total))
        names, urls = _instances(self.instance), self.url.split()
        if len(urls) == 1:
            urls *= len(names)
        return tuple(SparkInstance(url, name) for name, url in sorted(zip(names, urls, strict=True)))

    @property
    def seconds(self) -> float:
        """`retry_timeout` in seconds."""
        return self.retry_timeout / 1000

    @classmethod
    def _conflicts(cls, given: Mapping[str, Any]) -> Iterator[Fault]:
        yield from super()._conflicts(given)
        urls = str(given.get("url", "")).split()
        if not urls:
            yield Fault("url", "missing; allowed: an address as in redis://localhost:6379, here or in AMPSQ_URL")
        for url in urls:
            try:
                # Refused below, where it is no number.
                parse_endpoints(_PARTITIONS.sub("", url))
            except DefinitionError as error:
                yield Fault("url", str(error))
        names = _instances(str(given.get("instance", "ampsq")))
        for name in names:
            try:
                parse_name(name)
            except DefinitionError as error:
                yield Fault("instance", str(error))
        if len(set(names)) < len(names):
            yield Fault("instance", "the same twice; allowed: each once")
        yield from _partition_faults(str(given.get("url", "")), len(urls) > 1 or len(names) > 1)
        if len(urls) > 1 and len(urls) != len(names):
            yield Fault("url", f"{len(urls)} addresses for {len(names)} instances; allowed: one, or one for each")


def _partition_faults(url: str, several: bool) -> Iterator[Fault]:  # noqa: FBT001  (whether there are)
    if "partitions=" not in url:
        return
    try:
        asked_partitions(url, None)
    except DefinitionError as error:
        yield Fault("url", str(error))
    if several:
        yield Fault("url", "partitions= are those of one instance; allowed: one address and one instance")


def _instances(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def _in_camel_case(fault: Fault, kind: type[Options]) -> Fault:
    """Options are written as Spark's are."""

    def camel(name: str) -> str:
        return re.sub(r"_([a-z])", lambda found: found[1].upper(), name)

    text = fault.text
    for field in kind.model_fields:
        text = re.sub(rf"\b{field}\b", camel(field), text)
    return Fault(camel(fault.element), text.replace("no such element", "no such option"))
