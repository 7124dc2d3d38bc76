"""The facts of actions and of events that failed, as the JSON of their pages has them."""

from __future__ import annotations

from ampsq.console.facts import DefinitionField, Facts, Text

__all__ = [
    "ActionFacts",
    "ActionPageFacts",
    "ActionsFacts",
    "FailedEventFacts",
]


class ActionFacts(Facts):
    """An action and how far it has come.

    Attributes:
        name: its name.
        waiting: entries of its sources that it has not looked at yet.
        done: events on which it acted to the end.
        failed: events that failed and are tried again.
        error: why the last one failed, or why the action waited last; "" for never.
        definition: its definition.
    """

    name: Text
    waiting: int
    done: int
    failed: int
    error: Text
    definition: DefinitionField


class ActionsFacts(Facts):
    """Actions of an instance.

    Attributes:
        actions: all of them, by name.
    """

    actions: list[ActionFacts]


class FailedEventFacts(Facts):
    """An event that an action failed at.

    Attributes:
        number: by which it is retried or dropped.
        source: what it is of, as `expire work`.
        step: where it failed: the index of the step, -1 for the conditions.
        what: the word of that step.
        error: why.
        tries: how often it was tried.
        failed: when it failed first.
        next: when it is tried again.
        variables: name -> value.
    """

    number: int
    source: Text
    step: int
    what: Text
    error: Text
    tries: int
    failed: Text
    next: Text
    variables: dict[Text, Text]


class ActionPageFacts(ActionFacts):
    """An action with what it failed at.

    Attributes:
        events: failed events, the first 500.
    """

    events: list[FailedEventFacts]
