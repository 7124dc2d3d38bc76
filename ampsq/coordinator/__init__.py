"""The coordinator: one process that does what has to happen over time, one duty a module."""

from ampsq.coordinator.main import Coordinator

__all__ = ["Coordinator"]
