"""Servers of the benchmark's own: their ports are nobody's, and where one was taken meanwhile they start on others."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import redis

from ampsq.bench import server as bench_server
from ampsq.bench.server import free_ports


def test_a_server_begins_anew_where_somebody_has_taken_its_port(monkeypatch, tmp_path):
    free = iter([free_ports(2), free_ports(2)])
    with socket.socket() as taken:
        port, bus = next(free)
        taken.bind(("127.0.0.1", port))
        taken.listen()
        monkeypatch.setattr(bench_server, "free_ports", lambda _: (port, bus) if not started else next(free))
        started, popen = [], subprocess.Popen
        monkeypatch.setattr(
            bench_server.subprocess, "Popen", lambda *words, **how: started.append(words) or popen(*words, **how)
        )
        own = bench_server.PrivateServer(tmp_path, has_bus=True, options=["--cluster-enabled", "yes"])
        try:
            own.start()
            assert len(started) == 2
            assert (own.port, own.bus) != (port, bus)
            with redis.Redis(port=own.port) as client:
                assert client.ping()
            # One that has run keeps its port, where others know it.
            before = own.port
            own.kill()
            own.start()
            assert own.port == before
        finally:
            own.kill()


def test_free_ports_differ_and_are_none_that_connections_get():
    found = free_ports(40)
    assert len(set(found)) == 40
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    assert not any(low <= port <= high for port in found)
