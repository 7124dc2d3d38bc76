"""``python -m ampsq.bench.size`` measures every figure of what one node carries, on as little as shows it."""

from __future__ import annotations

import json

from click.testing import CliRunner

from ampsq.bench.size import SizeFigures, size, table


def measured(*arguments):
    return CliRunner().invoke(size, ["--messages", "2000", "--waiting", "500", *arguments])


def test_every_figure_of_a_node_s_size_is_measured():
    done = measured("--json")
    assert done.exit_code == 0, done.output
    figures = json.loads(done.stdout)
    assert figures.keys() == SizeFigures.__annotations__.keys()
    # What does not depend on the machine's mood
    assert (figures["messages"], figures["waiting"], figures["records"]) == (2000, 500, 100)
    assert figures["trimmed"] == 1500
    assert 200 < figures["log_bytes"] < 350
    assert figures["rewritten_bytes"] < figures["file_bytes"]
    # And the table has a line for each
    lines = table(figures).splitlines()
    assert lines[0] == "| 2,000 messages in the log, 500 waiting | |"
    assert len(lines) == 2 + 18
    assert all(line.count("|") == 3 for line in lines[2:])


def test_no_more_may_wait_than_every_second_message():
    done = CliRunner().invoke(size, ["--messages", "1000", "--waiting", "501"])
    assert done.exit_code == 2
    assert "allowed is up to half of --messages, 500" in done.output
