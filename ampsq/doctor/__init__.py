"""Looks at an instance and its server as a whole and tells what is wrong, why it matters and what mends it.

A look reads facts (`ampsq.doctor.look`), and rules judge them (`ampsq.doctor.rules`, `ampsq.doctor.serving`).
Nothing is changed.
"""

from ampsq.doctor.examination import examine
from ampsq.doctor.look import Finding

__all__ = ["Finding", "examine"]
