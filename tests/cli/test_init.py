"""`ampsq init`: what it writes passes its own tests and runs by two commands; nothing is overwritten."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from observing import eventually

from ampsq import Client
from ampsq.files.config import load
from ampsq.server.embedded import acquire

FILES = {"queues.yaml", "tasks.py", "test_tasks.py", "compose.yaml", "README.md", ".gitignore"}


@pytest.fixture
def shop(alone):
    """A folder that the command wrote, and the program in it."""
    alone("init", "shop")
    alone.folder = alone.folder / "shop"
    return alone


def test_it_says_what_it_wrote_and_what_to_call_next(alone):
    # when
    said = alone("init", "shop").out
    # then
    assert {each.name for each in (alone.folder / "shop").iterdir()} == FILES
    assert all(name in said for name in FILES)
    assert "ampsq worker tasks:app" in said
    assert not (alone.folder / ".ampsq").exists()


@pytest.mark.slow
def test_the_tests_that_it_wrote_pass(shop):
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=shop.folder, env=shop.environment, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip

    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_the_two_commands_define_the_queue_and_handle_what_is_published(shop):
    # given
    with acquire(shop.folder / ".ampsq") as server, Client(server.url) as client:
        shop("apply", "queues.yaml", "--yes")
        worker = shop.start("worker", "tasks:app")
        # when
        shop("publish", "orders", '{"id": 1, "price": 2.5, "quantity": 2}')
        shop("publish", "orders", '{"id": 2, "price": 2.5, "quantity": 0}')
        # then
        assert worker.stdout.readline() == "order 1: 5.00\n"
        eventually(lambda: client.admin.queue_stats("orders-failed").depth == 1, within=60)
        # What the worker prints, it acknowledges a moment later.
        eventually(lambda: client.admin.queue_stats("orders").depth == 0, within=60)
        assert shop.end(worker).code == 0


def test_the_compose_file_is_one_that_an_engine_takes_and_calls_what_the_program_has(shop):
    checker = Path(sys.executable).with_name("check-jsonschema")
    if not checker.exists():
        assert "AMPSQ_FORBID_SKIPS" not in os.environ, "check-jsonschema is part of the extra `dev`"
        pytest.skip("check-jsonschema is not installed: pip install 'ampsq[dev]'")
    command = [checker, "--builtin-schema", "vendor.compose-spec", "compose.yaml"]
    done = subprocess.run(command, cwd=shop.folder, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

    services = yaml.safe_load((shop.folder / "compose.yaml").read_text())["services"]
    commands = [each["command"] for each in services.values() if each["command"][0] == "ampsq"]
    assert [each[1] for each in commands] == ["apply", "coordinator", "worker"]
    assert all(port.startswith("127.0.0.1:") for each in services.values() for port in each.get("ports", ()))
    for each in commands:
        shop(each[1], "--help")
    # What the image copies is there
    assert {each.name for each in load(shop.folder / "queues.yaml")} >= {"orders", "orders-failed"}


def test_a_folder_that_has_something_is_left_as_it_is(shop):
    # given
    before = {each.name: each.read_text() for each in shop.folder.iterdir()}
    (shop.folder / "tasks.py").write_text("mine")
    # when
    refused = shop("init", ".", code=1)
    # then
    assert refused.err.startswith("Error: .: the folder has ")
    assert "allowed: a new folder, or an empty one" in refused.err
    assert {each.name: each.read_text() for each in shop.folder.iterdir()} == {**before, "tasks.py": "mine"}


def test_a_file_in_its_place_and_a_place_where_nothing_can_be_written_are_named(alone):
    (alone.folder / "shop").write_text("")
    assert "shop: a file is there; allowed: the name of a new folder" in alone("init", "shop", code=1).err
    assert "Not a directory" in alone("init", "shop/inner", code=1).err
    assert "Missing argument 'FOLDER'" in alone("init", code=2).err


def test_an_empty_folder_is_taken(run):
    run("init", ".")
    assert {each.name for each in run.folder.iterdir()} == FILES
