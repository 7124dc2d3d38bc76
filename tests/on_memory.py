"""Tests that run on fakeredis as on Valkey and Redis, and those that differ there, each with its reason."""

from __future__ import annotations

#: Modules whose tests that ask for `server` run on the server of `memory://`, too.
MODULES = frozenset(
    {
        *("test_settle_script", "test_take_script", "test_sweep_script", "test_publish_script", "test_priority"),
        *("test_filters", "test_queue_filter", "test_barriers", "test_barrier_delivery", "test_ring", "test_expiry"),
        *("test_message_expiry", "test_fairness", "test_schedule", "test_returns_kept", "test_settle_by_ref"),
        *("test_work", "test_action_scripts", "test_replace_script", "test_walks", "test_redrive_script"),
        *(
            "test_filter_index",
            "test_groups",
            "test_group_model",
            "test_records_scripts",
            "test_record_deletion_scripts",
            "test_catalog_scripts",
        ),
    }
)

_TIMES = "it measures the server's own CPU time, of which this one says nothing"
#: Module and test -> why it is an exception.
EXCEPTIONS = {
    (
        "test_catalog_scripts",
        "test_open_makes_an_instance_and_finds_it_again",
    ): "no run ID of its own",
    ("test_catalog_scripts", "test_a_queue_is_defined_with_its_topics_route_and_anchor"): "no OBJECT ENCODING",
    (
        "test_message_expiry",
        "test_a_million_others_are_not_looked_at",
    ): "no CONFIG RESETSTAT",
    ("test_filter_index", "test_an_index_over_large_bodies_is_built_in_small_steps"): "no INFO commandstats",
    ("test_work", "test_leased_messages_that_are_large_are_browsed_a_few_at_a_time"): _TIMES,
    ("test_work", "test_a_look_at_large_messages_answers_for_the_first_ones"): _TIMES,
    ("test_work", "test_many_filters_judge_a_few_large_messages_at_a_time"): _TIMES,
    ("test_work", "test_a_barrier_does_not_move_what_waits_behind_it"): _TIMES,
}

#: Of them, modules that `make test` runs on it, too; the others run there in `make test-slow`: it interprets scripts in
#: Python, which takes longer than a server does. The test kit itself is in `tests/testing`.
SOON = frozenset(
    {
        *("test_settle_script", "test_publish_script", "test_catalog_scripts"),
        *("test_action_scripts", "test_barrier_delivery"),
    }
)


def exception_of(module, test):
    """Return why a test does not hold on fakeredis; None where it does."""
    return EXCEPTIONS.get((module, test))


def is_soon(module):
    """Return whether `make test` runs a module's tests on fakeredis, too."""
    return module in SOON
