"""What a session on this machine needs before it starts."""

from __future__ import annotations

import os
import sys

from ampsq.spark.java import ensure_java

__all__ = ["prepare_environment"]


def prepare_environment() -> None:
    """Let Spark find a Java, and its workers this Python; call it before `SparkSession.builder.getOrCreate()`.

    For local sessions and drivers: without it, workers run whatever `python3` is first on the PATH, which may lack the
    packages. What the environment says already stays.

    Raises:
        NoJava: there is no Java of version 17 or newer.
    """
    ensure_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
