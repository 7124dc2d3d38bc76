"""`ampsq readers`, files with limits, and `ampsq subscribe` with conflation."""

from __future__ import annotations

import time

LIMITS = """<AMPSConfig>
  <ClientMessageAgeLimit>30s</ClientMessageAgeLimit>
  <Transports><Transport><Name>low</Name><Type>tcp</Type></Transport></Transports>
</AMPSConfig>
"""


def test_readers_are_shown_where_limits_are_defined(defined):
    # Given no limits, then nobody reports
    assert "no subscriptions to topics report" in defined("readers").err
    assert defined("readers", "--json").out == ""
    # Given those of a file of AMPS
    (defined.folder / "amps.xml").write_text(LIMITS)
    told = defined("apply", "--yes", "amps.xml")
    assert "Transport/Type is not acted on" in told.err
    assert "*" in told.out
    assert "low" in told.out
    # When somebody subscribes to a topic
    subscriber = defined.start("subscribe-topic", "orders", "--bookmark", "now")
    deadline = time.monotonic() + 60
    while not (found := defined("readers", "--json").json):
        assert time.monotonic() < deadline
    # Then it is there
    (row,) = found
    assert (row["subscription"], row["topics"], row["transport"]) == ("orders", ["orders"], "*")
    assert (row["state"], row["behind"], row["spooled"], row["oldest"], row["reason"]) == ("online", 0, 0, None, None)
    head, line = defined("readers").out.splitlines()
    assert head.split() == ["client", "transport", "subscription", "topics", "behind", "spooled", "oldest", "state"]
    assert "online" in line
    subscriber.terminate()


def test_a_topic_is_conflated_by_a_key(defined):
    defined.publish({"id": 1, "v": 1}, {"id": 2, "v": 1}, {"id": 1, "v": 2})
    asked = ("subscribe-topic", "orders", "--bookmark", "[epoch:now]", "--json", "--conflation", "auto")
    got = defined(*asked, "--conflation-key", "/id").json
    assert [line["data"] for line in got] == [{"id": 2, "v": 1}, {"id": 1, "v": 2}]
    assert "has no key" in defined(*asked, code=1).err


def test_limits_are_shown_as_sizes_and_intervals(defined):
    (defined.folder / "limits.yaml").write_text("message_disk_limit: 10MB\nclient_message_age_limit: 30s\n")
    assert defined("apply", "--yes", "limits.yaml").code == 0
    (defined.folder / "limits.yaml").write_text("message_disk_limit: 2GB\nclient_message_age_limit: 2m\n")
    told = defined("apply", "--yes", "limits.yaml", "--dry-run").out
    assert "message_disk_limit: 10MB -> 2GB" in told
    assert "client_message_age_limit: 30s -> 2m" in told
