"""Setup of a session on this machine before it starts."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Final

from ampsq.spark.java import ensure_java

__all__ = ["prepare_environment"]

_SOURCE: Final = "pyspark_ampsq"


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
    _show_source()


def _show_source() -> None:
    """Spark looks for sources in the folders of the path alone, where an editable installation puts nothing."""
    found = importlib.util.find_spec(_SOURCE)
    if found is None or found.origin is None:
        return
    folder = str(Path(found.origin).parent.parent)
    if folder not in sys.path:
        paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([folder, *filter(None, paths)]))
