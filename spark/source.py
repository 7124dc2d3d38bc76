"""`format("ampsq")`: what Spark asks for, and which of our parts answers.

    spark.read.format("ampsq").option("topic", "orders")...        a range of a topic, once
    spark.readStream.format("ampsq").option("topic", "orders")...  a topic, on and on
    spark.readStream.format("ampsq").option("queue", "work")...    a queue: leases, acknowledged batch by batch
    frame.write.format("ampsq").option("topic", "orders").mode("append").save()
    frame.writeStream.format("ampsq").option("topic", "orders")...

All options are checked here, on the driver, before any job starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

__all__ = ["AmpsqDataSource"]


class AmpsqDataSource(DataSource):
    """The data source ``ampsq``."""

    @classmethod
    def name(cls) -> str:
        """Return what `format` takes."""
        return "ampsq"

    def schema(self) -> StructType:
        """Return the columns of what is read."""
        from ampsq.spark.columns import read_schema  # noqa: PLC0415 - Spark imports the source for every other one, too

        return read_schema(self.options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - Spark's signature
        """Return what writes one batch job."""
        from ampsq.spark.writing import BatchWriter  # noqa: PLC0415

        return BatchWriter.of(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: FBT001, N802
        """Return what writes micro-batches."""
        from ampsq.spark.writing import StreamWriter  # noqa: PLC0415

        return StreamWriter.of(self.options, schema, overwrite=overwrite)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads a range of topics."""
        from ampsq.spark.batch_reading import batch_reader  # noqa: PLC0415

        return batch_reader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return what reads topics, or a queue, on and on."""
        from ampsq.spark.stream_reading import stream_reader  # noqa: PLC0415

        return stream_reader(self.options, schema)
