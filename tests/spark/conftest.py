"""One session of Spark for all tests here: they run in one process, after the others (see the Makefile)."""

from __future__ import annotations

import itertools

import pytest

from ampsq import Client
from ampsq.spark import prepare_environment

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def spark():
    """A local session with two cores and as little around it as Spark allows."""
    prepare_environment()
    from pyspark.sql import SparkSession  # noqa: PLC0415 - the environment comes first

    builder = SparkSession.builder.master("local[2, 2]").appName("ampsq-tests")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "OFF",
        # Jobs of a moment: compiling them well takes longer than running them.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.adaptive.enabled": "false",
    }.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()


@pytest.fixture
def instance():
    """A name that no other test uses."""
    return f"spark-{next(_numbers)}"


@pytest.fixture
def client(valkey, instance):
    """A client of an instance of the test's own."""
    with Client(valkey.url, instance=instance) as client:
        yield client


@pytest.fixture
def options(valkey, instance):
    """The options that name it."""
    return {"url": valkey.url, "instance": instance}
