"""Micro-batches that are written once, also where the driver died before Spark knew that they were."""

from __future__ import annotations

import pytest
from test_batch_write import PROTOCOLS, failing, leftovers, recorded, values

from ampsq import Queue

pytestmark = pytest.mark.slow


def files(folder, *contents):
    """Text files, one a micro-batch."""
    folder.mkdir(exist_ok=True)
    there = len(list(folder.iterdir()))
    for number, lines in enumerate(contents, there):
        (folder / f"{number:03}.txt").write_text("".join(f"{line}\n" for line in lines))


def run(spark, options, folder, checkpoint, change=lambda frame: frame, **more):
    """Write what there is, to the end."""
    frame = change(spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(folder)))
    writer = frame.writeStream.format("ampsq").options(**options, topic="orders", **more)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()


def forget_commit(checkpoint):
    """The driver died behind the last commit, before Spark had written that down."""
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    last.unlink()
    (checkpoint / "commits" / f".{last.name}.crc").unlink(missing_ok=True)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_row_is_recorded_once_over_restarts(spark, client, options, tmp_path, protocol):
    folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    client.apply(Queue(name="work", underlying_topic="orders"))
    files(folder, range(1_000), range(1_000, 1_500))
    run(spark, options, folder, checkpoint, commitProtocol=protocol)
    forget_commit(checkpoint)
    files(folder, range(1_500, 2_000))

    run(spark, options, folder, checkpoint, commitProtocol=protocol)

    assert list(map(int, values(client))) == list(range(2_000))
    assert len({fields[b"p"] for fields in recorded(client)}) == 1
    assert [int(fields[b"n"]) for fields in recorded(client)] == list(range(1, 2_001))
    assert client.admin.queue_stats("work").waiting == 2_000
    assert leftovers(client) == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_batch_that_is_cut_in_another_way_after_a_restart(spark, client, options, tmp_path, protocol):
    folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    files(folder, range(1_000))
    run(spark, options, folder, checkpoint, lambda frame: frame.repartition(2), commitProtocol=protocol)
    forget_commit(checkpoint)
    again = {"change": lambda frame: frame.repartition(4), "commitProtocol": protocol}
    if protocol == "sequence":
        with pytest.raises(Exception, match="RowsDiffer"):
            run(spark, options, folder, checkpoint, **again)
        assert set(map(int, values(client))) == set(range(1_000))
        return
    run(spark, options, folder, checkpoint, **again)
    assert sorted(map(int, values(client))) == list(range(1_000))


def test_a_failed_task_of_a_micro_batch_is_repeated_and_counts_once(spark, client, options, tmp_path):
    files(tmp_path / "in", range(8_000))
    run(spark, options, tmp_path / "in", tmp_path / "checkpoint", lambda frame: failing(frame, 1))
    assert list(map(int, values(client))) == list(range(8_000))


def test_a_publisher_may_be_named(spark, client, options, tmp_path):
    files(tmp_path / "in", range(3))
    run(spark, options, tmp_path / "in", tmp_path / "checkpoint", publisher="feed")
    assert {fields[b"p"] for fields in recorded(client)} == {b"feed/0"}
