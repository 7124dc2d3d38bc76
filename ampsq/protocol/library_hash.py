"""SHA-256 of this release's server functions, as their names have the beginning of it.

Written by lua/library_hash.py; a test compares it with what is composed.
"""

from __future__ import annotations

from typing import Final

__all__ = ["LIBRARY_HASH"]

LIBRARY_HASH: Final = "02cfdf92d5a23b33a06f93b448494650e4d1c035e0d96a4534c6c700554daa79"
