"""Two looks with a moment between them, and what the rules say of them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import FormatMismatch, NotPermitted, Unavailable
from ampsq.base.suggestions import explain_missing_instance
from ampsq.operations.doctor.instance_facts import Finding, read_instance_facts, read_repeated_facts
from ampsq.operations.doctor.instance_rules import RULES
from ampsq.operations.doctor.server_facts import read_server_facts, rules_of
from ampsq.operations.doctor.server_rules import SERVER_RULES
from ampsq.protocol.reads.instance import instance_state, is_attended, is_opened, is_slot_key_taken
from ampsq.protocol.reads.instances import read_instances
from ampsq.protocol.reads.origin import read_origin
from ampsq.protocol.request import Pause

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampsq.operations.doctor.instance_facts import InstanceFacts, RepeatedFacts
    from ampsq.transport.pipeline import Pipeline

__all__ = ["LOOKS", "PAUSE", "InstanceExamination", "examine"]

#: Times that a coordinator which is just being started is waited for, and seconds between them.
LOOKS: Final = 12
PAUSE: Final = 0.25
_UNSEEN: Final = "how coordinator, queues, links and logs are cannot be told"


class InstanceExamination:
    """The examination of an instance: a look at it, and another one a moment later.

    Args:
        instance: its name.
        pipeline: for calls on their way together, of the store that runs its flows.

    Attributes:
        found: the findings so far; whatever keeps us from looking at a part is one of its own.
        before: the facts of the first look; None: there is nothing to look at again.
        after: those of the second one; None before that, and where it was not possible.
    """

    def __init__(self, instance: str, pipeline: Pipeline) -> None:
        self._instance, self._pipeline = instance, pipeline
        self._origin, self._is_slot_key_taken = "", False
        self.found: list[Finding] = []
        self.before: RepeatedFacts | None = None
        self.after: InstanceFacts | None = None

    async def begin(self) -> None:
        """Look for the first time."""
        with self._noting():
            if not (await is_opened(self._instance)):
                self.found.append(await _find_missing(self._instance))
                return
            self._is_slot_key_taken = await is_slot_key_taken(self._instance)
            self._origin = await read_origin(self._instance)
            self.before = await read_repeated_facts(self._instance, self._pipeline)

    async def is_attended(self) -> bool:
        """Ask whether a coordinator is at work; yes where that cannot be asked, since nobody should wait for it."""
        if self.before is not None:
            with self._noting():
                return await is_attended(self._instance)
        return True

    async def end(self) -> None:
        """Look for the second time, and judge."""
        if self.before is None:
            return
        with self._noting():
            self.after = await read_instance_facts(self._instance, self._origin, self._pipeline)
            self.found += [finding for rule in RULES for finding in rule(self.before, self.after)]
            self.found += [_slot_key_taken(self._instance)] if self._is_slot_key_taken else []

    @contextlib.contextmanager
    def _noting(self) -> Iterator[None]:
        """Note what ends a look as a finding; there is no further one then."""
        instance, subject = self._instance, f"instance {self._instance}"
        try:
            yield
        except FormatMismatch as error:
            mend = "the release of ampsq that wrote it, or one in between, see docs/upgrading.md"
            if error.is_upgradable:
                mend = f"ampsq upgrade --instance {instance}    # make a backup first, see docs/upgrading.md"
            self._end(Finding("format", subject, well=False, text=str(error), why=_UNSEEN, mend=mend))
        except NotPermitted as error:
            why = f"{_UNSEEN} under these rights"
            self._end(Finding("rights", subject, well=False, text=str(error), why=why, mend=rules_of(instance)))
        except Unavailable as error:
            mend = "ampsq doctor    # again; what keeps it from answering may be told above"
            self._end(Finding("answers", subject, well=False, text=str(error), why=_UNSEEN, mend=mend))

    def _end(self, finding: Finding) -> None:
        self.found.append(finding)
        self.before = None


async def examine(instance: str, pipeline: Pipeline, interval: float) -> list[Finding]:
    """Look at the server, and twice at the instance, and judge: what is wrong first.

    Whatever keeps us from looking at a part is a finding of its own.

    Args:
        instance: its name.
        pipeline: for calls on their way together, of the store that runs this.
        interval: seconds between the two looks: what grows and what stands still shows in them.

    Raises:
        Unavailable: the server does not answer.
    """
    server = await read_server_facts(instance)
    found = [finding for rule in SERVER_RULES for finding in rule(server)]
    if server.is_readable:
        examination = InstanceExamination(instance, pipeline)
        await examination.begin()
        if examination.before is not None:
            await Pause(interval)
        for _ in range(LOOKS):
            if await examination.is_attended():
                break
            await Pause(PAUSE)
        await examination.end()
        found += examination.found
    return sorted(found, key=lambda finding: finding.well)


async def _find_missing(instance: str) -> Finding:
    subject = f"instance {instance}"
    count = (await instance_state(instance)).partitions
    if count:
        text = f"it has {count} partitions, which hold what it has"
        why, mend = "nothing of them was looked at", f"ampsq doctor --url 'ADDRESS?partitions={count}'"
        return Finding("instance", subject, well=False, text=text, why=why, mend=mend)
    others, unknown = list[str](), ""
    try:
        others = await read_instances()
    except Unavailable as error:
        unknown = str(error)
    why = "nothing is defined or recorded under this name; --instance NAME or AMPSQ_INSTANCE says another one"
    text, mend = (
        f"the server has {explain_missing_instance(instance, others, unknown)}",
        f"ampsq apply FILE --instance {instance}",
    )
    return Finding("instance", subject, well=False, text=text, why=why, mend=mend)


def _slot_key_taken(instance: str) -> Finding:
    return Finding(
        "slot key",
        f"instance {instance}",
        well=False,
        text=f"somebody made a key named {{{instance}}}",
        why="no client can open the instance; while its slot of a cluster is moved, half a script could run",
        mend=f"redis-cli RENAME '{{{instance}}}' 'other-{instance}'    # or remove it, once you know what it is",
    )
