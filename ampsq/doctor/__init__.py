"""Looks at an instance and its server as a whole and tells what is wrong, why it matters and what mends it.

A look reads facts about the server (`ampsq.doctor.server_look`) and the instance (`ampsq.doctor.look`), and rules judge
them (`ampsq.doctor.server_rules`; `ampsq.doctor.rules`, `ampsq.doctor.serving`). Any server that answers is looked at
(`ampsq.doctor.reaching`), also one that no client would work with. Nothing is changed.
"""

from ampsq.doctor.examination import examine
from ampsq.doctor.look import Finding
from ampsq.doctor.reaching import reach

__all__ = ["Finding", "examine", "reach"]
