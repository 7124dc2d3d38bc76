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

#: Tests that take this server long, which interprets scripts in Python: `make test` runs them on the other two alone.
LONG = frozenset(
    {
        ("test_barriers", "test_hundreds_of_barriers_in_a_row_are_all_sent_by_the_sweeps"),
        ("test_expiry", "test_a_million_that_are_over_leave_in_bounded_steps"),
        ("test_fairness", "test_a_batch_is_spread_over_all_free_subscriptions_however_many"),
        ("test_fairness", "test_proportional_over_many_pages_is_the_same_in_a_batch_as_one_by_one"),
        ("test_filter_index", "test_a_filter_that_appears_while_many_wait_gives_its_messages_from_the_first_on"),
        ("test_filter_index", "test_more_than_a_call_s_share_ready_and_sorted_is_plain_as_soon_as_that_is_cheap"),
        ("test_filter_index", "test_thousands_of_ready_ones_that_somebody_removed_are_missing_in_bounded_calls"),
        ("test_filter_index", "test_thousands_that_were_sorted_are_in_order_when_the_queue_is_plain_again"),
        ("test_filters", "test_a_batch_is_given_as_one_by_one_across_filters"),
        ("test_filters", "test_a_reply_of_large_bodies_is_bounded_across_filters"),
        ("test_filters", "test_each_gets_its_messages_in_order"),
        ("test_filters", "test_with_full_pages_of_subscriptions_nothing_is_lost"),
        ("test_group_model", "test_random_histories_of_groups_agree_with_the_model"),
        ("test_groups", "test_no_group_hides_another_however_much_of_it_waits"),
        ("test_message_expiry", "test_a_million_others_are_not_looked_at"),
        ("test_priority", "test_another_priority_over_thousands_gives_nothing_before_all_have_their_places"),
        ("test_priority", "test_thousands_that_somebody_removed_from_the_log_are_missing_in_bounded_calls"),
        ("test_replace_script", "test_an_inbox_is_given_back_uncounted_and_served_anew"),
        ("test_ring", "test_a_ring_that_is_hardly_smaller_than_the_target_depth_takes_in_many_a_call"),
        (
            "test_schedule",
            "test_a_barrier_that_comes_due_with_hundreds_before_more_than_a_call_places_anew_stays_between_them",
        ),
        ("test_schedule", "test_a_factor_makes_it_vary_on_both_sides"),
        ("test_sweep_script", "test_1200_leases_lapse_in_several_bounded_steps"),
        ("test_take_script", "test_more_than_32_topics_behind_at_once_are_merged_in_the_order_of_publication"),
        ("test_walks", "test_a_step_goes_on_where_the_last_one_stopped_though_that_is_gone"),
        ("test_walks", "test_thousands_are_seen_once_in_bounded_steps"),
        ("test_work", "test_a_look_at_large_messages_answers_for_the_first_ones"),
        ("test_work", "test_leased_messages_that_are_large_are_browsed_a_few_at_a_time"),
        ("test_work", "test_places_whose_messages_left_the_log_are_browsed_in_steps"),
    }
)


def exception_of(module, test):
    """Return why a test does not hold on fakeredis; None where it does."""
    return EXCEPTIONS.get((module, test))


def is_long(module, test):
    """Return whether a test takes fakeredis so long that `make test` leaves it out there."""
    return (module, test) in LONG
