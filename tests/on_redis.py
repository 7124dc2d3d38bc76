"""Modules whose tests `make test` runs on Redis beside Valkey: of each room what is said to the server most.

All others run on Valkey alone there, and on Redis in `make test-slow`. Both kinds have the same Lua and the same
commands; where they differ, a test names its servers itself. Each script is loaded into both (`test_scripts`), and
instances that are linked are on one of each kind. `make matrix` runs some of these modules.
"""

from __future__ import annotations

SOON = frozenset(
    {
        *("test_scripts", "test_settle_script", "test_take_script", "test_sweep_script", "test_publish_script"),
        *("test_records_scripts", "test_catalog_scripts", "test_logon_script", "test_trim_script"),
        *("test_publishing", "test_publishers", "test_guaranteed_publishing", "test_keyed_batches"),
        *("test_acknowledging", "test_at_most_once", "test_returning", "test_subscribing", "test_grouped_queues"),
        *("test_durable_subscriptions", "test_conflated_topics", "test_sow", "test_record_subscriptions"),
        *("test_aggregates", "test_roles", "test_rights", "test_refused_scripts", "test_recovery_point"),
        "test_async_client",
    }
)


def is_soon(module):
    """Return whether `make test` runs a module's tests on Redis, too."""
    return module in SOON
