"""Use of the machine by a process of the soak, told on SIGUSR1: ``soak_probe.py FILE MODULE ARG...``.

What the C library has handed out is exact where `PYTHONMALLOC=malloc` lets Python take all of its memory there; what
the kernel calls resident also has holes, so that it is shown and not judged.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import runpy
import signal
import sys
from pathlib import Path

__all__ = ["ENVIRONMENT", "answer_with", "look"]

#: What a process needs in its environment to be measured.
ENVIRONMENT = {"PYTHONMALLOC": "malloc", "MALLOC_ARENA_MAX": "2"}


class _Allocated(ctypes.Structure):
    """glibc's `struct mallinfo2`: its fifth field is what was mapped, its eighth what is in use."""

    _fields_ = [(f"field{number}", ctypes.c_size_t) for number in range(10)]


def _resident(pid):
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGESIZE")


def look():
    """Return what this process uses now: memory in bytes, threads, open files."""
    gc.collect()
    library = ctypes.CDLL(None)
    library.mallinfo2.restype = _Allocated
    allocated = library.mallinfo2()
    return {
        "memory": allocated.field7 + allocated.field4,
        "resident": _resident("self"),
        "threads": len(list(Path("/proc/self/task").iterdir())),
        # One of them is the look itself.
        "files": len(list(Path("/proc/self/fd").iterdir())) - 1,
    }


def answer_with(path):
    """From now on add a line to a file whenever SIGUSR1 comes."""

    def answer(_number, _frame):
        line = json.dumps({"pid": os.getpid(), **look()}).encode() + b"\n"
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            os.write(file, line)
        finally:
            os.close(file)

    signal.signal(signal.SIGUSR1, answer)


if __name__ == "__main__":
    answer_with(sys.argv[1])
    # What is run finds the modules of its own folder, as with `python -m`.
    sys.path[0] = str(Path.cwd())
    sys.argv[:] = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
