"""Which tests run on fakeredis as they do on Valkey and Redis, and which of them differ there, each with its reason."""

from __future__ import annotations

#: Modules whose tests that ask for `server` run on the server of `memory://`, too.
MODULES = frozenset(
    {
        *("test_settle_script", "test_take_script", "test_sweep_script", "test_publish_script", "test_priority"),
        *("test_filters", "test_queue_filter", "test_barriers", "test_barrier_delivery", "test_ring", "test_expiry"),
        *("test_message_expiry", "test_fairness", "test_schedule", "test_returns_kept", "test_settle_by_ref"),
        *("test_work", "test_action_scripts", "test_replace_script", "test_walks", "test_redrive_script"),
        *("test_filter_index", "test_records_scripts", "test_record_deletion_scripts", "test_catalog_scripts"),
    }
)

#: Module and test -> why it is an exception.
EXCEPTIONS: dict[tuple[str, str], str] = {}


def exception_of(module, test):
    """Why a test does not hold on fakeredis; None where it does."""
    return EXCEPTIONS.get((module, test))
