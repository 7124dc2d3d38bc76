"""Effects of changing an element of a queue that holds messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from ampsq.base.values import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ampsq.definitions.queue import Queue

__all__ = ["CHANGES", "Effect", "QueueChange", "refused_changes"]

Effect = Literal["another-queue", "at-once", "new-leases", "when-empty", "refused"]


class QueueChange(NamedTuple):
    """The effect of changing one element of a queue that holds messages.

    Attributes:
        effect: ``at-once``: holds from the moment of the change, for messages in the queue too;
            ``new-leases``: for leases made from then on; ``when-empty``: is refused while a message is in the queue;
            ``refused``: cannot be changed; ``another-queue``: makes a queue of its own.
        text: the same in a sentence, for people.
    """

    effect: Effect
    text: str


CHANGES: Mapping[str, QueueChange] = {
    "name": QueueChange("another-queue", "Another name is another queue; this one stays as it is."),
    "underlying_topic": QueueChange(
        "refused",
        "Refused: define a queue of another name over the new topics, and drain this one.",
    ),
    "default_publish_target": QueueChange("at-once", "The next publish to the queue's name goes to the new topic."),
    "message_type": QueueChange("at-once", "It follows the topics, which keep theirs once they have had a message."),
    "field_separator": QueueChange("at-once", "It follows the topics, which keep theirs once they have had a message."),
    "filter": QueueChange(
        "at-once", "Holds for messages that the queue reads from now on; messages in the queue stay."
    ),
    "semantics": QueueChange(
        "refused",
        "Refused: define a queue of another name with the new semantics, and drain this one.",
    ),
    "lease_period": QueueChange("new-leases", "Leases made from now on have the new length; earlier ones keep theirs."),
    "max_per_subscription_backlog": QueueChange(
        "at-once", "The room of each subscription is computed again; held leases stay, even above the new limit."
    ),
    "max_backlog": QueueChange(
        "at-once", "Delivery goes on once fewer leases are held than the new limit; held ones stay."
    ),
    "max_deliveries": QueueChange("at-once", "Checked against the new limit when a message next comes back."),
    "max_cancels": QueueChange("at-once", "Checked against the new limit when a message next comes back."),
    "fairness_model": QueueChange("at-once", "The order of subscriptions is computed again before the next delivery."),
    "leasing": QueueChange(
        "at-once", "The new value decides about each acknowledgement from now on, also of older leases."
    ),
    "priority": QueueChange(
        "at-once",
        "Every waiting message gets its new place, in bounded steps; nothing is delivered until that is done.",
    ),
    "barrier_expression": QueueChange(
        "at-once", "The new expression is evaluated for all waiting messages, in bounded steps."
    ),
    "group_by": QueueChange(
        "when-empty",
        "Refused while a message is in the queue, read or not: it would count for another group than it is leased in.",
    ),
    "group_concurrency": QueueChange(
        "at-once",
        "Leased messages stay leased. Messages that a larger value allows to be delivered are found in bounded steps. "
        "Where it makes groups begin or end, it can change only while the queue is empty.",
    ),
    "group_batch": QueueChange(
        "at-once",
        "For the next delivery of each group. A batch that is leased stays one, and comes back as one.",
    ),
    "group_choice": QueueChange(
        "at-once",
        "For the next delivery; what waits is put in its new order in bounded steps.",
    ),
    "group_weight": QueueChange(
        "at-once",
        "For groups that begin to wait from now on; one that waits keeps its weight until nothing of it waits.",
    ),
    "on_group_failure": QueueChange(
        "at-once",
        "For messages that fail from now on. With 'pass', messages that a failed one holds are delivered. A stopped "
        "group stays stopped.",
    ),
    "rate": QueueChange(
        "at-once",
        "For the next delivery. What was delivered before counts as long as it would have, and at most until an empty "
        "bucket is full.",
    ),
    "rate_burst": QueueChange("at-once", "For the next delivery."),
    "group_rate": QueueChange(
        "at-once", "For the next delivery of each group; the groups that it lets go are found in bounded steps."
    ),
    "group_rate_burst": QueueChange(
        "at-once", "For the next delivery of each group; the groups that it lets go are found in bounded steps."
    ),
    "group_affinity": QueueChange(
        "at-once",
        "For the next delivery of each group. One that is bound to a subscription stays so no longer than the new "
        "value allows from now on; without one, none is bound.",
    ),
    "expiration": QueueChange(
        "at-once", "The new value holds for every waiting message, and for a leased one when it comes back."
    ),
    "expiration_model": QueueChange(
        "at-once", "The new value holds for every waiting message, and for a leased one when it comes back."
    ),
    "redelivery_delay": QueueChange(
        "at-once", "For messages that come back from now on; those that wait already keep their delay."
    ),
    "redelivery_delay_multiplier": QueueChange("at-once", "For messages that come back from now on."),
    "max_redelivery_delay": QueueChange("at-once", "For messages that come back from now on."),
    "redelivery_collision_avoidance_factor": QueueChange("at-once", "For messages that come back from now on."),
    "ring_size": QueueChange(
        "at-once", "The change evicts nothing. From now on each message that enters beyond the new size evicts one."
    ),
    "target_queue_depth": QueueChange("at-once", "The active part grows or stops growing; messages in it stay."),
    "recovery_point": QueueChange(
        "at-once",
        "The queue begins again at the new point, in bounded steps, and reads no log meanwhile. Settled messages stay "
        "settled; others before the point leave the queue, unless they are leased; all others wait.",
    ),
    "file_backed_metadata": QueueChange("at-once", "No effect: the state of a queue is in the server already."),
    "allow_redelivery_after_crash": QueueChange("at-once", "The server is checked again when the change is applied."),
    "deferred_ack_expiration": QueueChange(
        "at-once", "For reports that arrive from now on; those that are kept already stay."
    ),
    "record_deliveries": QueueChange("at-once", "Deliveries are recorded from now on, or not any more."),
    "paused": QueueChange("at-once", "Delivery stops, or goes on; leases stay as they are."),
    "initial_owner": QueueChange(
        "when-empty",
        "Refused while a message is in the queue, read or not: two instances could deliver it. Drain it, and change it "
        "on every instance.",
    ),
    "group_local_queue_domain": QueueChange(
        "when-empty",
        "Refused while a message is in the queue, read or not, unless it names the group that was the default.",
    ),
}
"""For each element of a queue, what a change does while messages are in the queue.

Another kind of queue (`Queue`, `LocalQueue`, `GroupLocalQueue`) is another owner, and so is refused until the queue is
empty, as another `initial_owner` is.
"""


def refused_changes(old: Queue, new: Queue) -> list[str]:
    """List the changes from one definition of a queue to another that cannot be made.

    Returns:
        A text for each, naming the element, both values and the way round; empty when the change can be made.
    """
    return [
        f"{new.titled}: {element}: {shown(getattr(old, element))} cannot become "
        f"{shown(getattr(new, element))}. {change.text}"
        for element, change in CHANGES.items()
        if change.effect in ("refused", "another-queue") and getattr(old, element) != getattr(new, element)
    ]
