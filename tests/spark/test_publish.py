"""`publish`: a frame's rows as JSON, row by key to one instance or several."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from test_batch_write import recorded, values

from ampsq import Client
from ampsq.base.errors import DefinitionError
from ampsq.spark import publish


def test_rows_become_json_and_those_of_a_key_stay_in_order(spark, client, options):
    frame = spark.range(300, numPartitions=3).select("id", (F.col("id") % 5).alias("shop")).orderBy(F.desc("id"))
    publish(frame, "sales", key="shop", order_by="id", partitions=2, commit_protocol="sequence", **options)
    rows = [json.loads(value) for value in values(client, "sales")]
    assert sorted(row["id"] for row in rows) == list(range(300))
    for shop in range(5):
        own = [row["id"] for row in rows if row["shop"] == shop]
        assert own == sorted(own)
    assert {fields[b"r"] for fields in recorded(client, "sales")} == {b"0", b"1", b"2", b"3", b"4"}


def test_each_task_writes_to_one_of_several_instances(spark, valkey, client, instance, options):
    frame = spark.range(100).select(F.col("id").cast("string").alias("value"))
    both = options | {"instance": f"{instance},{instance}-b"}
    with Client(valkey.url, instance=f"{instance}-b") as other:
        publish(frame, "sales", key=F.expr("concat('k', value)"), partitions=3, publisher="job", epoch=1, **both)
        found = [recorded(each, "sales") for each in (client, other)]
    assert sum(map(len, found)) == 100
    assert all(found)
    names = [{fields[b"p"] for fields in each} for each in found]
    assert not names[0] & names[1]
    assert names[0] | names[1] == {b"job/0", b"job/1", b"job/2", b"job/3"}


def test_without_a_key_rows_stay_where_they_are(spark, client, options):
    publish(spark.range(10, numPartitions=1), "sales", **options)
    assert [json.loads(value)["id"] for value in values(client, "sales")] == list(range(10))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"topic": None}, "topic: missing"),
        ({"key": "shopp"}, "key: no column 'shopp'; allowed: one of id"),
        ({"partitions": 3}, "partitions: without a key"),
        ({"key": "id", "partitions": 0}, "partitions: 0; allowed: 1 or more"),
        ({"chunk_row": 3}, "chunkRow: no such option"),
    ],
)
def test_what_is_wrong_is_told(spark, options, arguments, told):
    with pytest.raises(DefinitionError) as refused:
        publish(spark.range(1), **{"topic": "sales", **arguments}, **options)
    assert told in str(refused.value)
