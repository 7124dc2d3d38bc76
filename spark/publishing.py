"""Publishing a frame row by key, as a publisher to several instances does."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, cast

from ampsq.base.errors import DefinitionError
from ampsq.definitions.definition import Fault, report
from ampsq.spark.write_options import BatchWriteOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

__all__ = ["publish"]


def publish(
    frame: DataFrame,
    topic: str | None = None,
    *,
    key: str | Column | None = None,
    group: str | Column | None = None,
    order_by: str | Column | Sequence[str | Column] = (),
    partitions: int | None = None,
    **options: object,
) -> None:
    """Publish a frame's rows; returns when they are recorded, all of them, once.

    A frame with a column `value` is written as `format("ampsq")` writes it. One without is published as JSON: each row
    an object of all its columns that are not null.

    Args:
        frame: the rows.
        topic: where they go; None where a column `topic` says so.
        key: a column, or an expression, whose text becomes the routing key: rows of one key go through one partition to
            one instance. Default: rows stay in their partitions.
        group: a column, or an expression, whose text becomes the group of the message, for queues with groups. What is
            of one group keeps its order where it is of one key, too. Default: a column `group` beside `value`, else
            what the queue's `group_by` says.
        order_by: what the rows of a partition, and so those of a key, are sorted by; default: no order, where there is
            a key, since it moves rows, else the one they have.
        partitions: with a key: how many, rounded up to a multiple of the instances, so that each task writes to one;
            default ``spark.sql.shuffle.partitions``.
        options: of the writer, as docs/spark.md lists them, in snake_case or as they are: `url`, `instance`, ...

    Raises:
        DefinitionError: an argument is wrong; nothing was published.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - as everybody calls it; late, for it is heavy

    named = {re.sub(r"_([a-z])", lambda found: found[1].upper(), name): str(value) for name, value in options.items()}
    if topic:
        named["topic"] = topic
    # What Spark runs has the environment of when it was started.
    for name, variable in (("url", "AMPSQ_URL"), ("instance", "AMPSQ_INSTANCE")):
        if value := os.environ.get(variable):
            named.setdefault(name, value)
    instances = len(BatchWriteOptions.of(named).addresses)
    faults = list(_faults(frame, topic, {"key": key, "group": group}, partitions))
    if faults:
        raise DefinitionError(report("publish", faults))
    columns = {name: F.col(name) for name in frame.columns}
    if "value" not in frame.columns:
        columns = {"value": F.to_json(F.struct("*"))}
    if group is not None:
        columns["group"] = (F.col(group) if isinstance(group, str) else group).cast("string")
    ready = frame
    if key is not None:
        columns["key"] = (F.col(key) if isinstance(key, str) else key).cast("string")
        number = partitions or int(frame.sparkSession.conf.get("spark.sql.shuffle.partitions", "200") or 200)
        number = -(-number // instances) * instances
        # Modulo the number of instances it is the instance of the key.
        ready = ready.repartitionById(number, (F.crc32(F.coalesce(columns["key"], F.lit(""))) % number).cast("int"))
    order: list[str | Column] = (
        list(order_by) if isinstance(order_by, list | tuple) else [cast("str | Column", order_by)]
    )
    if order:
        ready = ready.sortWithinPartitions(*order)
    ready = ready.select(*[column.alias(name) for name, column in columns.items()])
    ready.write.format("ampsq").options(**named).mode("append").save()


def _faults(
    frame: DataFrame, topic: str | None, chosen: dict[str, str | Column | None], partitions: int | None
) -> list[Fault]:
    faults = []
    if "value" not in frame.columns and not topic:
        faults.append(Fault("topic", "missing; allowed: a topic, or a frame with the columns value and topic"))
    for name, column in chosen.items():
        if isinstance(column, str) and column not in frame.columns:
            told = f"no column {column!r}; allowed: one of {', '.join(frame.columns)}, or an expression"
            faults.append(Fault(name, told))
        if "value" in frame.columns and name in frame.columns and not _is_same(column, name):
            faults.append(Fault(name, f"is a column, too; allowed: {name}={name!r}, or drop that column"))
    if partitions is not None and chosen["key"] is None:
        faults.append(Fault("partitions", "without a key; allowed: with one, else frame.repartition before"))
    if partitions is not None and partitions < 1:
        faults.append(Fault("partitions", f"{partitions}; allowed: 1 or more"))
    return faults


def _is_same(column: str | Column | None, name: str) -> bool:
    # Compared with a text, an expression of Spark gives another expression.
    return column is None or (isinstance(column, str) and column == name)
