"""Scripts of a test's own, composed and run on a server."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ampsq.protocol import schema, scripts

LUA = Path(scripts.__file__).parents[2] / "lua"


@pytest.fixture
def lua(tmp_path, monkeypatch):
    """A lua/ of the test's own: ``lua("room/verb", text)`` and ``lua("room/lib/part", text)`` write its files."""
    (tmp_path / "lib").mkdir()
    shutil.copy(LUA / "lib/fail.lua", tmp_path / "lib/fail.lua")
    monkeypatch.setattr(scripts, "_folder", lambda: tmp_path)
    scripts._read.cache_clear()

    def write(name, text):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"{name}.lua").write_text(text)
        scripts._paths.cache_clear()

    yield write
    scripts._read.cache_clear()
    scripts._paths.cache_clear()


@pytest.fixture
def opened(store):
    store.redis.hset("{" + store.instance + "}:instance", "format", schema.FORMAT)
    return store
