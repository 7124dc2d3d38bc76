"""Queues: subscriptions, leases, settling, browsing, dead letters, explanations."""
