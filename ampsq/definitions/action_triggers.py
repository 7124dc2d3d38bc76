"""Triggers of an action (On), and conditions (If)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from ampsq.base.errors import DefinitionError
from ampsq.base.name_patterns import matches_name
from ampsq.base.values import is_name
from ampsq.definitions.action_values import (
    NONE,
    Cron,
    Every,
    Expression,
    FilledText,
    Percent,
    Period,
    Reasons,
    TimeZone,
)
from ampsq.definitions.definition import CheckedModel, Fault, Name
from ampsq.definitions.elements import Filter, Identifiers, TopicOrPattern
from ampsq.definitions.schedule import CronSchedule, Schedule, parse_schedule

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["If", "On", "Part", "Trigger"]

# For a type checker, what is not given fits every type.
_NOT_GIVEN: Any = None


class Part(CheckedModel):
    """One On, If or Do.

    Attributes:
        word: what files call it.
        module: AMPS's name of it.
        main: the element whose value may stand for the whole part; empty: it has none.
    """

    word: ClassVar[str]
    module: ClassVar[str]
    main: ClassVar[str] = ""

    @classmethod
    def title(cls, elements: Mapping[str, Any]) -> str:  # noqa: ARG003
        """Name the trigger in an error text."""
        return cls.word

    def to_elements(self) -> dict[str, Any]:
        """As files have it: ``{word: {element: value}}``, without what is as by default."""
        return {self.word: self.elements()}


class Trigger(Part):
    """A trigger of an action.

    Attributes:
        has_message: whether an event of it is about a message, so that ``{{AMPS_DATA}}`` is its body.
    """

    has_message: ClassVar[bool] = True

    @property
    def about(self) -> str | None:
        """The topic or queue, or the regular expression of such; None where there is none."""
        return getattr(self, "topic", None)

    def follows(self, name: str) -> bool:
        """Return whether the trigger is about the topic or queue of this name."""
        about = self.about
        if about is None:
            return True
        return matches_name(about, name)

    @property
    def is_pattern(self) -> bool:
        """Return whether the trigger is about a regular expression of names."""
        return self.about is not None and not is_name(self.about)

    @property
    def id(self) -> str:
        """Kind of the trigger and what it is about, unlike any other of the action: two of the same are refused."""
        return f"{self.word} {self.about or getattr(self, 'event', None) or '*'}"


class On:
    """Triggers of an action, as in ``On.expire(topic="work")``."""

    class expire(Trigger):  # noqa: N801  (the word that files use)
        """A message of a queue leaves it unprocessed.

        Attributes:
            topic: the queue.
            reason: only for these reasons, any of ``max_deliveries``, ``max_cancels``, ``forced_expire``,
                ``time_limit``. Default: none named, that is, all.
        """

        word = "expire"
        module = "amps-action-on-sow-expire-message"
        main = "topic"
        topic: Name
        reason: Reasons = NONE

    class delete(Trigger):  # noqa: N801
        """A message of a queue was acknowledged; of an at-most-once queue: sent.

        Attributes:
            topic: the queue.
        """

        word = "delete"
        module = "amps-action-on-sow-delete-message"
        main = "topic"
        topic: Name

    class deliver(Trigger):  # noqa: N801
        """A message of a queue was delivered to a subscription.

        Attributes:
            topic: the queue, or a regular expression of queues.
        """

        word = "deliver"
        module = "amps-action-on-deliver-message"
        main = "topic"
        topic: TopicOrPattern

    class publish(Trigger):  # noqa: N801
        """A message was published to a topic.

        Attributes:
            topic: the topic, or a regular expression of topics; never a queue over another topic.
            filter: an expression over the body; only messages that match it. Default: all.
        """

        word = "publish"
        module = "amps-action-on-publish-message"
        main = "topic"
        topic: TopicOrPattern
        filter: Filter | None = None

    class timeout(Trigger):  # noqa: N801
        """A message matches a filter for longer than a time, while no other one of the same key came that does not.

        Attributes:
            topic: a view, or a topic, of which the last message of each key counts.
            duration: how long it must match.
            filter: an expression over the body. Default: all messages match.
            key: identifiers that make messages versions of one; required for a topic, and a view's grouping for a view.
        """

        word = "timeout"
        module = "amps-action-on-message-condition-timeout"
        main = ""
        topic: Name
        duration: Period
        filter: Filter | None = None
        key: Identifiers = NONE

    class schedule(Trigger):  # noqa: N801
        """A time has come, given by `every` or by `cron`.

        Attributes:
            every: ``4h``, ``00:32`` or ``Saturday at 11:00``, or `cron` instead; a Z behind a time means UTC.
            cron: five fields, as in ``30 20 * * MON-FRI``: minute, hour, day of month, month, day of week.
            time_zone: of a time or of `cron`, as in ``Europe/Berlin``. Default: the coordinator's own.
        """

        word = "schedule"
        module = "amps-action-on-schedule"
        main = "every"
        has_message = False
        every: Every = _NOT_GIVEN
        cron: Cron | None = None
        time_zone: TimeZone | None = None

        @property
        def id(self) -> str:
            """The trigger's name among those of its action; its place is kept under that."""
            return " ".join(filter(None, (self.word, self.every, self.cron, self.time_zone)))

        @property
        def timetable(self) -> Schedule | CronSchedule:
            """The schedule by which it is due."""
            if self.cron is not None:
                return CronSchedule(self.cron, self.time_zone)
            return parse_schedule(self.every, self.time_zone)

        @classmethod
        def _conflicts(cls, given: Mapping[str, Any]) -> Iterator[Fault]:
            every = given.get("every")
            if every is None and "cron" not in given:
                yield Fault("every", "missing; or cron")
            if every is not None and "cron" in given:
                yield Fault("cron", "goes with no every; allowed: one of both")
            if every is None or "time_zone" not in given:
                return
            try:
                schedule = parse_schedule(every)
            except DefinitionError:
                return
            if schedule.period:
                yield Fault(
                    "time_zone", "a period is as long everywhere; allowed: with cron, or with a time of the day"
                )
            elif schedule.utc:
                yield Fault("time_zone", "a Z is UTC already; allowed: one of both")

    class subscribe(Trigger):  # noqa: N801
        """A consumer subscribed to a queue.

        Attributes:
            topic: the queue, or a regular expression of queues. Default: any.
        """

        word = "subscribe"
        module = "amps-action-on-subscribe"
        main = "topic"
        has_message = False
        topic: TopicOrPattern | None = None

    class unsubscribe(Trigger):  # noqa: N801
        """A subscription to a queue ended, also because its client is gone.

        Attributes:
            topic: the queue, or a regular expression of queues. Default: any.
        """

        word = "unsubscribe"
        module = "amps-action-on-unsubscribe"
        main = "topic"
        has_message = False
        topic: TopicOrPattern | None = None

    class connect(Trigger):  # noqa: N801
        """A client connected."""

        word = "connect"
        module = "amps-action-on-connect-client"
        has_message = False

    class disconnect(Trigger):  # noqa: N801
        """A client is gone, in good order or not."""

        word = "disconnect"
        module = "amps-action-on-disconnect-client"
        has_message = False

    class connect_replication(Trigger):  # noqa: N801
        """The link to a destination was made."""

        word = "connect_replication"
        module = "amps-action-on-connect-replication"
        has_message = False

    class disconnect_replication(Trigger):  # noqa: N801
        """The link to a destination was lost."""

        word = "disconnect_replication"
        module = "amps-action-on-disconnect-replication"
        has_message = False

    class downgrade_replication(Trigger):  # noqa: N801
        """A sync destination is not waited for any more."""

        word = "downgrade_replication"
        module = "amps-action-on-downgrade-replication"
        has_message = False

    class upgrade_replication(Trigger):  # noqa: N801
        """A sync destination is waited for again."""

        word = "upgrade_replication"
        module = "amps-action-on-upgrade-replication"
        has_message = False

    class event(Trigger):  # noqa: N801
        """An action raised an event.

        Attributes:
            event: its name.
        """

        word = "event"
        module = "amps-action-on-execute-event"
        main = "event"
        event: Name


class If:
    """On what condition, as in ``If.condition(condition="/qty > 10")``."""

    class condition(Part):  # noqa: N801
        """An expression over ``{{AMPS_DATA}}`` is true.

        Attributes:
            condition: the expression, in which variables are put first.
        """

        word = "condition"
        module = "amps-action-if-condition"
        main = "condition"
        condition: Expression

    class file_system_usage(Part):  # noqa: N801
        """A file system is fuller than so many percent, where the coordinator runs.

        Attributes:
            path: a path on it.
            greater_than: percent, 0 to 100.
        """

        word = "file_system_usage"
        module = "amps-action-if-file-system-usage"
        path: FilledText
        greater_than: Percent
