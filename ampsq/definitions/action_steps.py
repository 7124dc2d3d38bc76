"""Steps of an action (Do)."""

from __future__ import annotations

from typing import Any, ClassVar

from ampsq.base.values import Interval
from ampsq.definitions.action_triggers import Part
from ampsq.definitions.action_values import (
    NONE,
    Cases,
    Expression,
    Extractions,
    FilledText,
    Orders,
    Period,
    Target,
    Text,
    Variable,
    Wait,
    WebAddress,
)
from ampsq.definitions.definition import Name
from ampsq.definitions.elements import Delay, TopicOrPattern

__all__ = ["ActionStep", "Do"]

_TEN_SECONDS: Any = Interval(10_000)
_AT_ONCE: Any = Interval(0)


class ActionStep(Part):
    """A step of an action.

    Attributes:
        is_pure: it changes nothing outside of the event's own variables, so that doing it again is harmless.
    """

    is_pure: ClassVar[bool] = False


class Do:
    """Steps of an action, as in ``Do.publish(topic="dead")``."""

    class publish(ActionStep):  # noqa: N801
        """Publish a message: exactly once for each event.

        Attributes:
            topic: the topic to publish to; a name, or a text with variables that makes one.
            data: the body. Default: on expire the dead letter, a JSON object; else the message's own body.
        """

        word = "publish"
        module = "amps-action-do-publish-message"
        main = "topic"
        topic: Target
        data: Text | None = None

    class query(ActionStep):  # noqa: N801
        """Look for a message of a queue, a row of a view or a record; the first one's body becomes a variable.

        Attributes:
            topic: a queue, a view, or a topic with a key, or a regular expression of such.
            filter: an expression, in which variables are put first. Default: everything.
            capture_data: the variable. Default: AMPS_DATA.
            default_data: its value when nothing is found. Default: empty.
            order_by: expressions, each with ASC (default) or DESC. Default: the order of delivery.
        """

        word = "query"
        module = "amps-action-do-query-sow"
        main = "topic"
        is_pure = True
        topic: TopicOrPattern
        filter: Expression | None = None
        capture_data: Variable = "AMPS_DATA"
        default_data: Text = ""
        order_by: Orders = NONE

    class delete(ActionStep):  # noqa: N801
        """Acknowledge the messages of a queue that match a filter, or delete the records of a topic that do.

        Attributes:
            topic: the queue or the topic, which has a key, or a regular expression of such.
            filter: an expression, in which variables are put first. Default: all.
        """

        word = "delete"
        module = "amps-action-do-delete-sow"
        topic: TopicOrPattern
        filter: Expression | None = None

    class extract(ActionStep):  # noqa: N801
        """Take values out of a body into variables.

        Attributes:
            value: one ``VARIABLE=expression`` or several. What is NULL is the empty text.
            data: the body that is read. Default: ``{{AMPS_DATA}}``.
        """

        word = "extract"
        module = "amps-action-do-extract-values"
        main = "value"
        is_pure = True
        value: Extractions
        data: Text = "{{AMPS_DATA}}"

    class translate(ActionStep):  # noqa: N801
        """Give a variable another text for each text that it may have.

        Attributes:
            data: what is translated, as ``{{AMPS_REASON}}``.
            value: the variable for the result.
            case: ``from=to``, one or several. Default: none.
            default: where no case fits. Default: what was to be translated.
        """

        word = "translate"
        module = "amps-action-do-translate-data"
        is_pure = True
        data: FilledText
        value: Variable
        case: Cases = NONE
        default: Text | None = None

    class increment(ActionStep):  # noqa: N801
        """Count: once for each event.

        Attributes:
            key: the counter's name; all actions of an instance share the counters.
            value: the variable for what it counts now. Default: AMPS_COUNTER.
        """

        word = "increment"
        module = "amps-action-do-increment-counter"
        main = "key"
        key: FilledText
        value: Variable = "AMPS_COUNTER"

    class event(ActionStep):  # noqa: N801
        """Raise an event, which sets off the actions on it.

        Attributes:
            event: its name.
            data: its ``{{AMPS_DATA}}``. Default: this event's own.
        """

        word = "event"
        module = "amps-action-do-execute-event"
        main = "event"
        event: Name
        data: Text = "{{AMPS_DATA}}"

    class echo(ActionStep):  # noqa: N801
        """Write a line to the coordinator's log.

        Attributes:
            message: the line.
        """

        word = "echo"
        module = "amps-action-do-echo-message"
        main = "message"
        message: Text

    class downgrade_replication(ActionStep):  # noqa: N801
        """Downgrade the sync destinations that are behind: nobody waits for them until they are upgraded.

        Attributes:
            age: those whose oldest message without acknowledgement is older.
            grace_period: how long after the start of the server nothing is done. Default: 0s.
        """

        word = "downgrade_replication"
        module = "amps-action-do-downgrade-replication"
        main = "age"
        age: Period
        grace_period: Delay = _AT_ONCE

    class upgrade_replication(ActionStep):  # noqa: N801
        """Upgrade the destinations that were downgraded, have caught up and have a link; never one configured as async.

        Attributes:
            age: those whose oldest message without acknowledgement is younger; about half of what downgrades them.
            grace_period: how long after the start of the server nothing is done. Default: 0s.
        """

        word = "upgrade_replication"
        module = "amps-action-do-upgrade-replication"
        main = "age"
        age: Period
        grace_period: Delay = _AT_ONCE

    class execute(ActionStep):  # noqa: N801
        """Run a program, where the coordinator was started with ``--allow-commands``; its input is ``{{AMPS_DATA}}``.

        Attributes:
            command: the program and its arguments, quoted as for a shell, but no shell reads it: each variable stays
                within its argument.
            timeout: after which it is ended, which is a failure; up to 60s. Default: 10s.
        """

        word = "execute"
        module = "amps-action-do-execute-system"
        main = "command"
        command: FilledText
        timeout: Wait = _TEN_SECONDS

    class webhook(ActionStep):  # noqa: N801
        """POST to an address, where the coordinator was started with ``--allow-webhooks PREFIX`` of it.

        Attributes:
            url: http or https, or a variable that gives such an address.
            data: what is sent. Default: ``{{AMPS_DATA}}``.
            timeout: for the answer, which must be of the two hundreds; up to 60s. Default: 10s.
        """

        word = "webhook"
        module = "ampsq: AMPS has none"
        main = "url"
        url: WebAddress
        data: Text = "{{AMPS_DATA}}"
        timeout: Wait = _TEN_SECONDS
