"""Spark: batch and streaming jobs that write into topics, replay them, and consume queues.

`spark.read.format("ampsq")` and its relatives need no import: Spark finds the source by the module `pyspark_ampsq`.
What is here is for programs that set a session up, or publish a frame row by key. Importing it is cheap; pyspark is
imported when it is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ampsq.spark.java import ensure_java
    from ampsq.spark.publishing import publish
    from ampsq.spark.session import prepare_environment
    from ampsq.spark.source import AmpsqDataSource

__all__ = ["AmpsqDataSource", "ensure_java", "prepare_environment", "publish"]

_MODULES = {
    "AmpsqDataSource": "ampsq.spark.source",
    "ensure_java": "ampsq.spark.java",
    "prepare_environment": "ampsq.spark.session",
    "publish": "ampsq.spark.publishing",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - only who asks for it pays for it

    return getattr(import_module(_MODULES[name]), name)
