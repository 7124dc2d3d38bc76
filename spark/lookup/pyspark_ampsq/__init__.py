"""Entry point for Spark's `format("ampsq")`: it imports every module `pyspark_*` and asks for `DefaultSource`.

It does so at the first use of any source, so this imports what the source itself needs and nothing else.
"""

from ampsq.spark.source import AmpsqDataSource as DefaultSource

__all__ = ["DefaultSource"]
