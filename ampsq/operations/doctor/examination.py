"""Two looks with a moment between them, and what the rules say of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ampsq.base.errors import FormatMismatch, NotPermitted, Unavailable
from ampsq.base.suggestions import explain_missing_instance
from ampsq.operations.doctor.instance_facts import Finding, read_instance_facts, read_repeated_facts
from ampsq.operations.doctor.instance_rules import RULES
from ampsq.operations.doctor.server_facts import read_server_facts, rules_of
from ampsq.operations.doctor.server_rules import SERVER_RULES
from ampsq.protocol.reads.instance import is_attended, is_opened, is_slot_key_taken
from ampsq.protocol.reads.instances import read_instances
from ampsq.protocol.reads.origin import read_origin
from ampsq.protocol.request import Pause

if TYPE_CHECKING:
    from ampsq.transport.pipeline import Pipeline

__all__ = ["examine"]

#: Times that a coordinator which is just being started is waited for, and seconds between them.
_LOOKS: Final = 12
_PAUSE: Final = 0.25
_UNSEEN: Final = "how coordinator, queues, links and logs are cannot be told"


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
        subject = f"instance {instance}"
        try:
            found += await _examine_instance(instance, pipeline, interval)
        except FormatMismatch as error:
            mend = "the release of ampsq that wrote it, or one in between, see docs/upgrading.md"
            if error.is_upgradable:
                mend = f"ampsq upgrade --instance {instance}    # make a backup first, see docs/upgrading.md"
            found.append(Finding("format", subject, well=False, text=str(error), why=_UNSEEN, mend=mend))
        except NotPermitted as error:
            why = f"{_UNSEEN} under these rights"
            found.append(Finding("rights", subject, well=False, text=str(error), why=why, mend=rules_of(instance)))
        except Unavailable as error:
            mend = "ampsq doctor    # again; what keeps it from answering may be told above"
            found.append(Finding("answers", subject, well=False, text=str(error), why=_UNSEEN, mend=mend))
    return sorted(found, key=lambda finding: finding.well)


async def _examine_instance(instance: str, pipeline: Pipeline, interval: float) -> list[Finding]:
    if not (await is_opened(instance)):
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
        return [Finding("instance", f"instance {instance}", well=False, text=text, why=why, mend=mend)]
    taken = await is_slot_key_taken(instance)
    origin = await read_origin(instance)
    before = await read_repeated_facts(instance, pipeline)
    await Pause(interval)
    for _ in range(_LOOKS):
        if await is_attended(instance):
            break
        await Pause(_PAUSE)
    after = await read_instance_facts(instance, origin, pipeline)
    found = [finding for rule in RULES for finding in rule(before, after)]
    return [*found, *([_slot_key_taken(instance)] if taken else [])]


def _slot_key_taken(instance: str) -> Finding:
    return Finding(
        "slot key",
        f"instance {instance}",
        well=False,
        text=f"somebody made a key named {{{instance}}}",
        why="no client can open the instance; while its slot of a cluster is moved, half a script could run",
        mend=f"redis-cli RENAME '{{{instance}}}' 'other-{instance}'    # or remove it, once you know what it is",
    )
