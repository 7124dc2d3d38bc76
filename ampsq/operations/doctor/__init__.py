"""Looks at an instance and its server as a whole and tells what is wrong, why it matters and what mends it.

A look reads facts about the server (`ampsq.operations.doctor.server_facts`) and the instance
(`ampsq.operations.doctor.instance_facts`), and rules judge them (`ampsq.operations.doctor.server_rules`,
`ampsq.operations.doctor.instance_rules`). Any server that answers is looked at (`ampsq.operations.doctor.any_server`),
also one that no client would work with. Of an instance with partitions all are looked at
(`ampsq.operations.doctor.partitions`). Nothing is changed.
"""

from ampsq.operations.doctor.any_server import open_any_server
from ampsq.operations.doctor.examination import examine
from ampsq.operations.doctor.instance_facts import Finding

__all__ = ["Finding", "examine", "open_any_server"]
