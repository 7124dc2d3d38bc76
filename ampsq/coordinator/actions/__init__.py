"""Duty: actions. When something happens, and if, something is done; publishing exactly once for each event.

Each source that an action follows (a journal, a log, ...) has a cursor and a sequence: every event has its number,
wanted or not. A step that publishes has a publisher of its own for each source, and the message of an event always gets
that event's number: a second publish, by a repeated call or by another coordinator, is a duplicate. An event that fails
is set aside before later ones pass, in one script with the cursor's move, and its number is used up in the publishers
of the steps still to be made; it is published by the script that moves it on among those that failed.
"""

from ampsq.coordinator.actions.duty import Actions
from ampsq.coordinator.actions.webhooks import OutsidePermissions

__all__ = ["Actions", "OutsidePermissions"]
