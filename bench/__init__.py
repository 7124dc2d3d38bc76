"""Benchmarks: ampsq beside raw Redis Streams, on the same server, in the same run. Installed as ``ampsq.bench``."""
