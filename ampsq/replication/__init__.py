"""Replication: copying logs and journals from one instance to another, and who owns the messages of a queue there."""
