"""The spool: what is written comes out once, in order, also beside the writer; its space is given back."""

from __future__ import annotations

import itertools
import random
import threading

import pytest

from ampsq.topics import spool as module
from ampsq.topics.spool import Spool


def entries(*numbers):
    return [("t", b"%d-0" % number, [b"b", b"x" * 100, b"h", b"\x00\xff"]) for number in numbers]


@pytest.fixture
def spool(tmp_path):
    made = Spool(str(tmp_path))
    yield made
    made.close()


def test_what_is_written_comes_out_in_order_and_once(spool, tmp_path):
    assert (spool.read(), spool.is_empty, spool.oldest, spool.size) == ([], True, 0, 0)
    spool.write(entries(5, 6))
    spool.write(entries(7))
    assert (spool.is_empty, spool.oldest) == (False, 5)
    assert spool.read() == entries(5, 6)
    assert (spool.oldest, spool.size > 0) == (7, True)
    assert spool.read() == entries(7)
    assert (spool.read(), spool.size) == ([], 0)
    # And nobody else can see it
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("seed", range(5))
def test_a_reader_beside_the_writer_gets_the_same_over_many_files(spool, monkeypatch, seed):
    monkeypatch.setattr(module, "_FILE", 1000)
    draw, got, number = random.Random(seed), [], 2000  # noqa: S311
    made = iter(range(1, number + 1))

    def write():
        while page := list(itertools.islice(made, draw.randrange(1, 9))):
            spool.write(entries(*page))

    writer = threading.Thread(target=write)
    writer.start()
    while len(got) < number and (writer.is_alive() or not spool.is_empty):
        got += spool.read()
    writer.join()
    assert spool.is_empty
    assert spool.size == 0
    assert got == entries(*range(1, number + 1))


def test_what_was_read_gives_its_space_back(spool, monkeypatch):
    monkeypatch.setattr(module, "_FILE", 1000)
    first = spool._file
    for number in range(1, 40):
        spool.write(entries(number))
    assert spool._file is not first
    for _ in range(20):
        spool.read()
    assert first.closed
    last = spool._file
    while spool.read():
        pass
    assert last.seek(0, 2) == 0


def test_a_folder_that_is_not_there_is_an_error_of_the_system():
    with pytest.raises(OSError, match="nowhere"):
        Spool("/nowhere/at/all")
