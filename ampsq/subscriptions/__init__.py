"""Subscriptions to queues: what is asked for, delivered, held and settled."""
