"""Addresses that are wrong: the reason told is the one that is so."""

from __future__ import annotations

import pytest

from ampsq.base.addresses import Endpoint
from ampsq.base.errors import DefinitionError


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("nonsense://x", "it has no scheme that is known"),
        ("sentinel", "it has no scheme that is known"),
        ("sentinel://s1,s2", "the name of the service is missing, as in sentinel://"),
        ("sentinel://s1/orders?sentinel_user=x", "unknown option sentinel_user; allowed: sentinel_username"),
        ("cluster://n1/3", "a cluster has one database"),
        ("redis://h:99999", "Port out of range"),
        ("redis://h:1/orders", "'orders' is no number of a database, as in redis://HOST:6379/2"),
        ("sentinel://s1/orders/two", "'two' is no number of a database"),
        ("redis://one..com:1", "'one..com' is no name of a host"),
        ("cluster://n1,n2..com", "'n2..com' is no name of a host"),
        ("redis://\udcff:1", "'\\udcff' is no name of a host"),
        ("redis://h:1?foo=1", "unknown option 'foo'; allowed are those of redis-py for redis://"),
        ("redis://h:1?ssl_certfile=x", "unknown option 'ssl_certfile'; allowed are those of redis-py for redis://"),
        ("redis://h:1?kwargs=", "unknown option 'kwargs'"),
        (
            "redis://h:1?partitions=4",
            "partitions= is for Client, AsyncClient and commands; this takes",
        ),
        ("cluster://n1?partitions=4", "partitions= is for Client, AsyncClient and commands"),
        (
            "redis://h:1?Partition=4",
            "unknown option 'Partition', did you mean 'partitions'?; allowed are",
        ),
        ("redis://h:1?socket_timout=4", "unknown option 'socket_timout', did you mean 'socket_timeout'?"),
        ("redis://h:1,,", "behind a comma comes another address, with its scheme"),
        ("redis://h:1,g:2", "behind a comma comes another address, with its scheme"),
    ],
)
def test_an_address_that_is_wrong_says_why(text, reason):
    with pytest.raises(DefinitionError) as refusal:
        Endpoint.parse(text)
    assert f"address {text!r}: {reason}" in str(refusal.value)


@pytest.mark.parametrize(
    "text",
    [
        "redis://h:1?socket_timeout=5&db=2",
        "redis://h:1?max_connections=9",
        "rediss://h:1?ssl_ca_certs=/x&ssl_cert_reqs=none",
        "unix:///tmp/s?db=1",
        "cluster://n1,n2?protocol=3",
        "sentinel://s1/orders?sentinel_password=x&socket_timeout=5",
    ],
)
def test_an_address_may_have_the_options_of_redis_py(text):
    assert Endpoint.parse(text).text == text
