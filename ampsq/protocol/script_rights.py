"""Rights that a script checks before it writes anything: those that not every role has.

A server judges each command of a script when it comes to it, and takes nothing back. So a script that one role may run
and another may not would stop halfway for the other. Therefore each script begins by asking the server for what of it
somebody may lack, and where that is refused it does just this: the server's own error ends it, with all keys as they
were. What every role may is not asked for, so that publishing and taking stay as fast as they are.

Some scripts are not a role's, though it has every right that is in them: a queue's counters are one hash with what a
worker counts there. These ask for a right beside, which stands for that of its kind: then a call of ours is refused.
Whoever writes a script of its own does not ask; against that only the server's rules help (docs/security.md).

Whoever records in a log asks for that log beside, before it writes (lua/log/lib/log_rights.lua): a publisher may be
bound to some topics.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["ADMINISTERING", "CONSUMING", "GUARDED_COMMANDS", "GUARDED_KEYS", "OPTIONAL_COMMANDS", "rights_asked"]

_ADMINISTERING: Final = """
    advance_action apply_journal apply_log assume_ownership begin_incarnation begin_rebuild begin_recovery
    begin_upgrade check_copies check_delayed_counts check_filter_index check_free_subscriptions check_groups
    check_lease_count check_log check_owners check_queue check_structure check_timetable claim_messages
    correct_read_count define_action define_conflated define_destination define_instance define_queue define_setting
    define_topic define_transport define_view discard_unsettled downgrade drop_before_start drop_group emit_overdue
    end_rebuild end_recovery end_upgrade forget_publishers grant_messages keep_duty note_definitions note_flushing
    offer_messages pause_group raise_counter read_news rebuild redrive relay_requests release_group remove_action
    remove_conflated remove_destination remove_queue remove_setting remove_transport remove_view repair report_sent
    request_messages retry_event set_event_aside set_intent set_proxied_transfer track_matches trim_journal trim_log
    upgrade_queues
"""
#: Scripts that neither publishers nor workers nor gateways have: they ask for the right to define, used or not.
ADMINISTERING: Final = frozenset(_ADMINISTERING.split())
_CONSUMING: Final = """
    begin_session end_wait heartbeat hold_log pin_messages push_again replace_subscription report_reader resize_backlog
    save_bookmarks scan_foreign_entries settle subscribe sweep take unsubscribe
"""
#: Scripts of those who consume, which publishers do not have.
CONSUMING: Final = frozenset(_CONSUMING.split())
#: Commands of scripts that some role lacks -> what follows the key where they are asked for; a test compares roles.
GUARDED_COMMANDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "HRANDFIELD": "", "HVALS": "", "LINDEX": ", 0", "LLEN": "", "LPOP": "", "LPOS": ", ''", "LPUSH": ", ''",
        "PERSIST": "", "PEXPIRE": ", 1", "SADD": ", ''", "SCARD": "", "SREM": ", ''", "XDEL": ", '0-1'",
        "XSETID": ", '0-1'", "XTRIM": ", 'MAXLEN', 0",
        "ZLEXCOUNT": ", '-', '+'", "ZRANK": ", ''", "ZREMRANGEBYSCORE": ", 0, 0",
        "ZREVRANGE": ", 0, 0", "ZSCAN": ", 0",
    }
)  # fmt: skip
#: Commands that some role lacks and a script does without: it goes on where the server refuses them.
OPTIONAL_COMMANDS: Final = frozenset({"DBSIZE"})
#: Keys without parameters that some role may only read: what follows the tag. A test compares roles, too.
GUARDED_KEYS: Final = frozenset(
    {
        ":actions", ":conflated", ":destinations", ":lasting", ":limits", ":links", ":queues", ":received", ":recovery",
        ":routes", ":settings", ":topics", ":transports", ":views",
    }
)  # fmt: skip
#: How keys are written -> what follows the key where that is asked for.
_WRITES: Final = MappingProxyType({"DEL": "", "HDEL": ", ''", "HSET": ", '', ''", "HSETNX": ", '', ''", "SET": ", ''"})
#: What stands for the right to define, and for that to consume: a key and a command that others do without.
_DEFINES: Final = ":topics"
_TAKES: Final = "LPOP"
_COMMAND: Final = re.compile(r"'([A-Z]+)'")
_WRITTEN: Final = re.compile(rf"call\('({'|'.join(_WRITES)})', \(P \.\. '(:[a-z]+)'\)")


def rights_asked(name: str, source: str) -> Iterator[str]:
    """Lines of Lua that ask for what a script has in it and some role lacks.

    Args:
        name: of the script.
        source: all of it, its keys spelled out.
    """
    used = set(_COMMAND.findall(source))
    if name in CONSUMING:
        used.add(_TAKES)
    for command, rest in GUARDED_COMMANDS.items():
        if command in used:
            yield _asked(command, "P", rest)
    # One way of writing a key stands for all.
    written = {suffix: command for command, suffix in _WRITTEN.findall(source) if suffix in GUARDED_KEYS}
    if name in ADMINISTERING:
        written.setdefault(_DEFINES, "HSET")
    for suffix, command in sorted(written.items()):
        yield _asked(command, f"P .. '{suffix}'", _WRITES[command])


def _asked(command: str, key: str, rest: str) -> str:
    arguments = f"'{command}', {key}{rest}"
    # The refused command itself: the error, and the server's log of refusals, are those of any other one.
    return f"if not redis.acl_check_cmd({arguments}) then call({arguments}) end"
